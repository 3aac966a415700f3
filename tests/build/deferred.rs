//! Engines that a compile left out are built later, into the bundle.

use crate::support::{Heard, Place, can_build, chain, options};
use trtc::{Bundle, ErrorKind, Options, Quiet, build, worker::Inject};
use trtc_partitioner::SegmentStatus;

fn statuses(bundle: &std::path::Path) -> Vec<bool> {
    let bundle = Bundle::open(bundle).unwrap();
    let segments = bundle.manifest().targets.iter().flat_map(|plan| &plan.segments);
    segments.map(|segment| segment.engine.is_some()).collect()
}

#[test]
fn deferred_engines_are_built_into_the_bundle() {
    if !can_build() {
        return;
    }
    let place = Place::of(&chain(5));
    let options = options().target("tensorrt-11.3:sm90".parse().unwrap());
    place.compile(&options.clone().build_engines(false));
    assert_eq!(statuses(&place.bundle()), [false, false]);

    let heard = Heard::default();
    let finished = build(&place.bundle(), &options, &heard).unwrap();
    assert_eq!(statuses(&place.bundle()), [true, false]);
    let counts: Vec<_> = finished.iter().map(|t| (t.present, t.built, t.left.len())).collect();
    assert_eq!(counts, [(0, 1, 0), (0, 0, 1)]);
    let rows: Vec<_> = finished.iter().map(|target| &target.report.as_ref().unwrap().segments[0]).collect();
    assert_eq!(rows[0].status, SegmentStatus::Built);
    assert!(rows[0].engine_bytes.unwrap() > 1000 && rows[0].build_s.is_some());
    assert_eq!(rows[1].status, SegmentStatus::Deferred);
    assert_eq!(heard.lines("ended"), ["ended rtx-1.7:sm89 engine_0 well"]);
    assert!(finished[1].left[0].contains("tensorrt-11.3:sm90"), "{:?}", finished[1].left);
    let bundle = Bundle::open(place.bundle()).unwrap();
    bundle.verify().unwrap();
    // The report in the bundle says the same.
    let stored = bundle.report(bundle.manifest().targets[0].report.unwrap()).unwrap();
    let stored: trtc_partitioner::TargetReport = serde_json::from_slice(&stored).unwrap();
    assert_eq!(stored.segments[0].status, SegmentStatus::Built);
    place.agrees(0);
    place.agrees(1);

    // The same bundle as one that was built at once.
    let engine = bundle.engine(bundle.manifest().targets[0].segments[0].engine.unwrap()).unwrap();
    place.compile(&options);
    let whole = Bundle::open(place.bundle()).unwrap();
    assert_eq!(whole.engine(whole.manifest().targets[0].segments[0].engine.unwrap()).unwrap(), engine);
}

#[test]
fn what_needs_a_gpu_is_missing_without_one() {
    let place = Place::of(&chain(3));
    let options = Options::default().target("tensorrt-11.3:sm90".parse().unwrap());
    place.compile(&options);
    let before = std::fs::read(place.bundle()).unwrap();
    // A GPU of that capability and TensorRT with its builder would be here only by intention.
    if let Err(error) = build(&place.bundle(), &options, &Quiet) {
        assert_eq!(error.kind(), ErrorKind::Missing, "{error}");
        assert!(error.to_string().contains("tensorrt-11.3:sm90"), "{error}");
        assert!(error.advice().is_some());
        assert_eq!(std::fs::read(place.bundle()).unwrap(), before);
    }
}

#[test]
fn a_bundle_without_deferred_engines_stays_as_it_is() {
    let place = Place::of(&chain(3));
    place.compile(&Options::default().target("host".parse().unwrap()));
    let before = std::fs::read(place.bundle()).unwrap();
    let finished = build(&place.bundle(), &Options::default(), &Quiet).unwrap();
    assert_eq!((finished[0].present, finished[0].built, finished[0].left.len()), (0, 0, 0));
    assert_eq!(std::fs::read(place.bundle()).unwrap(), before);
    let error = build(&place.model, &Options::default(), &Quiet).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Input);
}

#[test]
fn a_network_that_cannot_be_built_stays_deferred() {
    if !can_build() {
        return;
    }
    let place = Place::of(&chain(3));
    place.compile(&options().build_engines(false));
    let heard = Heard::default();
    let bad = options().inject(&["n1"], Inject::Abort);
    let finished = build(&place.bundle(), &bad, &heard).unwrap();
    assert_eq!((finished[0].built, finished[0].left.len()), (0, 1));
    assert!(heard.lines("warning")[0].contains("SIGABRT"), "{:?}", heard.lines("warning"));
    assert_eq!(statuses(&place.bundle()), [false]);
    place.agrees(0);
}
