//! BitCast: the same bits as another dtype.
//!
//! x [d0..dn] T  ->  y [d0..dn] U of as many bits
//! Opsets: 26.     TensorRT: none; integers change their sign by IElementWiseLayer.
//! Limits: between integers of one width (no u64); bool to integers of 8 bits; a dtype to itself.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{check, elementwise, shape, wrap},
    emit::carrier,
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal};

/// The converter.
#[derive(Debug)]
pub struct BitCast;

/// From and to.
#[derive(Debug)]
pub struct Plan {
    from: DType,
    to: DType,
}

fn to(node: NodeView<'_>) -> Result<DType, Diag> {
    let number =
        node.attrs().int("to").ok_or_else(|| Diag::invalid("the attribute is missing").slot("to"))?;
    let dtype = i32::try_from(number).ok().and_then(DType::from_onnx);
    dtype.ok_or_else(|| Diag::invalid(format!("no dtype has the number {number}")).slot("to"))
}

impl Converter for BitCast {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("BitCast", 26)],
        dtypes: check::CARRIED,
        layers: "IElementWiseLayer",
        limits: "between integers of one width, from bool to integers, or to the same dtype",
        refusals: &[
            Code::DTYPE_UNREPRESENTABLE,
            Code::DTYPE_KERNEL,
            Code::DTYPE_UNKNOWN,
            Code::RANK_UNKNOWN,
            Code::RANK,
            Code::SHAPE,
            Code::COMPUTE_CAPABILITY,
            Code::INVALID,
            Code::ATTRIBUTE,
        ],
    };

    fn infer(&self, node: NodeView<'_>, _: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let to = to(node)?;
        if let Some(from) = shape::dtype_of(node, 0)
            && from.bits() != to.bits()
        {
            return Err(Diag::invalid(format!("{from} and {to} are not of one width")).slot("to"));
        }
        let dims = node.input(0).and_then(|x| x.shape()).map(<[Dim]>::to_vec);
        Ok(shape::types([shape::typed(Some(to), dims)]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let from = elementwise::gate(node, 0, "input", check::CARRIED, target)?.dtype;
        let to = to(node).map_err(|diag| Refusal::new(Code::INVALID, diag.why).slot("to"))?;
        check::dtype_gate(to, "to", check::CARRIED, target)?;
        let number = |dtype: DType| dtype.is_int() || dtype == DType::Bool;
        if from != to && !(number(from) && to.is_int()) {
            let why = format!("TensorRT does not see the bits of {from} as {to}");
            return Err(Refusal::new(Code::ATTRIBUTE, why).slot("to"));
        }
        Ok(Plan { from, to })
    }

    fn emit(&self, Plan { from, to }: Plan, cx: &mut Emit<'_>) -> Outputs {
        let x = cx.input(0);
        if from == to {
            return vec![x];
        }
        // Of u32 and i32 one is carried in 64 bits.
        let wide = if to == DType::U32 { DType::I64 } else { cx.dtype(x) };
        let x = cx.cast(x, if from == DType::Bool { carrier(to) } else { wide });
        vec![wrap::wrapped(cx, x, to)]
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::*;
    use trtc_bundle::DType;
    use trtc_ir::{Code, Tensor};

    fn cast(x: Tensor, to: DType) -> Case {
        Case::new("BitCast", 26).input(x).int("to", to.onnx().into())
    }

    #[test]
    fn numbers() {
        let pairs = [(DType::U8, DType::I8), (DType::U16, DType::I16), (DType::U32, DType::I32)];
        for (unsigned, signed) in pairs.into_iter().chain([(DType::U4, DType::I4), (DType::U2, DType::I2)]) {
            let bytes: Vec<u8> =
                vec![0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 1, 2, 3, 0x80, 0xfe, 0x7f, 0x12, 0x91];
            let dims = vec![16 * 8 / unsigned.bits() as i64];
            let of = |dtype| Tensor::new(dtype, dims.clone(), bytes.clone().into()).unwrap();
            for (from, to) in [(unsigned, signed), (signed, unsigned)] {
                cast(of(from), to).gives(Tolerance::Exact, &[of(to)]);
            }
        }
        cast(bools([2], &[true, false]), DType::U8).gives(Tolerance::Exact, &[u8s([2], &[1, 0])]);
        cast(f32s([2], &[1.5, -0.0]), DType::F32).gives(Tolerance::Exact, &[f32s([2], &[1.5, -0.0])]);
        let dynamic = cast(u8s([2], &[200, 3]), DType::I8).dynamic(0, ["N"]);
        assert_eq!(dynamic.types(), ["i8[N]"]);
        dynamic.gives(Tolerance::Exact, &[i8s([2], &[-56, 3])]);
    }

    #[test]
    fn types() {
        assert_eq!(cast(f32s([1], &[0.0]), DType::F16).invalid(), "f32 and f16 are not of one width");
        assert_eq!(Case::new("BitCast", 26).input(f32s([1], &[0.0])).invalid(), "the attribute is missing");
        let odd = Case::new("BitCast", 26).input(f32s([1], &[0.0])).int("to", 99);
        assert_eq!(odd.invalid(), "no dtype has the number 99");
    }

    #[test]
    fn refusals() {
        cast(f32s([1], &[1.0]), DType::I32).refused(Code::ATTRIBUTE);
        cast(i32s([1], &[1]), DType::F32).refused(Code::ATTRIBUTE);
        cast(u8s([1], &[1]), DType::Bool).refused(Code::ATTRIBUTE);
        cast(f64s([1], &[1.0]), DType::F64).refused(Code::DTYPE_UNREPRESENTABLE);
        cast(i64s([1], &[1]), DType::F64).refused(Code::DTYPE_UNREPRESENTABLE);
        cast(unheld(), DType::U4).refused(Code::DTYPE_KERNEL);
        let f32_itself = |slot: Case| slot.int("to", 1);
        f32_itself(Case::new("BitCast", 26).input(f32s([1], &[1.0])).untyped(0)).refused(Code::DTYPE_UNKNOWN);
        f32_itself(Case::new("BitCast", 26).input(f32s([1], &[1.0])).unranked(0)).refused(Code::RANK_UNKNOWN);
        cast(f32s([1], &[1.0]), DType::F32).dynamic(0, ["1"; 9]).refused(Code::RANK);
        cast(f32s([1], &[1.0]), DType::F32).dynamic(0, ["0"]).refused(Code::SHAPE);
        cast(bf16s([1], &[1.0]), DType::Bf16).target("rtx-1.7:sm75").refused(Code::COMPUTE_CAPABILITY);
        f32_itself(Case::new("BitCast", 26).absent()).refused(Code::INVALID);
    }
}
