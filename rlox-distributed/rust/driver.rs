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

/// Times that all tasks are looked at in a turn; more than a handshake takes on this machine.
const LOOKS: usize = 16;

/// A runtime that runs while somebody waits.
pub struct Driver(Runtime);

impl Driver {
    /// Return one with no tasks.
    ///
    /// # Errors
    /// The system has no more files for it.
    pub fn new() -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self(Builder::new_current_thread().enable_all().build()?)))
    }

    /// Return what spawns tasks.
    #[must_use]
    pub fn handle(&self) -> &Handle {
        self.0.handle()
    }

    /// Run all tasks until a future is ready.
    pub fn wait<F: Future>(&self, future: F) -> F::Output {
        self.0.block_on(future)
    }

    /// Run all tasks until a future is ready or a time is over.
    pub fn wait_until<F: Future>(&self, end: Instant, future: F) -> Option<F::Output> {
        self.wait(async { tokio::time::timeout_at(end.into(), future).await.ok() })
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
