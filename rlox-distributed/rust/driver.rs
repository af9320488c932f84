//! The thread that waits for bytes also moves them.
//!
//! A single-threaded runtime has no fixed thread. The thread that waits for a message runs it, so
//! that a message passes through no other thread between its system call and the waiting one. While
//! no thread waits, a mostly sleeping thread takes turns, so that keepalive and new connections are
//! answered during long env steps and updates.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Handle, Runtime};

/// Times that all tasks are polled in a turn; more than a local handshake takes.
const LOOKS: usize = 16;

/// A runtime that runs while a thread waits.
pub struct Driver(Runtime);

impl Driver {
    /// Return a driver without tasks.
    ///
    /// # Errors
    /// The system has no more files for it.
    pub fn new() -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self(Builder::new_current_thread().enable_all().build()?)))
    }

    /// Return the handle that spawns tasks.
    #[must_use]
    pub fn handle(&self) -> &Handle {
        self.0.handle()
    }

    /// Run all tasks until a future is ready.
    pub fn wait<F: Future>(&self, future: F) -> F::Output {
        self.0.block_on(future)
    }

    /// Run all tasks until a future is ready or a time is reached.
    pub fn wait_until<F: Future>(&self, end: Instant, future: F) -> Option<F::Output> {
        self.wait(async { tokio::time::timeout_at(end.into(), future).await.ok() })
    }

    /// Let all tasks run as far as they can without waiting.
    pub fn turn(&self) {
        self.wait(async {
            for _ in 0..LOOKS {
                tokio::task::yield_now().await;
            }
        });
    }
}

/// Take turns on a separate thread with such pauses, while `goes_on` returns true.
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
