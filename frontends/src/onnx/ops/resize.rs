//! Resize, and Upsample before it.
//!
//! Upsample 1: height_scale, width_scale.     7: attribute scales.     9: input.     10: gone.
//! Resize 10: inputs x, scales; pixels at whole numbers, nearest rounds down when growing and up when shrinking.
//! 11: roi, sizes, coordinate and nearest modes.     13: roi and scales may be omitted; tf_half_pixel_for_nn is gone.
//! 18: antialias, axes, keep_aspect_ratio_policy.     19: half_pixel_symmetric.

use super::{Family, Misfit, Step};
use crate::onnx::draft::{Arg, Draft, Upgrade};
use trtc_bundle::DType;
use trtc_ir::{Attr, Diag, Graph, OpKey, Tensor};

pub(super) static FAMILY: Family = Family { ops: &["Upsample", "Resize"], upgrade, downgrade };

const COORDINATES: &str = "coordinate_transformation_mode";

fn upgrade(cx: &mut Upgrade<'_>, draft: &mut Draft) -> Result<Step, Diag> {
    let upsample = &*draft.op.op_type == "Upsample";
    if !upsample && draft.since >= 11 {
        return modern(cx, draft);
    }
    let scales =
        if upsample && draft.since < 9 { scales_of_attributes(draft)? } else { draft.input(1).clone() };
    let mode = draft.attrs.str("mode").unwrap_or("nearest").to_owned();
    let mode = if mode == "bilinear" { "linear" } else { &mode };
    if mode == "nearest" {
        // Upsample only grows. Of a Resize whose scales nobody knows yet the rounding is not known either.
        let known = cx.constant(&scales).and_then(Tensor::to_f64s);
        let rounding = match known {
            Some(scales) if scales.iter().all(|&scale| scale >= 1.0) => "floor",
            Some(scales) if scales.iter().all(|&scale| scale <= 1.0) => "ceil",
            None if upsample => "floor",
            _ => return Ok(Step::Keep),
        };
        draft.attrs.set("nearest_mode", Attr::Str(rounding.into()));
    }
    draft.op = OpKey::new("", "Resize");
    draft.attrs.set("mode", Attr::Str(mode.to_owned().into()));
    draft.attrs.set(COORDINATES, Attr::Str("asymmetric".into()));
    let x = draft.input(0).clone();
    draft.inputs = vec![x, Arg::None, scales];
    Ok(Step::Canonical)
}

fn scales_of_attributes(draft: &mut Draft) -> Result<Arg, Diag> {
    let float = |name: &str| draft.attrs.float(name);
    let scales = match (draft.attrs.floats("scales"), float("height_scale"), float("width_scale")) {
        (Some(scales), ..) => scales.to_vec(),
        (None, Some(height), Some(width)) => vec![1.0, 1.0, height, width],
        _ => return Err(Diag::invalid("the scales are missing").slot("scales")),
    };
    ["scales", "height_scale", "width_scale"].into_iter().for_each(|name| drop(draft.attrs.remove(name)));
    Ok(Tensor::from_f32s(vec![scales.len() as i64], &scales).map_or(Arg::None, Arg::Const))
}

/// Forms since 11: an empty tensor for what is not given, in place of leaving it out.
fn modern(cx: &mut Upgrade<'_>, draft: &mut Draft) -> Result<Step, Diag> {
    let coordinates = draft.attrs.str(COORDINATES).unwrap_or("half_pixel");
    if coordinates == "tf_half_pixel_for_nn" && draft.since < 13 {
        return Ok(Step::Keep);
    }
    let crops = coordinates == "tf_crop_and_resize";
    for slot in 1..4 {
        let empty = cx.constant(draft.input(slot)).is_some_and(|tensor| tensor.count() == 0);
        if empty || (slot == 1 && !crops) {
            draft.set_input(slot, Arg::None);
        }
    }
    if draft.has(2) == draft.has(3) {
        // A scales input that is empty only when it is computed cannot be told from a real one.
        return if draft.has(2) {
            Ok(Step::Keep)
        } else {
            Err(Diag::invalid("neither scales nor sizes are given"))
        };
    }
    Ok(Step::Canonical)
}

fn downgrade(graph: &Graph, draft: &mut Draft, version: u32) -> Result<(), Misfit> {
    let text = |name: &str, default: &'static str| draft.attrs.str(name).unwrap_or(default).to_owned();
    let coordinates = text(COORDINATES, "half_pixel");
    if version < 19 && coordinates == "half_pixel_symmetric" {
        return Err(Misfit);
    }
    if version >= 13 {
        return Ok(());
    }
    if version >= 11 {
        // These take part by position and may not be left out.
        let empty = Tensor::empty(DType::F32, vec![0]).ok_or(Misfit)?;
        for slot in 1..3 {
            if !draft.has(slot) {
                draft.set_input(slot, Arg::Const(empty.clone()));
            }
        }
        return Ok(());
    }
    let scales = match draft.input(2) {
        Arg::Value(id) => graph[*id].constant.as_ref(),
        Arg::Const(tensor) => Some(tensor),
        Arg::None => None,
    };
    let scales = scales.and_then(Tensor::to_f64s).ok_or(Misfit)?;
    let fits = match text("mode", "nearest").as_str() {
        "linear" => true,
        "nearest" => match text("nearest_mode", "round_prefer_floor").as_str() {
            "floor" => scales.iter().all(|&scale| scale >= 1.0),
            "ceil" => scales.iter().all(|&scale| scale <= 1.0),
            _ => false,
        },
        _ => false,
    };
    if !fits || coordinates != "asymmetric" {
        return Err(Misfit);
    }
    draft.attrs.remove(COORDINATES);
    draft.attrs.remove("nearest_mode");
    let (x, scales) = (draft.input(0).clone(), draft.input(2).clone());
    draft.inputs = vec![x, scales];
    Ok(())
}
