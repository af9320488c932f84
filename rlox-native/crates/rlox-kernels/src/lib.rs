//! Reinforcement-learning kernels and environments in pure Rust.
//!
//! Slices in, slices out: no Python. A random stream is an argument, so the same inputs give the
//! same bits on every run, on any number of threads. The only globals are the pool of [`threads`]
//! and its measured costs. Every length and range is checked and reported as a [`KernelError`]; no
//! function panics on its arguments.
//!
//! - [`rollout`]: the common layout of the kernels below.
//! - [`gae`]: generalised advantage estimation in three memory layouts.
//! - [`returns`]: discounted, n-step and λ-returns.
//! - [`vtrace`]: V-trace targets and advantages.
//! - [`groups`]: advantages within groups of completions.
//! - [`divergence`]: Kullback-Leibler divergences of tokens.
//! - [`packing`]: packing sequences into rows of one length.
//! - [`memory`]: free memory, checked before use.
//! - [`moments`]: running means and variances, and standardised arrays.
//! - [`rng`]: NumPy's default random generator, bit for bit.
//! - [`mod@env`]: the environment trait, the environments, and the vector environment.
//! - [`replay`]: replay buffers, uniform and prioritized.
//! - [`threads`]: the thread pool for large batches.

#![deny(unsafe_code)]

pub mod divergence;
pub mod env;
pub mod error;
pub mod gae;
pub mod groups;
pub mod memory;
pub mod moments;
pub mod number;
pub mod packing;
pub mod replay;
pub mod returns;
pub mod rng;
pub mod rollout;
pub mod threads;
pub mod vtrace;

pub use error::{KernelError, Result};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
