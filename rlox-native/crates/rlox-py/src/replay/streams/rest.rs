//! Conversion of the part of a state without rows, to and from Python.

use std::collections::VecDeque;

use numpy::PyUntypedArrayMethods;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rlox_kernels::replay::StreamsState;

use crate::convert::as_real_array;
use crate::replay::arrays::{Expected, read, vector};
use crate::replay::batch::item;
use crate::replay::state::parse_words;

/// Names of the entries.
pub(super) const REST: [&str; 4] = ["totals", "queued", "queue", "rng"];

pub(super) fn parse_rest(state: &Bound<'_, PyDict>, n_envs: usize) -> PyResult<StreamsState> {
    let counts = |name| {
        let object = item(state, name)?;
        let expected = Expected { shape: &[n_envs], like: "n_envs", optional: 0 };
        Ok::<_, PyErr>(read::<u64>(&object, name, &expected)?.as_slice()?.to_vec())
    };
    Ok(StreamsState {
        totals: counts("totals")?,
        queued: counts("queued")?,
        queue: parse_queue(&item(state, "queue")?)?,
        stream: parse_words(&item(state, "rng")?)?,
    })
}

fn parse_queue(object: &Bound<'_, PyAny>) -> PyResult<VecDeque<(usize, u64)>> {
    let rows = as_real_array(object, "queue")?.shape().first().copied().unwrap_or(0);
    let expected = Expected { shape: &[rows, 2], like: "a saved queue", optional: 0 };
    let queue = read::<u64>(object, "queue", &expected)?;
    let (pairs, _) = queue.as_slice()?.as_chunks::<2>();
    // A number beyond the address space exceeds every number of streams and is refused as such.
    Ok(pairs
        .iter()
        .map(|&[env, first]| (usize::try_from(env).unwrap_or(usize::MAX), first))
        .collect())
}

pub(super) fn rest<'py>(py: Python<'py>, state: &StreamsState) -> PyResult<Bound<'py, PyDict>> {
    let signed = |numbers: &[u64]| {
        vector(py, &numbers.iter().map(|number| number.cast_signed()).collect::<Vec<_>>())
    };
    let queue: Vec<u64> =
        state.queue.iter().flat_map(|&(env, first)| [env as u64, first]).collect();
    let rest = PyDict::new(py);
    rest.set_item("totals", signed(&state.totals))?;
    rest.set_item("queued", signed(&state.queued))?;
    rest.set_item("queue", signed(&queue).call_method1(intern!(py, "reshape"), (-1, 2))?)?;
    rest.set_item("rng", vector(py, &state.stream.to_words()))?;
    Ok(rest)
}
