//! Bundles that are written, moved, and run on the host.
#![allow(clippy::unwrap_used, clippy::panic)] // A test ends there.

mod common;

use common::*;
use std::{path::Path, sync::Arc};
use trtc_bundle::{
    Block, Bundle, BundleWriter, DType, Dim, SegmentId, SegmentKind, Step, Target, TargetPlan, ValueId,
    ValueInfo, ValueKind,
};
use trtc_onnx::{
    Dimension, ValueInfoProto,
    write::{attr_i, node, tensor_f32, tensor_i64, value_info},
};
use trtc_runtime::{
    Device, ErrorKind, Input, Mode, RunError, Session, SessionOptions, StringTensor, Tensor, TensorView,
    Value,
    host::{ModelSource, OrtBackend, OrtOptions},
};

fn options() -> SessionOptions {
    SessionOptions::default()
}

fn f32s(dims: &[usize], values: &[f32]) -> Tensor {
    Tensor::from_slice(dims, values).unwrap()
}

fn of_bytes(model: &[u8]) -> Session {
    Session::of_model(ModelSource::Bytes { model, folder: None }, &options()).unwrap()
}

fn check_chain(session: &Session, n: usize, seed: usize) {
    let x = numbers(n * SIDE, seed);
    let outputs = session.run(&[("x", (&f32s(&[n, SIDE], &x)).into())]).unwrap();
    let y = outputs.tensor("y").unwrap();
    assert_eq!((y.dims(), y.as_slice()), (&[n, SIDE][..], Some(&chain_by_hand(&x)[..])));
}

#[test]
fn a_session_is_shared_by_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Session>();
    for n in [None, Some(5)] {
        let (_folder, path) = chained(n);
        let bundle = Bundle::open(path).unwrap();
        for mode in [Mode::WholeModel, Mode::Segments] {
            let session = Session::new(&bundle, &options().mode(mode)).unwrap();
            std::thread::scope(|scope| {
                for thread in 0..8 {
                    let session = &session;
                    scope.spawn(move || {
                        for run in 0..25 {
                            check_chain(
                                session,
                                n.map_or(1 + (thread + run) % 8, |n| n as usize),
                                thread * 100 + run,
                            );
                        }
                    });
                }
            });
        }
    }
}

#[test]
fn a_bundle_runs_under_any_name_and_over_links() {
    let (folder, mut path) = chained(None);
    let names = [
        "a".to_owned(),
        "ab".into(),
        "with space.trtc".into(),
        "größer.trtc".into(),
        "n".repeat(254),
        "n".repeat(255),
    ];
    for name in names {
        let to = folder.path().join(&name);
        std::fs::rename(&path, &to).unwrap();
        path = to;
        let bundle = Bundle::open(&path).unwrap();
        for mode in [Mode::WholeModel, Mode::Segments] {
            check_chain(&Session::new(&bundle, &options().mode(mode)).unwrap(), 3, 1);
        }
    }
    let inner = folder.path().join("inner");
    std::fs::create_dir(&inner).unwrap();
    let moved = inner.join("moved.trtc");
    std::fs::rename(&path, &moved).unwrap();
    let link = folder.path().join("link.trtc");
    std::os::unix::fs::symlink("inner/moved.trtc", &link).unwrap();
    check_chain(&Session::new(&Bundle::open(&link).unwrap(), &options()).unwrap(), 2, 2);
}

#[test]
fn a_bundle_that_was_replaced_is_not_run() {
    let (_folder, path) = chained(None);
    let bundle = Bundle::open(&path).unwrap();
    chain(&path, Some(2));
    let error = Session::new(&bundle, &options()).unwrap_err();
    assert!(error.to_string().contains("another file"), "{error}");
}

#[test]
fn modes_and_places() {
    let (_folder, path) = chained(Some(4));
    let bundle = Bundle::open(path).unwrap();
    let whole = Session::new(&bundle, &options()).unwrap();
    assert_eq!((whole.mode(), whole.arena_bytes()), (Mode::WholeModel, 0));
    assert!(whole.backend().starts_with("ONNX Runtime 1."), "{}", whole.backend());
    let segments = Session::new(&bundle, &options().mode(Mode::Segments).timing(true)).unwrap();
    // r and p meet at the engine's step; x and y are memory of the caller.
    assert_eq!(segments.arena_bytes(), 2 * 4 * SIDE * 4);
    check_chain(&segments, 4, 3);
    check_chain(&segments, 4, 4);
    let timings = segments.timings();
    assert_eq!(
        timings.iter().map(|timing| (&timing.id[..], timing.runs)).collect::<Vec<_>>(),
        [("h0", 2), ("e0", 2), ("h1", 2), ("c0", 2)]
    );
    segments.reset_timings();
    assert!(segments.timings().is_empty() && whole.timings().is_empty());
    let target: Target = "rtx-1.7:sm89".parse().unwrap();
    let error = Session::new(&bundle, &options().mode(Mode::Segments).target(target)).unwrap_err();
    assert!(error.to_string().contains("rtx-1.7:sm86,sm89,sm120"), "{error}");
}

#[test]
fn an_engine_can_be_replaced_by_another_graph() {
    let (_folder, path) = chained(Some(2));
    let bundle = Bundle::open(path).unwrap();
    // p = r · diag(3) with the weights of the bundle, then negated.
    let weights = bundle.weights_ref(trtc_bundle::WeightsId(0)).unwrap();
    let nodes = [node("MatMul", &["r", "w"], &["t"], []), node("Neg", &["t"], &["p"], [])];
    let model = onnx(nodes, [rows("r", 2)], [rows("p", 2)], [external("w", weights)]);
    let session = Session::new(&bundle, &options().twin_override("e0", model.clone())).unwrap();
    assert_eq!(session.mode(), Mode::Segments);
    let x = numbers(2 * SIDE, 5);
    let outputs = session.run(&[("x", (&f32s(&[2, SIDE], &x)).into())]).unwrap();
    let expected: Vec<f32> = x.iter().map(|x| x.max(0.0) * -3.0 + 1.0).collect();
    assert_eq!(outputs.tensor("y").unwrap().as_slice(), Some(&expected[..]));
    for id in ["h0", "e1"] {
        let error = Session::new(&bundle, &options().twin_override(id, model.clone())).unwrap_err();
        assert!(matches!(&error, RunError::NoSuchSegment { segment } if segment == id), "{error}");
    }
    let other = onnx([node("Neg", &["q"], &["p"], [])], [rows("q", 2)], [rows("p", 2)], []);
    let error = Session::new(&bundle, &options().twin_override("e0", other)).unwrap_err();
    assert!(error.to_string().contains("`q`"), "{error}");
}

#[test]
fn inputs_are_checked_against_the_manifest() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("add.trtc");
    let mut writer = BundleWriter::create(&path).unwrap();
    let graph =
        onnx([node("Add", &["a", "b"], &["y"], [])], [rows("a", "n"), rows("b", "n")], [rows("y", "n")], []);
    let dims = vec![Dim::Text("n".into()), Dim::Known(SIDE as u64)];
    let mut manifest =
        manifest(vec![value("a", dims.clone()), value("b", dims.clone())], vec![value("y", dims)]);
    manifest.symbols = vec![trtc_bundle::Symbol::new("n", 2, 2, 3)];
    manifest.whole_model = Some(writer.add_graph(&graph).unwrap());
    writer.finish(manifest).unwrap();
    let bundle = Bundle::open(&path).unwrap();
    let session = Session::new(&bundle, &options()).unwrap();
    let rows = |n: usize| f32s(&[n, SIDE], &vec![1.0; n * SIDE]);
    let (one, two, three) = (rows(1), rows(2), rows(3));
    let (wide, whole, flat) =
        (f32s(&[2, 1], &[1.0; 2]), Tensor::zeros(DType::I32, &[2, SIDE]).unwrap(), f32s(&[2], &[1.0; 2]));
    let said = |inputs: &[(&str, Input<'_>)]| {
        let error = session.run(inputs).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Input);
        error.to_string()
    };
    let both = |a: &Tensor, b: &Tensor| said(&[("a", a.into()), ("b", b.into())]);
    for (text, words) in [
        (said(&[("a", (&two).into())]), ["`b` is missing", "`a`, `b`"]),
        (said(&[("a", (&two).into()), ("c", (&two).into())]), ["no input `c`", "`a`, `b`"]),
        (said(&[("a", (&two).into()), ("a", (&two).into())]), ["`a`", "twice"]),
        (both(&two, &whole), ["`b` has the element type i32", "f32 is wanted"]),
        (both(&flat, &two), ["`a` has the dims [2]", "rank is 1, not 2"]),
        (both(&two, &wide), ["[n, 32]", "dim 1 is 1, not 32"]),
        (both(&one, &one), ["`a`", "`n`, is 1, outside 2..3"]),
        (both(&two, &three), ["`b`", "`n`, is 3, but dim 0 of `a`, also `n`, is 2"]),
        (said(&[("a", (&Value::Nothing).into()), ("b", (&two).into())]), ["`a` is nothing", "a tensor"]),
    ] {
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
    }
    let x = vec![1.0f32; 3 * SIDE];
    let view = TensorView::from_slice(&[3, SIDE], &x).unwrap();
    let outputs = session.run(&[("b", view.into()), ("a", (&three).into())]).unwrap();
    assert_eq!(outputs.tensor("y").unwrap().as_slice(), Some(&[2.0f32; 3 * SIDE][..]));
    assert!(matches!(
        session.run_into(&[], &mut [Value::Nothing]),
        Err(RunError::Count { given: 0, expected: 2, .. })
    ));
    assert!(matches!(
        session.run_into(&[view.into(); 2], &mut []),
        Err(RunError::Count { what: "outputs", .. })
    ));
}

#[test]
fn outputs_are_written_in_place_and_inputs_never_leave() {
    // y is an input that is handed through, z is made, k is a constant.
    let model = onnx(
        [node("Neg", &["x"], &["z"], [])],
        [value_info("x", DType::F32, [2])],
        [
            value_info("x", DType::F32, [2]),
            value_info("z", DType::F32, [2]),
            value_info("k", DType::F32, [1]),
        ],
        [tensor_f32("k", &[1], &[7.0])],
    );
    let dynamic = onnx(
        [node("Neg", &["x"], &["z"], []), node("Identity", &["x"], &["i"], [])],
        [value_info("x", DType::F32, ["n"])],
        [
            value_info("x", DType::F32, ["n"]),
            value_info("z", DType::F32, ["n"]),
            value_info("i", DType::F32, ["n"]),
        ],
        [],
    );
    for (model, third) in [(&model, vec![7.0f32]), (&dynamic, vec![1.0, 2.0])] {
        let session = of_bytes(model);
        let mut outputs = vec![Value::Nothing; 3];
        let mut x = vec![1.0f32, 2.0];
        session.run_into(&[TensorView::from_slice(&[2], &x).unwrap().into()], &mut outputs).unwrap();
        x.fill(9.0); // Must not show in what came out.
        let found: Vec<Vec<f32>> =
            outputs.iter().map(|output| output.as_tensor().unwrap().as_slice().unwrap().to_vec()).collect();
        assert_eq!(found, [vec![1.0, 2.0], vec![-1.0, -2.0], third]);
    }
    // The same with an output that is a copy of an input, and one that is twice the same value.
    let copies = onnx(
        [
            node("Identity", &["x"], &["i"], []),
            node("Neg", &["x"], &["z"], []),
            node("Identity", &["z"], &["w"], []),
        ],
        [value_info("x", DType::F32, [2])],
        [
            value_info("i", DType::F32, [2]),
            value_info("z", DType::F32, [2]),
            value_info("w", DType::F32, [2]),
        ],
        [],
    );
    let outputs = of_bytes(&copies).run(&[("x", (&f32s(&[2], &[1.0, 2.0])).into())]).unwrap();
    let found: Vec<&[f32]> =
        outputs.iter().map(|(_, output)| output.as_tensor().unwrap().as_slice().unwrap()).collect();
    assert_eq!(found, [[1.0, 2.0], [-1.0, -2.0], [-1.0, -2.0]]);
    let session = of_bytes(&model);
    let x = f32s(&[2], &[1.0, 2.0]);
    let mut outputs = vec![Value::Nothing; 3];
    session.run_into(&[(&x).into()], &mut outputs).unwrap();
    let place = |outputs: &[Value]| outputs[1].as_tensor().unwrap().bytes().as_ptr();
    let first = place(&outputs);
    session.run_into(&[(&x).into()], &mut outputs).unwrap();
    assert_eq!(place(&outputs), first);
    // Somebody still holds the tensor: it is left alone.
    let held = outputs[1].clone();
    session.run_into(&[(&f32s(&[2], &[5.0, 6.0])).into()], &mut outputs).unwrap();
    assert_eq!(held.as_tensor().unwrap().as_slice(), Some(&[-1.0f32, -2.0][..]));
    assert_eq!(outputs[1].as_tensor().unwrap().as_slice(), Some(&[-5.0f32, -6.0][..]));
}

#[test]
fn strings_and_sub_byte_tensors() {
    let model = onnx(
        [node("StringConcat", &["a", "b"], &["y"], [])],
        [value_info("a", DType::Str, ["n"]), value_info("b", DType::Str, [1])],
        [value_info("y", DType::Str, ["n"])],
        [],
    );
    let strings = |texts: &[&str]| {
        Value::Strings(StringTensor {
            dims: vec![texts.len()],
            strings: texts.iter().map(|&text| text.into()).collect(),
        })
    };
    let (a, b) = (strings(&["über", "", "x\0y"]), strings(&["!"]));
    let outputs = of_bytes(&model).run(&[("a", (&a).into()), ("b", (&b).into())]).unwrap();
    let Some(Value::Strings(y)) = outputs.get("y") else { panic!("{outputs:?}") };
    assert_eq!(
        (&y.dims[..], &y.strings[..]),
        (&[3][..], &["über!".to_owned(), "!".into(), "x\0y!".into()][..])
    );
    // 4-bit: two elements a byte, the low half first.
    let model = onnx(
        [node("DequantizeLinear", &["x", "s"], &["y"], [])],
        [value_info("x", DType::U4, [3])],
        [value_info("y", DType::F32, [3])],
        [tensor_f32("s", &[], &[0.5])],
    );
    let x = Tensor::from_bytes(DType::U4, &[3], &[0x21, 0x0f]).unwrap();
    let outputs = of_bytes(&model).run(&[("x", (&x).into())]).unwrap();
    assert_eq!(outputs.tensor("y").unwrap().as_slice(), Some(&[0.5f32, 1.0, 7.5][..]));
    // Narrow floats go through by their bits: 1.0, 2.0 in FLOAT8E4M3FN and bfloat16.
    for (dtype, bits) in [(DType::F8E4M3, &[0x38u8, 0x40][..]), (DType::Bf16, &[0x80, 0x3f, 0x00, 0x40])] {
        let cast = node("Cast", &["x"], &["y"], [attr_i("to", dtype.onnx().into())]);
        let model = onnx([cast], [value_info("x", DType::F32, [2])], [value_info("y", dtype, [2])], []);
        let outputs = of_bytes(&model).run(&[("x", (&f32s(&[2], &[1.0, 2.0])).into())]).unwrap();
        let y = outputs.tensor("y").unwrap();
        assert_eq!((y.dtype(), y.bytes()), (dtype, bits));
    }
    let x = Tensor::zeros(DType::C64, &[2]).unwrap();
    let error = of_bytes(&onnx(
        [node("Identity", &["x"], &["y"], [])],
        [value_info("x", DType::F32, [2])],
        [value_info("y", DType::F32, [2])],
        [],
    ))
    .run(&[("x", (&x).into())])
    .unwrap_err();
    assert!(error.to_string().contains("c64"), "{error}");
}

fn sequence(name: &str) -> ValueInfoProto {
    use trtc_onnx::{
        SequenceType, TypeProto, TypeValue,
        write::{tensor_type, typed_value},
    };
    let element = tensor_type(DType::F32, None::<[i64; 0]>);
    let value = TypeValue::Sequence(Box::new(SequenceType { elem_type: Some(Box::new(element)) }));
    typed_value(name, TypeProto { value: Some(value), ..TypeProto::default() })
}

#[test]
fn sequences_flow_between_segments_and_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sequence.trtc");
    let mut writer = BundleWriter::create(&path).unwrap();
    let x = || value_info("x", DType::F32, ["n"]);
    let make = onnx(
        [node("Neg", &["x"], &["z"], []), node("SequenceConstruct", &["x", "z"], &["s"], [])],
        [x()],
        [sequence("s")],
        [],
    );
    let take = onnx(
        [node("SequenceAt", &["s", "one"], &["y"], [])],
        [sequence("s")],
        [value_info("y", DType::F32, ["m"])],
        [tensor_i64("one", &[], &[1])],
    );
    let unknown = || vec![Dim::Unknown];
    let seq = ValueInfo::other("s", ValueKind::Sequence, DType::F32);
    let mut plan = TargetPlan::new(Target::host());
    plan.values = vec![value("x", unknown()), seq.clone(), value("y", unknown())];
    (plan.inputs, plan.outputs) = (vec![ValueId(0)], vec![ValueId(1), ValueId(2)]);
    plan.segments =
        vec![segment("h0", SegmentKind::Host, &[0], &[1]), segment("h1", SegmentKind::Host, &[1], &[2])];
    plan.segments[0].graph = Some(writer.add_graph(&make).unwrap());
    plan.segments[1].graph = Some(writer.add_graph(&take).unwrap());
    plan.schedule = runs(&[0, 1]);
    let mut manifest = manifest(vec![value("x", unknown())], vec![seq, value("y", unknown())]);
    manifest.targets = vec![plan];
    writer.finish(manifest).unwrap();
    let session = Session::new(&Bundle::open(&path).unwrap(), &options()).unwrap();
    assert_eq!(session.mode(), Mode::Segments); // There is no whole-model graph.
    let mut x = vec![1.0f32, 2.0];
    let outputs = session.run(&[("x", TensorView::from_slice(&[2], &x).unwrap().into())]).unwrap();
    x.fill(9.0);
    drop(session);
    let Some(Value::Sequence(parts)) = outputs.get("s") else { panic!("{outputs:?}") };
    let parts: Vec<_> =
        parts.iter().map(|part| part.as_tensor().unwrap().as_slice::<f32>().unwrap()).collect();
    assert_eq!(parts, [[1.0, 2.0], [-1.0, -2.0]]);
    assert_eq!(outputs.tensor("y").unwrap().as_slice(), Some(&[-1.0f32, -2.0][..]));
    // A sequence as an input.
    let length = onnx(
        [node("SequenceLength", &["s"], &["n"], [])],
        [sequence("s")],
        [value_info("n", DType::I64, [0i64; 0])],
        [],
    );
    let session = of_bytes(&length);
    let outputs = session.run(&[("s", outputs.get("s").unwrap().into())]).unwrap();
    assert_eq!(outputs.tensor("n").unwrap().as_slice(), Some(&[2i64][..]));
    let outputs = session.run(&[("s", (&Value::Sequence(Vec::new())).into())]).unwrap();
    assert_eq!(outputs.tensor("n").unwrap().as_slice(), Some(&[0i64][..]));
    let error = session.run(&[("s", (&Value::Nothing).into())]).unwrap_err();
    assert!(error.to_string().contains("empty optional"), "{error}");
    let error = session.run(&[("s", (&f32s(&[1], &[1.0])).into())]).unwrap_err();
    assert!(error.to_string().contains("a sequence is wanted"), "{error}");
}

/// A bundle that doubles x while it is below 100, at most `trips` times, and then negates the result when `flip` is true.
///
/// Values: 0 x, 1 flip, 2 trips, 3 turn, 4 go (in), 5 v (in), 6 go (out), 7 v (out), 8 slice, 9 result, 10 slices, 11 negated, 12 y.
fn control_flow(path: &Path) {
    let mut writer = BundleWriter::create(path).unwrap();
    let scalar = |name: &str, dtype| value_info(name, dtype, [0i64; 0]);
    let vector = |name: &str| value_info(name, DType::F32, [1]);
    let body = onnx(
        [
            node("Add", &["v", "v"], &["v2"], []),
            node("Less", &["v2", "limit"], &["below"], []),
            node("Squeeze", &["below"], &["go2"], []),
            node("Cast", &["turn"], &["t"], [attr_i("to", DType::F32.onnx().into())]),
            node("Add", &["v2", "t"], &["slice"], []),
        ],
        [scalar("turn", DType::I64), vector("v")],
        [scalar("go2", DType::Bool), vector("v2"), vector("slice")],
        [tensor_f32("limit", &[1], &[100.0])],
    );
    let negate =
        onnx([node("Neg", &["v_last"], &["negated"], [])], [vector("v_last")], [vector("negated")], []);
    let one = || vec![Dim::Known(1)];
    let info = |name: &str, dtype, dims| ValueInfo::tensor(name, dtype, Some(dims));
    let mut plan = TargetPlan::new(Target::host());
    plan.values = vec![
        value("x", one()),
        info("flip", DType::Bool, vec![]),
        info("trips", DType::I64, vec![]),
        info("turn", DType::I64, vec![]),
        info("go", DType::Bool, vec![]),
        value("v", one()),
        info("go2", DType::Bool, vec![]),
        value("v2", one()),
        value("slice", one()),
        value("v_last", one()),
        value("slices", vec![Dim::Unknown, Dim::Known(1)]),
        value("negated", one()),
        value("y", one()),
    ];
    let ids = |ids: &[u32]| ids.iter().copied().map(ValueId).collect::<Vec<_>>();
    (plan.inputs, plan.outputs) = (ids(&[0, 1, 2]), ids(&[12, 10]));
    plan.segments = vec![
        segment("h0", SegmentKind::Host, &[3, 5], &[6, 7, 8]),
        segment("h1", SegmentKind::Host, &[9], &[11]),
    ];
    plan.segments[0].graph = Some(writer.add_graph(&body).unwrap());
    plan.segments[1].graph = Some(writer.add_graph(&negate).unwrap());
    plan.schedule = vec![
        Step::Loop {
            trip_count: Some(ValueId(2)),
            condition: None,
            initial: ids(&[0]),
            inputs: ids(&[3, 4, 5]),
            body: Block::new(runs(&[0]), ids(&[6, 7, 8])),
            outputs: ids(&[9, 10]),
        },
        Step::If {
            condition: ValueId(1),
            then_block: Block::new(vec![Step::Run { segment: SegmentId(1) }], ids(&[11])),
            else_block: Block::new(vec![], ids(&[9])),
            outputs: ids(&[12]),
        },
    ];
    let inputs = plan.values[..3].to_vec();
    let mut manifest = manifest(inputs, vec![plan.values[12].clone(), plan.values[10].clone()]);
    manifest.targets = vec![plan];
    writer.finish(manifest).unwrap();
}

#[test]
fn the_schedule_runs_control_flow() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flow.trtc");
    control_flow(&path);
    let session = Session::new(&Bundle::open(&path).unwrap(), &options()).unwrap();
    let run = |x: f32, flip: bool, trips: i64| {
        let (x, flip) = (f32s(&[1], &[x]), Tensor::from_bools(&[], &[flip]).unwrap());
        let trips = Tensor::from_slice(&[], &[trips]).unwrap();
        let outputs =
            session.run(&[("x", (&x).into()), ("flip", (&flip).into()), ("trips", (&trips).into())]).unwrap();
        let list = |name: &str| outputs.tensor(name).unwrap().as_slice::<f32>().unwrap().to_vec();
        let dims = outputs.tensor("slices").unwrap().dims().to_vec();
        (list("y"), list("slices"), dims)
    };
    // 30 → 60 → 120, which is not below 100; slices are the doubled value plus the turn.
    assert_eq!(run(30.0, false, 10), (vec![120.0], vec![60.0, 121.0], vec![2, 1]));
    assert_eq!(run(30.0, true, 1), (vec![-60.0], vec![60.0], vec![1, 1]));
    assert_eq!(run(30.0, false, 0), (vec![30.0], vec![], vec![0, 1]));
}

#[test]
fn what_is_missing_is_named() {
    let (_folder, path) = chained(None);
    let bundle = Bundle::open(&path).unwrap();
    let error = Session::new(&bundle, &options().device(Device::Cuda(99))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Missing, "{error}");
    let error = OrtBackend::load(&OrtOptions::default().library("/no/such/lib.so")).unwrap_err();
    assert!(error.to_string().contains("/no/such/lib.so"), "{error}");
    let not_a_library = OrtOptions::default().library(&path);
    assert!(OrtBackend::load(&not_a_library).is_err());
    // Afterwards it can still be loaded, and a second load gives the same.
    let backend = OrtBackend::load(&OrtOptions::default()).unwrap();
    let again = OrtOptions::default().library(backend.library().unwrap());
    assert_eq!(OrtBackend::load(&again).unwrap().version(), backend.version());
    assert!(OrtBackend::load(&not_a_library).is_err());
    let session = Session::new(&bundle, &options().backend(Arc::new(backend))).unwrap();
    check_chain(&session, 1, 1);
}

#[test]
fn refused_graphs_and_models_are_errors() {
    let load = |model: &[u8]| Session::of_model(ModelSource::Bytes { model, folder: None }, &options());
    assert!(load(b"no model").is_err());
    let unknown = onnx([node("NoSuchOp", &["x"], &["y"], [])], [rows("x", 1)], [rows("y", 1)], []);
    let error = load(&unknown).unwrap_err();
    assert!(error.to_string().contains("NoSuchOp"), "{error}");
    assert_eq!(error.kind(), ErrorKind::Input);
    // Fails in the run: an index out of bounds.
    let gather = onnx(
        [node("Gather", &["x", "i"], &["y"], [])],
        [value_info("x", DType::F32, [2]), value_info("i", DType::I64, [Dimension::from("n")])],
        [value_info("y", DType::F32, [Dimension::from("n")])],
        [],
    );
    let session = load(&gather).unwrap();
    let (x, i) = (f32s(&[2], &[1.0, 2.0]), Tensor::from_slice(&[1], &[5i64]).unwrap());
    let error = session.run(&[("x", (&x).into()), ("i", (&i).into())]).unwrap_err();
    assert!(error.to_string().contains("Gather"), "{error}");
    // And the session is still good.
    let i = Tensor::from_slice(&[1], &[1i64]).unwrap();
    let outputs = session.run(&[("x", (&x).into()), ("i", (&i).into())]).unwrap();
    assert_eq!(outputs.tensor("y").unwrap().as_slice(), Some(&[2.0f32][..]));
}

#[test]
fn empty_tensors_go_through() {
    let model = onnx(
        [node("Concat", &["a", "b"], &["y"], [attr_i("axis", 0)])],
        [rows("a", "n"), rows("b", "m")],
        [rows("y", "k")],
        [],
    );
    let session = of_bytes(&model);
    let run = |n: usize, m: usize| {
        let (a, b) = (f32s(&[n, SIDE], &numbers(n * SIDE, 1)), f32s(&[m, SIDE], &numbers(m * SIDE, 2)));
        let outputs = session.run(&[("a", (&a).into()), ("b", (&b).into())]).unwrap();
        outputs.tensor("y").unwrap().dims().to_vec()
    };
    assert_eq!((run(0, 0), run(0, 2), run(1, 0)), (vec![0, SIDE], vec![2, SIDE], vec![1, SIDE]));
}

/// Adds the rows of `a` and of `b`, and says that the result has `n` rows of `width`.
fn declared(width: i64) -> Vec<u8> {
    let wide = |name: &str| value_info(name, DType::F32, [Dimension::from("n"), 2.into()]);
    let y = value_info("y", DType::F32, [2i64, width]);
    onnx([node("Add", &["a", "b"], &["y"], [])], [wide("a"), wide("b")], [y], [])
}

#[test]
fn outputs_of_other_sizes_than_the_model_says_come_as_they_are() {
    let session = of_bytes(&declared(2));
    for rows in [3, 2, 3, 1] {
        let x = f32s(&[rows, 2], &vec![0.5; rows * 2]);
        let outputs = session.run(&[("a", (&x).into()), ("b", (&x).into())]).unwrap();
        let y = outputs.tensor("y").unwrap();
        assert_eq!((y.dims(), y.as_slice()), (&[rows, 2][..], Some(&vec![1.0f32; rows * 2][..])));
    }
    // What else goes wrong is still said.
    let x = f32s(&[2, 2], &[0.5; 4]);
    let other = f32s(&[3, 2], &[0.5; 6]);
    let error = session.run(&[("a", (&x).into()), ("b", (&other).into())]).unwrap_err();
    assert!(error.to_string().contains("is 3, but dim 0 of `a`"), "{error}");
}

#[test]
fn an_optional_may_hold_nothing() {
    use trtc_onnx::{
        OptionalType, TypeProto, TypeValue,
        write::{tensor_type, typed_value},
    };
    let element = tensor_type(DType::F32, Some([2i64]));
    let value = TypeValue::Optional(Box::new(OptionalType { elem_type: Some(Box::new(element)) }));
    let optional = typed_value("o", TypeProto { value: Some(value), ..TypeProto::default() });
    let has = node("OptionalHasElement", &["o"], &["has"], []);
    let session = of_bytes(&onnx([has], [optional], [value_info("has", DType::Bool, [0i64; 0])], []));
    let x = f32s(&[2], &[1.0, 2.0]);
    for (given, expected) in
        [(Input::from(&Value::Nothing), 0), ((&x).into(), 1), ((&Value::Nothing).into(), 0)]
    {
        let outputs = session.run(&[("o", given)]).unwrap();
        assert_eq!(outputs.tensor("has").unwrap().bytes(), [expected]);
    }
}
