//! Python bindings of `rlox-kernels`: parse, check, release the interpreter lock, call, wrap.
//!
//! Nothing is computed here. Every input is validated before a kernel sees it, and every kernel
//! error becomes one Python exception in `errors`.

#![warn(clippy::indexing_slicing)]
#![deny(unsafe_code)]
#![allow(clippy::too_many_arguments, reason = "Python's signatures, one parameter each")]

use pyo3::prelude::*;

mod actions;
mod cartpole;
mod convert;
mod env;
mod env_arrays;
mod env_state;
mod errors;
mod flags;
mod kernels;
mod language;
mod learner;
mod learner_arguments;
mod locks;
mod memory;
mod moments;
mod off_policy;
mod output;
mod packing;
mod precision;
mod replay;
mod returns;
mod rollout;
mod spaces;
mod team_arguments;
mod team_env;
mod threads;

/// The wrapper of envs for extension modules of other crates.
pub use env::VecEnv;
pub use errors::{make_panics_ordinary, raise};
pub use team_env::MultiAgentVecEnv;

#[pymodule]
mod _native {
    #[pymodule_export]
    use super::cartpole::CartPole;
    #[pymodule_export]
    use super::env::{VecEnv, native_env_ids};
    #[pymodule_export]
    use super::kernels::{
        compute_gae, compute_gae_batched, compute_gae_batched_f32, compute_gae_time_major,
    };
    #[pymodule_export]
    use super::language::{
        compute_batch_group_advantages, compute_batch_token_kl, compute_batch_token_kl_schulman,
        compute_group_advantages, compute_token_kl, compute_token_kl_schulman,
    };
    #[pymodule_export]
    use super::learner::ActorCriticLearner;
    #[pymodule_export]
    use super::moments::{RunningMeanStd, normalize_advantages};
    #[pymodule_export]
    use super::off_policy::{ContinuousLearner, ImplicitLearner, QLearner};
    #[pymodule_export]
    use super::packing::{PackedSequences, pack_sequences};
    #[pymodule_export]
    use super::replay::{
        HerReplayBuffer, MmapReplayBuffer, OfflineDatasetBuffer, PrioritizedReplayBuffer,
        ReplayBuffer, SequenceReplayBuffer,
    };
    #[pymodule_export]
    use super::returns::{
        compute_discounted_returns, compute_lambda_returns, compute_n_step_returns, compute_vtrace,
    };

    #[pymodule_export]
    use super::team_env::{MultiAgentVecEnv, native_team_env_ids};
    #[pymodule_export]
    use super::threads::{get_num_threads, set_num_threads};

    use super::{Bound, PyModule, PyResult};
    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        super::make_panics_ordinary(module.py())?;
        // Not exported, because only a test uses it.
        module.setattr("_panic", wrap_pyfunction!(super::errors::panic, module)?)?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
