//! Waiting for an object used by another thread.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::{process, thread, time::Duration};

/// The process of the first lock.
static FIRST: OnceLock<u32> = OnceLock::new();

/// Locks `mutex`, even if a thread panicked while it held the lock.
///
/// Best called with the interpreter lock released, so that the holder needs no other lock. A forked
/// child panics after 5 s, as the holder may be a thread that exists only in the parent.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    if process::id() != *FIRST.get_or_init(process::id) {
        for left in
            (0..500).rev().take_while(|_| matches!(mutex.try_lock(), Err(TryLockError::WouldBlock)))
        {
            assert!(left > 0, "a thread of the parent used this during the fork; make another one");
            thread::sleep(Duration::from_millis(10));
        }
    }
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
