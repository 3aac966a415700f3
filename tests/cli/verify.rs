//! `trtc verify`: what it compares with, and what it says.

use crate::support::{Folder, f32_bytes, found, npz, small_model, trtc};
use trtc_bundle::DType;
use trtc_onnx::write::{graph, model, node, value_info};

fn bundle(folder: &Folder, target: &str) -> (String, String) {
    let model = folder.model("m.onnx", &small_model(true));
    let bundle = folder.path("m.trtc").to_str().unwrap().to_owned();
    trtc(&["compile", &model, "-o", &bundle, "--target", target]).code(0);
    (model, bundle)
}

fn last_line(text: &str) -> &str {
    text.lines().last().unwrap_or_default()
}

#[test]
fn a_bundle_agrees_with_its_model() {
    if !found("can_run_on_cpu") {
        return;
    }
    let folder = Folder::new();
    let (model, bundle) = bundle(&folder, "host");
    let said = trtc(&["verify", &bundle, "--model", &model, "--random", "3"]).code(0);
    assert_eq!(last_line(&said.stdout), "ok");
    for word in ["max_abs", "max_rel", "rtol 1e-3 atol 1e-4", "ONNX Runtime", "seeds 0 to 2"] {
        assert!(said.stdout.contains(word), "{word}: {}", said.stdout);
    }
    let said = trtc(&["verify", &bundle, "--model", &model, "--segments", "--networks"]).code(0);
    assert_eq!(said.stdout.matches("schedule").count(), 1, "{}", said.stdout);
}

#[test]
fn a_model_is_verified_through_its_segments_and_networks() {
    if !found("can_run_on_cpu") {
        return;
    }
    let folder = Folder::new();
    let model = folder.model("m.onnx", &small_model(true));
    let said = trtc(&["verify", &model, "--segments"]).code(0);
    assert!(
        said.stdout.contains("segments of rtx-1.7") && last_line(&said.stdout) == "ok",
        "{}",
        said.stdout
    );
    let said = trtc(&["verify", &model, "--networks"]).code(0);
    assert!(said.stdout.contains("TensorRT layers") && last_line(&said.stdout) == "ok", "{}", said.stdout);
}

#[test]
fn nothing_independent_is_bad_usage() {
    let folder = Folder::new();
    let (model, bundle) = bundle(&folder, "host");
    let said = trtc(&["verify", &bundle]).code(2);
    assert!(said.stderr.contains("--model") && said.stderr.contains("--expected"), "{}", said.stderr);
    trtc(&["verify", &model, "--model", &model]).code(2);
    let other = folder.model("other.onnx", &small_model(false));
    let said = trtc(&["verify", &bundle, "--model", &other]).code(2);
    assert!(said.stderr.contains("hash") && said.stderr.contains("other.onnx"), "{}", said.stderr);
}

#[test]
fn given_outputs_are_compared_with() {
    if !found("can_run_on_cpu") {
        return;
    }
    let folder = Folder::new();
    let (_, bundle) = bundle(&folder, "host");
    let inputs = npz(&folder, "in.npz", &[("x", "<f4", &[1, 3], f32_bytes(&[0.0, 5.0, 2.0]))]);
    let right = npz(&folder, "right.npz", &[("output_0", "<f4", &[1, 3], f32_bytes(&[1.0, 3.00001, 2.5]))]);
    let wrong = npz(&folder, "wrong.npz", &[("y", "<f4", &[1, 3], f32_bytes(&[1.0, 4.0, 2.5]))]);
    let shape = npz(&folder, "shape.npz", &[("y", "<f4", &[3], f32_bytes(&[1.0, 3.0, 2.5]))]);
    let name = npz(&folder, "name.npz", &[("z", "<f4", &[3], f32_bytes(&[1.0, 3.0, 2.5]))]);
    let verify = |expected: &str, flags: &[&str]| {
        trtc(&[&["verify", &bundle, "--inputs", &inputs, "--expected", expected], flags].concat())
    };
    assert_eq!(last_line(&verify(&right, &[]).code(0).stdout), "ok");
    let said = verify(&wrong, &[]).code(1);
    assert_eq!(last_line(&said.stdout), "DIFFERS");
    assert!(
        said.stdout.contains("1 of 3 elements differ; the worst at [0, 1]: 3 instead of 4"),
        "{}",
        said.stdout
    );
    assert!(said.stderr.contains("`y`"), "{}", said.stderr);
    assert_eq!(last_line(&verify(&wrong, &["--atol", "1.5"]).code(0).stdout), "ok");
    let said = verify(&shape, &[]).code(1);
    assert!(said.stdout.contains("f32[1, 3] instead of f32[3]"), "{}", said.stdout);
    assert!(verify(&name, &[]).code(2).stderr.contains("`z`"));
}

#[test]
fn inputs_with_values_of_their_own_are_given_to_the_model_too() {
    if !found("can_run_on_cpu") {
        return;
    }
    let folder = Folder::new();
    let top = node("TopK", &["x", "k"], &["y", "at"], []).named("top");
    let inputs = [value_info("x", DType::F32, [2, 6]), value_info("k", DType::I64, [1])];
    let dims = || [2.into(), trtc_onnx::Dimension::from("found")];
    let outputs = [value_info("y", DType::F32, dims()), value_info("at", DType::I64, dims())];
    let model = folder.model("m.onnx", &model(17, graph("top", [top], inputs, outputs, [])));
    let bundle = folder.path("m.trtc").to_str().unwrap().to_owned();
    for (value, dims) in [("k=4", "f32[2 x 4]"), ("k=2..3..6", "f32[2 x 3]")] {
        trtc(&["compile", &model, "-o", &bundle, "--target", "host", "--value", value]).code(0);
        let said = trtc(&["verify", &bundle, "--model", &model, "--random", "2"]).code(0);
        assert!(last_line(&said.stdout) == "ok" && said.stdout.contains(dims), "{}", said.stdout);
    }
    let said = trtc(&["run", &bundle, "--random", "7"]).code(0);
    assert!(said.stdout.contains("f32[2 x 3]"), "{}", said.stdout);
}
