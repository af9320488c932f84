//! The replay buffers.

mod arrays;
mod batch;
mod fields;
mod numbers;
mod prioritized;
mod state;
mod uniform;

pub(crate) use prioritized::PrioritizedReplayBuffer;
pub(crate) use uniform::ReplayBuffer;
