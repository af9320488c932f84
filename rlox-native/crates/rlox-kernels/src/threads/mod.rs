//! The thread pool that kernels share, and when they use it.
//!
//! A kernel divides its work into parts that depend on the data alone, or on which no number
//! depends, and no part reads what another writes. Results are therefore the same bits for any
//! number of threads, and a kernel may run on one thread whenever that is better: for little work,
//! or while the pool cannot be had.
//!
//! The pool is built when it is first needed, with one thread fewer than [`limit`]: the calling
//! thread works too. Idle threads sleep. The caller never waits for a thread that has not begun to
//! help, so that another process on the cores does not hold a call up.

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

/// The most threads that may be asked for.
pub const MAX_THREADS: usize = 1024;

/// What one thread must have to do before it wakes others, in nanoseconds: several times what waking
/// them and waiting for them takes.
pub const LEAST_WORK: u64 = 200_000;

/// What each of the threads must then have to do, in nanoseconds.
const LEAST_SHARE: u64 = 25_000;

/// How long a thread that has nothing to do looks for work, and one that waits looks whether the
/// others are ready, before it sleeps: about what waking it takes on a virtual machine.
const LINGER: Duration = Duration::from_micros(60);

/// 0 stands for all cores.
static LIMIT: AtomicUsize = AtomicUsize::new(0);
static LEAST: AtomicU64 = AtomicU64::new(LEAST_WORK);
static POOL: Mutex<Option<Pool>> = Mutex::new(None);
static PAUSES: Pauses = Pauses::new();

/// The pool, and whose it is: a forked child has its parent's memory and none of its threads.
struct Pool {
    process: u32,
    size: usize,
    threads: Arc<ThreadPool>,
}

/// Sets how many threads a kernel may use, the calling one included; `None` stands for one per core.
///
/// # Errors
/// [`Range`](crate::KernelError::Range) for a number outside `[1, MAX_THREADS]`.
pub fn set_limit(threads: Option<usize>) -> Result<()> {
    threads.map_or(Ok(()), |n| check_size("n", n, MAX_THREADS))?;
    LIMIT.store(threads.unwrap_or(0), Relaxed);
    Ok(())
}

/// How many threads a kernel may use, the calling one included.
pub fn limit() -> usize {
    // Asking the system reads files of the control group.
    static CORES: OnceLock<usize> = OnceLock::new();
    match LIMIT.load(Relaxed) {
        0 => *CORES.get_or_init(|| available_parallelism().map_or(1, NonZero::get)),
        threads => threads,
    }
}

/// Sets what one thread must have to do before it wakes others, in nanoseconds; with 0, as tests of
/// equal bits have it, all are always woken.
pub fn set_least_work(nanoseconds: u64) {
    LEAST.store(nanoseconds, Relaxed);
}

/// How many threads should help with what takes one of them so long and comes so many times in a
/// row, which wakes a thread once.
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
    // Not waited for: in a forked child, whoever held the lock does not exist.
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
    // Ending the parent's pool would wait for locks that its threads may have held.
    if let Some(old) = old.filter(|old| old.process != process) {
        std::mem::forget(old);
    }
    Some(threads)
}

/// How many threads should help with so many multiplications and additions of a way of rows through
/// a network's products.
#[must_use]
pub fn product_helpers(multiply_adds: usize) -> usize {
    /// What a core does in a nanosecond, about; small products are slower.
    const PER_NANOSECOND: usize = 32;
    /// Of a gradient step, at least: there and back.
    const WAYS: u64 = 2;
    helpers_for((multiply_adds / PER_NANOSECOND) as u64, WAYS)
}

/// Does `first` and `second`, side by side if there are `helpers`.
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
/// This thread begins with the first parts and each other with those of its own number, which are
/// in its caches if the same is divided again and again.
///
/// # Panics
/// With what `work` panicked with, on whichever thread, once no thread works any more.
pub fn for_each<T: Send>(parts: Vec<T>, helpers: usize, work: impl Fn(T) + Sync) {
    let helpers = helpers.min(limit() - 1).min(parts.len().saturating_sub(1));
    let pool = if helpers == 0 { None } else { pool(limit() - 1) };
    let Some(pool) = pool else { return parts.into_iter().for_each(work) };
    // A lock is never waited for: a part is one thread's.
    let parts: Vec<_> = parts.into_iter().map(|part| Mutex::new(Some(part))).collect();
    divide(&pool, helpers, parts.len(), &|i| {
        let part = parts[i].lock().unwrap_or_else(PoisonError::into_inner).take();
        part.into_iter().for_each(&work);
    });
}

/// Calls `work` once for each of `n` parts, as [`for_each`] does. It is compiled once, not for every
/// kind of part.
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
            // Each has a queue of its own: of 16 threads none waits for 15 others to look into one.
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

/// Helps with what comes within [`LINGER`], so that kernels in a row wake a thread once.
fn linger() {
    thread_local! {
        static LINGERS: Cell<bool> = const { Cell::new(false) };
    }
    // What is helped with meanwhile is on top of this function.
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
