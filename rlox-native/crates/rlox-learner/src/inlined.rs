//! Closures that are compiled for the machine's vectors.

use pulp::{Simd, WithSimd};

/// Work for [`Simd::vectorize`] and `Arch::dispatch`.
///
/// A closure that could be called several times is called once through a function which the compiler
/// makes for it and need not inline; what is not inlined is compiled for the oldest machine.
pub(crate) struct Inlined<W>(pub(crate) W);

impl<T, W: FnMut() -> T> WithSimd for Inlined<W> {
    type Output = T;

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, _: S) -> T {
        (self.0)()
    }
}
