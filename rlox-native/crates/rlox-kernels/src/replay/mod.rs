//! Replay buffers: rings of transitions that a learner draws batches from.
//!
//! [`UniformReplay`] draws all transitions alike, [`PrioritizedReplay`] in proportion to priorities,
//! [`OfflineDataset`] from a recording; all keep them in a [`Ring`]. A batch is written into slices of the caller. Random numbers are
//! those of NumPy's `Generator`, so that the reference in Python draws the same batches.

mod batch;
mod layout;
mod n_step;
mod normalizer;
mod offline;
mod prioritized;
mod ring;
mod saved;
mod stream;
mod tree;
mod uniform;
mod values;

pub use batch::{Batch, Transitions};
pub use layout::{Field, Layout, NStep};
pub use normalizer::{NORMALIZER_EPSILON, Normalizer};
pub use offline::{OfflineDataset, Trajectories};
pub use prioritized::{Importance, MAX_PRIORITY, PrioritizedReplay, PriorityState};
pub use ring::Ring;
pub use stream::Stream;
pub use uniform::UniformReplay;
pub use values::{DType, Values, ValuesMut};
