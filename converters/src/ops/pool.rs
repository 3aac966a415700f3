//! MaxPool and AveragePool over one to three spatial dims.
//!
//! X [N, C, d..] T  ->  Y [N, C, e..] T
//! Opsets: MaxPool 1, 8, 10, 11, 12, 22; AveragePool 1, 7, 10, 11, 19, 22: ceil_mode, dilations, types.     TensorRT:
//! IPoolingLayer (one dim: as two); dilated windows as slices.
//! Limits: no Indices; dilated windows, and ceil_mode where the last window is in doubt, need known dims.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{check, floats, shape, window},
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal};
use trtc_network::{
    Layer, TensorId,
    layer::{ElementWiseOp, Extent, PoolKind, SampleMode, Window},
};

/// The converter of both.
#[derive(Debug)]
pub struct Pool;

/// How the pooling is emitted.
#[derive(Debug)]
pub struct Plan {
    kind: PoolKind,
    way: Way,
}

#[derive(Debug)]
enum Way {
    /// The layer. Zeros to add first (before, after) when they count but the overhang of the last window does not.
    Layer { window: Window, exclude_padding: bool, zeros: Option<(Vec<i64>, Vec<i64>)> },
    /// One slice for each place of the kernel.
    Slices(Dilated),
}

/// Places of a dilated window: each has a count of its own.
const MOST_PLACES: i64 = 1 << 24;

/// A dilated window over known dims.
#[derive(Debug)]
struct Dilated {
    before: Vec<i64>,
    /// Spatial dims with their padding.
    padded: Vec<i64>,
    window: Window,
    output: Vec<i64>,
    /// Average: how many elements each window counts, over the spatial dims of the result.
    counts: Vec<f64>,
}

/// MaxPool also takes u8, whose values f32 holds.
const MAXIMA: &[DType] = &[DType::F32, DType::F16, DType::Bf16, DType::U8];

/// Slices beyond this number are no gain over the host.
const MOST_SLICES: i64 = 81;

impl Converter for Pool {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("MaxPool", 22), Key::onnx("AveragePool", 22)],
        dtypes: check::FLOATS,
        layers: "IPoolingLayer, ISliceLayer",
        limits: "1 to 3 spatial dims; no Indices; dilated windows need known dims",
        refusals: &[
            Code::DTYPE_UNREPRESENTABLE,
            Code::DTYPE_KERNEL,
            Code::DTYPE_UNKNOWN,
            Code::ATTRIBUTE,
            Code::OUTPUTS,
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
        let to = match node.input(0).and_then(|x| x.shape()) {
            Some(x) if x.len() < 3 => {
                return Err(Diag::invalid(format!("rank {} has no spatial dims", x.len())).slot("X"));
            }
            Some(x) => {
                Some(window::Attributes::read(node, x.len() - 2, None)?.outputs(x, x[1].clone(), cx)?)
            }
            None => node.attrs().ints("kernel_shape").map(|k| vec![Dim::Unknown; k.len() + 2]),
        };
        let indices = shape::typed(Some(DType::I64), to.clone());
        let mut list = vec![shape::typed(dtype, to)];
        if node.op() == "MaxPool" {
            list.push(indices);
        }
        Ok(shape::types(list))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let allowed: &[DType] = if node.op() == "MaxPool" { MAXIMA } else { check::FLOATS };
        let x = check::operand(node, 0, "X", allowed, target)?;
        check::never_empty(&x, "X")?;
        if node.output(1).is_some() {
            return Err(Refusal::new(Code::OUTPUTS, "TensorRT's pooling gives no indices").slot("Indices"));
        }
        let n = window::spatial(&x, "X")?;
        let kind = if node.op() == "MaxPool" { PoolKind::Max } else { PoolKind::Average };
        let attributes = window::Attributes::read(node, n, None).map_err(window::refused)?;
        let (before, after) = attributes.paddings(&x.shape[2..])?;
        window::non_negative(&before, &after)?;
        if (0..n).any(|axis| before[axis].max(after[axis]) >= attributes.reach(axis)) {
            return Err(
                Refusal::new(Code::ATTRIBUTE, "a padding that is not smaller than the kernel").slot("pads")
            );
        }
        let count_pads = node.int("count_include_pad", 0) != 0;
        if attributes.dilations.iter().any(|&dilation| dilation != 1) {
            let dilated = dilated(&attributes, &x.shape[2..], before, after, count_pads)?;
            return Ok(Plan { kind, way: Way::Slices(dilated) });
        }
        let overhang = attributes.overhang(&x.shape[2..], &before, &after)?;
        let reaches = overhang.iter().any(|&more| more > 0);
        let sum = |a: &[i64], b: &[i64]| a.iter().zip(b).map(|(a, b)| a + b).collect::<Vec<i64>>();
        let way = if kind == PoolKind::Average && count_pads && reaches {
            let window = attributes.window(vec![0; n], overhang);
            Way::Layer { window, exclude_padding: true, zeros: Some((before, after)) }
        } else {
            let after = sum(&after, &overhang);
            let exclude_padding = kind == PoolKind::Average && !count_pads;
            Way::Layer { window: attributes.window(before, after), exclude_padding, zeros: None }
        };
        Ok(Plan { kind, way })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let mut x = cx.input(0);
        let dtype = cx.dtype(x);
        if dtype.is_int() {
            x = floats::widened(cx, x);
        }
        let y = match plan.way {
            Way::Slices(dilated) => emit_slices(cx, x, plan.kind, dilated),
            Way::Layer { mut window, exclude_padding, zeros } => {
                if let Some((before, after)) = zeros {
                    x = grown(cx, x, &before, &after);
                }
                let one_dim = cx.rank(x) == 3;
                if one_dim {
                    window = window::over_two_dims(window);
                    x = cx.one(Layer::Unsqueeze { x, axes: vec![2] });
                }
                let y = cx.one(Layer::Pooling { x, kind: plan.kind, window, exclude_padding, blend: 0.0 });
                if one_dim { cx.one(Layer::Squeeze { x: y, axes: vec![2] }) } else { y }
            }
        };
        vec![cx.cast(y, dtype)]
    }
}

fn dilated(
    attributes: &window::Attributes,
    spatial: &[Dim],
    before: Vec<i64>,
    after: Vec<i64>,
    count_pads: bool,
) -> Result<Dilated, Refusal> {
    let dims: Vec<i64> = spatial.iter().map(Dim::known).collect::<Option<_>>().ok_or_else(|| {
        Refusal::new(Code::DIM_UNKNOWN, "a dilated window over dims that only the run knows")
            .slot("dilations")
    })?;
    if attributes.kernel.iter().try_fold(1i64, |n, k| n.checked_mul(*k)).is_none_or(|n| n > MOST_SLICES) {
        let why = format!("a dilated window of {:?}; TensorRT pools without dilation", attributes.kernel);
        return Err(Refusal::new(Code::ATTRIBUTE, why).slot("dilations"));
    }
    let overhang = attributes.overhang(spatial, &before, &after)?;
    let mut output = Vec::new();
    let mut padded = Vec::new();
    if dims.iter().any(|&d| d > MOST_PLACES) {
        return Err(Refusal::new(Code::SHAPE, "a dilated window over too long a dim").slot("dilations"));
    }
    // For each axis, how many elements a window counts at each place of the result.
    let mut along: Vec<Vec<f64>> = Vec::new();
    for (axis, d) in dims.iter().enumerate() {
        let (stride, dilation) = (attributes.strides[axis], attributes.dilations[axis]);
        let whole = before[axis] + d + after[axis] + overhang[axis];
        let n = (whole - attributes.reach(axis)) / stride + 1;
        if n > MOST_PLACES {
            return Err(
                Refusal::new(Code::SHAPE, format!("a dilated window at {n} places")).slot("dilations")
            );
        }
        let counted =
            if count_pads { 0..before[axis] + d + after[axis] } else { before[axis]..before[axis] + d };
        let at = |place: i64| {
            let hit =
                (0..attributes.kernel[axis]).filter(|k| counted.contains(&(place * stride + k * dilation)));
            hit.count() as f64
        };
        along.push((0..n).map(at).collect());
        output.push(n);
        padded.push(whole);
    }
    if output.iter().try_fold(1i64, |n, k| n.checked_mul(*k)).is_none_or(|n| n > MOST_PLACES) {
        return Err(Refusal::new(Code::SHAPE, "a dilated window at too many places").slot("dilations"));
    }
    let counts = along.iter().fold(vec![1.0], |counts, axis| {
        counts.iter().flat_map(|a| axis.iter().map(move |b| a * b)).collect()
    });
    let window = attributes.window(before.clone(), after);
    Ok(Dilated { before, padded, window, output, counts })
}

/// The tensor with zeros around its spatial dims.
fn grown(cx: &mut Emit<'_>, x: TensorId, before: &[i64], after: &[i64]) -> TensorId {
    if before.iter().chain(after).all(|&pad| pad == 0) {
        return x;
    }
    let dtype = cx.dtype(x);
    let zero = cx.scalar(dtype, 0, 0.0);
    let mut start = vec![0, 0];
    start.extend(before.iter().map(|pad| -pad));
    let mut more = vec![0, 0];
    more.extend(before.iter().zip(after).map(|(a, b)| a + b));
    let stride = Extent::Static(vec![1; start.len()]);
    let dims = cx.dims(x).to_vec();
    let size = if dims.iter().all(|&d| d >= 0) {
        Extent::Static(dims.iter().zip(&more).map(|(d, more)| d + more).collect())
    } else {
        let shape = cx.one(Layer::Shape { x });
        let more = cx.i64s(&more);
        Extent::Tensor(cx.elementwise(shape, more, ElementWiseOp::Sum))
    };
    let start = Extent::Static(start);
    cx.one(Layer::Slice { x, start, size, stride, mode: SampleMode::Fill, fill: Some(zero) })
}

/// One strided slice for each place of the kernel, joined by max or sum.
fn emit_slices(cx: &mut Emit<'_>, x: TensorId, kind: PoolKind, plan: Dilated) -> TensorId {
    let dtype = cx.dtype(x);
    let outside = if kind == PoolKind::Max { f64::NEG_INFINITY } else { 0.0 };
    let fill = cx.scalar(dtype, 0, outside);
    // Batch and channels may be dynamic: their sizes are read from the tensor.
    let lead = [cx.dims(x)[0], cx.dims(x)[1]];
    let size = |cx: &mut Emit<'_>, spatial: &[i64]| {
        if lead.iter().all(|&d| d >= 0) {
            return Extent::Static([&lead, spatial].concat());
        }
        let mut parts = vec![cx.dim_of(x, 0), cx.dim_of(x, 1)];
        parts.push(cx.i64s(spatial));
        Extent::Tensor(cx.one(Layer::Concatenation { xs: parts, axis: 0 }))
    };
    let lead_with = |value: i64, spatial: Vec<i64>| Extent::Static([vec![value; 2], spatial].concat());
    let start = lead_with(0, plan.before.iter().map(|pad| -pad).collect());
    let stride = lead_with(1, vec![1; plan.before.len()]);
    let whole = size(cx, &plan.padded);
    let x = cx.one(Layer::Slice { x, start, size: whole, stride, mode: SampleMode::Fill, fill: Some(fill) });
    let mut places = vec![Vec::new()];
    for (kernel, dilation) in plan.window.kernel.iter().zip(&plan.window.dilation) {
        let next = |place: &Vec<i64>| {
            let place = place.clone();
            (0..*kernel).map(move |k| [place.clone(), vec![k * dilation]].concat())
        };
        places = places.iter().flat_map(next).collect();
    }
    let op = if kind == PoolKind::Max { ElementWiseOp::Max } else { ElementWiseOp::Sum };
    let mut result: Option<TensorId> = None;
    for place in places {
        let start = lead_with(0, place);
        let stride = lead_with(1, plan.window.stride.clone());
        let size = size(cx, &plan.output);
        let part = cx.one(Layer::Slice { x, start, size, stride, mode: SampleMode::Strict, fill: None });
        result = Some(match result {
            Some(so_far) => cx.elementwise(so_far, part, op),
            None => part,
        });
    }
    let result = result.unwrap_or(x);
    if kind == PoolKind::Max {
        return result;
    }
    let dims = [vec![1, 1], plan.output].concat();
    let counts = floats::constant(cx, dtype, dims, &plan.counts);
    cx.elementwise(result, counts, ElementWiseOp::Div)
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use trtc_ir::Code;

    use trtc_ir::Tensor;

    fn pool(op: &str, x: Tensor) -> Case {
        Case::new(op, 22).input(x)
    }

    const BOTH: [&str; 2] = ["MaxPool", "AveragePool"];

    #[test]
    fn refusals() {
        refused_dtypes(|x| pool("MaxPool", x(&[1, 1, 3, 3])).ints("kernel_shape", &[2, 2]));
        let case = pool("MaxPool", noise([1, 2, 5, 5])).ints("kernel_shape", &[2, 2]);
        case.clone().outputs(2).refused(Code::OUTPUTS);
        case.clone().ints("pads", &[2, 0, 0, 0]).refused(Code::ATTRIBUTE);
        case.clone().dynamic(0, ["0", "2", "5", "5"]).refused(Code::SHAPE);
        let dilated = case.clone().ints("dilations", &[2, 1]);
        dilated.dynamic(0, ["1", "2", "H", "5"]).refused(Code::DIM_UNKNOWN);
        let partial = case.int("ceil_mode", 1).ints("strides", &[3, 3]).dynamic(0, ["1", "2", "H", "5"]);
        partial.refused(Code::DIM_UNKNOWN);
        let large = pool("MaxPool", noise([1, 1, 30, 30])).ints("kernel_shape", &[10, 10]);
        large.ints("dilations", &[2, 2]).refused(Code::ATTRIBUTE);
        pool("MaxPool", noise([1; 6])).ints("kernel_shape", &[1; 4]).refused(Code::RANK);
        Case::new("MaxPool", 22).absent().ints("kernel_shape", &[1]).refused(Code::INVALID);
    }

    #[test]
    fn types() {
        let case =
            pool("MaxPool", noise([1, 2, 5, 5])).ints("kernel_shape", &[3, 3]).ints("strides", &[2, 2]);
        let case = case.dynamic(0, ["N", "C", "H", "5"]);
        assert_eq!(case.types(), ["f32[N x C x floordiv(H + 1, 2) - 1 x 2]"]);
        let both = case.clone().outputs(2).types();
        assert_eq!(both[1], "i64[N x C x floordiv(H + 1, 2) - 1 x 2]");
        assert!(pool("MaxPool", noise([1, 2, 5])).invalid().contains("missing"));
        assert!(
            pool("MaxPool", noise([1, 2])).ints("kernel_shape", &[]).invalid().contains("no spatial dims")
        );
    }

    #[test]
    fn numbers() {
        for op in BOTH {
            let case = pool(op, noise([2, 3, 7, 6])).ints("kernel_shape", &[3, 2]);
            case.check(F32);
            case.clone().ints("pads", &[1, 0, 2, 1]).ints("strides", &[2, 1]).check(F32);
            case.clone().dynamic(0, ["N", "3", "H", "W"]).ints("pads", &[1, 1, 1, 1]).check(F32);
            case.clone().str("auto_pad", "SAME_UPPER").ints("strides", &[2, 2]).check(F32);
            case.clone().str("auto_pad", "SAME_LOWER").check(F32);
            case.clone().int("ceil_mode", 1).ints("strides", &[2, 2]).check(F32);
            case.clone().int("ceil_mode", 1).ints("strides", &[3, 2]).ints("pads", &[1, 0, 1, 1]).check(F32);
            let open = case.clone().int("ceil_mode", 1).ints("strides", &[2, 2]);
            open.dynamic(0, ["N", "3", "H", "W"]).check(F32);
            case.clone().ints("dilations", &[2, 3]).ints("pads", &[1, 1, 2, 0]).check(F32);
            case.clone().ints("dilations", &[2, 2]).dynamic(0, ["N", "3", "7", "6"]).check(F32);
            pool(op, noise([2, 3, 7])).ints("kernel_shape", &[3]).ints("strides", &[2]).check(F32);
            pool(op, noise([2, 3, 7])).ints("kernel_shape", &[3]).dynamic(0, ["N", "3", "L"]).check(F32);
            pool(op, noise([1, 2, 4, 5, 4])).ints("kernel_shape", &[2, 3, 2]).check(F32);
            pool(op, noise16([2, 3, 7, 6])).ints("kernel_shape", &[3, 2]).check(F16);
        }
    }

    #[test]
    fn bytes() {
        let x = u8s([1, 1, 3, 3], &[0, 255, 128, 3, 7, 9, 200, 1, 2]);
        pool("MaxPool", x).ints("kernel_shape", &[2, 2]).check(Tolerance::Exact);
    }

    #[test]
    fn padding_counts() {
        let case = pool("AveragePool", noise([2, 3, 7, 6]))
            .ints("kernel_shape", &[3, 2])
            .int("count_include_pad", 1);
        let case = case.ints("pads", &[1, 0, 1, 1]);
        case.check(F32);
        case.clone().ints("strides", &[3, 2]).int("ceil_mode", 1).check(F32);
        case.clone().ints("dilations", &[2, 2]).check(F32);
    }
}
