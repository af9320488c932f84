//! Work shared with other threads while its caller waits.

#![allow(unsafe_code, reason = "helpers call a closure that borrows from the waiting caller")]

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Thread, current, park, yield_now};
use std::time::{Duration, Instant};

use super::LINGER;

type Panic = Box<dyn Any + Send>;

/// The caller has left: no helper may start any more.
const CLOSED: usize = 1 << (usize::BITS - 1);

/// A closure that several threads call at once.
///
/// `rayon`'s scopes wait for every task, even if its thread gets no core because another process
/// computes. Here a late helper finds the job closed and leaves.
pub(super) struct Job {
    work: Work,
    /// Number of working helpers, and [`CLOSED`].
    helping: AtomicUsize,
    panic: Mutex<Option<Panic>>,
    caller: Thread,
}

/// The closure, which lives as long as the caller of [`Job::run`] waits.
struct Work(*const (dyn Fn() + Sync + 'static));

// SAFETY: the closure behind the pointer is `Sync`, and the pointer itself is only copied.
unsafe impl Send for Work {}
// SAFETY: as above; a shared `Work` gives out nothing but shared calls of a `Sync` closure.
unsafe impl Sync for Work {}

impl Job {
    /// Calls `work` on this thread and on each thread to which `spawn` passes its [`Help`].
    ///
    /// Returns once this thread's call and all calls that began have ended, with the panic of one
    /// of them if any panicked.
    pub(super) fn run(work: &(dyn Fn() + Sync), spawn: impl FnOnce(Help)) -> Result<Taken, Panic> {
        // SAFETY: only the lifetime changes. The pointer is dereferenced below, while the borrow is
        // alive, and in `give`, by a thread that `helping` counts since before `CLOSED`; this
        // function returns after `CLOSED` is set and nobody helps, hence after the last of them.
        // It cannot unwind before: panics of `work` and `spawn` are caught.
        let work: &'static (dyn Fn() + Sync) =
            unsafe { std::mem::transmute::<&(dyn Fn() + Sync), &'static (dyn Fn() + Sync)>(work) };
        let work = Work(work);
        let (helping, panic, caller) = (AtomicUsize::new(0), Mutex::new(None), current());
        let job = Arc::new(Self { work, helping, panic, caller });
        let began = Instant::now();
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            spawn(Help(job.clone()));
            // SAFETY: the caller's borrow is alive while this function runs.
            unsafe { (*job.work.0)() }
        }));
        job.helping.fetch_or(CLOSED, AcqRel);
        let since = Instant::now();
        while job.helping.load(Acquire) != CLOSED {
            if since.elapsed() < LINGER { yield_now() } else { park() }
        }
        let panic = job.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
        let taken = Taken { worked: since - began, waited: since.elapsed() };
        outcome.and(panic.map_or(Ok(taken), Err))
    }
}

/// Times that the caller of [`Job::run`] worked itself and then waited for others.
pub(super) struct Taken {
    pub(super) worked: Duration,
    pub(super) waited: Duration,
}

/// A helper's part in a [`Job`].
#[derive(Clone)]
pub(super) struct Help(Arc<Job>);

impl Help {
    /// Works with the caller unless the work is over.
    pub(super) fn give(&self) {
        let job = &*self.0;
        let begin = |n| (n & CLOSED == 0).then_some(n + 1);
        if job.helping.fetch_update(AcqRel, Acquire, begin).is_err() {
            return;
        }
        // SAFETY: the job was open when this thread was counted, so `run` waits for it.
        let outcome = catch_unwind(AssertUnwindSafe(|| unsafe { (*job.work.0)() }));
        if let Err(panic) = outcome {
            *job.panic.lock().unwrap_or_else(PoisonError::into_inner) = Some(panic);
        }
        if job.helping.fetch_sub(1, Release) == CLOSED + 1 {
            job.caller.unpark();
        }
    }
}
