//! Reinforcement-learning kernels and environments in pure Rust.
//!
//! Slices in, slices out: no Python, no globals, no threads. A random stream is an argument, so the
//! same inputs give the same bits on every run. Every length and range is checked and reported as a
//! [`KernelError`]; no function panics on its arguments.
//!
//! - [`gae`]: generalised advantage estimation in three memory layouts.
//! - [`rng`]: NumPy's default random generator, bit for bit.
//! - [`mod@env`]: the environment trait, the environments, and the vector environment.
//! - [`replay`]: replay buffers, uniform and prioritized.

#![deny(unsafe_code)]

pub mod env;
pub mod error;
pub mod gae;
pub mod replay;
pub mod rng;

pub use error::{KernelError, Result};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
