//! The parts of a work, in shares that threads begin with and help each other out of.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Numbers of parts that several threads take, each of them once.
///
/// A thread begins with the share of its own number, so that what is divided again and again keeps
/// to the same threads, in whose caches it is; then it takes what others have not come to.
pub(super) struct Shares {
    parts: usize,
    taken: Vec<Count>,
}

/// How many parts of a share have been taken, or more; alone in its cache lines.
#[derive(Default)]
#[repr(align(128))]
struct Count(AtomicUsize);

impl Shares {
    /// Divides so many parts into `n` shares, in order.
    pub(super) fn new(parts: usize, n: usize) -> Self {
        Self { parts, taken: (0..n).map(|_| Count::default()).collect() }
    }

    /// Calls `work` for each part of share `own`, then for those that are left of the others.
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
