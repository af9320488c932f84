//! The shared thread pool of the kernels, and the rules of its use.
//!
//! A kernel's division into parts depends only on the data, or does not affect results, and no part
//! reads the output of another. Results are therefore the same bits for any number of threads, and
//! a kernel may run on one thread whenever that is better: for little work, or while the pool is
//! unavailable.
//!
//! The pool is built when it is first needed, with one thread fewer than [`limit`]: the calling
//! thread works too. Idle threads sleep. The caller never waits for a thread that has not started
//! to help, so other processes on the cores do not delay a call.

mod job;
mod meter;
mod pauses;
mod shares;

use std::cell::Cell;
use std::num::NonZero;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{available_parallelism, yield_now};
use std::time::{Duration, Instant};

use rayon_core::{ThreadPool, ThreadPoolBuilder, Yield};

use crate::error::{Result, check_size};
use job::{Help, Job, Taken};
pub use meter::Meter;
use pauses::Pauses;
use shares::Shares;

/// Largest number of threads that can be set.
pub const MAX_THREADS: usize = 1024;

/// Least work, in nanoseconds on one thread, for which others are woken: several times the cost of
/// waking them and waiting for them.
pub const LEAST_WORK: u64 = 200_000;

/// Least work of each of the threads then, in nanoseconds.
const LEAST_SHARE: u64 = 25_000;

/// Time that an idle thread looks for work, and a waiting one for the end of the others, before it
/// sleeps: about the cost of waking it on a virtual machine.
const LINGER: Duration = Duration::from_micros(60);

/// 0 means all cores.
static LIMIT: AtomicUsize = AtomicUsize::new(0);
static LEAST: AtomicU64 = AtomicU64::new(LEAST_WORK);
static POOL: Mutex<Option<Pool>> = Mutex::new(None);
static PAUSES: Pauses = Pauses::new();

/// The pool and its process: a forked child has its parent's memory but none of its threads.
struct Pool {
    process: u32,
    size: usize,
    threads: Arc<ThreadPool>,
}

/// Sets the number of threads of a kernel, including the calling one; `None` means one per core.
///
/// # Errors
/// [`Range`](crate::KernelError::Range) for a number outside `[1, MAX_THREADS]`.
pub fn set_limit(threads: Option<usize>) -> Result<()> {
    threads.map_or(Ok(()), |n| check_size("n", n, MAX_THREADS))?;
    LIMIT.store(threads.unwrap_or(0), Relaxed);
    Ok(())
}

/// Number of threads that a kernel may use, including the calling one.
pub fn limit() -> usize {
    // The query reads files of the control group.
    static CORES: OnceLock<usize> = OnceLock::new();
    match LIMIT.load(Relaxed) {
        0 => *CORES.get_or_init(|| available_parallelism().map_or(1, NonZero::get)),
        threads => threads,
    }
}

/// Sets the least work, in nanoseconds, for which one thread wakes others; with 0, for tests of bit
/// equality, all are always woken.
pub fn set_least_work(nanoseconds: u64) {
    LEAST.store(nanoseconds, Relaxed);
}

/// Number of helpers for work that takes one thread `nanoseconds` and comes `times` in a row, which
/// wakes a thread once.
fn helpers_for(nanoseconds: u64, times: u64) -> usize {
    let (limit, least) = (limit(), LEAST.load(Relaxed));
    if limit == 1 || times * nanoseconds < least {
        return 0;
    }
    if least == 0 {
        return limit - 1;
    }
    let shares = usize::try_from(nanoseconds / LEAST_SHARE).unwrap_or(usize::MAX);
    PAUSES.left_of(shares.clamp(1, limit) - 1)
}

/// The pool of `size` threads in this process, or `None` if it is being changed or cannot be built.
fn pool(size: usize) -> Option<Arc<ThreadPool>> {
    // Never waits: in a forked child the lock's holder does not exist.
    let mut pool = POOL.try_lock().ok()?;
    let process = std::process::id();
    if let Some(pool) = pool.as_ref().filter(|pool| pool.process == process && pool.size == size) {
        return Some(pool.threads.clone());
    }
    let threads = ThreadPoolBuilder::new()
        .num_threads(size)
        .thread_name(|index| format!("rlox-{index}"))
        .build()
        .ok()?;
    let threads = Arc::new(threads);
    let old = pool.replace(Pool { process, size, threads: threads.clone() });
    // Dropping the parent's pool would wait for locks that its threads may have held.
    if let Some(old) = old.filter(|old| old.process != process) {
        std::mem::forget(old);
    }
    Some(threads)
}

/// Number of helpers for one pass of rows through a network's products, of `multiply_adds`
/// multiplications and additions.
#[must_use]
pub fn product_helpers(multiply_adds: usize) -> usize {
    /// Approximate rate of a core; small products are slower.
    const PER_NANOSECOND: usize = 32;
    /// Passes of a gradient step, at least: forward and backward.
    const WAYS: u64 = 2;
    helpers_for((multiply_adds / PER_NANOSECOND) as u64, WAYS)
}

/// Runs `first` and `second`, in parallel if there are `helpers`.
///
/// # Panics
/// As [`for_each`].
pub fn join(helpers: usize, first: impl FnOnce() + Send, second: impl FnOnce() + Send) {
    if helpers == 0 {
        first();
        second();
        return;
    }
    let parts: [Box<dyn FnOnce() + Send + '_>; 2] = [Box::new(first), Box::new(second)];
    for_each(parts.into(), helpers, |part| part());
}

/// Does `work` on each of `parts`, on this thread and at most `helpers` others.
///
/// Each thread, this one first, starts with its own share of the parts, which is still in its
/// caches if the same work is divided repeatedly.
///
/// # Panics
/// With the panic of `work` on any thread, once no thread works any more.
pub fn for_each<T: Send>(parts: Vec<T>, helpers: usize, work: impl Fn(T) + Sync) {
    let helpers = helpers.min(limit() - 1).min(parts.len().saturating_sub(1));
    let pool = if helpers == 0 { None } else { pool(limit() - 1) };
    let Some(pool) = pool else { return parts.into_iter().for_each(work) };
    // No lock is ever waited for: each part has one thread.
    let parts: Vec<_> = parts.into_iter().map(|part| Mutex::new(Some(part))).collect();
    divide(&pool, helpers, parts.len(), &|i| {
        let part = parts[i].lock().unwrap_or_else(PoisonError::into_inner).take();
        part.into_iter().for_each(&work);
    });
}

/// Calls `work` once for each of `n` parts, as [`for_each`] does. It is compiled once, not for
/// every type of part.
fn divide(pool: &ThreadPool, helpers: usize, n: usize, work: &(dyn Fn(usize) + Sync)) {
    let shares = Shares::new(n, helpers + 1);
    let all = || {
        let own = pool.current_thread_index().map_or(0, |helper| 1 + helper % helpers);
        shares.each(own, work);
    };
    let spawn = |help: Help| {
        let help = move || {
            help.give();
            linger();
        };
        if helpers == pool.current_num_threads() {
            // Each thread has its own queue: 16 threads do not contend for a single one.
            pool.spawn_broadcast(move |_| help());
        } else {
            (0..helpers).for_each(|_| pool.spawn(help.clone()));
        }
    };
    match Job::run(&all, spawn) {
        Ok(Taken { worked, waited }) => PAUSES.after(worked, waited),
        Err(panic) => resume_unwind(panic),
    }
}

/// Helps with jobs that come within [`LINGER`], so that kernels in a row wake a thread once.
fn linger() {
    thread_local! {
        static LINGERS: Cell<bool> = const { Cell::new(false) };
    }
    // Further work runs on top of this function and must not linger again.
    if LINGERS.replace(true) {
        return;
    }
    let mut since = Instant::now();
    while since.elapsed() < LINGER {
        if rayon_core::yield_now() == Some(Yield::Executed) {
            since = Instant::now();
        } else {
            yield_now();
        }
    }
    LINGERS.set(false);
}

#[cfg(test)]
mod tests;
