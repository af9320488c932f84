//! The updates of algorithms for small networks on a CPU, in one call each.
//!
//! [`Learner::update`] takes every gradient step of an iteration: forward, loss, backward, clipping
//! of the gradient's norm, and optimiser, minibatch after minibatch, on parameters that stay where
//! the caller keeps them. [`Learner::collect`] steps native environments with the policy, and
//! [`Learner::act`] draws actions for others. [`off_policy`] takes the gradient steps of algorithms
//! with replay buffers.
//!
//! Slices in, slices out: every length and range is checked and reported as a
//! [`KernelError`](rlox_kernels::KernelError); no function panics on its arguments.
//!
//! The rows of all networks that do not depend on each other are divided among
//! [`rlox_kernels::threads`]; a gradient step of small networks, which takes a fifth of a millisecond,
//! stays on one. No sum is divided, so results are the same bits.

#![expect(
    clippy::inline_always,
    reason = "an instruction set is chosen at run time for a whole update, and reaches only what is inlined"
)]
#![deny(unsafe_code)]

mod acting;
mod actor_critic;
mod block;
mod distribution;
mod inlined;
pub mod linalg;
mod memory;
mod network;
mod objective;
pub mod off_policy;
mod optimizer;
mod passes;
mod rollout;
mod runs;
mod stretches;
mod update;
mod workspace;

pub use acting::{ActionBuffer, ActionRequest, Draws};
pub use actor_critic::{ActionRows, ActorCritic, Head};
pub use linalg::Real;
pub use memory::Sequences;
pub use objective::{Loss, Objective, Terms};
pub use optimizer::{Learnt, Optimizer, StepRule};
pub use rollout::Rollout;
pub use update::{Batch, Learner, Plan, Progress};
