//! Who moves bytes: the thread that waits for them.
//!
//! A runtime of one thread belongs to nobody in particular. Whoever waits for a message runs it, so
//! that a message passes through no other thread between its system call and the one who waits.
//! While nobody waits, a thread that sleeps most of the time takes a turn, so that keepalive is
//! answered, and new connections are, however long an env's step or a learner's update takes.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::Notify;

/// Times that all tasks are looked at in a turn; more than a handshake takes on this machine.
const LOOKS: usize = 16;

/// Between the looks of who waits at something else, such as a signal.
pub const LOOK: Duration = Duration::from_millis(100);

/// A runtime that runs while somebody waits.
pub struct Driver {
    runtime: Runtime,
    looks: Arc<Notify>,
}

impl Driver {
    /// Return one with no tasks.
    ///
    /// # Errors
    /// The system has no more files for it.
    pub fn new() -> io::Result<Arc<Self>> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        Ok(Arc::new(Self { runtime, looks: Arc::default() }))
    }

    /// Return what spawns tasks.
    #[must_use]
    pub fn handle(&self) -> &Handle {
        self.runtime.handle()
    }

    /// Run all tasks until a future is ready.
    pub fn wait<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(future)
    }

    /// Run all tasks until a future is ready or a time is over.
    pub fn wait_until<F: Future>(&self, end: Instant, future: F) -> Option<F::Output> {
        self.wait(async { tokio::time::timeout_at(end.into(), future).await.ok() })
    }

    /// Let [`Driver::wait_a_little`] end now and then.
    ///
    /// One timer serves all who wait: to set one costs two system calls.
    pub fn look_regularly(&self) {
        let looks = self.looks.clone();
        self.runtime.spawn(async move {
            loop {
                tokio::time::sleep(LOOK).await;
                looks.notify_waiters();
            }
        });
    }

    /// Run all tasks until a future is ready, or for some part of [`LOOK`].
    pub fn wait_a_little<F: Future>(&self, future: F) -> Option<F::Output> {
        self.wait(async {
            tokio::select! {
                biased;
                output = future => Some(output),
                () = self.looks.notified() => None,
            }
        })
    }

    /// Let all tasks do what they can at once.
    pub fn turn(&self) {
        self.wait(async {
            for _ in 0..LOOKS {
                tokio::task::yield_now().await;
            }
        });
    }
}

/// Let a future's effects, such as data that was given to a stream, reach the system.
pub async fn settle() {
    // the first look runs the tasks that were woken, which write
    tokio::task::yield_now().await;
}

/// Sleep that long on a thread of its own between turns, for as long as `goes_on` says.
///
/// # Errors
/// The thread cannot be started.
pub fn take_turns(
    driver: Arc<Driver>,
    rest: Duration,
    mut goes_on: impl FnMut(&Driver) -> bool + Send + 'static,
) -> io::Result<()> {
    std::thread::Builder::new().name("rlox-turns".into()).spawn(move || {
        while goes_on(&driver) {
            std::thread::sleep(rest);
            driver.turn();
        }
    })?;
    Ok(())
}
