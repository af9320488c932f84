//! Output arrays of envs.

use numpy::{
    IxDyn, PyArray1, PyArray2, PyArrayDyn, PyArrayMethods, PyReadwriteArray1, PyReadwriteArray2,
    PyReadwriteArrayDyn,
};
use pyo3::prelude::*;
use rlox_kernels::env::{ObsMut, ObsType, TeamSpec, TeamStepBuffers, TeamView};

use crate::convert::output_array;

/// Numbers of either precision, borrowed for writing.
pub(crate) enum Numbers<'py> {
    F32(PyReadwriteArrayDyn<'py, f32>),
    F64(PyReadwriteArrayDyn<'py, f64>),
}

impl<'py> Numbers<'py> {
    /// Zeros.
    pub(crate) fn new(py: Python<'py>, obs_type: ObsType, shape: &[usize]) -> PyResult<Self> {
        let shape = IxDyn(shape);
        Ok(match obs_type {
            ObsType::F32 => Self::F32(PyArrayDyn::zeros(py, shape, false).try_readwrite()?),
            ObsType::F64 => Self::F64(PyArrayDyn::zeros(py, shape, false).try_readwrite()?),
        })
    }

    /// The caller's array.
    pub(crate) fn of(
        object: &Bound<'py, PyAny>,
        name: &'static str,
        obs_type: ObsType,
        shape: &[usize],
    ) -> PyResult<Self> {
        Ok(match obs_type {
            ObsType::F32 => Self::F32(output_array(object, name, shape)?),
            ObsType::F64 => Self::F64(output_array(object, name, shape)?),
        })
    }

    pub(crate) fn values(&mut self) -> PyResult<ObsMut<'_>> {
        Ok(match self {
            Self::F32(array) => array.as_slice_mut()?.into(),
            Self::F64(array) => array.as_slice_mut()?.into(),
        })
    }

    pub(crate) fn object(&self) -> Bound<'py, PyAny> {
        match self {
            Self::F32(array) => array.as_any().clone(),
            Self::F64(array) => array.as_any().clone(),
        }
    }
}

/// Observations and states, borrowed for writing.
pub(crate) struct ViewArrays<'py> {
    pub(crate) obs: Numbers<'py>,
    pub(crate) state: Numbers<'py>,
}

impl<'py> ViewArrays<'py> {
    /// Zeros for `n_envs` envs.
    pub(crate) fn new(
        py: Python<'py>,
        spec: &TeamSpec,
        obs_type: ObsType,
        n: usize,
    ) -> PyResult<Self> {
        Ok(Self {
            obs: Numbers::new(py, obs_type, &[n, spec.n_agents(), spec.obs_dim()])?,
            state: Numbers::new(py, obs_type, &[n, spec.state_dim()])?,
        })
    }

    pub(crate) fn view(&mut self) -> PyResult<TeamView<'_>> {
        Ok(TeamView { obs: self.obs.values()?, state: self.state.values()? })
    }
}

/// The output arrays of a step, borrowed for writing.
pub(crate) struct Outputs<'py> {
    pub(crate) next: ViewArrays<'py>,
    pub(crate) rewards: PyReadwriteArray2<'py, f64>,
    pub(crate) terminated: PyReadwriteArray2<'py, bool>,
    pub(crate) truncated: PyReadwriteArray2<'py, bool>,
    pub(crate) last: ViewArrays<'py>,
    pub(crate) ended: PyReadwriteArray1<'py, bool>,
}

impl<'py> Outputs<'py> {
    /// Zeros for `n_envs` envs.
    pub(crate) fn new(
        py: Python<'py>,
        spec: &TeamSpec,
        obs_type: ObsType,
        n: usize,
    ) -> PyResult<Self> {
        let rows = [n, spec.n_agents()];
        Ok(Self {
            next: ViewArrays::new(py, spec, obs_type, n)?,
            rewards: PyArray2::zeros(py, rows, false).try_readwrite()?,
            terminated: PyArray2::zeros(py, rows, false).try_readwrite()?,
            truncated: PyArray2::zeros(py, rows, false).try_readwrite()?,
            last: ViewArrays::new(py, spec, obs_type, n)?,
            ended: PyArray1::zeros(py, n, false).try_readwrite()?,
        })
    }

    pub(crate) fn buffers(&mut self) -> PyResult<TeamStepBuffers<'_>> {
        Ok(TeamStepBuffers {
            next: self.next.view()?,
            rewards: self.rewards.as_slice_mut()?,
            terminated: self.terminated.as_slice_mut()?,
            truncated: self.truncated.as_slice_mut()?,
            last: self.last.view()?,
            ended: self.ended.as_slice_mut()?,
        })
    }
}
