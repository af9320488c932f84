//! The buffer that draws transitions in proportion to their priorities.
//!
//! T. Schaul, J. Quan, I. Antonoglou, D. Silver, "Prioritized Experience Replay", ICLR 2016.

use super::batch::{Batch, Sequences, Transitions};
use super::layout::Layout;
use super::ring::Ring;
use super::stream::Stream;
use super::tree::PriorityTree;
use super::uniform::reserve;
use crate::error::{KernelError, Result, StateError, check_len, check_range};

/// The largest priority: the sum over any buffer stays finite.
pub const MAX_PRIORITY: f64 = f32::MAX as f64;

/// The smallest priority: none is so small that its transition is never drawn again. The ε of
/// section 3.3.
pub const MIN_PRIORITY: f64 = 1e-6;

/// How many draws go down the tree at once: enough to keep the memory busy.
const TOGETHER: usize = 32;

/// A ring of the last transitions, drawn from with probability `P(i) = p_i^α / Σ p_k^α` (equation 1).
#[derive(Debug)]
pub struct PrioritizedReplay {
    ring: Ring,
    stream: Stream,
    /// The p^α of the stored transitions.
    tree: PriorityTree,
    alpha: f64,
    beta: f64,
    /// The largest p so far, and 1 at first (algorithm 1, line 2).
    max_priority: f64,
    slots: Vec<usize>,
}

/// What [`PrioritizedReplay::sample`] writes besides the transitions.
#[derive(Debug)]
pub struct Importance<'a> {
    /// The weights of importance sampling, in [0, 1].
    pub weights: &'a mut [f32],
    /// The slots that were drawn, for [`PrioritizedReplay::update_priorities`].
    pub indices: &'a mut [u64],
}

/// What a [`PrioritizedReplay`] has besides its ring and its stream.
#[derive(Debug, Clone, PartialEq)]
pub struct PriorityState<'a> {
    /// p^α of every stored transition, in the order of the slots.
    pub scaled: &'a [f64],
    /// The largest p so far.
    pub max_priority: f64,
    /// The exponent β of the weights.
    pub beta: f64,
}

impl PrioritizedReplay {
    /// An empty buffer that draws from `stream`.
    ///
    /// # Errors
    /// [`KernelError::Range`] for a size of 0, or `alpha` or `beta` outside [0, 1];
    /// [`KernelError::OutOfMemory`].
    pub fn new(layout: Layout, alpha: f64, beta: f64, stream: Stream) -> Result<Self> {
        check_range("alpha", alpha, 0.0, 1.0)?;
        check_range("beta", beta, 0.0, 1.0)?;
        let ring = Ring::new(layout)?;
        let tree = PriorityTree::new(layout.capacity)?;
        Ok(Self { ring, stream, tree, alpha, beta, max_priority: 1.0, slots: Vec::new() })
    }

    /// Bytes of memory that a buffer of this layout takes when it is full.
    ///
    /// # Errors
    /// As [`Layout::memory_bytes`].
    pub fn memory_bytes(layout: &Layout) -> Result<usize> {
        let ring = layout.memory_bytes()?;
        let bytes = PriorityTree::memory_bytes(layout.capacity).and_then(|n| n.checked_add(ring));
        bytes.ok_or(KernelError::OutOfMemory { name: "capacity", requested: layout.capacity })
    }

    /// The stored transitions.
    #[must_use]
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// The buffer's own random stream.
    #[must_use]
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// The exponent of the priorities.
    #[must_use]
    pub fn alpha(&self) -> f64 {
        self.alpha
    }

    /// The exponent of the weights.
    #[must_use]
    pub fn beta(&self) -> f64 {
        self.beta
    }

    /// Sets the exponent of the weights.
    ///
    /// # Errors
    /// [`KernelError::Range`] outside [0, 1].
    pub fn set_beta(&mut self, beta: f64) -> Result<()> {
        check_range("beta", beta, 0.0, 1.0)?;
        self.beta = beta;
        Ok(())
    }

    /// The largest priority so far, and 1 at first.
    #[must_use]
    pub fn max_priority(&self) -> f64 {
        self.max_priority
    }

    /// Stores transitions, each in the place of the oldest where the buffer is full, with the
    /// `priorities` given as [`PrioritizedReplay::update_priorities`] takes them, or all with the
    /// largest so far.
    ///
    /// # Errors
    /// [`KernelError::Shape`], [`KernelError::DType`], [`KernelError::NonFinite`] and
    /// [`KernelError::Priority`]; nothing is stored then.
    pub fn push(&mut self, rows: &Transitions<'_>, priorities: Option<&[f64]>) -> Result<()> {
        let n = self.ring.check_push(rows)?;
        if let Some(priorities) = priorities {
            check_len("priorities", priorities.len(), "rewards", n)?;
            check_priorities(priorities)?;
        }
        let (tree, alpha) = (&mut self.tree, self.alpha);
        let mut given = priorities.unwrap_or_default().iter();
        let largest = self.max_priority.powf(alpha);
        self.ring.write(rows, |slot| {
            tree.set(slot, given.next().map_or(largest, |&given| priority(given).powf(alpha)));
        });
        self.raise_max(priorities.unwrap_or_default());
        Ok(())
    }

    /// Draws as many transitions as `out` has rows.
    ///
    /// The sum of all p^α is cut into n equal ranges, and one number drawn from each decides for a
    /// transition (appendix B.2.1). The weight of transition i is `(N·P(i))^-β`, divided by the largest
    /// weight of any stored transition (section 3.4), which is that of the smallest priority:
    /// `(min p^α / p_i^α)^β`. So a transition's weight does not depend on the others of its batch.
    ///
    /// # Errors
    /// As [`super::UniformReplay::sample`].
    #[expect(clippy::cast_precision_loss, reason = "a batch has fewer than 2^53 rows")]
    #[expect(clippy::cast_possible_truncation, reason = "weights are single precision")]
    pub fn sample(
        &mut self,
        seed: Option<u64>,
        out: &mut Batch<'_>,
        importance: &mut Importance<'_>,
    ) -> Result<()> {
        let n = out.rewards.len();
        if self.ring.is_empty() {
            return Err(StateError::EmptyBuffer.into());
        }
        self.ring.check_out(out, n)?;
        check_len("weights", importance.weights.len(), "rewards", n)?;
        check_len("indices", importance.indices.len(), "rewards", n)?;
        reserve(&mut self.slots, n)?;
        let mut seeded = seed.map(Stream::from_seed);
        let stream = seeded.as_mut().unwrap_or(&mut self.stream);
        let width = self.tree.total() / n as f64;
        self.slots.resize(n, 0);
        let mut strata = (0..n).map(|k| (k as f64 + stream.next_double()) * width);
        for slots in self.slots.chunks_mut(TOGETHER) {
            let mut masses = [0.0; TOGETHER];
            let masses = &mut masses[..slots.len()];
            masses.fill_with(|| strata.next().unwrap_or_default());
            self.tree.find(masses, slots);
        }
        let smallest = self.tree.min();
        let results = importance.weights.iter_mut().zip(importance.indices.iter_mut());
        for (&slot, (weight, index)) in self.slots.iter().zip(results) {
            *weight = (smallest / self.tree.get(slot)).powf(self.beta) as f32;
            *index = slot as u64;
        }
        self.ring.draw(&self.slots, out);
        Ok(())
    }

    /// Draws sequences as [`super::UniformReplay::sample_sequences`] does, whatever the priorities.
    ///
    /// # Errors
    /// As there.
    pub fn sample_sequences(
        &mut self,
        seed: Option<u64>,
        seq_len: usize,
        cross_episodes: bool,
        out: &mut Sequences<'_>,
    ) -> Result<()> {
        let mut seeded = seed.map(Stream::from_seed);
        let stream = seeded.as_mut().unwrap_or(&mut self.stream);
        self.ring.sample_sequences(stream, &mut self.slots, seq_len, cross_episodes, out)
    }

    /// Gives the transitions in the slots `indices` new priorities; of several for one slot the last.
    ///
    /// The sizes of the numbers count, at least [`MIN_PRIORITY`]: TD errors may come with their signs.
    ///
    /// # Errors
    /// [`KernelError::Shape`], [`KernelError::Index`] and [`KernelError::Priority`]; no priority has
    /// changed then.
    #[expect(clippy::cast_possible_truncation, reason = "an index is less than a usize")]
    pub fn update_priorities(&mut self, indices: &[u64], priorities: &[f64]) -> Result<()> {
        check_len("priorities", priorities.len(), "indices", indices.len())?;
        let len = self.ring.len();
        if let Some(place) = indices.iter().position(|&index| index >= len as u64) {
            let value = indices[place].into();
            return Err(KernelError::Index { name: "indices", place, value, len });
        }
        check_priorities(priorities)?;
        let alpha = self.alpha;
        let leaves = indices.iter().map(|&index| index as usize);
        self.tree.set_many(leaves.zip(priorities.iter().map(|&given| priority(given).powf(alpha))));
        self.raise_max(priorities);
        Ok(())
    }

    fn raise_max(&mut self, priorities: &[f64]) {
        let given = priorities.iter().map(|&given| priority(given));
        self.max_priority = given.fold(self.max_priority, f64::max);
    }

    /// Copies p^α of every stored transition, in the order of the slots.
    ///
    /// # Errors
    /// [`KernelError::Shape`] where `scaled` has another length than the buffer.
    pub fn export_priorities(&self, scaled: &mut [f64]) -> Result<()> {
        check_len("priorities", scaled.len(), "the buffer", self.ring.len())?;
        for (slot, scaled) in scaled.iter_mut().enumerate() {
            *scaled = self.tree.get(slot);
        }
        Ok(())
    }

    /// Goes on exactly from what the getters of a buffer of the same α gave.
    ///
    /// # Errors
    /// What is wrong with the state; the buffer is as it was then.
    pub fn restore(
        &mut self,
        rows: &Transitions<'_>,
        has_next_obs: &[bool],
        position: usize,
        stream: Stream,
        state: &PriorityState<'_>,
    ) -> Result<()> {
        self.ring.check_import(rows, has_next_obs, position)?;
        check_len("priorities", state.scaled.len(), "rewards", rows.rewards.len())?;
        let mut saved = state.scaled.iter().chain([&state.max_priority]);
        if !saved.all(|&priority| priority > 0.0 && priority <= MAX_PRIORITY) {
            let reason = "a priority is positive, and no larger than single precision has it";
            return Err(KernelError::Corrupt { name: "priorities", reason });
        }
        check_range("beta", state.beta, 0.0, 1.0)?;
        self.ring.import(rows, has_next_obs, position);
        self.tree.fill(state.scaled);
        (self.max_priority, self.beta, self.stream) = (state.max_priority, state.beta, stream);
        Ok(())
    }
}

/// The priority of a number that was given for one.
fn priority(given: f64) -> f64 {
    given.abs().max(MIN_PRIORITY)
}

fn check_priorities(priorities: &[f64]) -> Result<()> {
    let is_priority = |&given: &f64| given.abs() <= MAX_PRIORITY;
    match priorities.iter().position(|given| !is_priority(given)) {
        Some(index) => Err(KernelError::Priority { index: Some(index), value: priorities[index] }),
        None => Ok(()),
    }
}
