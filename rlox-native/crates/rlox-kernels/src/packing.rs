//! Packing sequences of different lengths into rows of one length.

use crate::error::{KernelError, Result, check_size};
use crate::memory::filled;

/// The assignment of sequences to rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packing {
    /// The sequences in their order in the rows.
    pub order: Vec<usize>,
    /// The row of each entry of `order`; never decreases.
    pub rows: Vec<usize>,
    /// Number of rows.
    pub n_rows: usize,
    /// Lengths of the packed sequences.
    lengths: Vec<usize>,
    max_len: usize,
}

/// Packs sequences of the given lengths into rows of `max_len` by first-fit decreasing: the longest
/// first, each into the first row with room for it, equal ones in their order. Uses at most 11/9 of
/// the fewest possible rows plus one.
///
/// Source: Johnson, "Near-Optimal Bin Packing Algorithms", 1973; the bound is Dósa's, 2007, with
/// 6/9 instead of one.
///
/// # Errors
/// [`KernelError::Range`] for a length outside `[1, max_len]`.
pub fn pack(lengths: &[usize], max_len: usize) -> Result<Packing> {
    lengths.iter().try_for_each(|&length| check_size("every length", length, max_len))?;
    let mut longest_first: Vec<usize> = (0..lengths.len()).collect();
    longest_first.sort_by_key(|&sequence| std::cmp::Reverse(lengths[sequence]));
    let mut rooms = Rooms::new(lengths.len(), max_len);
    let mut placed: Vec<(usize, usize)> =
        longest_first.into_iter().map(|i| (rooms.take_first(lengths[i]), i)).collect();
    placed.sort_by_key(|&(row, _)| row);
    let (rows, order): (Vec<usize>, Vec<usize>) = placed.into_iter().unzip();
    let n_rows = rows.last().map_or(0, |&last| last + 1);
    Ok(Packing { order, rows, n_rows, lengths: lengths.to_vec(), max_len })
}

/// The room left in each row, as a binary tree of maxima: finding the first row with room for a
/// sequence takes one step per level.
struct Rooms {
    /// Node 1 is the root, node i has the children 2i and 2i + 1, the second half are the rows.
    largest: Vec<usize>,
}

impl Rooms {
    fn new(n_rows: usize, room: usize) -> Self {
        Self { largest: vec![room; 2 * n_rows.next_power_of_two()] }
    }

    /// Takes `length` from the first row with that room, and returns the row. One always has it, as
    /// the number of rows is that of the sequences.
    fn take_first(&mut self, length: usize) -> usize {
        let first_row = self.largest.len() / 2;
        let mut node = 1;
        while node < first_row {
            node *= 2;
            if self.largest[node] < length {
                node += 1;
            }
        }
        self.largest[node] -= length;
        let row = node - first_row;
        while node > 1 {
            node /= 2;
            self.largest[node] = self.largest[2 * node].max(self.largest[2 * node + 1]);
        }
        row
    }
}

/// Rows of equal length, one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rows {
    /// Content of the rows.
    pub packed: Vec<i64>,
    /// Whether a place holds a token.
    pub masks: Vec<bool>,
    /// The position of each place within its sequence; 0 for padding.
    pub positions: Vec<i64>,
    /// Start of each sequence, and end of the last, without the padding.
    pub cu_seqlens: Vec<i32>,
}

impl Packing {
    /// Fills the rows with `token(sequence, position)` for each packed sequence, and with `padding`
    /// elsewhere.
    ///
    /// # Errors
    /// [`KernelError::OutOfMemory`] for more places than 32-bit offsets reach.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        reason = "checked first"
    )]
    pub fn lay_out(&self, padding: i64, token: impl Fn(usize, usize) -> i64) -> Result<Rows> {
        let (lengths, max_len) = (&self.lengths, self.max_len);
        let size = self.n_rows.checked_mul(max_len).filter(|&size| i32::try_from(size).is_ok());
        let Some(size) = size else {
            return Err(KernelError::OutOfMemory { name: "max_len", requested: max_len });
        };
        let mut rows = Rows {
            packed: filled("max_len", max_len, padding, size)?,
            masks: filled("max_len", max_len, false, size)?,
            positions: filled("max_len", max_len, 0, size)?,
            cu_seqlens: Vec::with_capacity(self.order.len() + 1),
        };
        rows.cu_seqlens.push(0);
        let (mut at, mut total) = (0, 0);
        for (&sequence, &row) in self.order.iter().zip(&self.rows) {
            at = at.max(row * max_len);
            for position in 0..lengths[sequence] {
                rows.packed[at] = token(sequence, position);
                rows.masks[at] = true;
                rows.positions[at] = position as i64;
                at += 1;
            }
            total += lengths[sequence] as i32;
            rows.cu_seqlens.push(total);
        }
        Ok(rows)
    }
}
