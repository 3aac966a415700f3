//! Tensors for tests: values without pattern, the same on every run.

use crate::testing::{Case, bf16s, f16s, f32s, i64s};
use trtc_bundle::DType;
use trtc_ir::{Attrs, Code, Graph, Node, OpKey, Tensor, Type, ValueId};

/// Values in -2..2, none of them equal to another nearby, from a linear congruential sequence.
pub fn values(n: usize) -> Vec<f32> {
    let mut state = 12345u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f64::from(state >> 8) / f64::from(1 << 24)
    };
    (0..n).map(|_| (next() * 4.0 - 2.0) as f32).collect()
}

fn count(dims: &[i64]) -> usize {
    dims.iter().product::<i64>() as usize
}

/// A f32 tensor of such values.
pub fn noise<const R: usize>(dims: [i64; R]) -> Tensor {
    f32s(dims, &values(count(&dims)))
}

/// A f16 tensor of such values.
pub fn noise16<const R: usize>(dims: [i64; R]) -> Tensor {
    f16s(dims, &values(count(&dims)))
}

/// A bf16 tensor of such values.
pub fn noise_bf16<const R: usize>(dims: [i64; R]) -> Tensor {
    bf16s(dims, &values(count(&dims)))
}

/// An i64 tensor that counts from 0.
pub fn counting<const R: usize>(dims: [i64; R]) -> Tensor {
    let list: Vec<i64> = (0..count(&dims) as i64).collect();
    i64s(dims, &list)
}

/// A list of i64.
pub fn list(values: &[i64]) -> Tensor {
    Tensor::from_i64s(values)
}

/// Checks the refusals of `ctx::check::operand` on slot 0. `make` makes the case of float tensors that it is given a
/// maker for.
#[track_caller]
pub fn refused_dtypes(make: impl Fn(&dyn Fn(&[i64]) -> Tensor) -> Case) {
    let of = |dtype: DType| {
        make(&move |dims: &[i64]| {
            let bytes = vec![0u8; dtype.bytes_for(count(dims)).unwrap()];
            Tensor::new(dtype, dims.to_vec(), bytes.into()).unwrap()
        })
    };
    of(DType::F64).refused(Code::DTYPE_UNREPRESENTABLE);
    of(DType::F4E2M1).refused(Code::DTYPE_KERNEL);
    of(DType::Bf16).target("rtx-1.7:sm75").refused(Code::COMPUTE_CAPABILITY);
    of(DType::F32).untyped(0).refused(Code::DTYPE_UNKNOWN);
    of(DType::F32).unranked(0).refused(Code::RANK_UNKNOWN);
}

/// Appends a node of one output to a body under construction; the output.
pub fn node(graph: &mut Graph, op: &str, since: u32, inputs: &[ValueId]) -> ValueId {
    let n = graph.node_count();
    let y = graph.add_value(&format!("{op}{n}_y"), Type::Unknown);
    let inputs = inputs.iter().copied().map(Some);
    graph.add_node(Node::new(
        &format!("{op}{n}"),
        OpKey::new("", op),
        since,
        Attrs::new(),
        inputs,
        [Some(y)],
    ));
    y
}
