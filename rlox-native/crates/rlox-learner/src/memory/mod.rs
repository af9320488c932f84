//! A memory between observations and networks: separate LSTM layers for policy and value.
//!
//! A minibatch consists of whole sequences, which pass through the layers all at once; the networks
//! after them process the outputs in blocks of rows, like observations. A row of the remembered
//! state is the policy's hidden and cell state, then the value's.

mod lstm;

use pulp::{Arch, Simd, WithSimd};
use rlox_kernels::error::{KernelError, Result, check_len};
use rlox_kernels::threads;

use super::actor_critic::index;
use super::linalg::{Gathered, Real, Rows};
use super::passes::Gradients;
use super::update::Learner;
pub(super) use lstm::Lstm;
use lstm::{PackedLstm, Unrolled};

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

/// The parameters of the layers in the order of products.
#[derive(Debug)]
pub(super) struct PackedMemory<F> {
    layers: [(Lstm, PackedLstm<F>); 2],
}

impl<F: Real> PackedMemory<F> {
    pub(super) fn new(lstms: [Lstm; 2]) -> Self {
        Self { layers: lstms.map(|lstm| (lstm, PackedLstm::new(lstm))) }
    }

    /// Copies the layers' parts of `parameters`.
    pub(super) fn load(&mut self, parameters: &[F]) {
        for (lstm, packed) in &mut self.layers {
            packed.load(*lstm, parameters);
        }
    }

    /// Both layers have the same shape.
    fn lstm(&self) -> Lstm {
        self.layers[0].0
    }
}

/// Memory for a minibatch of sequences in both layers and for their gradients.
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
        let obs_dim = packed.lstm().inputs();
        self.inputs.clear();
        self.starts.clear();
        for &row in rows {
            self.inputs.extend_from_slice(&obs[index(row) * obs_dim..][..obs_dim]);
            self.starts.push(sequences.starts[index(row)] != 0);
        }
        // rows of step 0, which are the sequences' own numbers
        self.begin(&rows[..n].iter().map(|&row| index(row)), n, sequences.states);
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
        let own = packed.lstm().state_size();
        for (j, state) in states.chunks_exact_mut(2 * own).enumerate() {
            for (layer, state) in self.layers.iter().zip(state.chunks_exact_mut(own)) {
                layer.write_state(j, state);
            }
        }
    }

    /// Takes the input of network `which`, 0 for the policy's, from the states after an observation
    /// each.
    pub(super) fn recall(&mut self, which: usize, states: &[F]) -> &[F] {
        let layer = &mut self.layers[which];
        let own = layer.state_size();
        layer.recall(states.chunks_exact(2 * own).map(|state| &state[which * own..]))
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
        let Self { inputs, starts, layers } = self;
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
        let Self { inputs, starts, layers } = self;
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
        let [(of_actor, to_actor), (of_critic, to_critic)] =
            self.layers.each_mut().map(|layer| layer.outputs(first));
        ([of_actor, of_critic], [Gradients::All(to_actor), Gradients::All(to_critic)])
    }

    /// The gradients of the last [`Memory::backward`].
    pub(super) fn gradients<'a>(
        &'a self,
        lstms: &'a [Lstm; 2],
    ) -> impl Iterator<Item = Gathered<'a, F>> {
        let layers = self.layers.iter().zip(lstms);
        layers.flat_map(|(layer, &lstm)| layer.gradients(lstm))
    }
}

/// Runs the same work on both layers in parallel, for `rows` rows.
#[inline(always)]
fn together<F: Real>(
    ([actor, critic], packed, rows): (&mut [Unrolled<F>; 2], &PackedMemory<F>, usize),
    run: impl Fn(&mut Unrolled<F>, &(Lstm, PackedLstm<F>)) + Sync,
) {
    let [of_actor, of_critic] = &packed.layers;
    let helpers = packed.lstm().helpers(rows);
    threads::join(helpers, || run(actor, of_actor), || run(critic, of_critic));
}

impl Learner<f32> {
    /// Updates the states of N episodes by one observation each: `states`, N × the size of a state,
    /// 0 at the start of an episode, are overwritten with the states after it, which
    /// [`Learner::act`] and [`Learner::values`] take.
    ///
    /// # Errors
    /// [`KernelError::Shape`] if a length does not fit.
    pub fn remember(&mut self, parameters: &[f32], obs: &[f32], states: &mut [f32]) -> Result<()> {
        let (obs_dim, size) = (self.shape.obs_dim(), self.shape.state_size());
        let n = obs.len() / obs_dim;
        check_len("parameters", parameters.len(), "the networks", self.shape.n_parameters())?;
        check_len("obs", obs.len(), "whole observations", n * obs_dim)?;
        check_len("state", states.len(), "observations * state_size", n * size)?;
        if self.packed.memory.is_some() && n > 0 {
            self.packed.load_memory(parameters);
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
