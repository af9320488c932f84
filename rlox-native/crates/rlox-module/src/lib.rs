//! The extension module `rlox_native._native`, whose initialisation is that of `rlox-py`.
//!
//! A crate that is linked waits for its dependencies' machine code; `rlox-py`, which isn't, is
//! compiled beside them.

pub use rlox_py::*;
