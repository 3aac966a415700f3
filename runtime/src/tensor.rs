//! Tensors in host memory.

use std::{fmt, sync::Arc};
use trtc_bundle::DType;

/// A Rust type that is the element of a tensor.
pub trait Element: bytemuck::Pod + private::Sealed {
    /// Its element type.
    const DTYPE: DType;
}

mod private {
    pub trait Sealed {}
}

macro_rules! elements {
    ($($rust:ty = $dtype:ident),*) => {$(
        impl private::Sealed for $rust {}
        impl Element for $rust {
            const DTYPE: DType = DType::$dtype;
        }
    )*};
}

elements!(
    f32 = F32,
    f64 = F64,
    half::f16 = F16,
    half::bf16 = Bf16,
    i8 = I8,
    i16 = I16,
    i32 = I32,
    i64 = I64,
    u8 = U8,
    u16 = U16,
    u32 = U32,
    u64 = U64
);

/// Why bytes, dims and element type make no tensor.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TensorError {
    /// The dims ask for more memory than there can be, or the type has no fixed width.
    #[error("a tensor of {dtype} and dims {dims:?} has no size in bytes")]
    Size {
        /// Element type.
        dtype: DType,
        /// Dims.
        dims: Vec<usize>,
    },
    /// Another number of bytes was given than the dims need.
    #[error("a tensor of {dtype} and dims {dims:?} takes {needed} bytes, not {given}")]
    Length {
        /// Element type.
        dtype: DType,
        /// Dims.
        dims: Vec<usize>,
        /// Bytes needed.
        needed: usize,
        /// Bytes given.
        given: usize,
    },
}

/// Length in bytes of a packed tensor.
pub(crate) fn byte_len(dtype: DType, dims: &[usize]) -> Result<usize, TensorError> {
    let count = dims.iter().try_fold(1usize, |count, &dim| count.checked_mul(dim));
    let len = count.and_then(|count| dtype.bytes_for(count)).filter(|&len| len <= isize::MAX as usize);
    len.ok_or_else(|| TensorError::Size { dtype, dims: dims.to_vec() })
}

/// Zeroed memory that begins at a multiple of 64 bytes.
pub(crate) struct AlignedBytes {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl AlignedBytes {
    const ALIGN: usize = 64;

    pub fn zeroed(len: usize) -> AlignedBytes {
        // Zeroed pages come from the system as they are touched; nothing is written here.
        let memory = vec![0u8; len + if len == 0 { 0 } else { Self::ALIGN }];
        let start = if len == 0 { 0 } else { memory.as_ptr().align_offset(Self::ALIGN) };
        AlignedBytes { memory, start, len }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.len]
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }
}

impl Clone for AlignedBytes {
    fn clone(&self) -> AlignedBytes {
        let mut copy = AlignedBytes::zeroed(self.len);
        copy.bytes_mut().copy_from_slice(self.bytes());
        copy
    }
}

/// Memory of somebody else that a tensor keeps alive: a mapped file, an output that ONNX Runtime allocated.
pub(crate) trait Foreign: Send + Sync {
    /// The same bytes each time.
    fn bytes(&self) -> &[u8];
}

impl Foreign for bytes::Bytes {
    fn bytes(&self) -> &[u8] {
        self
    }
}

#[derive(Clone)]
enum Storage {
    Own(Arc<AlignedBytes>),
    Foreign(Arc<dyn Foreign>),
}

/// A dense tensor of a type with fixed width: little-endian, row-major, packed.
///
/// Clones share the memory; a write through [`Tensor::bytes_mut`] copies it first when it is shared.
#[derive(Clone)]
pub struct Tensor {
    dtype: DType,
    dims: Vec<usize>,
    storage: Storage,
}

impl Tensor {
    /// A tensor of zeros.
    ///
    /// # Errors
    /// [`TensorError::Size`].
    pub fn zeros(dtype: DType, dims: &[usize]) -> Result<Tensor, TensorError> {
        let len = byte_len(dtype, dims)?;
        Ok(Tensor { dtype, dims: dims.to_vec(), storage: Storage::Own(Arc::new(AlignedBytes::zeroed(len))) })
    }

    /// A tensor with a copy of `bytes`.
    ///
    /// # Errors
    /// [`TensorError::Length`] when `bytes` are too many or too few; [`TensorError::Size`].
    pub fn from_bytes(dtype: DType, dims: &[usize], bytes: &[u8]) -> Result<Tensor, TensorError> {
        check_len(dtype, dims, bytes.len())?;
        let mut tensor = Tensor::zeros(dtype, dims)?;
        tensor.bytes_mut().copy_from_slice(bytes);
        Ok(tensor)
    }

    /// A tensor with a copy of `elements`, whose number must be the product of `dims`.
    ///
    /// # Errors
    /// As [`Tensor::from_bytes`].
    pub fn from_slice<T: Element>(dims: &[usize], elements: &[T]) -> Result<Tensor, TensorError> {
        Tensor::from_bytes(T::DTYPE, dims, bytemuck::cast_slice(elements))
    }

    /// A tensor of bools.
    ///
    /// # Errors
    /// As [`Tensor::from_bytes`].
    pub fn from_bools(dims: &[usize], elements: &[bool]) -> Result<Tensor, TensorError> {
        let bytes: Vec<u8> = elements.iter().map(|&element| element.into()).collect();
        Tensor::from_bytes(DType::Bool, dims, &bytes)
    }

    /// A tensor over memory of somebody else, of exactly the right length.
    pub(crate) fn foreign(
        dtype: DType,
        dims: Vec<usize>,
        memory: impl Foreign + 'static,
    ) -> Result<Tensor, TensorError> {
        check_len(dtype, &dims, memory.bytes().len())?;
        Ok(Tensor { dtype, dims, storage: Storage::Foreign(Arc::new(memory)) })
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Dims, outermost first; empty for a scalar.
    pub fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// Its bytes: little-endian, packed.
    pub fn bytes(&self) -> &[u8] {
        match &self.storage {
            Storage::Own(memory) => memory.bytes(),
            Storage::Foreign(memory) => memory.bytes(),
        }
    }

    /// Its bytes, to write. Memory that is shared or not our own is copied first.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        if let Storage::Foreign(memory) = &self.storage {
            let mut own = AlignedBytes::zeroed(memory.bytes().len());
            own.bytes_mut().copy_from_slice(memory.bytes());
            self.storage = Storage::Own(Arc::new(own));
        }
        match &mut self.storage {
            Storage::Own(memory) => Arc::make_mut(memory).bytes_mut(),
            Storage::Foreign(_) => &mut [],
        }
    }

    /// Its elements; `None` when `T` is not its element type.
    pub fn as_slice<T: Element>(&self) -> Option<&[T]> {
        self.view().as_slice()
    }

    /// The tensor, borrowed.
    pub fn view(&self) -> TensorView<'_> {
        TensorView { dtype: self.dtype, dims: &self.dims, bytes: self.bytes() }
    }

    /// Whether it can be written without a copy, and has this type and these dims.
    pub(crate) fn is_free_for(&self, dtype: DType, dims: &[usize]) -> bool {
        let free = match &self.storage {
            Storage::Own(memory) => Arc::strong_count(memory) == 1,
            Storage::Foreign(_) => false,
        };
        free && self.dtype == dtype && self.dims == dims
    }

    /// Dims and bytes at once, to write.
    pub(crate) fn parts_mut(&mut self) -> (&[usize], &mut [u8]) {
        self.bytes_mut(); // Makes the memory our own.
        match &mut self.storage {
            Storage::Own(memory) => (&self.dims, Arc::make_mut(memory).bytes_mut()),
            Storage::Foreign(_) => (&self.dims, &mut []),
        }
    }
}

fn check_len(dtype: DType, dims: &[usize], given: usize) -> Result<(), TensorError> {
    let needed = byte_len(dtype, dims)?;
    if needed == given {
        return Ok(());
    }
    Err(TensorError::Length { dtype, dims: dims.to_vec(), needed, given })
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.view().fmt(f)
    }
}

impl PartialEq for Tensor {
    /// Bit for bit.
    fn eq(&self, other: &Tensor) -> bool {
        self.dtype == other.dtype && self.dims == other.dims && self.bytes() == other.bytes()
    }
}

/// A borrowed tensor.
#[derive(Clone, Copy)]
pub struct TensorView<'a> {
    dtype: DType,
    dims: &'a [usize],
    bytes: &'a [u8],
}

impl<'a> TensorView<'a> {
    /// A tensor over `elements`, which are not copied.
    ///
    /// # Errors
    /// [`TensorError::Length`] when their number is not the product of `dims`; [`TensorError::Size`].
    pub fn from_slice<T: Element>(
        dims: &'a [usize],
        elements: &'a [T],
    ) -> Result<TensorView<'a>, TensorError> {
        let bytes: &[u8] = bytemuck::cast_slice(elements);
        check_len(T::DTYPE, dims, bytes.len())?;
        Ok(TensorView { dtype: T::DTYPE, dims, bytes })
    }

    /// A tensor over memory that is aligned for its type and has exactly the right length.
    pub(crate) fn new(dtype: DType, dims: &'a [usize], bytes: &'a [u8]) -> TensorView<'a> {
        debug_assert_eq!(byte_len(dtype, dims), Ok(bytes.len()));
        TensorView { dtype, dims, bytes }
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Dims, outermost first.
    pub fn dims(&self) -> &'a [usize] {
        self.dims
    }

    /// Its bytes.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Its elements; `None` when `T` is not its element type.
    pub fn as_slice<T: Element>(&self) -> Option<&'a [T]> {
        if T::DTYPE != self.dtype {
            return None;
        }
        if self.bytes.is_empty() {
            return Some(&[]); // Its address may be anything.
        }
        bytemuck::try_cast_slice(self.bytes).ok()
    }

    /// A copy that owns its memory.
    pub fn to_tensor(&self) -> Tensor {
        let mut memory = AlignedBytes::zeroed(self.bytes.len());
        memory.bytes_mut().copy_from_slice(self.bytes);
        Tensor { dtype: self.dtype, dims: self.dims.to_vec(), storage: Storage::Own(Arc::new(memory)) }
    }
}

impl fmt::Debug for TensorView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.bytes.len().min(32);
        write!(f, "{}{:?} {:02x?}", self.dtype, self.dims, &self.bytes[..shown])?;
        if shown < self.bytes.len() { f.write_str("…") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::{Tensor, TensorError, TensorView};
    use trtc_bundle::DType;

    #[test]
    fn memory_is_aligned_and_copied_on_write() {
        for len in [1usize, 3, 64, 1000] {
            let tensor = Tensor::zeros(DType::I8, &[len]).unwrap();
            assert_eq!(tensor.bytes().as_ptr() as usize % 64, 0);
            assert_eq!(tensor.clone().bytes().as_ptr(), tensor.bytes().as_ptr());
        }
        let first = Tensor::from_slice(&[2], &[1i64, 2]).unwrap();
        let mut second = first.clone();
        second.bytes_mut()[0] = 9;
        assert_eq!((first.as_slice(), second.as_slice()), (Some(&[1i64, 2][..]), Some(&[9i64, 2][..])));
        assert_eq!(first.as_slice::<f64>(), None);
    }

    #[test]
    fn lengths_are_checked() {
        assert!(matches!(
            Tensor::from_slice(&[3], &[1f32, 2.0]),
            Err(TensorError::Length { needed: 12, given: 8, .. })
        ));
        assert!(matches!(Tensor::zeros(DType::F32, &[usize::MAX, 2]), Err(TensorError::Size { .. })));
        assert!(matches!(Tensor::zeros(DType::Str, &[1]), Err(TensorError::Size { .. })));
        assert!(TensorView::from_slice(&[2, 2], &[1u8; 3]).is_err());
        assert_eq!(Tensor::zeros(DType::F32, &[0, 3]).unwrap().as_slice::<f32>(), Some(&[][..]));
        // Two 4-bit elements a byte.
        assert_eq!(Tensor::from_bytes(DType::I4, &[3], &[0x21, 0x03]).unwrap().bytes().len(), 2);
    }
}
