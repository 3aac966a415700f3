//! What a resize aims at: the dims of the result, the scale and the region of each axis, as far as they are known.

use crate::ctx::{check, dims, shape};
use trtc_ir::{Code, Diag, Dim, NodeView, Refusal};

/// Target of each axis.
pub struct Aim {
    /// The axes that the node names, in its order.
    pub axes: Vec<usize>,
    /// Dims of the result.
    pub dims: Vec<Dim>,
    /// Scale of each axis, where it is given or follows from known dims.
    pub scales: Vec<Option<f32>>,
    /// Whether `scales` is what the node says.
    pub by_scales: bool,
}

fn axes(node: NodeView<'_>, rank: usize) -> Result<Vec<usize>, Diag> {
    match node.attrs().ints("axes") {
        None => Ok((0..rank).collect()),
        Some(list) => {
            shape::axes(list, rank).map_err(|diag| diag.slot("axes"))?;
            list.iter().map(|&axis| shape::axis(axis, rank)).collect()
        }
    }
}

/// Whether the input is there and not one of the empty tensors that stand for "absent".
pub fn given(node: NodeView<'_>, slot: usize) -> bool {
    node.input(slot).is_some_and(|view| view.shape() != Some(&[Dim::Known(0)]))
}

/// Reads the node against the dims of its input.
///
/// # Errors
/// Scales, sizes or axes that do not fit.
pub fn aim(node: NodeView<'_>, x: &[Dim]) -> Result<Aim, Diag> {
    let axes = axes(node, x.len())?;
    let mut result = Aim {
        axes: axes.clone(),
        dims: x.to_vec(),
        scales: vec![Some(1.0); x.len()],
        by_scales: given(node, 2),
    };
    if result.by_scales {
        let values = node.input(2).and_then(|scales| scales.constant()).and_then(|tensor| tensor.to_f64s());
        let Some(values) = values else {
            for &axis in &axes {
                result.dims[axis] = Dim::Unknown;
                result.scales[axis] = None;
            }
            return Ok(result);
        };
        if values.len() != axes.len() {
            return Err(
                Diag::invalid(format!("{} scales for {} axes", values.len(), axes.len())).slot("scales")
            );
        }
        for (&axis, &scale) in axes.iter().zip(&values) {
            if !(scale > 0.0 && scale < 1e9) {
                return Err(Diag::invalid(format!("a scale of {scale}")).slot("scales"));
            }
            result.scales[axis] = Some(scale as f32);
            result.dims[axis] = scaled(&x[axis], scale as f32);
        }
        return Ok(result);
    }
    let sizes = node.input(3).and_then(|sizes| sizes.elements());
    let Some(sizes) = sizes else {
        if node.input(3).is_none() {
            return Err(Diag::invalid("one of scales and sizes is needed"));
        }
        for &axis in &axes {
            result.dims[axis] = Dim::Unknown;
            result.scales[axis] = None;
        }
        return Ok(result);
    };
    if sizes.len() != axes.len() {
        return Err(Diag::invalid(format!("{} sizes for {} axes", sizes.len(), axes.len())).slot("sizes"));
    }
    if sizes.iter().any(|size| size.known().is_some_and(|size| size < 0)) {
        return Err(Diag::invalid("a negative size").slot("sizes"));
    }
    let ratio = |size: &Dim, dim: &Dim| match (size, dim) {
        (Dim::Known(size), Dim::Known(dim)) if *dim > 0 => Some(*size as f32 / *dim as f32),
        (size, dim) if size == dim && *size != Dim::Unknown => Some(1.0),
        _ => None,
    };
    let policy = node.str("keep_aspect_ratio_policy", "stretch");
    let ratios: Vec<Option<f32>> =
        axes.iter().zip(sizes).map(|(&axis, size)| ratio(size, &x[axis])).collect();
    if policy == "stretch" {
        for ((&axis, size), ratio) in axes.iter().zip(sizes).zip(ratios) {
            result.dims[axis] = size.clone();
            result.scales[axis] = ratio;
        }
        return Ok(result);
    }
    let pick = match policy {
        "not_larger" => f32::min,
        "not_smaller" => f32::max,
        other => {
            return Err(Diag::invalid(format!("`{other}` is no policy")).slot("keep_aspect_ratio_policy"));
        }
    };
    let common = ratios.into_iter().collect::<Option<Vec<f32>>>().and_then(|l| l.into_iter().reduce(pick));
    for &axis in &axes {
        result.scales[axis] = common;
        result.dims[axis] = match (common, &x[axis]) {
            (Some(scale), Dim::Known(d)) => Dim::Known((scale * *d as f32 + 0.5).floor() as i64),
            _ => Dim::Unknown,
        };
    }
    Ok(result)
}

/// ⌊dim · scale⌋, in f32 as ONNX Runtime computes it for known dims; for symbols where the scale is a small fraction.
fn scaled(dim: &Dim, scale: f32) -> Dim {
    if let Dim::Known(d) = dim {
        return Dim::Known((scale * *d as f32) as i64);
    }
    // The scale as a fraction with a power of two below: exact for every f32 of moderate size.
    let mut below = 1i64;
    let mut above = f64::from(scale);
    while above.fract() != 0.0 && below < 1 << 12 {
        above *= 2.0;
        below *= 2;
    }
    if above.fract() != 0.0 || above > 1e9 {
        return Dim::Unknown;
    }
    dim.mul(&Dim::Known(above as i64)).floor_div(&Dim::Known(below))
}

/// Takes dims that nothing in the node says from the type of the result, as far as the model declares it.
pub fn settle(node: NodeView<'_>, x: &[Dim], aim: &mut Aim) {
    if !dims::all_fixed(node) {
        return;
    }
    let Some(declared) = node.output(0).and_then(|y| y.shape()).filter(|y| y.len() == x.len()) else {
        return;
    };
    for axis in 0..x.len() {
        if aim.dims[axis] == Dim::Unknown {
            aim.dims[axis] = declared[axis].clone();
            if let (false, Dim::Known(to), Dim::Known(from @ 1..)) =
                (aim.by_scales || common(node), &aim.dims[axis], &x[axis])
            {
                aim.scales[axis] = Some(*to as f32 / *from as f32);
            }
        }
    }
}

/// Whether one scale serves all axes.
pub fn common(node: NodeView<'_>) -> bool {
    node.str("keep_aspect_ratio_policy", "stretch") != "stretch" && !given(node, 2)
}

/// The region of each axis; `None` when only the run knows it.
pub fn regions(node: NodeView<'_>, axes: &[usize], rank: usize) -> Result<Option<Vec<(f32, f32)>>, Refusal> {
    let invalid = |why: String| Refusal::new(Code::INVALID, why).slot("roi");
    let roi =
        node.input(1).filter(|_| given(node, 1)).ok_or_else(|| invalid("the input is absent".into()))?;
    let wanted = 2 * axes.len();
    if let Some(Dim::Known(n)) = roi.dim(0)
        && *n != wanted as i64
    {
        return Err(invalid(format!("{n} numbers for {} axes", axes.len())));
    }
    let Some(values) = roi.constant().and_then(|tensor| tensor.to_f64s()) else {
        return match roi.dtype() {
            Some(dtype)
                if check::FLOATS.contains(&dtype) && roi.shape() == Some(&[Dim::Known(wanted as i64)]) =>
            {
                Ok(None)
            }
            _ => Err(Refusal::new(Code::NOT_CONSTANT, "must be a constant").slot("roi")),
        };
    };
    if values.len() != wanted {
        return Err(invalid(format!("{} numbers for {} axes", values.len(), axes.len())));
    }
    let mut regions = vec![(0.0, 1.0); rank];
    for (k, &axis) in axes.iter().enumerate() {
        regions[axis] = (values[k] as f32, values[axes.len() + k] as f32);
    }
    Ok(Some(regions))
}
