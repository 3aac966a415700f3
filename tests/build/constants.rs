//! Constants that only the host can compute are computed by ONNX Runtime at compile time.

use crate::support::{Place, options};
use trtc::{Bundle, Options};
use trtc_bundle::{DType, SegmentKind};
use trtc_onnx::write::*;
use trtc_partitioner::SegmentStatus;

/// `y = det(w) * x` with det(w) = 3: no engine has determinants of this size.
fn determinant() -> trtc_onnx::ModelProto {
    let mut w = [0.0; 25];
    w.iter_mut().step_by(6).for_each(|diagonal| *diagonal = 1.0);
    w[0] = 3.0;
    let tensor = |name, dims: Vec<trtc_onnx::Dimension>| value_info(name, DType::F32, dims);
    let nodes =
        [node("Det", &["w"], &["d"], []).named("det"), node("Mul", &["x", "d"], &["y"], []).named("mul")];
    let mut graph = graph(
        "determinant",
        nodes,
        [tensor("x", vec![4.into(), 4.into()])],
        [tensor("y", vec![4.into(), 4.into()])],
        [tensor_f32("w", &[5, 5], &w)],
    );
    graph.value_info.push(tensor("d", Vec::new()));
    model(17, graph)
}

#[test]
fn a_host_segment_without_inputs_is_folded() {
    let place = Place::of(&determinant());
    let plain = options().build_engines(false);
    let dry = trtc::partition(&place.model, &plain).unwrap();
    // Without ONNX Runtime it stays on the host, and nothing else changes.
    let without = place.compile(&plain.clone().ort_library("/nowhere/libonnxruntime.so"));
    assert_eq!(without.targets[0].segments[0].status, SegmentStatus::Host);
    place.agrees(0);
    let report = place.compile(&plain);
    assert_eq!(report.targets[0].totals, dry.targets[0].totals);
    assert_eq!(report.targets[0].nodes, dry.targets[0].nodes);
    if trtc_runtime::host::find_onnxruntime(None).is_err() {
        return println!("skipped: no ONNX Runtime (run `make sdk`)");
    }
    assert_eq!(report.targets[0].segments[0].status, SegmentStatus::Constant);
    let bundle = Bundle::open(place.bundle()).unwrap();
    let segment = &bundle.manifest().targets[0].segments[0];
    assert_eq!(segment.kind, SegmentKind::Constant);
    assert_eq!(&bundle.weights(segment.constants[0]).unwrap()[..], 3f32.to_le_bytes());
    place.agrees(0);
}

#[test]
fn constants_are_set_apart_from_what_depends_on_inputs() {
    let mut model = determinant();
    let graph = model.graph.as_mut().unwrap();
    // Another determinant, of the input, in the same host segment.
    graph.node.push(node("Det", &["x"], &["e"], []).named("of_input"));
    graph.node.push(node("Mul", &["d", "e"], &["z"], []).named("both"));
    for name in ["e", "z"] {
        graph.value_info.push(value_info(name, DType::F32, [0i64; 0]));
    }
    graph.output.push(value_info("z", DType::F32, [0i64; 0]));
    let place = Place::of(&model);
    let host = Options::default().target("host".parse().unwrap());
    let report = place.compile(&host);
    let kinds: Vec<_> = report.targets[0].segments.iter().map(|row| row.nodes.join(" ")).collect();
    assert_eq!(kinds, ["det", "mul of_input both"]);
    place.agrees(0);
}
