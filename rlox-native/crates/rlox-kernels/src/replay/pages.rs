//! Large zeroed memory that the system provides on first write, in huge pages if available.
//!
//! Sampling from a large buffer reads all over it; with pages of 4 KiB the processor would look up
//! an address translation for almost every record.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use bytemuck::{Pod, cast_slice, cast_slice_mut};
use memmap2::{MmapMut, MmapOptions};

use crate::error::{KernelError, Result};

/// Zeroed elements that start at a page boundary.
#[derive(Debug)]
pub(super) struct Pages<T> {
    map: MmapMut,
    elements: PhantomData<T>,
}

impl<T: Pod> Pages<T> {
    /// Reserves `len` elements; `name` and `requested` are the argument to blame on failure.
    pub(super) fn new(len: usize, name: &'static str, requested: usize) -> Result<Self> {
        let out_of_memory = || KernelError::OutOfMemory { name, requested };
        let bytes = len.checked_mul(size_of::<T>()).ok_or_else(out_of_memory)?;
        let map = MmapOptions::new().len(bytes).map_anon().map_err(|_| out_of_memory())?;
        #[cfg(target_os = "linux")]
        // A kernel without huge pages uses small ones.
        let _ = map.advise(memmap2::Advice::HugePage);
        Ok(Self { map, elements: PhantomData })
    }
}

impl<T: Pod> Deref for Pages<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        cast_slice(&self.map)
    }
}

impl<T: Pod> DerefMut for Pages<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        cast_slice_mut(&mut self.map)
    }
}
