//! Returns and V-trace.

use numpy::Element;
use numpy::ndarray::{Dimension, IxDyn};
use pyo3::prelude::*;
use rlox_kernels::gae::Discount;
use rlox_kernels::number::Float;
use rlox_kernels::rollout::TimeMajor;
use rlox_kernels::vtrace::{Targets, Truncation, vtrace};
use rlox_kernels::{KernelError, returns};

use crate::convert::{check_shape, parse_size, real, real_array};
use crate::errors::raise;
use crate::output::{filled, filled_pair};
use crate::precision::in_precision_of;
use crate::rollout::{Arguments, Rollout};

/// Compute V-trace targets and policy-gradient advantages of a rollout (T,) or (T, N).
///
/// Espeholt et al. 2018, equation 1. In float32 if `rewards` is, in float64 otherwise.
#[pyfunction]
#[pyo3(signature = (
    log_rhos, rewards, values, dones, bootstrap_value, gamma, rho_bar=1.0, c_bar=1.0, *,
    truncated=None, final_values=None,
))]
pub(crate) fn compute_vtrace<'py>(
    py: Python<'py>,
    log_rhos: &Bound<'py, PyAny>,
    rewards: &Bound<'py, PyAny>,
    values: &Bound<'py, PyAny>,
    dones: &Bound<'py, PyAny>,
    bootstrap_value: &Bound<'py, PyAny>,
    #[pyo3(from_py_with = real::gamma)] gamma: f64,
    #[pyo3(from_py_with = real::rho_bar)] rho_bar: f64,
    #[pyo3(from_py_with = real::c_bar)] c_bar: f64,
    truncated: Option<&Bound<'py, PyAny>>,
    final_values: Option<&Bound<'py, PyAny>>,
) -> PyResult<Py<PyAny>> {
    let last_value = ("bootstrap_value", bootstrap_value);
    let rollout = Arguments { rewards, values, dones, last_value, truncated, final_values };
    let bars = Truncation { rho_bar, c_bar };
    in_precision_of!(rewards, |F| {
        let rollout = Rollout::<F>::parse(&rollout)?;
        let log_rhos = real_array::<F, IxDyn>(log_rhos, "log_rhos")?;
        let shape = rollout.shape();
        let got = log_rhos.as_array().raw_dim();
        check_shape("log_rhos", got.slice(), "rewards", shape.slice())?;
        let (input, log_rhos) = (rollout.time_major()?, log_rhos.as_slice()?);
        let pair = filled_pair(py, shape, None, |vs, pg_advantages| {
            vtrace(&input, log_rhos, gamma, bars, &mut Targets { vs, pg_advantages })
        })?;
        Ok(pair.into_pyobject(py)?.into_any().unbind())
    })
}

/// Compute discounted returns of a rollout (T,) or (T, N).
#[pyfunction]
#[pyo3(signature = (rewards, dones, last_value, gamma, *, truncated=None, final_values=None))]
pub(crate) fn compute_discounted_returns<'py>(
    py: Python<'py>,
    rewards: &Bound<'py, PyAny>,
    dones: &Bound<'py, PyAny>,
    last_value: &Bound<'py, PyAny>,
    #[pyo3(from_py_with = real::gamma)] gamma: f64,
    truncated: Option<&Bound<'py, PyAny>>,
    final_values: Option<&Bound<'py, PyAny>>,
) -> PyResult<Py<PyAny>> {
    // The kernel reads no values; the rewards stand in for an array of that shape.
    let last_value = ("last_value", last_value);
    let rollout =
        Arguments { rewards, values: rewards, dones, last_value, truncated, final_values };
    in_precision_of!(rewards, |F| write::<F>(py, &rollout, |input, out| {
        returns::discounted_returns(input, gamma, out)
    }))
}

/// Compute n-step returns of a rollout (T,) or (T, N).
#[pyfunction]
#[pyo3(signature = (
    rewards, values, dones, last_value, gamma, n, *, truncated=None, final_values=None,
))]
pub(crate) fn compute_n_step_returns<'py>(
    py: Python<'py>,
    rewards: &Bound<'py, PyAny>,
    values: &Bound<'py, PyAny>,
    dones: &Bound<'py, PyAny>,
    last_value: &Bound<'py, PyAny>,
    #[pyo3(from_py_with = real::gamma)] gamma: f64,
    n: &Bound<'py, PyAny>,
    truncated: Option<&Bound<'py, PyAny>>,
    final_values: Option<&Bound<'py, PyAny>>,
) -> PyResult<Py<PyAny>> {
    let n = parse_size(n, "n")?;
    let last_value = ("last_value", last_value);
    let rollout = Arguments { rewards, values, dones, last_value, truncated, final_values };
    in_precision_of!(rewards, |F| write::<F>(py, &rollout, |input, out| returns::n_step_returns(
        input, gamma, n, out
    )))
}

/// Compute λ-returns of a rollout (T,) or (T, N).
#[pyfunction]
#[pyo3(signature = (
    rewards, values, dones, last_value, gamma, lam, *, truncated=None, final_values=None,
))]
pub(crate) fn compute_lambda_returns<'py>(
    py: Python<'py>,
    rewards: &Bound<'py, PyAny>,
    values: &Bound<'py, PyAny>,
    dones: &Bound<'py, PyAny>,
    last_value: &Bound<'py, PyAny>,
    #[pyo3(from_py_with = real::gamma)] gamma: f64,
    #[pyo3(from_py_with = real::lam)] lam: f64,
    truncated: Option<&Bound<'py, PyAny>>,
    final_values: Option<&Bound<'py, PyAny>>,
) -> PyResult<Py<PyAny>> {
    let discount = Discount::new(gamma, lam).map_err(raise)?;
    let last_value = ("last_value", last_value);
    let rollout = Arguments { rewards, values, dones, last_value, truncated, final_values };
    in_precision_of!(rewards, |F| write::<F>(py, &rollout, |input, out| returns::lambda_returns(
        input, discount, out
    )))
}

/// An array like the rewards, filled by `kernel`.
fn write<'py, F: Float + Element + Sync>(
    py: Python<'py>,
    rollout: &Arguments<'_, 'py>,
    kernel: impl FnOnce(&TimeMajor<'_, F, u8>, &mut [F]) -> Result<(), KernelError> + Send,
) -> PyResult<Py<PyAny>> {
    let rollout = Rollout::<F>::parse(rollout)?;
    let input = rollout.time_major()?;
    let returns = filled(py, rollout.shape(), |out| kernel(&input, out))?;
    Ok(returns.into_any().unbind())
}
