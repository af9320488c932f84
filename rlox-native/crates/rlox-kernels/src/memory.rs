//! Free memory, checked before memory is reserved.
//!
//! The system promises more memory than it has and kills the process once the memory is used: hours
//! into a training, as a buffer fills. If it refuses, Rust ends the process too.

use std::fmt::Debug;
use std::fs::read_to_string;

use sysinfo::System;

use crate::error::{KernelError, Result};

/// Most characters of a value in a message.
const LONGEST_VALUE: usize = 80;

/// Checks that memory suffices for an argument; the `remedy` ends the message.
///
/// # Errors
/// [`KernelError::NoRoom`] if the machine, the container or a limit of the process has too little.
pub fn check_room(
    name: &'static str,
    value: &dyn Debug,
    bytes: usize,
    remedy: &'static str,
) -> Result<()> {
    let (bytes, available) = (bytes as u64, available());
    if bytes <= available {
        return Ok(());
    }
    let mut value = format!("{value:?}");
    if let Some((end, _)) = value.char_indices().nth(LONGEST_VALUE) {
        value.replace_range(end.., "...");
    }
    Err(KernelError::NoRoom { name, value, bytes, available, remedy })
}

/// A vector of `len` equal elements for the argument `name`.
///
/// # Errors
/// [`KernelError::OutOfMemory`].
pub fn filled<T: Clone>(
    name: &'static str,
    requested: usize,
    value: T,
    len: usize,
) -> Result<Vec<T>> {
    let mut filled = Vec::new();
    let out_of_memory = |_| KernelError::OutOfMemory { name, requested };
    filled.try_reserve_exact(len).map_err(out_of_memory)?;
    filled.resize(len, value);
    Ok(filled)
}

/// Bytes available without taking them from another process.
#[must_use]
pub fn available() -> u64 {
    let mut system = System::new();
    system.refresh_memory();
    let of_machine = system.available_memory().saturating_add(system.free_swap());
    let left = match (of_machine, system.cgroup_limits()) {
        // A system that reports nothing sets no limit.
        (0, _) => u64::MAX,
        // Not its free memory, which excludes the cache of files.
        (_, Some(container)) => {
            of_machine.min(container.total_memory.saturating_sub(container.rss))
        }
        (_, None) => of_machine,
    };
    left.min(address_space_left().unwrap_or(u64::MAX))
}

/// Bytes left under the limit of the process's address space; `None` without a limit.
fn address_space_left() -> Option<u64> {
    let limits = read_to_string("/proc/self/limits").ok()?;
    let limit: u64 = number_after("Max address space", &limits)?;
    let status = read_to_string("/proc/self/status").ok()?;
    let taken = number_after("VmSize:", &status)?.saturating_mul(1024);
    Some(limit.saturating_sub(taken))
}

/// The number after a line's first words.
fn number_after(words: &str, text: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(words))?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_machine_has_is_refused_with_its_size() {
        let error = check_room("capacity", &7, usize::MAX, "; take fewer").unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("not enough memory for capacity = 7: it would take "), "{text}");
        assert!(text.ends_with(" are available; take fewer"), "{text}");
        assert_eq!(check_room("capacity", &7, 1, ""), Ok(()));
    }

    #[test]
    fn a_vector_without_room_is_an_error() {
        assert_eq!(filled("n", 3, 1_u8, 3), Ok(vec![1, 1, 1]));
        let error = KernelError::OutOfMemory { name: "n", requested: 5 };
        assert_eq!(filled("n", 5, 1_u64, usize::MAX), Err(error));
    }

    #[test]
    fn a_limit_that_is_none_has_no_number() {
        let limits = "Max address space     unlimited   unlimited   bytes\nVmSize:   12 kB\n";
        assert_eq!(number_after("Max address space", limits), None);
        assert_eq!(number_after("VmSize:", limits), Some(12));
    }
}
