//! A folder of models from elsewhere as cases (`--folder`), each with the data that stands beside it.
//!
//! * `test_data_set_<k>/{input,output}_<i>.pb` beside the model, as onnx's own tests have them;
//! * else `NAME.npz` beside `NAME.onnx`, or `<first 16 of the file's sha256>.npz` in the folder of `--references`, with the
//!   arrays `in<i>|INPUT` and `out<i>|OUTPUT`, one of each input and output; `NAME.1.npz`, `NAME.2.npz` and so on hold
//!   further data of the same model, of other sizes perhaps;
//! * else none: the model is compiled, and its engines are built. A model that is refused as invalid is then as it should be.

use crate::{
    cases::{Case, DataSet, ports},
    npz,
};
use anyhow::{Context as _, Result, anyhow};
use sha2::{Digest as _, Sha256};
use std::{
    path::{Path, PathBuf},
    sync::OnceLock,
};
use trtc_bundle::DType;
use trtc_onnx::{ModelProto, TypeValue, ValueInfoProto};
use trtc_runtime::Value;

/// Where the models are, and their data where it is not beside them.
#[derive(Clone, Debug)]
pub struct Folder {
    pub models: PathBuf,
    pub references: Option<PathBuf>,
}

static FOLDER: OnceLock<Folder> = OnceLock::new();

/// Makes `folder` that of every case from here on.
pub fn set(folder: Folder) {
    FOLDER.get_or_init(|| folder);
}

/// The folder that cases come from, if not those of the onnx package.
pub fn get() -> Option<&'static Folder> {
    FOLDER.get()
}

/// All models below the folder, sorted by path.
pub fn all(folder: &Folder) -> Result<Vec<Case>> {
    let mut found = Vec::new();
    let mut open = vec![folder.models.clone()];
    while let Some(next) = open.pop() {
        for entry in std::fs::read_dir(&next).with_context(|| next.display().to_string())? {
            let path = entry?.path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "onnx") {
                let name = path.strip_prefix(&folder.models).unwrap_or(&path);
                found.push(name.to_string_lossy().into_owned());
            }
        }
    }
    found.sort();
    Ok(found.iter().map(|name| Case::find(name)).collect())
}

/// The data sets of a model that stand in an `.npz` file; none where there is no such file.
pub fn data_sets(folder: &Folder, path: &Path, model: &ModelProto) -> Result<Vec<DataSet>> {
    let beside = path.with_extension("npz");
    let found = match &folder.references {
        _ if beside.exists() => Some(beside),
        Some(references) => {
            let hash = Sha256::digest(std::fs::read(path)?);
            let name: String = hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
            Some(references.join(format!("{name}.npz"))).filter(|path| path.exists())
        }
        None => None,
    };
    let Some(found) = found else { return Ok(Vec::new()) };
    let further = (1..).map(|number| found.with_extension(format!("{number}.npz")));
    let further = further.take_while(|path| path.exists());
    let ports = ports(model);
    std::iter::once(found.clone()).chain(further).map(|path| data_set(&path, &ports)).collect()
}

/// The data set of one `.npz` file.
fn data_set(path: &Path, (inputs, outputs): &(Vec<ValueInfoProto>, Vec<ValueInfoProto>)) -> Result<DataSet> {
    let mut set = DataSet::default();
    for (key, array) in npz::read(path).map_err(|error| anyhow!("{}: {error}", path.display()))? {
        let parts =
            key.split_once('|').filter(|(place, _)| place.starts_with("in") || place.starts_with("out"));
        let (place, name) = parts.with_context(|| format!("{key}: not `in<i>|NAME` or `out<i>|NAME`"))?;
        let (infos, values) = match place.starts_with("in") {
            true => (inputs, &mut set.inputs),
            false => (outputs, &mut set.outputs),
        };
        let value =
            value(&array, declared(infos, name)).with_context(|| format!("{}: {key}", path.display()))?;
        values.push((name.to_owned(), value));
    }
    Ok(set)
}

/// The dtype that the model gives a tensor of its interface.
fn declared(infos: &[ValueInfoProto], name: &str) -> Option<DType> {
    let info = infos.iter().find(|info| info.name.as_deref() == Some(name))?;
    match info.r#type.as_ref()?.value.as_ref()? {
        TypeValue::Tensor(tensor) => DType::from_onnx(tensor.elem_type?),
        _ => None,
    }
}

/// The array as the dtype that the model says, or as the one that numpy has for it.
fn value(array: &npz::Array, declared: Option<DType>) -> Result<Value> {
    const PLAIN: [DType; 13] = [
        DType::F32,
        DType::F64,
        DType::F16,
        DType::Bool,
        DType::I8,
        DType::I16,
        DType::I32,
        DType::I64,
        DType::U8,
        DType::U16,
        DType::U32,
        DType::U64,
        DType::Str,
    ];
    let mut tried = declared.into_iter().chain(PLAIN).map(|dtype| npz::value_of(array, dtype));
    let first = tried.next().context("no dtype")?;
    match (first, tried.find_map(Result::ok)) {
        (Ok(value), _) | (Err(_), Some(value)) => Ok(value),
        (Err(error), None) => Err(anyhow!(error)),
    }
}
