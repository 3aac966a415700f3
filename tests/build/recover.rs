//! A node that the builder refuses, crashes on or hangs on costs this node, not the model.

use crate::support::{Heard, Place, can_build, names, on_host, options, products};
use std::time::{Duration, Instant};
use trtc::{Options, Report, worker::Inject};
use trtc_partitioner::SegmentStatus;

/// Compiles; checks that just `hosted` go to the host, with `code`, and that all the rest is built.
#[track_caller]
fn costs(place: &Place, options: &Options, hosted: &[&str], code: &str) -> Report {
    let heard = Heard::default();
    let report = place.compile_with(options, &heard);
    let expected: Vec<_> = hosted.iter().map(|name| ((*name).to_owned(), code.to_owned())).collect();
    assert_eq!(on_host(&report), expected, "{report}");
    let target = &report.targets[0];
    for row in target.segments.iter().filter(|row| row.kind == "engine") {
        assert_eq!(row.status, SegmentStatus::Built);
    }
    let found: Vec<&String> = target.failures.iter().flat_map(|row| &row.nodes).collect();
    assert_eq!(found, hosted);
    assert!(target.failures.iter().all(|row| row.recover_s > 0.0 && row.code == code));
    assert!(report.timings.unwrap().recover_s > 0.0);
    assert_eq!(heard.lines("recovered"), [format!("recovered engine_0: {}", hosted.join(" "))]);
    assert_eq!(heard.lines("started").len(), heard.lines("ended").len());
    assert_eq!(heard.lines("warning").len(), target.failures.len());
    place.agrees(0);
    report
}

#[test]
fn a_refusal_costs_one_node() {
    if !can_build() {
        return;
    }
    let place = Place::of(&products(10));
    let report = costs(&place, &options().inject(&["n6"], Inject::Refuse), &["n6"], "E9001");
    let failure = &report.targets[0].failures[0];
    assert!(failure.words.contains("an injected refusal"), "{}", failure.words);
    // Halves of 10, 5, 3 and 2 nodes.
    assert!(failure.trial_builds <= 8, "{failure:?}");
    let row = report.targets[0].nodes.iter().find(|row| row.name == "n6").unwrap();
    assert!(row.reason.as_ref().unwrap().contains("an injected refusal"), "{row:?}");
    // The same again: the report does not depend on who was faster.
    let mut again = place.compile(&options().inject(&["n6"], Inject::Refuse));
    let mut first = report;
    for report in [&mut first, &mut again] {
        report.timings = None;
        for row in &mut report.targets[0].failures {
            row.recover_s = 0.0;
        }
        report.targets[0].segments.iter_mut().for_each(|row| row.build_s = None);
    }
    let json = |report: &Report| serde_json::to_value(report).unwrap();
    assert_eq!(json(&first), json(&again));
}

#[test]
fn a_node_that_the_words_name_is_tried_first() {
    if !can_build() {
        return;
    }
    let place = Place::of(&products(10));
    let report = costs(&place, &options().inject(&["n3"], Inject::RefuseNamed), &["n3"], "E9001");
    assert_eq!(report.targets[0].failures[0].trial_builds, 1);
}

#[test]
fn a_crash_costs_one_node() {
    if !can_build() {
        return;
    }
    let place = Place::of(&products(10));
    let report = costs(&place, &options().inject(&["n0"], Inject::Abort), &["n0"], "E9002");
    assert!(report.targets[0].failures[0].words.contains("SIGABRT"));
}

#[test]
fn a_hang_costs_one_node() {
    if !can_build() {
        return;
    }
    let place = Place::of(&products(10));
    let limit = Duration::from_secs(5);
    let options = options().inject(&["n9"], Inject::Hang).build_time_limit(limit);
    let start = Instant::now();
    costs(&place, &options.recovery_time_limit(Duration::from_secs(60)), &["n9"], "E9003");
    // The whole, 5, 3, 2 and 1 nodes hang.
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
}

#[test]
fn nodes_that_fail_together_go_together() {
    if !can_build() {
        return;
    }
    let place = Place::of(&products(10));
    costs(&place, &options().inject(&["n2", "n7"], Inject::Refuse), &["n2", "n7"], "E9001");
}

#[test]
fn several_bad_nodes_are_found_in_one_go() {
    if !can_build() {
        return;
    }
    let place = Place::of(&products(10));
    let options = options().inject(&["n1"], Inject::Refuse).inject(&["n8"], Inject::Refuse);
    costs(&place, &options, &["n1", "n8"], "E9001");
}

#[test]
fn a_node_alone_needs_no_search() {
    if !can_build() {
        return;
    }
    let place = Place::of(&products(1));
    let report = place.compile(&options().inject(&["n0"], Inject::Refuse));
    assert_eq!(on_host(&report), [("n0".to_owned(), "E9001".to_owned())]);
    assert_eq!(report.targets[0].failures[0].trial_builds, 0);
    place.agrees(0);
}

#[test]
fn without_time_the_whole_network_goes_to_the_host() {
    if !can_build() {
        return;
    }
    let place = Place::of(&products(4));
    let options = options().inject(&["n1"], Inject::Refuse).recovery_time_limit(Duration::ZERO);
    let report = place.compile(&options);
    assert_eq!(on_host(&report).len(), 4);
    assert_eq!(report.targets[0].totals.engines, 0);
    place.agrees(0);
}

#[test]
fn strict_compiles_fail_with_the_builders_words() {
    if !can_build() {
        return;
    }
    let place = Place::of(&products(2));
    let options = options().inject(&["n1"], Inject::RefuseNamed).strict(true);
    let error = trtc::compile(&place.model, &place.bundle(), &options, &trtc::Quiet).unwrap_err();
    assert_eq!(error.kind(), trtc::ErrorKind::Check);
    assert!(error.to_string().contains("n1") && error.to_string().contains("an injected refusal"), "{error}");
    assert!(!place.bundle().exists());
}

#[test]
fn reproducers_are_kept() {
    if !can_build() {
        return;
    }
    let place = Place::of(&products(6));
    let folder = place.path("failures");
    place.compile(&options().inject(&["n4"], Inject::Refuse).keep_failures(&folder));
    let expected = [
        "rtx-1.7_sm89-engine_0-n4.network.json",
        "rtx-1.7_sm89-engine_0-n4.network.txt",
        "rtx-1.7_sm89-engine_0.network.json",
        "rtx-1.7_sm89-engine_0.network.txt",
    ];
    assert_eq!(names(&folder), expected);
    let text = std::fs::read_to_string(folder.join(expected[1])).unwrap();
    assert!(
        text.contains("# E9001") && text.contains("# the builder refused: an injected refusal"),
        "{text}"
    );
    let json = std::fs::read(folder.join(expected[0])).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(json["nodes"], serde_json::json!(["n4", "outputs"]));
    // It is a network that the crate reads again.
    let network: trtc_network::Network = serde_json::from_value(json["network"].clone()).unwrap();
    assert_eq!((network.layers.len(), network.weights.len()), (2, 1));
}

#[test]
fn a_worker_that_cannot_be_started_ends_the_compile() {
    if !can_build() {
        return;
    }
    let place = Place::of(&products(2));
    let options = options().worker("/nowhere/trtc");
    let error = trtc::compile(&place.model, &place.bundle(), &options, &trtc::Quiet).unwrap_err();
    assert_eq!(error.kind(), trtc::ErrorKind::Missing);
    assert!(error.to_string().contains("/nowhere/trtc"), "{error}");
}
