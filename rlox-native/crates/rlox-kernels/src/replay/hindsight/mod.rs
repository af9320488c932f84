//! The replay buffer with goals that the episodes reached later.
//!
//! M. Andrychowicz et al., "Hindsight Experience Replay", 2017, algorithm 1. Deviations: (1) goals
//! are replaced when a transition is drawn, not when it is stored, so each draw may have a new one;
//! (2) only stored steps count: a running episode ends with its newest step, and a partly
//! overwritten one begins with its oldest stored step.

mod episodes;
mod goals;

use super::batch::{Batch, Transitions};
use super::buffer::{Draw, Replay, reserve};
use super::layout::Layout;
use super::ring::Ring;
use super::stream::Stream;
use crate::error::{KernelError, Result, check_len};
use crate::threads::Meter;
use episodes::Episodes;
pub use goals::{Goals, Hindsight, Selection};

/// Draws uniformly and relabels k of k + 1 transitions, where k is [`Hindsight::n_sampled_goal`].
///
/// The stream yields the slots, then for each row a number of `Generator.random()` that decides
/// whether it is relabelled, then for each row another one that chooses the goal. The flags in the
/// output mark relabelled rows: with a threshold their rewards are 0 within it and -1 beyond;
/// without one the caller computes them.
#[derive(Debug)]
pub struct Relabelled {
    episodes: Episodes,
    hindsight: Hindsight,
    /// Goals of the last batch, kept to reuse their memory.
    goals: Vec<Goal>,
    /// Cost of relabelling a transition.
    cost: Meter,
}

/// Whether the transition in a slot is relabelled, and the pick of its goal.
#[derive(Debug)]
struct Goal {
    slot: usize,
    is_other: bool,
    /// In [0, 1).
    pick: f64,
}

/// A ring of the last transitions of episodes with goals, sampled uniformly with replacement.
pub type HindsightReplay = Replay<Relabelled>;

impl HindsightReplay {
    /// An empty buffer that draws from `stream`; `layout` must have single steps.
    ///
    /// # Errors
    /// [`KernelError::Range`] for a size of 0, goals outside the observation or a negative
    /// threshold; [`KernelError::GoalsOverlap`]; [`KernelError::OutOfMemory`].
    pub fn new(layout: Layout, hindsight: Hindsight, stream: Stream) -> Result<Self> {
        hindsight.check(&layout)?;
        let ring = Ring::new(layout.whole())?;
        let episodes = Episodes::new(layout.capacity, layout.n_step.n_envs)?;
        let relabelled = Relabelled { episodes, hindsight, goals: Vec::new(), cost: Meter::new() };
        Ok(Self::of(ring, relabelled, stream))
    }
}

impl Draw for Relabelled {
    type Given<'a> = ();
    type Drawn<'a> = [bool];
    type Saved<'a> = ();

    fn memory_bytes(layout: &Layout) -> Option<usize> {
        Episodes::memory_bytes(layout.capacity)
    }

    fn check_push(&self, layout: &Layout, rows: &Transitions<'_>, n: usize, (): ()) -> Result<()> {
        check_next_obs(rows.next_obs.is_some(), "obs", n * layout.obs.len)
    }

    fn stored(&mut self, slot: usize, k: usize, stored: usize, rows: &Transitions<'_>, (): ()) {
        self.episodes.push(slot, rows.terminated[k] || rows.truncated[k], stored);
    }

    fn check_out(&self, ring: &Ring, out: &Batch<'_>, relabelled: &[bool]) -> Result<()> {
        let n = out.rewards.len();
        check_len("relabelled", relabelled.len(), "rewards", n)?;
        check_next_obs(out.next_obs.is_some(), "rewards", n.saturating_mul(ring.layout().obs.len))
    }

    #[expect(clippy::cast_possible_truncation, reason = "a slot is less than a usize")]
    fn choose(
        &mut self,
        ring: &Ring,
        stream: &mut Stream,
        n: usize,
        slots: &mut Vec<usize>,
        relabelled: &mut [bool],
    ) -> Result<()> {
        reserve(&mut self.goals, n)?;
        let stored = ring.len() as u64;
        slots.extend((0..n).map(|_| stream.below(stored) as usize));
        let chance = self.hindsight.chance();
        relabelled.fill_with(|| stream.next_double() < chance);
        let drawn = slots.iter().zip(&*relabelled);
        self.goals.extend(drawn.map(|(&slot, &is_other)| {
            let pick = stream.next_double();
            Goal { slot, is_other, pick }
        }));
        Ok(())
    }

    fn finish(&self, ring: &Ring, _: &[bool], out: &mut Batch<'_>) {
        ring.in_blocks(&self.goals, &self.cost, out, |goals, out| {
            for (row, goal) in goals.iter().enumerate().filter(|(_, goal)| goal.is_other) {
                let episode = self.episodes.around(goal.slot, ring);
                let reached = self.hindsight.selection.pick(goal.slot, &episode, goal.pick, ring);
                self.hindsight.relabel(row, ring.next_obs(reached), out);
            }
        });
    }

    fn cut(&mut self, ring: &Ring) {
        self.restored(ring, &());
    }

    fn check_saved(&self, has_next_obs: &[bool], (): &()) -> Result<()> {
        if has_next_obs.iter().all(|known| *known) {
            return Ok(());
        }
        let reason = "hindsight needs the next observation of every transition";
        Err(KernelError::Corrupt { name: "has_next_obs", reason })
    }

    /// Finds the episodes of the stored transitions.
    fn restored(&mut self, ring: &Ring, (): &()) {
        let (stored, oldest) = (ring.len(), ring.oldest());
        self.episodes.begin(stored);
        for age in 0..stored {
            let slot = ring.after(oldest, age);
            self.episodes.push(slot, ring.ends_episode(slot), age + 1);
        }
    }
}

/// Checks that next observations of `expected` numbers were given.
fn check_next_obs(there: bool, like: &'static str, expected: usize) -> Result<()> {
    if there { Ok(()) } else { check_len("next_obs", 0, like, expected) }
}
