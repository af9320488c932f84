//! Closures compiled for the machine's vector instructions.

use pulp::{Simd, WithSimd};

/// Work for [`Simd::vectorize`] and `Arch::dispatch`.
///
/// A closure that could be called repeatedly gets a generated wrapper that the compiler need not
/// inline; code that is not inlined is compiled for the oldest machine.
pub(crate) struct Inlined<W>(pub(crate) W);

impl<T, W: FnMut() -> T> WithSimd for Inlined<W> {
    type Output = T;

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, _: S) -> T {
        (self.0)()
    }
}
