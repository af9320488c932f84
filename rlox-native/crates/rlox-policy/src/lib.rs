//! Policies that rlox trained and exported, acting in pure Rust: no Python, no threads, no `unsafe`.
//!
//! `rlox export RUN policy.rlox` writes one file with the network, the normaliser, the frame stack,
//! the memory, the action bounds and the masks. [`Policy::open`] reads it and [`Policy::predict`]
//! returns the most probable actions, those of `rlox.load_policy(path).predict(obs)`; [`Team`] does
//! so for the agents of a team.
//!
//! Files may come from anywhere: their digest, sizes and layers are checked, a file acts once before
//! it is returned, and what does not fit is an [`Error`], never a panic.
//!
//! - [`Array`], [`Leaves`]: batches of observations and actions, one array per leaf of a space.
//! - [`Space`]: what observations and actions are, and their JSON.
//! - [`Policy`], [`Memory`], [`Given`]: acting.
//! - [`Team`]: the policies of several agents.

#![forbid(unsafe_code)]

mod activations;
mod array;
mod choices;
mod dense;
mod error;
mod file;
mod images;
mod json;
mod layers;
mod memory;
mod policy;
mod preprocessing;
mod seal;
mod space;
mod step;
mod team;
mod tree;

pub use array::{Array, Leaves};
pub use error::{Error, Result};
pub use policy::{Given, Memory, Policy};
pub use space::{Leaf, Space};
pub use team::Team;

/// The README, whose example is compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
