//! MaxPool and AveragePool over one to three spatial dims.
//!
//! X [N, C, d..] T  ->  Y [N, C, e..] T, Indices [N, C, e..] i64 (MaxPool)
//! Opsets: MaxPool 1, 8, 10, 11, 12, 22; AveragePool 1, 7, 10, 11, 19, 22: ceil_mode, dilations, types.     TensorRT:
//! IPoolingLayer (one dim: as two); dilated windows and Indices as slices.
//! Limits: dilated windows, Indices, and ceil_mode where the last window is in doubt, need known spatial dims.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{check, first, floats, shape, taps::Taps, window},
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
    /// Slices. Average: how many elements each window counts, over the spatial dims of the result.
    Slices(Taps, Vec<f64>),
    /// A slice for each place of the kernel, and how far apart neighbours along an axis are in the numbering.
    Indices(Taps, Vec<i64>),
}

/// MaxPool also takes u8, whose values f32 holds.
const MAXIMA: &[DType] = &[DType::F32, DType::F16, DType::Bf16, DType::U8];

impl Converter for Pool {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("MaxPool", 22), Key::onnx("AveragePool", 22)],
        dtypes: check::FLOATS,
        layers: "IPoolingLayer, ISliceLayer",
        limits: "1 to 3 spatial dims; dilated windows and Indices need known dims",
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
        let n = window::spatial(&x, "X")?;
        let kind = if node.op() == "MaxPool" { PoolKind::Max } else { PoolKind::Average };
        let attributes = window::Attributes::read(node, n, None).map_err(window::refused)?;
        let (before, after) = attributes.pooled_paddings(&x.shape[2..])?;
        let count_pads = node.int("count_include_pad", 0) != 0;
        if node.output(1).is_some() {
            let taps = Taps::plan(&attributes, &x.shape[2..], before, after)?;
            taps.few_in_all()?;
            let steps = steps(&x.shape[2..], node.int("storage_order", 0) != 0);
            return Ok(Plan { kind, way: Way::Indices(taps, steps) });
        }
        if attributes.dilations.iter().any(|&dilation| dilation != 1) {
            let taps = Taps::plan(&attributes, &x.shape[2..], before, after)?;
            taps.few_along_axes()?;
            let counts = if kind == PoolKind::Average { taps.counts(count_pads) } else { Vec::new() };
            return Ok(Plan { kind, way: Way::Slices(taps, counts) });
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
            Way::Slices(taps, counts) => emit_slices(cx, x, plan.kind, &taps, &counts),
            Way::Indices(taps, steps) => {
                let [y, indices] = emit_indices(cx, x, &taps, &steps);
                return vec![cx.cast(y, dtype), indices];
            }
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

/// How far apart neighbours along each spatial axis are in the numbering of Indices: the last axis fastest, or the first.
fn steps(spatial: &[Dim], first_fastest: bool) -> Vec<i64> {
    let size = |axis: &usize| spatial[*axis].known().unwrap_or(0);
    let n = spatial.len();
    let step = |axis: usize| match first_fastest {
        true => (0..axis).map(|axis| size(&axis)).product(),
        false => (axis + 1..n).map(|axis| size(&axis)).product(),
    };
    (0..n).map(step).collect()
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

fn emit_slices(cx: &mut Emit<'_>, x: TensorId, kind: PoolKind, taps: &Taps, counts: &[f64]) -> TensorId {
    if kind == PoolKind::Max {
        let x = taps.padded(cx, x, f64::NEG_INFINITY);
        return taps.reduced(cx, x, ElementWiseOp::Max);
    }
    let x = taps.padded(cx, x, 0.0);
    let sum = taps.reduced(cx, x, ElementWiseOp::Sum);
    let dtype = cx.dtype(sum);
    let dims = [&[1, 1], taps.output.as_slice()].concat();
    let counts = floats::constant(cx, dtype, dims, counts);
    cx.elementwise(sum, counts, ElementWiseOp::Div)
}

/// The maximum, and its number among all elements of X: of equal ones the first.
fn emit_indices(cx: &mut Emit<'_>, x: TensorId, taps: &Taps, steps: &[i64]) -> [TensorId; 2] {
    let given = x;
    let rank = cx.rank(x);
    let x = taps.padded(cx, x, f64::NEG_INFINITY);
    let number = |place: &[i64]| place.iter().zip(steps).map(|(at, step)| at * step).sum::<i64>();
    let mut best: Option<(TensorId, TensorId)> = None;
    for place in taps.places() {
        let part = taps.at(cx, x, &place);
        let offset = cx.scalar(DType::I64, rank, number(&place) as f64);
        best = Some(match best {
            None => (part, offset),
            Some((value, chosen)) => {
                let condition = cx.elementwise(part, value, ElementWiseOp::Greater);
                let chosen = cx.one(Layer::Select { condition, then_input: offset, else_input: chosen });
                (cx.one(Layer::Select { condition, then_input: part, else_input: value }), chosen)
            }
        });
    }
    let (value, mut index) = best.unwrap_or((x, x));
    // Where the window starts.
    let mut origins = vec![0i64];
    for (axis, step) in steps.iter().enumerate() {
        let at = |place: i64| (place * taps.stride[axis] - taps.before[axis]) * step;
        origins = origins.iter().flat_map(|base| (0..taps.output[axis]).map(move |k| base + at(k))).collect();
    }
    let dims = [&[1, 1], taps.output.as_slice()].concat();
    let bytes: Vec<u8> = origins.iter().flat_map(|v| v.to_le_bytes()).collect();
    let origins = cx.constant(DType::I64, dims, bytes.into());
    index = cx.elementwise(index, origins, ElementWiseOp::Sum);
    // Channels and batches before it.
    let inner: i64 = cx.dims(given).iter().skip(2).product();
    let channels = cx.dim_of(given, 1);
    let channels = cx.with_rank(channels, rank);
    let (batch, channel) = (first::positions(cx, given, 0), first::positions(cx, given, 1));
    let block = cx.elementwise(batch, channels, ElementWiseOp::Prod);
    let block = cx.elementwise(block, channel, ElementWiseOp::Sum);
    let size = cx.scalar(DType::I64, rank, inner as f64);
    let block = cx.elementwise(block, size, ElementWiseOp::Prod);
    [value, cx.elementwise(index, block, ElementWiseOp::Sum)]
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
        case.clone().outputs(2).dynamic(0, ["1", "2", "H", "5"]).refused(Code::DIM_UNKNOWN);
        case.clone().ints("pads", &[2, 0, 0, 0]).refused(Code::ATTRIBUTE);
        case.clone().dynamic(0, ["0", "2", "5", "5"]).refused(Code::SHAPE);
        let dilated = case.clone().ints("dilations", &[2, 1]);
        dilated.dynamic(0, ["1", "2", "H", "5"]).refused(Code::DIM_UNKNOWN);
        let larger = case.clone().ints("kernel_shape", &[6, 2]).ints("strides", &[2, 1]);
        assert_eq!(larger.types(), ["f32[1 x 2 x 1 x 4]"]);
        larger.refused(Code::SHAPE);
        let partial = case.int("ceil_mode", 1).ints("strides", &[3, 3]).dynamic(0, ["1", "2", "H", "5"]);
        partial.refused(Code::DIM_UNKNOWN);
        let large = pool("MaxPool", noise([1, 1, 30, 30])).ints("kernel_shape", &[10, 10]);
        large.outputs(2).refused(Code::ATTRIBUTE);
        let large = pool("MaxPool", noise([1, 1, 120, 10])).ints("kernel_shape", &[50, 50]);
        large.ints("dilations", &[2, 2]).ints("pads", &[0, 49, 0, 49]).refused(Code::ATTRIBUTE);
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
            let ceil = case.clone().ints("dilations", &[2, 2]).int("ceil_mode", 1);
            ceil.ints("strides", &[2, 3]).ints("pads", &[1, 1, 1, 0]).check(F32);
            case.clone().ints("dilations", &[2, 2]).dynamic(0, ["N", "3", "7", "6"]).check(F32);
            pool(op, noise([2, 3, 7])).ints("kernel_shape", &[3]).ints("strides", &[2]).check(F32);
            pool(op, noise([2, 3, 7])).ints("kernel_shape", &[3]).dynamic(0, ["N", "3", "L"]).check(F32);
            pool(op, noise([1, 2, 4, 5, 4])).ints("kernel_shape", &[2, 3, 2]).check(F32);
            pool(op, noise16([2, 3, 7, 6])).ints("kernel_shape", &[3, 2]).check(F16);
        }
    }

    #[test]
    fn indices() {
        let case = || pool("MaxPool", noise([2, 3, 7, 6])).ints("kernel_shape", &[3, 2]).outputs(2);
        case().check(F32);
        case().ints("pads", &[1, 0, 2, 1]).ints("strides", &[2, 1]).check(F32);
        case().int("storage_order", 1).int("ceil_mode", 1).ints("strides", &[2, 2]).check(F32);
        case().ints("dilations", &[2, 1]).dynamic(0, ["N", "C", "7", "6"]).check(F32);
        pool("MaxPool", noise([1, 2, 5])).ints("kernel_shape", &[2]).outputs(2).check(F32);
        let deep = pool("MaxPool", noise([1, 2, 4, 3, 4])).ints("kernel_shape", &[2, 2, 2]).outputs(2);
        deep.check(F32);
        let ties = pool("MaxPool", f32s([1, 1, 3], &[1.0, 1.0, 1.0])).ints("kernel_shape", &[2]).outputs(2);
        ties.check(Tolerance::Exact);
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
