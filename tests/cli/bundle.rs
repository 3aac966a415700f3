//! `trtc compile`, `inspect`, `run`, `bench` on bundles and models.

use crate::support::{Folder, command, f32_bytes, found, npz, npz_data, said, small_model, trtc, trtc_in};
use std::{io::Write, process::Stdio};

/// A model compiled for the host.
fn bundle(folder: &Folder) -> (String, String) {
    let model = folder.model("m.onnx", &small_model(true));
    let bundle = folder.path("m.trtc").to_str().unwrap().to_owned();
    trtc(&["compile", &model, "-o", &bundle, "--target", "host"]).code(0);
    (model, bundle)
}

#[test]
fn a_model_is_compiled_with_a_report() {
    let folder = Folder::new();
    folder.model("m.onnx", &small_model(true));
    let said =
        trtc_in(&folder.path(""), &["compile", "m.onnx", "--target", "host", "--report", "r.json"]).code(0);
    assert_eq!(folder.names(), ["m.onnx", "m.trtc", "r.json"]);
    assert!(said.stdout.contains("m.trtc") && said.stderr.is_empty(), "{}{}", said.stdout, said.stderr);
    let report: serde_json::Value =
        serde_json::from_slice(&std::fs::read(folder.path("r.json")).unwrap()).unwrap();
    assert_eq!(report["targets"][0]["totals"]["nodes"], 2);
    assert!(report["timings"]["write_s"].is_number());
}

#[test]
fn nothing_is_left_of_a_compile_that_fails() {
    let folder = Folder::new();
    let bad = folder.file("bad.onnx", b"not a model at all");
    let good = folder.model("good.onnx", &small_model(false));
    let out = folder.path("out.trtc").to_str().unwrap().to_owned();
    trtc(&["compile", &bad, "-o", &out]).code(2);
    // The unknown operator stays on the host, which --strict forbids and a policy allows.
    let strict = trtc(&["compile", &good, "-o", &out, "--target", "host", "--strict"]).code(1);
    assert!(strict.stderr.contains("on the host"), "{}", strict.stderr);
    let policy = folder.file(
        "policy",
        "[policy]\nallow = [{ op = \"*Unheard\", reason = \"ours\" }, { op = \"Add\", reason = \"host\" }]",
    );
    let bad_policy = folder.file("bad policy", "\nop");
    let arguments = ["compile", &good, "-o", &out, "--target", "host", "--strict", "--policy"];
    let said = trtc(&[&arguments[..], &[&bad_policy]].concat()).code(2);
    assert!(said.stderr.contains("bad policy: line 2"), "{}", said.stderr);
    assert_eq!(folder.names(), ["bad policy", "bad.onnx", "good.onnx", "policy"]);
    trtc(&[&arguments[..], &[&policy]].concat()).code(0);
    let unwritable = trtc(&["compile", &good, "-o", "/no/such/folder/out.trtc", "--target", "host"]).code(2);
    assert!(unwritable.stderr.contains("/no/such/folder"), "{}", unwritable.stderr);
}

#[test]
fn a_bundle_tells_what_it_holds() {
    let folder = Folder::new();
    let (_, bundle) = bundle(&folder);
    let text = trtc(&["inspect", &bundle]).code(0).stdout;
    for word in ["m.onnx", "target   host", "f32[N x 3]", "opset"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    let json = trtc(&["inspect", &bundle, "--format", "json"]).code(0).stdout;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["bytes"].as_u64(), Some(std::fs::metadata(&bundle).unwrap().len()));
    assert_eq!((&json["targets"][0]["target"], &json["inputs"][0]["name"]), (&"host".into(), &"x".into()));
    let model = std::fs::read(folder.path("m.onnx")).unwrap();
    assert_eq!(json["model"]["hash"].as_str(), Some(blake3::hash(&model).to_hex().as_str()));
    // A bundle that was cut is told from one that is none.
    let mut bytes = std::fs::read(&bundle).unwrap();
    bytes.truncate(bytes.len() - 10);
    let cut = trtc(&["inspect", &folder.file("cut.trtc", &bytes)]).code(2);
    assert!(cut.stderr.contains("cut short"), "{}", cut.stderr);
}

#[test]
fn deferred_engines_are_built_later() {
    if !found("can_compile") {
        return;
    }
    let folder = Folder::new();
    let model = folder.model("m.onnx", &small_model(true));
    let bundle = folder.path("m.trtc");
    let options = trtc::Options::default().target("rtx-1.7:sm89".parse().unwrap()).build_engines(false);
    trtc::compile(model.as_ref(), &bundle, &options, &trtc::Quiet).unwrap();
    let bundle = bundle.to_str().unwrap();
    let status = || {
        let json = trtc(&["inspect", bundle, "--format", "json"]).code(0).stdout;
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        json["targets"][0]["segments"][0]["status"].as_str().unwrap().to_owned()
    };
    assert_eq!(status(), "deferred");
    let said = trtc(&["build", bundle]).code(0);
    assert_eq!(said.stdout, "rtx-1.7:sm89: 1 engines built, 0 were there, 0 left\n");
    assert_eq!(
        (status().as_str(), folder.names()),
        ("built", vec!["m.onnx".to_owned(), "m.trtc".to_owned()])
    );
    let said = trtc(&["build", bundle]).code(0);
    assert_eq!(said.stdout, "rtx-1.7:sm89: 0 engines built, 1 were there, 0 left\n");
    let said = trtc(&["verify", bundle, "--model", &model, "--segments", "--networks"]).code(0);
    assert!(said.stdout.ends_with("\nok\n"), "{}", said.stdout);
}

#[test]
fn an_engine_comes_from_the_cache_the_second_time() {
    if !found("can_compile") {
        return;
    }
    let folder = Folder::new();
    let model = folder.model("m.onnx", &small_model(true));
    let cache = folder.path("cache").to_str().unwrap().to_owned();
    let report = folder.path("report.json").to_str().unwrap().to_owned();
    let compile = || {
        let out = folder.path("m.trtc").to_str().unwrap().to_owned();
        let line = ["compile", &model, "-o", &out, "--target", "rtx-1.7:sm89"];
        trtc(&[&line[..], &["--cache-dir", &cache, "--report", &report]].concat()).code(0);
        let bundle = trtc_bundle::Bundle::open(&out).unwrap();
        let engine = bundle.manifest().targets[0].segments[0].engine.unwrap();
        let report: serde_json::Value = serde_json::from_slice(&std::fs::read(&report).unwrap()).unwrap();
        let cached = report["targets"][0]["segments"][0]["cached"].as_bool().unwrap_or(false);
        (cached, bundle.engine(engine).unwrap())
    };
    let (cached, first) = compile();
    assert!(!cached);
    assert_eq!(compile(), (true, first.clone()));
    let said = trtc(&["doctor", "--cache-dir", &cache, "--format", "json"]).code(0);
    let findings: serde_json::Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!(findings["engine_cache"]["entries"], 1);
    assert!(findings["engine_cache"]["bytes"].as_u64().unwrap() > first.len() as u64);
    // A damaged one is built again.
    let folder = std::path::Path::new(&cache).join("engines");
    let entries: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    let [entry] = entries.as_slice() else { panic!("{entries:?}") };
    let mut bytes = std::fs::read(entry).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(entry, bytes).unwrap();
    assert_eq!((compile().0, compile()), (false, (true, first)));
}

#[test]
fn an_engine_for_another_gpu_is_left_with_a_reason() {
    let folder = Folder::new();
    let model = folder.model("m.onnx", &small_model(true));
    let bundle = folder.path("m.trtc").to_str().unwrap().to_owned();
    // No machine has a GPU of compute capability 19.9.
    trtc(&["compile", &model, "-o", &bundle, "--target", "tensorrt-11.3:sm199"]).code(0);
    let before = std::fs::read(&bundle).unwrap();
    let said = trtc(&["build", &bundle]).code(3);
    assert!(said.stderr.contains("tensorrt-11.3:sm199"), "{}", said.stderr);
    assert!(std::fs::read(&bundle).unwrap() == before);
}

#[test]
fn a_run_gives_the_sums() {
    if !found("can_run_on_cpu") {
        return;
    }
    let folder = Folder::new();
    let (model, bundle) = bundle(&folder);
    let inputs =
        npz(&folder, "in.npz", &[("x", "<f4", &[2, 3], f32_bytes(&[0.0, 1.0, 2.0, -3.0, 3.0, -1.0]))]);
    let outputs = folder.path("out.npz").to_str().unwrap().to_owned();
    // relu(x + [1, -2, 0.5]), by hand.
    let expected = f32_bytes(&[1.0, 0.0, 2.5, 0.0, 1.0, 0.0]);
    for subject in [&bundle, &model] {
        for flags in [&[][..], &["--segments"], &["--networks"], &["--device", "cpu"]] {
            let arguments = [&["run", subject, "--inputs", &inputs, "--outputs", &outputs], flags].concat();
            let said = trtc(&arguments).code(0);
            assert_eq!(said.stdout, "y  f32[2 x 3]  1 0 2.5 0 1 0\n", "{arguments:?}");
            assert_eq!(npz_data(&outputs, "y"), expected, "{arguments:?}");
        }
    }
    let mut child = command(&["run", "-", "--inputs", &inputs])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&std::fs::read(&model).unwrap()).unwrap();
    let ended = said(child.wait_with_output().unwrap()).code(0);
    assert_eq!(ended.stdout, "y  f32[2 x 3]  1 0 2.5 0 1 0\n");
}

#[test]
fn made_up_inputs_are_the_same_each_time() {
    if !found("can_run_on_cpu") {
        return;
    }
    let folder = Folder::new();
    let (model, bundle) = bundle(&folder);
    let run = |subject: &str, seed: &str| trtc(&["run", subject, "--random", seed]).code(0).stdout;
    assert_eq!(run(&bundle, "7"), run(&bundle, "7"));
    assert_ne!(run(&bundle, "7"), run(&bundle, "8"));
    assert_eq!(run(&bundle, "7"), run(&model, "7"));
}

#[test]
fn wrong_inputs_are_named() {
    if !found("can_run_on_cpu") {
        return;
    }
    let folder = Folder::new();
    let (_, bundle) = bundle(&folder);
    let none = trtc(&["run", &bundle]).code(2);
    assert!(none.stderr.contains("--random"), "{}", none.stderr);
    let text = folder.file("text.npz", "hello");
    let dims = npz(&folder, "dims.npz", &[("x", "<f4", &[2, 4], f32_bytes(&[0.0; 8]))]);
    let dtype = npz(&folder, "dtype.npz", &[("x", "<f8", &[1, 3], vec![0; 24])]);
    let name = npz(&folder, "name.npz", &[("z", "<f4", &[1, 3], vec![0; 12])]);
    let lying = npz(&folder, "lying.npz", &[("x", "<f4", &[1, 3], vec![0; 8])]);
    for (file, word) in [
        (&text, "not an .npz"),
        (&dims, "`x`"),
        (&dtype, "float64"),
        (&name, "`x` is missing"),
        (&lying, "8 bytes of data"),
    ] {
        let said = trtc(&["run", &bundle, "--inputs", file]).code(2);
        assert!(said.stderr.contains(word) && said.stdout.is_empty(), "{word}: {}", said.stderr);
    }
    let absent = trtc(&["run", &bundle, "--inputs", "/no/such.npz"]).code(2);
    assert!(absent.stderr.contains("/no/such.npz"), "{}", absent.stderr);
}

#[test]
fn a_gpu_that_is_not_there_is_missing() {
    let folder = Folder::new();
    let (_, bundle) = bundle(&folder);
    let said = trtc(&["run", &bundle, "--random", "1", "--device", "cuda:99"]).code(3);
    assert!(said.stderr.starts_with("error: "), "{}", said.stderr);
}

#[test]
fn a_library_that_is_named_but_not_there_is_missing() {
    let folder = Folder::new();
    let (_, bundle) = bundle(&folder);
    let mut run = command(&["run", &bundle, "--random", "1"]);
    let ended = said(run.env("TRTC_ORT_LIB", "/no/such/lib.so").output().unwrap()).code(3);
    assert!(ended.stderr.contains("TRTC_ORT_LIB"), "{}", ended.stderr);
}

#[test]
fn a_measurement_has_its_keys() {
    if !found("can_run_on_cpu") {
        return;
    }
    let folder = Folder::new();
    let (model, bundle) = bundle(&folder);
    let json = folder.path("b.json").to_str().unwrap().to_owned();
    for (subject, flags) in [(&bundle, &[][..]), (&bundle, &["--segments"]), (&model, &[])] {
        let arguments =
            ["bench", subject, "--iterations", "20", "--warmup-ms", "1", "--threads", "2", "--json", &json];
        let said = trtc(&[&arguments[..], flags].concat()).code(0);
        assert!(said.stdout.contains("20 from 2 threads") && said.stderr.is_empty(), "{}", said.stdout);
        let read: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
        assert_eq!((&read["iterations"], &read["threads"]), (&20.into(), &2.into()));
        let latency = |key: &str| read["latency_us"][key].as_f64().unwrap();
        let ordered = ["min", "p50", "p90", "p95", "p99", "max"].map(latency);
        assert!(ordered.is_sorted() && ordered[0] > 0.0 && latency("mean") > 0.0, "{read}");
        assert!(read["throughput_per_s"].as_f64().unwrap() > 0.0);
        let segments = read["segments"].as_array().unwrap();
        assert!(
            !segments.is_empty() && segments[0]["id"].is_string() && segments[0]["mean_us"].is_number(),
            "{read}"
        );
    }
}
