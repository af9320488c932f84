//! The buffer that draws transitions in proportion to their priorities.
//!
//! T. Schaul, J. Quan, I. Antonoglou, D. Silver, "Prioritized Experience Replay", ICLR 2016.

use super::batch::{Batch, Transitions};
use super::buffer::{Draw, Replay, reserve};
use super::layout::Layout;
use super::ring::Ring;
use super::stream::Stream;
use super::tree::PriorityTree;
use crate::error::{KernelError, Result, check_len, check_range};
use crate::threads::Meter;

/// Largest priority: the sum over any buffer stays finite.
pub const MAX_PRIORITY: f64 = f32::MAX as f64;

/// Smallest priority: its transition is still drawn at times. The ε of section 3.3.
pub const MIN_PRIORITY: f64 = 1e-6;

/// Draws that descend the tree at once: enough to keep the memory busy.
const TOGETHER: usize = 32;

/// Draws per block of a thread's work.
const BLOCK: usize = 1024;

/// Draws with probability `P(i) = p_i^α / Σ p_k^α` (equation 1).
#[derive(Debug)]
pub struct Prioritized {
    /// The p^α of the stored transitions.
    tree: PriorityTree,
    alpha: f64,
    beta: f64,
    /// The largest p so far, and 1 at first (algorithm 1, line 2).
    max_priority: f64,
    /// Its p^α, the initial value of new transitions.
    max_scaled: f64,
    /// The masses drawn for the last batch, kept to reuse their memory.
    masses: Vec<f64>,
    /// Cost of drawing a slot.
    cost: Meter,
}

/// A ring of the last transitions, sampled in proportion to their priorities.
pub type PrioritizedReplay = Replay<Prioritized>;

/// Additional output of [`Replay::sample`].
#[derive(Debug)]
pub struct Importance<'a> {
    /// The weights of importance sampling, in [0, 1].
    pub weights: &'a mut [f32],
    /// The drawn slots, for [`PrioritizedReplay::update_priorities`].
    pub indices: &'a mut [u64],
}

/// State of a [`PrioritizedReplay`] in addition to its ring and its stream.
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
        let prioritized = Prioritized {
            tree: PriorityTree::new(layout.capacity)?,
            alpha,
            beta,
            max_priority: 1.0,
            max_scaled: 1.0,
            masses: Vec::new(),
            cost: Meter::new(),
        };
        Ok(Self::of(ring, prioritized, stream))
    }

    /// The exponent of the priorities.
    #[must_use]
    pub fn alpha(&self) -> f64 {
        self.draw.alpha
    }

    /// The exponent of the weights.
    #[must_use]
    pub fn beta(&self) -> f64 {
        self.draw.beta
    }

    /// Sets the exponent of the weights.
    ///
    /// # Errors
    /// [`KernelError::Range`] outside [0, 1].
    pub fn set_beta(&mut self, beta: f64) -> Result<()> {
        check_range("beta", beta, 0.0, 1.0)?;
        self.draw.beta = beta;
        Ok(())
    }

    /// The largest priority so far, and 1 at first.
    #[must_use]
    pub fn max_priority(&self) -> f64 {
        self.draw.max_priority
    }

    /// Gives the transitions in the slots `indices` new priorities; of a repeated slot the last.
    ///
    /// Absolute values are used, at least [`MIN_PRIORITY`], so TD errors may be signed.
    ///
    /// # Errors
    /// [`KernelError::Shape`], [`KernelError::Index`] and [`KernelError::Priority`]; no priority
    /// changes then.
    #[expect(clippy::cast_possible_truncation, reason = "an index is less than a usize")]
    pub fn update_priorities(&mut self, indices: &[u64], priorities: &[f64]) -> Result<()> {
        check_len("priorities", priorities.len(), "indices", indices.len())?;
        let len = self.ring.len();
        if let Some(place) = indices.iter().position(|&index| index >= len as u64) {
            let value = indices[place].into();
            return Err(KernelError::Index { name: "indices", place, value, len });
        }
        check_priorities(priorities)?;
        let alpha = self.draw.alpha;
        let leaves = indices.iter().map(|&index| index as usize);
        let scaled = priorities.iter().map(|&given| priority(given).powf(alpha));
        self.draw.tree.set_many(leaves.zip(scaled));
        self.draw.pushed(Some(priorities));
        Ok(())
    }

    /// Copies p^α of every stored transition, in the order of the slots.
    ///
    /// # Errors
    /// [`KernelError::Shape`] if the lengths of `scaled` and the buffer differ.
    pub fn export_priorities(&self, scaled: &mut [f64]) -> Result<()> {
        check_len("priorities", scaled.len(), "the buffer", self.ring.len())?;
        for (slot, scaled) in scaled.iter_mut().enumerate() {
            *scaled = self.draw.tree.get(slot);
        }
        Ok(())
    }
}

impl Draw for Prioritized {
    /// Priorities as for [`PrioritizedReplay::update_priorities`]; without them, all transitions
    /// get the largest so far.
    type Given<'a> = Option<&'a [f64]>;
    type Drawn<'a> = Importance<'a>;
    type Saved<'a> = PriorityState<'a>;

    fn memory_bytes(layout: &Layout) -> Option<usize> {
        PriorityTree::memory_bytes(layout.capacity)
    }

    fn check_push(
        &self,
        _: &Layout,
        _: &Transitions<'_>,
        n: usize,
        given: Option<&[f64]>,
    ) -> Result<()> {
        let Some(priorities) = given else { return Ok(()) };
        check_len("priorities", priorities.len(), "rewards", n)?;
        check_priorities(priorities)
    }

    fn stored(
        &mut self,
        slot: usize,
        k: usize,
        _: usize,
        _: &Transitions<'_>,
        given: Option<&[f64]>,
    ) {
        let scaled = given.map_or(self.max_scaled, |given| priority(given[k]).powf(self.alpha));
        self.tree.set(slot, scaled);
    }

    fn pushed(&mut self, given: Option<&[f64]>) {
        let given = given.unwrap_or_default().iter().map(|&given| priority(given));
        self.max_priority = given.fold(self.max_priority, f64::max);
        self.max_scaled = self.max_priority.powf(self.alpha);
    }

    fn check_out(&self, _: &Ring, out: &Batch<'_>, drawn: &Importance<'_>) -> Result<()> {
        check_len("weights", drawn.weights.len(), "rewards", out.rewards.len())?;
        check_len("indices", drawn.indices.len(), "rewards", out.rewards.len())
    }

    /// The sum of all p^α is cut into n equal ranges, and a number drawn from each selects a
    /// transition (appendix B.2.1). The weight of transition i is `(N·P(i))^-β` divided by the
    /// largest weight in the buffer (section 3.4), that of the smallest priority, hence `(min p^α /
    /// p_i^α)^β`. A transition's weight does not depend on the others of its batch.
    #[expect(clippy::cast_precision_loss, reason = "a batch has fewer than 2^53 rows")]
    #[expect(clippy::cast_possible_truncation, reason = "weights are single precision")]
    fn choose(
        &mut self,
        _: &Ring,
        stream: &mut Stream,
        n: usize,
        slots: &mut Vec<usize>,
        drawn: &mut Importance<'_>,
    ) -> Result<()> {
        reserve(&mut self.masses, n)?;
        let width = self.tree.total() / n as f64;
        self.masses.extend((0..n).map(|k| (k as f64 + stream.next_double()) * width));
        slots.resize(n, 0);
        let (tree, smallest, beta) = (&self.tree, self.tree.min(), self.beta);
        let places = self.masses.chunks_mut(BLOCK).zip(slots.chunks_mut(BLOCK));
        let results = drawn.weights.chunks_mut(BLOCK).zip(drawn.indices.chunks_mut(BLOCK));
        self.cost.for_each(n, places.zip(results).collect(), |block| {
            let ((masses, slots), (weights, indices)) = block;
            for (masses, slots) in masses.chunks_mut(TOGETHER).zip(slots.chunks_mut(TOGETHER)) {
                tree.find(masses, slots);
            }
            for (&slot, (weight, index)) in slots.iter().zip(weights.iter_mut().zip(indices)) {
                *weight = (smallest / tree.get(slot)).powf(beta) as f32;
                *index = slot as u64;
            }
        });
        Ok(())
    }

    fn check_saved(&self, has_next_obs: &[bool], saved: &PriorityState<'_>) -> Result<()> {
        check_len("priorities", saved.scaled.len(), "rewards", has_next_obs.len())?;
        let mut priorities = saved.scaled.iter().chain([&saved.max_priority]);
        if !priorities.all(|&priority| priority > 0.0 && priority <= MAX_PRIORITY) {
            let reason = "a priority is positive, and no larger than single precision has it";
            return Err(KernelError::Corrupt { name: "priorities", reason });
        }
        check_range("beta", saved.beta, 0.0, 1.0)
    }

    fn restored(&mut self, _: &Ring, saved: &PriorityState<'_>) {
        self.tree.fill(saved.scaled);
        (self.max_priority, self.beta) = (saved.max_priority, saved.beta);
        self.max_scaled = self.max_priority.powf(self.alpha);
    }
}

/// The priority for a given number.
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
