//! Conversion of Python objects to arguments of kernels.

use numpy::{
    BorrowError, Element, PyArray, PyArrayDescrMethods, PyArrayMethods, PyReadonlyArray,
    PyReadwriteArray, PyUntypedArray, PyUntypedArrayMethods, ndarray::Dimension,
};
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyString};
use rlox_kernels::KernelError;

use crate::errors::raise;

/// NumPy's letters of the kinds that convert to real numbers.
const REAL_KINDS: &[u8] = b"biuf";

/// Largest number of hidden layers of a network.
const MAX_LAYERS: usize = 1 << 8;

/// `object` as a NumPy array of real numbers of any type; `name` is for messages.
pub(crate) fn as_real_array<'py>(
    object: &Bound<'py, PyAny>,
    name: &str,
) -> PyResult<Bound<'py, PyUntypedArray>> {
    let py = object.py();
    let array = if let Ok(array) = object.cast::<PyUntypedArray>() {
        array.clone()
    } else {
        let array = numpy_call(py, "asarray", (object,)).map_err(|cause| {
            if !cause.is_instance_of::<PyValueError>(py) {
                return cause;
            }
            let error = PyValueError::new_err(format!("{name} must be a rectangular array"));
            error.set_cause(py, Some(cause));
            error
        })?;
        array.cast_into::<PyUntypedArray>()?
    };
    let dtype = array.dtype();
    if REAL_KINDS.contains(&dtype.kind()) {
        return Ok(array);
    }
    // An array of integers beyond 64 bits has dtype object.
    let size = if dtype.kind() == b'O' { " that fit 64 bits" } else { "" };
    Err(PyTypeError::new_err(format!("{name} must hold real numbers{size}, got dtype {dtype}")))
}

/// Calls `numpy.<function>`.
pub(crate) fn numpy_call<'py>(
    py: Python<'py>,
    function: &str,
    args: impl pyo3::call::PyCallArgs<'py>,
) -> PyResult<Bound<'py, PyAny>> {
    py.import(intern!(py, "numpy"))?.getattr(function)?.call1(args)
}

/// `object` as a contiguous array of `T`, unchanged if it already is one.
pub(crate) fn real_array<'py, T: Element, D: Dimension>(
    object: &Bound<'py, PyAny>,
    name: &str,
) -> PyResult<PyReadonlyArray<'py, T, D>> {
    if let Ok(array) = object.cast::<PyArray<T, D>>()
        && is_plain(array.as_untyped())
    {
        return borrow(array, name);
    }
    let array = as_real_array(object, name)?;
    let ndim = array.ndim();
    if let Some(expected) = D::NDIM
        && ndim != expected
    {
        let plural = if expected == 1 { "" } else { "s" };
        let text = format!("{name} must have {expected} dimension{plural}, got {ndim}");
        return Err(PyValueError::new_err(text));
    }
    let py = object.py();
    // Not `ascontiguousarray`, which leaves an unaligned array unaligned.
    let array = numpy_call(py, "require", (array, T::get_dtype(py), "CA"))?;
    borrow(array.cast::<PyArray<T, D>>()?, name)
}

/// Checks that the argument `name` has the shape `expected`, which `like` determines.
pub(crate) fn check_shape(
    name: &'static str,
    got: &[usize],
    like: &'static str,
    expected: &[usize],
) -> PyResult<()> {
    if got == expected {
        return Ok(());
    }
    let (expected, got) = (expected.to_vec(), got.to_vec());
    Err(raise(KernelError::Shape { name, expected, like, got }))
}

/// Whether the elements can be a Rust slice: contiguous in C order and aligned.
pub(crate) fn is_plain(array: &Bound<'_, PyUntypedArray>) -> bool {
    array.is_c_contiguous() && array.is_aligned()
}

pub(crate) fn borrow<'py, T: Element, D: Dimension>(
    array: &Bound<'py, PyArray<T, D>>,
    name: &str,
) -> PyResult<PyReadonlyArray<'py, T, D>> {
    array.try_readonly().map_err(|_| PyValueError::new_err(format!("{name} is being written to")))
}

/// A size: an integer of at least 1, from any object with `__index__` except a bool.
pub(crate) fn parse_size(object: &Bound<'_, PyAny>, name: &str) -> PyResult<usize> {
    match parse_at_least(1, object, name)? {
        0 => Err(PyValueError::new_err(format!("{name} must be at least 1, got {object}"))),
        size => Ok(size),
    }
}

/// A count: an integer of at least 0, from any object with `__index__` except a bool.
pub(crate) fn parse_count(object: &Bound<'_, PyAny>, name: &str) -> PyResult<usize> {
    parse_at_least(0, object, name)
}

/// A non-negative integer; `low` is for the message.
fn parse_at_least(low: usize, object: &Bound<'_, PyAny>, name: &str) -> PyResult<usize> {
    if object.is_instance_of::<PyBool>() {
        return Err(PyTypeError::new_err(format!("{name} must be an integer, got bool")));
    }
    object.extract().map_err(|error| no_integer(&error, object, name, low))
}

/// Widths of hidden layers, read one by one, because a sequence's length may be wrong.
pub(crate) fn parse_hidden(object: &Bound<'_, PyAny>) -> PyResult<Vec<usize>> {
    let mut widths = Vec::new();
    for width in object.try_iter()? {
        if widths.len() == MAX_LAYERS {
            let text = format!("hidden must have at most {MAX_LAYERS} layers, got more");
            return Err(PyValueError::new_err(text));
        }
        widths.push(parse_size(&width?, "every width of hidden")?);
    }
    Ok(widths)
}

/// The widths of critics, if they have their own.
pub(crate) fn parse_critic_hidden(object: &Bound<'_, PyAny>) -> PyResult<Option<Vec<usize>>> {
    if object.is_none() { Ok(None) } else { parse_hidden(object).map(Some) }
}

/// Number of gradient steps taken so far.
pub(crate) fn parse_step(object: &Bound<'_, PyAny>) -> PyResult<u64> {
    parse_count(object, "step").map(|step| step as u64)
}

/// Delta degrees of freedom of a standard deviation.
pub(crate) fn parse_ddof(object: &Bound<'_, PyAny>) -> PyResult<usize> {
    parse_count(object, "ddof")
}

/// A real number of Python or NumPy.
pub(crate) fn parse_real(object: &Bound<'_, PyAny>, name: &str) -> PyResult<f64> {
    object.extract().map_err(|error: PyErr| {
        if error.is_instance_of::<PyOverflowError>(object.py()) {
            return PyValueError::new_err(format!("{name} must fit float64, got a larger integer"));
        }
        PyTypeError::new_err(format!("{name} must be a real number, got {}", type_name(object)))
    })
}

/// Parsers of real arguments, each with the argument's name.
pub(crate) mod real {
    use super::{Bound, PyAny, PyResult, parse_real};

    macro_rules! parsers {
        ($($name:ident),*) => {$(
            pub(crate) fn $name(object: &Bound<'_, PyAny>) -> PyResult<f64> {
                parse_real(object, stringify!($name))
            }
        )*};
    }

    parsers!(
        alpha,
        beta,
        c_bar,
        ent_coef,
        eps,
        expectile,
        gamma,
        lam,
        last_value,
        learning_rate,
        max_weight,
        penalty_weight,
        policy_learning_rate,
        rho_bar,
        scale,
        tau,
        temperature,
        vf_coef
    );
}

/// The error for an object that is not an integer from `low` to the largest machine word.
fn no_integer(error: &PyErr, object: &Bound<'_, PyAny>, name: &str, low: usize) -> PyErr {
    if error.is_instance_of::<PyTypeError>(object.py()) {
        let text = format!("{name} must be an integer, got {}", type_name(object));
        return PyTypeError::new_err(text);
    }
    let bound = if object.gt(0).unwrap_or(false) {
        format!("at most {}", usize::MAX)
    } else {
        format!("at least {low}")
    };
    PyValueError::new_err(format!("{name} must be {bound}, got {object}"))
}

/// A seed: an integer in `[0, 2**64)`, from any object with `__index__` except a bool.
pub(crate) fn parse_seed(object: &Bound<'_, PyAny>) -> PyResult<u64> {
    let py = object.py();
    let is_bool = object.is_instance_of::<PyBool>();
    let Some(integer) = object.call_method0(intern!(py, "__index__")).ok().filter(|_| !is_bool)
    else {
        return Err(PyTypeError::new_err(format!(
            "seed must be a non-negative integer or None, got {}",
            type_name(object)
        )));
    };
    integer.extract().map_err(|_| {
        PyValueError::new_err(format!("seed must lie in [0, {}], got {integer}", u64::MAX))
    })
}

/// The seeds of `n_envs` envs: the integer `s` is s, s + 1, ...; a sequence gives one seed per env.
pub(crate) fn parse_seeds(
    object: Option<&Bound<'_, PyAny>>,
    n_envs: usize,
) -> PyResult<Option<Vec<u64>>> {
    let Some(object) = object else { return Ok(None) };
    let len = if object.is_instance_of::<PyString>() { None } else { object.len().ok() };
    let Some(len) = len else {
        let first = parse_seed(object)?;
        let Some(last) = first.checked_add(n_envs as u64 - 1) else {
            let text = format!("seed + n - 1 must lie in [0, {}], got seed {first}", u64::MAX);
            return Err(PyValueError::new_err(text));
        };
        return Ok(Some((first..=last).collect()));
    };
    check_shape("seed", &[len], "the envs", &[n_envs])?;
    // Takes at most the promised number, as an iterator may be endless.
    let items = object.try_iter()?.take(n_envs);
    items.map(|item| parse_seed(&item?)).collect::<PyResult<_>>().map(Some)
}

pub(crate) fn type_name(object: &Bound<'_, PyAny>) -> String {
    object.get_type().name().map_or_else(|_| "an object".to_owned(), |name| name.to_string())
}

/// `object` as a kernel's output array: exactly this type, shape and layout.
pub(crate) fn output_array<'py, T: Element, D: Dimension>(
    object: &Bound<'py, PyAny>,
    name: &'static str,
    expected: &[usize],
) -> PyResult<PyReadwriteArray<'py, T, D>> {
    let Ok(array) = object.cast::<PyUntypedArray>() else {
        let text = format!("{name} must be a NumPy array, got {}", type_name(object));
        return Err(PyTypeError::new_err(text));
    };
    let (dtype, got) = (array.dtype(), array.shape());
    if !dtype.is_equiv_to(&T::get_dtype(object.py())) {
        let text = format!("{name} must have dtype {}, got {dtype}", T::get_dtype(object.py()));
        return Err(PyTypeError::new_err(text));
    }
    check_shape(name, got, "the envs", expected)?;
    if !is_plain(array) {
        return Err(PyValueError::new_err(format!("{name} must be C-contiguous and aligned")));
    }
    array.cast::<PyArray<T, D>>()?.try_readwrite().map_err(|cause| match cause {
        BorrowError::NotWriteable => PyValueError::new_err(format!("{name} must be writeable")),
        _ => PyValueError::new_err(format!(
            "{name} must not share memory with another argument or with a call in progress"
        )),
    })
}
