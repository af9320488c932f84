//! Sampling from a buffer, into new arrays or the caller's.

use std::sync::Mutex;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rlox_kernels::replay::{Batch, Draw, OfflineDataset, Replay, TieredReplay};

use super::batch::{BatchArrays, parse_out};
use super::fields::Fields;
use crate::convert::{parse_seed, parse_size};
use crate::errors::raise;
use crate::locks::lock;

/// Required entries of a sample's `out`.
pub(super) const BATCH_KEYS: &[&str] = &["obs", "actions", "rewards", "terminated", "truncated"];

/// Requirements of sampling on a buffer.
pub(super) trait Drawn: Send {
    fn len(&self) -> usize;
    fn has_all_next_obs(&self) -> bool;
}

impl<D: Draw> Drawn for Replay<D> {
    fn len(&self) -> usize {
        self.ring().len()
    }

    fn has_all_next_obs(&self) -> bool {
        self.ring().has_all_next_obs()
    }
}

impl Drawn for OfflineDataset {
    fn len(&self) -> usize {
        self.ring().len()
    }

    fn has_all_next_obs(&self) -> bool {
        self.ring().has_all_next_obs()
    }
}

impl Drawn for TieredReplay {
    fn len(&self) -> usize {
        self.len()
    }

    fn has_all_next_obs(&self) -> bool {
        self.has_all_next_obs()
    }
}

/// The method `sample` of buffers with plain transitions as batches.
pub(super) fn sample<'py, B: Drawn>(
    py: Python<'py>,
    fields: &Fields,
    buffer: &Mutex<B>,
    batch_size: &Bound<'py, PyAny>,
    seed: Option<&Bound<'py, PyAny>>,
    out: Option<&Bound<'py, PyAny>>,
    draw: fn(&mut B, Option<u64>, &mut Batch<'_>) -> rlox_kernels::Result<()>,
) -> PyResult<Bound<'py, PyDict>> {
    let n = parse_size(batch_size, "batch_size")?;
    let seed = seed.map(parse_seed).transpose()?;
    let sample = |buffer: &mut B, batch: &mut Batch<'_>| draw(buffer, seed, batch);
    let Some(out) = out else {
        return sample_new(py, BatchArrays::drawn(py, fields, n)?, buffer, sample);
    };
    let out = parse_out(out, fields, BATCH_KEYS)?;
    sample_into(out, BatchArrays::of(out, fields, n)?, buffer, sample)?;
    Ok(out.clone())
}

/// Draws into the caller's arrays, which must have next observations exactly if the buffer has.
pub(super) fn sample_into<'py, B: Drawn>(
    out: &Bound<'py, PyDict>,
    mut arrays: BatchArrays<'py>,
    buffer: &Mutex<B>,
    sample: impl FnOnce(&mut B, &mut Batch<'_>) -> rlox_kernels::Result<()> + Send,
) -> PyResult<()> {
    let mut batch = arrays.batch()?;
    let drawn = out.py().detach(|| {
        let mut buffer = lock(buffer);
        if batch.next_obs.is_none() && buffer.has_all_next_obs() && buffer.len() > 0 {
            return Ok(false);
        }
        sample(&mut buffer, &mut batch).map(|()| true)
    });
    if drawn.map_err(raise)? {
        return Ok(());
    }
    Err(PyValueError::new_err("out must have the key next_obs"))
}

/// Draws into new arrays.
pub(super) fn sample_new<'py, B: Drawn>(
    py: Python<'py>,
    mut arrays: BatchArrays<'py>,
    buffer: &Mutex<B>,
    sample: impl FnOnce(&mut B, &mut Batch<'_>) -> rlox_kernels::Result<()> + Send,
) -> PyResult<Bound<'py, PyDict>> {
    let mut batch = arrays.batch()?;
    let complete = py.detach(|| {
        let mut buffer = lock(buffer);
        let complete = buffer.has_all_next_obs();
        if !complete {
            batch.next_obs = None;
        }
        sample(&mut buffer, &mut batch).map(|()| complete)
    });
    let complete = complete.map_err(raise)?;
    arrays.into_dict(py, complete)
}
