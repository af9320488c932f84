//! Whether what an object will take is there, asked before it is reserved.
//!
//! The system promises more memory than it has, and ends the process when the promises are called
//! in: hours into a training, as the buffer fills.

use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;
use sysinfo::System;

/// Refuses what an argument makes so large that the machine, or the container, has no room for it.
/// The `remedy` ends the message.
pub(crate) fn check_room(
    name: &str,
    value: &dyn std::fmt::Debug,
    bytes: usize,
    remedy: &str,
) -> PyResult<()> {
    let available = available();
    if (bytes as u64) <= available {
        return Ok(());
    }
    let text = format!(
        "not enough memory for {name} = {value:?}: it would take {}, and {} are available{remedy}",
        gib(bytes as u64),
        gib(available)
    );
    Err(PyMemoryError::new_err(text))
}

/// Refuses a buffer whose transitions, all `bytes` of them, the machine or the container cannot hold.
pub(crate) fn check_transitions(name: &str, number: usize, bytes: usize) -> PyResult<()> {
    let remedy = "; take fewer, or store observations in a smaller dtype";
    check_room(name, &number, bytes, remedy)
}

/// Bytes that can be had without taking them from another process.
fn available() -> u64 {
    let mut system = System::new();
    system.refresh_memory();
    let of_machine = system.available_memory().saturating_add(system.free_swap());
    match (of_machine, system.cgroup_limits()) {
        // A system that reports nothing forbids nothing.
        (0, _) => u64::MAX,
        // Not its free memory, which does not count what files are cached in.
        (_, Some(container)) => {
            of_machine.min(container.total_memory.saturating_sub(container.rss))
        }
        (_, None) => of_machine,
    }
}

#[expect(clippy::cast_precision_loss, reason = "for a message")]
fn gib(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30))
}
