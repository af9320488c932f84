//! The array functions.

use numpy::ndarray::{Ix1, Ix2};
use numpy::{Element, PyUntypedArrayMethods};
use pyo3::prelude::*;
use rlox_kernels::gae::{
    Discount, EnvMajor, Estimates, Float, TimeMajor, gae_env_major, gae_time_major,
};

use crate::convert::{check_shape, parse_size, real, real_array};
use crate::errors::raise;
use crate::flags::mask_array;
use crate::output::{Pair, filled_pair};
use crate::precision::in_precision_of;

/// The caller's pair of arrays for advantages and returns.
type Out<'a, 'py> = Option<&'a Bound<'py, PyAny>>;

/// Estimate advantages and returns of one trajectory, arrays (T,) in float64.
///
/// `dones` stop both the bootstrap and the trace. Schulman et al. 2016, equations 11 to 16.
#[pyfunction]
#[pyo3(signature = (rewards, values, dones, last_value, gamma, lam, *, out=None))]
pub(crate) fn compute_gae<'py>(
    rewards: &Bound<'py, PyAny>,
    values: &Bound<'py, PyAny>,
    dones: &Bound<'py, PyAny>,
    #[pyo3(from_py_with = real::last_value)] last_value: f64,
    #[pyo3(from_py_with = real::gamma)] gamma: f64,
    #[pyo3(from_py_with = real::lam)] lam: f64,
    out: Out<'_, 'py>,
) -> PyResult<Pair<'py, f64, Ix1>> {
    let py = rewards.py();
    let discount = Discount::new(gamma, lam).map_err(raise)?;
    let rewards = real_array::<f64, Ix1>(rewards, "rewards")?;
    let values = real_array::<f64, Ix1>(values, "values")?;
    let dones = mask_array::<Ix1>(dones, "dones")?;
    let n_steps = rewards.len();
    let input = EnvMajor {
        rewards: rewards.as_slice()?,
        values: values.as_slice()?,
        dones: dones.as_slice(),
        last_values: &[last_value],
    };
    filled_pair(py, Ix1(n_steps), out, |advantages, returns| {
        gae_env_major(&input, n_steps, discount, &mut Estimates { advantages, returns })
    })
}

/// Estimate advantages and returns of trajectories of `n_steps` each, stored one after the other in
/// arrays (`n_envs` * `n_steps`,), in float64.
#[pyfunction]
#[pyo3(signature = (rewards, values, dones, last_values, n_steps, gamma, lam, *, out=None))]
pub(crate) fn compute_gae_batched<'py>(
    rewards: &Bound<'py, PyAny>,
    values: &Bound<'py, PyAny>,
    dones: &Bound<'py, PyAny>,
    last_values: &Bound<'py, PyAny>,
    n_steps: &Bound<'py, PyAny>,
    #[pyo3(from_py_with = real::gamma)] gamma: f64,
    #[pyo3(from_py_with = real::lam)] lam: f64,
    out: Out<'_, 'py>,
) -> PyResult<Pair<'py, f64, Ix1>> {
    let discount = Discount::new(gamma, lam).map_err(raise)?;
    env_major([rewards, values, dones, last_values], n_steps, discount, out)
}

/// Do the same as `compute_gae_batched`, in float32.
#[pyfunction]
#[pyo3(signature = (rewards, values, dones, last_values, n_steps, gamma, lam, *, out=None))]
pub(crate) fn compute_gae_batched_f32<'py>(
    rewards: &Bound<'py, PyAny>,
    values: &Bound<'py, PyAny>,
    dones: &Bound<'py, PyAny>,
    last_values: &Bound<'py, PyAny>,
    n_steps: &Bound<'py, PyAny>,
    #[pyo3(from_py_with = real::gamma)] gamma: f64,
    #[pyo3(from_py_with = real::lam)] lam: f64,
    out: Out<'_, 'py>,
) -> PyResult<Pair<'py, f32, Ix1>> {
    let discount = Discount::new(gamma, lam).map_err(raise)?;
    env_major([rewards, values, dones, last_values], n_steps, discount, out)
}

fn env_major<'py, F: Float + Element + Sync>(
    [rewards, values, dones, last_values]: [&Bound<'py, PyAny>; 4],
    n_steps: &Bound<'py, PyAny>,
    discount: Discount,
    out: Out<'_, 'py>,
) -> PyResult<Pair<'py, F, Ix1>> {
    let py = rewards.py();
    let n_steps = parse_size(n_steps, "n_steps")?;
    let rewards = real_array::<F, Ix1>(rewards, "rewards")?;
    let values = real_array::<F, Ix1>(values, "values")?;
    let dones = mask_array::<Ix1>(dones, "dones")?;
    let last_values = real_array::<F, Ix1>(last_values, "last_values")?;
    let input = EnvMajor {
        rewards: rewards.as_slice()?,
        values: values.as_slice()?,
        dones: dones.as_slice(),
        last_values: last_values.as_slice()?,
    };
    filled_pair(py, Ix1(rewards.len()), out, |advantages, returns| {
        gae_env_major(&input, n_steps, discount, &mut Estimates { advantages, returns })
    })
}

/// Estimate advantages and returns of a rollout, arrays (T, N), in the type of `rewards`.
///
/// The next value is 0 where `terminated`, `final_values` where only `truncated`, and the next
/// row's otherwise; the trace stops at both.
#[pyfunction]
#[pyo3(signature = (
    rewards, values, terminated, truncated, final_values, last_values, gamma, lam, *, out=None,
))]
pub(crate) fn compute_gae_time_major<'py>(
    rewards: &Bound<'py, PyAny>,
    values: &Bound<'py, PyAny>,
    terminated: &Bound<'py, PyAny>,
    truncated: &Bound<'py, PyAny>,
    final_values: &Bound<'py, PyAny>,
    last_values: &Bound<'py, PyAny>,
    #[pyo3(from_py_with = real::gamma)] gamma: f64,
    #[pyo3(from_py_with = real::lam)] lam: f64,
    out: Out<'_, 'py>,
) -> PyResult<Py<PyAny>> {
    let py = rewards.py();
    let discount = Discount::new(gamma, lam).map_err(raise)?;
    in_precision_of!(rewards, |F| {
        let rewards = real_array::<F, Ix2>(rewards, "rewards")?;
        let values = real_array::<F, Ix2>(values, "values")?;
        let terminated = mask_array::<Ix2>(terminated, "terminated")?;
        let truncated = mask_array::<Ix2>(truncated, "truncated")?;
        let final_values = real_array::<F, Ix2>(final_values, "final_values")?;
        let last_values = real_array::<F, Ix1>(last_values, "last_values")?;
        // The kernel sees flat slices, in which a transposed array would have the right length.
        let expected = rewards.shape();
        check_shape("values", values.shape(), "rewards", expected)?;
        check_shape("terminated", terminated.shape(), "rewards", expected)?;
        check_shape("truncated", truncated.shape(), "rewards", expected)?;
        check_shape("final_values", final_values.shape(), "rewards", expected)?;
        let shape = rewards.as_array().raw_dim();
        check_shape("last_values", last_values.shape(), "a row of rewards", &[shape[1]])?;
        let input = TimeMajor {
            rewards: rewards.as_slice()?,
            values: values.as_slice()?,
            terminated: terminated.as_slice(),
            truncated: truncated.as_slice(),
            final_values: final_values.as_slice()?,
            last_values: last_values.as_slice()?,
        };
        let pair = filled_pair(py, shape, out, |advantages, returns| {
            gae_time_major(&input, discount, &mut Estimates { advantages, returns })
        })?;
        Ok(pair.into_pyobject(py)?.into_any().unbind())
    })
}
