//! Scan: batches.
//!
//! 8: a batch dim in front of every state and scan, and sequence lengths.     9: neither; axes and directions of scans.
//! If and Loop only gained types.
//!
//! Version 8 runs the body for each row of the batch by itself: a Scan along the batch, without states, whose body is the
//! Scan along the sequence. Sequence lengths leave what is past them undefined; such a node stays as it is.

use super::{Family, Misfit, Step};
use crate::onnx::draft::{Draft, Upgrade};
use trtc_ir::{Attr, Attrs, Diag, Graph, Node, OpKey, Type};
use trtc_onnx::schema;

pub(super) static FAMILY: Family = Family { ops: &["Scan"], upgrade, downgrade };

fn upgrade(_: &mut Upgrade<'_>, draft: &mut Draft) -> Result<Step, Diag> {
    if draft.since >= 9 {
        return Ok(Step::Canonical);
    }
    let count = draft.inputs.len().saturating_sub(1);
    let fits = !draft.has(0) && count > 0 && (1..=count).all(|slot| draft.has(slot));
    let Some(Attr::Graph(mut body)) = draft.attrs.remove("body").filter(|_| fits) else {
        return Ok(Step::Keep);
    };
    if body.inputs().len() != count || body.outputs().len() < draft.outputs {
        return Ok(Step::Keep);
    }
    let mut rows = Graph::new("rows");
    let inputs: Vec<_> = body
        .inputs()
        .iter()
        .map(|&input| Some(rows.add_input(&format!("{}/row", body[input].name), Type::Unknown)))
        .collect();
    for k in 0..body.captures.len() {
        let capture = body.captures[k];
        let name = format!("{}/row", body[capture.inner].name);
        body.captures[k].outer = rows.add_capture(capture.outer, &name, body[capture.inner].ty.clone());
    }
    let outputs: Vec<_> = body
        .outputs()
        .iter()
        .enumerate()
        .map(|(k, &output)| Some(rows.add_value(&format!("{}/row_{k}", body[output].name), Type::Unknown)))
        .collect();
    let mut attrs = Attrs::new();
    attrs.set("body", Attr::Graph(body));
    for (old, new) in [("num_scan_inputs", "num_scan_inputs"), ("directions", "scan_input_directions")] {
        if let Some(value) = draft.attrs.remove(old) {
            attrs.set(new, value);
        }
    }
    let version = schema::since_version("", "Scan", schema::MAX_OPSET).unwrap_or(draft.since);
    for &output in outputs.iter().flatten() {
        rows.add_output(output);
    }
    // A report knows by the mark that this node is none of the model's own.
    rows.add_node(Node::new("#sequence", OpKey::new("", "Scan"), version, attrs, inputs, outputs));
    draft.attrs.set("body", Attr::Graph(Box::new(rows)));
    draft.attrs.set("num_scan_inputs", Attr::Int(count as i64));
    draft.inputs.remove(0);
    Ok(Step::Canonical)
}

fn downgrade(_: &Graph, _: &mut Draft, version: u32) -> Result<(), Misfit> {
    if version < 9 { Err(Misfit) } else { Ok(()) }
}
