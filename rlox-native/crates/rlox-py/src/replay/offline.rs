//! The buffer over a recorded dataset.

use std::sync::Mutex;

use numpy::{PyArrayMethods, PyReadwriteArrayDyn};
use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rlox_kernels::replay::{DType, Normalizer, OfflineDataset, Trajectories};

use super::arrays::{vector, zeros};
use super::batch::{BatchArrays, item, parse_dict};
use super::fields::Fields;
use super::options::parse_stream;
use super::recording;
use super::sampling::sample;
use super::state::parse_words;
use crate::convert::{numpy_call, parse_seed, parse_size};
use crate::errors::raise;
use crate::locks::lock;

/// Recorded transitions, sampled uniformly, one by one or in pieces of trajectories.
///
/// Calls from several threads run one after the other.
#[pyclass(frozen, module = "rlox_native")]
pub(crate) struct OfflineDatasetBuffer {
    dataset: Mutex<OfflineDataset>,
    fields: Fields,
    /// Copies of constant data, so that reading them never waits for a draw.
    normalizer: Option<Normalizer>,
    returns: Vec<f64>,
    lengths: Vec<usize>,
}

#[pymethods]
impl OfflineDatasetBuffer {
    #[new]
    #[pyo3(
        signature = (
            obs, next_obs, actions, rewards, terminated, truncated, normalize=false, *,
            obs_dim=None, act_dim=None, obs_dtype=None, act_dtype=None, seed=None
        )
    )]
    fn new(
        py: Python<'_>,
        obs: &Bound<'_, PyAny>,
        next_obs: &Bound<'_, PyAny>,
        actions: &Bound<'_, PyAny>,
        rewards: &Bound<'_, PyAny>,
        terminated: &Bound<'_, PyAny>,
        truncated: &Bound<'_, PyAny>,
        normalize: bool,
        obs_dim: Option<&Bound<'_, PyAny>>,
        act_dim: Option<&Bound<'_, PyAny>>,
        obs_dtype: Option<&Bound<'_, PyAny>>,
        act_dtype: Option<&Bound<'_, PyAny>>,
        seed: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let parts = [obs, next_obs, actions, rewards, terminated, truncated];
        let (fields, rows) = recording::read(parts, [obs_dim, act_dim], [obs_dtype, act_dtype])?;
        let dtype = fields.layout.obs.dtype;
        if normalize && !matches!(dtype, DType::F32 | DType::F64) {
            let text = format!(
                "normalize needs observations of floats, got {}; pass obs_dtype='float32'",
                dtype.name()
            );
            return Err(PyValueError::new_err(text));
        }
        let stream = parse_stream(seed.map(parse_seed).transpose()?)?;
        let (layout, rows) = (fields.layout, rows.transitions()?);
        let dataset = py.detach(|| OfflineDataset::new(layout, &rows, normalize, stream));
        let dataset = dataset.map_err(raise)?;
        Ok(Self {
            normalizer: dataset.normalizer().cloned(),
            returns: dataset.returns().to_vec(),
            lengths: dataset.lengths().collect(),
            dataset: Mutex::new(dataset),
            fields,
        })
    }

    fn __len__(&self) -> usize {
        self.fields.layout.capacity
    }

    /// Return the number of episodes.
    fn n_episodes(&self) -> usize {
        self.lengths.len()
    }

    /// Return the sizes of the dataset, and statistics of its undiscounted returns, as a dict.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = PyDict::new(py);
        stats.set_item("n_transitions", self.__len__())?;
        stats.set_item("n_episodes", self.n_episodes())?;
        stats.set_item("obs_dim", self.fields.layout.obs.len)?;
        stats.set_item("act_dim", self.fields.layout.action.len)?;
        let lengths = self.lengths.iter().map(|&length| length as u64).collect::<Vec<_>>();
        for (quantity, values) in
            [("return", vector(py, &self.returns)), ("episode_length", vector(py, &lengths))]
        {
            for function in ["mean", "std", "min", "max"] {
                let number = numpy_call(py, function, (&values,))?;
                let number = number.call_method0(intern!(py, "item"))?;
                stats.set_item(format!("{function}_{quantity}"), number)?;
            }
        }
        Ok(stats)
    }

    /// The mean of the observations before they were normalised; None without `normalize`.
    #[getter]
    fn obs_mean<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.moment(py, |normalizer| &normalizer.mean)
    }

    /// Divisor of the observations; None without `normalize`.
    #[getter]
    fn obs_std<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.moment(py, |normalizer| &normalizer.scale)
    }

    /// Draw transitions uniformly with replacement and return a dict of arrays.
    #[pyo3(signature = (batch_size, seed=None, *, out=None))]
    fn sample<'py>(
        &self,
        py: Python<'py>,
        batch_size: &Bound<'py, PyAny>,
        seed: Option<&Bound<'py, PyAny>>,
        out: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        sample(py, &self.fields, &self.dataset, batch_size, seed, out, OfflineDataset::sample)
    }

    /// Draw pieces of trajectories and return a dict of arrays, with zeros after an episode's end.
    #[pyo3(signature = (batch_size, seq_len, seed=None))]
    fn sample_trajectories<'py>(
        &self,
        py: Python<'py>,
        batch_size: &Bound<'py, PyAny>,
        seq_len: &Bound<'py, PyAny>,
        seed: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let seq_len = parse_size(seq_len, "seq_len")?;
        let axes = [parse_size(batch_size, "batch_size")?, seq_len];
        let seed = seed.map(parse_seed).transpose()?;
        let mut arrays = BatchArrays::without_next_obs(py, &self.fields, &axes)?;
        let mut returns_to_go: PyReadwriteArrayDyn<'_, f32> = zeros(py, &axes)?.try_readwrite()?;
        let mut timesteps: PyReadwriteArrayDyn<'_, i64> = zeros(py, &axes)?.try_readwrite()?;
        let mut mask: PyReadwriteArrayDyn<'_, bool> = zeros(py, &axes)?.try_readwrite()?;
        let mut trajectories = Trajectories {
            batch: arrays.batch()?,
            returns_to_go: returns_to_go.as_slice_mut()?,
            timesteps: timesteps.as_slice_mut()?,
            mask: mask.as_slice_mut()?,
        };
        py.detach(|| lock(&self.dataset).sample_trajectories(seed, seq_len, &mut trajectories))
            .map_err(raise)?;
        let dict = arrays.into_dict(py, true)?;
        dict.set_item(intern!(py, "returns_to_go"), returns_to_go.as_any())?;
        dict.set_item(intern!(py, "timesteps"), timesteps.as_any())?;
        dict.set_item(intern!(py, "mask"), mask.as_any())?;
        Ok(dict)
    }

    /// Return the random stream, the only changing part, as a dict of arrays.
    fn state<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let words = py.detach(|| lock(&self.dataset).stream().to_words());
        let state = PyDict::new(py);
        state.set_item("rng", vector(py, &words))?;
        Ok(state)
    }

    /// Restore a `state()` over the same dataset exactly.
    fn set_state(&self, py: Python<'_>, state: &Bound<'_, PyAny>) -> PyResult<()> {
        let state = parse_dict(state, "state", &["rng"], None)?;
        let stream = parse_words(&item(state, "rng")?)?;
        py.detach(|| lock(&self.dataset).set_stream(stream));
        Ok(())
    }

    fn __repr__(&self) -> String {
        let (n, episodes) = (self.__len__(), self.n_episodes());
        format!("OfflineDatasetBuffer of {n} transitions in {episodes} episodes")
    }
}

impl OfflineDatasetBuffer {
    fn moment<'py>(
        &self,
        py: Python<'py>,
        moment: impl Fn(&Normalizer) -> &Vec<f64>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(normalizer) = &self.normalizer else { return Ok(None) };
        let values = vector(py, moment(normalizer));
        values.call_method1(intern!(py, "reshape"), (self.fields.obs.clone(),)).map(Some)
    }
}
