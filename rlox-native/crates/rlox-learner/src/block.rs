//! The gradient of a minibatch, block by block of rows.

use std::iter;

use pulp::Simd;

use super::actor_critic::{ActionRows, ActorCritic, Head, index};
use super::distribution::{Chosen, Distribution};
use super::linalg::{BLOCK_ROWS, Gathered, padded};
use super::memory::{Memory, PackedMemory};
use super::objective::{Loss, Row, Terms};
use super::passes::{Gradients, Packed, Pass, backward_each, forward_each, load_each};
use super::runs::Hidden;
use super::workspace::Workspace;
use super::{Batch, Real};

/// The parameters in the order of products.
#[derive(Debug)]
pub(super) struct PackedParameters<F> {
    pub(super) actor: Packed<F>,
    pub(super) critic: Packed<F>,
    pub(super) memory: Option<PackedMemory<F>>,
    pub(super) log_std: Vec<F>,
}

impl<F: Real> PackedParameters<F> {
    pub(super) fn new(shape: &ActorCritic) -> Self {
        let deviations = shape.head.n_deviations();
        let pack = if shape.memories.is_some() { Packed::to_inputs } else { Packed::new };
        Self {
            actor: pack(&shape.actor),
            critic: pack(&shape.critic),
            memory: shape.memories.map(PackedMemory::new),
            log_std: vec![F::zero(); deviations],
        }
    }

    pub(super) fn load(&mut self, shape: &ActorCritic, parameters: &[F]) {
        let Self { actor, critic, memory, log_std } = self;
        if let Some(memory) = memory {
            memory.load(parameters);
        }
        let deviations = log_std.len();
        log_std.copy_from_slice(&parameters[..deviations]);
        let loads = [(actor, &shape.actor, parameters), (critic, &shape.critic, parameters)];
        load_each(shape.critic.helpers(BLOCK_ROWS), loads);
    }

    /// Copies the policy network and the log deviations.
    pub(super) fn load_policy(&mut self, shape: &ActorCritic, parameters: &[F]) {
        let deviations = self.log_std.len();
        self.log_std.copy_from_slice(&parameters[..deviations]);
        self.actor.load(&shape.actor, parameters);
    }

    /// Copies the parameters of the memory.
    pub(super) fn load_memory(&mut self, parameters: &[F]) {
        if let Some(memory) = &mut self.memory {
            memory.load(parameters);
        }
    }
}

/// Common data of all rows of a minibatch.
#[derive(Clone, Copy)]
pub(super) struct Minibatch<'a, F> {
    pub(super) batch: Batch<'a, F>,
    /// Its number of rows, the divisor of means.
    pub(super) size: usize,
    /// Mean and inverse deviation that standardise its advantages.
    pub(super) advantage_scale: (F, F),
    pub(super) loss: Loss,
}

/// Memory for a block of rows and for the gradient accumulated so far.
#[derive(Debug)]
pub(super) struct Block<F> {
    /// Observations; with a memory, its outputs are the networks' inputs.
    inputs: Vec<F>,
    pub(super) memory: Option<Memory<F>>,
    pub(super) chosen: Chosen<F>,
    pub(super) actor: Workspace<F>,
    pub(super) critic: Workspace<F>,
    pub(super) distribution: Distribution<F>,
    ratios: Vec<F>,
    log_prob_gradients: Vec<F>,
    /// Sums over the rows so far, not means.
    terms: Terms,
}

impl<F: Real> Block<F> {
    pub(super) fn new(shape: &ActorCritic) -> Self {
        let zeros = |n| vec![F::zero(); n];
        let (indices, components) = match shape.head {
            Head::Categorical(_) => (BLOCK_ROWS * shape.choices.len(), 0),
            Head::Gaussian(width) | Head::ScaledGaussian(width) => (0, BLOCK_ROWS * width),
        };
        Self {
            inputs: zeros(if shape.memories.is_some() { 0 } else { BLOCK_ROWS * shape.obs_dim }),
            memory: shape.memories.map(Memory::new),
            chosen: Chosen {
                indices: vec![0; indices],
                components: zeros(components),
                possible: vec![true; BLOCK_ROWS * shape.head.n_masked()],
            },
            actor: Workspace::new(&shape.actor),
            critic: Workspace::new(&shape.critic),
            distribution: Distribution::new(shape),
            ratios: zeros(padded(BLOCK_ROWS)),
            log_prob_gradients: zeros(BLOCK_ROWS),
            terms: Terms::default(),
        }
    }

    /// Gathers the gradients of the rows `order` of a minibatch and returns the sums of their terms.
    #[inline(always)]
    pub(super) fn run<S: Simd>(
        &mut self,
        simd: S,
        shape: &ActorCritic,
        packed: &PackedParameters<F>,
        minibatch: &Minibatch<'_, F>,
        order: &[i64],
    ) -> Terms {
        self.terms = Terms::default();
        if minibatch.batch.masks.is_none() {
            self.chosen.possible.fill(true);
        }
        self.actor.clear_gradients();
        self.critic.clear_gradients();
        self.distribution.log_std.copy_from_slice(&packed.log_std);
        self.distribution.log_std_gradient.fill(F::zero());
        let sequences = minibatch.batch.sequences.as_ref();
        let replayed = packed.memory.as_ref().zip(sequences);
        if let (Some(memory), Some((packed, sequences))) = (&mut self.memory, replayed) {
            memory.replay(simd, packed, minibatch.batch.obs, sequences, order);
        }
        for (block, rows) in order.chunks(BLOCK_ROWS).enumerate() {
            self.gather(shape, &minibatch.batch, rows);
            let n = rows.len();
            let ([actor, critic], _) = self.passes(shape, packed, block, n);
            forward_each(simd, vec![actor, critic], Hidden::Kept);
            let stride = shape.actor.output_stride();
            self.distribution.evaluate(simd, self.actor.output(), stride, n, &self.chosen);
            self.differentiate(simd, shape, minibatch, rows);
            let ([actor, critic], [to_actor, to_critic]) = self.passes(shape, packed, block, n);
            backward_each(simd, vec![(actor, to_actor), (critic, to_critic)]);
        }
        if let (Some(memory), Some((packed, sequences))) = (&mut self.memory, replayed) {
            memory.backward(simd, packed, sequences.length);
        }
        self.terms
    }

    /// Passes of policy and value network through a block of `rows` rows.
    fn passes<'a>(
        &'a mut self,
        shape: &'a ActorCritic,
        packed: &'a PackedParameters<F>,
        block: usize,
        rows: usize,
    ) -> ([Pass<'a, F>; 2], [Gradients<'a, F>; 2]) {
        let Self { inputs, memory, actor, critic, .. } = self;
        let ([of_actor, of_critic], gradients) = seen(inputs, memory, block);
        let pass =
            |network, packed, inputs, workspace| Pass { network, packed, inputs, rows, workspace };
        let actor = pass(&shape.actor, &packed.actor, of_actor, actor);
        let critic = pass(&shape.critic, &packed.critic, of_critic, critic);
        ([actor, critic], gradients)
    }

    /// Gathers the block's actions, and its observations unless a memory has them.
    fn gather(&mut self, shape: &ActorCritic, batch: &Batch<'_, F>, rows: &[i64]) {
        for (&row, input) in rows.iter().zip(self.inputs.chunks_exact_mut(shape.obs_dim)) {
            input.copy_from_slice(&batch.obs[index(row) * shape.obs_dim..][..shape.obs_dim]);
        }
        match batch.actions {
            ActionRows::Discrete(actions) => {
                let n = shape.choices.len();
                for (&row, chosen) in rows.iter().zip(self.chosen.indices.chunks_exact_mut(n)) {
                    for (chosen, &action) in chosen.iter_mut().zip(&actions[index(row) * n..]) {
                        *chosen = index(action);
                    }
                }
                let width = shape.head.width();
                if let Some(masks) = batch.masks {
                    let possible = self.chosen.possible.chunks_exact_mut(width);
                    for (&row, possible) in rows.iter().zip(possible) {
                        for (possible, &flag) in
                            possible.iter_mut().zip(&masks[index(row) * width..])
                        {
                            *possible = flag != 0;
                        }
                    }
                }
            }
            ActionRows::Continuous(actions) => {
                let width = shape.head.width();
                let chosen = self.chosen.components.chunks_exact_mut(width);
                for (&row, chosen) in rows.iter().zip(chosen) {
                    chosen.copy_from_slice(&actions[index(row) * width..][..width]);
                }
            }
        }
    }

    /// Adds the block's terms and writes the gradients with respect to both networks' outputs.
    #[inline(always)]
    fn differentiate<S: Simd>(
        &mut self,
        simd: S,
        shape: &ActorCritic,
        minibatch: &Minibatch<'_, F>,
        rows: &[i64],
    ) {
        let Minibatch { batch, size, advantage_scale: (mean, scale), loss } = *minibatch;
        #[expect(clippy::cast_precision_loss, reason = "a minibatch is far below 2^53 rows")]
        let weight = 1.0 / size as f64;
        let (of_policy, of_value) = (F::of(weight), F::of(weight * loss.vf_coef));
        let log_probs = &self.distribution.log_probs;
        for ((ratio, &log_prob), &row) in self.ratios.iter_mut().zip(log_probs).zip(rows) {
            *ratio = log_prob - batch.log_probs[index(row)];
        }
        let log_ratios: [F; BLOCK_ROWS] = std::array::from_fn(|r| self.ratios[r]);
        F::exp_all(simd, &mut self.ratios);
        let value_stride = shape.critic.output_stride();
        let values: [F; BLOCK_ROWS] =
            std::array::from_fn(|r| self.critic.output()[r * value_stride]);
        let value_gradients = self.critic.output_gradient();
        for (r, &row) in rows.iter().enumerate() {
            let row = index(row);
            let (terms, log_prob_gradient, value_gradient) = loss.objective.row(Row {
                log_ratio: log_ratios[r],
                ratio: self.ratios[r],
                log_prob: self.distribution.log_probs[r],
                entropy: self.distribution.entropies[r],
                value: values[r],
                old_value: batch.values[row],
                advantage: (batch.advantages[row] - mean) * scale,
                target: batch.returns[row],
            });
            self.terms = self.terms.map2(terms, |sum, term| sum + term);
            self.log_prob_gradients[r] = log_prob_gradient * of_policy;
            value_gradients[r * value_stride] = value_gradient * of_value;
        }
        self.distribution.backward(
            &self.log_prob_gradients[..rows.len()],
            F::of(-loss.ent_coef * weight),
            &self.chosen,
            shape.actor.output_stride(),
            self.actor.output_gradient(),
        );
    }
}

impl<F: Real> Block<F> {
    /// The gradients of the last [`Block::run`].
    pub(super) fn gradients<'a>(
        &'a self,
        shape: &'a ActorCritic,
    ) -> impl Iterator<Item = Gathered<'a, F>> {
        let of_log_std = iter::once(Gathered::straight(0, &self.distribution.log_std_gradient));
        let networks =
            self.actor.gradients(&shape.actor).chain(self.critic.gradients(&shape.critic));
        let memories = self.memory.iter().zip(&shape.memories);
        let of_memories = memories.flat_map(|(memory, lstms)| memory.gradients(lstms));
        of_log_std.chain(networks).chain(of_memories)
    }
}

/// Inputs of the two networks for a block of rows, and the gradients that they compute.
fn seen<'a, F: Real>(
    inputs: &'a [F],
    memory: &'a mut Option<Memory<F>>,
    block: usize,
) -> ([&'a [F]; 2], [Gradients<'a, F>; 2]) {
    match memory {
        None => ([inputs; 2], [Gradients::Parameters, Gradients::Parameters]),
        Some(memory) => memory.outputs(block * BLOCK_ROWS),
    }
}
