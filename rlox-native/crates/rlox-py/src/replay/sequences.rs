//! Drawing sequences of steps.

use std::sync::Mutex;

use numpy::{PyArrayMethods, PyReadwriteArrayDyn};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rlox_kernels::replay::{Draw, Replay, Sequences};

use super::arrays::zeros;
use super::batch::BatchArrays;
use super::fields::Fields;
use super::sampling::Drawn as _;
use crate::convert::{parse_seed, parse_size};
use crate::errors::raise;
use crate::locks::lock;

/// A request for sequences.
pub(super) struct Request<'a, 'py> {
    pub(super) batch_size: &'a Bound<'py, PyAny>,
    pub(super) seq_len: &'a Bound<'py, PyAny>,
    pub(super) seed: Option<&'a Bound<'py, PyAny>>,
    /// Whether a sequence continues after the end of an episode.
    pub(super) cross_episodes: bool,
}

/// The method `sample_sequences` of the buffers.
pub(super) fn sample_sequences<'py, D: Draw>(
    py: Python<'py>,
    fields: &Fields,
    buffer: &Mutex<Replay<D>>,
    request: &Request<'_, 'py>,
) -> PyResult<Bound<'py, PyDict>> {
    let &Request { batch_size, seq_len, seed, cross_episodes } = request;
    let seq_len = parse_size(seq_len, "seq_len")?;
    let axes = [parse_size(batch_size, "batch_size")?, seq_len];
    let seed = seed.map(parse_seed).transpose()?;
    let mut arrays = BatchArrays::new(py, fields, &axes)?;
    let mut is_first: PyReadwriteArrayDyn<'_, bool> = zeros(py, &axes)?.try_readwrite()?;
    let mut mask: PyReadwriteArrayDyn<'_, bool> = zeros(py, &axes)?.try_readwrite()?;
    let (batch, first_slice) = (arrays.batch()?, is_first.as_slice_mut()?);
    let mut sequences = Sequences { batch, is_first: first_slice, mask: mask.as_slice_mut()? };
    let complete = py.detach(|| {
        let mut buffer = lock(buffer);
        let complete = buffer.has_all_next_obs();
        if !complete {
            sequences.batch.next_obs = None;
        }
        buffer.sample_sequences(seed, seq_len, cross_episodes, &mut sequences).map(|()| complete)
    });
    let dict = arrays.into_dict(py, complete.map_err(raise)?)?;
    dict.set_item(intern!(py, "is_first"), is_first.as_any())?;
    dict.set_item(intern!(py, "mask"), mask.as_any())?;
    Ok(dict)
}
