//! Epochs of minibatch steps.

use pulp::{Arch, Simd, WithSimd};

use super::Real;
use super::acting::check_choices;
use super::actor_critic::{ActionRows, ActorCritic, index};
use super::block::{Block, Minibatch, PackedParameters};
use super::linalg::flatten;
use super::memory::Sequences;
use super::objective::{Loss, Terms};
use super::optimizer::Learnt;
use rlox_kernels::error::{KernelError, Result, check_len, check_range, check_size};

/// Epochs end when the approximate KL exceeds the target by this factor (openai/spinningup ppo).
const KL_TOLERANCE: f64 = 1.5;

/// A rollout of R rows.
#[derive(Debug, Clone, Copy)]
pub struct Batch<'a, F> {
    /// Observations, R × `obs_dim`.
    pub obs: &'a [F],
    /// Actions as the policy sampled them, for R rows.
    pub actions: ActionRows<'a, F>,
    /// For a categorical policy: whether each action of its choices was possible, R × all actions,
    /// zero for not; `None` if all always were.
    pub masks: Option<&'a [u8]>,
    /// Log-probabilities under the policy that acted, R.
    pub log_probs: &'a [F],
    /// Value estimates of that policy, R.
    pub values: &'a [F],
    /// Advantage estimates, R.
    pub advantages: &'a [F],
    /// The value function's targets, R.
    pub returns: &'a [F],
    /// Sequences, the units of learning of a policy with a memory; `None` without one.
    pub sequences: Option<Sequences<'a, F>>,
}

impl<F> Batch<'_, F> {
    /// Number of rows, or sequences, that minibatches are made of.
    fn n_units(&self) -> usize {
        let rows = self.log_probs.len();
        self.sequences.as_ref().map_or(rows, |sequences| rows / sequences.length)
    }

    /// The rows of a minibatch of rows, or of sequences.
    fn rows<'r>(&self, units: &'r [i64], expanded: &'r mut Vec<i64>) -> &'r [i64] {
        let Some(sequences) = &self.sequences else { return units };
        sequences.expand(units, self.n_units(), expanded);
        expanded
    }
}

/// The steps to take; with a memory, sequences instead of rows.
#[derive(Debug, Clone, Copy)]
pub struct Plan<'a> {
    /// The rows of each epoch, one epoch after the other, E × `epoch_rows`.
    pub order: &'a [i64],
    /// Rows of an epoch.
    pub epoch_rows: usize,
    /// Rows of a minibatch; the last of an epoch has the remainder.
    pub batch_size: usize,
    /// The loss of a minibatch.
    pub loss: Loss,
    /// Ends the update before the step of a minibatch whose approximate KL exceeds 1.5 times this.
    pub target_kl: Option<f64>,
}

/// Result of an update.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Progress {
    /// Means over the minibatches, including the one at which the update ended.
    pub terms: Terms,
    /// Gradient steps taken.
    pub steps: usize,
}

/// Takes gradient steps on the parameters of an actor-critic.
///
/// It owns only working memory: parameters and moments belong to the caller.
#[derive(Debug)]
pub struct Learner<F> {
    pub(super) shape: ActorCritic,
    pub(super) packed: PackedParameters<F>,
    pub(super) block: Block<F>,
    /// Clipping factor of the last gradients.
    factor: F,
}

impl<F: Real> Learner<F> {
    /// A learner for actor-critics of this shape.
    #[must_use]
    pub fn new(shape: ActorCritic) -> Self {
        let packed = PackedParameters::new(&shape);
        let block = Block::new(&shape);
        Self { shape, packed, block, factor: F::one() }
    }

    /// The shape of the actor-critic.
    #[must_use]
    pub fn shape(&self) -> &ActorCritic {
        &self.shape
    }

    /// The clipped gradient of the last minibatch.
    #[must_use]
    pub fn gradients(&self) -> Vec<F> {
        flatten(self.block.gradients(&self.shape), self.shape.n_parameters(), self.factor)
    }

    /// Takes the steps of `plan`.
    ///
    /// # Errors
    /// [`KernelError`] for a length that does not fit, a row or an action that does not exist, or
    /// numbers out of range; nothing changes then.
    pub fn update(
        &mut self,
        learnt: Learnt<'_, F>,
        batch: Batch<'_, F>,
        plan: Plan<'_>,
    ) -> Result<Progress> {
        self.check(&learnt, &batch, &plan)?;
        Ok(Arch::new().dispatch(Update { learner: self, learnt, batch, plan }))
    }

    /// Computes the gradient of the mean loss of a batch, as a single minibatch, without a step.
    ///
    /// # Errors
    /// [`KernelError`] for a length that does not fit, an action that does not exist, or numbers
    /// out of range.
    pub fn differentiate(
        &mut self,
        parameters: &[F],
        batch: Batch<'_, F>,
        loss: Loss,
    ) -> Result<Terms> {
        self.check_batch(parameters, &batch, loss)?;
        check_size("log_probs", batch.log_probs.len(), usize::MAX)?;
        let rows: Vec<i64> = (0i64..).take(batch.log_probs.len()).collect();
        let rows = &rows[..];
        Ok(Arch::new().dispatch(Differentiate { learner: self, parameters, batch, loss, rows }))
    }

    fn check(&self, learnt: &Learnt<'_, F>, batch: &Batch<'_, F>, plan: &Plan<'_>) -> Result<()> {
        self.check_batch(learnt.parameters, batch, plan.loss)?;
        learnt.check("parameters", "the networks", self.shape.n_parameters())?;
        if let Some(target) = plan.target_kl {
            check_range("target_kl", target, 0.0, f64::INFINITY)?;
        }
        let rows = batch.n_units();
        check_size("epoch_rows", plan.epoch_rows, usize::MAX)?;
        check_size("batch_size", plan.batch_size, usize::MAX)?;
        let epochs = plan.order.len() / plan.epoch_rows;
        check_len("order", plan.order.len(), "whole epochs", epochs * plan.epoch_rows)?;
        check_size("epochs", epochs, usize::MAX)?;
        let outside = |&row: &i64| usize::try_from(row).map_or(true, |row| row >= rows);
        match plan.order.iter().position(outside) {
            None => Ok(()),
            Some(place) => {
                let value = plan.order[place].into();
                Err(KernelError::Index { name: "order", place, value, len: rows })
            }
        }
    }

    fn check_batch(&self, parameters: &[F], batch: &Batch<'_, F>, loss: Loss) -> Result<()> {
        check_len("parameters", parameters.len(), "the networks", self.shape.n_parameters())?;
        loss.check()?;
        let rows = batch.log_probs.len();
        check_len("obs", batch.obs.len(), "log_probs * obs_dim", rows * self.shape.obs_dim)?;
        if let Some(sequences) = &batch.sequences {
            sequences.check(rows)?;
        }
        let states = batch.sequences.map_or(0, |sequences| sequences.states.len());
        let expected = batch.n_units() * self.shape.state_size();
        check_len("initial_state", states, "sequences * state_size", expected)?;
        batch.actions.check(&self.shape, rows)?;
        if let Some(masks) = batch.masks {
            let expected = rows * self.shape.head.n_masked();
            check_len("action_masks", masks.len(), "log_probs * actions", expected)?;
            check_choices(masks, &self.shape.choices)?;
            batch.actions.check_allowed(masks, &self.shape.choices)?;
        }
        check_len("values", batch.values.len(), "log_probs", rows)?;
        check_len("advantages", batch.advantages.len(), "log_probs", rows)?;
        check_len("returns", batch.returns.len(), "log_probs", rows)
    }
}

/// The arguments of [`Learner::update`].
struct Update<'a, F> {
    learner: &'a mut Learner<F>,
    learnt: Learnt<'a, F>,
    batch: Batch<'a, F>,
    plan: Plan<'a>,
}

impl<F: Real> WithSimd for Update<'_, F> {
    type Output = Progress;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> Progress {
        let Self { learner, mut learnt, batch, plan } = self;
        let mut sums = Terms::default();
        let (mut minibatches, mut steps) = (0.0, 0);
        let mut expanded = Vec::new();
        'epochs: for order in plan.order.chunks_exact(plan.epoch_rows) {
            for units in order.chunks(plan.batch_size) {
                let rows = batch.rows(units, &mut expanded);
                let helpers = learner.shape.critic.helpers(rows.len());
                let (parameters, loss) = (&*learnt.parameters, plan.loss);
                let call = Differentiate { learner: &mut *learner, parameters, batch, loss, rows };
                let terms = call.with_simd(simd);
                sums = sums.map2(terms, |sum, term| sum + term);
                minibatches += 1.0;
                if plan.target_kl.is_some_and(|target| terms.approx_kl > KL_TOLERANCE * target) {
                    break 'epochs;
                }
                let gradients = learner.block.gradients(&learner.shape);
                learner.factor = learnt.step(simd, helpers, gradients);
                steps += 1;
            }
        }
        Progress { terms: sums.map2(sums, |sum, _| sum / minibatches), steps }
    }
}

/// Computes the terms and, into the learner, the gradients of a minibatch.
struct Differentiate<'a, F> {
    learner: &'a mut Learner<F>,
    parameters: &'a [F],
    batch: Batch<'a, F>,
    loss: Loss,
    rows: &'a [i64],
}

impl<F: Real> WithSimd for Differentiate<'_, F> {
    type Output = Terms;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> Terms {
        let Self { learner, parameters, batch, loss, rows } = self;
        let Learner { shape, packed, block, factor } = learner;
        packed.load(shape, parameters);
        let advantage_scale = advantage_scale(batch.advantages, rows, loss);
        let minibatch = Minibatch { batch, size: rows.len(), advantage_scale, loss };
        let sums = block.run(simd, shape, packed, &minibatch, rows);
        *factor = F::one();
        #[expect(clippy::cast_precision_loss, reason = "a minibatch is far below 2^53 rows")]
        let size = rows.len() as f64;
        sums.map2(sums, |sum, _| sum / size)
    }
}

/// Mean and inverse deviation for standardising the advantages of `rows`; 0 and 1 to leave them
/// unchanged.
fn advantage_scale<F: Real>(advantages: &[F], rows: &[i64], loss: Loss) -> (F, F) {
    if !loss.normalize_advantages {
        return (F::zero(), F::one());
    }
    let values = || rows.iter().map(|&row| advantages[index(row)].widen());
    #[expect(clippy::cast_precision_loss, reason = "a minibatch is far below 2^53 rows")]
    let size = rows.len() as f64;
    let mean = values().sum::<f64>() / size;
    let others = (size - 1.0).max(1.0); // a single row becomes 0
    let variance = values().map(|value| (value - mean).powi(2)).sum::<f64>() / others;
    (F::of(mean), F::of(1.0 / (variance.sqrt() + 1e-8)))
}
