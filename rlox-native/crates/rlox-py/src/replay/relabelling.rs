//! Options of hindsight, and rewards of relabelled transitions by the caller's functions.

use numpy::{PyArrayDyn, PyArrayMethods};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PySlice};
use rlox_kernels::KernelError;
use rlox_kernels::replay::{Goals, Hindsight, Selection};

use super::arrays::{read_rows, vector};
use super::batch::item;
use super::fields::flags;
use super::options::unknown_option;
use crate::convert::{parse_count, parse_real, parse_size, type_name};
use crate::errors::raise;

/// The options of hindsight.
const HINDSIGHT: &[&str] = &[
    "compute_terminated",
    "distance_threshold",
    "n_sampled_goal",
    "goal_selection_strategy",
    "achieved_goal",
    "desired_goal",
];

const SELECTIONS: [(&str, Selection); 3] =
    [("future", Selection::Future), ("final", Selection::Final), ("episode", Selection::Episode)];

/// The caller's functions of goals, and the places of the goals.
pub(super) struct Relabelling {
    compute_reward: Option<Py<PyAny>>,
    compute_terminated: Option<Py<PyAny>>,
    goals: Goals,
}

/// Splits `options` into those of hindsight, the caller's functions, and the rest, which must be
/// among `others`.
pub(super) fn parse_hindsight<'py>(
    goal_dim: &Bound<'py, PyAny>,
    compute_reward: Option<&Bound<'py, PyAny>>,
    options: Option<&Bound<'py, PyDict>>,
    others: &[&str],
) -> PyResult<(Hindsight, Relabelling, Bound<'py, PyDict>)> {
    let len = parse_size(goal_dim, "goal_dim")?;
    let compute_reward = compute_reward.map(|f| parse_function(f, "compute_reward")).transpose()?;
    let (mut achieved, mut desired, mut compute_terminated) = (0, None, None);
    let (mut selection, mut n_sampled_goal, mut threshold) = (Selection::Future, 4, None);
    let rest = PyDict::new(goal_dim.py());
    for (name, value) in options.into_iter().flatten() {
        let key = name.extract::<&str>()?;
        if others.contains(&key) {
            rest.set_item(name, value)?;
            continue;
        }
        match key {
            "compute_terminated" | "distance_threshold" | "desired_goal" if value.is_none() => {}
            "compute_terminated" => compute_terminated = Some(parse_function(&value, key)?),
            "distance_threshold" => threshold = Some(parse_real(&value, key)?),
            "n_sampled_goal" => n_sampled_goal = parse_size(&value, key)?,
            "goal_selection_strategy" => selection = parse_selection(&value)?,
            "achieved_goal" => achieved = parse_count(&value, key)?,
            "desired_goal" => desired = Some(parse_count(&value, key)?),
            _ => return Err(unknown_option(key, &[HINDSIGHT, others].concat())),
        }
    }
    if compute_reward.is_some() == threshold.is_some() {
        let got = if threshold.is_some() { "both" } else { "neither" };
        let text = format!(
            "the rewards of other goals take either compute_reward or distance_threshold, got {got}"
        );
        return Err(PyValueError::new_err(text));
    }
    let desired = desired.unwrap_or(len.saturating_add(achieved));
    let goals = Goals { len, achieved, desired };
    let hindsight = Hindsight { goals, selection, n_sampled_goal, threshold };
    Ok((hindsight, Relabelling { compute_reward, compute_terminated, goals }, rest))
}

/// The options of hindsight, for a buffer's representation.
pub(super) fn describe(hindsight: &Hindsight) -> String {
    let selection = SELECTIONS.iter().find(|(_, known)| *known == hindsight.selection);
    let reward = match hindsight.threshold {
        Some(threshold) => format!("distance_threshold={threshold}"),
        None => "compute_reward=...".to_owned(),
    };
    format!(
        ", goal_dim={}, {reward}, n_sampled_goal={}, goal_selection_strategy='{}'",
        hindsight.goals.len,
        hindsight.n_sampled_goal,
        selection.map_or("", |(name, _)| name),
    )
}

impl Relabelling {
    pub(super) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.compute_reward)?;
        visit.call(&self.compute_terminated)
    }

    /// Recomputes the rewards of relabelled rows with the caller's functions.
    pub(super) fn recompute<'py>(
        &self,
        batch: &Bound<'py, PyDict>,
        relabelled: &Bound<'py, PyArrayDyn<bool>>,
    ) -> PyResult<()> {
        if self.compute_reward.is_none() && self.compute_terminated.is_none() {
            return Ok(());
        }
        let py = batch.py();
        let n = relabelled.try_readonly()?.as_slice()?.iter().filter(|row| **row).count();
        if n == 0 {
            return Ok(());
        }
        let rows = item(batch, "next_obs")?.get_item(relabelled)?;
        let goals = |begin: usize| -> PyResult<_> {
            let axis =
                PySlice::new(py, begin.cast_signed(), (begin + self.goals.len).cast_signed(), 1);
            rows.get_item((PySlice::full(py), axis))
        };
        let arguments = (goals(self.goals.achieved)?, goals(self.goals.desired)?, PyDict::new(py));
        let rewards = match &self.compute_reward {
            Some(function) => Some(compute_rewards(&function.bind(py).call1(&arguments)?, n)?),
            None => None,
        };
        if let Some(function) = &self.compute_terminated {
            let result = function.bind(py).call1(&arguments)?;
            let terminated = flags(&result, "the result of compute_terminated", n)?;
            item(batch, "terminated")?.set_item(relabelled, vector(py, &terminated))?;
        }
        rewards.map_or(Ok(()), |rewards| item(batch, "rewards")?.set_item(relabelled, rewards))
    }
}

/// The result of `compute_reward` as rewards.
fn compute_rewards<'py>(result: &Bound<'py, PyAny>, n: usize) -> PyResult<Bound<'py, PyAny>> {
    let name = "the result of compute_reward";
    let rewards = read_rows::<f32>(result, name, "the goals", n)?;
    let rewards = rewards.as_slice()?;
    if let Some(index) = rewards.iter().position(|reward| !reward.is_finite()) {
        return Err(raise(KernelError::NonFinite { name, index }));
    }
    Ok(vector(result.py(), rewards))
}

fn parse_function(object: &Bound<'_, PyAny>, name: &str) -> PyResult<Py<PyAny>> {
    if object.is_callable() {
        return Ok(object.clone().unbind());
    }
    let text = format!("{name} must be callable, got {}", type_name(object));
    Err(PyTypeError::new_err(text))
}

fn parse_selection(object: &Bound<'_, PyAny>) -> PyResult<Selection> {
    let name = object.extract::<String>().unwrap_or_default();
    let selection = SELECTIONS.iter().find(|(known, _)| *known == name);
    selection.map(|(_, selection)| *selection).ok_or_else(|| {
        let known = SELECTIONS.map(|(name, _)| name).join(", ");
        let got = object.repr().map_or_else(|_| "another".to_owned(), |got| got.to_string());
        let text = format!("goal_selection_strategy must be one of {known}, got {got}");
        PyValueError::new_err(text)
    })
}
