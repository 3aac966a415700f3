//! Opening a model: mapped, decoded in place, external data mapped on demand and kept inside the model's folder.

use crate::{Error, ExternalFault, ModelProto, Result, Tensor, TensorData, TensorFault, TensorProto};
use bytes::Bytes;
use prost::Message;
use std::{
    collections::BTreeMap,
    io,
    ops::Range,
    path::{Component, Path, PathBuf},
    sync::{Mutex, PoisonError},
};
use trtc_bundle::{DType, MappedFile};

/// A decoded model and the files that its tensors lie in.
#[derive(Debug)]
pub struct OnnxFile {
    /// The model. Its byte fields are slices of the mapped file.
    pub model: ModelProto,
    file: Option<MappedFile>,
    bytes: Bytes,
    /// Canonical folders that external data may lie in; the first is the one that locations are relative to.
    folders: Vec<PathBuf>,
    external: Mutex<BTreeMap<PathBuf, MappedFile>>,
}

impl OnnxFile {
    /// Maps and decodes a file.
    ///
    /// # Errors
    /// The file cannot be read, is not an ONNX model, or lacks its graph or IR version.
    pub fn open(path: impl AsRef<Path>) -> Result<OnnxFile> {
        let path = path.as_ref();
        let io = |source: io::Error| Error::Io { path: path.to_owned(), source };
        let file = match MappedFile::open(path) {
            Err(source) if source.kind() == io::ErrorKind::InvalidData => {
                let why = "the file is empty".to_owned();
                return Err(Error::NotOnnx { origin: path.display().to_string(), why });
            }
            result => result.map_err(io)?,
        };
        // A model that is a symbolic link (download caches keep theirs so) has its data beside the link or beside the file.
        let folder = |path: &Path| {
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            parent.unwrap_or(Path::new(".")).canonicalize()
        };
        let mut folders = vec![folder(path).map_err(io)?];
        let real = folder(&path.canonicalize().map_err(io)?).map_err(io)?;
        if real != folders[0] {
            folders.push(real);
        }
        let model = decode(file.bytes(), &path.display().to_string())?;
        Ok(OnnxFile { model, bytes: file.bytes(), file: Some(file), folders, external: Mutex::default() })
    }

    /// Decodes a mapped file that stands for no path (standard input kept in a memfd). External data is looked for in
    /// `folder`, and refused when there is none.
    ///
    /// # Errors
    /// As [`OnnxFile::open`].
    pub fn from_mapped(file: MappedFile, folder: Option<PathBuf>) -> Result<OnnxFile> {
        let origin = file.path().display().to_string();
        let mut read = OnnxFile::from_origin(file.bytes(), folder, &origin)?;
        read.file = Some(file);
        Ok(read)
    }

    /// Decodes bytes; byte fields of the model are slices of them. External data is looked for in `folder`, and refused
    /// when there is none.
    ///
    /// # Errors
    /// As [`OnnxFile::open`].
    pub fn from_bytes(bytes: impl Into<Bytes>, folder: Option<PathBuf>) -> Result<OnnxFile> {
        OnnxFile::from_origin(bytes.into(), folder, "model bytes")
    }

    fn from_origin(bytes: Bytes, folder: Option<PathBuf>, origin: &str) -> Result<OnnxFile> {
        let folder = folder
            .map(|path| path.canonicalize().map_err(|source| Error::Io { path, source }))
            .transpose()?;
        let model = decode(bytes.clone(), origin)?;
        Ok(OnnxFile { model, file: None, bytes, folders: Vec::from_iter(folder), external: Mutex::default() })
    }

    /// The encoded model as it was read.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The mapped files: the model itself (when it was mapped), then external data used so far, by path.
    pub fn files(&self) -> Vec<MappedFile> {
        let external = self.external.lock().unwrap_or_else(PoisonError::into_inner);
        self.file.iter().chain(external.values()).cloned().collect()
    }

    /// The mapped file that `slice` lies in, and where; `None` when it was copied (typed fields of packed integers are).
    pub fn locate(&self, slice: &Bytes) -> Option<(MappedFile, Range<u64>)> {
        self.files().into_iter().find_map(|file| file.offset_of(slice).map(|range| (file, range)))
    }

    /// Version of each operator set that the model imports, `""` standing for ai.onnx; of repeated entries the last
    /// one counts. Models before IR version 3 say nothing and mean version 1.
    pub fn opsets(&self) -> BTreeMap<String, i64> {
        opsets(&self.model.opset_import)
    }

    /// The elements of a tensor of this model, external or not.
    ///
    /// # Errors
    /// Type, shape and data do not fit each other, or external data is missing, out of range or outside of the model's folder.
    pub fn tensor(&self, tensor: &TensorProto) -> Result<Tensor> {
        if !tensor.is_external() {
            return tensor.to_tensor();
        }
        let header = tensor.header().map_err(|fault| tensor.error(fault))?;
        if header.dtype == DType::Str {
            return Err(tensor.error(TensorFault::StringsElsewhere("external data")));
        }
        let location = tensor.external_key("location").unwrap_or("");
        let external =
            |fault| Error::External { name: tensor.name().to_owned(), location: location.to_owned(), fault };
        let offset = number(tensor, "offset").map_err(external)?.unwrap_or(0);
        let length = number(tensor, "length").map_err(external)?.unwrap_or(header.bytes as u64);
        if length != header.bytes as u64 {
            return Err(tensor.error(TensorFault::WrongSize {
                dtype: header.dtype.name(),
                dims: tensor.dims.clone(),
                expected: header.bytes,
                found: usize::try_from(length).unwrap_or(usize::MAX),
                unit: "bytes",
                field: "external data",
            }));
        }
        let data = match header.bytes {
            // The file of an empty tensor may be empty or never written.
            0 => Bytes::new(),
            _ => {
                let file = self.external_file(location).map_err(external)?;
                let (end, size) = (offset.saturating_add(length), file.len());
                if end > size {
                    return Err(external(ExternalFault::OutOfFile { offset, end, size }));
                }
                file.bytes().slice(offset as usize..end as usize)
            }
        };
        Ok(Tensor { dtype: header.dtype, dims: tensor.dims.clone(), data: TensorData::Bytes(data) })
    }

    /// Maps the file `location`, once, after checking that it is inside the model's folder.
    fn external_file(&self, location: &str) -> Result<MappedFile, ExternalFault> {
        if location.is_empty() {
            return Err(ExternalFault::NoLocation);
        }
        let relative = Path::new(location);
        if relative.components().any(|part| !matches!(part, Component::Normal(_) | Component::CurDir)) {
            return Err(ExternalFault::OutsidePath);
        }
        let real = self.folders.iter().map(|folder| folder.join(relative).canonicalize());
        let real = real.reduce(|first, second| first.or(second)).ok_or(ExternalFault::NoFolder)??;
        if !self.folders.iter().any(|folder| real.starts_with(folder)) {
            return Err(ExternalFault::OutsideLink(real));
        }
        let mut files = self.external.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = files.get(&real) {
            return Ok(file.clone());
        }
        let file = MappedFile::open(&real)?;
        files.insert(real, file.clone());
        Ok(file)
    }
}

/// See [`OnnxFile::opsets`]; functions have imports of their own.
pub fn opsets(imports: &[crate::OperatorSetIdProto]) -> BTreeMap<String, i64> {
    let entries = imports.iter().map(|import| {
        let domain = match import.domain.as_deref() {
            None | Some("ai.onnx") => "",
            Some(domain) => domain,
        };
        (domain.to_owned(), import.version.unwrap_or(0))
    });
    let mut opsets: BTreeMap<_, _> = entries.collect();
    if opsets.is_empty() {
        opsets.insert(String::new(), 1);
    }
    opsets
}

fn number(tensor: &TensorProto, key: &'static str) -> Result<Option<u64>, ExternalFault> {
    tensor
        .external_key(key)
        .map(|value| {
            value.trim().parse().map_err(|_| ExternalFault::NotANumber { key, value: value.to_owned() })
        })
        .transpose()
}

fn decode(bytes: Bytes, origin: &str) -> Result<ModelProto> {
    let not_onnx = |why: String| Error::NotOnnx { origin: origin.to_owned(), why };
    if bytes.is_empty() {
        return Err(not_onnx("there are no bytes".to_owned()));
    }
    let model = match ModelProto::decode(bytes.clone()) {
        Ok(model) => model,
        Err(error) => {
            return Err(not_onnx(match sniff(&bytes) {
                Some(what) => format!("it is {what}"),
                None => format!("{} bytes that do not decode, cut off or damaged ({error})", bytes.len()),
            }));
        }
    };
    let lacking = match (&model.graph, model.ir_version) {
        (None, _) => "it has no graph",
        (_, None) => "it does not say its ir_version",
        (_, Some(3..)) if model.opset_import.is_empty() => "it imports no operator set (opset_import)",
        _ => return Ok(model),
    };
    // Many a short text happens to decode as unknown fields.
    match sniff(&bytes) {
        Some(what) => Err(not_onnx(format!("it is {what}"))),
        None if model == ModelProto::default() => {
            Err(not_onnx("it decodes, but holds no field that a model has".to_owned()))
        }
        None => Err(Error::Incomplete { origin: origin.to_owned(), why: lacking.to_owned() }),
    }
}

/// What the bytes are, when they are something well known that is not an ONNX model.
fn sniff(bytes: &[u8]) -> Option<&'static str> {
    let magics: [(usize, &[u8], &str); 12] = [
        (
            0,
            b"version https://git-lfs",
            "a Git LFS pointer, not the file itself (fetch it with `git lfs pull`)",
        ),
        (0, b"PK\x03\x04", "a zip archive (a .pt2, .pt or .npz file?)"),
        (0, b"\x1f\x8b", "compressed with gzip"),
        (0, b"\xfd7zXZ", "compressed with xz"),
        (0, b"\x28\xb5\x2f\xfd", "compressed with zstd"),
        (0, b"\x89HDF", "an HDF5 file"),
        (0, b"\x93NUMPY", "a NumPy array"),
        (0, b"\x7fELF", "an executable or library"),
        (0, b"GGUF", "a GGUF file"),
        (0, b"ftrt", "a TensorRT engine"),
        (4, b"ORTM", "a model in ONNX Runtime's own format (.ort)"),
        (4, b"TFL3", "a TensorFlow Lite model"),
    ];
    for (at, magic, what) in magics {
        if bytes.get(at..).is_some_and(|rest| rest.starts_with(magic)) {
            return Some(what);
        }
    }
    if bytes.len() > 8 && bytes[8] == b'{' && bytes[4..8] == [0; 4] {
        return Some("a safetensors file");
    }
    let head = &bytes[..bytes.len().min(512)];
    let printable = |byte: &u8| matches!(byte, b'\t' | b'\n' | b'\r' | b' '..=b'~');
    if !head.iter().all(printable) {
        return None;
    }
    let text = head.trim_ascii_start();
    Some(match text {
        _ if text.starts_with(b"<!") || text.starts_with(b"<html") => "a web page (a download that failed?)",
        _ if text.starts_with(b"{") || text.starts_with(b"[") => "JSON text",
        _ if text.starts_with(b"<") => "text (ONNX's textual form? Only the binary form is read)",
        _ => "text",
    })
}
