//! Col2Im: blocks of an image added up where they overlap.
//!
//! input [n, c · Π block, l] T, image_shape [k] i64, block_shape [k] i64  ->  output [n, c, image..] T
//! Opsets: 18.     TensorRT: ISliceLayer (the elements of a place of all blocks, spread by the stride), IElementWiseLayer.
//! Limits: 1 to 6 spatial dims; dims known but n; block_shape constant, or one of 8 that the dims leave: the run picks one.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{axes, check, dims, floats, shape, taps},
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal};
use trtc_network::{
    Layer, TensorId,
    layer::{ElementWiseOp, Extent, ReduceOp, SampleMode},
};

/// The converter.
#[derive(Debug)]
pub struct Col2Im;

/// Everything that `emit` needs.
#[derive(Debug)]
pub struct Plan {
    channels: i64,
    image: Vec<i64>,
    strides: Vec<i64>,
    dilations: Vec<i64>,
    before: Vec<i64>,
    /// Block shapes that it may be, with the number of blocks along each axis.
    choices: Vec<(Vec<i64>, Vec<i64>)>,
}

/// Block shapes that are computed for the run to pick from.
const MOST_CHOICES: usize = 8;
/// Sizes beyond this are none of a real model.
const LIMIT: i64 = 1 << 24;

/// Attributes for `k` spatial dims: strides, dilations, pads.
fn attributes(node: NodeView<'_>, k: usize) -> Result<[Vec<i64>; 3], Diag> {
    let list = |name: &str, n: usize, default: i64, least: i64| -> Result<Vec<i64>, Diag> {
        let list = node.attrs().ints(name).map_or_else(|| vec![default; n], <[i64]>::to_vec);
        if list.len() != n {
            return Err(Diag::invalid(format!("{} entries, not {n}", list.len())).slot(name));
        }
        match list.iter().find(|v| !(least..=LIMIT).contains(v)) {
            Some(v) => Err(Diag::invalid(format!("{v} is out of range")).slot(name)),
            None => Ok(list),
        }
    };
    Ok([list("strides", k, 1, 1)?, list("dilations", k, 1, 1)?, list("pads", 2 * k, 0, 0)?])
}

/// Number of spatial dims, where either shape says it.
fn spatial(node: NodeView<'_>) -> Option<usize> {
    let of = |slot: usize| node.input(slot)?.dim(0)?.known();
    usize::try_from(of(1).or(of(2))?).ok().filter(|k| (1..=64).contains(k))
}

/// Numbers of an input, where they are known.
fn numbers(node: NodeView<'_>, slot: usize) -> Option<Vec<i64>> {
    node.input(slot)?.elements()?.iter().map(Dim::known).collect()
}

fn product(list: &[i64]) -> Option<i64> {
    list.iter().try_fold(1i64, |n, v| n.checked_mul(*v))
}

/// Factorisations of `n` into `k` factors, at most `most` of them.
fn factorisations(n: i64, k: usize, most: usize) -> Vec<Vec<i64>> {
    if k <= 1 {
        return vec![vec![n]];
    }
    let mut list = Vec::new();
    for first in (1..=n).filter(|first| n % first == 0) {
        for rest in factorisations(n / first, k - 1, most) {
            list.push([vec![first], rest].concat());
            if list.len() > most {
                return list;
            }
        }
    }
    list
}

impl Converter for Col2Im {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("Col2Im", 18)],
        dtypes: check::FLOATS,
        layers: "ISliceLayer, IElementWiseLayer",
        limits: "dims known but the batch; block_shape constant, or one of 8 that the dims leave",
        refusals: &[
            Code::DTYPE_UNREPRESENTABLE,
            Code::DTYPE_KERNEL,
            Code::DTYPE_UNKNOWN,
            Code::RANK_UNKNOWN,
            Code::RANK,
            Code::DIM_UNKNOWN,
            Code::SHAPE,
            Code::SHAPE_VALUE,
            Code::COMPUTE_CAPABILITY,
            Code::INVALID,
        ],
    };

    fn infer(&self, node: NodeView<'_>, _: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let dtype = shape::dtype_of(node, 0);
        let x = node.input(0).and_then(|x| x.shape());
        if let Some(x) = x
            && x.len() != 3
        {
            return Err(Diag::invalid(format!("rank {}, not 3", x.len())).slot("input"));
        }
        let Some(k) = spatial(node) else { return Ok(shape::types([shape::typed(dtype, None)])) };
        attributes(node, k)?;
        let block = numbers(node, 2).filter(|block| block.len() == k);
        let size = block.as_deref().and_then(product).filter(|&size| size > 0);
        let channels = match (x.and_then(|x| x[1].known()), size) {
            (Some(rows), Some(size)) if rows % size != 0 => {
                let why = format!("{rows} rows for blocks of {size} elements");
                return Err(Diag::invalid(why).slot("input"));
            }
            (Some(rows), Some(size)) => Dim::Known(rows / size),
            _ => Dim::Unknown,
        };
        let mut to = vec![x.map_or(Dim::Unknown, |x| x[0].clone()), channels];
        match node.input(1).and_then(|image| image.elements()).filter(|list| list.len() == k) {
            Some(list) => to.extend_from_slice(list),
            None => to.extend(vec![Dim::Unknown; k]),
        }
        Ok(shape::types([shape::typed(dtype, Some(to))]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let x = check::operand(node, 0, "input", check::FLOATS, target)?;
        check::never_empty(&x, "input")?;
        let shape_of = |slot, name| check::operand(node, slot, name, &[DType::I64], target);
        shape_of(1, "image_shape")?;
        let block_view = shape_of(2, "block_shape")?;
        let known = |dim: &Dim| {
            dim.known().ok_or_else(|| {
                Refusal::new(Code::DIM_UNKNOWN, "only the batch may be known no sooner than at run time")
                    .slot("input")
                    .help("give the input's shape with --shape")
            })
        };
        let [_, rows, blocks] = x.shape else {
            return Err(Refusal::new(Code::INVALID, "not of rank 3").slot("input"));
        };
        let (rows, blocks) = (known(rows)?, known(blocks)?);
        let told = |name: &str| {
            Refusal::new(Code::SHAPE_VALUE, "not known before the run, nor from the declared dims").slot(name)
        };
        let k = spatial(node).ok_or_else(|| told("image_shape"))?;
        if k > 6 {
            return Err(Refusal::new(Code::RANK, format!("{k} spatial dims; TensorRT holds 8 dims in all")));
        }
        let [strides, dilations, pads] = attributes(node, k).map_err(crate::ctx::window::refused)?;
        let size = |axis: usize| dims::declared(node, Dim::Unknown, 0, axis + 2).known();
        let declared = (0..k).map(size).collect::<Option<Vec<i64>>>();
        let image = numbers(node, 1).filter(|list| list.len() == k).or(declared);
        let image = image.ok_or_else(|| told("image_shape"))?;
        let (before, after) = pads.split_at(k);
        let fits = |block: &Vec<i64>| -> Option<Vec<i64>> {
            let along = |axis: usize| {
                let reach = block[axis].checked_sub(1)?.checked_mul(dilations[axis])?.checked_add(1)?;
                let room = image[axis].checked_add(before[axis] + after[axis])?.checked_sub(reach)?;
                (room >= 0 && block[axis] > 0).then(|| room / strides[axis] + 1)
            };
            let counts = (0..k).map(along).collect::<Option<Vec<i64>>>()?;
            (product(&counts) == Some(blocks)).then_some(counts)
        };
        let candidates = match numbers(node, 2).filter(|block| block.len() == k) {
            Some(block) => vec![block],
            None => {
                let channels =
                    dims::declared(node, Dim::Unknown, 0, 1).known().filter(|&c| c > 0 && rows % c == 0);
                let channels = channels.ok_or_else(|| told("block_shape"))?;
                if block_view.shape != [Dim::Known(k as i64)] {
                    return Err(told("block_shape"));
                }
                factorisations((rows / channels).min(LIMIT), k, 4096)
            }
        };
        let size = candidates.first().and_then(|block| product(block)).unwrap_or(0);
        let choices: Vec<(Vec<i64>, Vec<i64>)> =
            candidates.into_iter().filter_map(|block| Some((block.clone(), fits(&block)?))).collect();
        if !(1..=MOST_CHOICES).contains(&choices.len()) {
            return Err(told("block_shape"));
        }
        if !(1..=taps::MOST_SLICES).contains(&size) || image.iter().any(|d| !(1..=LIMIT).contains(d)) {
            let why = format!("blocks of {size} elements in an image of {image:?}");
            return Err(Refusal::new(Code::SHAPE, why).slot("block_shape"));
        }
        let before = before.to_vec();
        Ok(Plan { channels: rows / size, image, strides, dilations, before, choices })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let x = cx.input(0);
        let dtype = cx.dtype(x);
        let x = floats::widened(cx, x);
        let mut result: Option<TensorId> = None;
        for (block, counts) in &plan.choices {
            let y = added(cx, x, &plan, block, counts);
            result = Some(match result {
                None => y,
                Some(other) => {
                    let condition = is_block(cx, block);
                    let condition = cx.reshape(condition, vec![1; plan.image.len() + 2]);
                    cx.one(Layer::Select { condition, then_input: y, else_input: other })
                }
            });
        }
        let Some(y) = result else { return Outputs::new() };
        vec![cx.cast(y, dtype)]
    }
}

/// The image of blocks of this shape.
fn added(cx: &mut Emit<'_>, x: TensorId, plan: &Plan, block: &[i64], counts: &[i64]) -> TensorId {
    let size: i64 = block.iter().product();
    // [n · c, elements of a block, blocks along the axes]
    let x = cx.reshape(x, [&[-1, size], counts].concat());
    let mut sum: Option<TensorId> = None;
    let mut places = vec![Vec::new()];
    for (n, dilation) in block.iter().zip(&plan.dilations) {
        let next = |place: &Vec<i64>| {
            let place = place.clone();
            (0..*n).map(move |k| [place.clone(), vec![k * dilation]].concat())
        };
        places = places.iter().flat_map(next).collect();
    }
    let spread = spread(cx, x, &plan.strides, counts);
    let (dtype, rank) = (cx.dtype(x), cx.rank(x));
    let fill = Some(cx.scalar(dtype, 0, 0.0));
    for (element, place) in places.iter().enumerate() {
        // Blocks start at −pad; this element of each stands `place` further.
        let mut start = vec![0, element as i64];
        start.extend(place.iter().zip(&plan.before).map(|(at, pad)| pad - at));
        let sizes = [&[1], plan.image.as_slice()].concat();
        let size = match cx.dims(spread).first() {
            Some(&lead @ 0..) => Extent::Static([&[lead], sizes.as_slice()].concat()),
            _ => {
                let parts = vec![cx.dim_of(spread, 0), cx.i64s(&sizes)];
                Extent::Tensor(cx.one(Layer::Concatenation { xs: parts, axis: 0 }))
            }
        };
        let (start, stride) = (Extent::Static(start), Extent::Static(vec![1; rank]));
        let mode = SampleMode::Fill;
        let part = cx.one(Layer::Slice { x: spread, start, size, stride, mode, fill });
        sum = Some(sum.map_or(part, |sum| cx.elementwise(sum, part, ElementWiseOp::Sum)));
    }
    let sum = sum.unwrap_or(spread);
    cx.reshape(sum, [&[-1, plan.channels], plan.image.as_slice()].concat())
}

/// Zeros between the blocks along each axis, one axis after the other.
fn spread(cx: &mut Emit<'_>, x: TensorId, strides: &[i64], counts: &[i64]) -> TensorId {
    let mut dims = counts.to_vec();
    let mut x = x;
    let elements = cx.dims(x).get(1).copied().unwrap_or(1);
    for axis in 0..strides.len() {
        let stride = strides[axis];
        if stride == 1 {
            continue;
        }
        // [a, d, b] -> [a, d, 1, b] -> [a, d, stride, b] -> [a, d · stride, b]
        let inner: i64 = dims[axis + 1..].iter().product();
        let line = cx.reshape(x, vec![-1, 1, inner]);
        let (dtype, fill_at) = (cx.dtype(line), Extent::Static(vec![0; 3]));
        let fill = Some(cx.scalar(dtype, 0, 0.0));
        let size = match cx.dims(line).first() {
            Some(&lead @ 0..) => Extent::Static(vec![lead, stride, inner]),
            _ => {
                let parts = vec![cx.dim_of(line, 0), cx.i64s(&[stride, inner])];
                Extent::Tensor(cx.one(Layer::Concatenation { xs: parts, axis: 0 }))
            }
        };
        let step = Extent::Static(vec![1; 3]);
        let mode = SampleMode::Fill;
        let wide = cx.one(Layer::Slice { x: line, start: fill_at, size, stride: step, mode, fill });
        dims[axis] *= stride;
        x = cx.reshape(wide, [&[-1, elements], dims.as_slice()].concat());
    }
    x
}

/// Whether the run gives this block shape: bool \[1\].
fn is_block(cx: &mut Emit<'_>, block: &[i64]) -> TensorId {
    let given = axes::part(cx, 2, 0, block.len());
    let block = cx.i64s(block);
    let same = cx.elementwise(given, block, ElementWiseOp::Equal);
    let ones = cx.cast(same, DType::I64);
    let all = cx.one(Layer::Reduce { x: ones, op: ReduceOp::Min, axes: vec![0], keep_dims: true });
    let zero = cx.i64s(&[0]);
    cx.elementwise(all, zero, ElementWiseOp::Greater)
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use trtc_ir::{Code, Tensor};

    fn case(x: Tensor, image: &[i64], block: &[i64]) -> Case {
        Case::new("Col2Im", 18).input(x).constant(list(image)).constant(list(block))
    }

    #[test]
    fn refusals() {
        refused_dtypes(|x| case(x(&[1, 1, 1]), &[1, 1], &[1, 1]));
        case(noise([1, 4, 4]), &[3, 3], &[2, 2]).dynamic(0, ["1", "4", "L"]).refused(Code::DIM_UNKNOWN);
        case(noise([1, 4, 4]), &[3, 3], &[2, 2]).dynamic(0, ["0", "4", "4"]).refused(Code::SHAPE);
        case(noise([1, 4, 5]), &[3, 3], &[2, 2]).refused(Code::SHAPE_VALUE);
        case(noise([1, 1, 1]), &[1; 7], &[1; 7]).refused(Code::RANK);
        Case::new("Col2Im", 18).input(noise([1, 4, 4])).constant(list(&[3, 3])).refused(Code::INVALID);
    }

    #[test]
    fn types() {
        let open = case(noise([2, 8, 4]), &[3, 3], &[2, 2]).dynamic(0, ["N", "8", "4"]);
        assert_eq!(open.types(), ["f32[N x 2 x 3 x 3]"]);
        assert!(case(noise([2, 7, 4]), &[3, 3], &[2, 2]).invalid().contains("7 rows"));
        assert!(case(noise([2, 7]), &[3, 3], &[2, 2]).invalid().contains("rank 2"));
        let strides = case(noise([1, 4, 4]), &[3, 3], &[2, 2]).ints("strides", &[1]);
        assert!(strides.invalid().contains("1 entries"));
        assert!(
            case(noise([1, 4, 4]), &[3, 3], &[2, 2])
                .ints("dilations", &[0, 1])
                .invalid()
                .contains("out of range")
        );
    }

    #[test]
    fn numbers() {
        case(noise([2, 8, 4]), &[3, 3], &[2, 2]).dynamic(0, ["N", "8", "4"]).check(F32);
        case(noise([1, 5, 5]), &[5, 5], &[1, 5]).check(F32);
        case(noise([1, 9, 4]), &[5, 5], &[3, 3]).ints("strides", &[2, 2]).check(F32);
        case(noise([1, 4, 6]), &[5, 6], &[2, 2]).ints("strides", &[3, 2]).check(F32);
        let strides = case(noise([1, 4, 6]), &[5, 6], &[2, 2]).ints("strides", &[3, 2]);
        strides.dynamic(0, ["N", "4", "6"]).check(F32);
        case(noise([1, 4, 5]), &[6, 6], &[2, 2]).ints("dilations", &[1, 5]).check(F32);
        case(noise([1, 5, 15]), &[5, 5], &[1, 5]).ints("pads", &[0, 1, 0, 1]).check(F32);
        case(noise([1, 10, 12]), &[3, 4, 5], &[1, 1, 5]).check(F32);
        case(noise16([1, 4, 4]), &[3, 3], &[2, 2]).check(F16);
    }

    #[test]
    fn block_of_the_run() {
        for block in [[1, 5], [5, 1]] {
            let case =
                Case::new("Col2Im", 18).input(noise([1, 5, 5])).input(list(&[5, 5])).input(list(&block));
            case.declared(0, &[1, 1, 5, 5]).check(F32);
        }
    }
}
