//! Shared keyword-only options of the buffers.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rlox_kernels::replay::{DType, NStep, Stream};

use super::arrays::parse_dtype;
use super::fields::{ACT_DTYPES, OBS_DTYPES};
use crate::convert::{parse_real, parse_seed, parse_size};
use crate::errors::raise;

/// The options of a buffer of single-step transitions.
pub(super) const ONE_STEP: &[&str] = &["obs_dtype", "act_dtype", "seed"];

/// The options of a buffer of transitions that may span several steps.
pub(super) const N_STEP: &[&str] =
    &["obs_dtype", "act_dtype", "n_envs", "n_step", "gamma", "share_frames", "seed"];

/// The options of a buffer except its sizes.
pub(super) struct Options {
    pub(super) obs_dtype: DType,
    pub(super) act_dtype: DType,
    pub(super) n_step: NStep,
    /// Whether observations are stacks of frames, each stored once.
    pub(super) share_frames: bool,
    seed: Option<u64>,
}

impl Options {
    /// Reads the given options among the known ones; the others have the signatures' defaults.
    pub(super) fn parse(given: Option<&Bound<'_, PyDict>>, known: &[&str]) -> PyResult<Self> {
        let mut options = Self {
            obs_dtype: DType::F32,
            act_dtype: DType::F32,
            n_step: NStep { n_envs: 1, n_step: 1, gamma: 0.99 },
            share_frames: false,
            seed: None,
        };
        for (name, value) in given.into_iter().flatten() {
            let name = name.extract::<&str>()?;
            if !known.contains(&name) {
                return Err(unknown_option(name, known));
            }
            match name {
                "obs_dtype" => options.obs_dtype = parse_dtype(&value, "obs_dtype", OBS_DTYPES)?,
                "act_dtype" => options.act_dtype = parse_dtype(&value, "act_dtype", ACT_DTYPES)?,
                "n_envs" => options.n_step.n_envs = parse_size(&value, "n_envs")?,
                "n_step" => options.n_step.n_step = parse_size(&value, "n_step")?,
                "share_frames" => options.share_frames = value.extract()?,
                "gamma" => options.n_step.gamma = parse_real(&value, "gamma")?,
                _ => options.seed = (!value.is_none()).then(|| parse_seed(&value)).transpose()?,
            }
        }
        Ok(options)
    }

    /// The stream of the seed, or a new one.
    pub(super) fn stream(&self) -> PyResult<Stream> {
        parse_stream(self.seed)
    }
}

/// The error for an unknown option.
pub(super) fn unknown_option(name: &str, known: &[&str]) -> PyErr {
    let known = known.join(", ");
    PyTypeError::new_err(format!("there is no option '{name}'; the options are {known}"))
}

/// The stream of a seed, or a new one.
pub(super) fn parse_stream(seed: Option<u64>) -> PyResult<Stream> {
    seed.map_or_else(|| Stream::from_os().map_err(raise), |seed| Ok(Stream::from_seed(seed)))
}
