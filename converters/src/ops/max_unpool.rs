//! MaxUnpool: maxima back at the places that they came from, zeros elsewhere.
//!
//! X [N, C, d..] T, I [N, C, d..] i64, output_shape [n+2] i64 (optional)  ->  output [N, C, e..] T
//! Opsets: 9, 11, 22.     TensorRT: IScatterLayer, ISliceLayer for zeros behind what the kernel gives.
//! Limits: dims known; output_shape no less than the kernel gives. Places are counted in what the kernel gives, as the specification
//! has it; ONNX Runtime counts them in output_shape.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{check, dims, shape, window},
};
use trtc_bundle::{DType, Target};
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal};
use trtc_network::layer::{Extent, Layer, SampleMode, ScatterMode};

/// The converter.
#[derive(Debug)]
pub struct MaxUnpool;

/// Dims of the result: as the kernel gives them, and as they are.
#[derive(Debug)]
pub struct Plan {
    natural: Vec<i64>,
    to: Vec<i64>,
}

/// Most elements of the result, whose zeros stand in the network.
const MOST_ELEMENTS: i64 = 1 << 24;

/// Dims that the kernel gives.
fn natural(node: NodeView<'_>, x: &[Dim]) -> Result<Vec<Dim>, Diag> {
    if x.len() < 3 {
        return Err(Diag::invalid(format!("rank {} has no spatial dims", x.len())).slot("X"));
    }
    let attributes = window::Attributes::read(node, x.len() - 2, None)?;
    let mut to = x[..2].to_vec();
    for (axis, dim) in x[2..].iter().enumerate() {
        let pads = attributes.before[axis] + attributes.after[axis];
        let grown = dim.sub(&Dim::Known(1)).mul(&Dim::Known(attributes.strides[axis]));
        let size = grown.add(&Dim::Known(attributes.kernel[axis] - pads));
        if size.known().is_some_and(|size| size < 0) {
            return Err(Diag::invalid("paddings that leave nothing").slot("pads"));
        }
        to.push(size);
    }
    Ok(to)
}

impl Converter for MaxUnpool {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("MaxUnpool", 22)],
        dtypes: check::FLOATS,
        layers: "IScatterLayer, ISliceLayer",
        limits: "dims known; output_shape no less than the kernel gives",
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

    fn infer(&self, node: NodeView<'_>, _: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let dtype = shape::dtype_of(node, 0);
        let Some(x) = node.input(0).and_then(|x| x.shape()) else {
            return Ok(shape::types([shape::typed(dtype, None)]));
        };
        let mut to = natural(node, x)?;
        if let Some(sizes) = node.input(2) {
            to = match sizes.elements() {
                Some(list) if list.len() != x.len() => {
                    let why = format!("{} sizes for rank {}", list.len(), x.len());
                    return Err(Diag::invalid(why).slot("output_shape"));
                }
                Some(list) => list.to_vec(),
                None => vec![Dim::Unknown; x.len()],
            };
        }
        Ok(shape::types([shape::typed(dtype, Some(to))]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let x = check::operand(node, 0, "X", check::FLOATS, target)?;
        check::never_empty(&x, "X")?;
        let indices = check::operand(node, 1, "I", &[DType::I64], target)?;
        let to = natural(node, x.shape).map_err(window::refused)?;
        let told = node.input(2).is_some_and(|sizes| sizes.elements().is_some()) || dims::all_fixed(node);
        let dims: Option<Vec<i64>> = to.iter().map(Dim::known).collect();
        let Some(dims) = dims.filter(|_| x.shape == indices.shape) else {
            return Err(Refusal::new(Code::DIM_UNKNOWN, "dims that are not known before the run")
                .slot("X")
                .help("give the input's shape with --shape"));
        };
        let mut result = dims.clone();
        if node.input(2).is_some() {
            let shape = node.output(0).and_then(|y| y.shape()).filter(|_| told);
            let known = shape.and_then(|shape| shape.iter().map(Dim::known).collect::<Option<Vec<i64>>>());
            result = known.ok_or_else(|| {
                Refusal::new(Code::DIM_UNKNOWN, "sizes that are not known before the run")
                    .slot("output_shape")
            })?;
            if result.len() != dims.len() || result.iter().zip(&dims).any(|(to, own)| to < own) {
                let why = format!("{result:?}, less than the {dims:?} that the kernel gives");
                return Err(Refusal::new(Code::ATTRIBUTE, why).slot("output_shape"));
            }
        }
        let count = result.iter().try_fold(1i64, |n, d| n.checked_mul(*d));
        match count {
            Some(count) if (1..=MOST_ELEMENTS).contains(&count) => Ok(Plan { natural: dims, to: result }),
            _ => Err(Refusal::new(Code::SHAPE, format!("a result of {result:?}"))),
        }
    }

    fn emit(&self, Plan { natural: dims, to }: Plan, cx: &mut Emit<'_>) -> Outputs {
        let (x, indices) = (cx.input(0), cx.input(1));
        let dtype = cx.dtype(x);
        let count: i64 = dims.iter().product();
        let size = dtype.bytes_for(count as usize).unwrap_or_default();
        let data = cx.constant(dtype, vec![count], vec![0; size].into());
        let (indices, updates) = (cx.reshape(indices, vec![-1]), cx.reshape(x, vec![-1]));
        let y = cx.one(Layer::Scatter { data, indices, updates, mode: ScatterMode::Element, axis: 0 });
        let same = dims == to;
        let y = cx.reshape(y, dims);
        if same {
            return vec![y];
        }
        let fill = Some(cx.scalar(dtype, 0, 0.0));
        let [start, stride] = [0, 1].map(|v| Extent::Static(vec![v; to.len()]));
        let size = Extent::Static(to);
        vec![cx.one(Layer::Slice { x: y, start, size, stride, mode: SampleMode::Fill, fill })]
    }
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use trtc_ir::Code;

    fn case() -> Case {
        let case = Case::new("MaxUnpool", 22).input(noise([1, 2, 2, 2]));
        let places = i64s([1, 2, 2, 2], &[0, 3, 9, 14, 16, 19, 24, 31]);
        case.input(places).ints("kernel_shape", &[2, 2]).ints("strides", &[2, 2])
    }

    #[test]
    fn refusals() {
        refused_dtypes(|x| {
            let places = i64s([1, 1, 1, 1], &[0]);
            Case::new("MaxUnpool", 22).input(x(&[1, 1, 1, 1])).input(places).ints("kernel_shape", &[2, 2])
        });
        case().constant(list(&[1, 2, 3, 5])).refused(Code::ATTRIBUTE);
        case().dynamic(0, ["N", "2", "2", "2"]).refused(Code::DIM_UNKNOWN);
        case().dynamic(0, ["1", "2", "0", "2"]).refused(Code::SHAPE);
        let places = i64s([1; 9], &[0]);
        let wide =
            Case::new("MaxUnpool", 22).input(noise([1; 9])).input(places).ints("kernel_shape", &[1; 7]);
        wide.refused(Code::RANK);
        Case::new("MaxUnpool", 22).input(noise([1, 1, 2])).ints("kernel_shape", &[2]).refused(Code::INVALID);
    }

    #[test]
    fn numbers() {
        assert_eq!(case().dynamic(0, ["N", "2", "H", "2"]).types(), ["f32[N x 2 x 2*H x 4]"]);
        assert_eq!(case().constant(list(&[1, 2, 5, 5])).types(), ["f32[1 x 2 x 5 x 5]"]);
        assert!(case().constant(list(&[5, 5])).invalid().contains("2 sizes"));
        assert!(case().ints("pads", &[9, 0, 0, 0]).invalid().contains("nothing"));
        assert!(Case::new("MaxUnpool", 22).input(noise([2, 2])).invalid().contains("no spatial dims"));
        case().check(Tolerance::Exact);
        case().constant(list(&[1, 2, 4, 4])).check(Tolerance::Exact);
        case().constant(list(&[1, 2, 5, 6])).check(Tolerance::Exact);
        // The specification's own example.
        let places = i64s([1, 1, 2, 2], &[5, 7, 13, 15]);
        let own = Case::new("MaxUnpool", 22).input(f32s([1, 1, 2, 2], &[5.0, 6.0, 7.0, 8.0])).input(places);
        let own = own.ints("kernel_shape", &[2, 2]).ints("strides", &[2, 2]).constant(list(&[1, 1, 5, 5]));
        let mut y = [0.0; 25];
        [(6, 5.0), (8, 6.0), (16, 7.0), (18, 8.0)].into_iter().for_each(|(at, v)| y[at] = v);
        own.gives(Tolerance::Exact, &[f32s([1, 1, 5, 5], &y)]);
        let line = Case::new("MaxUnpool", 22).input(noise([1, 1, 2])).input(i64s([1, 1, 2], &[1, 2]));
        line.ints("kernel_shape", &[2]).ints("strides", &[2]).check(Tolerance::Exact);
    }
}
