//! Sequences of rows, which a policy with a memory is learnt from.

use rlox_kernels::error::{KernelError, Result, check_len};

/// R / L sequences of L steps, whose rows are step 0 of all of them, then step 1, and so on.
#[derive(Debug, Clone, Copy)]
pub struct Sequences<'a, F> {
    /// Steps of each, L, a divisor of R; gradients go back so far.
    pub length: usize,
    /// Whether an episode begins with a row, whose step the memory before does not reach: R, zero
    /// for not.
    pub starts: &'a [u8],
    /// What is remembered before each, R / L × the size of a state.
    pub states: &'a [F],
}

impl<F> Sequences<'_, F> {
    /// Checks that there are whole sequences of `rows` rows.
    pub(crate) fn check(&self, rows: usize) -> Result<()> {
        if self.length == 0 || !rows.is_multiple_of(self.length) {
            let (name, value) = ("sequence_length, a divisor of the rows,", self.length);
            #[expect(clippy::cast_precision_loss, reason = "only for the message")]
            let (high, value) = (rows as f64, value as f64);
            return Err(KernelError::Range { name, low: 1.0, high, value });
        }
        check_len("episode_starts", self.starts.len(), "log_probs", rows)
    }

    /// Writes the rows of the sequences `some` out of `count` to `rows`, step 0 of each first.
    pub(crate) fn expand(&self, some: &[i64], count: usize, rows: &mut Vec<i64>) {
        rows.clear();
        let steps = (0_i64..).step_by(count.max(1)).take(self.length);
        rows.extend(steps.flat_map(|first| some.iter().map(move |number| first + number)));
    }
}
