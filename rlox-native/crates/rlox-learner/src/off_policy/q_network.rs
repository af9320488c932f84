//! Values of all discrete actions, plain or dueling: forward and backward pass.

use pulp::Simd;

use super::check_sizes;
use crate::Real;
use crate::linalg::{BLOCK_ROWS, Gathered, Layer};
use crate::network::Network;
use crate::passes::{
    Gradients, Packed, Pass, backward, backward_each, forward, forward_each, loads,
};
use crate::runs::Hidden;
use crate::workspace::{Workspace, gradients};
use rlox_kernels::error::Result;
use rlox_kernels::threads;

/// The shape of a network from observations to the values of all actions, with `ReLU` or
/// tanh between layers, and the order of its parameters in one flat array: layer by layer, weights
/// `outputs` × `inputs` before biases, as in `rlox.networks`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QNetwork {
    obs_dim: usize,
    n_actions: usize,
    kind: Kind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    Plain(Network),
    /// Q = V + A - mean A on a shared layer (Wang et al. 2016, equation 9).
    Dueling {
        shared: Network,
        value: Network,
        advantage: Network,
    },
}

impl QNetwork {
    /// One network with hidden layers of these sizes.
    ///
    /// # Errors
    /// [`KernelError::Range`](rlox_kernels::KernelError::Range) for a size outside `[1, 16384]`.
    pub fn plain(obs_dim: usize, hidden: &[usize], n_actions: usize, tanh: bool) -> Result<Self> {
        check_sizes(&[("obs_dim", obs_dim), ("actions", n_actions)], hidden)?;
        let sizes = [&[obs_dim], hidden, &[n_actions]].concat();
        let kind = Kind::Plain(Network::of(Layer::linear(&sizes, 0), tanh).one_output_a_row());
        Ok(Self { obs_dim, n_actions, kind })
    }

    /// A shared layer with two streams, one for the state's value and one for the advantages.
    ///
    /// # Errors
    /// [`KernelError::Range`](rlox_kernels::KernelError::Range) for a size outside `[1, 16384]`.
    pub fn dueling(obs_dim: usize, hidden: usize, n_actions: usize, tanh: bool) -> Result<Self> {
        check_sizes(&[("obs_dim", obs_dim), ("actions", n_actions)], &[hidden])?;
        let mut shared = Network::of(Layer::linear(&[obs_dim, hidden], 0), tanh);
        shared.activates_last = true;
        let stream = |outputs, offset| {
            let mut stream = Network::of(Layer::linear(&[hidden, hidden, outputs], offset), tanh);
            stream.input_stride = shared.output_stride();
            stream
        };
        let value = stream(1, shared.end());
        let advantage = stream(n_actions, value.end());
        Ok(Self { obs_dim, n_actions, kind: Kind::Dueling { shared, value, advantage } })
    }

    /// Components of an observation.
    #[must_use]
    pub fn obs_dim(&self) -> usize {
        self.obs_dim
    }

    /// Number of actions.
    #[must_use]
    pub fn n_actions(&self) -> usize {
        self.n_actions
    }

    /// Number of parameters.
    #[must_use]
    pub fn n_parameters(&self) -> usize {
        self.networks().last().map_or(0, |network| network.end())
    }

    /// Number of helpers for `rows` rows.
    pub(super) fn helpers(&self, rows: usize) -> usize {
        let networks = self.networks().into_iter();
        threads::product_helpers(networks.map(|network| network.multiply_adds(rows)).sum())
    }

    /// Whether a row's gradient goes from one output to a gated layer.
    pub(super) fn is_gated(&self) -> bool {
        self.single().is_some_and(|network| network.gated_width() > 0)
    }

    /// The network, if there is only one.
    pub(super) fn single(&self) -> Option<&Network> {
        if let Kind::Plain(network) = &self.kind { Some(network) } else { None }
    }

    pub(super) fn networks(&self) -> Vec<&Network> {
        match &self.kind {
            Kind::Plain(network) => vec![network],
            Kind::Dueling { shared, value, advantage } => vec![shared, value, advantage],
        }
    }
}

/// Parameters in the order of products, and memory for a block of rows.
#[derive(Debug)]
pub(super) struct QBlock {
    packed: Vec<Packed<f32>>,
    pub(super) workspaces: Vec<Workspace<f32>>,
    /// [`BLOCK_ROWS`] × actions: values, and the gradient with respect to them.
    pub(super) values: Vec<f32>,
    pub(super) gradients: Vec<f32>,
    /// Gradients of each stream with respect to the shared layer's outputs.
    of_streams: [Vec<f32>; 2],
}

impl QBlock {
    pub(super) fn new(shape: &QNetwork) -> Self {
        let networks = shape.networks();
        let zeros = |n: usize| vec![0.0; n];
        let pack = |(i, network): (usize, &&_)| {
            if i == 0 { Packed::new(network) } else { Packed::to_inputs(network) }
        };
        let shared = BLOCK_ROWS * networks[0].output_stride();
        Self {
            packed: networks.iter().enumerate().map(pack).collect(),
            workspaces: networks.iter().map(|network| Workspace::new(network)).collect(),
            values: zeros(BLOCK_ROWS * shape.n_actions),
            gradients: zeros(BLOCK_ROWS * shape.n_actions),
            of_streams: [zeros(shared), zeros(shared)],
        }
    }

    /// Input of [`load_each`](crate::passes::load_each).
    pub(super) fn loads<'a>(
        &'a mut self,
        shape: &'a QNetwork,
        parameters: &'a [f32],
    ) -> impl Iterator<Item = (&'a mut Packed<f32>, &'a Network, &'a [f32])> {
        loads(&mut self.packed, shape.networks(), parameters)
    }

    /// Computes the values of up to [`BLOCK_ROWS`] rows.
    #[inline(always)]
    pub(super) fn forward<S: Simd>(
        &mut self,
        simd: S,
        shape: &QNetwork,
        obs: &[f32],
        rows: usize,
        hidden: Hidden,
    ) {
        let Self { packed, workspaces, values, .. } = self;
        evaluate(simd, shape, packed, workspaces, (obs, rows), hidden, values);
    }

    /// The same with the parameters of a `target` network.
    #[inline(always)]
    pub(super) fn forward_target<S: Simd>(
        &mut self,
        simd: S,
        shape: &QNetwork,
        target: &[Packed<f32>],
        obs: &[f32],
        rows: usize,
    ) {
        let Self { workspaces, values, .. } = self;
        evaluate(simd, shape, target, workspaces, (obs, rows), Hidden::Overwritten, values);
    }

    /// Adds the gradients for the rows last passed to [`QBlock::forward`], given
    /// [`QBlock::gradients`].
    #[inline(always)]
    pub(super) fn backward<S: Simd>(
        &mut self,
        simd: S,
        shape: &QNetwork,
        obs: &[f32],
        rows: usize,
    ) {
        let width = shape.n_actions;
        let Self { packed, workspaces, gradients, of_streams: [of_first, of_second], .. } = self;
        let gradients = gradients.chunks_exact(width).take(rows);
        match (&shape.kind, workspaces.as_mut_slice()) {
            (Kind::Plain(network), [space, ..]) => {
                let stride = network.output_stride();
                for (to, from) in space.output_gradient().chunks_exact_mut(stride).zip(gradients) {
                    to[..width].copy_from_slice(from);
                }
                backward(simd, network, &packed[0], obs, rows, space, Gradients::Parameters);
            }
            (Kind::Dueling { shared, value, advantage }, [features, of_value, of_advantage]) => {
                let to_value = of_value.output_gradient().chunks_exact_mut(value.output_stride());
                let to_advantage =
                    of_advantage.output_gradient().chunks_exact_mut(advantage.output_stride());
                for (from, (to_value, to_advantage)) in gradients.zip(to_value.zip(to_advantage)) {
                    let mean = mean(from);
                    to_value[0] = from.iter().fold(0.0, |sum, &g| sum + g);
                    for (to, &g) in to_advantage.iter_mut().zip(from) {
                        *to = g - mean;
                    }
                }
                let inputs = features.output();
                let pass =
                    |network, packed, workspace| Pass { network, packed, inputs, rows, workspace };
                let value_pass = pass(value, &packed[1], of_value);
                let advantage_pass = pass(advantage, &packed[2], of_advantage);
                let gradients = [&mut *of_first, &mut *of_second].map(|out| Gradients::All(out));
                let passes = [value_pass, advantage_pass].into_iter().zip(gradients);
                backward_each(simd, passes.collect());
                let sums = of_first.iter().zip(of_second.iter());
                for (to, (&a, &b)) in features.output_gradient().iter_mut().zip(sums) {
                    *to = a + b;
                }
                backward(simd, shared, &packed[0], obs, rows, features, Gradients::Parameters);
            }
            (Kind::Dueling { .. } | Kind::Plain(_), _) => {}
        }
    }

    pub(super) fn clear_gradients(&mut self) {
        self.workspaces.iter_mut().for_each(Workspace::clear_gradients);
    }

    /// The parameters' gradients.
    pub(super) fn gradients<'a>(
        &'a self,
        shape: &'a QNetwork,
    ) -> impl Iterator<Item = Gathered<'a, f32>> {
        gradients(&self.workspaces, shape.networks())
    }
}

/// Computes the `values` of up to [`BLOCK_ROWS`] rows.
#[inline(always)]
fn evaluate<S: Simd>(
    simd: S,
    shape: &QNetwork,
    packed: &[Packed<f32>],
    workspaces: &mut [Workspace<f32>],
    (obs, rows): (&[f32], usize),
    hidden: Hidden,
    values: &mut [f32],
) {
    let width = shape.n_actions;
    match (&shape.kind, workspaces) {
        (Kind::Plain(network), [space, ..]) => {
            forward(simd, network, &packed[0], obs, rows, space, hidden);
            let outputs = space.output().chunks_exact(network.output_stride());
            for (to, from) in values.chunks_exact_mut(width).zip(outputs).take(rows) {
                to.copy_from_slice(&from[..width]);
            }
        }
        (Kind::Dueling { shared, value, advantage }, [features, of_value, of_advantage]) => {
            forward(simd, shared, &packed[0], obs, rows, features, hidden);
            let features = features.output();
            let pass = |network, packed, workspace| Pass {
                network,
                packed,
                inputs: features,
                rows,
                workspace,
            };
            let value_pass = pass(value, &packed[1], &mut *of_value);
            let advantage_pass = pass(advantage, &packed[2], &mut *of_advantage);
            forward_each(simd, vec![value_pass, advantage_pass], hidden);
            let state_values = of_value.output().chunks_exact(value.output_stride());
            let advantages = of_advantage.output().chunks_exact(advantage.output_stride());
            let rows = values.chunks_exact_mut(width).zip(state_values.zip(advantages)).take(rows);
            for (to, (state_value, advantages)) in rows {
                let mean = mean(&advantages[..width]);
                for (to, &advantage) in to.iter_mut().zip(advantages) {
                    *to = state_value[0] + advantage - mean;
                }
            }
        }
        (Kind::Dueling { .. } | Kind::Plain(_), _) => {}
    }
}

fn mean(values: &[f32]) -> f32 {
    #[expect(clippy::cast_precision_loss, reason = "actions are few")]
    let n = f32::of(values.len() as f64);
    values.iter().fold(0.0, |sum, &value| sum + value) / n
}
