//! A single env, stepped by hand.

use std::sync::Mutex;

use numpy::PyArray1;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rlox_kernels::env::{self, Episode};
use rlox_kernels::rng::Pcg64;

use crate::actions::parse_action;
use crate::convert::parse_seed;
use crate::errors::raise;
use crate::locks::lock;

/// gymnasium's CartPole-v1, bit for bit: the same seed gives the same episode.
#[pyclass(frozen, module = "rlox_native")]
pub(crate) struct CartPole {
    // The lock is held for a few dozen nanoseconds and never across a call into Python, so that
    // waiting for it with the interpreter lock held cannot deadlock.
    episode: Mutex<Episode<env::CartPole>>,
}

#[pymethods]
impl CartPole {
    #[new]
    #[pyo3(signature = (seed=None))]
    fn new(seed: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let rng = match seed {
            Some(seed) => Pcg64::from_seed(parse_seed(seed)?),
            None => Pcg64::from_os().map_err(raise)?,
        };
        Ok(Self { episode: Mutex::new(Episode::new(env::CartPole::default(), rng)) })
    }

    /// Begin an episode and return its first observation, float32 (4,).
    ///
    /// A seed restarts the random stream; without one the present stream continues.
    #[pyo3(signature = (seed=None))]
    fn reset<'py>(
        &self,
        py: Python<'py>,
        seed: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyArray1<f32>>> {
        let rng = seed.map(parse_seed).transpose()?.map(Pcg64::from_seed);
        let mut obs = [0.0; 4];
        lock(&self.episode).reset(rng, &mut obs);
        Ok(PyArray1::from_slice(py, &obs))
    }

    /// Push left (0) or right (1) and return a dict of obs, reward, terminated and truncated.
    fn step<'py>(&self, action: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
        let py = action.py();
        let action = parse_action(action, None)?;
        let mut obs = [0.0; 4];
        let (outcome, truncated) = lock(&self.episode).step(action, &mut obs).map_err(raise)?;
        let result = PyDict::new(py);
        result.set_item(intern!(py, "obs"), PyArray1::from_slice(py, &obs))?;
        result.set_item(intern!(py, "reward"), outcome.reward)?;
        result.set_item(intern!(py, "terminated"), outcome.terminated)?;
        result.set_item(intern!(py, "truncated"), truncated)?;
        Ok(result)
    }
}
