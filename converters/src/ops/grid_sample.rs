//! GridSample: sample at places that a tensor gives.
//!
//! X [n, c, d..] T1, grid [n, e.., k] T2  ->  Y [n, c, e..] T1
//! Opsets: 16 (2-D; bilinear, bicubic), 20 (n-D; linear, cubic), 22.     TensorRT: IGridSampleLayer.
//! Limits: two or three spatial dims; cubic only over two.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{check, floats, shape},
};
use trtc_bundle::Target;
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, NodeView, Refusal};
use trtc_network::layer::{Interpolation, Layer, SampleMode};

/// The converter.
#[derive(Debug)]
pub struct GridSample;

/// The layer's parameters.
#[derive(Debug)]
pub struct Plan {
    interpolation: Interpolation,
    align_corners: bool,
    mode: SampleMode,
}

impl Converter for GridSample {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("GridSample", 22)],
        dtypes: check::FLOATS,
        layers: "IGridSampleLayer",
        limits: "2 or 3 spatial dims; cubic only over 2",
        refusals: &[
            Code::DTYPE_UNREPRESENTABLE,
            Code::DTYPE_KERNEL,
            Code::DTYPE_UNKNOWN,
            Code::ATTRIBUTE,
            Code::RANK_UNKNOWN,
            Code::RANK,
            Code::SHAPE,
            Code::COMPUTE_CAPABILITY,
            Code::INVALID,
        ],
    };

    fn infer(&self, node: NodeView<'_>, cx: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let dtype = shape::dtype_of(node, 0);
        let shape_of = |slot: usize| node.input(slot).and_then(|view| view.shape());
        let (Some(x), Some(grid)) = (shape_of(0), shape_of(1)) else {
            return Ok(shape::types([shape::typed(dtype, None)]));
        };
        if x.len() != grid.len() || x.len() < 3 {
            return Err(
                Diag::invalid(format!("a grid of rank {} for rank {}", grid.len(), x.len())).slot("grid")
            );
        }
        if let Some(Dim::Known(k)) = grid.last()
            && *k != x.len() as i64 - 2
        {
            return Err(
                Diag::invalid(format!("places of {k} numbers for {} spatial dims", x.len() - 2)).slot("grid")
            );
        }
        shape::demand(node, (1, 0), &x[0], cx)?;
        let to = [&x[..2], &grid[1..grid.len() - 1]].concat();
        Ok(shape::types([shape::typed(dtype, Some(to))]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        let x = check::operand(node, 0, "X", check::FLOATS, target)?;
        check::never_empty(&x, "X")?;
        let grid = check::operand(node, 1, "grid", check::FLOATS, target)?;
        check::never_empty(&grid, "grid")?;
        if !matches!(x.rank(), 4 | 5) {
            return Err(Refusal::new(Code::RANK, format!("rank {}, not 4 or 5", x.rank())).slot("X"));
        }
        let attribute = |name: &str, why: String| Refusal::new(Code::ATTRIBUTE, why).slot(name);
        let interpolation = match node.str("mode", "linear") {
            "linear" | "bilinear" => Interpolation::Linear,
            "nearest" => Interpolation::Nearest,
            "cubic" | "bicubic" if x.rank() == 4 => Interpolation::Cubic,
            "cubic" => {
                let why = "TensorRT samples `cubic` over two dims only, and so does ONNX Runtime";
                return Err(attribute("mode", why.into()).help("`linear` and `nearest` sample volumes, too"));
            }
            other => return Err(attribute("mode", format!("TensorRT does not sample `{other}` here"))),
        };
        let mode = match node.str("padding_mode", "zeros") {
            "zeros" => SampleMode::Fill,
            "border" => SampleMode::Clamp,
            "reflection" => SampleMode::Reflect,
            other => return Err(attribute("padding_mode", format!("`{other}` is no padding mode"))),
        };
        Ok(Plan { interpolation, align_corners: node.int("align_corners", 0) != 0, mode })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let (mut x, mut grid) = (cx.input(0), cx.input(1));
        let dtype = cx.dtype(x);
        if cx.dtype(grid) != dtype {
            (x, grid) = (floats::widened(cx, x), floats::widened(cx, grid));
        }
        let Plan { interpolation, align_corners, mode } = plan;
        let y = cx.one(Layer::GridSample { x, grid, interpolation, align_corners, mode });
        vec![cx.cast(y, dtype)]
    }
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use trtc_ir::Code;

    use trtc_ir::Tensor;

    fn case(x: Tensor, grid: Tensor) -> Case {
        Case::new("GridSample", 22).input(x).input(grid)
    }

    fn flat() -> Case {
        case(noise([1, 2, 4, 5]), noise([1, 3, 6, 2]))
    }

    #[test]
    fn refusals() {
        refused_dtypes(|x| case(x(&[1, 1, 2, 2]), x(&[1, 2, 2, 2])));
        flat().str("mode", "spline").refused(Code::ATTRIBUTE);
        flat().str("padding_mode", "wrap").refused(Code::ATTRIBUTE);
        flat().dynamic(0, ["1", "2", "0", "5"]).refused(Code::SHAPE);
        case(noise([1, 2, 4]), noise([1, 3, 1])).refused(Code::RANK);
        Case::new("GridSample", 22).input(noise([1, 1, 2, 2])).refused(Code::INVALID);
        let deep = case(noise([1, 2, 4, 5, 3]), noise([1, 3, 2, 2, 3]));
        deep.str("mode", "cubic").refused(Code::ATTRIBUTE);
    }

    #[test]
    fn types() {
        let apart = flat().dynamic(0, ["N", "2", "H", "W"]).dynamic(1, ["M", "A", "B", "2"]);
        assert_eq!(apart.equalities(), ["M = N"]);
        let open = flat().dynamic(0, ["N", "2", "H", "W"]).dynamic(1, ["N", "A", "B", "2"]);
        assert_eq!(open.types(), ["f32[N x 2 x A x B]"]);
        assert!(case(noise([1, 2, 4, 5]), noise([1, 3, 2])).invalid().contains("rank 3 for rank 4"));
        assert!(case(noise([1, 2, 4, 5]), noise([1, 3, 6, 3])).invalid().contains("3 numbers"));
    }

    #[test]
    fn numbers() {
        const NEAR: Tolerance = Tolerance::Near { rtol: 1e-4, atol: 1e-5 };
        for mode in ["linear", "nearest", "cubic"] {
            for padding in ["zeros", "border", "reflection"] {
                for align in [0, 1] {
                    flat()
                        .str("mode", mode)
                        .str("padding_mode", padding)
                        .int("align_corners", align)
                        .check(NEAR);
                }
            }
        }
        let open = flat().dynamic(0, ["N", "2", "H", "W"]).dynamic(1, ["N", "A", "B", "2"]);
        open.check(NEAR);
        case(noise([1, 2, 4, 5, 3]), noise([1, 3, 2, 2, 3])).check(NEAR);
        case(noise16([1, 2, 4, 5]), noise([1, 3, 6, 2])).check(F16);
    }
}
