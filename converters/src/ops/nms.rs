//! NonMaxSuppression: boxes that do not overlap a better one.
//!
//! boxes [b, n, 4] f32, scores [b, c, n] f32, max_output_boxes_per_class [] i64, iou_threshold, score_threshold [] f32
//!   ->  selected_indices [count, 3] i64
//! Opsets: 10, 11.     TensorRT: INMSLayer.
//! Limits: TensorRT only: the TensorRT-RTX builder has no runner for it; at most 5000 scores a batch.

use crate::{
    Converter, Def, Emit, Key, Outputs,
    ctx::{check, dims, shape},
};
use trtc_bundle::{DType, Product, Target};
use trtc_ir::{Code, Diag, Dim, InferCx, Inferred, Interval, NodeView, Refusal};
use trtc_network::layer::{BoxFormat, Layer};

/// The converter.
#[derive(Debug)]
pub struct NonMaxSuppression;

/// Format of the boxes, and which thresholds are given.
#[derive(Debug)]
pub struct Plan {
    format: BoxFormat,
    iou: bool,
    score: bool,
}

/// `INMSLayer::setTopKBoxLimit`: more candidates than this are not looked at.
const MOST_CANDIDATES: i64 = 5000;

impl Converter for NonMaxSuppression {
    type Plan = Plan;

    const DEF: Def = Def {
        keys: &[Key::onnx("NonMaxSuppression", 11)],
        dtypes: &[DType::F32],
        layers: "INMSLayer",
        limits: "not TensorRT-RTX, whose builder has no runner for it; at most 5000 scores a batch",
        refusals: &[
            Code::DTYPE_UNREPRESENTABLE,
            Code::DTYPE_KERNEL,
            Code::DTYPE_UNKNOWN,
            Code::ATTRIBUTE,
            Code::RANK_UNKNOWN,
            Code::RANK,
            Code::SHAPE,
            Code::PRODUCT,
            Code::INVALID,
        ],
    };

    fn infer(&self, node: NodeView<'_>, cx: &mut InferCx<'_>) -> Result<Vec<Inferred>, Diag> {
        let range = |slot: usize, axis: usize| node.input(slot).and_then(|x| node_max(node, x.dim(axis)?));
        let most = || {
            let classes = range(1, 0)?.checked_mul(range(1, 1)?)?;
            let boxes = range(1, 2)?;
            let limit = dims::scalar(node, 2).and_then(|limit| node_max(node, limit));
            classes.checked_mul(limit.map_or(boxes, |limit| limit.clamp(0, boxes)))
        };
        for (slot, name) in [(0, "boxes"), (1, "scores")] {
            if let Some(rank) = node.input(slot).and_then(|x| x.rank()).filter(|&rank| rank != 3) {
                return Err(Diag::invalid(format!("rank {rank}, not 3")).slot(name));
            }
        }
        let count = cx.unbacked("selected", Interval { min: Some(0), max: most() });
        Ok(shape::types([shape::typed(Some(DType::I64), Some(vec![count, Dim::Known(3)]))]))
    }

    fn plan(&self, node: NodeView<'_>, target: &Target) -> Result<Plan, Refusal> {
        if target.product() == Product::Rtx {
            let why = "the TensorRT-RTX builder has no runner for NonMaxSuppression";
            return Err(Refusal::new(Code::PRODUCT, why).help("compile for tensorrt-11.3, which has one"));
        }
        for (slot, name) in [(0, "boxes"), (1, "scores")] {
            let x = check::operand(node, slot, name, &[DType::F32], target)?;
            check::never_empty(&x, name)?;
            if x.rank() != 3 {
                return Err(Refusal::new(Code::RANK, format!("rank {}, not 3", x.rank())).slot(name));
            }
        }
        check::operand(node, 2, "max_output_boxes_per_class", &[DType::I64], target)?;
        for (slot, name) in [(3, "iou_threshold"), (4, "score_threshold")] {
            if node.input(slot).is_some() {
                check::operand(node, slot, name, &[DType::F32], target)?;
            }
        }
        let scores = node.input(1);
        let range = |axis: usize| scores.and_then(|x| node_max(node, x.dim(axis)?));
        let candidates = range(1).zip(range(2)).and_then(|(c, n)| c.checked_mul(n));
        if candidates.is_none_or(|n| n > MOST_CANDIDATES) {
            let why = format!("more than {MOST_CANDIDATES} scores a batch; TensorRT looks at no more");
            return Err(Refusal::new(Code::SHAPE, why).slot("scores"));
        }
        let format = match node.int("center_point_box", 0) {
            0 => BoxFormat::CornerPairs,
            1 => BoxFormat::CenterSizes,
            other => {
                return Err(Refusal::new(Code::ATTRIBUTE, format!("{other} is no format of boxes"))
                    .slot("center_point_box"));
            }
        };
        Ok(Plan { format, iou: node.input(3).is_some(), score: node.input(4).is_some() })
    }

    fn emit(&self, plan: Plan, cx: &mut Emit<'_>) -> Outputs {
        let (boxes, scores) = (cx.input(0), cx.input(1));
        let scores = cx.transpose(scores, vec![0, 2, 1]);
        let mut scalar = |slot: usize| {
            let x = cx.input(slot);
            if cx.rank(x) == 0 { x } else { cx.reshape(x, Vec::new()) }
        };
        let max_output_boxes = scalar(2);
        // Without a threshold every box with a score above everything counts, and none overlaps too much at 0.
        let (iou, score) = (plan.iou.then(|| scalar(3)), plan.score.then(|| scalar(4)));
        let iou_threshold = Some(iou.unwrap_or_else(|| cx.scalar(DType::F32, 0, 0.0)));
        let layer = Layer::Nms {
            boxes,
            scores,
            max_output_boxes,
            iou_threshold,
            score_threshold: score,
            format: plan.format,
            to: DType::I64,
        };
        cx.layer(layer).into_iter().take(1).collect()
    }
}

fn node_max(node: NodeView<'_>, dim: &Dim) -> Option<i64> {
    node.symbols().interval(dim).max
}

#[cfg(test)]
mod tests {
    use crate::{samples::*, testing::*};
    use trtc_ir::Code;

    const TENSORRT: &str = "tensorrt-11.3:sm89";

    fn case(boxes: i64) -> Case {
        let case = Case::new("NonMaxSuppression", 11).input(noise([1, boxes, 4])).input(noise([1, 2, boxes]));
        case.constant(list(&[3])).target(TENSORRT)
    }

    #[test]
    fn refusals() {
        case(5).target("rtx-1.7:sm89").refused(Code::PRODUCT);
        case(2501).refused(Code::SHAPE);
        case(5).int("center_point_box", 2).refused(Code::ATTRIBUTE);
        case(5).untyped(0).refused(Code::DTYPE_UNKNOWN);
        case(5).unranked(0).refused(Code::RANK_UNKNOWN);
        let of = |x: trtc_ir::Tensor| {
            Case::new("NonMaxSuppression", 11).input(x.clone()).input(x).target(TENSORRT)
        };
        of(f64s([1, 1, 1], &[1.0])).refused(Code::DTYPE_UNREPRESENTABLE);
        of(noise16([1, 1, 1])).refused(Code::DTYPE_KERNEL);
        of(noise([1, 1, 4])).refused(Code::INVALID);
        case(5).constant(noise([1; 9])).refused(Code::RANK);
    }

    #[test]
    fn layers() {
        let case = case(5).constant(f32s([1], &[0.5])).constant(f32s([], &[0.1]));
        assert_eq!(case.types(), ["i64[node.selected x 3]"]);
        assert_eq!(case.layers(), ["Shuffle", "Shuffle", "Shuffle", "Nms"]);
        assert!(Case::new("NonMaxSuppression", 11).input(noise([2])).invalid().contains("rank 1"));
    }
}
