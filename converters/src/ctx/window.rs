//! Windows of convolutions and poolings: attributes, output dims, paddings.

use crate::{
    Emit,
    ctx::check::{self, Operand},
};
use trtc_bundle::{DType, Product, Target};
use trtc_ir::{Code, Diag, Dim, InferCx, NodeView, Refusal, Tensor, infer::ConstraintKind};
use trtc_network::{
    TensorId,
    layer::{Layer, Window},
};

/// How the padding is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AutoPad {
    /// Attribute `pads`.
    Explicit,
    /// Output = ⌈input / stride⌉; an odd one goes to the end.
    SameUpper,
    /// The same; an odd one goes to the start.
    SameLower,
    /// No padding.
    Valid,
}

/// Attributes of a window, one entry a spatial dim.
#[derive(Clone, Debug)]
pub struct Attributes {
    /// Kernel size.
    pub kernel: Vec<i64>,
    /// Stride.
    pub strides: Vec<i64>,
    /// Dilation.
    pub dilations: Vec<i64>,
    /// Explicit padding before.
    pub before: Vec<i64>,
    /// Explicit padding after.
    pub after: Vec<i64>,
    /// How the padding is found.
    pub auto_pad: AutoPad,
    /// Whether a last, partial window counts (poolings).
    pub ceil: bool,
}

/// Sizes beyond this are no window of a real model, and products of them might overflow.
const LIMIT: i64 = 1 << 30;

impl Attributes {
    /// Reads the attributes of a node with `spatial` spatial dims; `kernel` is what the weights say.
    ///
    /// # Errors
    /// A list of the wrong length, or a number out of range.
    pub fn read(node: NodeView<'_>, spatial: usize, kernel: Option<Vec<i64>>) -> Result<Attributes, Diag> {
        let list = |name: &str, default: Vec<i64>, least: i64| -> Result<Vec<i64>, Diag> {
            let values = node.attrs().ints(name).map_or(default, <[i64]>::to_vec);
            if !values.len().is_multiple_of(spatial.max(1)) || values.is_empty() && spatial > 0 {
                let text = format!("{} entries for {spatial} spatial dims", values.len());
                return Err(Diag::invalid(text).slot(name));
            }
            match values.iter().find(|&&v| v < least || v > LIMIT) {
                Some(v) => Err(Diag::invalid(format!("{v} is out of range")).slot(name)),
                None => Ok(values),
            }
        };
        let named = match node.attrs().ints("kernel_shape") {
            Some(_) => Some(list("kernel_shape", Vec::new(), 1)?),
            None => None,
        };
        if let (Some(a), Some(b)) = (&named, &kernel)
            && a != b
        {
            return Err(Diag::invalid(format!("{a:?}, but the weights say {b:?}")).slot("kernel_shape"));
        }
        let kernel =
            kernel.or(named).ok_or_else(|| Diag::invalid("the attribute is missing").slot("kernel_shape"))?;
        let strides = list("strides", vec![1; spatial], 1)?;
        let dilations = list("dilations", vec![1; spatial], 1)?;
        let pads = list("pads", vec![0; 2 * spatial], -LIMIT)?;
        if [&kernel, &strides, &dilations].iter().any(|l| l.len() != spatial) || pads.len() != 2 * spatial {
            return Err(Diag::invalid(format!("a window that does not have {spatial} spatial dims")));
        }
        if kernel.iter().zip(&dilations).any(|(k, d)| k.saturating_mul(*d) > LIMIT) {
            return Err(Diag::invalid("a dilated kernel that is too large").slot("dilations"));
        }
        let auto_pad = match node.str("auto_pad", "NOTSET") {
            "NOTSET" | "" => AutoPad::Explicit,
            "SAME_UPPER" => AutoPad::SameUpper,
            "SAME_LOWER" => AutoPad::SameLower,
            "VALID" => AutoPad::Valid,
            other => return Err(Diag::invalid(format!("`{other}` is no padding mode")).slot("auto_pad")),
        };
        let (before, after) = match auto_pad {
            AutoPad::Explicit => (pads[..spatial].to_vec(), pads[spatial..].to_vec()),
            _ => (vec![0; spatial], vec![0; spatial]),
        };
        let ceil = node.int("ceil_mode", 0) != 0;
        Ok(Attributes { kernel, strides, dilations, before, after, auto_pad, ceil })
    }

    /// Extent of the kernel with its dilation.
    pub fn reach(&self, axis: usize) -> i64 {
        (self.kernel[axis] - 1) * self.dilations[axis] + 1
    }

    /// Output size of one spatial dim, and what that demands of the dim.
    ///
    /// # Errors
    /// A window that is larger than the padded dim.
    pub fn output(&self, axis: usize, dim: &Dim, cx: &mut InferCx<'_>) -> Result<Dim, Diag> {
        let known = Dim::Known;
        let stride = known(self.strides[axis]);
        let result = match self.auto_pad {
            AutoPad::SameUpper | AutoPad::SameLower => dim.ceil_div(&stride),
            AutoPad::Explicit | AutoPad::Valid => {
                let padded = dim.add(&known(self.before[axis])).add(&known(self.after[axis]));
                let room = padded.sub(&known(self.reach(axis)));
                let by_floor = room.floor_div(&stride).add(&known(1));
                if self.ceil {
                    // A window may reach past the end, but not start past input and padding before it.
                    let by_ceil = room.ceil_div(&stride).add(&known(1));
                    let last = dim.add(&known(self.before[axis] - 1)).floor_div(&stride).add(&known(1));
                    if self.strides[axis] == 1 { by_floor } else { by_ceil.min(&last) }
                } else {
                    by_floor
                }
            }
        };
        match &result {
            // ONNX divides as C++ does: a window that lacks less than a stride is one window, of what there is.
            Dim::Known(0) if dim != &known(0) && self.reaches_past(axis, dim) => Ok(known(1)),
            Dim::Known(size) if *size < 1 && dim != &known(0) => Err(Diag::invalid(format!(
                "a window of {} over a padded dim of {}",
                self.reach(axis),
                dim.known().map_or(0, |d| d.saturating_add(self.before[axis] + self.after[axis]))
            ))),
            Dim::Known(size) => Ok(known((*size).max(0))),
            Dim::Expr(_) => {
                cx.require(ConstraintKind::AtLeast(result.clone(), 1));
                Ok(result)
            }
            Dim::Unknown => Ok(Dim::Unknown),
        }
    }

    /// Whether the window is larger than the padded dim, by less than a stride.
    fn reaches_past(&self, axis: usize, dim: &Dim) -> bool {
        let room = dim.known().and_then(|d| d.checked_add(self.before[axis])?.checked_add(self.after[axis]));
        let room = room.and_then(|padded| padded.checked_sub(self.reach(axis)));
        let explicit = matches!(self.auto_pad, AutoPad::Explicit | AutoPad::Valid);
        explicit && room.is_some_and(|room| room < 0 && room > -self.strides[axis])
    }

    /// Output dims of an input [N, C, spatial…], with `channels` channels.
    ///
    /// # Errors
    /// See [`Attributes::output`].
    pub fn outputs(&self, x: &[Dim], channels: Dim, cx: &mut InferCx<'_>) -> Result<Vec<Dim>, Diag> {
        let mut dims = vec![x[0].clone(), channels];
        for (axis, dim) in x[2..].iter().enumerate() {
            dims.push(self.output(axis, dim, cx)?);
        }
        Ok(dims)
    }

    /// Paddings of a pooling, whose every window holds an element at least.
    ///
    /// # Errors
    /// As [`Attributes::paddings`]. `E0201`: a padding that is negative, or not smaller than the kernel.
    pub fn pooled_paddings(&self, spatial: &[Dim]) -> Result<(Vec<i64>, Vec<i64>), Refusal> {
        let (before, after) = self.paddings(spatial)?;
        non_negative(&before, &after)?;
        if (0..spatial.len()).any(|axis| before[axis].max(after[axis]) >= self.reach(axis)) {
            let why = "a padding that is not smaller than the kernel";
            return Err(Refusal::new(Code::ATTRIBUTE, why).slot("pads"));
        }
        Ok((before, after))
    }

    /// Paddings before and after for an input with these spatial dims.
    ///
    /// # Errors
    /// `E0303`: SAME padding that depends on a size that only the run knows. `E0304`: a window that is larger than the padded dim.
    pub fn paddings(&self, spatial: &[Dim]) -> Result<(Vec<i64>, Vec<i64>), Refusal> {
        let (mut before, mut after) = (self.before.clone(), self.after.clone());
        if let Some(axis) = (0..spatial.len()).find(|&axis| self.reaches_past(axis, &spatial[axis])) {
            let why = format!("the window is larger than the padded spatial dim {axis}");
            return Err(Refusal::new(Code::SHAPE, why).slot("kernel_shape"));
        }
        if !matches!(self.auto_pad, AutoPad::SameUpper | AutoPad::SameLower) {
            return Ok((before, after));
        }
        for (axis, dim) in spatial.iter().enumerate() {
            let (stride, reach) = (self.strides[axis], self.reach(axis));
            let total = match dim {
                // (⌈d/1⌉ − 1) · 1 + reach − d
                _ if stride == 1 => reach - 1,
                // (⌈d/s⌉ − 1) · s + reach − d: what the last window lacks.
                Dim::Known(d) => (reach - 1 - (d - 1).rem_euclid(stride)).max(0),
                _ => {
                    return Err(Refusal::new(
                        Code::DIM_UNKNOWN,
                        format!("SAME padding of spatial dim {axis} depends on its size"),
                    )
                    .slot("auto_pad")
                    .help("give the input's shape with --shape"));
                }
            };
            let less = total / 2;
            (before[axis], after[axis]) = match self.auto_pad {
                AutoPad::SameLower => (total - less, less),
                _ => (less, total - less),
            };
        }
        Ok((before, after))
    }

    /// How far the last window reaches past the padded end, for each spatial dim (0 without `ceil_mode`).
    ///
    /// # Errors
    /// `E0303`: that depends on a size that only the run knows.
    pub fn overhang(&self, spatial: &[Dim], before: &[i64], after: &[i64]) -> Result<Vec<i64>, Refusal> {
        let same = matches!(self.auto_pad, AutoPad::SameUpper | AutoPad::SameLower);
        let mut result = vec![0; spatial.len()];
        if !self.ceil || same {
            return Ok(result);
        }
        for (axis, dim) in spatial.iter().enumerate() {
            let (stride, reach) = (self.strides[axis], self.reach(axis));
            result[axis] = match dim {
                _ if stride == 1 => 0,
                Dim::Known(d) if *d <= LIMIT => {
                    let room = d + before[axis] + after[axis] - reach;
                    let by_ceil = (room + stride - 1).div_euclid(stride);
                    let last = (d + before[axis] - 1).div_euclid(stride);
                    (by_ceil.min(last) * stride - room).max(0)
                }
                // Every window that rounding up adds starts inside; then stride − 1 more always gives the right count.
                _ if stride + after[axis] <= reach => stride - 1,
                _ => {
                    return Err(Refusal::new(
                        Code::DIM_UNKNOWN,
                        format!("with ceil_mode the last window of spatial dim {axis} depends on its size"),
                    )
                    .slot("ceil_mode")
                    .help("give the input's shape with --shape"));
                }
            };
        }
        Ok(result)
    }

    /// TensorRT's window with the given paddings.
    pub fn window(&self, before: Vec<i64>, after: Vec<i64>) -> Window {
        Window {
            kernel: self.kernel.clone(),
            stride: self.strides.clone(),
            pre_padding: before,
            post_padding: after,
            dilation: self.dilations.clone(),
        }
    }
}

/// The window over [1, length] that is this one over \[length\]: TensorRT has no windows over one dim.
pub fn over_two_dims(window: Window) -> Window {
    let front = |value: i64, mut list: Vec<i64>| {
        list.insert(0, value);
        list
    };
    Window {
        kernel: front(1, window.kernel),
        stride: front(1, window.stride),
        pre_padding: front(0, window.pre_padding),
        post_padding: front(0, window.post_padding),
        dilation: front(1, window.dilation),
    }
}

/// Kernel sizes that the weights [m, c, k..] in `slot` say, where all are known.
pub fn kernel(node: NodeView<'_>, slot: usize) -> Option<Vec<i64>> {
    node.input(slot)?.shape()?.get(2..)?.iter().map(Dim::known).collect()
}

/// Whether the weights in `slot`, or the attribute, say the kernel's sizes.
pub fn is_kernel_known(node: NodeView<'_>, slot: usize) -> bool {
    kernel(node, slot).is_some() || node.attrs().ints("kernel_shape").is_some()
}

/// What the rule of a convolution knows of X [n, c, d..] and W [.., .., k..]: not nothing.
#[derive(Clone, Copy, Debug)]
pub struct Shapes<'a> {
    /// Dims of X.
    pub x: Option<&'a [Dim]>,
    /// Dims of W.
    pub w: Option<&'a [Dim]>,
    /// Rank of both, at least 3.
    pub rank: usize,
}

impl<'a> Shapes<'a> {
    /// Of inputs 0 and 1; `None` where neither rank is known.
    ///
    /// # Errors
    /// Ranks that differ, or have no spatial dims.
    pub fn of(node: NodeView<'a>) -> Result<Option<Shapes<'a>>, Diag> {
        let [x, w] = [0, 1].map(|slot| node.input(slot).and_then(|view| view.shape()));
        let Some(rank) = x.or(w).map(<[Dim]>::len) else { return Ok(None) };
        if rank < 3 || w.is_some_and(|w| w.len() != rank) {
            return Err(Diag::invalid(format!("an input of rank {rank} and weights of another, or below 3")));
        }
        Ok(Some(Shapes { x, w, rank }))
    }
}

/// The input X [n, c, d..]: floats, never empty, with a spatial dim at least.
///
/// # Errors
/// `E0302` for a lower rank, and those of [`check::operand`] and [`check::never_empty`].
pub fn maps<'a>(node: NodeView<'a>, target: &Target) -> Result<Operand<'a>, Refusal> {
    let x = check::operand(node, 0, "X", check::FLOATS, target)?;
    check::never_empty(&x, "X")?;
    match x.rank() {
        0..3 => Err(Refusal::new(Code::RANK, format!("rank {} has no spatial dims", x.rank())).slot("X")),
        _ => Ok(x),
    }
}

/// A diagnostic of the model as the reason of a refusal.
pub fn refused(diag: Diag) -> Refusal {
    Refusal { code: diag.code, slot: diag.slot, why: diag.why, help: diag.help }
}

/// Number of spatial dims of an input [N, C, spatial…]: 1 to 3.
///
/// # Errors
/// `E0302` for any other rank.
pub fn spatial(x: &Operand<'_>, name: &str) -> Result<usize, Refusal> {
    match x.rank() {
        3..=5 => Ok(x.rank() - 2),
        rank => Err(Refusal::new(
            Code::RANK,
            format!("rank {rank}; TensorRT has windows over 1 to 3 spatial dims"),
        )
        .slot(name)),
    }
}

/// A number of channels must be known at build time.
///
/// # Errors
/// `E0303`.
pub fn known_channels(dim: &Dim, name: &str) -> Result<(), Refusal> {
    match dim {
        Dim::Known(_) => Ok(()),
        _ => Err(Refusal::new(Code::DIM_UNKNOWN, "the number of channels is not known before the run")
            .slot(name)
            .help("give the input's shape with --shape")),
    }
}

/// TensorRT-RTX has no f32 convolution over three dims for sm75.
///
/// # Errors
/// `E0501`.
pub fn not_turing_3d(dtype: DType, spatial: usize, target: &Target) -> Result<(), Refusal> {
    if dtype == DType::F32 && spatial > 2 && target.product() == Product::Rtx && target.sms().contains(&75) {
        return Err(Refusal::new(
            Code::COMPUTE_CAPABILITY,
            "TensorRT-RTX has no f32 convolution over 3 dims for sm75",
        )
        .help("leave out sm75, or compile it as a target of its own"));
    }
    Ok(())
}

/// What Conv and ConvTranspose read alike.
pub struct Filter<'a> {
    /// Input X.
    pub x: Operand<'a>,
    /// Input W.
    pub w: Operand<'a>,
    /// Number of spatial dims.
    pub spatial: usize,
    /// Kernel, strides, dilations and pads.
    pub attributes: Attributes,
    /// Attribute `group`, at least 1; whether it divides the channels is for the caller to ask.
    pub groups: i64,
}

impl<'a> Filter<'a> {
    /// Reads inputs X, W and B and the attributes of a node whose weights have their output channels on `axis` and say
    /// that its kernel is `kernel`.
    ///
    /// # Errors
    /// A dtype, rank, size or attribute that TensorRT does not take.
    pub fn read(
        node: NodeView<'a>,
        target: &Target,
        axis: usize,
        kernel: Option<Vec<i64>>,
    ) -> Result<Filter<'a>, Refusal> {
        let x = check::operand(node, 0, "X", check::FLOATS, target)?;
        check::never_empty(&x, "X")?;
        let w = check::operand(node, 1, "W", &[x.dtype], target)?;
        check::not_empty(&w, "W")?;
        if node.input(2).is_some() {
            check::operand(node, 2, "B", &[x.dtype], target)?;
        }
        let spatial = spatial(&x, "X")?;
        known_channels(&x.shape[1], "X")?;
        known_channels(&w.shape[axis], "W")?;
        let kernel = kernel.ok_or_else(|| {
            Refusal::new(Code::DIM_UNKNOWN, "the kernel's size is not known before the run").slot("W")
        })?;
        let attributes = Attributes::read(node, spatial, Some(kernel)).map_err(refused)?;
        not_turing_3d(x.dtype, spatial, target)?;
        Ok(Filter { x, w, spatial, attributes, groups: node.int("group", 1) })
    }

    /// Refuses groups that do not divide `channels`, the `which` channels.
    ///
    /// # Errors
    /// They do not.
    pub fn divides(&self, channels: &Dim, which: &str) -> Result<(), Refusal> {
        let Filter { groups, .. } = self;
        if *groups >= 1 && channels.known().is_none_or(|channels| channels % groups == 0) {
            return Ok(());
        }
        let text = format!("{groups} groups do not divide the {which} channels");
        Err(Refusal::new(Code::ATTRIBUTE, text).slot("group"))
    }
}

/// TensorRT pads, it does not crop.
///
/// # Errors
/// `E0201`.
pub fn non_negative(before: &[i64], after: &[i64]) -> Result<(), Refusal> {
    match before.iter().chain(after).find(|&&pad| pad < 0) {
        Some(pad) => Err(Refusal::new(Code::ATTRIBUTE, format!("a padding of {pad}")).slot("pads")),
        None => Ok(()),
    }
}

/// The constant kernel over \[k\] as one over [1, k].
pub fn kernel_over_two_dims(kernel: &Tensor) -> Option<Tensor> {
    let mut dims = kernel.dims().to_vec();
    dims.insert(2, 1);
    kernel.with_dims(dims)
}

/// Emits the kernel in slot 1 over two dims: the constant, or the input with an axis more.
pub fn emit_kernel(cx: &mut Emit<'_>, constant: Option<Tensor>) -> TensorId {
    if let Some(tensor) = constant
        && let Some(bytes) = tensor.bytes()
    {
        return cx.constant(tensor.dtype(), tensor.dims().to_vec(), bytes.clone());
    }
    let x = cx.input(1);
    cx.one(Layer::Unsqueeze { x, axes: vec![2] })
}
