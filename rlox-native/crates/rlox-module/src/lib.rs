//! The extension module `rlox_native._native`: `rlox-py`, linked.

pub use rlox_py::*;
