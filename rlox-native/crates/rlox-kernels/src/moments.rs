//! Means and variances of a stream of batches and of one array.

use crate::error::{KernelError, Result, check_len, check_range};
use crate::groups::{Moments, check_ddof};
use crate::number::Float;

/// Mean and variance of a stream of vectors, in one pass and at most three numbers per component.
///
/// Batches and whole streams are merged exactly, up to rounding: the result does not depend on how
/// the vectors were divided.
///
/// Source: Chan, Golub, `LeVeque`, "Algorithms for Computing the Sample Variance", The American
/// Statistician, 1983, equation 2.1b.
#[derive(Debug, Clone, PartialEq)]
pub struct RunningMoments {
    count: u64,
    mean: Vec<f64>,
    /// Sums of squared deviations from the mean.
    squares: Vec<f64>,
}

impl RunningMoments {
    /// Empty moments for vectors of `dim` components.
    #[must_use]
    pub fn new(dim: usize) -> Self {
        Self { count: 0, mean: vec![0.0; dim], squares: vec![0.0; dim] }
    }

    /// Saved moments: the number of vectors, their mean, and the sums of squared deviations.
    ///
    /// # Errors
    /// [`KernelError::Shape`] where the lengths differ, [`KernelError::NonFinite`], and
    /// [`KernelError::Corrupt`] for a negative sum of squares or nonzero moments of no vectors.
    pub fn from_parts(count: u64, mean: Vec<f64>, squares: Vec<f64>) -> Result<Self> {
        check_len("squares", squares.len(), "mean", mean.len())?;
        check_finite("mean", &mean)?;
        check_finite("squares", &squares)?;
        if squares.iter().any(|&sum| sum < 0.0) {
            let reason = "a sum of squares is not negative";
            return Err(KernelError::Corrupt { name: "squares", reason });
        }
        if count == 0 && mean.iter().chain(&squares).any(|&moment| moment != 0.0) {
            let reason = "where nothing was seen, mean and squares are 0";
            return Err(KernelError::Corrupt { name: "count", reason });
        }
        Ok(Self { count, mean, squares })
    }

    /// Number of vectors seen.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The mean of each component; 0 before the first vector.
    #[must_use]
    pub fn mean(&self) -> &[f64] {
        &self.mean
    }

    /// The sum of squared deviations from the mean of each component.
    #[must_use]
    pub fn squares(&self) -> &[f64] {
        &self.squares
    }

    /// The population variance of each component; 1 before the first vector.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "no stream has 2^53 vectors")]
    pub fn variance(&self) -> Vec<f64> {
        if self.count == 0 {
            return vec![1.0; self.mean.len()];
        }
        self.squares.iter().map(|sum| sum / self.count as f64).collect()
    }

    /// Adds a batch of `batch.len() / dim` vectors, one after the other.
    ///
    /// # Errors
    /// [`KernelError::Shape`] for an incomplete vector, [`KernelError::NonFinite`],
    /// [`KernelError::Variance`]; nothing is added then.
    #[expect(clippy::cast_precision_loss, reason = "no batch has 2^53 vectors")]
    pub fn update<F: Float>(&mut self, batch: &[F]) -> Result<()> {
        let dim = self.mean.len().max(1);
        check_len("batch", batch.len(), "whole vectors", batch.len() - batch.len() % dim)?;
        if let Some(index) = batch.iter().position(|x| !x.to_f64().is_finite()) {
            return Err(KernelError::NonFinite { name: "batch", index });
        }
        let n_rows = batch.len() / dim;
        if n_rows == 0 {
            return Ok(());
        }
        let mut other = Self::new(self.mean.len());
        other.count = n_rows as u64;
        for row in batch.chunks_exact(dim) {
            for (mean, x) in other.mean.iter_mut().zip(row) {
                *mean += x.to_f64() / n_rows as f64;
            }
        }
        for row in batch.chunks_exact(dim) {
            for ((squares, mean), x) in other.squares.iter_mut().zip(&other.mean).zip(row) {
                *squares += (x.to_f64() - mean).powi(2);
            }
        }
        self.join(other, "batch")
    }

    /// Adds the vectors that `other` has seen.
    ///
    /// # Errors
    /// [`KernelError::Shape`] if the two differ in the length of vectors,
    /// [`KernelError::Variance`]; nothing is added then.
    pub fn merge(&mut self, other: &Self) -> Result<()> {
        check_len("other", other.mean.len(), "this", self.mean.len())?;
        if other.count == 0 {
            return Ok(());
        }
        self.join(other.clone(), "other")
    }

    /// Adds the moments of the argument `name`, which has at least one vector.
    #[expect(clippy::cast_precision_loss, reason = "no stream has 2^53 vectors")]
    fn join(&mut self, mut other: Self, name: &'static str) -> Result<()> {
        let count = self.count.saturating_add(other.count);
        let share = other.count as f64 / count as f64;
        let weight = self.count as f64 * share;
        other.count = count;
        if self.count > 0 {
            let ours = self.mean.iter().zip(&self.squares);
            for ((other_mean, other_squares), (mean, squares)) in
                other.mean.iter_mut().zip(&mut other.squares).zip(ours)
            {
                let delta = *other_mean - mean;
                *other_mean = mean + delta * share;
                *other_squares = squares + (*other_squares + delta * delta * weight);
            }
        }
        if !other.mean.iter().chain(&other.squares).all(|moment| moment.is_finite()) {
            return Err(KernelError::Variance { name });
        }
        *self = other;
        Ok(())
    }
}

fn check_finite(name: &'static str, values: &[f64]) -> Result<()> {
    match values.iter().position(|value| !value.is_finite()) {
        Some(index) => Err(KernelError::NonFinite { name, index }),
        None => Ok(()),
    }
}

/// Writes `(x - mean) / (std + eps)`; equal elements or a single one become 0.
///
/// # Errors
/// [`KernelError::Range`] for an `eps` that is negative or not finite, or a `ddof` that leaves no
/// degree of freedom; [`KernelError::Shape`] for an output of another length.
pub fn standardize<F: Float>(
    elements: &[F],
    ddof: usize,
    eps: f64,
    standardized: &mut [F],
) -> Result<()> {
    check_range("eps", eps, 0.0, f64::MAX)?;
    check_ddof(ddof, elements.len())?;
    check_len("standardized", standardized.len(), "elements", elements.len())?;
    let moments = Moments::of(elements, ddof);
    let factor = moments.inverse_std(eps);
    for (slot, &element) in standardized.iter_mut().zip(elements) {
        *slot = F::from_f64((element.to_f64() - moments.mean) * factor);
    }
    Ok(())
}
