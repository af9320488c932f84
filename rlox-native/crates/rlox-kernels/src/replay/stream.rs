//! The random stream of a buffer: the part of NumPy's `Generator` that sampling needs.

use crate::error::{KernelError, Result};
use crate::rng::{Pcg64, halves};

/// `numpy.random.Generator(PCG64)`: 64 bits at a time, or 32 with the other half kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stream {
    rng: Pcg64,
    /// The high half of a word whose low half has been drawn.
    spare: Option<u32>,
}

impl From<Pcg64> for Stream {
    fn from(rng: Pcg64) -> Self {
        Self { rng, spare: None }
    }
}

impl Stream {
    /// The stream of `numpy.random.default_rng(seed)`.
    #[must_use]
    pub fn from_seed(seed: u64) -> Self {
        Pcg64::from_seed(seed).into()
    }

    /// A stream of its own, seeded by the operating system.
    ///
    /// # Errors
    /// [`KernelError::NoEntropy`] where the operating system has no source of randomness.
    pub fn from_os() -> Result<Self> {
        Pcg64::from_os().map(Self::from)
    }

    /// The next number of `Generator.random()`.
    pub(super) fn next_double(&mut self) -> f64 {
        self.rng.next_double()
    }

    #[inline]
    fn next_u32(&mut self) -> u32 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        let [low, high] = halves(self.rng.next_u64());
        self.spare = Some(high);
        low
    }

    /// The next number of `Generator.integers(n)`, for `n` of at least 1.
    ///
    /// D. Lemire, "Fast Random Integer Generation in an Interval", 2019, with 32 random bits if
    /// they suffice.
    #[inline]
    pub(super) fn below(&mut self, n: u64) -> u64 {
        match u32::try_from(n) {
            Ok(0 | 1) => 0,
            Ok(n) => {
                let mut product = u64::from(self.next_u32()) * u64::from(n);
                let [mut leftover, _] = halves(product);
                if leftover < n {
                    let threshold = n.wrapping_neg() % n;
                    while leftover < threshold {
                        product = u64::from(self.next_u32()) * u64::from(n);
                        [leftover, _] = halves(product);
                    }
                }
                product >> 32
            }
            Err(_) if n == 1 << 32 => u64::from(self.next_u32()),
            Err(_) => {
                let threshold = n.wrapping_neg() % n;
                loop {
                    let (leftover, high) = wide_product(self.rng.next_u64(), n);
                    if leftover >= threshold {
                        return high;
                    }
                }
            }
        }
    }

    /// The state as six words: the four of [`Pcg64::to_words`], whether half a word is left over
    /// from the last draw, and that half.
    #[must_use]
    pub fn to_words(&self) -> [u64; 6] {
        let [a, b, c, d] = self.rng.to_words();
        [a, b, c, d, u64::from(self.spare.is_some()), u64::from(self.spare.unwrap_or(0))]
    }

    /// Restores a stream from [`Stream::to_words`].
    ///
    /// # Errors
    /// [`KernelError::Corrupt`] for words that cannot come from a stream.
    pub fn from_words(words: [u64; 6]) -> Result<Self> {
        let [a, b, c, d, has_spare, spare] = words;
        let corrupt = |reason| KernelError::Corrupt { name: "rng", reason };
        let spare = u32::try_from(spare).map_err(|_| corrupt("the spare half has 32 bits"))?;
        let spare = match has_spare {
            0 => None,
            1 => Some(spare),
            _ => return Err(corrupt("the spare half is present (1) or absent (0)")),
        };
        Ok(Self { rng: Pcg64::from_words([a, b, c, d])?, spare })
    }
}

/// The low and the high word of a product.
#[expect(clippy::cast_possible_truncation, reason = "only the low half is wanted")]
fn wide_product(a: u64, b: u64) -> (u64, u64) {
    let product = u128::from(a) * u128::from(b);
    (product as u64, (product >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Successive draws of `rng = default_rng(42)`: `integers(10, size=5)`, `integers(1, size=2)`,
    /// `random(2)`, `integers(2**32, size=2)`, `integers(3_000_000_000, size=4)`, `integers(2**40 +
    /// 3, size=3)`, `integers(7, size=2)`, NumPy 2.4.6.
    #[test]
    fn draws_equal_numpy() {
        let mut stream = Stream::from_seed(42);
        assert_eq!([0; 5].map(|_| stream.below(10)), [0, 7, 6, 4, 4]);
        assert_eq!([0; 2].map(|_| stream.below(1)), [0, 0]);
        let doubles = [0.697_368_029_059_363_9, 0.094_177_347_887_649_53];
        assert_eq!([0; 2].map(|_| stream.next_double()), doubles);
        assert_eq!([0; 2].map(|_| stream.below(1 << 32)), [3_687_649_986, 2_261_209_996]);
        let expected = [2_926_867_054, 2_207_257_111, 2_283_419_105, 2_152_431_830];
        assert_eq!([0; 4].map(|_| stream.below(3_000_000_000)), expected);
        let expected = [140_862_428_803, 495_204_575_704, 407_696_739_201];
        assert_eq!([0; 3].map(|_| stream.below((1 << 40) + 3)), expected);
        assert_eq!([0; 2].map(|_| stream.below(7)), [5, 1]);
        // `rng.bit_generator.state`.
        let expected = [
            0x6168_8aeb_e63f_464c,
            0x0746_3179_49d2_0634,
            0xfa50_5436_c9a8_416e,
            0x66ca_f2e2_8d25_abff,
            1,
            3_980_425_318,
        ];
        assert_eq!(stream.to_words(), expected);
    }

    #[test]
    fn words_round_trip_and_others_are_refused() {
        let mut stream = Stream::from_seed(1);
        stream.below(10);
        assert_eq!(Stream::from_words(stream.to_words()), Ok(stream));
        for words in [[1, 2, 3, 4, 0, 0], [1, 2, 3, 5, 2, 0], [1, 2, 3, 5, 1, 1 << 32]] {
            assert!(matches!(
                Stream::from_words(words),
                Err(KernelError::Corrupt { name: "rng", .. })
            ));
        }
    }
}
