//! Arrays of numbers.

use std::collections::BTreeMap;

use crate::error::{Result, argument, damaged};

/// Numbers of any shape, the last dimension side by side.
///
/// All are `f64`, which holds every `f32`, every `u8` and whole numbers up to 2⁵³ exactly; layers
/// round to `f32` where the policy was trained in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    shape: Vec<usize>,
    data: Vec<f64>,
}

/// A batch (B, *shape) for each leaf of a space by name: `""` if the space is not nested, else the
/// path of keys and places, as `"camera.0"`.
pub type Leaves = BTreeMap<String, Array>;

impl Array {
    /// An array of a shape.
    ///
    /// # Errors
    /// [`crate::Error::Argument`]: there are more or fewer numbers than the shape has.
    pub fn new(shape: Vec<usize>, data: Vec<f64>) -> Result<Self> {
        if count(&shape) != Some(data.len()) {
            return argument(format!(
                "an array of shape {shape:?} was given {} numbers; pass one for each place",
                data.len()
            ));
        }
        Ok(Self { shape, data })
    }

    /// Sizes of its dimensions.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Its numbers.
    #[must_use]
    pub fn data(&self) -> &[f64] {
        &self.data
    }

    /// The shape (B, columns) and such numbers; for callers that know the length to be right.
    pub(crate) fn of(shape: Vec<usize>, data: Vec<f64>) -> Self {
        debug_assert_eq!(count(&shape), Some(data.len()));
        Self { shape, data }
    }

    pub(crate) fn zeros(shape: Vec<usize>) -> Self {
        let numbers = shape.iter().product();
        Self::of(shape, vec![0.0; numbers])
    }

    pub(crate) fn into_data(self) -> Vec<f64> {
        self.data
    }

    /// B, the number of rows.
    pub(crate) fn rows(&self) -> usize {
        self.shape.first().copied().unwrap_or(1)
    }

    /// Numbers of a row.
    pub(crate) fn width(&self) -> usize {
        self.shape.iter().skip(1).product()
    }

    /// Numbers of a row.
    ///
    /// # Panics
    /// Never for rows below [`Array::rows`].
    pub(crate) fn row(&self, index: usize) -> &[f64] {
        let width = self.width();
        &self.data[index * width..(index + 1) * width]
    }

    pub(crate) fn row_mut(&mut self, index: usize) -> &mut [f64] {
        let width = self.width();
        &mut self.data[index * width..(index + 1) * width]
    }

    /// The shape if it has D dimensions.
    pub(crate) fn dims<const D: usize>(&self, what: &str) -> Result<[usize; D]> {
        match <[usize; D]>::try_from(self.shape.as_slice()) {
            Ok(dims) => Ok(dims),
            Err(_) => {
                damaged(format!("{what} has shape {:?}, expected {D} dimensions", self.shape))
            }
        }
    }

    /// The same numbers as (B, width).
    pub(crate) fn flat(self) -> Self {
        let (rows, width) = (self.rows(), self.width());
        Self::of(vec![rows, width], self.data)
    }

    pub(crate) fn reshaped(self, shape: Vec<usize>) -> Result<Self> {
        if count(&shape) != Some(self.data.len()) {
            return damaged(format!("{:?} numbers do not make {shape:?}", self.shape));
        }
        Ok(Self::of(shape, self.data))
    }

    /// A function of each number, rounded to `f32`.
    pub(crate) fn map32(mut self, function: impl Fn(f64) -> f64) -> Self {
        for x in &mut self.data {
            *x = round32(function(*x));
        }
        self
    }

    /// A function of each number and that of `other` at its place, which is broadcast.
    pub(crate) fn zip(mut self, other: &Self, function: impl Fn(f64, f64) -> f64) -> Result<Self> {
        let Some(lacking) = self.shape.len().checked_sub(other.shape.len()) else {
            return damaged(format!("{:?} does not fit into {:?}", other.shape, self.shape));
        };
        let own = &self.shape[lacking..];
        if own == other.shape {
            let period = other.data.len().max(1);
            for part in self.data.chunks_mut(period) {
                for (x, y) in part.iter_mut().zip(&other.data) {
                    *x = function(*x, *y);
                }
            }
            return Ok(self);
        }
        if own.iter().zip(&other.shape).any(|(n, m)| n != m && *m != 1) {
            return damaged(format!("{:?} does not fit into {:?}", other.shape, self.shape));
        }
        for (i, x) in self.data.iter_mut().enumerate() {
            let (mut rest, mut at, mut step) = (i, 0, 1);
            for (n, m) in own.iter().zip(&other.shape).rev() {
                at += if *m == 1 { 0 } else { rest % n * step };
                rest /= n;
                step *= m;
            }
            *x = function(*x, other.data[at]);
        }
        Ok(self)
    }
}

/// Numbers of a shape; `None` if a computer cannot count them.
pub(crate) fn count(shape: &[usize]) -> Option<usize> {
    shape.iter().try_fold(1_usize, |n, size| n.checked_mul(*size))
}

/// The nearest `f32`.
#[allow(clippy::cast_possible_truncation)] // which is the purpose
pub(crate) fn round32(x: f64) -> f64 {
    f64::from(x as f32)
}

/// Arrays side by side along their last dimension.
///
/// # Errors
/// [`crate::Error::Damaged`]: there are none, or they differ elsewhere.
pub(crate) fn side_by_side(parts: &[Array]) -> Result<Array> {
    let Some(first) = parts.first() else {
        return damaged("there is nothing to join");
    };
    let Some((_, leading)) = first.shape.split_last() else {
        return damaged("single numbers cannot be joined");
    };
    let mut last = 0;
    for part in parts {
        match part.shape.split_last() {
            Some((size, others)) if others == leading => last += size,
            _ => return damaged(format!("{:?} cannot be beside {:?}", part.shape, first.shape)),
        }
    }
    let outer: usize = leading.iter().product();
    let mut data = Vec::with_capacity(outer * last);
    for i in 0..outer {
        for part in parts {
            let size = part.shape[part.shape.len() - 1];
            data.extend_from_slice(&part.data[i * size..(i + 1) * size]);
        }
    }
    let mut shape = leading.to_vec();
    shape.push(last);
    Ok(Array::of(shape, data))
}
