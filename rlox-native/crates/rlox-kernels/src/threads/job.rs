//! Work that other threads may help with while its caller waits.

#![allow(unsafe_code, reason = "helpers call a closure that borrows from the waiting caller")]

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::yield_now;
use std::time::Instant;

use super::LINGER;

type Panic = Box<dyn Any + Send>;

/// Who works, and what went wrong.
#[derive(Default)]
struct State {
    /// Helpers that are at work.
    helping: usize,
    /// Whether the caller has left: nobody begins to help any more.
    closed: bool,
    panic: Option<Panic>,
}

/// A closure that several threads call at once.
///
/// `rayon`'s scopes wait for every task, also for one whose thread gets no core while another
/// process computes. Here a helper that comes too late finds the job closed and leaves.
pub(super) struct Job {
    work: Work,
    state: Mutex<State>,
    left: Condvar,
}

/// The closure, which lives as long as the caller of [`Job::run`] waits.
struct Work(*const (dyn Fn() + Sync + 'static));

// SAFETY: the closure behind the pointer is `Sync`, and the pointer itself is only copied.
unsafe impl Send for Work {}
// SAFETY: as above; a shared `Work` gives out nothing but shared calls of a `Sync` closure.
unsafe impl Sync for Work {}

impl Job {
    /// Calls `work` here and on up to `helpers` threads, which `spawn` starts a task on.
    ///
    /// Returns when this thread's call and all others that began have ended, with the panic of one
    /// of them if any panicked.
    pub(super) fn run(
        work: &(dyn Fn() + Sync),
        helpers: usize,
        spawn: impl Fn(Box<dyn FnOnce() + Send>),
    ) -> Result<(), Panic> {
        // SAFETY: only the lifetime changes. The pointer is dereferenced below, while the borrow is
        // alive, and in `help`, by a thread that `helping` counts since before `closed`; this
        // function returns after `closed` is set and `helping` is 0, hence after the last of them.
        // It cannot unwind before: panics of `work` and `spawn` are caught.
        let work: &'static (dyn Fn() + Sync) =
            unsafe { std::mem::transmute::<&(dyn Fn() + Sync), &'static (dyn Fn() + Sync)>(work) };
        let work = Work(work);
        let job = Arc::new(Self { work, state: Mutex::default(), left: Condvar::new() });
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            for _ in 0..helpers {
                let job = job.clone();
                spawn(Box::new(move || job.help()));
            }
            // SAFETY: the caller's borrow is alive while this function runs.
            unsafe { (*job.work.0)() }
        }));
        let mut state = job.lock();
        state.closed = true;
        let since = Instant::now();
        while state.helping > 0 {
            if since.elapsed() < LINGER {
                drop(state);
                yield_now();
                state = job.lock();
            } else {
                state = job.left.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
        outcome.and(state.panic.take().map_or(Ok(()), Err))
    }

    /// Works with the caller unless the work is over.
    fn help(&self) {
        {
            let mut state = self.lock();
            if state.closed {
                return;
            }
            state.helping += 1;
        }
        // SAFETY: the job was open when this thread was counted, so `run` waits for it.
        let outcome = catch_unwind(AssertUnwindSafe(|| unsafe { (*self.work.0)() }));
        let mut state = self.lock();
        state.helping -= 1;
        if let Err(panic) = outcome {
            state.panic = Some(panic);
        }
        drop(state);
        self.left.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
