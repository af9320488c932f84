//! NumPy arrays of a buffer's element types.

use numpy::{
    Element, IxDyn, PyArray1, PyArrayDescrMethods, PyArrayDyn, PyArrayMethods, PyReadonlyArrayDyn,
    PyReadwriteArrayDyn, PyUntypedArray, PyUntypedArrayMethods,
};
use pyo3::exceptions::{PyMemoryError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyFloat;
use rlox_kernels::replay::{self, DType, Values, ValuesMut};

use super::numbers::Number;
use crate::convert::{as_real_array, check_shape, numpy_call, output_array, real_array};
use crate::flags::output_flags;

/// The required shape of an array, and the argument that determines it.
pub(crate) struct Expected<'a> {
    pub(crate) shape: &'a [usize],
    pub(crate) like: &'static str,
    /// Number of axes at the end that may be left out, because they have one element.
    pub(crate) optional: usize,
}

/// Numbers of one type: an array of this type, or converted numbers.
pub(crate) enum Cells<'py, T: Element> {
    Borrowed(PyReadonlyArrayDyn<'py, T>),
    Owned(Vec<T>),
}

impl<T: Element> Cells<'_, T> {
    pub(crate) fn as_slice(&self) -> PyResult<&[T]> {
        match self {
            Self::Borrowed(array) => Ok(array.as_slice()?),
            Self::Owned(values) => Ok(values),
        }
    }
}

/// `object` as numbers of the type `T`; a number that `T` cannot represent is refused.
pub(crate) fn read<'py, T: Number>(
    object: &Bound<'py, PyAny>,
    name: &'static str,
    expected: &Expected<'_>,
) -> PyResult<Cells<'py, T>> {
    if let Ok(array) = object.cast::<PyArrayDyn<T>>() {
        check_axes(name, array.shape(), expected)?;
        return Ok(Cells::Borrowed(real_array(object, name)?));
    }
    if expected.optional == expected.shape.len() {
        // A shortcut around NumPy for single numbers.
        let number = if let Ok(float) = object.cast::<PyFloat>() {
            Some(represent(T::from_f64(float.value()), 0, float.value(), name)?)
        } else if let Ok(integer) = object.extract::<i64>() {
            Some(represent(T::from_i64(integer), 0, integer, name)?)
        } else {
            None
        };
        if let Some(number) = number {
            return Ok(Cells::Owned(vec![number]));
        }
    }
    let array = as_real_array(object, name)?;
    check_axes(name, array.shape(), expected)?;
    if array.len() == 0 {
        return Ok(Cells::Owned(Vec::new()));
    }
    let dtype = array.dtype();
    let cells = match dtype.kind() {
        b'f' => convert(&array, name, T::from_f64),
        b'u' if dtype.itemsize() == 8 => convert(&array, name, T::from_u64),
        _ => convert(&array, name, T::from_i64),
    };
    cells.map(Cells::Owned)
}

/// `n` numbers, one for each element of `like`.
pub(crate) fn read_rows<'py, T: Number>(
    object: &Bound<'py, PyAny>,
    name: &'static str,
    like: &'static str,
    n: usize,
) -> PyResult<Cells<'py, T>> {
    read(object, name, &Expected { shape: &[n], like, optional: 0 })
}

/// Converts through a type that represents all numbers of the array.
fn convert<S: Element + Copy + std::fmt::Debug, T: Number>(
    array: &Bound<'_, PyUntypedArray>,
    name: &str,
    from: impl Fn(S) -> Option<T>,
) -> PyResult<Vec<T>> {
    let array = real_array::<S, IxDyn>(array.as_any(), name)?;
    let values = array.as_slice()?.iter().enumerate();
    values.map(|(index, &value)| represent(from(value), index, value, name)).collect()
}

fn represent<T: Number>(
    converted: Option<T>,
    index: usize,
    value: impl std::fmt::Debug,
    name: &str,
) -> PyResult<T> {
    converted.ok_or_else(|| {
        let dtype = T::NAME;
        // Printed with an exponent if it is long.
        let value = format!("{value:?}");
        let value = value.strip_suffix(".0").unwrap_or(&value);
        PyValueError::new_err(format!("{name} must fit {dtype}, got {value} at index {index}"))
    })
}

fn check_axes(name: &'static str, got: &[usize], expected: &Expected<'_>) -> PyResult<()> {
    let shape = expected.shape;
    if shape.len().checked_sub(expected.optional).and_then(|n| shape.get(..n)) == Some(got) {
        return Ok(());
    }
    check_shape(name, got, expected.like, shape)
}

/// Evaluates an expression of the Rust type of a [`DType`].
macro_rules! of_dtype {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            DType::U8 => of_dtype!(u8, $T, $body),
            DType::I32 => of_dtype!(i32, $T, $body),
            DType::I64 => of_dtype!(i64, $T, $body),
            DType::F32 => of_dtype!(f32, $T, $body),
            DType::F64 => of_dtype!(f64, $T, $body),
        }
    };
    ($type:ty, $T:ident, $body:expr) => {{
        type $T = $type;
        $body
    }};
}

/// Numbers of one of a buffer's types, to read.
pub(super) trait ValueArray {
    fn values(&self) -> PyResult<Values<'_>>;
}

impl<T: Number + replay::Element> ValueArray for Cells<'_, T> {
    fn values(&self) -> PyResult<Values<'_>> {
        Ok(Values::of(self.as_slice()?))
    }
}

/// `object` as numbers of a buffer's type.
pub(super) fn read_values<'py>(
    object: &Bound<'py, PyAny>,
    name: &'static str,
    dtype: DType,
    expected: &Expected<'_>,
) -> PyResult<Box<dyn ValueArray + 'py>> {
    of_dtype!(dtype, T => Ok(Box::new(read::<T>(object, name, expected)?)))
}

/// Numbers of one of a buffer's types, to write.
pub(super) trait OutArray<'py> {
    fn values(&mut self) -> PyResult<ValuesMut<'_>>;
    fn object(&self) -> &Bound<'py, PyAny>;
}

impl<'py, T: Element + replay::Element> OutArray<'py> for PyReadwriteArrayDyn<'py, T> {
    fn values(&mut self) -> PyResult<ValuesMut<'_>> {
        Ok(ValuesMut::of(self.as_slice_mut()?))
    }

    fn object(&self) -> &Bound<'py, PyAny> {
        self.as_any()
    }
}

/// A new array, to be overwritten.
pub(super) fn new_values<'py>(
    py: Python<'py>,
    dtype: DType,
    shape: &[usize],
) -> PyResult<Box<dyn OutArray<'py> + 'py>> {
    of_dtype!(dtype, T => Ok(Box::new(empty::<T>(py, shape)?.try_readwrite()?)))
}

/// An array of the caller's.
pub(super) fn caller_values<'py>(
    object: &Bound<'py, PyAny>,
    name: &'static str,
    dtype: DType,
    shape: &[usize],
) -> PyResult<Box<dyn OutArray<'py> + 'py>> {
    of_dtype!(dtype, T => Ok(Box::new(caller_array::<T>(object, name, shape)?)))
}

/// Beyond this size, an array is allocated by NumPy, which reports a lack of memory.
const LARGE: usize = 1 << 14;

/// A new array of zeros.
pub(super) fn zeros<'py, T: Element>(
    py: Python<'py>,
    shape: &[usize],
) -> PyResult<Bound<'py, PyArrayDyn<T>>> {
    allocate(py, shape, "zeros")
}

/// A new array to be overwritten. A large one is not zeroed first, which would take as long as
/// filling it.
fn empty<'py, T: Number>(py: Python<'py>, shape: &[usize]) -> PyResult<Bound<'py, PyArrayDyn<T>>> {
    allocate(py, shape, "empty")
}

/// A new array, by `numpy.<function>` if it is large. (The faster way for small arrays cannot
/// report a lack of memory.)
fn allocate<'py, T: Element>(
    py: Python<'py>,
    shape: &[usize],
    function: &str,
) -> PyResult<Bound<'py, PyArrayDyn<T>>> {
    let bytes = shape.iter().try_fold(size_of::<T>(), |size, &axis| size.checked_mul(axis));
    let Some(bytes) = bytes.filter(|&bytes| isize::try_from(bytes).is_ok()) else {
        let text = format!("not enough memory for an array of shape {shape:?}");
        return Err(PyMemoryError::new_err(text));
    };
    if bytes / size_of::<T>().max(1) <= LARGE {
        return Ok(PyArrayDyn::zeros(py, shape, false));
    }
    let array = numpy_call(py, function, (shape.to_vec(), T::get_dtype(py)))?;
    Ok(array.cast_into::<PyArrayDyn<T>>()?)
}

/// The caller's array `out[name]`.
pub(super) fn caller_array<'py, T: Element>(
    object: &Bound<'py, PyAny>,
    name: &'static str,
    shape: &[usize],
) -> PyResult<PyReadwriteArrayDyn<'py, T>> {
    check_rows(object, name, shape)?;
    output_array(object, name, shape)
}

/// The caller's flags `out[name]`.
pub(super) fn caller_flags<'py>(
    object: &Bound<'py, PyAny>,
    name: &'static str,
    shape: &[usize],
) -> PyResult<PyReadwriteArrayDyn<'py, bool>> {
    check_rows(object, name, shape)?;
    output_flags(object, name, shape)
}

fn check_rows(object: &Bound<'_, PyAny>, name: &'static str, shape: &[usize]) -> PyResult<()> {
    let Ok(array) = object.cast::<PyUntypedArray>() else { return Ok(()) };
    check_shape(name, array.shape(), "batch_size", shape)
}

/// One of a buffer's types, from anything that NumPy accepts as a dtype.
pub(super) fn parse_dtype(
    object: &Bound<'_, PyAny>,
    name: &str,
    allowed: &[DType],
) -> PyResult<DType> {
    let py = object.py();
    let found = numpy_call(py, "dtype", (object,)).ok().and_then(|dtype| {
        let dtype = dtype.cast_into::<numpy::PyArrayDescr>().ok()?;
        let is = |found: &DType| of_dtype!(found, T => dtype.is_equiv_to(&T::get_dtype(py)));
        allowed.iter().copied().find(is)
    });
    found.ok_or_else(|| {
        let names: Vec<_> = allowed.iter().map(|dtype| dtype.name()).collect();
        let (names, got) = (names.join(", "), object.repr());
        let got = got.map_or_else(|_| "another".to_owned(), |got| got.to_string());
        PyValueError::new_err(format!("{name} must be one of {names}, got {got}"))
    })
}

/// A one-dimensional array with the elements of `values`.
pub(crate) fn vector<'py, T: Element>(py: Python<'py>, values: &[T]) -> Bound<'py, PyAny> {
    PyArray1::from_slice(py, values).into_any()
}
