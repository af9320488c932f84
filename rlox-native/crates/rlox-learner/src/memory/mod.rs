//! A memory between observations and networks: an LSTM layer each for the policy and for the value.
//!
//! A minibatch is whole sequences, which go through the layers all at once; the networks behind them
//! take the outputs in blocks of rows as they would take observations. A row of the state that is
//! remembered is the policy's hidden and cell state, then the value's.

mod acting;
mod backward;
mod lstm;
mod sequences;
mod unrolled;

use pulp::Simd;
use rlox_kernels::threads;

use super::actor_critic::index;
use super::linalg::{Real, Rows};
use super::passes::Gradients;
pub(super) use lstm::{Lstm, PackedLstm};
pub use sequences::Sequences;
use unrolled::Unrolled;

/// The parameters of both layers in the order in which products read them.
#[derive(Debug)]
pub(super) struct PackedMemory<F> {
    lstms: [Lstm; 2],
    packed: [PackedLstm<F>; 2],
}

impl<F: Real> PackedMemory<F> {
    pub(super) fn new(lstms: [Lstm; 2]) -> Self {
        Self { lstms, packed: lstms.map(PackedLstm::new) }
    }

    /// Copies the layers' parts of `parameters`.
    pub(super) fn load(&mut self, parameters: &[F]) {
        for (packed, lstm) in self.packed.iter_mut().zip(self.lstms) {
            packed.load(lstm, parameters);
        }
    }
}

/// Room for a minibatch of sequences in both layers, and for their gradients.
#[derive(Debug)]
pub(super) struct Memory<F> {
    inputs: Vec<F>,
    starts: Vec<bool>,
    layers: [Unrolled<F>; 2],
}

impl<F: Real> Memory<F> {
    pub(super) fn new(lstms: [Lstm; 2]) -> Self {
        Self { inputs: Vec::new(), starts: Vec::new(), layers: lstms.map(Unrolled::new) }
    }

    /// Replays the sequences of a minibatch: `rows` of `obs`, step 0 of all of them first.
    #[inline(always)]
    pub(super) fn replay<S: Simd>(
        &mut self,
        simd: S,
        packed: &PackedMemory<F>,
        obs: &[F],
        sequences: &Sequences<'_, F>,
        rows: &[i64],
    ) {
        let n = rows.len() / sequences.length;
        let obs_dim = packed.lstms[0].inputs();
        self.inputs.clear();
        self.starts.clear();
        for &row in rows {
            self.inputs.extend_from_slice(&obs[index(row) * obs_dim..][..obs_dim]);
            self.starts.push(sequences.starts[index(row)] != 0);
        }
        // of step 0, whose rows are the sequences' own numbers
        self.begin(&rows[..n].iter().map(|&row| index(row)), n, sequences.states);
        self.forward(simd, packed, n);
    }

    /// Takes in one observation of each of the sequences whose `states` these are, and changes those.
    #[inline(always)]
    pub(super) fn remember<S: Simd>(
        &mut self,
        simd: S,
        packed: &PackedMemory<F>,
        obs: &[F],
        states: &mut [F],
    ) {
        let n = obs.len() / packed.lstms[0].inputs();
        self.inputs.clear();
        self.inputs.extend_from_slice(obs);
        self.starts.clear();
        self.starts.resize(n, false);
        self.begin(&(0..n), n, states);
        self.forward(simd, packed, n);
        let [actor, critic] = &self.layers;
        let own = packed.lstms[0].state_size();
        for (j, state) in states.chunks_exact_mut(2 * own).enumerate() {
            let (of_actor, of_critic) = state.split_at_mut(own);
            actor.write_state(j, of_actor);
            critic.write_state(j, of_critic);
        }
    }

    /// Takes the outputs of a layer, 0 or 1, from the states after so many observations; returns them
    /// as the network behind it sees them.
    pub(super) fn recall(&mut self, layer: usize, states: &[F]) -> &[F] {
        let own = self.layers[layer].state_size();
        let rows = states.chunks_exact(2 * own).map(|state| &state[layer * own..]);
        self.layers[layer].recall(rows)
    }

    /// Reads the states of the `n` sequences `numbers`.
    fn begin(&mut self, numbers: &(impl Iterator<Item = usize> + Clone), n: usize, states: &[F]) {
        for (k, layer) in self.layers.iter_mut().enumerate() {
            let own = layer.state_size();
            layer.begin(n, numbers.clone().map(|number| &states[(2 * number + k) * own..][..own]));
        }
    }

    #[inline(always)]
    fn forward<S: Simd>(&mut self, simd: S, packed: &PackedMemory<F>, n: usize) {
        let Self { inputs, starts, layers: [actor, critic] } = self;
        let [actor_lstm, critic_lstm] = packed.lstms;
        let [actor_packed, critic_packed] = &packed.packed;
        let inputs = Rows { elements: inputs, rows: starts.len(), stride: actor_lstm.inputs() };
        threads::join(
            actor_lstm.helpers(starts.len()),
            || actor.forward(simd, actor_lstm, actor_packed, inputs, starts, n),
            || critic.forward(simd, critic_lstm, critic_packed, inputs, starts, n),
        );
    }

    /// Goes back through the sequences of the last [`Memory::replay`].
    #[inline(always)]
    pub(super) fn backward<S: Simd>(&mut self, simd: S, packed: &PackedMemory<F>, length: usize) {
        let Self { inputs, starts, layers: [actor, critic] } = self;
        let n = starts.len() / length;
        let [actor_lstm, critic_lstm] = packed.lstms;
        let [actor_packed, critic_packed] = &packed.packed;
        let inputs = Rows { elements: inputs, rows: starts.len(), stride: actor_lstm.inputs() };
        threads::join(
            actor_lstm.helpers(starts.len()),
            || actor.backward(simd, actor_lstm, actor_packed, inputs, starts, n),
            || critic.backward(simd, critic_lstm, critic_packed, inputs, starts, n),
        );
    }

    /// The layers' outputs from row `first` on, and where the gradients with respect to them go.
    pub(super) fn outputs(&mut self, first: usize) -> ([&[F]; 2], [Gradients<'_, F>; 2]) {
        let [actor, critic] = &mut self.layers;
        let ((of_actor, to_actor), (of_critic, to_critic)) =
            (actor.outputs(first), critic.outputs(first));
        ([of_actor, of_critic], [Gradients::All(to_actor), Gradients::All(to_critic)])
    }

    /// Writes the gradients of the last [`Memory::backward`] to the layers' parts of `gradients`.
    pub(super) fn write_gradients(&self, lstms: [Lstm; 2], gradients: &mut [F]) {
        for (layer, lstm) in self.layers.iter().zip(lstms) {
            layer.write_gradients(lstm, gradients);
        }
    }
}
