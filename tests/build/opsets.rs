//! Nodes that no one opset suits: the segment is split, in a dry run as in a compile.

use crate::support::{Place, options};
use trtc::{Bundle, Options};
use trtc_bundle::DType;
use trtc_onnx::{FunctionProto, ModelProto, write::*};
use trtc_runtime::{Input, Mode, Session, SessionOptions, Tensor};

/// `y = |rms_normalized(2x + 1)|`: Affine was in the operator sets up to 9, RMSNormalization is since 23.
fn old_and_new() -> ModelProto {
    let function = FunctionProto {
        name: Some("Normalize".to_owned()),
        domain: Some("local".to_owned()),
        input: vec!["x".to_owned()],
        output: vec!["y".to_owned()],
        node: vec![
            node("Constant", &[], &["scale"], [attr_t("value", tensor_f32("s", &[4], &[1.0; 4]))]),
            node("RMSNormalization", &["x", "scale"], &["y"], []).named("rms"),
        ],
        opset_import: vec![opset_import("", 23)],
        ..FunctionProto::default()
    };
    let nodes = [
        node("Affine", &["x"], &["a"], [attr_f("alpha", 2.0), attr_f("beta", 1.0)]).named("affine"),
        node("local::Normalize", &["a"], &["b"], []).named("normalize"),
        node("Abs", &["b"], &["y"], []).named("abs"),
    ];
    let tensor = |name| value_info(name, DType::F32, [2i64, 4]);
    let mut model = model(9, graph("old_and_new", nodes, [tensor("x")], [tensor("y")], []));
    model.opset_import.push(opset_import("local", 1));
    model.functions.push(function);
    model
}

#[test]
fn a_segment_that_no_opset_suits_is_split() {
    let place = Place::of(&old_and_new());
    let host = Options::default().target("host".parse().unwrap());
    let dry = trtc::partition(&place.model, &host).unwrap();
    let report = place.compile(&host);
    let rows = |report: &trtc::Report| -> Vec<(String, usize)> {
        report.targets[0].segments.iter().map(|row| (row.id.clone(), row.nodes.len())).collect()
    };
    assert_eq!(rows(&report), [("host_0".to_owned(), 1), ("host_1".to_owned(), 2)]);
    assert_eq!(rows(&dry), rows(&report));
    assert_eq!(report.targets[0].totals.host_nodes, dry.targets[0].totals.host_nodes);

    let bundle = Bundle::open(place.bundle()).unwrap();
    let plain = SessionOptions::default().optimize(false).mode(Mode::Segments);
    let session = match Session::new(&bundle, &plain) {
        Ok(session) => session,
        Err(why) => return println!("skipped: {why}"),
    };
    let elements = [0.0f32, 1.0, -1.0, 2.0, 0.5, -0.5, 3.0, -2.0];
    let x = Tensor::from_slice(&[2, 4], &elements).unwrap();
    let inputs: [(&str, Input<'_>); 1] = [("x", (&x).into())];
    let got = session.run(&inputs).unwrap();
    let got = got.tensor("y").unwrap().as_slice::<f32>().unwrap();
    for (row, got) in elements.chunks(4).zip(got.chunks(4)) {
        let a: Vec<f32> = row.iter().map(|x| 2.0 * x + 1.0).collect();
        let rms = (a.iter().map(|a| a * a).sum::<f32>() / 4.0 + 1e-5).sqrt();
        for (a, got) in a.iter().zip(got) {
            assert!(((a / rms).abs() - got).abs() < 1e-5, "{a} {rms} {got}");
        }
    }
}

#[test]
fn an_engine_whose_twin_no_opset_suits_is_split() {
    let place = Place::of(&old_and_new());
    let everything = options().build_engines(false).cost_model(trtc::CostModel::maximal_clusters());
    let report = place.compile(&everything);
    let kinds: Vec<_> = report.targets[0].segments.iter().map(|row| row.kind.as_str()).collect();
    if report.targets[0].totals.host_nodes == 0 {
        assert_eq!(kinds, ["engine", "engine"]);
    }
    assert!(kinds.len() > 1);
}

/// BiasSplitGelu has no CPU kernel: without a device its engine runs as the layers that it is made of.
#[test]
fn an_engine_that_the_host_has_no_kernel_for_runs_as_layers() {
    let tensor = |name, last: i64| value_info(name, DType::F32, [1i64, 2, last]);
    let nodes = [node("com.microsoft::BiasSplitGelu", &["x", "b"], &["y"], []).named("gate")];
    let bias = tensor_f32("b", &[2], &[0.0, 1.0]);
    let mut gates = model(17, graph("gates", nodes, [tensor("x", 2)], [tensor("y", 1)], [bias]));
    gates.opset_import.push(opset_import("com.microsoft", 1));
    let place = Place::of(&gates);
    let report = place.compile(&options().build_engines(false));
    assert_eq!(report.targets[0].totals.engine_nodes, 1);
    let bundle = Bundle::open(place.bundle()).unwrap();
    for mode in [Mode::Auto, Mode::Segments] {
        let session = match Session::new(&bundle, &SessionOptions::default().mode(mode)) {
            Ok(session) => session,
            Err(why) => return println!("skipped: {why}"),
        };
        let x = Tensor::from_slice(&[1, 2, 2], &[2.0f32, 2.0, -4.0, -1.0]).unwrap();
        let inputs: [(&str, Input<'_>); 1] = [("x", (&x).into())];
        let got = session.run(&inputs).unwrap();
        let got = got.tensor("y").unwrap().as_slice::<f32>().unwrap().to_vec();
        // Gelu of 3 is 3 times the normal distribution's share below 3.
        assert!((got[0] - 2.0 * 3.0 * 0.998_650_1).abs() < 1e-5 && got[1] == 0.0, "{got:?}");
    }
}
