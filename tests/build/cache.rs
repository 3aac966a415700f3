//! A second compile of an unchanged model takes its engines from the cache; a changed one does not.

use crate::support::{Heard, Place, can_build, chain, options, products};
use trtc::{Bundle, Options, Report, cache_use, worker::Inject};

fn cached(report: &Report) -> Vec<bool> {
    report.targets.iter().flat_map(|target| &target.segments).map(|row| row.cached).collect()
}

fn engines(place: &Place) -> Vec<Vec<u8>> {
    let bundle = Bundle::open(place.bundle()).unwrap();
    let plans = &bundle.manifest().targets;
    let segments = plans.iter().flat_map(|plan| &plan.segments).filter_map(|segment| segment.engine);
    segments.map(|id| bundle.engine(id).unwrap()).collect()
}

#[test]
fn a_second_compile_builds_nothing() {
    if !can_build() {
        return;
    }
    let place = Place::of(&chain(6));
    let folder = place.path("cache");
    // A worker that dies of everything shows that none is asked.
    let cold = options().cache_dir(&folder);
    let dead = cold.clone().inject(&[], Inject::Refuse);
    let first = place.compile(&cold);
    assert_eq!(cached(&first), [false]);
    let built = engines(&place);
    let second = place.compile(&dead);
    assert_eq!(cached(&second), [true]);
    assert_eq!(engines(&place), built);
    assert_eq!(first.targets[0].segments[0].build_s, second.targets[0].segments[0].build_s);
    assert_eq!(second.timings.unwrap().build_s, 0.0);
    assert!(second.to_string().contains("cached"));
    let held = cache_use(&folder);
    assert_eq!(held.entries, 1);
    assert!(held.bytes > built[0].len() as u64);

    // A damaged entry is built again.
    let entry = std::fs::read_dir(folder.join("engines")).unwrap().next().unwrap().unwrap().path();
    let mut bytes = std::fs::read(&entry).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    std::fs::write(&entry, &bytes).unwrap();
    assert_eq!(cached(&place.compile(&cold)), [false]);
    assert_eq!(engines(&place), built);
    assert_eq!(cached(&place.compile(&cold)), [true]);
}

#[test]
fn whatever_changes_is_built() {
    if !can_build() {
        return;
    }
    let with_dim = || {
        let mut model = chain(3);
        let graph = model.graph.as_mut().unwrap();
        for value in [&mut graph.input[0], &mut graph.output[0]] {
            let name = value.name.clone().unwrap();
            let dims = [trtc_onnx::Dimension::from("N"), 4.into()];
            *value = trtc_onnx::write::value_info(&name, trtc_bundle::DType::F32, dims);
        }
        model
    };
    let place = Place::of(&with_dim());
    let base = options().cache_dir(place.path("cache"));
    let other = |text: &str| -> Options {
        let options = Options::default().worker(env!("CARGO_BIN_EXE_trtc")).cache_dir(place.path("cache"));
        options.target(text.parse().unwrap()).shape("x=1..4..8x4")
    };
    let shaped = |text: &str| base.clone().shape(text);
    assert_eq!(cached(&place.compile(&shaped("x=1..4..8x4"))), [false]);
    assert_eq!(cached(&place.compile(&shaped("x=1..4..8x4"))), [true]);
    for options in [shaped("x=1..5..8x4"), shaped("x=1..4..9x4"), shaped("x=4x4"), other("rtx-1.7:sm86")] {
        assert_eq!(cached(&place.compile(&options)), [false]);
        assert_eq!(cached(&place.compile(&options)), [true]);
    }
    assert_eq!(cached(&place.compile(&other("rtx-1.7:sm86,sm89"))), [false]);
}

#[test]
fn the_cache_stays_below_its_limit_and_a_broken_one_stops_nothing() {
    if !can_build() {
        return;
    }
    let place = Place::of(&chain(3));
    let folder = place.path("cache");
    let options = options().cache_dir(&folder);
    place.compile(&options.clone().cache_limit_bytes(1000));
    assert_eq!(cache_use(&folder).entries, 0);
    std::fs::remove_dir_all(&folder).unwrap();
    std::fs::write(&folder, b"a file").unwrap();
    let heard = Heard::default();
    place.compile_with(&options, &heard);
    assert_eq!(heard.lines("warning no engine cache").len(), 1);
}

#[test]
fn what_a_recovery_built_is_kept_too() {
    if !can_build() {
        return;
    }
    let place = Place::of(&products(8));
    let folder = place.path("cache");
    let options = options().inject(&["n4"], Inject::Refuse).cache_dir(&folder);
    place.compile(&options);
    assert_eq!(cache_use(&folder).entries, 2);
    let second = place.compile(&options);
    assert_eq!(second.targets[0].totals.engines, 2);
    place.agrees(0);
}

#[test]
fn what_the_builder_refused_is_not_searched_again() {
    if !can_build() {
        return;
    }
    let place = Place::of(&products(10));
    let folder = place.path("cache");
    let base = options().cache_dir(&folder);
    let options = base.clone().inject(&["n6"], Inject::Refuse);
    let first = place.compile(&options);
    let failure = |report: &Report| report.targets[0].failures[0].clone();
    assert!(failure(&first).trial_builds > 0);
    assert_eq!(cache_use(&folder).refusals, 1);
    let second = place.compile(&options);
    // Nothing is built: neither the whole nor parts.
    assert_eq!(second.timings.unwrap().build_s, 0.0);
    assert_eq!(failure(&second).trial_builds, 0);
    let same = |report: &Report| {
        let row = failure(report);
        (row.segment, row.code, row.words, row.nodes)
    };
    assert_eq!(same(&second), same(&first));
    assert_eq!(second.targets[0].nodes, first.targets[0].nodes);
    assert_eq!(cached(&second).iter().filter(|cached| **cached).count(), 2);
    place.agrees(0);

    // The reproducers are written all the same.
    let kept = place.path("kept");
    place.compile(&options.clone().keep_failures(&kept));
    assert_eq!(std::fs::read_dir(&kept).unwrap().count(), 4);

    // A damaged entry is thrown away, and the search begins again.
    let entry = std::fs::read_dir(folder.join("refusals")).unwrap().next().unwrap().unwrap().path();
    std::fs::write(&entry, b"{").unwrap();
    assert!(failure(&place.compile(&options)).trial_builds > 0);
    // Other networks ask the builder.
    assert_eq!(place.compile(&base).targets[0].totals.host_nodes, 0);
}

#[test]
fn a_failure_that_may_not_last_is_not_kept() {
    if !can_build() {
        return;
    }
    let place = Place::of(&products(4));
    let folder = place.path("cache");
    let options = options().cache_dir(&folder);
    // An abort may come of what this machine lacks; so does a search that ran out of time.
    place.compile(&options.clone().inject(&["n1"], Inject::Abort));
    let hasty = options.recovery_time_limit(std::time::Duration::ZERO);
    place.compile(&hasty.inject(&["n1"], Inject::Refuse));
    assert_eq!(cache_use(&folder).refusals, 0);
}

#[test]
fn several_targets_are_built_at_once_and_stand_in_order() {
    if !can_build() {
        return;
    }
    let targets = ["rtx-1.7:sm120", "rtx-1.7:sm86", "tensorrt-11.3:sm90", "host", "rtx-1.7:sm89"];
    let place = Place::of(&chain(4));
    let all = targets.iter().fold(
        Options::default().worker(env!("CARGO_BIN_EXE_trtc")).cache_dir(place.path("cache")),
        |options, text| options.target(text.parse().unwrap()),
    );
    let heard = Heard::default();
    let report = place.compile_with(&all, &heard);
    let named: Vec<String> = report.targets.iter().map(|target| target.target.to_string()).collect();
    assert_eq!(named, targets);
    assert_eq!(heard.lines("started").len(), 3);
    assert_eq!(heard.lines("ended").len(), 3);
    assert_eq!(cache_use(&place.path("cache")).entries, 3);
    let statuses: Vec<String> = report
        .targets
        .iter()
        .map(|target| format!("{:?}", target.segments[0].status).to_lowercase())
        .collect();
    assert_eq!(statuses, ["built", "built", "deferred", "host", "built"]);
    for target in 0..targets.len() {
        place.agrees(target);
    }
}
