//! Transitions, batches and states as arrays.

use numpy::{Ix1, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::{PyMemoryError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyList, PySequence};
use rlox_kernels::KernelError;
use rlox_kernels::replay::{DType, Field, Layout, NStep, Transitions};

use super::arrays::{Cells, Expected, ValueArray, read, read_values};
use super::numbers::Number;
use super::options::Options;
use crate::convert::{as_real_array, check_shape, parse_real, parse_size};
use crate::errors::raise;
use crate::flags::mask_array;

pub(super) const OBS_DTYPES: &[DType] =
    &[DType::U8, DType::I32, DType::I64, DType::F32, DType::F64];
pub(super) const ACT_DTYPES: &[DType] = &[DType::F32, DType::I64];

/// The shapes and types of a buffer.
pub(super) struct Fields {
    pub(super) layout: Layout,
    pub(super) obs: Vec<usize>,
    pub(super) action: Vec<usize>,
}

impl Fields {
    pub(super) fn parse(
        capacity: &Bound<'_, PyAny>,
        obs_dim: &Bound<'_, PyAny>,
        act_dim: &Bound<'_, PyAny>,
        options: &Options,
    ) -> PyResult<Self> {
        let capacity = parse_size(capacity, "capacity")?;
        let (obs, obs_len) = parse_axes(obs_dim, "obs_dim")?;
        let (action, act_len) = parse_axes(act_dim, "act_dim")?;
        let frames = if options.share_frames { count_frames(&obs)? } else { 0 };
        let layout = Layout {
            capacity,
            obs: Field { dtype: options.obs_dtype, len: obs_len },
            action: Field { dtype: options.act_dtype, len: act_len },
            n_step: options.n_step,
            frames,
        };
        Ok(Self { layout, obs, action })
    }

    /// Number of envs stored in turn.
    pub(super) fn n_envs(&self) -> usize {
        self.layout.n_step.n_envs
    }

    /// Number of steps of a sampled transition.
    pub(super) fn n_step(&self) -> usize {
        self.layout.n_step.n_step
    }

    /// Whether a batch has discounts: they differ between transitions of several steps.
    pub(super) fn has_discounts(&self) -> bool {
        self.layout.n_step.n_step > 1
    }

    pub(super) fn describe(&self, class: &str, options: &str) -> String {
        let axes = |shape: &[usize]| match shape {
            [n] => n.to_string(),
            _ => format!(
                "({})",
                shape.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
            ),
        };
        let NStep { n_envs, n_step, gamma } = self.layout.n_step;
        let steps = match (n_envs, n_step) {
            (1, 1) => String::new(),
            (_, 1) => format!(", n_envs={n_envs}"),
            _ => format!(", n_envs={n_envs}, n_step={n_step}, gamma={gamma}"),
        };
        let frames = if self.layout.frames > 0 { ", share_frames=True" } else { "" };
        format!(
            "{class}(capacity={}, obs_dim={}, act_dim={}, obs_dtype='{}', \
             act_dtype='{}'{steps}{frames}{options})",
            self.layout.capacity,
            axes(&self.obs),
            axes(&self.action),
            self.layout.obs.dtype.name(),
            self.layout.action.dtype.name(),
        )
    }
}

/// Number of frames in a stacked observation of this shape.
fn count_frames(obs: &[usize]) -> PyResult<usize> {
    match obs {
        &[frames, _, ..] => Ok(frames),
        _ => Err(PyValueError::new_err(format!(
            "share_frames takes observations that are stacks of frames, frames first, got obs_dim \
             {obs:?}"
        ))),
    }
}

/// A size or a sequence of sizes, with their product.
pub(super) fn parse_axes(
    object: &Bound<'_, PyAny>,
    name: &'static str,
) -> PyResult<(Vec<usize>, usize)> {
    let Ok(axes) = object.cast::<PySequence>() else {
        let axis = parse_size(object, name)?;
        return Ok((vec![axis], axis));
    };
    // NumPy arrays have at most 64 axes, and a batch has one more than an observation.
    if axes.len()? >= 32 {
        return Err(PyValueError::new_err(format!("{name} must have fewer than 32 axes")));
    }
    let axes: Vec<usize> =
        axes.try_iter()?.take(32).map(|axis| parse_size(&axis?, name)).collect::<PyResult<_>>()?;
    let product = axes.iter().try_fold(1, |size: usize, &axis| size.checked_mul(axis));
    let too_much = || PyMemoryError::new_err(format!("not enough memory for {name} = {object}"));
    Ok((axes, product.ok_or_else(too_much)?))
}

/// A flag: a bool, or a real number, true unless it is zero.
fn parse_flag(object: &Bound<'_, PyAny>, name: &str) -> PyResult<bool> {
    if let Ok(flag) = object.cast::<PyBool>() {
        return Ok(flag.is_true());
    }
    Ok(parse_number(object, name)? != 0.0)
}

/// A real number, or an array of one.
fn parse_number(object: &Bound<'_, PyAny>, name: &str) -> PyResult<f64> {
    object.extract().or_else(|_: PyErr| parse_real(&element(object)?, name))
}

/// The element of an array of one, as returned by batched envs; other objects are returned
/// unchanged.
fn element<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let object = match object.cast::<PyList>() {
        Ok(list) if list.len() == 1 => &list.get_item(0)?,
        _ => object,
    };
    match object.cast::<PyUntypedArray>() {
        Ok(array) if array.len() == 1 => array.call_method0(intern!(array.py(), "item")),
        _ => Ok(object.clone()),
    }
}

/// Transitions from Python, held for the time of a call.
pub(super) struct Rows<'py> {
    obs: Box<dyn ValueArray + 'py>,
    actions: Box<dyn ValueArray + 'py>,
    rewards: Cells<'py, f32>,
    terminated: Vec<bool>,
    truncated: Vec<bool>,
    next_obs: Option<Box<dyn ValueArray + 'py>>,
}

impl<'py> Rows<'py> {
    /// One transition.
    pub(super) fn one(
        fields: &Fields,
        obs: &Bound<'py, PyAny>,
        action: &Bound<'py, PyAny>,
        reward: &Bound<'py, PyAny>,
        terminated: &Bound<'py, PyAny>,
        truncated: &Bound<'py, PyAny>,
        next_obs: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Self> {
        let row = |object: &Bound<'py, PyAny>, name, field: Field, shape: &[usize], like| {
            let optional = if field.len == 1 { shape.len() } else { 0 };
            read_values(object, name, field.dtype, &Expected { shape, like, optional })
        };
        let Layout { obs: obs_field, action: action_field, .. } = fields.layout;
        let obs_row =
            |object: &Bound<'py, PyAny>, name| row(object, name, obs_field, &fields.obs, "obs_dim");
        let value = parse_number(reward, "reward")?;
        let Some(reward) = f32::from_f64(value) else {
            let text = format!("reward must fit float32, got {value:?}");
            return Err(PyValueError::new_err(text));
        };
        Ok(Self {
            obs: obs_row(obs, "obs")?,
            actions: row(action, "action", action_field, &fields.action, "act_dim")?,
            rewards: Cells::Owned(vec![reward]),
            terminated: vec![parse_flag(terminated, "terminated")?],
            truncated: vec![parse_flag(truncated, "truncated")?],
            next_obs: next_obs.map(|next_obs| obs_row(next_obs, "next_obs")).transpose()?,
        })
    }

    /// `n` transitions, `n` being the length of the first axis of `rewards`.
    pub(super) fn many(
        fields: &Fields,
        obs: &Bound<'py, PyAny>,
        actions: &Bound<'py, PyAny>,
        rewards: &Bound<'py, PyAny>,
        terminated: &Bound<'py, PyAny>,
        truncated: &Bound<'py, PyAny>,
        next_obs: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Self> {
        let array = as_real_array(rewards, "rewards")?;
        let &[n] = array.shape() else {
            let text = format!("rewards must have 1 dimension, got {}", array.ndim());
            return Err(PyValueError::new_err(text));
        };
        let like = "rewards";
        let rows = |object: &Bound<'py, PyAny>, name, field: Field, shape: &[usize]| {
            let optional = if field.len == 1 { shape.len() } else { 0 };
            let shape = &[&[n], shape].concat();
            read_values(object, name, field.dtype, &Expected { shape, like, optional })
        };
        let Layout { obs: obs_field, action: action_field, .. } = fields.layout;
        Ok(Self {
            obs: rows(obs, "obs", obs_field, &fields.obs)?,
            actions: rows(actions, "actions", action_field, &fields.action)?,
            rewards: read(array.as_any(), "rewards", &Expected { shape: &[n], like, optional: 0 })?,
            terminated: flags(terminated, "terminated", n)?,
            truncated: flags(truncated, "truncated", n)?,
            next_obs: next_obs
                .map(|next_obs| rows(next_obs, "next_obs", obs_field, &fields.obs))
                .transpose()?,
        })
    }

    pub(super) fn len(&self) -> usize {
        self.terminated.len()
    }

    pub(super) fn transitions(&self) -> PyResult<Transitions<'_>> {
        Ok(Transitions {
            obs: self.obs.values()?,
            actions: self.actions.values()?,
            rewards: self.rewards.as_slice()?,
            terminated: &self.terminated,
            truncated: &self.truncated,
            next_obs: self.next_obs.as_ref().map(|array| array.values()).transpose()?,
        })
    }
}

/// One flag per row; any nonzero number is true.
pub(super) fn flags(
    object: &Bound<'_, PyAny>,
    name: &'static str,
    n: usize,
) -> PyResult<Vec<bool>> {
    let bytes = mask_array::<Ix1>(object, name)?;
    check_shape(name, bytes.shape(), "rewards", &[n])?;
    Ok(bytes.as_slice().iter().map(|&byte| byte != 0).collect())
}

/// The error of a push of one transition, with its argument names.
pub(super) fn raise_for_one(error: KernelError) -> PyErr {
    raise(match error {
        KernelError::NonFinite { name: "rewards", index } => {
            KernelError::NonFinite { name: "reward", index }
        }
        KernelError::NonFinite { name: "actions", index } => {
            KernelError::NonFinite { name: "action", index }
        }
        KernelError::Priority { value, .. } => KernelError::Priority { index: None, value },
        other => other,
    })
}
