//! The replay buffers.

mod arrays;
mod batch;
mod fields;
mod her;
mod methods;
mod mmap;
mod numbers;
mod offline;
mod options;
mod prioritized;
mod recording;
mod relabelling;
mod sampling;
mod sequences;
mod state;
mod streams;
mod uniform;

pub(crate) use arrays::{Cells, Expected, read, read_rows, vector};
pub(crate) use her::HerReplayBuffer;
pub(crate) use mmap::MmapReplayBuffer;
pub(crate) use offline::OfflineDatasetBuffer;
pub(crate) use prioritized::PrioritizedReplayBuffer;
pub(crate) use streams::SequenceReplayBuffer;
pub(crate) use uniform::ReplayBuffer;
