//! K critics of continuous actions, Q(s, a), of one size.

use std::ops::Range;

use pulp::Simd;
use rlox_kernels::threads;

use crate::linalg::{Aligned, BLOCK_ROWS, Gathered, Layer, Order, row_stride};
use crate::network::Network;
use crate::passes::{Gradients, Packed, Pass, backward_each, forward_each, loads};
use crate::runs::Hidden;
use crate::workspace::{Workspace, gradients};

/// K networks with parameters as in `rlox.nn.EnsembleMLP`: layer by layer the weights of all,
/// `inputs` × `outputs` each; then layer by layer the biases of all.
pub(super) fn ensemble(sizes: &[usize], n_members: usize, tanh: bool) -> Vec<Network> {
    let pairs = || sizes.windows(2).map(|pair| (pair[0], pair[1]));
    let all_weights: usize = pairs().map(|(inputs, outputs)| n_members * inputs * outputs).sum();
    let member = |k: usize| {
        let (mut weights, mut biases) = (0, all_weights);
        let layer = |(l, (inputs, outputs)): (usize, (usize, usize))| {
            let layer = Layer {
                inputs,
                outputs,
                weights: weights + k * inputs * outputs,
                bias: biases + k * outputs,
                order: Order::ByInputs,
                first: l == 0,
                gated: false,
            };
            weights += n_members * inputs * outputs;
            biases += n_members * outputs;
            layer
        };
        Network::of(pairs().enumerate().map(layer).collect(), tanh)
    };
    (0..n_members).map(member).collect()
}

/// Critics' parameters in the order of products, and memory for a block of rows.
#[derive(Debug)]
pub(super) struct Critics {
    packed: Vec<Packed<f32>>,
    workspaces: Vec<Workspace<f32>>,
    /// [`BLOCK_ROWS`] × (`obs_dim` + `act_dim`).
    inputs: Vec<f32>,
    /// Backward memory of each critic.
    ways: Vec<Way>,
}

/// Passes of all critics through `rows` rows of `inputs`.
fn passes<'a>(
    networks: &'a [Network],
    packed: &'a [Packed<f32>],
    workspaces: &'a mut [Workspace<f32>],
    inputs: &'a [f32],
    rows: usize,
) -> impl Iterator<Item = Pass<'a, f32>> {
    networks.iter().zip(packed).zip(workspaces).map(move |((network, packed), workspace)| Pass {
        network,
        packed,
        inputs,
        rows,
        workspace,
    })
}

/// Memory for the backward pass through a critic to its inputs.
#[derive(Debug)]
struct Way {
    input_gradients: Aligned<f32>,
    /// Rows with a gradient.
    kept: Vec<usize>,
}

impl Way {
    fn new(width: usize) -> Self {
        Self {
            input_gradients: Aligned::zeros(BLOCK_ROWS * row_stride(width)),
            kept: Vec::with_capacity(BLOCK_ROWS),
        }
    }

    /// Moves the rows whose values have a gradient to the front.
    fn keep_rows(&mut self, network: &Network, workspace: &mut Workspace<f32>, rows: usize) {
        let of_values = workspace.output_gradient().chunks_exact(network.output_stride());
        let has_gradient = |(row, of_value): (usize, &[f32])| (of_value[0] != 0.0).then_some(row);
        self.kept.clear();
        self.kept.extend(of_values.take(rows).enumerate().filter_map(has_gradient));
        workspace.keep_rows(&self.kept);
    }
}

impl Critics {
    pub(super) fn new(networks: &[Network]) -> Self {
        let width = networks.first().map_or(0, |network| network.input_stride);
        Self {
            packed: networks.iter().map(Packed::to_inputs).collect(),
            workspaces: networks.iter().map(Workspace::new).collect(),
            inputs: vec![0.0; BLOCK_ROWS * width],
            ways: networks.iter().map(|_| Way::new(width)).collect(),
        }
    }

    /// Input of [`load_each`](crate::passes::load_each).
    pub(super) fn loads<'a>(
        &'a mut self,
        networks: &'a [Network],
        parameters: &'a [f32],
    ) -> impl Iterator<Item = (&'a mut Packed<f32>, &'a Network, &'a [f32])> {
        loads(&mut self.packed, networks, parameters)
    }

    /// Evaluates the critics `members` at the actions, in rows of `act_dim`.
    #[inline(always)]
    pub(super) fn forward<S: Simd>(
        &mut self,
        simd: S,
        networks: &[Network],
        members: Range<usize>,
        obs: &[f32],
        actions: &[f32],
        rows: usize,
    ) {
        self.concatenate(obs, actions, rows);
        let Self { packed, workspaces, inputs, .. } = self;
        let passes = passes(networks, packed, workspaces, inputs, rows);
        let passes = passes.take(members.end).skip(members.start);
        forward_each(simd, passes.collect(), Hidden::Kept);
    }

    /// The same for all critics with the parameters of their `target` networks.
    #[inline(always)]
    pub(super) fn forward_target<S: Simd>(
        &mut self,
        simd: S,
        networks: &[Network],
        target: &[Packed<f32>],
        obs: &[f32],
        actions: &[f32],
        rows: usize,
    ) {
        self.concatenate(obs, actions, rows);
        let Self { workspaces, inputs, .. } = self;
        let passes = passes(networks, target, workspaces, inputs, rows);
        forward_each(simd, passes.collect(), Hidden::Overwritten);
    }

    /// Joins observations and actions into input rows.
    fn concatenate(&mut self, obs: &[f32], actions: &[f32], rows: usize) {
        let (obs_dim, act_dim) = (obs.len() / rows, actions.len() / rows);
        let parts = obs.chunks_exact(obs_dim).zip(actions.chunks_exact(act_dim));
        for (input, (obs, action)) in self.inputs.chunks_exact_mut(obs_dim + act_dim).zip(parts) {
            input[..obs_dim].copy_from_slice(obs);
            input[obs_dim..].copy_from_slice(action);
        }
    }

    /// The value of a row by critic `k`.
    pub(super) fn value(&self, networks: &[Network], k: usize, row: usize) -> f32 {
        self.workspaces[k].output()[row * networks[k].output_stride()]
    }

    /// The smallest of all critics' values of a row (Fujimoto et al. 2018, equation 10).
    pub(super) fn smallest(&self, networks: &[Network], row: usize) -> f32 {
        let values = (0..networks.len()).map(|k| self.value(networks, k, row));
        // Not `min`, which would hide NaN.
        values.fold(
            f32::INFINITY,
            |least, value| {
                if value >= least || least.is_nan() { least } else { value }
            },
        )
    }

    /// Sets the gradient with respect to the value of a row by critic `k`.
    pub(super) fn set_gradient(
        &mut self,
        networks: &[Network],
        k: usize,
        row: usize,
        gradient: f32,
    ) {
        let stride = networks[k].output_stride();
        self.workspaces[k].output_gradient()[row * stride] = gradient;
    }

    /// Adds the parameters' gradients for the rows of the last [`Critics::forward`].
    #[inline(always)]
    pub(super) fn backward<S: Simd>(
        &mut self,
        simd: S,
        networks: &[Network],
        members: Range<usize>,
        rows: usize,
    ) {
        let Self { packed, workspaces, inputs, .. } = self;
        let passes = passes(networks, packed, workspaces, inputs, rows);
        let passes = passes.take(members.end).skip(members.start);
        backward_each(simd, passes.map(|pass| (pass, Gradients::Parameters)).collect());
    }

    /// Adds the actions' gradients through the first `used` critics.
    ///
    /// Each critic's backward pass only covers rows whose value has a gradient: about half of them
    /// in SAC, which uses the smaller value. It overwrites the values.
    #[inline(always)]
    pub(super) fn backward_to_actions<S: Simd>(
        &mut self,
        simd: S,
        networks: &[Network],
        used: usize,
        rows: usize,
        gradients: &mut [f32],
    ) {
        let act_dim = gradients.len() / rows;
        let Self { packed, workspaces, inputs, ways } = self;
        let networks = &networks[..used];
        let helpers = networks.first().map_or(0, |network| network.helpers(rows));
        let parts = networks.iter().zip(&mut *workspaces).zip(&mut *ways).collect();
        threads::for_each(parts, helpers, |((network, workspace), way)| {
            way.keep_rows(network, workspace, rows);
        });
        let parts = networks.iter().zip(&*packed).zip(workspaces).zip(&mut *ways);
        let going = parts.filter(|(_, way)| !way.kept.is_empty());
        let passes = going.map(|(((network, packed), workspace), way)| {
            let pass = Pass { network, packed, inputs, rows: way.kept.len(), workspace };
            (pass, Gradients::Inputs(&mut way.input_gradients))
        });
        backward_each(simd, passes.collect());
        // In the critics' order, because sums round.
        for (network, Way { input_gradients, kept }) in networks.iter().zip(ways) {
            let width = network.input_stride;
            let of_inputs = input_gradients.chunks_exact(row_stride(width));
            for (&row, of_inputs) in kept.iter().zip(of_inputs) {
                let sums = &mut gradients[row * act_dim..][..act_dim];
                for (sum, &gradient) in sums.iter_mut().zip(&of_inputs[width - act_dim..]) {
                    *sum += gradient;
                }
            }
        }
    }

    pub(super) fn clear_gradients(&mut self) {
        self.workspaces.iter_mut().for_each(Workspace::clear_gradients);
    }

    /// Multiplies the parameters' gradients accumulated so far by `factor`.
    pub(super) fn scale_gradients(&mut self, factor: f32) {
        self.workspaces.iter_mut().for_each(|workspace| workspace.scale_gradients(factor));
    }

    /// The parameters' gradients.
    pub(super) fn gradients<'a>(
        &'a self,
        networks: &'a [Network],
    ) -> impl Iterator<Item = Gathered<'a, f32>> {
        gradients(&self.workspaces, networks)
    }
}
