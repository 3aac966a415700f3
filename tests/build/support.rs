//! Models, compiles, and what they say.

use std::{
    path::{Path, PathBuf},
    sync::Mutex,
};
use trtc::{Bundle, Events, Options, Report, Target};
use trtc_bundle::{DType, Product};
use trtc_onnx::{ModelProto, NodeProto, write::*};
use trtc_runtime::{Input, Mode, Session, SessionOptions, Tensor, host::ModelSource};

/// Whether engines can be built here; a line that says so where they cannot.
pub fn can_build() -> bool {
    let found = trtc_tensorrt::locate(Product::Rtx, trtc_tensorrt::Use::Build, None);
    found.inspect_err(|missing| println!("skipped: {missing} (run `make sdk`)")).is_ok()
}

/// Options with this workspace's worker and one target.
pub fn options() -> Options {
    let target: Target = "rtx-1.7:sm89".parse().unwrap();
    Options::default().target(target).worker(env!("CARGO_BIN_EXE_trtc"))
}

/// A model `y = n(k-1)(... n1(n0(x)))` of elementwise operators with f32 [4, 4].
pub fn chain(count: usize) -> ModelProto {
    let ops = ["Sigmoid", "Tanh", "Neg", "Softplus", "Abs", "Cos"];
    let name = |k: usize| match k {
        0 => "x".to_owned(),
        k if k == count => "y".to_owned(),
        k => format!("v{k}"),
    };
    let one = |k: usize| -> NodeProto {
        node(ops[k % ops.len()], &[&name(k)], &[&name(k + 1)], []).named(&format!("n{k}"))
    };
    let tensor = |name| value_info(name, DType::F32, [4i64, 4]);
    model(17, graph("chain", (0..count).map(one), [tensor("x")], [tensor("y")], []))
}

/// Matrix products in a row, over f32 [64, 256]: work enough for each node to be worth an engine, whatever stands on the
/// host beside it.
pub fn products(count: usize) -> ModelProto {
    let name = |k: usize| match k {
        0 => "x".to_owned(),
        k if k == count => "y".to_owned(),
        k => format!("v{k}"),
    };
    let one = |k: usize| -> NodeProto {
        node("MatMul", &[&name(k), "w"], &[&name(k + 1)], []).named(&format!("n{k}"))
    };
    let tensor = |name| value_info(name, DType::F32, [64i64, 256]);
    let weights: Vec<f32> = (0..256 * 256).map(|k| ((k * 37 % 101) as f32 / 50.0 - 1.0) / 10.0).collect();
    let nodes: Vec<NodeProto> = (0..count).map(one).collect();
    let weights = [tensor_f32("w", &[256, 256], &weights)];
    model(17, graph("products", nodes, [tensor("x")], [tensor("y")], weights))
}

/// A folder with a model in it.
pub struct Place {
    folder: tempfile::TempDir,
    pub model: PathBuf,
}

impl Place {
    pub fn of(model: &ModelProto) -> Place {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.onnx");
        std::fs::write(&path, encode(model).unwrap()).unwrap();
        Place { folder, model: path }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn bundle(&self) -> PathBuf {
        self.path("model.trtc")
    }

    #[track_caller]
    pub fn compile(&self, options: &Options) -> Report {
        self.compile_with(options, &Heard::default())
    }

    #[track_caller]
    pub fn compile_with(&self, options: &Options, events: &Heard) -> Report {
        let report = trtc::compile(&self.model, &self.bundle(), options, events).unwrap();
        Bundle::open(self.bundle()).unwrap().verify().unwrap();
        report
    }

    /// The bundle's segments, and its networks as ONNX, give what ONNX Runtime gives for the model.
    #[track_caller]
    pub fn agrees(&self, target: usize) {
        let plain = SessionOptions::default().optimize(false);
        let original = match Session::of_model(ModelSource::File(&self.model), &plain) {
            Ok(session) => session,
            Err(why) => return println!("numbers are not compared: {why}"),
        };
        let bundle = Bundle::open(self.bundle()).unwrap();
        let dims = bundle.manifest().inputs[0].static_dims().unwrap();
        let elements: Vec<f32> =
            (0..dims.iter().product()).map(|k| (k * 13 % 17) as f32 / 5.0 - 1.3).collect();
        let x = Tensor::from_slice(&dims, &elements).unwrap();
        let inputs: [(&str, Input<'_>); 1] = [("x", (&x).into())];
        let expected = original.run(&inputs).unwrap();
        let expected = expected.tensor("y").unwrap().as_slice::<f32>().unwrap();
        for networks in [false, true] {
            let mut options = plain.clone().mode(Mode::Segments);
            options = options.target(bundle.manifest().targets[target].target.clone());
            if networks {
                for (id, model) in trtc::raised_networks(&bundle, target).unwrap() {
                    options = options.twin_override(id, model);
                }
            }
            let got = Session::new(&bundle, &options).unwrap().run(&inputs).unwrap();
            let got = got.tensor("y").unwrap().as_slice::<f32>().unwrap();
            for (a, b) in expected.iter().zip(got) {
                // Sums of 256 products, added up in another order at most.
                assert!((a - b).abs() <= 1e-5 * (1.0 + a.abs()), "{a} and {b}, networks: {networks}");
            }
        }
    }
}

/// Names of the nodes on the host, with the code of the reason.
pub fn on_host(report: &Report) -> Vec<(String, String)> {
    let rows = report.targets[0].nodes.iter().filter(|row| row.code.is_some());
    rows.map(|row| (row.name.clone(), row.code.clone().unwrap())).collect()
}

/// Events, as lines.
#[derive(Default)]
pub struct Heard {
    lines: Mutex<Vec<String>>,
}

impl Heard {
    pub fn lines(&self, prefix: &str) -> Vec<String> {
        let lines = self.lines.lock().unwrap();
        lines.iter().filter(|line| line.starts_with(prefix)).cloned().collect()
    }

    fn line(&self, line: String) {
        self.lines.lock().unwrap().push(line);
    }
}

impl Events for Heard {
    fn build_started(&self, target: &Target, segment: &str, _: usize) {
        self.line(format!("started {target} {segment}"));
    }

    fn build_ended(&self, target: &Target, segment: &str, _: f64, result: Result<u64, &str>) {
        let result = if result.is_ok() { "well" } else { "badly" };
        self.line(format!("ended {target} {segment} {result}"));
    }

    fn recovered(&self, _: &Target, segment: &str, seconds: f64, nodes: &[&str]) {
        assert!(seconds > 0.0);
        self.line(format!("recovered {segment}: {}", nodes.join(" ")));
    }

    fn warning(&self, text: &str) {
        self.line(format!("warning {text}"));
    }
}

/// Names of the files in a folder.
pub fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}
