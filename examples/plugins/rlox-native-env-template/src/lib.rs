//! Envs in Rust, importable as `rlox_native_env_template._envs`.

mod corridor;

use pyo3::prelude::*;

#[pymodule]
mod _envs {
    use pyo3::exceptions::PyValueError;
    use pyo3::prelude::*;
    #[pymodule_export]
    use rlox::VecEnv;
    use rlox_kernels::env;

    use super::corridor::{self, Corridor};

    /// The ids of this crate's envs, each once: the plugin registers what is listed here.
    #[pyfunction]
    fn env_ids() -> Vec<&'static str> {
        vec![corridor::ID]
    }

    /// Build `n_envs` envs of the id `env_id`.
    #[pyfunction]
    fn make(env_id: &str, n_envs: usize) -> PyResult<VecEnv> {
        let envs = match env_id {
            corridor::ID => env::VecEnv::new(n_envs, || Ok(Corridor::default())),
            _ => return Err(PyValueError::new_err(format!("unknown env id '{env_id}'"))),
        };
        Ok(VecEnv::from_envs(Box::new(envs.map_err(rlox::raise)?)))
    }
}
