//! Primitives of reinforcement learning on language models.

use numpy::ndarray::Ix1;
use numpy::{Element, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use rlox_kernels::KernelError;
use rlox_kernels::divergence;
use rlox_kernels::groups::{Normalization, Scale, group_advantages};
use rlox_kernels::number::Float;

use crate::convert::{parse_ddof, parse_size, real, real_array};
use crate::errors::raise;
use crate::output::filled;
use crate::precision::in_precision_of;

/// Compute the advantages of one group of rewards (G,).
///
/// In float32 if `rewards` is, in float64 otherwise.
#[pyfunction]
#[pyo3(signature = (rewards, *, ddof=0, eps=0.0, scale="group"))]
pub(crate) fn compute_group_advantages<'py>(
    py: Python<'py>,
    rewards: &Bound<'py, PyAny>,
    #[pyo3(from_py_with = parse_ddof)] ddof: usize,
    #[pyo3(from_py_with = real::eps)] eps: f64,
    scale: &str,
) -> PyResult<Py<PyAny>> {
    let how = Normalization { scale: parse_scale(scale)?, ddof, eps };
    in_precision_of!(rewards, |F| advantages::<F>(py, rewards, None, how))
}

/// Compute the advantages of groups of `group_size` rewards, one group after the other, (P*G,).
#[pyfunction]
#[pyo3(signature = (rewards, group_size, *, ddof=0, eps=0.0, scale="group"))]
pub(crate) fn compute_batch_group_advantages<'py>(
    py: Python<'py>,
    rewards: &Bound<'py, PyAny>,
    group_size: &Bound<'py, PyAny>,
    #[pyo3(from_py_with = parse_ddof)] ddof: usize,
    #[pyo3(from_py_with = real::eps)] eps: f64,
    scale: &str,
) -> PyResult<Py<PyAny>> {
    let group_size = parse_size(group_size, "group_size")?;
    let how = Normalization { scale: parse_scale(scale)?, ddof, eps };
    in_precision_of!(rewards, |F| advantages::<F>(py, rewards, Some(group_size), how))
}

fn parse_scale(scale: &str) -> PyResult<Scale> {
    match scale {
        "group" => Ok(Scale::Group),
        "batch" => Ok(Scale::Batch),
        "none" => Ok(Scale::None),
        _ => Err(PyValueError::new_err(format!(
            "scale must be one of 'group', 'batch', 'none', got '{scale}'"
        ))),
    }
}

fn advantages<'py, F: Float + Element + Sync>(
    py: Python<'py>,
    rewards: &Bound<'py, PyAny>,
    group_size: Option<usize>,
    how: Normalization,
) -> PyResult<Py<PyAny>> {
    let rewards = real_array::<F, Ix1>(rewards, "rewards")?;
    let rewards = rewards.as_slice()?;
    let group_size = group_size.unwrap_or(rewards.len().max(1));
    let shape = Ix1(rewards.len());
    let result = filled(py, shape, |out| group_advantages(rewards, group_size, how, out))?;
    Ok(result.into_any().unbind())
}

/// Sum exp(p) (p - q) over log-probabilities (L,) of the policy p and the reference q.
#[pyfunction]
pub(crate) fn compute_token_kl(
    py: Python<'_>,
    log_p: &Bound<'_, PyAny>,
    log_q: &Bound<'_, PyAny>,
) -> PyResult<f64> {
    in_precision_of!(log_p, |F| total::<F>(py, log_p, log_q, divergence::token_kl))
}

/// Sum Schulman's k3, exp(q - p) - (q - p) - 1, over log-probabilities (L,) of sampled tokens.
#[pyfunction]
pub(crate) fn compute_token_kl_schulman(
    py: Python<'_>,
    log_p: &Bound<'_, PyAny>,
    log_q: &Bound<'_, PyAny>,
) -> PyResult<f64> {
    in_precision_of!(log_p, |F| total::<F>(py, log_p, log_q, divergence::token_kl_schulman))
}

/// Do the same as `compute_token_kl` for sequences of `seq_len` each, (B*L,) to (B,).
#[pyfunction]
pub(crate) fn compute_batch_token_kl<'py>(
    py: Python<'py>,
    log_p: &Bound<'py, PyAny>,
    log_q: &Bound<'py, PyAny>,
    seq_len: &Bound<'py, PyAny>,
) -> PyResult<Py<PyAny>> {
    in_precision_of!(log_p, |F| totals::<F>(py, log_p, log_q, seq_len, divergence::batch_token_kl))
}

/// Do the same as `compute_token_kl_schulman` for sequences of `seq_len`, (B*L,) to (B,).
#[pyfunction]
pub(crate) fn compute_batch_token_kl_schulman<'py>(
    py: Python<'py>,
    log_p: &Bound<'py, PyAny>,
    log_q: &Bound<'py, PyAny>,
    seq_len: &Bound<'py, PyAny>,
) -> PyResult<Py<PyAny>> {
    in_precision_of!(log_p, |F| totals::<F>(
        py,
        log_p,
        log_q,
        seq_len,
        divergence::batch_token_kl_schulman
    ))
}

type Divergence<F> = fn(&[F], &[F]) -> Result<f64, KernelError>;
type Divergences<F> = fn(&[F], &[F], usize, &mut [F]) -> Result<(), KernelError>;

fn total<F: Float + Element + Sync>(
    py: Python<'_>,
    log_p: &Bound<'_, PyAny>,
    log_q: &Bound<'_, PyAny>,
    divergence: Divergence<F>,
) -> PyResult<f64> {
    let (log_p, log_q) = log_probs::<F>(log_p, log_q)?;
    let (log_p, log_q) = (log_p.as_slice()?, log_q.as_slice()?);
    py.detach(|| divergence(log_p, log_q)).map_err(raise)
}

fn totals<'py, F: Float + Element + Sync>(
    py: Python<'py>,
    log_p: &Bound<'py, PyAny>,
    log_q: &Bound<'py, PyAny>,
    seq_len: &Bound<'py, PyAny>,
    divergence: Divergences<F>,
) -> PyResult<Py<PyAny>> {
    let seq_len = parse_size(seq_len, "seq_len")?;
    let (log_p, log_q) = log_probs::<F>(log_p, log_q)?;
    let (log_p, log_q) = (log_p.as_slice()?, log_q.as_slice()?);
    let shape = Ix1(log_p.len() / seq_len);
    let result = filled(py, shape, |out| divergence(log_p, log_q, seq_len, out))?;
    Ok(result.into_any().unbind())
}

type Both<'py, F> = (PyReadonlyArray1<'py, F>, PyReadonlyArray1<'py, F>);

fn log_probs<'py, F: Element>(
    log_p: &Bound<'py, PyAny>,
    log_q: &Bound<'py, PyAny>,
) -> PyResult<Both<'py, F>> {
    Ok((real_array::<F, Ix1>(log_p, "log_p")?, real_array::<F, Ix1>(log_q, "log_q")?))
}
