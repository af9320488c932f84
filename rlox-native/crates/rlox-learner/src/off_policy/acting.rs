//! Actions of the networks that are being learnt.

use pulp::{Arch, Simd, WithSimd};

use super::continuous::ContinuousLearner;
use super::part;
use super::q_learner::{QLearner, largest};
use crate::Real;
use crate::linalg::BLOCK_ROWS;
use crate::passes::{FEW_ROWS, forward_few, load_each};
use crate::runs::Hidden;
use rlox_kernels::error::{Result, check_len};

impl<F: Real> QLearner<F> {
    /// Writes the action with the largest value in each row of `obs`.
    ///
    /// # Errors
    /// [`KernelError`](rlox_kernels::KernelError) for a length that does not fit.
    pub fn act(&mut self, parameters: &[F], obs: &[F], actions: &mut [i64]) -> Result<()> {
        check_len("parameters", parameters.len(), "the network", self.shape.n_parameters())?;
        check_len("obs", obs.len(), "actions * obs_dim", actions.len() * self.shape.obs_dim())?;
        Arch::new().dispatch(Greedy { learner: self, parameters, obs, actions });
        Ok(())
    }
}

/// The arguments of [`QLearner::act`].
struct Greedy<'a, F> {
    learner: &'a mut QLearner<F>,
    parameters: &'a [F],
    obs: &'a [F],
    actions: &'a mut [i64],
}

impl<F: Real> WithSimd for Greedy<'_, F> {
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

/// Writes where the largest of each row's `values` is.
fn choose_largest<'a, F: Real>(values: impl Iterator<Item = &'a [F]>, actions: &mut [i64]) {
    for (action, values) in actions.iter_mut().zip(values) {
        *action = i64::try_from(largest(values)).unwrap_or(i64::MAX);
    }
}

impl<F: Real> ContinuousLearner<F> {
    /// Writes the policy's action for each row of `obs`, `act_dim` numbers each.
    ///
    /// `noise`, laid out as the actions, is standard normal for a Gaussian policy; it is added to the
    /// actions of a deterministic one, or it is empty.
    ///
    /// # Errors
    /// [`KernelError`](rlox_kernels::KernelError) for a length that does not fit.
    pub fn act(&mut self, policy: &[F], obs: &[F], noise: &[F], actions: &mut [F]) -> Result<()> {
        check_len("policy", policy.len(), "the policy", self.policy.end())?;
        let rows = obs.len() / self.obs_dim;
        check_len("obs", obs.len(), "rows * obs_dim", rows * self.obs_dim)?;
        check_len("actions", actions.len(), "rows * act_dim", rows * self.act_dim)?;
        self.check_noise(noise, rows)?;
        Arch::new().dispatch(Choose { learner: self, policy, obs, noise, actions });
        Ok(())
    }
}

/// The arguments of [`ContinuousLearner::act`].
struct Choose<'a, F> {
    learner: &'a mut ContinuousLearner<F>,
    policy: &'a [F],
    obs: &'a [F],
    noise: &'a [F],
    actions: &'a mut [F],
}

impl<F: Real> WithSimd for Choose<'_, F> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { learner, policy, obs, noise, actions } = self;
        let (obs_dim, act_dim) = (learner.obs_dim, learner.act_dim);
        let rows = actions.len() / act_dim;
        if rows <= FEW_ROWS {
            forward_few(simd, &learner.policy, policy, obs, rows, &mut learner.policy_block);
            learner.make_actions(noise, rows);
            return actions.copy_from_slice(&learner.actions[..actions.len()]);
        }
        learner.packed_policy.load(&learner.policy, policy);
        for (i, actions) in actions.chunks_mut(BLOCK_ROWS * act_dim).enumerate() {
            let (first, rows) = (i * BLOCK_ROWS, actions.len() / act_dim);
            let noise = part(noise, first, rows, act_dim);
            learner.choose(simd, part(obs, first, rows, obs_dim), noise, rows, Hidden::Overwritten);
            actions.copy_from_slice(&learner.actions[..actions.len()]);
        }
    }
}
