//! What goes with one step of layers.

use crate::array::{Array, side_by_side};
use crate::error::{Result, damaged};

/// What the layers read and write beside their inputs, in one step of B episodes.
pub(crate) struct Step<'a> {
    /// (B, `state_size`) the memory before.
    state: &'a Array,
    used: usize,
    after: Vec<Array>,
    /// B masks side by side.
    pub(crate) masks: Option<&'a [bool]>,
    /// The most numbers that a layer may make of one row.
    pub(crate) largest: usize,
}

impl<'a> Step<'a> {
    pub(crate) fn new(state: &'a Array, masks: Option<&'a [bool]>, largest: usize) -> Self {
        Self { state, used: 0, after: Vec::new(), masks, largest }
    }

    /// Return the next columns of the memory.
    pub(crate) fn recall(&mut self, size: usize) -> Result<Array> {
        let found = columns(self.state, self.used, size)?;
        self.used += size;
        Ok(found)
    }

    pub(crate) fn remember(&mut self, state: Array) {
        self.after.push(state);
    }

    /// Return the memory after the step.
    pub(crate) fn after(self) -> Result<Array> {
        if self.after.is_empty() { Ok(self.state.clone()) } else { side_by_side(&self.after) }
    }

    /// Refuse to make arrays that no honest layer makes.
    pub(crate) fn room(&self, numbers: Option<usize>) -> Result<usize> {
        match numbers {
            Some(n) if n <= self.largest => Ok(n),
            _ => damaged("a layer makes arrays that are larger than the file"),
        }
    }
}

/// Columns of (B, n).
pub(crate) fn columns(x: &Array, from: usize, size: usize) -> Result<Array> {
    if from.checked_add(size).is_none_or(|end| end > x.width()) {
        return damaged(format!("{:?} has no {size} columns from {from} on", x.shape()));
    }
    let rows = (0..x.rows()).flat_map(|i| x.row(i)[from..from + size].iter().copied());
    Ok(Array::of(vec![x.rows(), size], rows.collect()))
}
