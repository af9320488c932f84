//! Observations of single or double precision.

use crate::error::{KernelError, Result};

/// The type of an observation's components.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObsType {
    /// Single precision.
    F32,
    /// Double precision.
    F64,
}

impl ObsType {
    /// NumPy's name of the type.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "float32",
            Self::F64 => "float64",
        }
    }
}

/// Buffer that observations are written to.
#[derive(Debug)]
pub enum ObsMut<'a> {
    /// In single precision.
    F32(&'a mut [f32]),
    /// In double precision.
    F64(&'a mut [f64]),
}

/// A component of an observation.
pub trait Observed: Copy + Send + 'static {
    /// Its type.
    const TYPE: ObsType;

    /// The elements of `obs`, or `None` if they are of the other type.
    fn slice<'a>(obs: &'a mut ObsMut<'_>) -> Option<&'a mut [Self]>;
}

impl ObsMut<'_> {
    /// The type of the elements.
    #[must_use]
    pub fn obs_type(&self) -> ObsType {
        match self {
            Self::F32(_) => ObsType::F32,
            Self::F64(_) => ObsType::F64,
        }
    }

    /// The elements, if they are of the envs' type.
    pub(super) fn of<O: Observed>(&mut self, name: &'static str) -> Result<&mut [O]> {
        let got = self.obs_type().name();
        O::slice(self).ok_or(KernelError::DType { name, expected: O::TYPE.name(), got })
    }
}

macro_rules! observed {
    ($($component:ty: $variant:ident),*) => {$(
        impl Observed for $component {
            const TYPE: ObsType = ObsType::$variant;

            fn slice<'a>(obs: &'a mut ObsMut<'_>) -> Option<&'a mut [Self]> {
                if let ObsMut::$variant(elements) = obs { Some(elements) } else { None }
            }
        }

        impl<'a> From<&'a mut [$component]> for ObsMut<'a> {
            fn from(elements: &'a mut [$component]) -> Self {
                Self::$variant(elements)
            }
        }

        impl<'a> From<&'a mut Vec<$component>> for ObsMut<'a> {
            fn from(elements: &'a mut Vec<$component>) -> Self {
                Self::$variant(elements)
            }
        }

        impl<'a, const N: usize> From<&'a mut [$component; N]> for ObsMut<'a> {
            fn from(elements: &'a mut [$component; N]) -> Self {
                Self::$variant(elements)
            }
        }
    )*};
}

observed!(f32: F32, f64: F64);
