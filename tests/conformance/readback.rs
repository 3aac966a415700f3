//! NVIDIA's own parser read back: its networks, raised to ONNX by our raiser, must give the expected outputs. That tests the
//! raiser against somebody else's lowering.
//!
//! `readback/reader.cpp` (with `layers.h`) hands the networks out, in a process of its own; `make conformance` builds it.

use crate::{
    cases::{Case, DataSet, Facts},
    execute::{compare_outputs, raised},
    result::Status,
};
use anyhow::{Context as _, Result};
use bytes::Bytes;
use serde::Deserialize;
use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::{Mutex, PoisonError},
};
use trtc_bundle::DType;
use trtc_network::{
    Lowered, Network,
    raise::{RaiseError, RaiseOptions, raise},
};
use trtc_runtime::{Input, Session, SessionOptions, host::ModelSource};

/// What the reader writes.
#[derive(Deserialize)]
struct Read {
    network: Network,
    /// Offset and length of each block of weights.
    spans: Vec<(usize, usize)>,
}

/// The process that reads.
struct Reader {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

static READER: Mutex<Option<Reader>> = Mutex::new(None);

impl Reader {
    fn start() -> Result<Reader> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut child = Command::new(root.join("target/peer/readback"))
            .arg(root.join(".sdk/lib"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let stdin = child.stdin.take().context("no stdin")?;
        let stdout = BufReader::new(child.stdout.take().context("no stdout")?);
        Ok(Reader { child, stdin, stdout })
    }

    fn ask(&mut self, model: &Path, out: &Path) -> Result<String> {
        writeln!(self.stdin, "{}\t{}", model.display(), out.display())?;
        self.stdin.flush()?;
        let mut answer = String::new();
        // The library may print, too.
        while !["ok", "refused", "unreadable"].iter().any(|word| answer.starts_with(word)) {
            answer.clear();
            anyhow::ensure!(self.stdout.read_line(&mut answer)? > 0, "the reader is gone");
        }
        Ok(answer.trim_end().to_owned())
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // It may be gone already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Runs the case through NVIDIA's parser and our raiser.
pub fn run_readback(case: &Case, sets: &[DataSet], facts: Facts, folder: &Path) -> Status {
    let out = folder.join("readback");
    let mut reader = READER.lock().unwrap_or_else(PoisonError::into_inner);
    let mut running = match reader.take().map_or_else(Reader::start, Ok) {
        Ok(running) => running,
        Err(_) => return Status::Skipped("no reader: `make conformance` builds target/peer/readback".into()),
    };
    match running.ask(&case.model_path, &out) {
        Ok(answer) => {
            *reader = Some(running);
            if answer != "ok" {
                return Status::Skipped(answer);
            }
        }
        Err(error) => return Status::Skipped(format!("NVIDIA's parser crashed: {error}")),
    }
    drop(reader);
    let lowered = match lowered(&out) {
        Ok(lowered) => lowered,
        Err(error) => return Status::wrong("read", format!("{error:#}")),
    };
    if let Some(why) = narrowed(&lowered.network, sets) {
        return Status::Skipped(why);
    }
    let model = match raise(&lowered, &RaiseOptions::new()) {
        Ok(model) => model,
        Err(error @ RaiseError::NoCounterpart { .. }) => return Status::Skipped(error.to_string()),
        Err(error) => return Status::wrong("raise", error),
    };
    let bytes = match trtc_onnx::write::encode(&model) {
        Ok(bytes) => bytes,
        Err(error) => return Status::wrong("raise", error),
    };
    let source = ModelSource::Bytes { model: &bytes, folder: None };
    let session = match Session::of_model(source, &SessionOptions::default().optimize(false)) {
        Ok(session) => session,
        Err(_) if has_nibbles(&lowered.network) => {
            return Status::Skipped("ONNX Runtime hands no types of 4 bits on".into());
        }
        Err(error) => return Status::wrong("session", error),
    };
    for set in sets {
        let taken = |name: &str| session.inputs().iter().any(|input| input.name == name);
        let inputs: Vec<(&str, Input<'_>)> = set
            .inputs
            .iter()
            .filter(|(name, _)| taken(name))
            .map(|(name, value)| (name.as_str(), value.into()))
            .collect();
        let status = compare_outputs(&session, &inputs, &set.outputs, raised(facts));
        if status != Status::Right {
            return status;
        }
    }
    Status::Right
}

fn lowered(out: &Path) -> Result<Lowered> {
    let beside = |extension: &str| PathBuf::from(format!("{}.{extension}", out.display()));
    let read: Read = serde_json::from_slice(&std::fs::read(beside("json"))?)?;
    let bytes = Bytes::from(std::fs::read(beside("bin"))?);
    let weights = read.spans.iter().map(|&(at, len)| bytes.slice(at..at + len)).collect();
    Ok(Lowered { network: read.network, weights })
}

fn has_nibbles(network: &Network) -> bool {
    network.tensors.iter().any(|tensor| matches!(tensor.dtype, DType::I4 | DType::F4E2M1))
}

/// An input or output for which the parser takes another name or dtype than the model has: it narrows without a word.
fn narrowed(network: &Network, sets: &[DataSet]) -> Option<String> {
    let given = |name: &str| sets.iter().all(|set| set.inputs.iter().any(|(given, _)| given == name));
    if let Some(stranger) = network.inputs.iter().find(|port| !given(&port.name)) {
        return Some(format!("NVIDIA's parser has an input `{}`", stranger.name));
    }
    let ports = network.inputs.iter().map(|port| (&port.name, port.tensor));
    let ports = ports.chain(network.outputs.iter().map(|port| (&port.name, port.tensor)));
    for (name, tensor) in ports {
        let values = sets.iter().flat_map(|set| set.inputs.iter().chain(&set.outputs));
        let own = values.filter(|(given, _)| given == name).find_map(|(_, value)| value.as_tensor())?.dtype();
        let theirs = network.tensor(tensor)?.dtype;
        if own != theirs {
            return Some(format!("NVIDIA's parser takes {theirs} for {own}"));
        }
    }
    None
}
