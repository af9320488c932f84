//! Waiting for an object that another thread uses.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks `mutex`, even if a thread panicked while it held the lock.
///
/// Best called with the interpreter lock released, so that whoever holds it needs nothing else.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
