//! Pauses in which fewer threads are woken because other processes use the cores.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A caller that waits this long, and [`PATIENCE`] times as long as it worked itself, waits for a
/// thread that lost its core within a part: about the time slice of a process.
const HELD_UP: Duration = Duration::from_millis(1);
const PATIENCE: u32 = 4;

/// Nanoseconds: short enough to use a briefly busy core again soon.
const SHORTEST: u64 = 100_000_000;
/// The longest pause is 16 times as long and wakes one in 32 helpers.
const MOST: u32 = 5;

/// Leaves helpers asleep while other processes compute, because their parts would be late.
///
/// A pause halves the helpers; if the caller is held up again during it, or within its length after
/// it, the next pause halves them again and is twice as long.
#[derive(Debug)]
pub(super) struct Pauses {
    /// End of the last pause, in nanoseconds of [`clock`].
    end: AtomicU64,
    /// Number of halvings in it; 0 before the first.
    halvings: AtomicU32,
}

impl Pauses {
    pub(super) const fn new() -> Self {
        Self { end: AtomicU64::new(0), halvings: AtomicU32::new(0) }
    }

    /// Number of helpers to wake now.
    pub(super) fn left_of(&self, helpers: usize) -> usize {
        let paused = clock() < self.end.load(Relaxed);
        if paused { helpers >> self.halvings.load(Relaxed) } else { helpers }
    }

    /// Begins a pause if a caller was held up, given the times it worked and waited.
    pub(super) fn after(&self, worked: Duration, waited: Duration) {
        if waited > HELD_UP.max(worked * PATIENCE) {
            self.begin(clock());
        }
    }

    fn begin(&self, now: u64) {
        let (end, halvings) = (self.end.load(Relaxed), self.halvings.load(Relaxed));
        let again = now < end + length(halvings);
        let halvings = if again { (halvings + 1).min(MOST) } else { 1 };
        self.end.store(now + length(halvings), Relaxed);
        self.halvings.store(halvings, Relaxed);
    }
}

/// Length of a pause, in nanoseconds; before the first pause it has no effect.
fn length(halvings: u32) -> u64 {
    (SHORTEST / 2) << halvings
}

/// Nanoseconds since the first call.
fn clock() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    u64::try_from(START.get_or_init(Instant::now).elapsed().as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_follows_a_hold_up_alone() {
        let pauses = Pauses::new();
        let of = Duration::from_micros;
        for (worked, waited) in [(0, 999), (500, 1_999), (10_000, 20_000)] {
            pauses.after(of(worked), of(waited));
            assert_eq!([1, 15].map(|helpers| pauses.left_of(helpers)), [1, 15]);
        }
        pauses.after(of(200), of(3_000));
        assert_eq!([1, 15].map(|helpers| pauses.left_of(helpers)), [0, 7]);
        pauses.after(of(200), of(3_000));
        assert_eq!(pauses.left_of(15), 3);
    }

    #[test]
    fn pauses_grow_while_callers_are_held_up_and_shrink_after() {
        let pauses = Pauses::new();
        let mut now = 0;
        let mut lengths = Vec::new();
        for _ in 0..6 {
            pauses.begin(now);
            lengths.push(pauses.end.load(Relaxed) - now);
            now = pauses.end.load(Relaxed) + SHORTEST / 2;
        }
        assert_eq!(lengths, [1, 2, 4, 8, 16, 16].map(|times| times * SHORTEST));
        now += 16 * SHORTEST;
        pauses.begin(now);
        assert_eq!(pauses.end.load(Relaxed) - now, SHORTEST);
    }
}
