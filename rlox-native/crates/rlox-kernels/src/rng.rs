//! NumPy's default random generator, bit for bit.
//!
//! `Pcg64::from_seed(s)` draws the numbers of `numpy.random.Generator(PCG64(SeedSequence(s)))`,
//! which is `numpy.random.default_rng(s)` and an env's generator in gymnasium.
//!
//! Sources: M. E. O'Neill, "PCG: A Family of Simple Fast Space-Efficient Statistically Good
//! Algorithms for Random Number Generation", 2014 (PCG XSL RR 128/64); M. E. O'Neill, "Developing a
//! `seed_seq` Alternative", 2015, as NumPy's `SeedSequence` implements it.

use crate::error::{KernelError, Result};

/// Multiplier of the 128-bit linear congruential generator (O'Neill 2014).
const MULTIPLIER: u128 = 0x2360_ED05_1FC6_5DA4_4385_DF64_9FCC_F645;

/// PCG XSL RR 128/64: 128 bits of state, 64 bits of output, period 2^128.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pcg64 {
    state: u128,
    /// Selects the stream; always odd.
    increment: u128,
}

impl Pcg64 {
    /// The stream of `numpy.random.default_rng(seed)`.
    #[must_use]
    pub fn from_seed(seed: u64) -> Self {
        let [low, high] = halves(seed);
        // NumPy spells an integer seed without leading zero words; zero itself is one word.
        if high == 0 { Self::from_entropy(&[low]) } else { Self::from_entropy(&[low, high]) }
    }

    /// A new stream, seeded with 128 bits from the operating system.
    ///
    /// # Errors
    /// [`KernelError::NoEntropy`] if the operating system has no source of randomness.
    pub fn from_os() -> Result<Self> {
        let mut words = [0_u32; 4];
        for word in &mut words {
            *word = getrandom::u32().map_err(|_| KernelError::NoEntropy)?;
        }
        Ok(Self::from_entropy(&words))
    }

    /// The stream of `PCG64(SeedSequence(n))`; `entropy` holds the 32-bit words of `n`, lowest
    /// first, at most 4.
    #[must_use]
    pub fn from_entropy(entropy: &[u32]) -> Self {
        let [state_high, state_low, stream_high, stream_low] = seed_sequence::generate(entropy);
        let initial = join(state_high, state_low);
        let increment = (join(stream_high, stream_low) << 1) | 1;
        // The seeding routine of the reference implementation: step, add, step, from state 0.
        let state =
            increment.wrapping_add(initial).wrapping_mul(MULTIPLIER).wrapping_add(increment);
        Self { state, increment }
    }

    /// The next 64 random bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_mul(MULTIPLIER).wrapping_add(self.increment);
        let [low, high] = split(self.state);
        // The top six bits of the state choose the rotation.
        (high ^ low).rotate_right((high >> 58) as u32)
    }

    /// The next number in `[0, 1)`, a multiple of 2^-53.
    #[inline]
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit a double exactly")]
    pub fn next_double(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / 9_007_199_254_740_992.0)
    }

    /// The next number of `Generator.uniform(low, high)`.
    pub fn uniform(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.next_double()
    }

    /// The state as four words: state high, state low, increment high, increment low.
    #[must_use]
    pub fn to_words(&self) -> [u64; 4] {
        let [state_low, state_high] = split(self.state);
        let [increment_low, increment_high] = split(self.increment);
        [state_high, state_low, increment_high, increment_low]
    }

    /// Restores a generator from [`Pcg64::to_words`].
    ///
    /// # Errors
    /// [`KernelError::Corrupt`] for an even increment, which no generator has.
    pub fn from_words(words: [u64; 4]) -> Result<Self> {
        let [state_high, state_low, increment_high, increment_low] = words;
        if increment_low & 1 == 0 {
            return Err(KernelError::Corrupt { name: "rng", reason: "a PCG64 increment is odd" });
        }
        Ok(Self {
            state: join(state_high, state_low),
            increment: join(increment_high, increment_low),
        })
    }
}

fn join(high: u64, low: u64) -> u128 {
    (u128::from(high) << 64) | u128::from(low)
}

/// The low and the high word.
#[expect(clippy::cast_possible_truncation, reason = "only the low half is wanted")]
fn split(value: u128) -> [u64; 2] {
    [value as u64, (value >> 64) as u64]
}

/// The low and the high word.
#[expect(clippy::cast_possible_truncation, reason = "only the low half is wanted")]
pub(crate) fn halves(value: u64) -> [u32; 2] {
    [value as u32, (value >> 32) as u32]
}

/// NumPy's `SeedSequence` without spawn keys: it spreads few seed bits over many state bits.
mod seed_sequence {
    const INIT_A: u32 = 0x43b0_d7e5;
    const MULT_A: u32 = 0x931e_8875;
    const INIT_B: u32 = 0x8b51_f9dd;
    const MULT_B: u32 = 0x58f3_8ded;
    const MIX_MULT_L: u32 = 0xca01_f9dd;
    const MIX_MULT_R: u32 = 0x4973_f715;
    const XSHIFT: u32 = 16;
    const POOL_SIZE: usize = 4;

    /// A multiplicative hash whose constant changes with each use.
    struct Hash {
        constant: u32,
        multiplier: u32,
    }

    impl Hash {
        fn apply(&mut self, value: u32) -> u32 {
            let value = value ^ self.constant;
            self.constant = self.constant.wrapping_mul(self.multiplier);
            let value = value.wrapping_mul(self.constant);
            value ^ (value >> XSHIFT)
        }
    }

    fn mix(x: u32, y: u32) -> u32 {
        let result = MIX_MULT_L.wrapping_mul(x).wrapping_sub(MIX_MULT_R.wrapping_mul(y));
        result ^ (result >> XSHIFT)
    }

    /// `SeedSequence(entropy).generate_state(4, numpy.uint64)`.
    pub(super) fn generate(entropy: &[u32]) -> [u64; 4] {
        let pool = pool(entropy);
        let mut hash = Hash { constant: INIT_B, multiplier: MULT_B };
        let mut words = pool.iter().cycle().map(|&word| hash.apply(word));
        std::array::from_fn(|_| {
            let low = words.next().unwrap_or_default();
            let high = words.next().unwrap_or_default();
            (u64::from(high) << 32) | u64::from(low)
        })
    }

    fn pool(entropy: &[u32]) -> [u32; POOL_SIZE] {
        let mut hash = Hash { constant: INIT_A, multiplier: MULT_A };
        let mut pool = [0; POOL_SIZE];
        for (index, slot) in pool.iter_mut().enumerate() {
            *slot = hash.apply(entropy.get(index).copied().unwrap_or(0));
        }
        for source in 0..POOL_SIZE {
            for target in 0..POOL_SIZE {
                if source != target {
                    pool[target] = mix(pool[target], hash.apply(pool[source]));
                }
            }
        }
        pool
    }
}
