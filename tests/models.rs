//! Every real model of `models/manifest.tsv`: partitioned, compiled with the real builder, and compared with ONNX Runtime, as
//! host graphs segment by segment and as TensorRT layers raised to ONNX.
//!
//! Models that are not in `.sdk/models` are skipped with a line; with `TRTC_ALL_MODELS=1` they must be there.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "tests")]

use serde_json::Value;
use std::{
    collections::HashSet,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
};
use trtc_runtime::{Mode, Session, SessionOptions, Tensor, host::ModelSource};

/// One compute capability: several make the same layers and take as many times as long.
const TARGET: &str = "rtx-1.7:sm89";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Name and file of each model of the manifest.
fn manifest() -> Vec<(String, PathBuf)> {
    let text = std::fs::read_to_string(root().join("models/manifest.tsv")).unwrap();
    let mut lines = text.lines().map(|line| line.split('\t').collect::<Vec<_>>());
    let head = lines.next().unwrap();
    let column = |name: &str| head.iter().position(|column| *column == name).unwrap();
    let (name, file) = (column("name"), column("file"));
    lines.map(|row| (row[name].to_owned(), root().join(".sdk/models").join(row[file]))).collect()
}

/// Exit code, stdout and stderr of a command.
fn trtc(arguments: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trtc"));
    let output = command.args(arguments).stdin(Stdio::null()).env_remove("TRTC_LOG").output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().expect("ended by a signal"), text(output.stdout), text(output.stderr))
}

#[track_caller]
fn done(arguments: &[&str]) -> String {
    let (code, stdout, stderr) = trtc(arguments);
    assert_eq!(code, 0, "{arguments:?}\n{stdout}\n{stderr}");
    stdout
}

/// What `trtc doctor` finds here.
fn found(what: &str) -> bool {
    static FINDINGS: OnceLock<Value> = OnceLock::new();
    let findings =
        FINDINGS.get_or_init(|| serde_json::from_str(&trtc(&["doctor", "--format", "json"]).1).unwrap());
    findings[what].as_bool().unwrap()
}

/// Each source node stands once, and the sums are right.
fn check_report(report: &Value) {
    let target = &report["targets"][0];
    let totals = |key: &str| target["totals"][key].as_u64().unwrap();
    let nodes = target["nodes"].as_array().unwrap();
    let names: HashSet<&str> = nodes.iter().map(|node| node["name"].as_str().unwrap()).collect();
    assert_eq!((nodes.len(), nodes.len() as u64), (names.len(), totals("nodes")));
    for (key, placement) in [
        ("engine_nodes", "engine"),
        ("host_nodes", "host"),
        ("schedule_nodes", "schedule"),
        ("folded", "folded"),
        ("removed", "removed"),
    ] {
        let count = nodes.iter().filter(|node| node["placement"] == placement).count();
        assert_eq!(count as u64, totals(key), "{key}");
    }
    for node in nodes.iter().filter(|node| node["placement"] == "host") {
        assert!(node["code"].is_string() && node["reason"].is_string(), "no reason: {node}");
        // Admitted, but refused by the builder or by our own lowering: a broken promise.
        assert!(!node["code"].as_str().unwrap().starts_with("E9"), "{node}");
    }
}

/// NVIDIA's parser splits a model by `supportsModelV2`; models/supports.tsv has what it says, and whether that is true
/// (`make bench-partitions` measures it). What it gets whole into its engines, we get whole into no more of them.
fn check_against_the_parser(name: &str, report: &Value) {
    let table = std::fs::read_to_string(root().join("models/supports.tsv")).unwrap();
    let row: Vec<&str> =
        table.lines().map(|line| line.split('\t').collect()).find(|row: &Vec<&str>| row[0] == name).unwrap();
    let [_, subgraphs, _, unsupported, builds] = row[..] else { panic!("{row:?}") };
    if (unsupported, builds) == ("0", "yes") {
        let totals = &report["targets"][0]["totals"];
        assert_eq!(totals["host_nodes"], 0, "{name}");
        assert!(totals["engines"].as_u64().unwrap() <= subgraphs.parse().unwrap(), "{name}: {totals}");
    }
}

fn check(name: &str) {
    let (_, file) = manifest().into_iter().find(|(known, _)| known == name).expect("in the manifest");
    if !file.is_file() {
        let wanted = std::env::var_os("TRTC_ALL_MODELS").is_some();
        assert!(!wanted, "{} is missing: run `make models`", file.display());
        return println!("skipped: {} is missing (run `make models`)", file.display());
    }
    let model = file.to_str().unwrap();
    let partition = done(&["partition", model, "--target", TARGET, "--format", "json"]);
    let report = serde_json::from_str(&partition).unwrap();
    check_report(&report);
    check_against_the_parser(name, &report);
    assert_eq!(partition, done(&["partition", model, "--target", TARGET, "--format", "json"]));

    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (bundle, report) = (path("model.trtc"), path("report.json"));
    if !found("can_compile") {
        return println!("skipped: no engines without the TensorRT-RTX library (run `make sdk`)");
    }
    done(&["compile", model, "-o", &bundle, "--target", TARGET, "--report", &report]);
    let report: Value = serde_json::from_slice(&std::fs::read(report).unwrap()).unwrap();
    check_report(&report);
    let segments = report["targets"][0]["segments"].as_array().unwrap();
    for segment in segments.iter().filter(|segment| segment["kind"] == "engine") {
        assert_eq!(segment["status"], "built", "{}", segment["id"]);
    }

    if !found("can_run_on_cpu") {
        return println!("skipped: no comparison without ONNX Runtime (run `make sdk`)");
    }
    let mut verify = vec!["verify", &bundle, "--model", model, "--segments", "--networks"];
    println!("{}", done(&verify));
    if name == "rapidocr-rec" {
        let inputs = root().join("models/text_line.npz");
        verify.extend(["--inputs", inputs.to_str().unwrap()]);
        println!("{}", done(&verify));
    }
}

macro_rules! models {
    ($($test:ident = $name:literal;)*) => {
        const TESTED: &[&str] = &[$($name),*];

        $(#[test]
        fn $test() {
            check($name);
        })*
    };
}

models! {
    rapidocr_cls = "rapidocr-cls";
    rapidocr_det = "rapidocr-det";
    rapidocr_rec = "rapidocr-rec";
    silero_vad = "silero-vad";
    silero_vad_16k_op15 = "silero-vad-16k-op15";
    silero_vad_16k_sequence = "silero-vad-16k-sequence";
    silero_vad_half = "silero-vad-half";
    silero_vad_op18_ifless = "silero-vad-op18-ifless";
    silero_vad_openvino_16k = "silero-vad-openvino-16k";
    magika = "magika";
    ddddocr_common = "ddddocr-common";
    ddddocr_common_det = "ddddocr-common-det";
    ddddocr_common_old = "ddddocr-common-old";
    minilm_int8 = "minilm-int8";
    tashkeel_bilstm_int8 = "tashkeel-bilstm-int8";
    tashkeel_rawi_int8 = "tashkeel-rawi-int8";
    tashkeel_rawi_ensemble_int8 = "tashkeel-rawi-ensemble-int8";
    tashkeel_rawi_v2_int8 = "tashkeel-rawi-v2-int8";
    tashkeel_rawi_v3_int8 = "tashkeel-rawi-v3-int8";
    open_nsfw = "open-nsfw";
    surfaces_gradient_boosting_regressor = "surfaces-gradient-boosting-regressor";
    surfaces_k_neighbors_classifier = "surfaces-k-neighbors-classifier";
    surfaces_k_neighbors_classifier_validity = "surfaces-k-neighbors-classifier-validity";
    surfaces_k_neighbors_regressor = "surfaces-k-neighbors-regressor";
    minimol = "minimol";
    gutenye_det = "gutenye-det";
    gutenye_rec = "gutenye-rec";
    gutenye_cls = "gutenye-cls";
    wakeword_alexa = "wakeword-alexa";
    wakeword_embedding_model = "wakeword-embedding-model";
    wakeword_hey_jarvis = "wakeword-hey-jarvis";
    wakeword_hey_mycroft = "wakeword-hey-mycroft";
    wakeword_hey_rhasspy = "wakeword-hey-rhasspy";
    wakeword_melspectrogram = "wakeword-melspectrogram";
    wakeword_timer = "wakeword-timer";
    wakeword_weather = "wakeword-weather";
}

/// Its If chooses between networks for two sampling rates: the schedule runs it, and both are in engines. Calls in a row
/// hand the state on, with the windows that the model is meant for.
#[test]
fn silero_vad_runs_its_branches_in_engines() {
    check_silero_vad(trtc::Options::default(), [576, 288]);
}

/// The same with a range of the input that both networks can take.
#[test]
fn silero_vad_runs_its_branches_in_engines_for_one_range() {
    check_silero_vad(trtc::Options::default().shape("input=1x192..256..351"), [256, 256]);
}

/// `windows`: samples of a call at 16 and at 8 kHz.
fn check_silero_vad(options: trtc::Options, windows: [usize; 2]) {
    let (_, file) = manifest().into_iter().find(|(known, _)| known == "silero-vad").unwrap();
    if !file.is_file() {
        return println!("skipped: {} is missing (run `make models`)", file.display());
    }
    let options = options.target(TARGET.parse().unwrap()).worker(env!("CARGO_BIN_EXE_trtc"));
    let report = trtc::partition(&file, &options).unwrap();
    let target = &report.targets[0];
    let of = |op: &'static str| target.nodes.iter().filter(move |row| row.op == op);
    for row in of("Conv").chain(of("LSTM")) {
        let word = row.placement.word();
        // The LSTM of states without a batch folds away with its branch.
        assert!(matches!(word, "engine" | "folded" | "removed"), "{}: {word}", row.name);
    }
    let engines = |op: &'static str| of(op).filter(|row| row.placement.word() == "engine").count();
    assert_eq!((engines("Conv"), engines("LSTM"), target.totals.schedule_nodes), (12, 2, 1), "{report}");
    assert!(target.segments.iter().any(|row| row.id == "If_0/then_branch/engine_1"), "{report}");
    if !found("can_compile") || !found("can_run_on_cpu") {
        return println!("skipped: no engines or no ONNX Runtime (run `make sdk`)");
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("silero.trtc");
    trtc::compile(&file, &path, &options, &trtc::Quiet).unwrap();
    let bundle = trtc::Bundle::open(&path).unwrap();
    let plain = SessionOptions::default().optimize(false);
    let original = Session::of_model(ModelSource::File(&file), &plain).unwrap();
    for networks in [false, true] {
        let mut options = plain.clone().mode(Mode::Segments);
        if networks {
            for (id, model) in trtc::raised_networks(&bundle, 0).unwrap() {
                options = options.twin_override(id, model);
            }
        }
        let session = Session::new(&bundle, &options).unwrap();
        let [at_16, at_8] = windows;
        for (rate, window) in [(16_000i64, at_16), (8_000, at_8), (16_000, at_16)] {
            let rate = Tensor::from_slice(&[], &[rate]).unwrap();
            let mut states = [(); 2].map(|()| Tensor::zeros(trtc_bundle::DType::F32, &[2, 1, 128]).unwrap());
            for call in 0..6usize {
                let samples: Vec<f32> =
                    (0..window).map(|k| ((k * (call + 3)) as f32 * 0.11).sin() * 0.4).collect();
                let x = Tensor::from_slice(&[1, window], &samples).unwrap();
                let mut results = Vec::new();
                for (session, state) in [&original, &session].into_iter().zip(&mut states) {
                    let inputs =
                        [("input", (&x).into()), ("state", (&*state).into()), ("sr", (&rate).into())];
                    let outputs = session.run(&inputs).unwrap();
                    let list = |name: &str| outputs.tensor(name).unwrap().as_slice::<f32>().unwrap().to_vec();
                    results.push([list("output"), list("stateN")].concat());
                    *state = outputs.tensor("stateN").unwrap().clone();
                }
                for (a, b) in results[0].iter().zip(&results[1]) {
                    assert!(
                        (a - b).abs() <= 1e-4 + 1e-3 * a.abs(),
                        "call {call}: {a} and {b}, networks: {networks}"
                    );
                }
            }
        }
    }
}

#[test]
fn every_model_of_the_manifest_is_tested() {
    let mut listed: Vec<String> = manifest().into_iter().map(|(name, _)| name).collect();
    let mut tested = TESTED.to_vec();
    listed.sort();
    tested.sort_unstable();
    assert_eq!(tested, listed);
}
