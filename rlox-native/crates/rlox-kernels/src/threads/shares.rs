//! The parts of a work, in shares that threads begin with and help each other out of.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// Parts that several threads take, each of them once.
///
/// A thread begins with the share of its own number, so that what is divided again and again keeps
/// to the same threads, in whose caches it is; then it takes what others have not come to.
pub(super) struct Shares<T> {
    /// No lock is ever waited for: a part is one thread's.
    parts: Vec<Mutex<Option<T>>>,
    taken: Vec<Count>,
}

/// How many parts of a share have been taken, or more; alone in its cache lines.
#[derive(Default)]
#[repr(align(128))]
struct Count(AtomicUsize);

impl<T> Shares<T> {
    /// Divides the parts into `n` shares, in order.
    pub(super) fn new(parts: Vec<T>, n: usize) -> Self {
        let parts = parts.into_iter().map(|part| Mutex::new(Some(part))).collect();
        Self { parts, taken: (0..n).map(|_| Count::default()).collect() }
    }

    /// Calls `work` on each part of share `own`, then on those that are left of the others.
    pub(super) fn each(&self, own: usize, work: impl Fn(T)) {
        let n = self.taken.len();
        for share in (own..n).chain(0..own) {
            let start = self.parts.len() * share / n;
            let parts = &self.parts[start..self.parts.len() * (share + 1) / n];
            while let Some(part) = parts.get(self.taken[share].0.fetch_add(1, Relaxed)) {
                let part = part.lock().unwrap_or_else(PoisonError::into_inner).take();
                part.into_iter().for_each(&work);
            }
        }
    }
}
