//! ConvTranspose: transposed convolution over one to three spatial dims.
//!
//! X [N, C, d..] T, W [C, M/group, k..] T, B [M] T  ->  Y [N, M, e..] T
//! Opsets: 1; 11 output_shape and pads clarified; 22 bf16.     TensorRT: IDeconvolutionLayer (one dim: as two).
//! Limits: channels and kernel known; f32 over 3 dims not on sm75. What reaches past the layer's result is added as zeros.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{
        check,
        extent::{self, DimPlan, ExtentPlan},
        shape, window,
    },
};
use trtc_bundle::Target;
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal, Tensor, infer::ConstraintKind};
use trtc_network::{
    Layer,
    layer::{ElementWiseOp, Extent, SampleMode, Window},
};

/// The converter.
#[derive(Debug)]
pub struct ConvTranspose;

/// Window over two or three dims.
#[derive(Debug)]
pub struct Plan {
    window: Window,
    groups: i64,
    /// The kernel, where it is not the input as it is: a constant, or the input with an axis more.
    kernel: Option<Option<Tensor>>,
    /// One spatial dim, made two.
    one_dim: bool,
    /// Zeros before and after the layer's result, and dims of the whole (spatial dims as in the node).
    grown: Option<(Vec<i64>, ExtentPlan)>,
}

/// Output dims, and padding before and after (negative: zeros to add).
struct Spatial {
    dims: Vec<Dim>,
    pads: Option<(Vec<i64>, Vec<i64>)>,
}

/// The schema's arithmetic. `None` for pads that depend on a size that only the run knows.
fn spatial(node: NodeView<'_>, attributes: &window::Attributes, x: &[Dim]) -> Result<Spatial, Diag> {
    let n = x.len();
    let extra = node.attrs().ints("output_padding").map_or(vec![0; n], <[i64]>::to_vec);
    if extra.len() != n || extra.iter().any(|&v| !(0..1 << 30).contains(&v)) {
        return Err(Diag::invalid("one padding ≥ 0 for each spatial dim").slot("output_padding"));
    }
    let wanted = match node.attrs().ints("output_shape") {
        Some([]) | None => None,
        // Some exporters name batch and channels too.
        Some(list) if list.len() == n || list.len() == n + 2 => Some(&list[list.len() - n..]),
        Some(list) => {
            return Err(
                Diag::invalid(format!("{} entries for {n} spatial dims", list.len())).slot("output_shape")
            );
        }
    };
    let known = Dim::Known;
    let (mut dims, mut before, mut after) = (Vec::new(), Vec::new(), Vec::new());
    let mut static_pads = true;
    for axis in 0..n {
        let stride = attributes.strides[axis];
        let whole =
            x[axis].sub(&known(1)).mul(&known(stride)).add(&known(extra[axis] + attributes.reach(axis)));
        let same = matches!(attributes.auto_pad, window::AutoPad::SameUpper | window::AutoPad::SameLower);
        let aim = match wanted {
            Some(list) => Some(known(list[axis])),
            None if same => Some(x[axis].mul(&known(stride))),
            None => None,
        };
        let (dim, low, high) = match aim {
            None => {
                let (low, high) = (attributes.before[axis], attributes.after[axis]);
                (whole.sub(&known(low)).sub(&known(high)), low, high)
            }
            Some(aim) => match whole.sub(&aim) {
                // ONNX Runtime never pads below 0: with a stride above the kernel less than ⟨dim · stride⟩ results.
                Dim::Known(total) if total < 0 && wanted.is_none() => (whole.clone(), 0, 0),
                Dim::Known(total) => {
                    let total = total.max(0);
                    let (less, more) = (total / 2, total - total / 2);
                    let upper = attributes.auto_pad == window::AutoPad::SameUpper;
                    let (low, high) = if upper { (less, more) } else { (more, less) };
                    (aim, low, high)
                }
                _ => {
                    static_pads = false;
                    (aim, 0, 0)
                }
            },
        };
        // Output padding widens the result at the end: less padding there, below 0 for zeros. The same holds when
        // more is wanted than the convolution gives.
        let given = whole.sub(&known(extra[axis] + low + high));
        match dim.sub(&given) {
            Dim::Known(more) => after.push(high - more),
            _ => {
                static_pads = false;
                after.push(0);
            }
        }
        before.push(low);
        dims.push(dim);
    }
    Ok(Spatial { dims, pads: static_pads.then_some((before, after)) })
}

/// Bytes of a kernel that zeros are written into.
const MOST_BYTES: usize = 1 << 28;

/// The kernel [c, m, k..] with zeros between its weights; `None` for one that would be too large.
fn dilated(kernel: &Tensor, dilations: &[i64]) -> Option<Tensor> {
    let bytes = kernel.bytes()?;
    let width = kernel.dtype().bits() / 8;
    let (lead, spatial) = kernel.dims().split_at_checked(2)?;
    let grown: Vec<i64> = spatial.iter().zip(dilations).map(|(k, d)| (k - 1) * d + 1).collect();
    let dims = [lead, &grown].concat();
    let count = dims.iter().try_fold(1usize, |n, &d| n.checked_mul(usize::try_from(d).ok()?))?;
    let size = count.checked_mul(width).filter(|&size| size <= MOST_BYTES && width > 0)?;
    let mut spread = vec![0u8; size];
    for (at, value) in bytes.chunks_exact(width).enumerate() {
        // Place in the small kernel, axis by axis from the last, and the same place in the large one.
        let (mut rest, mut to, mut step) = (at as i64, 0, 1);
        for ((&k, &d), &g) in spatial.iter().zip(dilations).zip(&grown).rev() {
            to += rest % k * d * step;
            rest /= k;
            step *= g;
        }
        let to = usize::try_from(to + rest * step).ok()? * width;
        spread.get_mut(to..to + width)?.copy_from_slice(value);
    }
    Tensor::new(kernel.dtype(), dims, spread.into())
}

impl Converter for ConvTranspose {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("ConvTranspose", 22)],
        dtypes: check::FLOATS,
        layers: "IDeconvolutionLayer, ISliceLayer",
        limits: "1 to 3 spatial dims; channels and kernel known; output_shape needs known dims",
        refusals: &[
            Code::DTYPE_UNREPRESENTABLE,
            Code::DTYPE_KERNEL,
            Code::DTYPE_UNKNOWN,
            Code::ATTRIBUTE,
            Code::RANK_UNKNOWN,
            Code::RANK,
            Code::DIM_UNKNOWN,
            Code::SHAPE,
            Code::COMPUTE_CAPABILITY,
            Code::INVALID,
        ],
    };

    fn infer(&self, node: NodeView<'_>, cx: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let dtype = shape::dtype_of(node, 0);
        let Some(window::Shapes { x, w, rank }) = window::Shapes::of(node)? else {
            return Ok(shape::types([shape::typed(dtype, None)]));
        };
        let mut dims = vec![Dim::Unknown; rank];
        dims[1] = w.map_or(Dim::Unknown, |w| w[1].mul(&Dim::Known(node.int("group", 1))));
        if let (Some(x), Some(w)) = (x, w)
            && let (Dim::Known(a), Dim::Known(b)) = (&x[1], &w[0])
            && a != b
        {
            return Err(Diag::invalid(format!("{a} channels for weights of {b}")).slot("W"));
        }
        if let Some(x) = x {
            dims[0] = x[0].clone();
            if window::is_kernel_known(node, 1) {
                let attributes = window::Attributes::read(node, rank - 2, window::kernel(node, 1))?;
                for (slot, dim) in dims[2..].iter_mut().zip(spatial(node, &attributes, &x[2..])?.dims) {
                    match &dim {
                        Dim::Known(size) if *size < 0 => {
                            return Err(Diag::invalid(format!("a spatial dim of {size} would result")));
                        }
                        Dim::Expr(_) => cx.require(ConstraintKind::AtLeast(dim.clone(), 1)),
                        _ => {}
                    }
                    *slot = dim;
                }
            }
        }
        Ok(shape::types([shape::typed(dtype, Some(dims))]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let filter = window::Filter::read(node, target, 1, window::kernel(node, 1))?;
        filter.divides(&filter.x.shape[1], "input")?;
        let window::Filter { x, w, spatial: n, mut attributes, groups } = filter;
        let Spatial { dims, pads } = spatial(node, &attributes, &x.shape[2..]).map_err(window::refused)?;
        let (before, after) = pads.ok_or_else(|| {
            Refusal::new(Code::DIM_UNKNOWN, "the padding depends on a size that only the run knows")
                .slot("output_shape")
        })?;
        if dims.contains(&Dim::Known(0)) {
            return Err(Refusal::new(Code::SHAPE, "the result is an empty tensor"));
        }
        let mut grown = None;
        if before.iter().chain(&after).any(|&pad| pad < 0) {
            let mut starts = vec![0, 0];
            starts.extend(before.iter().map(|pad| *pad.min(&0)));
            let mut sizes = vec![extent::own_dim(node, 0, 0)];
            let channels = w.shape[1].known().and_then(|m| m.checked_mul(groups)).unwrap_or(0);
            sizes.push(DimPlan::Fixed(channels));
            for dim in &dims {
                sizes.push(extent::require_dim(node, dim, "X")?);
            }
            grown = Some((starts, ExtentPlan::Dims(sizes)));
        }
        let mut kernel = None;
        let spread = |list: &[i64]| list.iter().any(|&v| v != 1);
        if spread(&attributes.strides) && spread(&attributes.dilations) {
            // Myelin: "Strided & Dilated Deconv are currently not supported". Zeros between the weights say the same.
            let dilated = w.view.constant().and_then(|w| dilated(w, &attributes.dilations));
            kernel = Some(dilated.ok_or_else(|| {
                Refusal::new(Code::ATTRIBUTE, "strides with dilations, and weights that are not constant")
                    .slot("dilations")
            })?);
            attributes.kernel = (0..n).map(|axis| attributes.reach(axis)).collect();
            attributes.dilations = vec![1; n];
        }
        let clamp = |pads: Vec<i64>| pads.into_iter().map(|pad| pad.max(0)).collect();
        let mut window = attributes.window(clamp(before), clamp(after));
        let mut flat = None;
        if n == 1 {
            window = window::over_two_dims(window);
            let constant = kernel.as_ref().or(w.view.constant());
            flat = Some(constant.and_then(window::kernel_over_two_dims));
        }
        Ok(Plan { window, groups, kernel: flat.or(kernel.map(Some)), one_dim: n == 1, grown })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let Plan { window, groups, kernel, one_dim, grown } = plan;
        let mut x = cx.input(0);
        if one_dim {
            x = cx.one(Layer::Unsqueeze { x, axes: vec![2] });
        }
        let kernel = match kernel {
            Some(kernel) => window::emit_kernel(cx, kernel),
            None => cx.input(1),
        };
        // Zeros that are added at an end get the bias like everything else.
        let late_bias = if grown.is_some() { cx.optional(2) } else { None };
        let bias = if grown.is_some() { None } else { cx.optional(2) };
        let mut y = cx.one(Layer::Deconvolution { x, kernel, bias, window, groups });
        if one_dim {
            y = cx.one(Layer::Squeeze { x: y, axes: vec![2] });
        }
        if let Some((start, size)) = grown {
            let rank = cx.rank(y);
            let dtype = cx.dtype(y);
            let zero = cx.scalar(dtype, 0, 0.0);
            let (start, size) = (Extent::Static(start), cx.extent(&size));
            let stride = Extent::Static(vec![1; rank]);
            y = cx.one(Layer::Slice { x: y, start, size, stride, mode: SampleMode::Fill, fill: Some(zero) });
        }
        if let Some(bias) = late_bias {
            let mut dims = vec![1; cx.rank(y)];
            dims[1] = -1;
            let bias = cx.reshape(bias, dims);
            y = cx.elementwise(y, bias, ElementWiseOp::Sum);
        }
        vec![y]
    }
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use trtc_ir::Code;

    use trtc_ir::Tensor;

    fn conv(x: Tensor, w: Tensor) -> Case {
        Case::new("ConvTranspose", 22).input(x).constant(w)
    }

    #[test]
    fn refusals() {
        refused_dtypes(|x| Case::new("ConvTranspose", 22).input(x(&[1, 1, 3, 3])).input(x(&[1, 1, 1, 1])));
        let case = conv(noise([1, 2, 5, 5]), noise([2, 4, 3, 3]));
        Case::new("ConvTranspose", 22).input(noise([1, 2, 5, 5])).refused(Code::INVALID);
        case.clone().dynamic(0, ["1", "C", "5", "5"]).refused(Code::DIM_UNKNOWN);
        case.clone().int("group", 3).refused(Code::ATTRIBUTE);
        let open = Case::new("ConvTranspose", 22).input(noise([1, 2, 5, 5])).input(noise([2, 4, 3, 3]));
        open.ints("strides", &[2, 1]).ints("dilations", &[2, 1]).refused(Code::ATTRIBUTE);
        case.clone().dynamic(0, ["0", "2", "5", "5"]).refused(Code::SHAPE);
        case.dynamic(0, ["1", "2", "H", "5"]).ints("output_shape", &[9, 9]).refused(Code::DIM_UNKNOWN);
        conv(noise([1, 1, 2, 2, 2, 2]), noise([1, 1, 1, 1, 1, 1])).refused(Code::RANK);
        let deep = conv(noise([1, 1, 2, 2, 2]), noise([1, 1, 1, 1, 1]));
        deep.target("rtx-1.7:sm75").refused(Code::COMPUTE_CAPABILITY);
    }

    #[test]
    fn types() {
        let case = conv(noise([1, 2, 5, 5]), noise([2, 4, 3, 3])).ints("strides", &[2, 2]);
        let case = case.dynamic(0, ["N", "2", "H", "5"]);
        assert_eq!(case.types(), ["f32[N x 4 x 2*H + 1 x 11]"]);
        assert_eq!(case.clone().ints("output_padding", &[1, 0]).types(), ["f32[N x 4 x 2*H + 2 x 11]"]);
        assert_eq!(case.clone().str("auto_pad", "SAME_UPPER").types(), ["f32[N x 4 x 2*H x 10]"]);
        assert_eq!(case.clone().ints("output_shape", &[12, 13]).types(), ["f32[N x 4 x 12 x 13]"]);
        assert!(case.clone().ints("output_shape", &[12]).invalid().contains("1 entries"));
        assert!(case.ints("output_padding", &[-1, 0]).invalid().contains("padding"));
        assert!(conv(noise([1, 2, 5, 5]), noise([3, 4, 3, 3])).invalid().contains("2 channels"));
    }

    #[test]
    fn numbers() {
        let case = conv(noise([2, 4, 4, 5]), noise([4, 3, 3, 2])).constant(noise([3]));
        case.check(F32);
        let strided = case.ints("strides", &[2, 3]);
        strided.clone().ints("pads", &[1, 0, 1, 1]).check(F32);
        strided.clone().ints("output_padding", &[1, 2]).check(F32);
        strided.clone().ints("pads", &[1, 1, 1, 1]).ints("output_padding", &[1, 1]).check(F32);
        strided.clone().dynamic(0, ["N", "4", "H", "W"]).ints("output_padding", &[1, 2]).check(F32);
        strided.clone().str("auto_pad", "SAME_UPPER").check(F32);
        strided.clone().str("auto_pad", "SAME_LOWER").dynamic(0, ["N", "4", "H", "W"]).check(F32);
        strided.clone().ints("output_shape", &[8, 14]).check(F32);
        strided.clone().ints("dilations", &[2, 1]).check(F32);
        strided.clone().ints("dilations", &[2, 3]).ints("pads", &[1, 1, 1, 1]).check(F32);
        conv(noise([2, 4, 4, 5]), noise([4, 2, 3, 3])).int("group", 2).ints("dilations", &[2, 1]).check(F32);
    }

    #[test]
    fn one_and_three_dims() {
        let case = conv(noise([2, 3, 5]), noise([3, 4, 3])).constant(noise([4])).ints("strides", &[2]);
        case.clone().ints("pads", &[1, 1]).check(F32);
        case.clone().ints("dilations", &[3]).check(F32);
        case.dynamic(0, ["N", "3", "L"]).ints("output_padding", &[1]).check(F32);
        let given = Case::new("ConvTranspose", 22).input(noise([2, 3, 5])).input(noise([3, 4, 3]));
        given.check(F32);
        conv(noise([1, 2, 3, 3, 3]), noise([2, 2, 2, 2, 2])).ints("strides", &[2, 1, 2]).check(F32);
    }
}
