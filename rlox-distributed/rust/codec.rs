//! Steps of envs between arrays and the messages of `workers.proto`.

use std::borrow::Cow;

use numpy::dtype;
use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};

use crate::arrays::{Bytes, Layout, Leaves, Rows, new_array};
use crate::binding::raised;
use crate::status::Status;
use crate::steps::{Answer, OBSERVATIONS, OUTCOME, Observations, Outcome, Request, read_reply};
use crate::wire::{Field, put_varint};

/// A step or the beginning of episodes, and the masks of the next actions.
type Part<'py> = (Bound<'py, PyDict>, Option<Bound<'py, PyAny>>);

/// The requests and answers of N envs.
#[pyclass(name = "StepCodec", module = "rlox_distributed._transport", frozen)]
pub(crate) struct PyStepCodec {
    observations: Layout,
    actions: Layout,
    rewards: Rows,
    masks: Rows,
    /// As [`FLAGS`].
    flags: Vec<Rows>,
    envs: usize,
}

/// The flags of an `Outcome`, their numbers, and whether they may be left out.
const FLAGS: [(&str, u32, bool); 4] =
    [("terminated", 3, false), ("truncated", 4, false), ("life_lost", 7, true), ("lost", 8, true)];

#[pymethods]
impl PyStepCodec {
    #[new]
    fn new(
        py: Python<'_>,
        observations: Leaves<'_>,
        actions: Leaves<'_>,
        n_envs: usize,
    ) -> PyResult<Self> {
        let flags =
            |name| Rows::new("", &PyString::intern(py, name), &dtype::<bool>(py), Vec::new());
        Ok(Self {
            observations: Layout::new("observations", observations)?,
            actions: Layout::new("actions", actions)?,
            rewards: Rows::new("", intern!(py, "rewards"), &dtype::<f64>(py), Vec::new())?,
            masks: flags("masks")?,
            flags: FLAGS.map(|(name, ..)| flags(name)).into_iter().collect::<PyResult<_>>()?,
            envs: n_envs,
        })
    }

    #[getter]
    fn sizes(&self) -> (usize, usize) {
        let size = |layout: &Layout| self.envs.saturating_mul(layout.size());
        (size(&self.observations), size(&self.actions))
    }

    fn encode_request<'py>(
        &self,
        py: Python<'py>,
        sequence: u64,
        actions: &Bound<'py, PyAny>,
        first: usize,
        rows: usize,
    ) -> PyResult<Bound<'py, PyBytes>> {
        if first.checked_add(self.envs).is_none_or(|end| end > rows) {
            let text = format!("{rows} actions have none of {} envs from {first}", self.envs);
            return Err(PyValueError::new_err(text));
        }
        let arrays = self.actions.bytes_of(actions, rows)?;
        let arrays: Vec<&[u8]> = self
            .actions
            .leaves
            .iter()
            .zip(&arrays)
            .map(|(leaf, bytes)| &bytes.as_slice()[first * leaf.size..][..self.envs * leaf.size])
            .collect();
        Ok(PyBytes::new(py, &Request::write(sequence, &arrays)))
    }

    fn decode_request<'py>(
        &self,
        py: Python<'py>,
        data: &[u8],
    ) -> PyResult<(u64, Option<Bound<'py, PyAny>>)> {
        let request =
            Request::read(data, self.actions.leaves.len()).map_err(|_| malformed("request"))?;
        let Some(actions) = request.actions else { return Ok((request.sequence, None)) };
        self.actions.check(&actions, self.envs)?;
        let value = self.actions.value(py, &actions.kept, self.envs, |_, _, _| {})?;
        Ok((request.sequence, Some(value)))
    }

    #[pyo3(signature = (sequence, obs, masks))]
    fn encode_observations<'py>(
        &self,
        py: Python<'py>,
        sequence: u64,
        obs: &Bound<'py, PyAny>,
        masks: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let obs = self.observations.bytes_of(obs, self.envs)?;
        let masks = masks.map(|masks| self.masks.bytes(masks)).transpose()?;
        let fields = observations(&obs, masks.as_ref());
        let reply = [Field::Number(1, sequence), Field::Message(OBSERVATIONS, fields)];
        Ok(PyBytes::new(py, &Field::encode(&reply)))
    }

    #[pyo3(signature = (sequence, step, masks))]
    fn encode_outcome<'py>(
        &self,
        py: Python<'py>,
        sequence: u64,
        step: &Bound<'py, PyDict>,
        masks: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let get = |key: &Bound<'py, PyString>| step.as_any().get_item(key);
        let obs = self.observations.bytes_of(&get(intern!(py, "obs"))?, self.envs)?;
        let masks = masks.map(|masks| self.masks.bytes(masks)).transpose()?;
        let rewards = self.rewards.bytes_of(&get(intern!(py, "rewards"))?, self.envs)?;
        let mut flags = Vec::with_capacity(FLAGS.len());
        for (rows, (_, number, optional)) in self.flags.iter().zip(FLAGS) {
            let name = rows.name.bind(py);
            if !optional || step.contains(name)? {
                flags.push((number, rows.bytes_of(&get(name)?, self.envs)?));
            }
        }
        let ends = flags[0].1.as_slice().iter().zip(flags[1].1.as_slice());
        let ended: Vec<usize> =
            ends.enumerate().filter(|(_, (a, b))| **a | **b != 0).map(|(env, _)| env).collect();
        let last = match ended.len() {
            0 => Vec::new(),
            _ => self.observations.bytes_of(&get(intern!(py, "final_obs"))?, self.envs)?,
        };

        // no Python is called while the arrays' bytes are looked at
        let mut outcome =
            vec![Field::Message(1, observations(&obs, masks.as_ref())), field(2, &rewards)];
        outcome.extend(flags.iter().map(|(number, bytes)| field(*number, bytes)));
        if !ended.is_empty() {
            let mut numbers = Vec::with_capacity(2 * ended.len());
            for &env in &ended {
                put_varint(&mut numbers, env as u64);
            }
            outcome.push(Field::Bytes(5, numbers.into()));
        }
        for (leaf, bytes) in self.observations.leaves.iter().zip(&last) {
            let mut rows = Vec::with_capacity(ended.len() * leaf.size);
            for &env in &ended {
                rows.extend_from_slice(&bytes.as_slice()[env * leaf.size..][..leaf.size]);
            }
            outcome.push(Field::Bytes(6, rows.into()));
        }
        let reply = [Field::Number(1, sequence), Field::Message(OUTCOME, outcome)];
        Ok(PyBytes::new(py, &Field::encode(&reply)))
    }

    fn decode_observations<'py>(
        &self,
        py: Python<'py>,
        data: &[u8],
        sequence: u64,
    ) -> PyResult<Option<Part<'py>>> {
        let Answer::Observations(given) = self.read(data, sequence)? else { return Ok(None) };
        self.begun(py, &given).map(Some)
    }

    fn decode_outcome<'py>(
        &self,
        py: Python<'py>,
        data: &[u8],
        sequence: u64,
    ) -> PyResult<Option<Part<'py>>> {
        let Answer::Outcome(given) = self.read(data, sequence)? else { return Ok(None) };
        self.step(py, &given).map(Some)
    }
}

impl PyStepCodec {
    /// Return the answer to one request, and another's as another answer.
    fn read<'a>(&self, data: &'a [u8], sequence: u64) -> PyResult<Answer<'a>> {
        let leaves = self.observations.leaves.len();
        let (number, answer) =
            read_reply(data, leaves, self.envs).map_err(|_| malformed("answer"))?;
        Ok(if number == sequence { answer } else { Answer::Other })
    }

    /// Return observations that came, in a dict, with the masks.
    fn begun<'py>(&self, py: Python<'py>, given: &Observations<'_>) -> PyResult<Part<'py>> {
        let (layout, envs) = (&self.observations, self.envs);
        layout.check(&given.obs, envs)?;
        let choices = given.masks.len() / envs.max(1);
        let masks = if given.masks.is_empty() {
            None
        } else if given.masks.len() == choices * envs {
            Some(flags(py, &self.masks, given.masks, &[envs, choices])?)
        } else {
            let text = format!("expected masks of {envs} envs, got {} bytes", given.masks.len());
            return Err(PyValueError::new_err(text));
        };
        let step = PyDict::new(py);
        let obs = layout.value(py, &given.obs.kept, envs, |_, _, _| {})?;
        step.set_item(intern!(py, "obs"), obs)?;
        Ok((step, masks))
    }

    /// Return a step that came, as `rlox.protocols.VecEnvStep`, with the masks.
    fn step<'py>(&self, py: Python<'py>, given: &Outcome<'_>) -> PyResult<Part<'py>> {
        let envs = self.envs;
        self.rewards.check(given.rewards, envs)?;
        let (step, masks) = self.begun(py, &given.next)?;
        let rewards = self.rewards.array(py, given.rewards, envs, |_| {})?;
        step.set_item(self.rewards.name.bind(py), rewards)?;
        let sent = [given.terminated, given.truncated, given.life_lost, given.lost];
        for ((rows, bytes), (.., optional)) in self.flags.iter().zip(sent).zip(FLAGS) {
            if !optional || !bytes.is_empty() {
                step.set_item(rows.name.bind(py), flags(py, rows, bytes, &[envs])?)?;
            }
        }
        let final_obs = if given.ended.count == 0 {
            step.as_any().get_item(intern!(py, "obs"))?
        } else {
            self.final_obs(py, given)?
        };
        step.set_item(intern!(py, "final_obs"), final_obs)?;
        Ok((step, masks))
    }

    /// Return the observations of a step, of envs whose episode ended the last ones.
    fn final_obs<'py>(&self, py: Python<'py>, given: &Outcome<'_>) -> PyResult<Bound<'py, PyAny>> {
        let ended = &given.ended;
        if ended.count > self.envs {
            let text =
                format!("expected at most {} envs that ended, got {}", self.envs, ended.count);
            return Err(PyValueError::new_err(text));
        }
        let rows: Result<Vec<usize>, _> = ended
            .kept
            .iter()
            .map(|&env| usize::try_from(env).ok().filter(|&env| env < self.envs).ok_or(env))
            .collect();
        let rows = rows.map_err(|env| {
            PyValueError::new_err(format!("env {env} ended, but there are {} envs", self.envs))
        })?;
        self.observations.check(&given.final_obs, rows.len())?;
        self.observations.value(py, &given.next.obs.kept, self.envs, |at, size, data| {
            for (i, &row) in rows.iter().enumerate() {
                data[row * size..][..size]
                    .copy_from_slice(&given.final_obs.kept[at][i * size..][..size]);
            }
        })
    }
}

/// Return an array of flags that came.
fn flags<'py>(
    py: Python<'py>,
    rows: &Rows,
    bytes: &[u8],
    shape: &[usize],
) -> PyResult<Bound<'py, PyAny>> {
    let size: usize = shape.iter().product();
    let wrong = bytes.iter().find(|&&byte| byte > 1);
    if bytes.len() == size && wrong.is_none() {
        return new_array(py, rows.sent.bind(py), shape, bytes, |_| {});
    }
    let among = wrong.map_or_else(String::new, |byte| format!(", a {byte} among them"));
    Err(PyValueError::new_err(format!(
        "expected {} as {size} flags of 0 or 1, got {} bytes{among}",
        rows.label,
        bytes.len()
    )))
}

fn malformed(what: &str) -> PyErr {
    raised(Status::named("INTERNAL", format!("the {what} is no message of this protocol")))
}

fn field<'a>(number: u32, bytes: &'a Bytes<'_>) -> Field<'a> {
    Field::Bytes(number, Cow::Borrowed(bytes.as_slice()))
}

fn observations<'a>(obs: &'a [Bytes<'_>], masks: Option<&'a Bytes<'_>>) -> Vec<Field<'a>> {
    obs.iter().map(|array| field(1, array)).chain(masks.map(|masks| field(2, masks))).collect()
}
