//! Replay buffers: rings of transitions that a learner draws batches from.
//!
//! [`UniformReplay`] draws all transitions alike, [`PrioritizedReplay`] in proportion to priorities,
//! [`OfflineDataset`] from a recording; all keep them in a [`Ring`]. [`TieredReplay`] keeps the newest
//! in a ring and the others in a file. A batch is written into slices of the caller. Random numbers are
//! those of NumPy's `Generator`, so that the reference in Python draws the same batches.

mod batch;
mod hindsight;
mod layout;
mod normalizer;
mod offline;
mod pages;
mod prioritized;
mod ring;
mod stream;
mod tiered;
mod tree;
mod uniform;
mod values;

pub use batch::{Batch, Sequences, Transitions};
pub use hindsight::{Goals, Hindsight, HindsightReplay, Selection};
pub use layout::{Field, Layout, NStep};
pub use normalizer::{NORMALIZER_EPSILON, Normalizer};
pub use offline::{OfflineDataset, Trajectories};
pub use prioritized::{Importance, MAX_PRIORITY, MIN_PRIORITY, PrioritizedReplay, PriorityState};
pub use ring::Ring;
pub use stream::Stream;
pub use tiered::TieredReplay;
pub use uniform::UniformReplay;
pub use values::{DType, Values, ValuesMut};
