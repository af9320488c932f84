//! A memory between observations and networks: an LSTM layer each for the policy and for the value,
//! or one for both.
//!
//! A minibatch is whole sequences, which go through the layers all at once; the networks behind them
//! take the outputs in blocks of rows as they would take observations. A row of the state that is
//! remembered is the policy's hidden and cell state, then the value's if it has a layer of its own.

mod acting;
mod backward;
mod lstm;
mod sequences;
mod unrolled;

use pulp::Simd;
use rlox_kernels::threads;

use super::actor_critic::index;
use super::linalg::{Aligned, Gathered, Real, Rows, row_stride};
use super::passes::Gradients;
pub(super) use lstm::{Lstm, PackedLstm};
pub use sequences::Sequences;
use unrolled::{Unrolled, reserve};

/// Layers of a memory: the policy's and the value's, or one that they share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layers<T> {
    Shared(T),
    Own([T; 2]),
}

impl<T> Layers<T> {
    pub(super) fn map<U>(self, mut f: impl FnMut(T) -> U) -> Layers<U> {
        match self {
            Self::Shared(layer) => Layers::Shared(f(layer)),
            Self::Own(layers) => Layers::Own(layers.map(f)),
        }
    }

    pub(super) fn as_slice(&self) -> &[T] {
        match self {
            Self::Shared(layer) => std::slice::from_ref(layer),
            Self::Own(layers) => layers,
        }
    }

    fn as_mut_slice(&mut self) -> &mut [T] {
        match self {
            Self::Shared(layer) => std::slice::from_mut(layer),
            Self::Own(layers) => layers,
        }
    }
}

/// The parameters of the layers in the order in which products read them.
#[derive(Debug)]
pub(super) struct PackedMemory<F> {
    layers: Layers<(Lstm, PackedLstm<F>)>,
}

impl<F: Real> PackedMemory<F> {
    pub(super) fn new(lstms: Layers<Lstm>) -> Self {
        Self { layers: lstms.map(|lstm| (lstm, PackedLstm::new(lstm))) }
    }

    /// Copies the layers' parts of `parameters`.
    pub(super) fn load(&mut self, parameters: &[F]) {
        for (lstm, packed) in self.layers.as_mut_slice() {
            packed.load(*lstm, parameters);
        }
    }

    /// All layers have the same shape.
    fn lstm(&self) -> Lstm {
        self.layers.as_slice()[0].0
    }
}

/// Room for a minibatch of sequences in all layers, and for their gradients.
#[derive(Debug)]
pub(super) struct Memory<F> {
    inputs: Vec<F>,
    starts: Vec<bool>,
    layers: Layers<Unrolled<F>>,
    /// Of the value, with respect to the outputs of a layer that is shared.
    value_gradients: Aligned<F>,
}

impl<F: Real> Memory<F> {
    pub(super) fn new(lstms: Layers<Lstm>) -> Self {
        Self {
            inputs: Vec::new(),
            starts: Vec::new(),
            layers: lstms.map(Unrolled::new),
            value_gradients: Aligned::zeros(0),
        }
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
        let obs_dim = packed.lstm().inputs();
        self.inputs.clear();
        self.starts.clear();
        for &row in rows {
            self.inputs.extend_from_slice(&obs[index(row) * obs_dim..][..obs_dim]);
            self.starts.push(sequences.starts[index(row)] != 0);
        }
        // of step 0, whose rows are the sequences' own numbers
        self.begin(&rows[..n].iter().map(|&row| index(row)), n, sequences.states);
        if let Layers::Shared(layer) = &self.layers {
            reserve(&mut self.value_gradients, rows.len() * row_stride(layer.units));
        }
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
        let n = obs.len() / packed.lstm().inputs();
        self.inputs.clear();
        self.inputs.extend_from_slice(obs);
        self.starts.clear();
        self.starts.resize(n, false);
        self.begin(&(0..n), n, states);
        self.forward(simd, packed, n);
        let (layers, own) = (self.layers.as_slice(), packed.lstm().state_size());
        for (j, state) in states.chunks_exact_mut(layers.len() * own).enumerate() {
            for (layer, state) in layers.iter().zip(state.chunks_exact_mut(own)) {
                layer.write_state(j, state);
            }
        }
    }

    /// Takes what network `which`, 0 for the policy's, sees from the states after so many
    /// observations.
    pub(super) fn recall(&mut self, which: usize, states: &[F]) -> &[F] {
        let layers = self.layers.as_mut_slice();
        let (count, which) = (layers.len(), which.min(layers.len() - 1));
        let own = layers[which].state_size();
        let rows = states.chunks_exact(count * own).map(|state| &state[which * own..]);
        layers[which].recall(rows)
    }

    /// Reads the states of the `n` sequences `numbers`.
    fn begin(&mut self, numbers: &(impl Iterator<Item = usize> + Clone), n: usize, states: &[F]) {
        let layers = self.layers.as_mut_slice();
        let count = layers.len();
        for (k, layer) in layers.iter_mut().enumerate() {
            let own = layer.state_size();
            let first = |number| (count * number + k) * own;
            layer.begin(n, numbers.clone().map(|number| &states[first(number)..][..own]));
        }
    }

    #[inline(always)]
    fn forward<S: Simd>(&mut self, simd: S, packed: &PackedMemory<F>, n: usize) {
        let Self { inputs, starts, layers, .. } = self;
        let inputs = Rows { elements: inputs, rows: starts.len(), stride: packed.lstm().inputs() };
        together(
            (layers, packed, starts.len()),
            #[inline(always)]
            |layer, (lstm, packed)| layer.forward(simd, *lstm, packed, inputs, starts, n),
        );
    }

    /// Goes back through the sequences of the last [`Memory::replay`].
    #[inline(always)]
    pub(super) fn backward<S: Simd>(&mut self, simd: S, packed: &PackedMemory<F>, length: usize) {
        let Self { inputs, starts, layers, value_gradients } = self;
        if let Layers::Shared(layer) = layers {
            let gradients = layer.output_gradients.iter_mut().zip(&**value_gradients);
            for (sum, &of_value) in gradients.take(starts.len() * row_stride(layer.units)) {
                *sum = *sum + of_value;
            }
        }
        let n = starts.len() / length;
        let inputs = Rows { elements: inputs, rows: starts.len(), stride: packed.lstm().inputs() };
        together(
            (layers, packed, starts.len()),
            #[inline(always)]
            |layer, (lstm, packed)| layer.backward(simd, *lstm, packed, inputs, starts, n),
        );
    }

    /// What the two networks see from row `first` on, and where the gradients with respect to it go.
    pub(super) fn outputs(&mut self, first: usize) -> ([&[F]; 2], [Gradients<'_, F>; 2]) {
        let ((of_actor, to_actor), (of_critic, to_critic)) = match &mut self.layers {
            Layers::Own([actor, critic]) => (actor.outputs(first), critic.outputs(first)),
            Layers::Shared(layer) => {
                let of_value = &mut self.value_gradients[first * row_stride(layer.units)..];
                let (outputs, of_policy) = layer.outputs(first);
                ((outputs, of_policy), (outputs, of_value))
            }
        };
        ([of_actor, of_critic], [Gradients::All(to_actor), Gradients::All(to_critic)])
    }

    /// The gradients of the last [`Memory::backward`].
    pub(super) fn gradients<'a>(
        &'a self,
        lstms: &'a Layers<Lstm>,
    ) -> impl Iterator<Item = Gathered<'a, F>> {
        let layers = self.layers.as_slice().iter().zip(lstms.as_slice());
        layers.flat_map(|(layer, &lstm)| layer.gradients(lstm))
    }
}

/// Does the same with all layers, two of them at the same time, for so many rows.
#[inline(always)]
fn together<F: Real>(
    (layers, packed, rows): (&mut Layers<Unrolled<F>>, &PackedMemory<F>, usize),
    run: impl Fn(&mut Unrolled<F>, &(Lstm, PackedLstm<F>)) + Sync,
) {
    match (layers, &packed.layers) {
        (Layers::Own([actor, critic]), Layers::Own([of_actor, of_critic])) => threads::join(
            packed.lstm().helpers(rows),
            || run(actor, of_actor),
            || run(critic, of_critic),
        ),
        (layers, packed) => {
            for (layer, packed) in layers.as_mut_slice().iter_mut().zip(packed.as_slice()) {
                run(layer, packed);
            }
        }
    }
}
