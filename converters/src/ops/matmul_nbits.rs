//! MatMulNBits (com.microsoft): a product with weights of 2, 4 or 8 bits in blocks along k.
//!
//! a [.., m, k] T, b [n, blocks, bytes of a block] u8, scales [n · blocks] T, (zero_points, packed u8 or T), (g_idx), (bias [n] T)
//!   ->  y [.., m, n] T
//! Opsets: 1.     TensorRT: IDequantizeLayer (4 and 8 bits in the middle of their range), IMatrixMultiplyLayer.
//! Limits: f32 (not for sm75), f16, bf16; weights, scales and zero points constant; no g_idx; rank of a ≥ 2; not empty. Weights
//! with other zero points, and of 4 bits below sm80, stand in the engine in T.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{check, elementwise, floats, matrix, shape},
};
use bytes::Bytes;
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal, Tensor};
use trtc_network::{
    Layer, TensorId,
    layer::{ElementWiseOp, MatrixOp},
};

/// The converter.
#[derive(Debug)]
pub struct MatMulNBits;

/// Sizes of the weights.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    n: usize,
    k: usize,
    block: usize,
    bits: usize,
}

/// The weights.
#[derive(Debug)]
pub enum Weights {
    /// For TensorRT's layer: dtype and bytes of [n, k], scales of [n, blocks].
    Layer(DType, Bytes, Vec<f64>),
    /// Dequantised.
    Plain(Vec<f64>),
}

/// Everything that `emit` needs.
#[derive(Debug)]
pub struct Plan {
    sizes: Sizes,
    weights: Weights,
    dtype: DType,
    rank: usize,
}

impl Sizes {
    fn read(node: NodeView<'_>) -> Option<Sizes> {
        let positive = |name, default| {
            usize::try_from(node.int(name, default)).ok().filter(|&v| (1..1 << 30).contains(&v))
        };
        let sizes = Sizes {
            n: positive("N", 0)?,
            k: positive("K", 0)?,
            block: positive("block_size", 0)?,
            bits: positive("bits", 4)?,
        };
        (matches!(sizes.bits, 2 | 4 | 8) && (sizes.block * sizes.bits).is_multiple_of(8)).then_some(sizes)
    }

    fn blocks(self) -> usize {
        self.k.div_ceil(self.block)
    }

    /// Element `i` of bytes that hold several, the lowest bits first.
    fn element(self, bytes: &[u8], i: usize) -> u8 {
        let per_byte = 8 / self.bits;
        let byte = bytes.get(i / per_byte).copied().unwrap_or(0);
        let mask = ((1u16 << self.bits) - 1) as u8;
        (byte >> (i % per_byte * self.bits)) & mask
    }

    fn middle(self) -> f64 {
        f64::from(1u32 << (self.bits - 1))
    }

    /// Zero point of each block.
    fn zeros(self, constant: Option<&Tensor>) -> Option<Vec<f64>> {
        let (n, blocks) = (self.n, self.blocks());
        let Some(constant) = constant else { return Some(vec![self.middle(); n * blocks]) };
        if constant.dtype() != DType::U8 {
            return constant.to_f64s().filter(|list| list.len() == n * blocks);
        }
        // Each row is packed by itself.
        let bytes = constant.bytes()?;
        let row = (blocks * self.bits).div_ceil(8);
        if bytes.len() != n * row {
            return None;
        }
        let of =
            |(r, k): (usize, usize)| f64::from(self.element(bytes.get(r * row..)?.get(..row)?, k)).into();
        (0..n).flat_map(|r| (0..blocks).map(move |k| (r, k))).map(of).collect()
    }
}

impl Converter for MatMulNBits {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::of("com.microsoft", "MatMulNBits", 1)],
        dtypes: check::FLOATS,
        layers: "IDequantizeLayer, IMatrixMultiplyLayer",
        limits: "weights constant; no g_idx; no f32 for sm75",
        refusals: &[
            Code::DTYPE_UNREPRESENTABLE,
            Code::DTYPE_KERNEL,
            Code::DTYPE_UNKNOWN,
            Code::RANK_UNKNOWN,
            Code::RANK,
            Code::SHAPE,
            Code::COMPUTE_CAPABILITY,
            Code::INVALID,
            Code::NOT_CONSTANT,
            Code::ATTRIBUTE,
        ],
    };

    fn infer(&self, node: NodeView<'_>, cx: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let sizes =
            Sizes::read(node).ok_or_else(|| Diag::invalid("K, N, bits or block_size are out of range"))?;
        let dtype = shape::dtype_of(node, 0);
        let Some(dims) = node.input(0).and_then(|a| a.shape()) else {
            return Ok(shape::types([shape::typed(dtype, None)]));
        };
        let Some((k, lead)) = dims.split_last() else { return Err(Diag::invalid("a scalar").slot("A")) };
        matrix::inner(k, &Dim::Known(sizes.k as i64), cx)?;
        let mut dims = lead.to_vec();
        dims.push(Dim::Known(sizes.n as i64));
        Ok(shape::types([shape::typed(dtype, Some(dims))]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let a = elementwise::gate(node, 0, "A", check::FLOATS, target)?;
        check::never_empty(&a, "A")?;
        if a.rank() < 2 {
            return Err(Refusal::new(Code::RANK, "a vector").slot("A"));
        }
        matrix::gemm_gate(a.dtype, target)?;
        if node.input(4).is_some() {
            return Err(Refusal::new(Code::ATTRIBUTE, "blocks in another order").slot("g_idx"));
        }
        if node.input(5).is_some() {
            elementwise::gate(node, 5, "bias", &[a.dtype], target)?;
        }
        let invalid = |why: &str, slot: &str| Refusal::new(Code::INVALID, why).slot(slot);
        let sizes = Sizes::read(node).ok_or_else(|| invalid("out of range", "K, N, bits, block_size"))?;
        let (b, scales) = (check::constant(node, 1, "B")?, check::constant(node, 2, "scales")?);
        // The bytes that are there bound every size.
        let bits = [sizes.n, sizes.blocks(), sizes.block, sizes.bits];
        let bits = bits.into_iter().try_fold(1usize, usize::checked_mul);
        let bytes = b.bytes().filter(|bytes| bytes.len().checked_mul(8) == bits);
        let bytes = bytes.ok_or_else(|| invalid("a shape that does not fit", "B"))?;
        let zeros = match node.input(3) {
            Some(_) => Some(check::constant(node, 3, "zero_points")?),
            None => None,
        };
        let zeros = sizes.zeros(zeros).ok_or_else(|| invalid("a shape that does not fit", "zero_points"))?;
        let scales = scales.to_f64s().filter(|list| list.len() == zeros.len());
        let scales = scales.ok_or_else(|| invalid("a shape that does not fit", "scales"))?;
        let weights = weights(sizes, bytes, scales, &zeros, target);
        Ok(Plan { sizes, weights, dtype: a.dtype, rank: a.rank() })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let Sizes { n, k, .. } = plan.sizes;
        let dims = vec![n as i64, k as i64];
        let b = match plan.weights {
            Weights::Layer(dtype, bytes, scales) => {
                let blocks = plan.sizes.blocks() as i64;
                let x = cx.constant(dtype, dims, bytes);
                let scale = floats::constant(cx, plan.dtype, vec![n as i64, blocks], &scales);
                cx.one(Layer::Dequantize { x, scale, axis: None, to: plan.dtype })
            }
            Weights::Plain(values) => floats::constant(cx, plan.dtype, dims, &values),
        };
        let (a, b) = (cx.input(0), cx.with_rank(b, plan.rank));
        let (op_a, op_b) = (MatrixOp::None, MatrixOp::Transpose);
        let y = cx.one(Layer::MatrixMultiply { a, op_a, b, op_b });
        if cx.node().input(5).is_none() {
            return vec![y];
        }
        let bias: TensorId = elementwise::input(cx, 5, plan.rank);
        vec![cx.elementwise(y, bias, ElementWiseOp::Sum)]
    }
}

/// In the middle of the range, whole blocks: the bytes themselves with the top bit of each element flipped.
fn weights(sizes: Sizes, bytes: &Bytes, scales: Vec<f64>, zeros: &[f64], target: &Target) -> Weights {
    let layer = match sizes.bits {
        4 => Some((DType::I4, 0x88)),
        8 => Some((DType::I8, 0x80)),
        _ => None,
    };
    let layer = layer.filter(|(dtype, _)| check::native_gate(*dtype, "B", target).is_ok());
    let whole = sizes.k.is_multiple_of(sizes.block) && scales.iter().all(|&s| s > 0.0 && s.is_finite());
    if let Some((dtype, flip)) = layer
        && whole
        && zeros.iter().all(|&z| z == sizes.middle())
    {
        let flipped: Vec<u8> = bytes.iter().map(|b| b ^ flip).collect();
        return Weights::Layer(dtype, flipped.into(), scales);
    }
    let blocks = sizes.blocks();
    let row = blocks * sizes.block;
    let mut values = Vec::with_capacity(sizes.n * sizes.k);
    for r in 0..sizes.n {
        for k in 0..sizes.k {
            let at = r * blocks + k / sizes.block;
            let (scale, zero) = (scales.get(at).unwrap_or(&0.0), zeros.get(at).unwrap_or(&0.0));
            values.push((f64::from(sizes.element(bytes, r * row + k)) - zero) * scale);
        }
    }
    Weights::Plain(values)
}

#[cfg(test)]
mod tests {
    use crate::testing::*;
    use trtc_bundle::DType;
    use trtc_ir::{Code, Tensor};

    const N: i64 = 3;
    const K: i64 = 64;

    fn bytes(dims: &[i64]) -> Tensor {
        let n = dims.iter().product::<i64>();
        let list: Vec<u8> = (0..n).map(|k| (k * 37 % 251) as u8).collect();
        u8s([n], &list).with_dims(dims.to_vec()).unwrap()
    }

    fn floats(dtype: DType, dims: &[i64]) -> Tensor {
        let n = dims.iter().product::<i64>();
        let list: Vec<f64> = (0..n).map(|k| f64::from(k as i32 * 13 % 29) / 29.0 + 0.01).collect();
        of_dtype(dtype, [n], &list).with_dims(dims.to_vec()).unwrap()
    }

    fn sized(dtype: DType, k: i64, bits: i64) -> Case {
        let (block, blocks) = (32, (k + 31) / 32);
        let case = Case::of("com.microsoft", "MatMulNBits", 1).input(floats(dtype, &[2, k]));
        let case =
            case.constant(bytes(&[N, blocks, block * bits / 8])).constant(floats(dtype, &[N * blocks]));
        case.int("K", k).int("N", N).int("bits", bits).int("block_size", block)
    }

    #[test]
    fn numbers() {
        let near = Tolerance::Near { rtol: 1e-4, atol: 1e-4 };
        let plain = sized(DType::F32, K, 4);
        assert_eq!(plain.layers(), ["Dequantize", "MatrixMultiply"]);
        plain.check(near);
        plain.clone().dynamic(0, ["M", "64"]).check(near);
        let zeros = plain.clone().constant(bytes(&[N, 1]));
        assert_eq!(zeros.layers(), ["MatrixMultiply"]);
        zeros.check(near);
        zeros.absent().constant(floats(DType::F32, &[N])).check(near);
        plain.constant(floats(DType::F32, &[N * 2])).check(near);
        sized(DType::F32, 80, 4).check(near);
        let byte = sized(DType::F32, K, 8);
        assert_eq!(byte.layers(), ["Dequantize", "MatrixMultiply"]);
        byte.check(near);
        let half = sized(DType::F16, K, 4);
        half.check(Tolerance::Near { rtol: 1e-2, atol: 1e-2 });
        assert_eq!(half.target("rtx-1.7:sm75").layers(), ["MatrixMultiply"]);
    }

    #[test]
    fn types() {
        let case = sized(DType::F16, K, 4).dynamic(0, ["M", "64"]);
        assert_eq!(case.types(), ["f16[M x 3]"]);
        assert_eq!(sized(DType::F32, K, 4).int("K", 60).invalid(), "the inner dims 64 and 60 differ");
        let bad = sized(DType::F32, K, 4).int("bits", 5).invalid();
        assert_eq!(bad, "K, N, bits or block_size are out of range");
    }

    #[test]
    fn refusals() {
        let case = || sized(DType::F32, K, 4);
        let of = |x: Tensor| {
            let case = Case::of("com.microsoft", "MatMulNBits", 1).input(x);
            case.int("K", 1).int("N", 1).int("block_size", 32)
        };
        of(f64s([1, 1], &[1.0])).refused(Code::DTYPE_UNREPRESENTABLE);
        of(i32s([1, 1], &[1])).refused(Code::DTYPE_KERNEL);
        of(f32s([1], &[1.0])).refused(Code::RANK);
        of(f32s([1, 1], &[1.0])).input(bytes(&[16])).refused(Code::NOT_CONSTANT);
        case().untyped(0).refused(Code::DTYPE_UNKNOWN);
        case().unranked(0).refused(Code::RANK_UNKNOWN);
        case().dynamic(0, ["0", "64"]).refused(Code::SHAPE);
        case().target("rtx-1.7:sm75").refused(Code::COMPUTE_CAPABILITY);
        case().constant(bytes(&[5])).refused(Code::INVALID);
        case().absent().input(i32s([K], &[0; 64])).refused(Code::ATTRIBUTE);
    }
}
