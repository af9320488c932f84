//! The keyword-only options that the buffers share.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rlox_kernels::replay::{DType, NStep, Stream};

use super::arrays::{parse_dtype, parse_real};
use super::fields::{ACT_DTYPES, OBS_DTYPES};
use crate::convert::{parse_seed, parse_size};
use crate::errors::raise;

/// What a buffer can be told besides its sizes.
pub(super) struct Options {
    pub(super) obs_dtype: DType,
    pub(super) act_dtype: DType,
    pub(super) n_step: NStep,
    seed: Option<u64>,
}

impl Options {
    /// The options that were given; the others are as in the signatures.
    pub(super) fn parse(given: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let mut options = Self {
            obs_dtype: DType::F32,
            act_dtype: DType::F32,
            n_step: NStep { n_envs: 1, n_step: 1, gamma: 0.99 },
            seed: None,
        };
        for (name, value) in given.into_iter().flatten() {
            match name.extract::<&str>()? {
                "obs_dtype" => options.obs_dtype = parse_dtype(&value, "obs_dtype", OBS_DTYPES)?,
                "act_dtype" => options.act_dtype = parse_dtype(&value, "act_dtype", ACT_DTYPES)?,
                "n_envs" => options.n_step.n_envs = parse_size(&value, "n_envs")?,
                "n_step" => options.n_step.n_step = parse_size(&value, "n_step")?,
                "gamma" => options.n_step.gamma = parse_real(&value, "gamma")?,
                "seed" if value.is_none() => options.seed = None,
                "seed" => options.seed = Some(parse_seed(&value)?),
                other => {
                    let text = format!(
                        "a buffer has no option '{other}'; the options are obs_dtype, act_dtype, \
                         n_envs, n_step, gamma, seed"
                    );
                    return Err(PyTypeError::new_err(text));
                }
            }
        }
        Ok(options)
    }

    /// The stream of the seed, or one of its own.
    pub(super) fn stream(&self) -> PyResult<Stream> {
        parse_stream(self.seed)
    }
}

/// The stream of a seed, or one of its own.
pub(super) fn parse_stream(seed: Option<u64>) -> PyResult<Stream> {
    seed.map_or_else(|| Stream::from_os().map_err(raise), |seed| Ok(Stream::from_seed(seed)))
}
