//! Conversion of env steps between arrays and the messages of `workers.proto`.

use bytes::{Bytes, BytesMut};
use numpy::dtype;
use prost::Message;
use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyDict, PyString};
use tonic::Status;

use crate::arrays::{Layout, Leaves, Rows};
use crate::binding::raised;
use crate::protocol::reply::Answer;
use crate::protocol::request::Call;
use crate::protocol::{Observations, Outcome, Reply, Request, Step};

/// A step or first observations, and the masks of the next actions.
type Part<'py> = (Bound<'py, PyDict>, Option<Bound<'py, PyAny>>);

/// The requests and answers of N envs.
#[pyclass(name = "StepCodec", module = "rlox_distributed._transport", frozen)]
pub(crate) struct PyStepCodec {
    observations: Layout,
    actions: Layout,
    rewards: Rows,
    masks: Rows,
    /// The arrays of [`FLAGS`].
    flags: [Rows; 4],
    envs: usize,
}

/// The flags of an `Outcome`; the last two may be left out.
const FLAGS: [&str; 4] = ["terminated", "truncated", "life_lost", "lost"];
const REQUIRED: usize = 2;

#[pymethods]
impl PyStepCodec {
    #[new]
    fn new(
        py: Python<'_>,
        observations: Leaves<'_>,
        actions: Leaves<'_>,
        n_envs: usize,
    ) -> PyResult<Self> {
        let rows = |name, dtype| Rows::new("", &PyString::intern(py, name), &dtype, Vec::new());
        let flags = |name| rows(name, dtype::<bool>(py));
        let [a, b, c, d] = FLAGS.map(flags);
        Ok(Self {
            observations: Layout::new("observations", observations)?,
            actions: Layout::new("actions", actions)?,
            rewards: rows("rewards", dtype::<f64>(py))?,
            masks: flags("masks")?,
            flags: [a?, b?, c?, d?],
            envs: n_envs,
        })
    }

    #[getter]
    fn sizes(&self) -> (usize, usize) {
        let size = |layout: &Layout| {
            layout.sizes().fold(0_usize, usize::saturating_add).saturating_mul(self.envs)
        };
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
        let Some(end) = first.checked_add(self.envs).filter(|&end| end <= rows) else {
            let text = format!("{rows} actions have none of {} envs from {first}", self.envs);
            return Err(PyValueError::new_err(text));
        };
        let actions = self.actions.bytes_of(actions, rows, &(first..end))?;
        encode(py, &Request { sequence, call: Some(Call::Step(Step { actions })) })
    }

    fn decode_request<'py>(
        &self,
        py: Python<'py>,
        data: PyBackedBytes,
    ) -> PyResult<(u64, Option<Bound<'py, PyAny>>)> {
        let request: Request = decode(data, "request")?;
        let Some(Call::Step(Step { actions })) = request.call else {
            return Ok((request.sequence, None));
        };
        self.actions.check(&actions, self.envs)?;
        let value = self.actions.value(py, &actions, self.envs)?;
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
        let answer = Answer::Observations(self.shown(obs, masks)?);
        encode(py, &Reply { sequence, answer: Some(answer) })
    }

    #[pyo3(signature = (sequence, step, masks))]
    fn encode_outcome<'py>(
        &self,
        py: Python<'py>,
        sequence: u64,
        step: &Bound<'py, PyDict>,
        masks: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let all = 0..self.envs;
        let get = |key: &Bound<'py, PyString>| step.as_any().get_item(key);
        let mut flags = [const { Bytes::new() }; 4];
        for (at, rows) in self.flags.iter().enumerate() {
            let name = rows.name.bind(py);
            if at < REQUIRED || step.contains(name)? {
                flags[at] = rows.bytes_of(&get(name)?, self.envs, &all)?;
            }
        }
        let [terminated, truncated, life_lost, lost] = flags;
        let ends = terminated.iter().zip(&truncated).map(|(a, b)| a | b != 0);
        let ended: Vec<usize> =
            ends.enumerate().filter_map(|(env, ends)| ends.then_some(env)).collect();
        let mut final_obs = Vec::new();
        if !ended.is_empty() {
            final_obs =
                self.observations.bytes_of(&get(intern!(py, "final_obs"))?, self.envs, &all)?;
            for (bytes, size) in final_obs.iter_mut().zip(self.observations.sizes()) {
                let rows = ended.iter().map(|env| &bytes[env * size..][..size]);
                *bytes = rows.collect::<Vec<_>>().concat().into();
            }
        }
        let outcome = Outcome {
            next: Some(self.shown(&get(intern!(py, "obs"))?, masks)?),
            rewards: self.rewards.bytes_of(&get(intern!(py, "rewards"))?, self.envs, &all)?,
            terminated,
            truncated,
            ended: ended.into_iter().map(u32::try_from).collect::<Result<_, _>>()?,
            final_obs,
            life_lost,
            lost,
        };
        encode(py, &Reply { sequence, answer: Some(Answer::Outcome(outcome)) })
    }

    fn decode_observations<'py>(
        &self,
        py: Python<'py>,
        data: PyBackedBytes,
        sequence: u64,
    ) -> PyResult<Option<Part<'py>>> {
        match answer(data, sequence)? {
            Some(Answer::Observations(given)) => self.begun(py, &given).map(Some),
            _ => Ok(None),
        }
    }

    fn decode_outcome<'py>(
        &self,
        py: Python<'py>,
        data: PyBackedBytes,
        sequence: u64,
    ) -> PyResult<Option<Part<'py>>> {
        match answer(data, sequence)? {
            Some(Answer::Outcome(given)) => self.step(py, &given).map(Some),
            _ => Ok(None),
        }
    }
}

impl PyStepCodec {
    /// Return the message of observations and masks.
    fn shown(
        &self,
        obs: &Bound<'_, PyAny>,
        masks: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Observations> {
        let masks = masks.map(|masks| self.masks.bytes(masks)).transpose()?.unwrap_or_default();
        let obs = self.observations.bytes_of(obs, self.envs, &(0..self.envs))?;
        Ok(Observations { obs, masks })
    }

    /// Return received observations in a dict, and the masks.
    fn begun<'py>(&self, py: Python<'py>, given: &Observations) -> PyResult<Part<'py>> {
        let (layout, envs) = (&self.observations, self.envs);
        layout.check(&given.obs, envs)?;
        let choices = given.masks.len() / envs.max(1);
        let masks = if given.masks.is_empty() {
            None
        } else if given.masks.len() == choices * envs {
            Some(flags(py, &self.masks, &given.masks, &[envs, choices])?)
        } else {
            let text = format!("expected masks of {envs} envs, got {} bytes", given.masks.len());
            return Err(PyValueError::new_err(text));
        };
        let step = PyDict::new(py);
        step.set_item(intern!(py, "obs"), layout.value(py, &given.obs, envs)?)?;
        Ok((step, masks))
    }

    /// Return a received step as `rlox.protocols.VecEnvStep`, and the masks.
    fn step<'py>(&self, py: Python<'py>, given: &Outcome) -> PyResult<Part<'py>> {
        let envs = self.envs;
        self.rewards.check(&given.rewards, envs)?;
        let (step, masks) =
            self.begun(py, given.next.as_ref().unwrap_or(&Observations::default()))?;
        let rewards = self.rewards.array(py, &given.rewards, envs)?;
        step.set_item(self.rewards.name.bind(py), rewards)?;
        let sent = [&given.terminated, &given.truncated, &given.life_lost, &given.lost];
        for (at, (rows, bytes)) in self.flags.iter().zip(sent).enumerate() {
            if at < REQUIRED || !bytes.is_empty() {
                step.set_item(rows.name.bind(py), flags(py, rows, bytes, &[envs])?)?;
            }
        }
        let final_obs = if given.ended.is_empty() {
            step.as_any().get_item(intern!(py, "obs"))?
        } else {
            self.final_obs(py, given)?
        };
        step.set_item(intern!(py, "final_obs"), final_obs)?;
        Ok((step, masks))
    }

    /// Return the observations of a step; for envs whose episode ended, the last ones.
    fn final_obs<'py>(&self, py: Python<'py>, given: &Outcome) -> PyResult<Bound<'py, PyAny>> {
        let (ended, envs) = (&given.ended, self.envs);
        if ended.len() > envs {
            let text = format!("expected at most {envs} envs that ended, got {}", ended.len());
            return Err(PyValueError::new_err(text));
        }
        if let Some(env) = ended.iter().find(|&&env| env as usize >= envs) {
            let text = format!("env {env} ended, but there are {envs} envs");
            return Err(PyValueError::new_err(text));
        }
        self.observations.check(&given.final_obs, ended.len())?;
        let mut last = given.next.clone().unwrap_or_default().obs;
        for ((all, rows), size) in
            last.iter_mut().zip(&given.final_obs).zip(self.observations.sizes())
        {
            let mut written = BytesMut::from(&all[..]);
            for (i, &env) in ended.iter().enumerate() {
                written[env as usize * size..][..size].copy_from_slice(&rows[i * size..][..size]);
            }
            *all = written.freeze();
        }
        self.observations.value(py, &last, envs)
    }
}

/// Return an array of received flags.
fn flags<'py>(
    py: Python<'py>,
    rows: &Rows,
    bytes: &[u8],
    shape: &[usize],
) -> PyResult<Bound<'py, PyAny>> {
    let size: usize = shape.iter().product();
    let wrong = bytes.iter().find(|&&byte| byte > 1);
    if bytes.len() == size && wrong.is_none() {
        return rows.shaped(py, bytes, shape);
    }
    let among = wrong.map_or_else(String::new, |byte| format!(", a {byte} among them"));
    Err(PyValueError::new_err(format!(
        "expected {} as {size} flags of 0 or 1, got {} bytes{among}",
        rows.label,
        bytes.len()
    )))
}

/// Return the answer to this request, or none if it is another's.
fn answer(data: PyBackedBytes, sequence: u64) -> PyResult<Option<Answer>> {
    let reply: Reply = decode(data, "answer")?;
    Ok(reply.answer.filter(|_| reply.sequence == sequence))
}

/// Read a message; its arrays are slices of the data.
fn decode<M: Message + Default>(data: PyBackedBytes, what: &str) -> PyResult<M> {
    M::decode(Bytes::from_owner(data)).map_err(|_| malformed(what))
}

fn malformed(what: &str) -> PyErr {
    raised(Status::internal(format!("the {what} is not a message of this protocol")))
}

/// Write a message to Python bytes.
fn encode<'py>(py: Python<'py>, message: &impl Message) -> PyResult<Bound<'py, PyBytes>> {
    PyBytes::new_with(py, message.encoded_len(), |mut bytes| {
        message.encode(&mut bytes).map_err(|error| PyValueError::new_err(error.to_string()))
    })
}
