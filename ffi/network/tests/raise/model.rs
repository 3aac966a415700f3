//! The raised model itself: bindings, weights elsewhere, errors.

use crate::harness::*;
use trtc_bundle::DType;
use trtc_network::layer::*;
use trtc_network::raise::{INLINE_BYTES, RaiseError, RaiseOptions, WeightsPlacement, raise};
use trtc_network::{Layer, Lowered, NetworkBuilder};

/// x · weights, with a matrix of more than 1 KiB and a bias of less.
fn product() -> Lowered {
    let mut b = NetworkBuilder::new("product");
    b.begin_node("layer/gemm");
    let x = b.add_input("in0", DType::F32, vec![-1, 20]);
    let floats =
        |n: usize| -> Vec<u8> { (0..n).flat_map(|k| (k as f32 / 8.0 - 3.0).to_le_bytes()).collect() };
    let weights = b.constant(DType::F32, vec![20, 15], floats(300).into());
    let bias = b.constant(DType::F32, vec![1, 15], floats(15).into());
    let y = b.one(Layer::MatrixMultiply { a: x, op_a: MatrixOp::None, b: weights, op_b: MatrixOp::None });
    let y = b.elementwise(y, bias, ElementWiseOp::Sum);
    b.mark_output(y, "out0");
    b.finish().expect("a network")
}

#[test]
fn weights_may_be_in_a_file() {
    let lowered = product();
    let x = Tensor::noise(&[2, 20], 1);
    let expected = run_lowered(&lowered, &[x.clone()]);

    let folder = tempfile::tempdir().expect("a folder");
    let mut file = vec![0xaa; 192];
    file.extend_from_slice(&lowered.weights[0]);
    std::fs::write(folder.path().join("weights.bin"), &file).expect("a file");
    let placement = |id: trtc_network::WeightsId| {
        assert_eq!(id.index(), 0, "weights of at most {INLINE_BYTES} bytes are not asked for");
        WeightsPlacement::External { location: "weights.bin".into(), offset: 192, length: 1200 }
    };
    let model = raise(&lowered, &RaiseOptions::with_weights(&placement)).expect("raised");
    let graph = model.graph.as_ref().expect("a graph");
    assert_eq!(graph.initializer.iter().filter(|tensor| tensor.is_external()).count(), 1);
    assert_close(&run_model(&model, Some(folder.path()), &[x])[0], &expected[0], 0.0);

    let wrong = |_| WeightsPlacement::External { location: "weights.bin".into(), offset: 0, length: 7 };
    let error = raise(&lowered, &RaiseOptions::with_weights(&wrong)).expect_err("a wrong length");
    assert!(matches!(error, RaiseError::Malformed { layer: "Constant", .. }), "{error}");
}

#[test]
fn bindings_keep_names_dtypes_and_dims() {
    let mut b = NetworkBuilder::new("names");
    b.begin_node("n");
    // Names that could be taken for ours.
    let x = b.add_input("t1", DType::I64, vec![-1, 3]);
    let y = b.unary(x, UnaryOp::Neg);
    let shape = b.one(Layer::Shape { x: y });
    b.mark_output(y, "t2");
    b.mark_output(shape, "t_");
    let lowered = b.finish().expect("a network");
    let model = raise(&lowered, &RaiseOptions::default()).expect("raised");
    assert_eq!(model.ir_version, Some(10));
    assert_eq!(model.opset_import[0].version, Some(21));
    let graph = model.graph.expect("a graph");
    let expected = [
        trtc_onnx::write::value_info("t1", DType::I64, [trtc_onnx::Dimension::default(), 3.into()]),
        trtc_onnx::write::value_info("t2", DType::I64, [trtc_onnx::Dimension::default(), 3.into()]),
        trtc_onnx::write::value_info("t_", DType::I64, [2i64]),
    ];
    assert_eq!(graph.input, expected[..1]);
    assert_eq!(graph.output, expected[1..]);
    let mut names: Vec<&String> = graph.node.iter().flat_map(|node| &node.output).collect();
    names.extend(graph.input.iter().filter_map(|info| info.name.as_ref()));
    let all = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), all, "a name stands for one value");
}

#[test]
fn the_same_network_gives_the_same_bytes() {
    let bytes = || trtc_onnx::write::encode(&raise(&product(), &RaiseOptions::new()).expect("raised"));
    assert_eq!(bytes().expect("encoded"), bytes().expect("encoded"));
}

#[test]
fn what_has_no_counterpart_is_named() {
    type Case = (&'static str, fn(&mut NetworkBuilder));
    let cases: [Case; 4] = [
        ("Fill", |b| {
            let (low, high) = (b.scalar(DType::F32, 0, 0.0), b.scalar(DType::F32, 0, 1.0));
            let shape = Extent::Static(vec![2]);
            let y = b.one(Layer::Fill {
                shape,
                op: FillOp::RandomUniform,
                alpha: low,
                beta: high,
                to: DType::F32,
            });
            b.mark_output(y, "y");
        }),
        ("Constant", |b| {
            let y = b.constant(DType::F4E2M1, vec![4], vec![0, 0].into());
            b.mark_output(y, "y");
        }),
        ("GridSample", |b| {
            let (x, grid) = (
                b.add_input("x", DType::F32, vec![1, 1, 2, 2]),
                b.add_input("g", DType::F32, vec![1, 2, 2, 2]),
            );
            let (interpolation, mode) = (Interpolation::Linear, SampleMode::Wrap);
            let y = b.one(Layer::GridSample { x, grid, interpolation, align_corners: false, mode });
            b.mark_output(y, "y");
        }),
        ("Unary", |b| {
            let x = b.add_input("x", DType::I64, vec![2]);
            let y = b.unary(x, UnaryOp::Sqrt);
            b.mark_output(y, "y");
        }),
    ];
    for (expected, build) in cases {
        let mut b = NetworkBuilder::new("none");
        b.begin_node("first");
        b.begin_node("block/odd");
        build(&mut b);
        match raise(&b.finish().expect("a network"), &RaiseOptions::new()) {
            Err(RaiseError::NoCounterpart { layer, node, what }) => {
                assert_eq!((layer, node.as_str()), (expected, "block/odd"), "{what}");
            }
            other => panic!("{expected}: {other:?}"),
        }
    }
}

#[test]
fn a_network_that_contradicts_itself_is_refused() {
    let mut lowered = product();
    lowered.network.layers.swap(0, 2);
    let error = raise(&lowered, &RaiseOptions::new()).expect_err("used before it is made");
    assert!(
        matches!(&error, RaiseError::Malformed { layer: "MatrixMultiply", node, .. } if node == "layer/gemm")
    );

    let mut lowered = product();
    lowered.network.tensors[3].dtype = DType::F16;
    let error = raise(&lowered, &RaiseOptions::new()).expect_err("a wrong dtype");
    assert!(matches!(error, RaiseError::Malformed { .. }), "{error}");

    let mut lowered = product();
    lowered.weights[1] = lowered.weights[1].slice(4..);
    let error = raise(&lowered, &RaiseOptions::new()).expect_err("too few bytes");
    assert!(matches!(error, RaiseError::Malformed { layer: "Constant", .. }), "{error}");

    // An equation that ONNX Runtime would never return from.
    let mut b = NetworkBuilder::new("einsum");
    b.begin_node("n");
    let x = b.add_input("x", DType::F32, vec![2]);
    let y = b.one(Layer::Einsum { xs: vec![x], equation: "\u{e4}->\u{e4}".into() });
    b.mark_output(y, "y");
    let error = raise(&b.finish().expect("a network"), &RaiseOptions::new()).expect_err("an equation");
    assert!(matches!(error, RaiseError::Malformed { layer: "Einsum", .. }), "{error}");
}
