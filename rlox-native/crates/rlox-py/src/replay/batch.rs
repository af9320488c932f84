//! The arrays of a batch, new or the caller's, and their dict.

use numpy::{PyArrayMethods, PyReadwriteArrayDyn};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rlox_kernels::replay::Batch;

use super::arrays::{OutArray, caller_array, caller_flags, caller_values, new_values, zeros};
use super::fields::Fields;

/// The arrays of a batch, borrowed for writing.
pub(super) struct BatchArrays<'py> {
    obs: Box<dyn OutArray<'py> + 'py>,
    next_obs: Option<Box<dyn OutArray<'py> + 'py>>,
    actions: Box<dyn OutArray<'py> + 'py>,
    rewards: PyReadwriteArrayDyn<'py, f32>,
    terminated: PyReadwriteArrayDyn<'py, bool>,
    truncated: PyReadwriteArrayDyn<'py, bool>,
    discounts: Option<PyReadwriteArrayDyn<'py, f32>>,
}

impl<'py> BatchArrays<'py> {
    /// New arrays for `n` drawn transitions.
    pub(super) fn drawn(py: Python<'py>, fields: &Fields, n: usize) -> PyResult<Self> {
        let mut arrays = Self::new(py, fields, &[n])?;
        if fields.has_discounts() {
            arrays.discounts = Some(zeros(py, &[n])?.try_readwrite()?);
        }
        Ok(arrays)
    }

    /// New arrays for transitions in a grid with these axes.
    pub(super) fn new(py: Python<'py>, fields: &Fields, axes: &[usize]) -> PyResult<Self> {
        let obs = [axes, &fields.obs[..]].concat();
        let mut arrays = Self::without_next_obs(py, fields, axes)?;
        arrays.next_obs = Some(new_values(py, fields.layout.obs.dtype, &obs)?);
        Ok(arrays)
    }

    /// The same without the next observations.
    pub(super) fn without_next_obs(
        py: Python<'py>,
        fields: &Fields,
        axes: &[usize],
    ) -> PyResult<Self> {
        let obs = [axes, &fields.obs[..]].concat();
        let action = [axes, &fields.action[..]].concat();
        Ok(Self {
            obs: new_values(py, fields.layout.obs.dtype, &obs)?,
            next_obs: None,
            actions: new_values(py, fields.layout.action.dtype, &action)?,
            rewards: zeros(py, axes)?.try_readwrite()?,
            terminated: zeros(py, axes)?.try_readwrite()?,
            truncated: zeros(py, axes)?.try_readwrite()?,
            discounts: None,
        })
    }

    /// The caller's arrays for `n` transitions; `next_obs` may be absent.
    pub(super) fn of(out: &Bound<'py, PyDict>, fields: &Fields, n: usize) -> PyResult<Self> {
        let obs = [&[n], &fields.obs[..]].concat();
        let action = [&[n], &fields.action[..]].concat();
        let (obs_dtype, act_dtype) = (fields.layout.obs.dtype, fields.layout.action.dtype);
        let next_obs = out.get_item("next_obs")?;
        Ok(Self {
            obs: caller_values(&item(out, "obs")?, "obs", obs_dtype, &obs)?,
            next_obs: next_obs
                .map(|array| caller_values(&array, "next_obs", obs_dtype, &obs))
                .transpose()?,
            actions: caller_values(&item(out, "actions")?, "actions", act_dtype, &action)?,
            rewards: caller_array(&item(out, "rewards")?, "rewards", &[n])?,
            terminated: caller_flags(&item(out, "terminated")?, "terminated", &[n])?,
            truncated: caller_flags(&item(out, "truncated")?, "truncated", &[n])?,
            discounts: fields
                .has_discounts()
                .then(|| caller_array(&item(out, "discounts")?, "discounts", &[n]))
                .transpose()?,
        })
    }

    pub(super) fn batch(&mut self) -> PyResult<Batch<'_>> {
        Ok(Batch {
            obs: self.obs.values()?,
            next_obs: self.next_obs.as_mut().map(|array| array.values()).transpose()?,
            actions: self.actions.values()?,
            rewards: self.rewards.as_slice_mut()?,
            terminated: self.terminated.as_slice_mut()?,
            truncated: self.truncated.as_slice_mut()?,
            discounts: match &mut self.discounts {
                Some(discounts) => Some(discounts.as_slice_mut()?),
                None => None,
            },
        })
    }

    /// The arrays by name.
    ///
    /// Without next observations, the dict explains their absence when they are looked up.
    pub(super) fn into_dict(self, py: Python<'py>, complete: bool) -> PyResult<Bound<'py, PyDict>> {
        let dict = if complete {
            PyDict::new(py)
        } else {
            let module = py.import(intern!(py, "rlox_native.replay"))?;
            module.getattr(intern!(py, "PartialBatch"))?.call0()?.cast_into()?
        };
        dict.set_item(intern!(py, "obs"), self.obs.object())?;
        if let Some(next_obs) = &self.next_obs
            && complete
        {
            dict.set_item(intern!(py, "next_obs"), next_obs.object())?;
        }
        dict.set_item(intern!(py, "actions"), self.actions.object())?;
        dict.set_item(intern!(py, "rewards"), self.rewards.as_any())?;
        dict.set_item(intern!(py, "terminated"), self.terminated.as_any())?;
        dict.set_item(intern!(py, "truncated"), self.truncated.as_any())?;
        if let Some(discounts) = &self.discounts {
            dict.set_item(intern!(py, "discounts"), discounts.as_any())?;
        }
        Ok(dict)
    }
}

/// The entry `dict[key]`.
pub(super) fn item<'py>(dict: &Bound<'py, PyDict>, key: &str) -> PyResult<Bound<'py, PyAny>> {
    dict.get_item(key)?.ok_or_else(|| PyValueError::new_err(format!("the key '{key}' is missing")))
}

/// Checks that `out` is a dict with the keys of a batch.
pub(super) fn parse_out<'a, 'py>(
    out: &'a Bound<'py, PyAny>,
    fields: &Fields,
    keys: &[&str],
) -> PyResult<&'a Bound<'py, PyDict>> {
    let discounts: &[&str] = if fields.has_discounts() { &["discounts"] } else { &[] };
    let next_obs = ("next_obs", "if the buffer has them all next_obs");
    parse_dict(out, "out", &[keys, discounts].concat(), Some(next_obs))
}

/// Checks that `dict` is a dict with exactly these keys and possibly the `optional` one, which
/// comes with its text for the message.
pub(super) fn parse_dict<'a, 'py>(
    object: &'a Bound<'py, PyAny>,
    name: &str,
    keys: &[&str],
    optional: Option<(&str, &str)>,
) -> PyResult<&'a Bound<'py, PyDict>> {
    let Ok(dict) = object.cast::<PyDict>() else {
        return Err(PyTypeError::new_err(format!("{name} must be a dict of arrays")));
    };
    let present = |key: &&str| dict.contains(*key).unwrap_or(false);
    let n_optional = usize::from(optional.is_some_and(|(key, _)| present(&key)));
    if keys.iter().all(present) && dict.len() == keys.len() + n_optional {
        return Ok(dict);
    }
    let keys = keys.join(", ");
    let keys = optional.map_or(keys.clone(), |(_, words)| format!("{keys} and {words}"));
    let text = format!("{name} must have the keys {keys}, got {}", dict.keys());
    Err(PyValueError::new_err(text))
}
