//! Deep Q-learning (Mnih et al. 2015) with steps of Adam, plain or double.

use pulp::{Arch, Simd, WithSimd};

use super::q_network::{QBlock, QNetwork};
use super::{Transitions, ValueTerms, mean_of, part};
use crate::Real;
use crate::linalg::{BLOCK_ROWS, flatten};
use crate::optimizer::Learnt;
use crate::passes::{FEW_ROWS, Packed, forward_few, load_each, loads};
use crate::runs::Hidden;
use rlox_kernels::error::{KernelError, Result, check_len};

/// The loss of a TD error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ElementLoss {
    /// ½ δ² up to 1, linear beyond.
    Huber,
    /// δ².
    Squared,
}

impl ElementLoss {
    /// The loss and its derivative.
    fn of(self, error: f32) -> (f32, f32) {
        let one = 1.0;
        match self {
            Self::Squared => (error * error, error + error),
            Self::Huber if error.abs() < one => (f32::of(0.5) * error * error, error),
            Self::Huber => (error.abs() - f32::of(0.5), error.max(-one).min(one)),
        }
    }
}

/// Settings of a step.
#[derive(Debug, Clone, Copy)]
pub struct QStep<'a> {
    /// The target network's parameters.
    pub target: &'a [f32],
    /// Whether the learning network chooses the action evaluated by the target network (van Hasselt
    /// et al. 2016, equation 4).
    pub double: bool,
    /// The loss of TD errors.
    pub loss: ElementLoss,
}

/// Takes gradient steps on the parameters of action values.
///
/// It owns only working memory: parameters and moments belong to the caller.
#[derive(Debug)]
pub struct QLearner {
    shape: QNetwork,
    online: QBlock,
    target: Vec<Packed<f32>>,
    /// The best actions of a block's next observations.
    best: Vec<usize>,
    /// A block's rows; for a gated network sorted by action, so that rows with gradients through
    /// the same output are adjacent.
    order: Vec<usize>,
    /// The observations of these rows.
    obs: Vec<f32>,
    /// Clipping factor of the last gradients.
    factor: f32,
}

impl QLearner {
    /// A learner for networks of this shape.
    #[must_use]
    pub fn new(shape: QNetwork) -> Self {
        Self {
            online: QBlock::new(&shape),
            target: shape.networks().into_iter().map(Packed::forward_only).collect(),
            best: Vec::with_capacity(BLOCK_ROWS),
            order: Vec::with_capacity(BLOCK_ROWS),
            obs: vec![0.0; BLOCK_ROWS * shape.obs_dim()],
            factor: 1.0,
            shape,
        }
    }

    /// The clipped gradient of the last step.
    #[must_use]
    pub fn gradients(&self) -> Vec<f32> {
        flatten(self.online.gradients(&self.shape), self.shape.n_parameters(), self.factor)
    }

    /// Takes one step; writes the TD errors of the rows to `errors`.
    ///
    /// # Errors
    /// [`KernelError`] for a length that does not fit, an action that does not exist, or constants
    /// out of range; nothing changes then.
    pub fn step(
        &mut self,
        learnt: Learnt<'_, f32>,
        batch: Transitions<'_>,
        actions: &[i64],
        plan: QStep<'_>,
        errors: &mut [f32],
    ) -> Result<ValueTerms> {
        let n_parameters = self.shape.n_parameters();
        learnt.check("parameters", "the network", n_parameters)?;
        check_len("target", plan.target.len(), "the network", n_parameters)?;
        batch.check(self.shape.obs_dim())?;
        check_len("actions", actions.len(), "rewards", batch.len())?;
        check_len("errors", errors.len(), "rewards", batch.len())?;
        let n_actions = i64::try_from(self.shape.n_actions()).unwrap_or(i64::MAX);
        if let Some(i) = actions.iter().position(|action| !(0..n_actions).contains(action)) {
            return Err(KernelError::Action { index: Some(i), n_actions, value: actions[i] });
        }
        Ok(Arch::new().dispatch(Step { learner: self, learnt, batch, actions, plan, errors }))
    }

    /// Writes the action with the largest value in each row of `obs`.
    ///
    /// # Errors
    /// [`KernelError`] for a length that does not fit.
    pub fn act(&mut self, parameters: &[f32], obs: &[f32], actions: &mut [i64]) -> Result<()> {
        check_len("parameters", parameters.len(), "the network", self.shape.n_parameters())?;
        check_len("obs", obs.len(), "actions * obs_dim", actions.len() * self.shape.obs_dim())?;
        Arch::new().dispatch(Greedy { learner: self, parameters, obs, actions });
        Ok(())
    }
}

/// The arguments of [`QLearner::act`].
struct Greedy<'a> {
    learner: &'a mut QLearner,
    parameters: &'a [f32],
    obs: &'a [f32],
    actions: &'a mut [i64],
}

impl WithSimd for Greedy<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let QLearner { shape, online, .. } = self.learner;
        let (rows, width) = (self.actions.len(), shape.n_actions());
        let single = shape.single().filter(|_| rows <= FEW_ROWS);
        if let (Some(network), [space]) = (single, &mut *online.workspaces) {
            forward_few(simd, network, self.parameters, self.obs, rows, space);
            let values = space.output().chunks_exact(network.output_stride());
            return choose_largest(values.map(|values| &values[..width]), self.actions);
        }
        load_each(0, online.loads(shape, self.parameters));
        let blocks = self.obs.chunks(BLOCK_ROWS * shape.obs_dim());
        for (obs, actions) in blocks.zip(self.actions.chunks_mut(BLOCK_ROWS)) {
            online.forward(simd, shape, obs, actions.len(), Hidden::Overwritten);
            choose_largest(online.values.chunks_exact(width), actions);
        }
    }
}

/// Writes the index of the largest of each row's `values`.
fn choose_largest<'a>(values: impl Iterator<Item = &'a [f32]>, actions: &mut [i64]) {
    for (action, values) in actions.iter_mut().zip(values) {
        *action = i64::try_from(largest(values)).unwrap_or(i64::MAX);
    }
}

/// The arguments of [`QLearner::step`].
struct Step<'a> {
    learner: &'a mut QLearner,
    learnt: Learnt<'a, f32>,
    batch: Transitions<'a>,
    actions: &'a [i64],
    plan: QStep<'a>,
    errors: &'a mut [f32],
}

impl WithSimd for Step<'_> {
    type Output = ValueTerms;

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) -> ValueTerms {
        let QLearner { shape, online, target, .. } = &mut *self.learner;
        let of_target = loads(target, shape.networks(), self.plan.target);
        let loads = online.loads(shape, self.learnt.parameters).chain(of_target);
        load_each(shape.helpers(self.batch.len()), loads);
        online.clear_gradients();
        let mut sums = ValueTerms::default();
        for first in (0..self.batch.len()).step_by(BLOCK_ROWS) {
            let terms = self.block(simd, first, BLOCK_ROWS.min(self.batch.len() - first));
            sums.loss += terms.loss;
            sums.value += terms.value;
        }
        let QLearner { shape, online, factor, .. } = &mut *self.learner;
        let n = self.batch.len();
        *factor = self.learnt.step(simd, shape.helpers(n), online.gradients(shape));
        ValueTerms { loss: mean_of(sums.loss, n), value: mean_of(sums.value, n) }
    }
}

impl Step<'_> {
    /// Accumulates the gradients of `rows` rows from `first` on; returns sums over them.
    #[inline(always)]
    fn block<S: Simd>(&mut self, simd: S, first: usize, rows: usize) -> ValueTerms {
        let QLearner { shape, online, target, best, order, obs, .. } = &mut *self.learner;
        let (width, batch) = (shape.n_actions(), self.batch);
        let next_obs = part(batch.next_obs, first, rows, shape.obs_dim());
        best.clear();
        if self.plan.double {
            online.forward(simd, shape, next_obs, rows, Hidden::Overwritten);
            best.extend(online.values.chunks_exact(width).take(rows).map(largest));
        }
        online.forward_target(simd, shape, target, next_obs, rows);
        for (r, judged) in online.values.chunks_exact(width).take(rows).enumerate() {
            let next_value = judged[best.get(r).copied().unwrap_or_else(|| largest(judged))];
            self.errors[first + r] =
                batch.rewards[first + r] + batch.discounts[first + r] * next_value;
        }
        order.clear();
        order.extend(first..first + rows);
        if shape.is_gated() {
            order.sort_unstable_by_key(|&row| (self.actions[row], row));
        }
        for (to, &row) in obs.chunks_exact_mut(shape.obs_dim()).zip(&*order) {
            to.copy_from_slice(part(batch.obs, row, 1, shape.obs_dim()));
        }
        online.forward(simd, shape, obs, rows, Hidden::Kept);
        online.gradients.fill(0.0);
        let scale = f32::of(mean_of(1.0, batch.len()));
        let mut sums = ValueTerms::default();
        for (r, &row) in order.iter().enumerate() {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked")]
            let at = r * width + self.actions[row] as usize;
            let value = online.values[at];
            let error = &mut self.errors[row];
            *error = value - *error;
            let (loss, slope) = self.plan.loss.of(*error);
            let weight = batch.weight(row);
            online.gradients[at] = weight * slope * scale;
            sums.loss += (weight * loss).widen();
            sums.value += value.widen();
        }
        online.backward(simd, shape, obs, rows);
        sums
    }
}

/// Index of the first largest value.
fn largest(values: &[f32]) -> usize {
    let mut best = 0;
    for (i, &value) in values.iter().enumerate() {
        // NaN counts as the largest, as in torch.
        if value > values[best] || (value.is_nan() && !values[best].is_nan()) {
            best = i;
        }
    }
    best
}
