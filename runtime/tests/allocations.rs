//! A run with static dims allocates nothing of ours once it is warm, however many turns a loop takes.
#![allow(clippy::unwrap_used)] // A test ends there.
#![allow(unsafe_code)] // An allocator that counts is an unsafe trait.

mod common;

use common::*;
use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};
use trtc_bundle::{
    Block, Bundle, BundleWriter, DType, Dim, SegmentKind, Step, Target, TargetPlan, ValueId, ValueInfo,
};
use trtc_onnx::write::{node, value_info};
use trtc_runtime::{Mode, Session, SessionOptions, Tensor, Value};

struct Counting;

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: everything is handed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.with(|count| count.set(count.get() + 1));
        // SAFETY: as promised to us.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: as promised to us.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_warm_run_allocates_nothing() {
    let (_folder, path) = chained(Some(4));
    let bundle = Bundle::open(path).unwrap();
    for mode in [Mode::WholeModel, Mode::Segments] {
        let session = Session::new(&bundle, &SessionOptions::default().mode(mode).timing(true)).unwrap();
        let x = numbers(4 * SIDE, 1);
        let input = Tensor::from_slice(&[4, SIDE], &x).unwrap();
        let mut outputs = vec![Value::Nothing];
        let mut run = || session.run_into(&[(&input).into()], &mut outputs).unwrap();
        run();
        let before = COUNT.with(Cell::get);
        for _ in 0..10 {
            run();
        }
        assert_eq!(COUNT.with(Cell::get) - before, 0, "{mode:?}");
        assert_eq!(outputs[0].as_tensor().unwrap().as_slice(), Some(&chain_by_hand(&x)[..]));
    }
}

/// y = x + n·x in a loop of n turns; the body captures x.
fn sum(path: &std::path::Path) {
    let mut writer = BundleWriter::create(path).unwrap();
    let flag = |name: &str| value_info(name, DType::Bool, [0i64; 0]);
    let body = onnx(
        [node("Add", &["s", "x"], &["t"], []), node("Identity", &["go"], &["go_on"], [])],
        [rows("s", 4), rows("x", 4), flag("go")],
        [rows("t", 4), flag("go_on")],
        [],
    );
    let matrix = |name: &str| value(name, vec![Dim::Known(4), Dim::Known(SIDE as u64)]);
    let scalar = |name: &str, dtype: DType| ValueInfo::tensor(name, dtype, Some(vec![]));
    let mut plan = TargetPlan::new(Target::default_target());
    plan.values = vec![
        matrix("x"),
        scalar("n", DType::I64),
        scalar("turn", DType::I64),
        scalar("go", DType::Bool),
        matrix("s"),
        matrix("t"),
        scalar("go_on", DType::Bool),
        matrix("y"),
    ];
    let ids = |ids: &[u32]| ids.iter().copied().map(ValueId).collect::<Vec<_>>();
    (plan.inputs, plan.outputs) = (ids(&[0, 1]), ids(&[7]));
    plan.segments = vec![segment("h0", SegmentKind::Host, &[4, 0, 3], &[5, 6])];
    plan.segments[0].graph = Some(writer.add_graph(&body).unwrap());
    plan.schedule = vec![Step::Loop {
        trip_count: Some(ValueId(1)),
        condition: None,
        initial: ids(&[0]),
        inputs: ids(&[2, 3, 4]),
        body: Block::new(runs(&[0]), ids(&[6, 5])),
        outputs: ids(&[7]),
    }];
    let mut manifest = manifest(plan.values[..2].to_vec(), vec![plan.values[7].clone()]);
    manifest.targets = vec![plan];
    writer.finish(manifest).unwrap();
}

#[test]
fn turns_of_a_loop_allocate_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("loop.trtc");
    sum(&path);
    let options = SessionOptions::default().mode(Mode::Segments);
    let session = Session::new(&Bundle::open(&path).unwrap(), &options).unwrap();
    let x = numbers(4 * SIDE, 1);
    let input = Tensor::from_slice(&[4, SIDE], &x).unwrap();
    let mut outputs = vec![Value::Nothing];
    // States and the output change places: an odd and an even number of turns each.
    for turns in [3i64, 4, 50] {
        let count = Tensor::from_slice(&[], &[turns]).unwrap();
        let mut run = || session.run_into(&[(&input).into(), (&count).into()], &mut outputs).unwrap();
        (0..3).for_each(|_| run());
        let before = COUNT.with(Cell::get);
        (0..5).for_each(|_| run());
        assert_eq!(COUNT.with(Cell::get) - before, 0, "{turns} turns");
        let expected: Vec<f32> = x.iter().map(|x| x * (turns + 1) as f32).collect();
        assert_eq!(outputs[0].as_tensor().unwrap().as_slice(), Some(&expected[..]));
    }
}
