//! Memory that keeps vectors within cache lines.

use std::ops::{Deref, DerefMut};

use super::Real;

/// Bytes of a cache line, and of the widest vector.
const LINE: usize = 64;

/// Numbers aligned to a cache line: a vector across two costs twice as much.
#[derive(Debug)]
pub(crate) struct Aligned<F> {
    /// With extra room to shift the start to a cache line.
    storage: Vec<F>,
    len: usize,
}

impl<F: Real> Aligned<F> {
    pub(crate) fn zeros(len: usize) -> Self {
        Self { storage: vec![F::zero(); len + LINE / size_of::<F>()], len }
    }

    fn first(&self) -> usize {
        self.storage.as_ptr().align_offset(LINE).min(self.storage.len() - self.len)
    }
}

impl<F: Real> Deref for Aligned<F> {
    type Target = [F];

    #[inline(always)]
    fn deref(&self) -> &[F] {
        &self.storage[self.first()..][..self.len]
    }
}

impl<F: Real> DerefMut for Aligned<F> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [F] {
        let first = self.first();
        &mut self.storage[first..][..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_begin_where_a_cache_line_does() {
        for len in [0, 1, 1000, 100_000] {
            let numbers = Aligned::<f32>::zeros(len);
            assert_eq!(numbers.as_ptr().addr() % LINE, 0);
            assert_eq!(*numbers, vec![0.0; len]);
        }
    }
}
