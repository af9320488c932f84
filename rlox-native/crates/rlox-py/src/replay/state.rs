//! Saved, complete states of buffers, as a dict of arrays.

use std::ops::Range;
use std::sync::Mutex;

use numpy::{PyArrayMethods, PyUntypedArray};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rlox_kernels::KernelError;
use rlox_kernels::replay::{Batch, Draw, Replay, Stream};

use super::arrays::{Expected, read, vector, zeros};
use super::batch::{BatchArrays, item};
use super::fields::{Fields, Rows, flags};
use super::numbers::Number;
use crate::errors::raise;
use crate::locks::lock;

/// Entries in the states of all buffers over a ring.
pub(super) const KEYS: &[&str] = &[
    "obs",
    "next_obs",
    "actions",
    "rewards",
    "terminated",
    "truncated",
    "has_next_obs",
    "position",
    "rng",
];

/// A further entry, missing in older checkpoints.
const N_ENVS: &str = "n_envs";

/// That entry and its text in a message.
pub(super) const OPTIONAL: (&str, &str) = (N_ENVS, N_ENVS);

/// Changed slots: start and end of each range.
pub(super) type Slots = Vec<(usize, usize)>;

/// Number of written transitions, number of filled slots, and the changed ones.
pub(super) fn changed_rows(
    written: u64,
    stored: usize,
    changed: [Range<usize>; 2],
) -> (u64, usize, Slots) {
    let runs = changed.into_iter().filter(|run| !run.is_empty());
    (written, stored, runs.map(|run| (run.start, run.end)).collect())
}

/// The part of a state with a row per slot, for the slots from `start` to `stop`.
pub(super) fn rows<'py>(
    py: Python<'py>,
    fields: &Fields,
    (start, stop): (usize, usize),
    export: impl Fn(&mut Batch<'_>, &mut [bool]) -> Result<(), KernelError> + Sync,
) -> PyResult<Bound<'py, PyDict>> {
    let Some(n) = stop.checked_sub(start) else {
        let text = format!("stop must be at least start = {start}, got {stop}");
        return Err(PyValueError::new_err(text));
    };
    let mut arrays = BatchArrays::new(py, fields, &[n])?;
    let has_next_obs = zeros::<bool>(py, &[n])?;
    let mut has_next = has_next_obs.try_readwrite()?;
    let has_next = has_next.as_slice_mut()?;
    let mut batch = arrays.batch()?;
    py.detach(|| export(&mut batch, has_next)).map_err(raise)?;
    let rows = arrays.into_dict(py, true)?;
    rows.set_item("has_next_obs", &has_next_obs)?;
    Ok(rows)
}

/// The part of any buffer's state without a row per slot.
pub(super) fn rest<'py>(
    py: Python<'py>,
    fields: &Fields,
    position: usize,
    stream: &Stream,
) -> PyResult<Bound<'py, PyDict>> {
    let rest = PyDict::new(py);
    rest.set_item("position", vector(py, &[position as u64]))?;
    rest.set_item(N_ENVS, vector(py, &[fields.n_envs() as u64]))?;
    rest.set_item("rng", vector(py, &stream.to_words()))?;
    Ok(rest)
}

/// The state of `buffer` and the result of `more` at the same moment.
pub(super) fn export<'py, D: Draw, R: Send>(
    py: Python<'py>,
    fields: &Fields,
    buffer: &Mutex<Replay<D>>,
    more: impl Fn(&Replay<D>) -> R + Sync,
) -> PyResult<(Bound<'py, PyDict>, R)> {
    // The arrays are allocated without the lock: again if a push came in between.
    loop {
        let n = py.detach(|| lock(buffer).ring().len());
        let mut arrays = BatchArrays::new(py, fields, &[n])?;
        let has_next_obs = zeros::<bool>(py, &[n])?;
        let mut has_next = has_next_obs.try_readwrite()?;
        let has_next = has_next.as_slice_mut()?;
        let mut batch = arrays.batch()?;
        let exported = py.detach(|| {
            let buffer = lock(buffer);
            if buffer.ring().len() != n {
                return Ok(None);
            }
            buffer.ring().export(&mut batch, has_next)?;
            Ok(Some((buffer.ring().position(), buffer.stream().clone(), more(&buffer))))
        });
        if let Some((position, stream, more)) = exported.map_err(raise)? {
            let state = arrays.into_dict(py, true)?;
            state.set_item("has_next_obs", &has_next_obs)?;
            state.update(rest(py, fields, position, &stream)?.as_mapping())?;
            return Ok((state, more));
        }
    }
}

/// The common part of the states of all buffers over a ring.
pub(super) struct Saved<'py> {
    pub(super) rows: Rows<'py>,
    pub(super) has_next_obs: Vec<bool>,
    pub(super) position: usize,
    pub(super) stream: Stream,
}

impl<'py> Saved<'py> {
    pub(super) fn parse(state: &Bound<'py, PyDict>, fields: &Fields) -> PyResult<Self> {
        let field = |key| item(state, key);
        for key in KEYS {
            if field(key)?.cast::<PyUntypedArray>().is_err() {
                return Err(PyValueError::new_err(format!("state['{key}'] must be an array")));
            }
        }
        let n_envs = fields.n_envs();
        let saved = match state.get_item(N_ENVS)? {
            Some(saved) => single::<u64>(&saved, N_ENVS)?,
            None => n_envs as u64,
        };
        if saved != n_envs as u64 {
            let text = format!("n_envs must be {saved} as in the state, got {n_envs}");
            return Err(PyValueError::new_err(text));
        }
        let rows = Rows::many(
            fields,
            &field("obs")?,
            &field("actions")?,
            &field("rewards")?,
            &field("terminated")?,
            &field("truncated")?,
            Some(&field("next_obs")?),
        )?;
        let has_next_obs = flags(&field("has_next_obs")?, "has_next_obs", rows.len())?;
        let position = single::<u64>(&field("position")?, "position")?;
        // A number beyond the address space exceeds every capacity and is refused as such.
        let position = usize::try_from(position).unwrap_or(usize::MAX);
        Ok(Self { rows, has_next_obs, position, stream: parse_words(&field("rng")?)? })
    }
}

/// The stream with the words in an array.
pub(super) fn parse_words(object: &Bound<'_, PyAny>) -> PyResult<Stream> {
    let expected = Expected { shape: &[6], like: "a saved stream", optional: 0 };
    let words = read::<u64>(object, "rng", &expected)?;
    let words = words.as_slice()?.try_into().unwrap_or_default();
    Stream::from_words(words).map_err(raise)
}

/// The only element of an array.
pub(super) fn single<T: Number + Default>(
    object: &Bound<'_, PyAny>,
    name: &'static str,
) -> PyResult<T> {
    let cells =
        read::<T>(object, name, &Expected { shape: &[1], like: "a saved number", optional: 0 })?;
    Ok(cells.as_slice()?.first().copied().unwrap_or_default())
}
