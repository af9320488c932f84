//! A memory between observations and networks: separate LSTM layers for policy and value, or a
//! shared one.
//!
//! A minibatch consists of whole sequences, which pass through the layers all at once; the networks
//! after them process the outputs in blocks of rows, like observations. A row of the remembered
//! state is the policy's hidden and cell state, then the value's if it has its own layer.

mod lstm;

use pulp::{Arch, Simd, WithSimd};
use rlox_kernels::error::{KernelError, Result, check_len};
use rlox_kernels::threads;

use super::actor_critic::index;
use super::linalg::{Aligned, Gathered, Real, Rows, row_stride};
use super::passes::Gradients;
use super::update::Learner;
pub(super) use lstm::Lstm;
use lstm::{PackedLstm, Unrolled, reserve};

/// R / L sequences of L steps, stored as step 0 of all sequences, then step 1, and so on.
#[derive(Debug, Clone, Copy)]
pub struct Sequences<'a, F> {
    /// Steps per sequence, L, a divisor of R; gradients are truncated at this length.
    pub length: usize,
    /// Whether an episode begins at a row, which resets the memory: R, zero for false.
    pub starts: &'a [u8],
    /// State before each sequence, R / L × the size of a state.
    pub states: &'a [F],
}

impl<F> Sequences<'_, F> {
    /// Checks that `rows` rows form whole sequences.
    pub(crate) fn check(&self, rows: usize) -> Result<()> {
        if self.length == 0 || !rows.is_multiple_of(self.length) {
            let (name, value) = ("sequence_length, a divisor of the rows,", self.length);
            #[expect(clippy::cast_precision_loss, reason = "only for the message")]
            let (high, value) = (rows as f64, value as f64);
            return Err(KernelError::Range { name, low: 1.0, high, value });
        }
        check_len("episode_starts", self.starts.len(), "log_probs", rows)
    }

    /// Writes to `rows` the rows of the sequences `some` out of `count`, step 0 of each first.
    pub(crate) fn expand(&self, some: &[i64], count: usize, rows: &mut Vec<i64>) {
        rows.clear();
        let steps = (0_i64..).step_by(count.max(1)).take(self.length);
        rows.extend(steps.flat_map(|first| some.iter().map(move |number| first + number)));
    }
}

/// Layers of a memory: the policy's and the value's, or a shared one.
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

/// The parameters of the layers in the order of products.
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

/// Memory for a minibatch of sequences in all layers and for their gradients.
#[derive(Debug)]
pub(super) struct Memory<F> {
    inputs: Vec<F>,
    starts: Vec<bool>,
    layers: Layers<Unrolled<F>>,
    /// The value's gradients with respect to the outputs of a shared layer.
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
        // rows of step 0, which are the sequences' own numbers
        self.begin(&rows[..n].iter().map(|&row| index(row)), n, sequences.states);
        if let Layers::Shared(layer) = &self.layers {
            reserve(&mut self.value_gradients, rows.len() * row_stride(layer.units));
        }
        self.forward(simd, packed, n);
    }

    /// Updates the `states` of sequences by one observation each.
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

    /// Takes the input of network `which`, 0 for the policy's, from the states after an observation
    /// each.
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

    /// Backpropagates through the sequences of the last [`Memory::replay`].
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

    /// Inputs of the two networks from row `first` on and buffers of their gradients.
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

/// Runs the same work on all layers, two of them in parallel, for `rows` rows.
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

impl Learner<f32> {
    /// Updates the states of N episodes by one observation each: `states`, N × the size of a state,
    /// 0 at the start of an episode, are overwritten with the states after it, which
    /// [`Learner::act`] and [`Learner::values`] take. Without parameters, the held ones are used.
    ///
    /// # Errors
    /// [`KernelError::Shape`] if a length does not fit or parameters are missing.
    pub fn remember(
        &mut self,
        parameters: Option<&[f32]>,
        obs: &[f32],
        states: &mut [f32],
    ) -> Result<()> {
        let (obs_dim, size) = (self.shape.obs_dim(), self.shape.state_size());
        let n = obs.len() / obs_dim;
        self.check_parameters(parameters)?;
        check_len("obs", obs.len(), "whole observations", n * obs_dim)?;
        check_len("state", states.len(), "observations * state_size", n * size)?;
        if self.packed.memory.is_some() && n > 0 {
            if let Some(parameters) = parameters {
                self.packed.load_memory(parameters);
            }
            Arch::new().dispatch(Remember { learner: self, obs, states });
        }
        Ok(())
    }
}

/// The arguments of [`Learner::remember`].
struct Remember<'a> {
    learner: &'a mut Learner<f32>,
    obs: &'a [f32],
    states: &'a mut [f32],
}

impl WithSimd for Remember<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Learner { packed, block, .. } = self.learner;
        if let (Some(packed), Some(memory)) = (&packed.memory, &mut block.memory) {
            memory.remember(simd, packed, self.obs, self.states);
        }
    }
}
