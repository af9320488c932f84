//! Numbers of the types that a buffer can hold.

use std::ops::Range;

use bytemuck::{cast_slice, cast_slice_mut, pod_read_unaligned};

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
}

impl DType {
    /// The element in some bytes, as many as there are of one.
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

/// Elements to read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Values<'a> {
    /// Elements of [`DType::U8`].
    U8(&'a [u8]),
    /// Elements of [`DType::I32`].
    I32(&'a [i32]),
    /// Elements of [`DType::I64`].
    I64(&'a [i64]),
    /// Elements of [`DType::F32`].
    F32(&'a [f32]),
    /// Elements of [`DType::F64`].
    F64(&'a [f64]),
}

impl<'a> Values<'a> {
    /// The type of the elements.
    #[must_use]
    pub const fn dtype(self) -> DType {
        match self {
            Self::U8(_) => DType::U8,
            Self::I32(_) => DType::I32,
            Self::I64(_) => DType::I64,
            Self::F32(_) => DType::F32,
            Self::F64(_) => DType::F64,
        }
    }

    /// How many elements there are.
    #[must_use]
    pub const fn len(self) -> usize {
        match self {
            Self::U8(values) => values.len(),
            Self::I32(values) => values.len(),
            Self::I64(values) => values.len(),
            Self::F32(values) => values.len(),
            Self::F64(values) => values.len(),
        }
    }

    /// Whether there are no elements.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Where the first NaN or infinity is.
    pub(super) fn first_non_finite(self) -> Option<usize> {
        match self {
            Self::F32(values) => values.iter().position(|value| !value.is_finite()),
            Self::F64(values) => values.iter().position(|value| !value.is_finite()),
            Self::U8(_) | Self::I32(_) | Self::I64(_) => None,
        }
    }

    /// Some of the elements.
    pub(super) fn part(self, range: Range<usize>) -> Self {
        match self {
            Self::U8(values) => Self::U8(&values[range]),
            Self::I32(values) => Self::I32(&values[range]),
            Self::I64(values) => Self::I64(&values[range]),
            Self::F32(values) => Self::F32(&values[range]),
            Self::F64(values) => Self::F64(&values[range]),
        }
    }

    pub(super) fn bytes(self) -> &'a [u8] {
        match self {
            Self::U8(values) => values,
            Self::I32(values) => cast_slice(values),
            Self::I64(values) => cast_slice(values),
            Self::F32(values) => cast_slice(values),
            Self::F64(values) => cast_slice(values),
        }
    }
}

/// Elements to write.
#[derive(Debug, PartialEq)]
pub enum ValuesMut<'a> {
    /// Elements of [`DType::U8`].
    U8(&'a mut [u8]),
    /// Elements of [`DType::I32`].
    I32(&'a mut [i32]),
    /// Elements of [`DType::I64`].
    I64(&'a mut [i64]),
    /// Elements of [`DType::F32`].
    F32(&'a mut [f32]),
    /// Elements of [`DType::F64`].
    F64(&'a mut [f64]),
}

impl<'a> ValuesMut<'a> {
    /// The first `n` elements, and the others.
    pub(super) fn split_at(self, n: usize) -> (Self, Self) {
        fn halves<'a, T, V>(
            values: &'a mut [T],
            n: usize,
            of: impl Fn(&'a mut [T]) -> V,
        ) -> (V, V) {
            let (first, others) = values.split_at_mut(n);
            (of(first), of(others))
        }
        match self {
            Self::U8(values) => halves(values, n, Self::U8),
            Self::I32(values) => halves(values, n, Self::I32),
            Self::I64(values) => halves(values, n, Self::I64),
            Self::F32(values) => halves(values, n, Self::F32),
            Self::F64(values) => halves(values, n, Self::F64),
        }
    }

    /// The same elements for a while.
    pub(super) fn reborrow(&mut self) -> ValuesMut<'_> {
        match self {
            Self::U8(values) => ValuesMut::U8(values),
            Self::I32(values) => ValuesMut::I32(values),
            Self::I64(values) => ValuesMut::I64(values),
            Self::F32(values) => ValuesMut::F32(values),
            Self::F64(values) => ValuesMut::F64(values),
        }
    }

    /// The same elements, to read.
    #[must_use]
    pub const fn as_values(&self) -> Values<'_> {
        match self {
            Self::U8(values) => Values::U8(values),
            Self::I32(values) => Values::I32(values),
            Self::I64(values) => Values::I64(values),
            Self::F32(values) => Values::F32(values),
            Self::F64(values) => Values::F64(values),
        }
    }

    pub(super) fn bytes(&mut self) -> &mut [u8] {
        match self {
            Self::U8(values) => values,
            Self::I32(values) => cast_slice_mut(values),
            Self::I64(values) => cast_slice_mut(values),
            Self::F32(values) => cast_slice_mut(values),
            Self::F64(values) => cast_slice_mut(values),
        }
    }
}
