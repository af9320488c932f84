//! The buffer that replays transitions with goals that their episodes reached later.
//!
//! M. Andrychowicz et al., "Hindsight Experience Replay", 2017, algorithm 1. Deviations:
//! (1) goals are replaced when a transition is drawn, not when it is stored, so that each draw may
//! have another; (2) an episode is what is stored of it: one that goes on ends with its newest step,
//! and of one that is being overwritten the rest remains.

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

/// Draws uniformly, and replaces the goals of k out of k + 1, k being [`Hindsight::n_sampled_goal`].
///
/// After the slots, a number of `Generator.random()` for each row decides whether its goal is
/// replaced, and after these another one for each which goal it gets. The flags that are drawn say which
/// rows have another goal than they were pushed with: if there is a threshold, their rewards
/// are 0 within it and -1 beyond, and otherwise theirs are the caller's to compute.
#[derive(Debug)]
pub struct Relabelled {
    episodes: Episodes,
    hindsight: Hindsight,
    /// What the last batch got, kept for its memory.
    goals: Vec<Goal>,
    /// Of giving a transition another goal.
    cost: Meter,
}

/// Whether the transition in a slot gets another goal, and which one.
#[derive(Debug)]
struct Goal {
    slot: usize,
    is_other: bool,
    /// In [0, 1).
    pick: f64,
}

/// A ring of the last transitions of episodes with goals, drawn from uniformly with replacement.
pub type HindsightReplay = Replay<Relabelled>;

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

    /// Finds the episodes of what is stored.
    fn restored(&mut self, ring: &Ring, (): &()) {
        let (stored, oldest) = (ring.len(), ring.oldest());
        self.episodes.begin(stored);
        for age in 0..stored {
            let slot = ring.after(oldest, age);
            self.episodes.push(slot, ring.ends_episode(slot), age + 1);
        }
    }
}

/// Checks that there are next observations, `expected` numbers.
fn check_next_obs(there: bool, like: &'static str, expected: usize) -> Result<()> {
    if there { Ok(()) } else { check_len("next_obs", 0, like, expected) }
}
