//! Numbers of a buffer's element types.

use std::ops::Range;

use bytemuck::{Pod, cast_slice, cast_slice_mut, pod_read_unaligned};

/// The type of the elements of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DType {
    /// `u8`.
    U8,
    /// `i32`.
    I32,
    /// `i64`.
    I64,
    /// `f32`.
    F32,
    /// `f64`.
    F64,
}

impl DType {
    /// Bytes of one element.
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Self::U8 => 1,
            Self::I32 | Self::F32 => 4,
            Self::I64 | Self::F64 => 8,
        }
    }

    /// NumPy's name of the type.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::U8 => "uint8",
            Self::I32 => "int32",
            Self::I64 => "int64",
            Self::F32 => "float32",
            Self::F64 => "float64",
        }
    }

    /// The element in its bytes.
    #[expect(clippy::cast_precision_loss, reason = "for distances")]
    pub(super) fn to_f64(self, bytes: &[u8]) -> f64 {
        match self {
            Self::U8 => bytes[0].into(),
            Self::I32 => pod_read_unaligned::<i32>(bytes).into(),
            Self::I64 => pod_read_unaligned::<i64>(bytes) as f64,
            Self::F32 => pod_read_unaligned::<f32>(bytes).into(),
            Self::F64 => pod_read_unaligned(bytes),
        }
    }
}

/// An element type of buffers.
pub trait Element: Pod {
    /// Its name.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($type:ty => $dtype:ident),*) => {$(
        impl Element for $type {
            const DTYPE: DType = DType::$dtype;
        }
    )*};
}

elements!(u8 => U8, i32 => I32, i64 => I64, f32 => F32, f64 => F64);

/// Elements to read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Values<'a> {
    dtype: DType,
    bytes: &'a [u8],
}

impl<'a> Values<'a> {
    /// The elements of a slice.
    #[must_use]
    pub fn of<T: Element>(elements: &'a [T]) -> Self {
        Self { dtype: T::DTYPE, bytes: cast_slice(elements) }
    }

    /// The type of the elements.
    #[must_use]
    pub const fn dtype(self) -> DType {
        self.dtype
    }

    /// Number of elements.
    #[must_use]
    pub const fn len(self) -> usize {
        self.bytes.len() / self.dtype.size()
    }

    /// Whether there are no elements.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.bytes.is_empty()
    }

    /// Index of the first NaN or infinity.
    pub(super) fn first_non_finite(self) -> Option<usize> {
        match self.dtype {
            DType::F32 => cast_slice(self.bytes).iter().position(|value: &f32| !value.is_finite()),
            DType::F64 => cast_slice(self.bytes).iter().position(|value: &f64| !value.is_finite()),
            DType::U8 | DType::I32 | DType::I64 => None,
        }
    }

    /// A range of the elements.
    pub(super) fn part(self, range: Range<usize>) -> Self {
        let size = self.dtype.size();
        Self { bytes: &self.bytes[range.start * size..range.end * size], ..self }
    }

    pub(super) fn bytes(self) -> &'a [u8] {
        self.bytes
    }
}

/// Elements to write.
#[derive(Debug, PartialEq)]
pub struct ValuesMut<'a> {
    dtype: DType,
    bytes: &'a mut [u8],
}

impl<'a> ValuesMut<'a> {
    /// The elements of a slice.
    #[must_use]
    pub fn of<T: Element>(elements: &'a mut [T]) -> Self {
        Self { dtype: T::DTYPE, bytes: cast_slice_mut(elements) }
    }

    /// Splits off the first `n` elements.
    pub(super) fn split_off(&mut self, n: usize) -> Self {
        let bytes = self.bytes.split_off_mut(..n * self.dtype.size()).unwrap_or_default();
        Self { dtype: self.dtype, bytes }
    }

    /// The same elements, reborrowed.
    pub(super) fn reborrow(&mut self) -> ValuesMut<'_> {
        ValuesMut { dtype: self.dtype, bytes: self.bytes }
    }

    /// The same elements, to read.
    #[must_use]
    pub const fn as_values(&self) -> Values<'_> {
        Values { dtype: self.dtype, bytes: self.bytes }
    }

    pub(super) fn bytes(&mut self) -> &mut [u8] {
        self.bytes
    }
}
