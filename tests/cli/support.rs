//! Runs the executable; makes small models.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};
use trtc_bundle::DType;
use trtc_onnx::{ModelProto, write::*};

/// A folder of its own for one test, gone afterwards.
pub struct Folder(tempfile::TempDir);

impl Folder {
    pub fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file and returns its path.
    pub fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        std::fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// Writes a model and returns its path.
    pub fn model(&self, name: &str, model: &ModelProto) -> String {
        self.file(name, encode(model).unwrap())
    }

    /// Names of the files in it.
    pub fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().to_str().unwrap().to_owned()).collect();
        names.sort();
        names
    }
}

/// The executable, in a folder where nothing lies.
pub fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trtc"));
    command.args(arguments).stdin(Stdio::null()).current_dir(std::env::temp_dir()).env_remove("TRTC_LOG");
    command
}

/// What a run said.
pub struct Said {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Said {
    /// The run, which must have ended so.
    #[track_caller]
    pub fn code(self, code: i32) -> Said {
        assert_eq!(self.code, code, "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self
    }
}

pub fn said(output: Output) -> Said {
    Said {
        code: output.status.code().expect("ended by a signal"),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Runs it.
pub fn trtc(arguments: &[&str]) -> Said {
    said(command(arguments).output().unwrap())
}

/// Runs it in `folder`.
pub fn trtc_in(folder: &Path, arguments: &[&str]) -> Said {
    said(command(arguments).current_dir(folder).output().unwrap())
}

/// `y = relu(x + w)`, `x` of the shape N x 3, and `z` the text of an operator that nobody knows unless `plain`.
pub fn small_model(plain: bool) -> ModelProto {
    let relu = if plain { "Relu" } else { "example.org::Unheard" };
    let mut model = model(
        17,
        graph(
            "small",
            [node("Add", &["x", "w"], &["s"], []).named("add"), node(relu, &["s"], &["y"], []).named("last")],
            [value_info("x", DType::F32, [trtc_onnx::Dimension::from("N"), 3.into()])],
            [value_info("y", DType::F32, [trtc_onnx::Dimension::from("N"), 3.into()])],
            [tensor_f32("w", &[3], &[1.0, -2.0, 0.5])],
        ),
    );
    if !plain {
        model.opset_import.push(opset_import("example.org", 1));
    }
    model
}
