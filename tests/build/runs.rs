//! Long runs of fusible layers are split over engines, in a dry run as in a compile.

use crate::support::{Place, can_build, chain, options};
use std::time::Instant;
use trtc_partitioner::SegmentStatus;

#[test]
fn a_long_chain_is_built_in_parts() {
    if !can_build() {
        return;
    }
    let place = Place::of(&chain(3000));
    let dry = trtc::partition(&place.model, &options()).unwrap();
    let start = Instant::now();
    let report = place.compile(&options());
    println!("3,000 layers: {:.1} s", start.elapsed().as_secs_f64());
    let target = &report.targets[0];
    assert_eq!((target.totals.host_nodes, target.totals.engine_nodes), (0, 3000));
    assert!((6..=7).contains(&target.totals.engines), "{}", target.totals.engines);
    assert!(target.segments.iter().all(|row| row.status == SegmentStatus::Built && row.nodes.len() <= 562));
    assert_eq!(dry.targets[0].totals, target.totals);
    let nodes = |report: &trtc::Report| -> Vec<Vec<String>> {
        report.targets[0].segments.iter().map(|row| row.nodes.clone()).collect()
    };
    assert_eq!(nodes(&dry), nodes(&report));
    place.agrees(0);
}
