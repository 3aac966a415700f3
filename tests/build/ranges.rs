//! Dims that broadcast at run time: one engine for all that ONNX allows of them.

use crate::support::{Place, can_build, options};
use trtc::Bundle;
use trtc_bundle::DType;
use trtc_onnx::{Dimension, ModelProto, ValueInfoProto, write::*};
use trtc_runtime::{Input, Mode, Session, SessionOptions, Tensor};

/// `s = x - y` over [1, a] and [1, 2, d]; `z` is two of it, beside each other.
fn differences() -> ModelProto {
    let value = |name: &str, dims: &[&str]| -> ValueInfoProto {
        let dim = |text: &&str| match text.parse::<i64>() {
            Ok(size) => Dimension::from(size),
            Err(_) => Dimension::from(*text),
        };
        value_info(name, DType::F32, dims.iter().map(dim).collect::<Vec<_>>())
    };
    let nodes = [
        node("Sub", &["x", "y"], &["s"], []).named("sub"),
        node("Concat", &["s", "s"], &["z"], [attr_i("axis", 2)]).named("concat"),
    ];
    let inputs = [value("x", &["1", "a"]), value("y", &["1", "2", "d"])];
    model(17, graph("differences", nodes, inputs, [value("z", &["1", "2", "e"])], []))
}

#[test]
fn either_of_two_dims_that_broadcast_may_be_one() {
    if !can_build() {
        return;
    }
    let place = Place::of(&differences());
    let report = place.compile(&options());
    assert_eq!(report.ranges, ["a: 1..256..4096 (derived)", "d: 1..256..4096 (derived)"]);
    let totals = &report.targets[0].totals;
    assert_eq!((totals.engine_nodes, totals.host_nodes), (2, 0));
    let bundle = Bundle::open(place.bundle()).unwrap();
    let mut options = SessionOptions::default().optimize(false).mode(Mode::Segments);
    for (id, model) in trtc::raised_networks(&bundle, 0).unwrap() {
        options = options.twin_override(id, model);
    }
    let Ok(session) = Session::new(&bundle, &options) else {
        return println!("numbers are not compared: there is no ONNX Runtime");
    };
    for (a, d) in [(3usize, 3usize), (1, 3), (3, 1), (1, 1)] {
        let x: Vec<f32> = (0..a).map(|k| k as f32).collect();
        let y: Vec<f32> = (0..2 * d).map(|k| 10.0 * k as f32).collect();
        let (x_of, y_of) = (|k: usize| x[k % a], |row: usize, k: usize| y[row * d + k % d]);
        let width = a.max(d);
        let expected: Vec<f32> = (0..2)
            .flat_map(|row| (0..2 * width).map(move |k| (row, k % width)))
            .map(|(row, k)| x_of(k) - y_of(row, k))
            .collect();
        let x = Tensor::from_slice(&[1, a], &x).unwrap();
        let y = Tensor::from_slice(&[1, 2, d], &y).unwrap();
        let inputs: [(&str, Input<'_>); 2] = [("x", (&x).into()), ("y", (&y).into())];
        let outputs = session.run(&inputs).unwrap();
        assert_eq!(outputs.tensor("z").unwrap().as_slice::<f32>().unwrap(), expected, "{a} and {d}");
    }
}
