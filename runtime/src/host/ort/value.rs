//! ONNX Runtime's values: making them from ours, reading them back.

use super::{Shared, check, dtype, graph::SessionHandle};
use crate::{
    host::HostError,
    tensor::{Foreign, Tensor, TensorView},
    value::{Opaque, OpaqueValue, StringTensor, Value},
};
use ::ort::sys;
use smallvec::SmallVec;
use std::{
    mem::MaybeUninit,
    ptr::{self, NonNull},
    sync::Arc,
};
use trtc_bundle::DType;

/// A value of ONNX Runtime that is ours to release.
pub(super) struct Raw(NonNull<sys::OrtValue>);

// SAFETY: an `OrtValue` is a reference-counted handle without ties to a thread, and what is done here through a shared
// reference only reads it.
unsafe impl Send for Raw {}
// SAFETY: as above.
unsafe impl Sync for Raw {}

impl Drop for Raw {
    fn drop(&mut self) {
        // SAFETY: owned, released once.
        unsafe { (::ort::api().ReleaseValue)(self.0.as_ptr()) }
    }
}

/// A value that a run gave. Clones share it.
#[derive(Clone)]
pub(super) struct OrtVal(Arc<Held>);

struct Held {
    raw: Raw,
    /// An output may share memory with the session that made it (an initializer, say). Released after the value.
    session: Arc<SessionHandle>,
}

fn run_error(message: String) -> HostError {
    HostError::Run(message)
}

fn allocator() -> Result<*mut sys::OrtAllocator, HostError> {
    let mut allocator = ptr::null_mut();
    // SAFETY: gives the default allocator, which is never released.
    check(unsafe { (::ort::api().GetAllocatorWithDefaultOptions)(&mut allocator) }).map_err(run_error)?;
    Ok(allocator)
}

fn ort_dims(dims: &[usize]) -> SmallVec<[i64; 8]> {
    // A dim beyond i64 makes no tensor of ours; ONNX Runtime refuses a negative one.
    dims.iter().map(|&dim| i64::try_from(dim).unwrap_or(-1)).collect()
}

fn ort_type(dtype: DType) -> Result<sys::ONNXTensorElementDataType, HostError> {
    dtype::to_ort(dtype).ok_or_else(|| HostError::Unsupported(format!("tensors of {dtype}")))
}

impl Raw {
    /// Takes over a value; `None` for null.
    ///
    /// # Safety
    /// `ptr` is null or a value that nobody else releases.
    pub unsafe fn take(ptr: *mut sys::OrtValue) -> Option<Raw> {
        NonNull::new(ptr).map(Raw)
    }

    pub fn ptr(&self) -> *mut sys::OrtValue {
        self.0.as_ptr()
    }

    fn made(status: sys::OrtStatusPtr, ptr: *mut sys::OrtValue) -> Result<Raw, HostError> {
        check(status).map_err(run_error)?;
        // SAFETY: just made for us.
        unsafe { Raw::take(ptr) }.ok_or_else(|| run_error("a value is missing".into()))
    }

    /// A tensor over memory of the caller.
    ///
    /// # Safety
    /// `bytes` outlives the value and everything that shares its memory; it may be written through the value only if the
    /// caller may write it.
    pub unsafe fn over(
        shared: &Shared,
        dtype: DType,
        dims: &[usize],
        bytes: *mut u8,
        len: usize,
    ) -> Result<Raw, HostError> {
        let (kind, dims) = (ort_type(dtype)?, ort_dims(dims));
        let mut value = ptr::null_mut();
        // SAFETY: ONNX Runtime checks `len` against type and dims; `cpu` lives as long as the backend.
        let status = unsafe {
            (::ort::api().CreateTensorWithDataAsOrtValue)(
                shared.cpu.as_ptr(),
                bytes.cast(),
                len,
                dims.as_ptr(),
                dims.len(),
                kind,
                &mut value,
            )
        };
        Raw::made(status, value)
    }

    fn allocate(dtype: DType, dims: &[usize]) -> Result<Raw, HostError> {
        let (kind, dims) = (ort_type(dtype)?, ort_dims(dims));
        let mut value = ptr::null_mut();
        // SAFETY: the default allocator, dims of the given length.
        let status = unsafe {
            (::ort::api().CreateTensorAsOrtValue)(allocator()?, dims.as_ptr(), dims.len(), kind, &mut value)
        };
        Raw::made(status, value)
    }

    /// A tensor with a copy of the bytes.
    pub fn copy_of(tensor: TensorView<'_>) -> Result<Raw, HostError> {
        let value = Raw::allocate(tensor.dtype(), tensor.dims())?;
        let bytes = tensor.bytes();
        if !bytes.is_empty() {
            let data = value.data()?;
            // SAFETY: allocated for the same type and dims, so for as many bytes; nobody else has it yet.
            unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), data, bytes.len()) };
        }
        Ok(value)
    }

    fn strings(tensor: &StringTensor) -> Result<Raw, HostError> {
        let count = tensor.dims.iter().try_fold(1usize, |count, &dim| count.checked_mul(dim));
        if count != Some(tensor.strings.len()) {
            let what = format!("{} strings as a tensor of dims {:?}", tensor.strings.len(), tensor.dims);
            return Err(HostError::Unsupported(what));
        }
        let value = Raw::allocate(DType::Str, &tensor.dims)?;
        for (k, text) in tensor.strings.iter().enumerate() {
            let mut buffer = ptr::null_mut();
            // SAFETY: `k` is within the dims; the buffer has room for `text.len()` bytes.
            unsafe {
                let resize = ::ort::api().GetResizedStringTensorElementBuffer;
                check(resize(value.ptr(), k, text.len(), &mut buffer)).map_err(run_error)?;
                ptr::copy_nonoverlapping(text.as_ptr(), buffer.cast(), text.len());
            }
        }
        Ok(value)
    }

    /// A value with memory of its own, equal to `value`.
    pub fn of(value: &Value) -> Result<Raw, HostError> {
        let parts = |values: &[&Value], kind: sys::ONNXType| {
            let values: Vec<Raw> = values.iter().map(|value| Raw::of(value)).collect::<Result<_, _>>()?;
            let ptrs: Vec<*const sys::OrtValue> =
                values.iter().map(|value| value.ptr().cast_const()).collect();
            let mut made = ptr::null_mut();
            // SAFETY: valid values; the new one holds its own references to (or copies of) them.
            let status = unsafe { (::ort::api().CreateValue)(ptrs.as_ptr(), ptrs.len(), kind, &mut made) };
            Raw::made(status, made)
        };
        match value {
            Value::Tensor(tensor) => Raw::copy_of(tensor.view()),
            Value::Strings(tensor) => Raw::strings(tensor),
            Value::Sequence(values) if values.is_empty() => {
                Err(HostError::Unsupported("an empty sequence as an input".into()))
            }
            Value::Sequence(values) => {
                parts(&values.iter().collect::<Vec<_>>(), sys::ONNXType::ONNX_TYPE_SEQUENCE)
            }
            Value::Map(pair) => parts(&[&pair.0, &pair.1], sys::ONNXType::ONNX_TYPE_MAP),
            Value::Nothing => Err(HostError::Unsupported("an empty optional as an input".into())),
            Value::Opaque(_) => Err(HostError::Unsupported("a value of the backend within another".into())),
        }
    }

    /// Copies the content of a tensor of fixed width to memory of the same length.
    pub fn copy_to(&self, bytes: &mut [u8]) -> Result<(), HostError> {
        let (dtype, dims) = self.tensor_type()?;
        if crate::tensor::byte_len(dtype, &dims)? != bytes.len() {
            return Err(run_error(format!("an output of {dtype} has the unexpected dims {dims:?}")));
        }
        if !bytes.is_empty() {
            // SAFETY: as many bytes as type and dims say; nobody else has `bytes`.
            unsafe { ptr::copy_nonoverlapping(self.data()?, bytes.as_mut_ptr(), bytes.len()) };
        }
        Ok(())
    }

    fn data(&self) -> Result<*mut u8, HostError> {
        let mut data = ptr::null_mut();
        // SAFETY: a valid value; an error when it is not a tensor.
        check(unsafe { (::ort::api().GetTensorMutableData)(self.ptr(), &mut data) }).map_err(run_error)?;
        Ok(data.cast())
    }

    /// Element type and dims of a tensor.
    fn tensor_type(&self) -> Result<(DType, Vec<usize>), HostError> {
        let api = ::ort::api();
        let mut info = ptr::null_mut();
        // SAFETY: a valid value; `info` is released below. The element type is read as a bare number, so that a number that
        // the binding's enum lacks is no undefined behaviour.
        unsafe {
            check((api.GetTensorTypeAndShape)(self.ptr(), &mut info)).map_err(run_error)?;
            let read = || {
                let mut kind = MaybeUninit::<i32>::zeroed();
                check((api.GetTensorElementType)(info, kind.as_mut_ptr().cast()))?;
                let mut rank = 0;
                check((api.GetDimensionsCount)(info, &mut rank))?;
                let mut dims = vec![0i64; rank];
                check((api.GetDimensions)(info, dims.as_mut_ptr(), rank))?;
                Ok((kind.assume_init(), dims))
            };
            let read = read().map_err(run_error);
            (api.ReleaseTensorTypeAndShapeInfo)(info);
            let (kind, dims) = read?;
            let dtype = dtype::from_ort(kind)
                .ok_or_else(|| HostError::Unsupported(format!("tensors of its type number {kind}")))?;
            let dims = dims.iter().map(|&dim| usize::try_from(dim).unwrap_or(0)).collect();
            Ok((dtype, dims))
        }
    }
}

impl OrtVal {
    /// Takes over an output of `session`.
    pub fn new(raw: Raw, session: &Arc<SessionHandle>) -> OrtVal {
        OrtVal(Arc::new(Held { raw, session: session.clone() }))
    }

    fn ptr(&self) -> *mut sys::OrtValue {
        self.0.raw.ptr()
    }

    /// A tensor of fixed width, read in place.
    pub fn tensor(&self) -> Result<Tensor, HostError> {
        let (dtype, dims) = self.0.raw.tensor_type()?;
        let len = crate::tensor::byte_len(dtype, &dims)?;
        let data = if len == 0 { NonNull::dangling().as_ptr() } else { self.0.raw.data()? };
        if data.is_null() {
            return Err(run_error("a tensor without data".into()));
        }
        Ok(Tensor::foreign(dtype, dims, OrtTensor { _value: self.clone(), data, len })?)
    }

    fn strings(&self) -> Result<StringTensor, HostError> {
        let api = ::ort::api();
        let (_, dims) = self.0.raw.tensor_type()?;
        let count = dims.iter().product::<usize>();
        let mut len = 0;
        let mut offsets = vec![0usize; count];
        // SAFETY: a tensor of strings (an error otherwise); the buffers have the lengths that are given.
        let bytes = unsafe {
            check((api.GetStringTensorDataLength)(self.ptr(), &mut len)).map_err(run_error)?;
            let mut bytes = vec![0u8; len];
            let read = api.GetStringTensorContent;
            let (content, places) = (bytes.as_mut_ptr().cast(), offsets.as_mut_ptr());
            check(read(self.ptr(), content, len, places, count)).map_err(run_error)?;
            bytes
        };
        let ends = offsets.iter().skip(1).copied().chain([len]);
        let text = |(&start, end): (&usize, usize)| {
            String::from_utf8_lossy(bytes.get(start..end).unwrap_or_default()).into_owned()
        };
        Ok(StringTensor { strings: offsets.iter().zip(ends).map(text).collect(), dims })
    }

    fn element(&self, k: usize) -> Result<OrtVal, HostError> {
        let mut element = ptr::null_mut();
        let index = i32::try_from(k).map_err(|_| HostError::Unsupported("so long a sequence".into()))?;
        // SAFETY: a valid value; an error when it has no such element. The element is a value of its own.
        let status = unsafe { (::ort::api().GetValue)(self.ptr(), index, allocator()?, &mut element) };
        Ok(OrtVal::new(Raw::made(status, element)?, &self.0.session))
    }

    /// Whether it is anything: an optional may hold nothing.
    pub fn has_value(&self) -> Result<bool, HostError> {
        let mut has = 0;
        // SAFETY: a valid value.
        check(unsafe { (::ort::api().HasValue)(self.ptr(), &mut has) }).map_err(run_error)?;
        Ok(has != 0)
    }

    /// What it is, with all its elements.
    pub fn value(&self) -> Result<Value, HostError> {
        let api = ::ort::api();
        if !self.has_value()? {
            return Ok(Value::Nothing);
        }
        let mut kind = MaybeUninit::<i32>::zeroed();
        // SAFETY: a valid value. The kind is read as a bare number (see `tensor_type`).
        let kind = unsafe {
            check((api.GetValueType)(self.ptr(), kind.as_mut_ptr().cast())).map_err(run_error)?;
            kind.assume_init()
        };
        const TENSOR: i32 = sys::ONNXType::ONNX_TYPE_TENSOR as i32;
        const SEQUENCE: i32 = sys::ONNXType::ONNX_TYPE_SEQUENCE as i32;
        const MAP: i32 = sys::ONNXType::ONNX_TYPE_MAP as i32;
        match kind {
            TENSOR if self.0.raw.tensor_type()?.0 == DType::Str => Ok(Value::Strings(self.strings()?)),
            TENSOR => Ok(Value::Tensor(self.tensor()?)),
            SEQUENCE => {
                let mut count = 0;
                // SAFETY: a valid sequence.
                check(unsafe { (api.GetValueCount)(self.ptr(), &mut count) }).map_err(run_error)?;
                let elements = (0..count).map(|k| self.element(k)?.value());
                Ok(Value::Sequence(elements.collect::<Result<_, _>>()?))
            }
            MAP => Ok(Value::Map(Box::new((self.element(0)?.value()?, self.element(1)?.value()?)))),
            other => Err(HostError::Unsupported(format!("values of its kind number {other}"))),
        }
    }
}

/// An output that ONNX Runtime allocated.
struct OrtTensor {
    _value: OrtVal,
    data: *const u8,
    len: usize,
}

// SAFETY: the memory belongs to `_value`, which may move between threads, and is only read.
unsafe impl Send for OrtTensor {}
// SAFETY: as above.
unsafe impl Sync for OrtTensor {}

impl Foreign for OrtTensor {
    fn bytes(&self) -> &[u8] {
        // SAFETY: `len` bytes as type and dims say, alive as long as `_value`, and never written after the run.
        unsafe { std::slice::from_raw_parts(self.data, self.len) }
    }
}

impl OrtVal {
    /// Left with ONNX Runtime until it is asked for.
    pub fn opaque(self) -> Value {
        Value::Opaque(Opaque::new(self))
    }

    /// For a run that takes it as an input.
    pub fn as_ptr(&self) -> *const sys::OrtValue {
        self.ptr()
    }
}

impl OpaqueValue for OrtVal {
    fn read(&self) -> Result<Value, HostError> {
        self.value()
    }
}
