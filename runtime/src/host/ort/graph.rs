//! Sessions of ONNX Runtime: made once, run by any number of threads at once.

use super::{
    OrtBackend, Shared, check, dtype,
    empty::empty_sequence,
    value::{OrtVal, Raw},
};
use crate::{
    host::{GraphOptions, HostError, HostGraph, HostOutput, ModelSource},
    value::{Input, Value},
};
use ::ort::{AsPointer, sys};
use smallvec::SmallVec;
use std::{
    ffi::{CStr, CString, c_char},
    mem::MaybeUninit,
    ops::Range,
    os::unix::ffi::OsStrExt,
    path::Path,
    ptr::{self, NonNull},
    sync::Arc,
};
use trtc_bundle::{DType, Dim, ValueInfo, ValueKind};

/// Folder that the external data of a model in memory is relative to.
const FOLDER_KEY: &CStr = c"session.model_external_initializers_file_folder_path";

/// A session that is ours to release.
pub(super) struct SessionHandle {
    ptr: NonNull<sys::OrtSession>,
    /// The environment must outlive its sessions.
    shared: Arc<Shared>,
}

// SAFETY: ONNX Runtime documents `Run` on one session as safe from several threads at once; nothing else is called after
// the session was made.
unsafe impl Send for SessionHandle {}
// SAFETY: as above.
unsafe impl Sync for SessionHandle {}

impl Drop for SessionHandle {
    fn drop(&mut self) {
        // SAFETY: owned, released once; runs hold a reference to it.
        unsafe { (::ort::api().ReleaseSession)(self.ptr.as_ptr()) }
    }
}

pub(super) struct OrtGraph {
    session: Arc<SessionHandle>,
    inputs: Ports,
    outputs: Ports,
    /// An output that is no tensor may hold on to the memory of an input, so inputs are copied then.
    copies_inputs: bool,
    /// Outputs that are inputs handed through. Memory that is given for such a one is left alone by ONNX Runtime, without a
    /// word, so it is asked for memory of its own and the content is copied.
    handed_through: Vec<bool>,
}

/// Inputs or outputs: what they are, and their names as the C API wants them.
struct Ports {
    info: Vec<ValueInfo>,
    names: Vec<CString>,
}

impl OrtGraph {
    pub fn new(
        backend: &OrtBackend,
        model: ModelSource<'_>,
        options: &GraphOptions,
    ) -> Result<OrtGraph, HostError> {
        OrtGraph::with(&backend.shared, model, options)
    }

    pub fn with(
        shared: &Arc<Shared>,
        model: ModelSource<'_>,
        options: &GraphOptions,
    ) -> Result<OrtGraph, HostError> {
        let handle = create(shared, model, options).map_err(HostError::Load)?;
        let session = Arc::new(SessionHandle { ptr: handle, shared: shared.clone() });
        let api = ::ort::api();
        let inputs =
            ports(&session, api.SessionGetInputCount, api.SessionGetInputName, api.SessionGetInputTypeInfo)?;
        let outputs = ports(
            &session,
            api.SessionGetOutputCount,
            api.SessionGetOutputName,
            api.SessionGetOutputTypeInfo,
        )?;
        let copies_inputs = outputs.info.iter().any(|output| output.kind != ValueKind::Tensor);
        let handed_through = outputs.names.iter().map(|name| inputs.names.contains(name)).collect();
        Ok(OrtGraph { session, inputs, outputs, copies_inputs, handed_through })
    }

    /// Whether an input is an optional that holds nothing: ONNX Runtime 1.32 crashes when it is fed such a one, and takes an
    /// input that is not fed at all for it.
    fn is_left_out(&self, k: usize, input: &Input<'_>) -> Result<bool, HostError> {
        let kind = self.inputs.info[k].kind;
        if !matches!(kind, ValueKind::Optional | ValueKind::OptionalSequence) {
            return Ok(false);
        }
        match input {
            Input::Value(Value::Nothing) => Ok(true),
            Input::Value(Value::Opaque(value)) => match value.downcast::<OrtVal>() {
                Some(value) => Ok(!value.has_value()?),
                None => Ok(false),
            },
            _ => Ok(false),
        }
    }

    fn feed<'a>(&self, k: usize, input: &Input<'a>) -> Result<Feed<'a>, HostError> {
        let value = match input {
            Input::Tensor(tensor) if self.copies_inputs => Raw::copy_of(*tensor)?,
            Input::Tensor(tensor) => {
                let bytes = tensor.bytes();
                // SAFETY: an input is not written, and `run` lets nothing that shares its memory out of the run.
                unsafe {
                    let shared = &self.session.shared;
                    Raw::over(shared, tensor.dtype(), tensor.dims(), bytes.as_ptr().cast_mut(), bytes.len())?
                }
            }
            Input::Value(Value::Opaque(value)) => match value.downcast::<OrtVal>() {
                Some(value) if !value.has_value()? => Raw::of(&Value::Nothing)?,
                Some(value) => return Ok(Feed::Borrowed(value)),
                None => return Err(HostError::Unsupported("a value of another backend".into())),
            },
            Input::Value(Value::Sequence(values)) if values.is_empty() => {
                let dtype = self.inputs.info[k].dtype;
                return Ok(Feed::Held(empty_sequence(&self.session.shared, dtype)?));
            }
            Input::Value(value) => Raw::of(value)?,
        };
        Ok(Feed::Owned(value))
    }

    /// What to hand out for an output that ONNX Runtime made.
    fn output(&self, k: usize, value: Option<Raw>, taken: &[Range<usize>]) -> Result<Value, HostError> {
        let Some(raw) = value else { return Ok(Value::Nothing) };
        let value = OrtVal::new(raw, &self.session);
        let info = &self.outputs.info[k];
        if info.kind != ValueKind::Tensor || info.dtype == DType::Str {
            return Ok(value.opaque());
        }
        let tensor = value.tensor()?;
        let bytes = tensor.bytes().as_ptr_range();
        let (start, end) = (bytes.start as usize, bytes.end as usize);
        // A graph may hand an input through without a copy; the caller's memory must not outlive the call so.
        let shares = taken.iter().any(|range| start < range.end && range.start < end);
        Ok(Value::Tensor(if shares { tensor.view().to_tensor() } else { tensor }))
    }
}

/// An input of one run.
enum Feed<'a> {
    Owned(Raw),
    Held(OrtVal),
    Borrowed(&'a OrtVal),
}

impl Feed<'_> {
    fn ptr(&self) -> *const sys::OrtValue {
        match self {
            Feed::Owned(value) => value.ptr(),
            Feed::Held(value) => value.as_ptr(),
            Feed::Borrowed(value) => value.as_ptr(),
        }
    }
}

/// Most graphs have fewer inputs and outputs than this; their lists need no heap.
const FEW: usize = 16;

impl HostGraph for OrtGraph {
    fn inputs(&self) -> &[ValueInfo] {
        &self.inputs.info
    }

    fn outputs(&self) -> &[ValueInfo] {
        &self.outputs.info
    }

    fn run(&self, inputs: &[Input<'_>], outputs: &mut [HostOutput<'_>]) -> Result<(), HostError> {
        let (given, wanted) =
            ((inputs.len(), outputs.len()), (self.inputs.names.len(), self.outputs.names.len()));
        if given != wanted {
            return Err(HostError::Run(format!(
                "{} inputs and {} outputs for a graph with {} and {}",
                given.0, given.1, wanted.0, wanted.1
            )));
        }
        // Memory of the caller, which no value may keep after the run.
        let mut taken: SmallVec<[Range<usize>; FEW]> = SmallVec::new();
        let mut take = |start: *const u8, len: usize| taken.push(start as usize..start as usize + len);
        let mut feeds: SmallVec<[Feed<'_>; FEW]> = SmallVec::new();
        let mut input_names: SmallVec<[*const c_char; FEW]> = SmallVec::new();
        for (k, (input, name)) in inputs.iter().zip(&self.inputs.names).enumerate() {
            if self.is_left_out(k, input)? {
                continue;
            }
            feeds.push(self.feed(k, input)?);
            input_names.push(name.as_ptr());
            if let Input::Tensor(tensor) = input {
                take(tensor.bytes().as_ptr(), tensor.bytes().len());
            }
        }
        let mut given: SmallVec<[Option<Raw>; FEW]> = SmallVec::new();
        for (output, &handed_through) in outputs.iter_mut().zip(&self.handed_through) {
            given.push(match output {
                HostOutput::Into { .. } if handed_through => None,
                HostOutput::Into { dtype, dims, bytes } => {
                    take(bytes.as_ptr(), bytes.len());
                    // SAFETY: the caller lends the memory to be written, until the run has ended; see `output`.
                    Some(unsafe {
                        Raw::over(&self.session.shared, *dtype, dims, bytes.as_mut_ptr(), bytes.len())?
                    })
                }
                HostOutput::New(_) => None,
            });
        }
        let output_names: SmallVec<[*const c_char; FEW]> =
            self.outputs.names.iter().map(|name| name.as_ptr()).collect();
        let feed_ptrs: SmallVec<[*const sys::OrtValue; FEW]> = feeds.iter().map(Feed::ptr).collect();
        let mut results: SmallVec<[*mut sys::OrtValue; FEW]> =
            given.iter().map(|value| value.as_ref().map_or(ptr::null_mut(), Raw::ptr)).collect();
        // SAFETY: there is a name to each value, none that the session does not have; `Run` may be called by several threads at once; it
        // leaves values that are given in place and puts new ones where null stands.
        let status = unsafe {
            (::ort::api().Run)(
                self.session.ptr.as_ptr(),
                ptr::null(),
                input_names.as_ptr(),
                feed_ptrs.as_ptr(),
                feed_ptrs.len(),
                output_names.as_ptr(),
                output_names.len(),
                results.as_mut_ptr(),
            )
        };
        // Owned first, so that none is lost when one of them fails.
        let made: SmallVec<[Option<Raw>; FEW]> = results
            .iter()
            .zip(&given)
            // SAFETY: new values are ours; those that were given are owned by `given`.
            .map(|(&value, given)| if given.is_some() { None } else { unsafe { Raw::take(value) } })
            .collect();
        check(status).map_err(HostError::Run)?;
        for (k, (made, output)) in made.into_iter().zip(outputs).enumerate() {
            match (output, made) {
                (HostOutput::New(value), made) => *value = self.output(k, made, &taken)?,
                (HostOutput::Into { bytes, .. }, Some(made)) => made.copy_to(bytes)?,
                (HostOutput::Into { .. }, None) => {}
            }
        }
        Ok(())
    }
}

/// Session options that are ours to release.
struct Options(NonNull<sys::OrtSessionOptions>);

impl Drop for Options {
    fn drop(&mut self) {
        // SAFETY: owned, released once.
        unsafe { (::ort::api().ReleaseSessionOptions)(self.0.as_ptr()) }
    }
}

fn create(
    shared: &Shared,
    model: ModelSource<'_>,
    options: &GraphOptions,
) -> Result<NonNull<sys::OrtSession>, String> {
    let api = ::ort::api();
    let mut session_options = ptr::null_mut();
    let mut session = ptr::null_mut();
    let level = match options.optimize {
        true => sys::GraphOptimizationLevel::ORT_ENABLE_ALL,
        false => sys::GraphOptimizationLevel::ORT_DISABLE_ALL,
    };
    // SAFETY: options and session are written on success; texts end with NUL; the model's bytes have the given length and
    // are not kept.
    unsafe {
        check((api.CreateSessionOptions)(&mut session_options))?;
        let session_options = Options(NonNull::new(session_options).ok_or("no session options")?);
        let raw = session_options.0.as_ptr();
        check((api.SetSessionGraphOptimizationLevel)(raw, level))?;
        if shared.global_threads {
            check((api.DisablePerSessionThreads)(raw))?;
        }
        let environment = shared.environment.ptr();
        check(match model {
            ModelSource::File(path) => {
                let path = c_path(path)?;
                (api.CreateSession)(environment, path.as_ptr(), raw, &mut session)
            }
            ModelSource::Bytes { model, folder } => {
                if let Some(folder) = folder {
                    let folder = c_path(folder)?;
                    check((api.AddSessionConfigEntry)(raw, FOLDER_KEY.as_ptr(), folder.as_ptr()))?;
                }
                let data = model.as_ptr().cast();
                (api.CreateSessionFromArray)(environment, data, model.len(), raw, &mut session)
            }
        })?;
    }
    NonNull::new(session).ok_or_else(|| "no session".into())
}

fn c_path(path: &Path) -> Result<CString, String> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| "a path with a NUL byte".into())
}

type Count = unsafe extern "system" fn(*const sys::OrtSession, *mut usize) -> sys::OrtStatusPtr;
type Name = unsafe extern "system" fn(
    *const sys::OrtSession,
    usize,
    *mut sys::OrtAllocator,
    *mut *mut c_char,
) -> sys::OrtStatusPtr;
type Type =
    unsafe extern "system" fn(*const sys::OrtSession, usize, *mut *mut sys::OrtTypeInfo) -> sys::OrtStatusPtr;

fn ports(session: &SessionHandle, count: Count, name: Name, kind: Type) -> Result<Ports, HostError> {
    let read = || -> Result<Ports, String> {
        let (api, session) = (::ort::api(), session.ptr.as_ptr());
        let (mut len, mut allocator) = (0, ptr::null_mut());
        let mut ports = Ports { info: Vec::new(), names: Vec::new() };
        // SAFETY: a valid session; indices below the count; names and types are released after they were read.
        unsafe {
            check((api.GetAllocatorWithDefaultOptions)(&mut allocator))?;
            check(count(session, &mut len))?;
            for k in 0..len {
                let mut text = ptr::null_mut();
                check(name(session, k, allocator, &mut text))?;
                let c_name = CStr::from_ptr(text).to_owned();
                check((api.AllocatorFree)(allocator, text.cast()))?;
                let mut info = ptr::null_mut();
                check(kind(session, k, &mut info))?;
                let read = type_of(info);
                (api.ReleaseTypeInfo)(info);
                let (kind, dtype, dims) =
                    read.map_err(|why| format!("`{}`: {why}", c_name.to_string_lossy()))?;
                let mut value = ValueInfo::tensor(c_name.to_string_lossy(), dtype, dims);
                value.kind = kind;
                ports.info.push(value);
                ports.names.push(c_name);
            }
        }
        Ok(ports)
    };
    read().map_err(HostError::Load)
}

type Info = (ValueKind, DType, Option<Vec<Dim>>);

/// What a type info says. Kinds and element types are read as bare numbers, so that one that the binding's enums lack is
/// no undefined behaviour.
///
/// # Safety
/// `info` is a valid type info.
unsafe fn type_of(info: *const sys::OrtTypeInfo) -> Result<Info, String> {
    const TENSOR: i32 = sys::ONNXType::ONNX_TYPE_TENSOR as i32;
    const SPARSE: i32 = sys::ONNXType::ONNX_TYPE_SPARSETENSOR as i32;
    const SEQUENCE: i32 = sys::ONNXType::ONNX_TYPE_SEQUENCE as i32;
    const OPTIONAL: i32 = sys::ONNXType::ONNX_TYPE_OPTIONAL as i32;
    const MAP: i32 = sys::ONNXType::ONNX_TYPE_MAP as i32;
    let api = ::ort::api();
    let mut kind = MaybeUninit::<i32>::zeroed();
    // SAFETY: casts give borrowed parts of `info`, or null when it is something else; element infos are released.
    unsafe {
        check((api.GetOnnxTypeFromTypeInfo)(info, kind.as_mut_ptr().cast()))?;
        let inner = |element: *mut sys::OrtTypeInfo| {
            let read = type_of(element);
            (api.ReleaseTypeInfo)(element);
            read
        };
        match kind.assume_init() {
            TENSOR => {
                let mut tensor = ptr::null();
                check((api.CastTypeInfoToTensorInfo)(info, &mut tensor))?;
                let (dtype, dims) = tensor_type(tensor)?;
                Ok((ValueKind::Tensor, dtype, dims))
            }
            SEQUENCE => {
                let (mut sequence, mut element) = (ptr::null(), ptr::null_mut());
                check((api.CastTypeInfoToSequenceTypeInfo)(info, &mut sequence))?;
                check((api.GetSequenceElementType)(sequence, &mut element))?;
                let (kind, dtype, _) = inner(element)?;
                let kind = if kind == ValueKind::Map { ValueKind::Map } else { ValueKind::Sequence };
                Ok((kind, dtype, None))
            }
            OPTIONAL => {
                let (mut optional, mut element) = (ptr::null(), ptr::null_mut());
                check((api.CastTypeInfoToOptionalTypeInfo)(info, &mut optional))?;
                check((api.GetOptionalContainedTypeInfo)(optional, &mut element))?;
                let (kind, dtype, _) = inner(element)?;
                let sequence = kind == ValueKind::Sequence;
                Ok((if sequence { ValueKind::OptionalSequence } else { ValueKind::Optional }, dtype, None))
            }
            MAP => {
                let (mut map, mut value) = (ptr::null(), ptr::null_mut());
                check((api.CastTypeInfoToMapTypeInfo)(info, &mut map))?;
                check((api.GetMapValueType)(map, &mut value))?;
                let (_, dtype, _) = inner(value)?;
                Ok((ValueKind::Map, dtype, None))
            }
            SPARSE => Err("a sparse tensor, which is not supported".into()),
            other => Err(format!("its type has the unknown number {other}")),
        }
    }
}

/// # Safety
/// `info` is a valid tensor info.
unsafe fn tensor_type(
    info: *const sys::OrtTensorTypeAndShapeInfo,
) -> Result<(DType, Option<Vec<Dim>>), String> {
    let api = ::ort::api();
    let mut kind = MaybeUninit::<i32>::zeroed();
    let mut rank = 0;
    // SAFETY: as promised; buffers have the lengths that are given; symbol texts live as long as `info`.
    unsafe {
        check((api.GetTensorElementType)(info, kind.as_mut_ptr().cast()))?;
        let kind = kind.assume_init();
        let dtype = dtype::from_ort(kind).ok_or_else(|| format!("its element type has the number {kind}"))?;
        check((api.GetDimensionsCount)(info, &mut rank))?;
        let mut numbers = vec![0i64; rank];
        let mut symbols = vec![ptr::null::<c_char>(); rank];
        check((api.GetDimensions)(info, numbers.as_mut_ptr(), rank))?;
        check((api.GetSymbolicDimensions)(info, symbols.as_mut_ptr(), rank))?;
        let dim = |(&number, &symbol): (&i64, &*const c_char)| match u64::try_from(number) {
            Ok(number) => Dim::Known(number),
            Err(_) if symbol.is_null() => Dim::Unknown,
            Err(_) => match CStr::from_ptr(symbol).to_string_lossy() {
                text if text.is_empty() => Dim::Unknown,
                text => Dim::Text(text.into_owned()),
            },
        };
        let dims: Vec<Dim> = numbers.iter().zip(&symbols).map(dim).collect();
        // 1.23 cannot tell an unknown rank from a scalar, so neither is promised here.
        Ok((dtype, (rank > 0).then_some(dims)))
    }
}
