//! The cases on disk: models, inputs, expected outputs.

use crate::{folder, values};
use anyhow::{Context as _, Result};
use serde::Deserialize;
use std::{
    collections::HashSet,
    path::{Path, PathBuf},
};
use trtc_onnx::{ModelProto, OnnxFile, ValueInfoProto};
use trtc_runtime::Value;

/// Kinds of cases, in the order in which they are run.
pub const KINDS: [&str; 5] = ["node", "simple", "pytorch-operator", "pytorch-converted", "light"];

/// Where `write_cases.py` puts them.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(".sdk/conformance")
}

/// A case, by `kind/name`, or by the path of its model in the folder that is tried ([`folder`]).
#[derive(Clone, Debug)]
pub struct Case {
    pub id: String,
    /// Where its data sets are.
    pub folder: PathBuf,
    pub model_path: PathBuf,
}

impl Case {
    pub fn find(id: &str) -> Case {
        let (model_path, folder) = match folder::get() {
            Some(folder) => {
                let model = folder.models.join(id);
                let beside = model.parent().unwrap_or(&folder.models).to_owned();
                (model, beside)
            }
            None => (root().join(id).join("model.onnx"), root().join(id)),
        };
        Case { id: id.to_owned(), folder, model_path }
    }

    pub fn facts(&self) -> Result<Facts> {
        if folder::get().is_some() {
            return Ok(Facts { plain: false, rtol: 1e-3, atol: 1e-5 });
        }
        let path = self.folder.join("case.json");
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        Ok(serde_json::from_str(&text)?)
    }

    /// The model and its data sets.
    pub fn load(&self) -> Result<(ModelProto, Vec<DataSet>)> {
        let model = OnnxFile::open(&self.model_path)?.model;
        let (inputs, outputs) = ports(&model);
        let mut sets = Vec::new();
        for k in 0.. {
            let folder = self.folder.join(format!("test_data_set_{k}"));
            if !folder.is_dir() {
                break;
            }
            let read = |what: &str, infos: &[ValueInfoProto]| -> Result<Vec<(String, Value)>> {
                let mut values = Vec::new();
                for (i, info) in infos.iter().enumerate() {
                    let path = folder.join(format!("{what}_{i}.pb"));
                    if path.exists() {
                        let bytes = std::fs::read(&path)?;
                        let value =
                            values::decode(&bytes, info).with_context(|| path.display().to_string())?;
                        values.push((info.name.clone().unwrap_or_default(), value));
                    }
                }
                Ok(values)
            };
            sets.push(DataSet { inputs: read("input", &inputs)?, outputs: read("output", &outputs)? });
        }
        if let (true, Some(folder)) = (sets.is_empty(), folder::get()) {
            sets = folder::data_sets(folder, &self.model_path, &model)?;
        }
        Ok((model, sets))
    }
}

/// What `case.json` says.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Facts {
    /// A node case as it is, not an expanded function.
    pub plain: bool,
    /// Tolerance for f32 and f64.
    pub rtol: f64,
    /// Tolerance for f32 and f64.
    pub atol: f64,
}

/// Inputs and expected outputs, by name.
#[derive(Clone, Debug, Default)]
pub struct DataSet {
    pub inputs: Vec<(String, Value)>,
    pub outputs: Vec<(String, Value)>,
}

/// Inputs that have no initializer, and outputs.
pub fn ports(model: &ModelProto) -> (Vec<ValueInfoProto>, Vec<ValueInfoProto>) {
    let Some(graph) = &model.graph else { return Default::default() };
    let given: HashSet<Option<&str>> =
        graph.initializer.iter().map(|tensor| tensor.name.as_deref()).collect();
    let inputs = graph.input.iter().filter(|info| !given.contains(&info.name.as_deref()));
    (inputs.cloned().collect(), graph.output.clone())
}

/// All cases, sorted by kind and name; `None` where they have not been written.
pub fn all() -> Option<Vec<Case>> {
    let root = root();
    root.join("stamp.json").exists().then(|| {
        let mut cases = Vec::new();
        for kind in KINDS {
            let Ok(entries) = std::fs::read_dir(root.join(kind)) else { continue };
            let mut names: Vec<String> =
                entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
            names.sort();
            cases.extend(names.iter().map(|name| Case::find(&format!("{kind}/{name}"))));
        }
        cases
    })
}
