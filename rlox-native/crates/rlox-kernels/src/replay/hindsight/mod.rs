//! The buffer that replays transitions with goals that their episodes reached later.
//!
//! M. Andrychowicz et al., "Hindsight Experience Replay", 2017, algorithm 1. Deviations:
//! (1) goals are replaced when a transition is drawn, not when it is stored, so that each draw may
//! have another; (2) an episode is what is stored of it: one that goes on ends with its newest step,
//! and of one that is being overwritten the rest remains.

mod episodes;
mod goals;

use super::batch::{Batch, Transitions};
use super::layout::Layout;
use super::ring::Ring;
use super::stream::Stream;
use super::uniform::reserve;
use crate::error::{KernelError, Result, StateError, check_len};
use episodes::Episodes;
pub use goals::{Goals, Hindsight, Selection};

/// A ring of the last transitions of episodes with goals, drawn from uniformly with replacement.
#[derive(Debug)]
pub struct HindsightReplay {
    ring: Ring,
    stream: Stream,
    episodes: Episodes,
    hindsight: Hindsight,
    /// The slots of the last batch and of the steps whose goals it takes, kept for their memory.
    slots: Vec<usize>,
    goal_slots: Vec<usize>,
}

impl HindsightReplay {
    /// An empty buffer that draws from `stream`; the steps of `layout` must be single ones.
    ///
    /// # Errors
    /// [`KernelError::Range`] for a size of 0, for goals that lie beyond the observation, and for a
    /// negative threshold; [`KernelError::GoalsOverlap`]; [`KernelError::OutOfMemory`].
    pub fn new(layout: Layout, hindsight: Hindsight, stream: Stream) -> Result<Self> {
        hindsight.check(&layout)?;
        let ring = Ring::new(layout.whole())?;
        let episodes = Episodes::new(layout.capacity, layout.n_step.n_envs)?;
        let (slots, goal_slots) = (Vec::new(), Vec::new());
        Ok(Self { ring, stream, episodes, hindsight, slots, goal_slots })
    }

    /// Bytes of memory that a buffer of this layout takes when it is full.
    ///
    /// # Errors
    /// As [`Layout::memory_bytes`].
    pub fn memory_bytes(layout: &Layout) -> Result<usize> {
        let ring = layout.memory_bytes()?;
        let bytes = Episodes::memory_bytes(layout.capacity).and_then(|n| n.checked_add(ring));
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

    /// Stores transitions, each in the place of the oldest where the buffer is full.
    ///
    /// # Errors
    /// [`KernelError::Shape`], also without next observations, [`KernelError::DType`],
    /// [`KernelError::NonFinite`] and [`KernelError::Envs`]; nothing is stored then.
    pub fn push(&mut self, rows: &Transitions<'_>) -> Result<()> {
        let n = self.ring.check_push(rows)?;
        if rows.next_obs.is_none() {
            check_len("next_obs", 0, "obs", n * self.ring.layout().obs.len)?;
        }
        let stored = self.ring.len();
        let mut slot = self.ring.position();
        self.ring.write(rows, |_| ());
        for (k, (&terminated, &truncated)) in rows.terminated.iter().zip(rows.truncated).enumerate()
        {
            let stored = (stored + k + 1).min(self.ring.layout().capacity);
            self.episodes.push(slot, terminated || truncated, stored);
            slot = self.ring.after(slot, 1);
        }
        Ok(())
    }

    /// Cuts the episodes that go on: the newest step of each env becomes its episode's last.
    pub fn truncate_episodes(&mut self) {
        self.ring.truncate_newest();
        self.index();
    }

    /// Draws as many transitions as `out` has rows, as [`super::UniformReplay::sample`] does, and
    /// replaces the goals of k out of k + 1, k being [`Hindsight::n_sampled_goal`].
    ///
    /// After the slots, a number of `Generator.random()` for each row decides whether its goal is
    /// replaced, and after these another one for each which goal it gets. `relabelled` says which
    /// rows have another goal than they were pushed with: where there is a threshold, their rewards
    /// are 0 within it and -1 beyond, and otherwise theirs are the caller's to compute.
    ///
    /// # Errors
    /// [`StateError::EmptyBuffer`], [`KernelError::Shape`], also without next observations,
    /// [`KernelError::DType`], [`KernelError::OutOfMemory`]. Nothing is drawn or written then.
    #[expect(clippy::cast_possible_truncation, reason = "a slot is less than a usize")]
    pub fn sample(
        &mut self,
        seed: Option<u64>,
        out: &mut Batch<'_>,
        relabelled: &mut [bool],
    ) -> Result<()> {
        let n = out.rewards.len();
        if self.ring.is_empty() {
            return Err(StateError::EmptyBuffer.into());
        }
        self.ring.check_out(out, n)?;
        check_len("relabelled", relabelled.len(), "rewards", n)?;
        let len = self.ring.layout().obs.len;
        if out.next_obs.is_none() {
            check_len("next_obs", 0, "rewards", n.saturating_mul(len))?;
        }
        reserve(&mut self.slots, n)?;
        reserve(&mut self.goal_slots, n)?;
        let mut seeded = seed.map(Stream::from_seed);
        let stream = seeded.as_mut().unwrap_or(&mut self.stream);
        let stored = self.ring.len() as u64;
        self.slots.extend((0..n).map(|_| stream.below(stored) as usize));
        let chance = self.hindsight.chance();
        relabelled.fill_with(|| stream.next_double() < chance);
        for &slot in &self.slots {
            let episode = self.episodes.around(slot, &self.ring);
            let pick = stream.next_double();
            self.goal_slots.push(self.hindsight.selection.pick(slot, &episode, pick, &self.ring));
        }
        self.ring.draw(&self.slots, out);
        for (row, (&goal_slot, &relabelled)) in self.goal_slots.iter().zip(&*relabelled).enumerate()
        {
            if relabelled {
                self.hindsight.relabel(row, self.ring.next_obs(goal_slot), out);
            }
        }
        Ok(())
    }

    /// Goes on exactly from what [`Ring::export`], [`Ring::position`] and
    /// [`HindsightReplay::stream`] gave.
    ///
    /// # Errors
    /// What is wrong with the state; the buffer is as it was then.
    pub fn restore(
        &mut self,
        rows: &Transitions<'_>,
        has_next_obs: &[bool],
        position: usize,
        stream: Stream,
    ) -> Result<()> {
        self.ring.check_import(rows, has_next_obs, position)?;
        if !has_next_obs.iter().all(|known| *known) {
            let reason = "hindsight needs the next observation of every transition";
            return Err(KernelError::Corrupt { name: "has_next_obs", reason });
        }
        self.ring.import(rows, has_next_obs, position);
        self.index();
        self.stream = stream;
        Ok(())
    }

    /// Finds the episodes of what is stored.
    fn index(&mut self) {
        let (stored, oldest) = (self.ring.len(), self.ring.oldest());
        self.episodes.begin(stored);
        for age in 0..stored {
            let slot = self.ring.after(oldest, age);
            self.episodes.push(slot, self.ring.ends_episode(slot), age + 1);
        }
    }
}
