//! Range: numbers from start to limit.
//!
//! start, limit, delta [] T  ->  output [⌈(limit − start) / delta⌉] T
//! Opsets: 11; 27 f16 and bf16.     TensorRT: IFillLayer (linspace).
//! Limits: the count constant, or computed from dims, or bounded, or declared. f16 and bf16 run in f32.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{check, dims, extent, shape},
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal, graph::MAX_ELEMENTS};
use trtc_network::{
    Layer,
    layer::{Extent, FillOp},
};

/// The converter.
#[derive(Debug)]
pub struct Range;

const DTYPES: &[DType] = &[DType::F32, DType::F16, DType::Bf16, DType::I32, DType::I64];

/// How many numbers.
#[derive(Debug)]
pub struct Plan(extent::ExtentPlan);

/// Longest result that is counted in f64 without doubt.
const LONGEST: f64 = 1e12;

fn count(node: NodeView<'_>) -> Result<Dim, Diag> {
    let real = |slot: usize| node.input(slot)?.constant()?.scalar_f64();
    let floats = node.input(0).and_then(|x| x.dtype()).is_some_and(|dtype| dtype.is_float());
    if floats {
        let (Some(start), Some(limit), Some(delta)) = (real(0), real(1), real(2)) else {
            return Ok(Dim::Unknown);
        };
        if delta == 0.0 {
            return Err(Diag::invalid("a step of 0").slot("delta"));
        }
        let n = ((limit - start) / delta).ceil().max(0.0);
        return Ok(if n < LONGEST { Dim::Known(n as i64) } else { Dim::Unknown });
    }
    let scalar = |slot: usize| dims::scalar(node, slot).cloned().unwrap_or(Dim::Unknown);
    let (start, limit) = (scalar(0), scalar(1));
    let n = match scalar(2) {
        Dim::Known(0) => return Err(Diag::invalid("a step of 0").slot("delta")),
        Dim::Known(d) if d > 0 => limit.sub(&start).ceil_div(&Dim::Known(d)),
        Dim::Known(d) if d > i64::MIN => start.sub(&limit).ceil_div(&Dim::Known(-d)),
        _ => Dim::Unknown,
    };
    Ok(dims::max(node, &n, &Dim::Known(0)))
}

impl Converter for Range {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("Range", 27)],
        dtypes: DTYPES,
        layers: "IFillLayer",
        limits: "the count constant, or computed from dims, or bounded, or declared",
        refusals: &[
            Code::DTYPE_UNREPRESENTABLE,
            Code::DTYPE_KERNEL,
            Code::DTYPE_UNKNOWN,
            Code::RANK_UNKNOWN,
            Code::RANK,
            Code::SHAPE,
            Code::SHAPE_VALUE,
            Code::COMPUTE_CAPABILITY,
            Code::INVALID,
        ],
    };

    fn infer(&self, node: NodeView<'_>, _: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let dtype = shape::dtype_of(node, 0);
        let n = count(node)?;
        let elements = match (&n, dims::scalar(node, 0), dims::scalar(node, 2)) {
            (Dim::Known(n), Some(start), Some(Dim::Known(delta))) if *n <= MAX_ELEMENTS as i64 => {
                let at = |k: i64| start.add(&Dim::Known(k).mul(&Dim::Known(*delta)));
                dtype.is_some_and(|dtype| dtype.is_int()).then(|| (0..*n).map(at).collect())
            }
            _ => None,
        };
        Ok(vec![Inferred { ty: shape::typed(dtype, Some(vec![n])), elements }])
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        for (slot, name) in ["start", "limit", "delta"].into_iter().enumerate() {
            check::operand(node, slot, name, DTYPES, target)?;
        }
        let n = dims::declared(node, count(node).map_err(crate::ctx::window::refused)?, 0, 0);
        if n == Dim::Known(0) {
            return Err(Refusal::new(Code::SHAPE, "the result is an empty tensor"));
        }
        let n = extent::require_dim(node, &n, "limit").map_err(|refusal| Refusal {
            why: "how many numbers result is not a bounded function of input dims".into(),
            ..refusal
        })?;
        Ok(Plan(extent::ExtentPlan::Dims(vec![n])))
    }

    fn emit(&self, Plan(count): Plan, cx: &mut Emit<'_>) -> Outputs {
        let (start, delta) = (cx.input(0), cx.input(2));
        let dtype = cx.dtype(start);
        let to = if dtype.is_float() { DType::F32 } else { dtype };
        let (start, delta) = (cx.cast(start, to), cx.cast(delta, to));
        let alpha = if cx.rank(start) == 0 { start } else { cx.reshape(start, Vec::new()) };
        let beta = cx.reshape(delta, vec![1]);
        let shape: Extent = cx.extent(&count);
        let numbers = cx.one(Layer::Fill { shape, op: FillOp::Linspace, alpha, beta, to });
        vec![cx.cast(numbers, dtype)]
    }
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use trtc_ir::Code;

    fn range(start: i64, limit: i64, delta: i64) -> Case {
        let scalar = |v| i64s([], &[v]);
        Case::new("Range", 27).input(scalar(start)).input(scalar(limit)).input(scalar(delta))
    }

    #[test]
    fn refusals() {
        range(0, 5, 1).refused(Code::SHAPE_VALUE);
        range(0, 5, 1).sizes(0, ["5"]).sizes(1, ["5"]).sizes(2, ["1"]).refused(Code::SHAPE);
        range(0, 5, 1).untyped(0).refused(Code::DTYPE_UNKNOWN);
        range(0, 5, 1).unranked(0).refused(Code::RANK_UNKNOWN);
        let of = |t: trtc_ir::Tensor| Case::new("Range", 27).input(t.clone()).input(t.clone()).input(t);
        of(f64s([], &[1.0])).refused(Code::DTYPE_UNREPRESENTABLE);
        of(i8s([], &[1])).refused(Code::DTYPE_KERNEL);
        of(bf16s([], &[1.0])).target("rtx-1.7:sm75").refused(Code::COMPUTE_CAPABILITY);
        of(noise([1; 9])).refused(Code::RANK);
        Case::new("Range", 27).absent().input(noise([])).refused(Code::INVALID);
    }

    #[test]
    fn types() {
        assert_eq!(range(0, 5, 1).types(), ["i64[?]"]);
        let known =
            |a: &str, b: &str, c: &str| range(0, 5, 1).sizes(0, [a]).sizes(1, [b]).sizes(2, [c]).types();
        assert_eq!(known("0", "N", "1"), ["i64[N]"]);
        assert_eq!(known("1", "7", "2"), ["i64[3] = [1, 3, 5]"]);
        assert_eq!(known("3", "-1", "-1"), ["i64[4] = [3, 2, 1, 0]"]);
        assert_eq!(known("3", "1", "1"), ["i64[0] = []"]);
        let f = |v| f32s([], &[v]);
        let floats = Case::new("Range", 27).constant(f(0.0)).constant(f(1.1)).constant(f(0.25));
        assert_eq!(floats.types(), ["f32[5]"]);
        assert!(range(0, 1, 1).sizes(2, ["0"]).invalid().contains("a step of 0"));
    }

    #[test]
    fn numbers() {
        let f = |v| f32s([], &[v]);
        let floats = Case::new("Range", 27).constant(f(0.5)).constant(f(-1.1)).constant(f(-0.25));
        floats.check(F32);
        range(10, 4, -2).declared(0, &[3]).check(Tolerance::Exact);
        let half = |v| f16s([], &[v]);
        let half = Case::new("Range", 27).input(half(1.0)).input(half(2.0)).input(half(0.3));
        half.declared(0, &[4]).gives(F16, &[f16s([4], &[1.0, 1.3, 1.6, 1.9])]);
        range(2, 9, 3).sizes(0, ["2"]).sizes(1, ["N"]).sizes(2, ["3"]).check(Tolerance::Exact);
        range(9, 2, -3).sizes(0, ["N"]).sizes(1, ["2"]).sizes(2, ["-3"]).check(Tolerance::Exact);
        let narrow = |v| i32s([1], &[v]);
        let narrow = Case::new("Range", 27).input(narrow(0)).input(narrow(4)).constant(narrow(1));
        narrow.sizes(0, ["0"]).sizes(1, ["N"]).check(Tolerance::Exact);
    }
}
