//! Cast between integers, bool and floats, where ONNX defines the result.

use super::{
    Args, MAX_COUNT, OrSkip, Out, Stop,
    numbers::{floats, from_floats, from_ints, ints, is_real, is_whole},
    sizes, within,
};
use crate::tensor::Tensor;
use trtc_bundle::DType;

pub(super) fn cast(args: &Args<'_>) -> Out<Tensor> {
    let x = args.need(0)?;
    let to = match args.node.op() {
        "CastLike" => args.node.input(1).and_then(|like| like.dtype()).or_skip()?,
        _ => {
            let number = args.node.attrs().int("to").or_skip()?;
            i32::try_from(number).ok().and_then(DType::from_onnx).or_skip()?
        }
    };
    convert(x, to)
}

/// The tensor in another dtype. Skips what is undefined (a float past the integer's range) and what implementations
/// round twice.
pub(crate) fn convert(x: &Tensor, to: DType) -> Out<Tensor> {
    let from = x.dtype();
    if from == to {
        return Ok(x.clone());
    }
    within(x.count(), MAX_COUNT)?;
    let dims = sizes(x);
    match (is_whole(from), is_real(from)) {
        (true, _) if is_whole(to) => from_ints(to, &dims, &ints(x)?),
        (true, _) if is_real(to) => {
            // ONNX Runtime goes through f32 on the way to the 16-bit types.
            let exact = if to == DType::F64 || to == DType::F32 { 1i128 << 53 } else { 1 << 24 };
            let values = ints(x)?
                .into_iter()
                .map(|v| if v.abs() <= exact { Ok(v as f64) } else { large(v, to) })
                .collect::<Out<Vec<f64>>>()?;
            from_floats(to, &dims, &values)
        }
        (_, true) if to == DType::Bool => {
            let values: Vec<i128> = floats(x)?.into_iter().map(|v| i128::from(v != 0.0)).collect();
            from_ints(to, &dims, &values)
        }
        (_, true) if is_whole(to) => {
            let (min, max) = range(to);
            let values = floats(x)?
                .into_iter()
                .map(|v| {
                    let whole = v.trunc();
                    // i128 holds every bound; a NaN fails the comparison.
                    if whole >= min as f64 && whole < max as f64 + 1.0 {
                        Ok(whole as i128)
                    } else {
                        Err(Stop::Skip)
                    }
                })
                .collect::<Out<Vec<i128>>>()?;
            from_ints(to, &dims, &values)
        }
        (_, true) if is_real(to) => {
            let values = floats(x)?;
            let half = matches!(to, DType::F16 | DType::Bf16);
            if from == DType::F64
                && half
                && values.iter().any(|&v| f64::from(v as f32).to_bits() != v.to_bits())
            {
                return Err(Stop::Skip);
            }
            from_floats(to, &dims, &values)
        }
        _ => Err(Stop::Skip),
    }
}

/// An integer that a double does not hold exactly, rounded once.
fn large(value: i128, to: DType) -> Out<f64> {
    match to {
        DType::F64 => Ok(value as f64),
        DType::F32 => Ok(f64::from(value as f32)),
        _ => Err(Stop::Skip),
    }
}

fn range(dtype: DType) -> (i128, i128) {
    let bits = dtype.bits() as u32;
    match dtype {
        DType::U8 | DType::U16 | DType::U32 | DType::U64 => (0, (1 << bits) - 1),
        _ => (-(1 << (bits - 1)), (1 << (bits - 1)) - 1),
    }
}
