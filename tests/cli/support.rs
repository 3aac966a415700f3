//! Runs the executable; makes small models.

use std::{
    io::{Read, Write},
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

/// What `trtc doctor` finds, or a line that says that a test is skipped without it.
pub fn found(what: &str) -> bool {
    let findings: serde_json::Value =
        serde_json::from_str(&trtc(&["doctor", "--format", "json"]).stdout).unwrap();
    let found = findings[what].as_bool().unwrap();
    if !found {
        println!("skipped: doctor says {what} = false (run `make sdk`)");
    }
    found
}

/// Writes an `.npz` file of little-endian arrays: name, numpy's type, dims, bytes.
pub fn npz(folder: &Folder, file: &str, arrays: &[(&str, &str, &[usize], Vec<u8>)]) -> String {
    let path = folder.path(file);
    let mut archive = zip::ZipWriter::new(std::fs::File::create(&path).unwrap());
    let options = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    for (name, descr, dims, bytes) in arrays {
        let dims: String = dims.iter().map(|dim| format!("{dim}, ")).collect();
        let mut dict =
            format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({dims}), }}").into_bytes();
        dict.resize((10 + dict.len() + 1).next_multiple_of(64) - 10 - 1, b' ');
        dict.push(b'\n');
        archive.start_file(format!("{name}.npy"), options).unwrap();
        archive.write_all(b"\x93NUMPY\x01\x00").unwrap();
        archive.write_all(&(dict.len() as u16).to_le_bytes()).unwrap();
        archive.write_all(&dict).unwrap();
        archive.write_all(bytes).unwrap();
    }
    archive.finish().unwrap();
    path.to_str().unwrap().to_owned()
}

/// The data of an array in an `.npz` file.
pub fn npz_data(path: &str, name: &str) -> Vec<u8> {
    let mut archive = zip::ZipArchive::new(std::fs::File::open(path).unwrap()).unwrap();
    let mut bytes = Vec::new();
    archive.by_name(&format!("{name}.npy")).unwrap().read_to_end(&mut bytes).unwrap();
    let header = 10 + u16::from_le_bytes([bytes[8], bytes[9]]) as usize;
    bytes.split_off(header)
}

pub fn f32_bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
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
