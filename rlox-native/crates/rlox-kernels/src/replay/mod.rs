//! Replay buffers: rings of transitions that a learner draws batches from.
//!
//! A [`Replay`] keeps them in a [`Ring`] and draws by a [`Draw`]: [`UniformReplay`] uniformly,
//! [`PrioritizedReplay`] in proportion to priorities, [`HindsightReplay`] with goals reached later.
//! [`OfflineDataset`] draws from a recording. [`TieredReplay`] keeps the newest in a ring and the
//! others in a file. [`SequenceReplay`] keeps a stream of rows per env and draws sequences. Batches
//! are written into slices of the caller. Random numbers equal those of NumPy's `Generator`, so the
//! reference in Python draws the same batches.

mod batch;
mod buffer;
mod hindsight;
mod layout;
mod offline;
mod pages;
mod prioritized;
mod ring;
mod stream;
mod streams;
mod tiered;
mod tree;
mod values;

pub use batch::{Batch, Sequences, Transitions};
pub use buffer::{Draw, Replay, Uniform, UniformReplay};
pub use hindsight::{Goals, Hindsight, HindsightReplay, Relabelled, Selection};
pub use layout::{Field, Layout, NStep};
pub use offline::{NORMALIZER_EPSILON, Normalizer, OfflineDataset, Trajectories};
pub use prioritized::{
    Importance, MAX_PRIORITY, MIN_PRIORITY, Prioritized, PrioritizedReplay, PriorityState,
};
pub use ring::Ring;
pub use stream::Stream;
pub use streams::{SequenceReplay, Streams, StreamsState};
pub use tiered::TieredReplay;
pub use values::{DType, Element, Values, ValuesMut};
