//! Updates of algorithms for small networks on a CPU, each in one call.
//!
//! [`Learner::update`] takes all gradient steps of an iteration: forward, loss, backward, clipping
//! of the gradient's norm and optimiser, minibatch after minibatch, on the caller's parameters in
//! place. [`Learner::collect`] steps native environments with the policy; [`Learner::act`] draws
//! actions for others. [`off_policy`] takes the gradient steps of algorithms with replay buffers.
//!
//! Slices in, slices out: every length and range is checked and reported as a
//! [`KernelError`](rlox_kernels::KernelError); no function panics on its arguments.
//!
//! The rows of independent networks are divided among [`rlox_kernels::threads`]; a gradient step of
//! small networks, which takes a fifth of a millisecond, stays on one thread. No sum is divided, so
//! results do not depend on the number of threads, bit for bit.

#![expect(
    clippy::inline_always,
    reason = "an instruction set is chosen at run time for a whole update, and reaches only inlined code"
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

pub use acting::{ActionBuffer, ActionRequest};
pub use actor_critic::{ActionRows, ActorCritic, Head};
pub use linalg::Real;
pub use memory::Sequences;
pub use objective::{Loss, Objective, Terms};
pub use optimizer::{Learnt, Optimizer, StepRule};
pub use rollout::Rollout;
pub use update::{Batch, Learner, Plan, Progress};
