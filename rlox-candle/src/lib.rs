//! Rollouts collected by a Rust thread: envs, policy and advantages without Python in the loop.
//!
//! - [`policy`]: the default actor-critic of rlox in candle, from one flat vector of weights.
//! - [`sampling`]: random draws and initial weights.
//! - [`rollout`]: one rollout, collected on the calling thread.
//! - [`worker`]: the thread that collects rollouts, and its synchronisation.
//! - `binding`: the Python binding.

pub mod policy;
pub mod rollout;
pub mod sampling;
pub mod worker;

mod binding;

use pyo3::prelude::*;
use rlox_kernels::KernelError;

/// Errors of collecting.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An argument or an env is wrong.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The policy's arithmetic failed.
    #[error("the policy failed: {0}")]
    Policy(#[from] candle_core::Error),
    /// The thread could not be started.
    #[error("the collecting thread could not be started: {0}")]
    Thread(String),
    /// The collecting thread panicked.
    #[error("the collecting thread failed: {0}")]
    Panic(String),
    /// The collector belongs to another process.
    #[error(
        "the collector was made in another process, whose threads a fork lacks; make a new one \
         in this process"
    )]
    Forked,
    /// The collector has been stopped.
    #[error("the collector has been stopped; make a new one")]
    Stopped,
}

/// Result of every fallible function of the crate.
pub type Result<T> = std::result::Result<T, Error>;

#[pymodule]
mod _candle {
    #[pymodule_export]
    use super::binding::CandleCollector;

    use super::{Bound, PyModule, PyResult};
    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        super::binding::make_panics_ordinary(module.py())?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
