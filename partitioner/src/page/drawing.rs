//! Segments as boxes in two lanes, device and host, from first to last; control flow that the schedule runs as a box behind
//! the segments of its bodies; values between them as arrows with their sizes.

use super::escaped;
use crate::{
    operators::operators,
    report::{CrossingRow, NodeRow, PlacementName, SegmentRow, TargetReport},
    text::{bytes, time},
};
use std::collections::{BTreeMap, HashMap};

/// Most boxes that are drawn; the table has all.
const DRAWN: usize = 150;
/// Arrows past other segments whose labels show; those of more would cover each other, and show under the pointer.
const LABELLED: usize = 8;
const BOX_WIDTH: usize = 250;
const BOX_HEIGHT: usize = 46;
const STEP: usize = 84;
const LANES: [usize; 2] = [150, 560];
const WIDTH: usize = 960;
/// Characters that fit into a box, of an id and of a line.
const SHOWN: [usize; 2] = [26, 35];

/// What is drawn as a box.
#[derive(Clone, Copy, Debug)]
enum Step<'a> {
    Segment(&'a SegmentRow),
    /// A control flow node that the schedule runs.
    Flow(&'a NodeRow),
}

impl<'a> Step<'a> {
    fn id(self) -> &'a str {
        match self {
            Step::Segment(segment) => &segment.id,
            Step::Flow(node) => &node.name,
        }
    }

    /// Index in `LANES`: the schedule runs on the host.
    fn lane(self) -> usize {
        usize::from(!matches!(self, Step::Segment(segment) if segment.kind == "engine"))
    }
}

/// The boxes from first to last. A control flow node comes behind the last segment of its bodies, inner ones first, so that
/// what it hands out goes on downwards.
fn steps(target: &TargetReport) -> Vec<Step<'_>> {
    let mut flows: Vec<(usize, &NodeRow)> = Vec::new();
    for node in target.nodes.iter().filter(|node| node.placement == PlacementName::Schedule) {
        let inside = |segment: &SegmentRow| {
            segment.id.strip_prefix(node.name.as_str()).is_some_and(|rest| rest.starts_with('/'))
        };
        flows.push((target.segments.iter().rposition(inside).map_or(0, |last| last + 1), node));
    }
    flows.sort_by_key(|(behind, node)| (*behind, std::cmp::Reverse(node.name.matches('/').count())));
    let mut flows = flows.into_iter().peekable();
    let mut steps = Vec::new();
    for k in 0..=target.segments.len() {
        while let Some((_, node)) = flows.next_if(|(behind, _)| *behind == k) {
            steps.push(Step::Flow(node));
        }
        steps.extend(target.segments.get(k).map(Step::Segment));
    }
    steps
}

/// Ends of an arrow: a box by its place, or the graph's inputs and outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum End {
    Inputs,
    Step(usize),
    Outputs,
}

/// What an arrow carries.
#[derive(Clone, Debug, Default)]
struct Load<'a> {
    values: Vec<&'a CrossingRow>,
}

impl Load<'_> {
    fn label(&self) -> String {
        let known: u64 = self.values.iter().filter_map(|value| value.bytes).sum();
        let size = match self.values.iter().any(|value| value.bytes.is_none()) {
            true if known == 0 => "?".to_owned(),
            true => format!("over {}", bytes(known)),
            false => bytes(known),
        };
        match self.values.len() {
            1 => size,
            n => format!("{n} values, {size}"),
        }
    }

    fn title(&self) -> String {
        let shown = self.values.iter().take(12).map(|value| {
            let size = value.bytes.map_or_else(|| "?".to_owned(), bytes);
            format!("{}: {}, {size}", value.value, value.ty)
        });
        let mut lines: Vec<String> = shown.collect();
        if self.values.len() > lines.len() {
            lines.push(format!("and {} more", self.values.len() - lines.len()));
        }
        lines.join("\n")
    }
}

/// The drawing of a target's segments.
pub(super) fn svg(target: &TargetReport) -> String {
    let steps = steps(target);
    let drawn = steps.len().min(DRAWN);
    let height = STEP * (drawn + 2) + 10;
    let mut svg = format!(
        "<div class=\"drawing\"><svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"segments\">\n<defs><marker id=\"tip\" \
         viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" orient=\"auto\">\
         <path d=\"M0 0L8 4L0 8z\" fill=\"#555\"/></marker></defs>\n"
    );
    let place: HashMap<&str, usize> =
        steps.iter().take(drawn).enumerate().map(|(k, step)| (step.id(), k)).collect();
    let host = |k: usize| steps.get(k).is_some_and(|step| step.lane() == 1);
    let arrows = arrows(target, &place);
    let mut lanes = Lanes::default();
    for ((from, to), load) in &arrows {
        svg += &arrow(*from, *to, load, drawn, &host, &mut lanes);
    }
    svg += &terminal("inputs", y_of(End::Inputs, drawn));
    svg += &terminal("outputs", y_of(End::Outputs, drawn));
    let (costs, operators) = (costs(target), operators(target));
    for (k, &step) in steps.iter().take(drawn).enumerate() {
        svg += &block(step, LANES[step.lane()], y_of(End::Step(k), drawn), &operators, &costs);
    }
    svg += "</svg></div>\n";
    if steps.len() > drawn {
        svg += &format!("<p>{} more segments are not drawn.</p>\n", steps.len() - drawn);
    }
    svg
}

fn y_of(end: End, drawn: usize) -> usize {
    STEP * match end {
        End::Inputs => 0,
        End::Step(k) => k + 1,
        End::Outputs => drawn + 1,
    } + 12
}

/// Arrows by their ends: values between the same two segments are one arrow.
fn arrows<'a>(target: &'a TargetReport, place: &HashMap<&str, usize>) -> BTreeMap<(End, End), Load<'a>> {
    let mut arrows: BTreeMap<(End, End), Load<'a>> = BTreeMap::new();
    for value in &target.crossings {
        let from = match &value.from {
            None => Some(End::Inputs),
            Some(from) => place.get(from.as_str()).map(|&k| End::Step(k)),
        };
        let ends = value.to.iter().filter_map(|to| place.get(to.as_str()).map(|&k| End::Step(k)));
        let output = value.output.then_some(End::Outputs);
        for to in ends.chain(output) {
            if let Some(from) = from {
                arrows.entry((from, to)).or_default().values.push(value);
            }
        }
    }
    arrows
}

/// How many arrows already pass on the outer side of each lane, so that the next one keeps clear of them.
#[derive(Default)]
struct Lanes([usize; 2]);

fn arrow(
    from: End,
    to: End,
    load: &Load<'_>,
    drawn: usize,
    host: &dyn Fn(usize) -> bool,
    lanes: &mut Lanes,
) -> String {
    let lane = |end: End, other: End| match (end, other) {
        (End::Step(k), _) | (_, End::Step(k)) => usize::from(host(k)),
        _ => 0,
    };
    let (from_lane, to_lane) = (lane(from, to), lane(to, from));
    let middle = |lane: usize| LANES[lane] + BOX_WIDTH / 2;
    // The bars of inputs and outputs are lower than boxes.
    let top = y_of(from, drawn) + if from == End::Inputs { 35 } else { BOX_HEIGHT };
    let bottom = y_of(to, drawn) + if to == End::Outputs { 11 } else { 0 };
    let next = bottom.saturating_sub(top) <= STEP;
    let mut class = "edge";
    let (path, x, y) = if next {
        // To the next row: straight, or across.
        let (a, b) = (middle(from_lane), middle(to_lane));
        let half = top.midpoint(bottom);
        (format!("M{a} {top}C{a} {half} {b} {half} {b} {bottom}"), a.midpoint(b) + 6, half + 4)
    } else {
        // Past the rows between, outside of the lane that it ends in.
        let side = to_lane;
        let turn = lanes.0[side] % 8;
        lanes.0[side] += 1;
        if lanes.0[side] > LABELLED {
            class = "edge quiet";
        }
        let x = if side == 0 { LANES[0] - 18 - 14 * turn } else { LANES[1] + BOX_WIDTH + 18 + 14 * turn };
        let (a, b) = (middle(from_lane), middle(to_lane));
        let (down, up) = (top + 16, bottom.saturating_sub(16));
        let path = format!(
            "M{a} {top}C{a} {down} {x} {top} {x} {}L{x} {}C{x} {bottom} {b} {up} {b} {bottom}",
            top + 34,
            bottom.saturating_sub(34)
        );
        (path, if side == 0 { 4 } else { x + 4 }, top.midpoint(bottom) - 10 + 13 * (turn % 3))
    };
    format!(
        "<g class=\"{class}\"><title>{}</title><path d=\"{path}\" fill=\"none\" stroke=\"#999\" marker-end=\"url(#tip)\"/>\
         <text x=\"{x}\" y=\"{y}\" fill=\"#333\" stroke=\"#fff\" stroke-width=\"3\" paint-order=\"stroke\">{}</text></g>\n",
        escaped(&load.title()),
        escaped(&load.label())
    )
}

fn terminal(name: &str, y: usize) -> String {
    let middle = (LANES[0] + LANES[1] + BOX_WIDTH) / 2;
    format!(
        "<g><rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"24\" rx=\"12\" fill=\"#eef\" stroke=\"#99b\"/>\
         <text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">{name}</text></g>\n",
        LANES[0],
        y + 11,
        LANES[1] + BOX_WIDTH - LANES[0],
        y + 27
    )
}

/// Nanoseconds of the host nodes of each segment.
fn costs(target: &TargetReport) -> HashMap<&str, u64> {
    let mut costs: HashMap<&str, u64> = HashMap::new();
    for row in &target.nodes {
        if let (Some(segment), Some(ns)) = (row.segment.as_deref(), row.host_ns) {
            *costs.entry(segment).or_default() += ns;
        }
    }
    costs
}

/// The end of a text that is longer than a box: names differ at their ends.
fn end_of(text: &str, shown: usize) -> String {
    let length = text.chars().count();
    if length <= shown {
        return text.to_owned();
    }
    ['…'].into_iter().chain(text.chars().skip(length + 1 - shown)).collect()
}

fn block(
    step: Step<'_>,
    x: usize,
    y: usize,
    operators: &HashMap<&str, String>,
    costs: &HashMap<&str, u64>,
) -> String {
    let id = step.id();
    let cost = costs.get(id).map_or_else(String::new, |&ns| format!(", {}", time(ns)));
    let (fill, count, line, class) = match step {
        Step::Segment(segment) => {
            let fill = if segment.kind == "engine" { "#d8f0d8" } else { "#fae3c8" };
            let nodes = segment.nodes.len();
            let count = format!(": {nodes} node{}", if nodes == 1 { "" } else { "s" });
            let class = format!("class=\"segment\" data-segment=\"{}\"", escaped(id));
            (fill, count, operators.get(id).cloned().unwrap_or_default(), class)
        }
        Step::Flow(node) => {
            let line = format!("{}, run by the schedule", node.op);
            ("#e3ecf8", String::new(), line, format!("class=\"flow\" data-node=\"{}\"", escaped(id)))
        }
    };
    let shown: String = match line.chars().count() > SHOWN[1] {
        true => line.chars().take(SHOWN[1] - 1).chain(['…']).collect(),
        false => line.clone(),
    };
    format!(
        "<g {class}><title>{}</title><rect x=\"{x}\" y=\"{y}\" width=\"{BOX_WIDTH}\" \
         height=\"{BOX_HEIGHT}\" rx=\"4\" fill=\"{fill}\" stroke=\"#888\"/><text x=\"{}\" y=\"{}\" font-weight=\"600\">\
         {}{count}{cost}</text><text x=\"{}\" y=\"{}\">{}</text></g>\n",
        escaped(&format!("{id}\n{line}")),
        x + 8,
        y + 18,
        escaped(&end_of(id, SHOWN[0])),
        x + 8,
        y + 36,
        escaped(&shown)
    )
}
