//! Parts of a job, divided into shares among which threads help each other.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Part numbers that several threads take, each number once.
///
/// A thread starts with the share of its own number, so that repeated work stays with the threads
/// whose caches hold it; then it takes parts left in other shares.
pub(super) struct Shares {
    parts: usize,
    taken: Vec<Count>,
}

/// Number of attempts to take a part of a share; alone in its cache lines.
#[derive(Default)]
#[repr(align(128))]
struct Count(AtomicUsize);

impl Shares {
    /// Divides `parts` parts into `n` shares, in order.
    pub(super) fn new(parts: usize, n: usize) -> Self {
        Self { parts, taken: (0..n).map(|_| Count::default()).collect() }
    }

    /// Calls `work` for each part of share `own`, then for the parts left in the others.
    pub(super) fn each(&self, own: usize, work: impl Fn(usize)) {
        let n = self.taken.len();
        for share in (own..n).chain(0..own) {
            let start = self.parts * share / n;
            let end = self.parts * (share + 1) / n;
            let take = || Some(start + self.taken[share].0.fetch_add(1, Relaxed));
            std::iter::from_fn(take).take_while(|&part| part < end).for_each(&work);
        }
    }
}
