//! Measured costs of kernels, which decide the number of threads.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Instant;

use super::{for_each, helpers_for, limit};

/// Fewer elements are never timed: reading the clock would distort the result.
const LEAST_ITEMS: usize = 64;

/// Cost of an element on one thread, measured whenever a kernel runs on one.
#[derive(Debug, Default)]
pub struct Meter {
    /// The bits of a single-precision number of nanoseconds; 0 before the first measurement.
    cost: AtomicU32,
}

impl Clone for Meter {
    fn clone(&self) -> Self {
        Self { cost: AtomicU32::new(self.cost.load(Relaxed)) }
    }
}

impl Meter {
    /// A meter that has measured nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self { cost: AtomicU32::new(0) }
    }

    /// Number of helpers for `items` elements, from the measured cost of one.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an estimate"
    )]
    pub fn helpers(&self, items: usize) -> usize {
        helpers_for((items as f32 * f32::from_bits(self.cost.load(Relaxed))) as u64, 1)
    }

    /// Runs the kernel on this thread and measures the cost of an element.
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    pub fn timed<T>(&self, items: usize, kernel: impl FnOnce() -> T) -> T {
        if items < LEAST_ITEMS || limit() == 1 {
            return kernel();
        }
        let start = Instant::now();
        let result = kernel();
        let cost = start.elapsed().as_secs_f32() * 1e9 / items as f32;
        let before = f32::from_bits(self.cost.load(Relaxed));
        // The minimum excludes disturbance by other processes; it rises slowly if the work grows.
        let cost = if before == 0.0 { cost } else { cost.min(before * 1.1) };
        self.cost.store(cost.to_bits(), Relaxed);
        result
    }

    /// Does `work` on each of `parts`, which have `items` elements together, on the number of
    /// threads that pays.
    ///
    /// # Panics
    /// As [`for_each`].
    pub fn for_each<T: Send>(&self, items: usize, parts: Vec<T>, work: impl Fn(T) + Sync) {
        if parts.len() < 2 {
            return parts.into_iter().for_each(work);
        }
        match self.helpers(items) {
            0 => self.timed(items, || parts.into_iter().for_each(work)),
            helpers => for_each(parts, helpers, work),
        }
    }
}
