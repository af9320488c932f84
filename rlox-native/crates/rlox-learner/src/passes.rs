//! Multi-layer perceptrons: forward and backward passes over a block of rows.
//!
//! Rows are independent in the forward pass and in the backward pass to a layer's inputs: the rows
//! of all networks requested together are divided among threads, each of which takes its rows
//! through all layers. Parameter gradients, sums over all rows, come last, with the networks in
//! parallel.

use pulp::{Arch, Simd};
use rlox_kernels::threads;

use super::inlined::Inlined;
use super::linalg::{
    PackedLayer, Real, affine_backward_weights, affine_of_few, masked_outer_weights, row_stride,
};
use super::network::{Activation, Network};
use super::runs::{BackwardRows, ForwardRows, Hidden, rows_of, runs};
use super::stretches::{GatedLayer, find_stretches};
use super::workspace::Workspace;

/// The parameters of a network in the order of products.
#[derive(Debug)]
pub(super) struct Packed<F> {
    pub(super) layers: Vec<PackedLayer<F>>,
}

impl<F: Real> Packed<F> {
    /// For both directions, without gradients of the inputs.
    pub(super) fn new(network: &Network) -> Self {
        let layers = network.layers.iter().enumerate();
        Self { layers: layers.map(|(l, &layer)| PackedLayer::new(layer, l > 0)).collect() }
    }

    /// For both directions, with gradients of the inputs.
    pub(super) fn to_inputs(network: &Network) -> Self {
        Self { layers: network.layers.iter().map(|&layer| PackedLayer::new(layer, true)).collect() }
    }

    /// Only for [`forward`].
    pub(super) fn forward_only(network: &Network) -> Self {
        Self {
            layers: network.layers.iter().map(|&layer| PackedLayer::new(layer, false)).collect(),
        }
    }

    /// Copies the network's part of `parameters`.
    #[inline(always)]
    pub(super) fn load(&mut self, network: &Network, parameters: &[F]) {
        for (packed, &layer) in self.layers.iter_mut().zip(&network.layers) {
            packed.load(layer, parameters);
        }
    }
}

/// Input of [`load_each`]: each network's part of `parameters`.
pub(super) fn loads<'a, F: Real>(
    packed: &'a mut [Packed<F>],
    networks: impl IntoIterator<Item = &'a Network>,
    parameters: &'a [F],
) -> impl Iterator<Item = (&'a mut Packed<F>, &'a Network, &'a [F])> {
    let networks = packed.iter_mut().zip(networks);
    networks.map(move |(packed, network)| (packed, network, parameters))
}

/// Copies the parts of several networks, layers in parallel if there are `helpers`; a helper stays
/// awake for the next work.
pub(super) fn load_each<'a, F: Real>(
    helpers: usize,
    loads: impl IntoIterator<Item = (&'a mut Packed<F>, &'a Network, &'a [F])>,
) {
    let of_layers = loads.into_iter().flat_map(|(packed, network, parameters)| {
        let layers = packed.layers.iter_mut().zip(&network.layers);
        layers.map(move |(packed, &layer)| (packed, layer, parameters))
    });
    let load = |(packed, layer, parameters): (&mut PackedLayer<F>, _, _)| {
        Arch::new().dispatch(Inlined(
            #[inline(always)]
            || packed.load(layer, parameters),
        ));
    };
    if helpers == 0 {
        of_layers.for_each(load);
    } else {
        threads::for_each(of_layers.collect(), helpers, load);
    }
}

/// A network and a block of up to [`BLOCK_ROWS`](super::linalg::BLOCK_ROWS) `rows` of `inputs`.
#[derive(Debug)]
pub(super) struct Pass<'a, F> {
    pub(super) network: &'a Network,
    pub(super) packed: &'a Packed<F>,
    pub(super) inputs: &'a [F],
    pub(super) rows: usize,
    pub(super) workspace: &'a mut Workspace<F>,
}

impl<F> Pass<'_, F> {
    fn multiply_adds(&self) -> usize {
        self.network.multiply_adds(self.rows)
    }
}

/// Computes the outputs of `rows` rows of `inputs`; only [`Hidden::Kept`] outputs can go back.
#[inline(always)]
pub(super) fn forward<F: Real, S: Simd>(
    simd: S,
    network: &Network,
    packed: &Packed<F>,
    inputs: &[F],
    rows: usize,
    workspace: &mut Workspace<F>,
    hidden: Hidden,
) {
    forward_each(simd, vec![Pass { network, packed, inputs, rows, workspace }], hidden);
}

/// Computes the outputs of all `passes`.
#[inline(always)]
pub(super) fn forward_each<F: Real, S: Simd>(simd: S, passes: Vec<Pass<'_, F>>, hidden: Hidden) {
    let helpers = threads::product_helpers(passes.iter().map(Pass::multiply_adds).sum());
    let wholes = passes.into_iter().map(|pass| ForwardRows::new(pass, hidden));
    if helpers == 0 {
        return wholes.for_each(
            #[inline(always)]
            |whole| whole.run(simd),
        );
    }
    let wholes = wholes.collect();
    threads::for_each(runs(wholes, helpers + 1), helpers, |run| {
        for part in run {
            part.run(simd);
        }
    });
}

/// Up to this number of rows, products with unpacked parameters take less time than packing the
/// parameters for larger products.
pub(super) const FEW_ROWS: usize = 4;

/// Computes the outputs of up to [`FEW_ROWS`] rows of a network whose `parameters` are not packed,
/// without a backward pass.
#[inline(always)]
pub(super) fn forward_few<F: Real, S: Simd>(
    simd: S,
    network: &Network,
    parameters: &[F],
    inputs: &[F],
    rows: usize,
    workspace: &mut Workspace<F>,
) {
    simd.vectorize(Inlined(
        #[inline(always)]
        || {
            let mut inputs = network.inputs(inputs, rows);
            for (l, (&layer, out)) in network.layers.iter().zip(&mut workspace.outputs).enumerate()
            {
                let out = &mut out[..rows * row_stride(layer.outputs)];
                let rectifies = network.activates(l, Activation::Relu);
                affine_of_few(simd, layer, parameters, inputs, rectifies, out);
                if network.activates(l, Activation::Tanh) {
                    F::tanh_all(simd, out);
                }
                inputs = rows_of(out, rows, layer.outputs);
            }
        },
    ));
}

/// Gradients that [`backward`] computes in addition to those of the hidden outputs.
#[derive(Debug)]
pub(super) enum Gradients<'a, F> {
    /// The parameters', added to the workspace's.
    Parameters,
    /// The inputs', into rows of [`row_stride`](super::linalg::row_stride).
    Inputs(&'a mut [F]),
    /// Both.
    All(&'a mut [F]),
}

impl<F> Gradients<'_, F> {
    fn of_parameters(&self) -> bool {
        !matches!(self, Gradients::Inputs(_))
    }

    fn of_inputs(&mut self) -> Option<&mut [F]> {
        match self {
            Gradients::Parameters => None,
            Gradients::Inputs(out) | Gradients::All(out) => Some(out),
        }
    }
}

/// Backpropagates the rows last passed to [`forward`] through the network, given their
/// [`Workspace::output_gradient`].
#[inline(always)]
pub(super) fn backward<F: Real, S: Simd>(
    simd: S,
    network: &Network,
    packed: &Packed<F>,
    inputs: &[F],
    rows: usize,
    workspace: &mut Workspace<F>,
    gradients: Gradients<'_, F>,
) {
    backward_each(simd, vec![(Pass { network, packed, inputs, rows, workspace }, gradients)]);
}

/// Backpropagates through all `passes`, as [`backward`] does.
#[inline(always)]
pub(super) fn backward_each<F: Real, S: Simd>(
    simd: S,
    mut passes: Vec<(Pass<'_, F>, Gradients<'_, F>)>,
) {
    let multiply_adds = passes.iter().map(|(pass, _)| pass.multiply_adds()).sum();
    let helpers = threads::product_helpers(multiply_adds);
    for (Pass { network, rows, workspace, .. }, _) in &mut passes {
        let gradients = workspace.deltas.last().map_or(&[][..], |last| last);
        find_stretches(network, gradients, *rows, &mut workspace.stretches);
    }
    if helpers == 0 {
        // One network after the other, to keep its parameters and outputs in the caches.
        for (pass, gradients) in &mut passes {
            BackwardRows::new(pass, gradients.of_inputs(), 1).run(simd);
            if gradients.of_parameters() {
                add_gradients(simd, pass, 1);
            }
        }
        return;
    }
    let wholes = passes
        .iter_mut()
        .map(|(pass, gradients)| BackwardRows::new(pass, gradients.of_inputs(), helpers + 1));
    threads::for_each(runs(wholes.collect(), helpers + 1), helpers, |run| {
        for part in run {
            part.run(simd);
        }
    });
    let learning = passes.iter_mut().filter(|(_, gradients)| gradients.of_parameters());
    let learning: Vec<_> = learning.collect();
    let threads = (helpers + 1).div_ceil(learning.len().max(1));
    threads::for_each(learning, helpers, |(pass, _)| add_gradients(simd, pass, threads));
}

/// Adds the gradients of the parameters, given those of all layers' outputs.
#[inline(always)]
fn add_gradients<F: Real, S: Simd>(simd: S, pass: &mut Pass<'_, F>, threads: usize) {
    simd.vectorize(Inlined(
        #[inline(always)]
        || add_all(simd, pass, threads),
    ));
}

#[inline(always)]
fn add_all<F: Real, S: Simd>(simd: S, pass: &mut Pass<'_, F>, threads: usize) {
    let Pass { network, packed, inputs, rows, workspace } = pass;
    let adds = workspace.has_gradients;
    let Workspace {
        outputs,
        deltas,
        weight_gradients,
        bias_gradients,
        stretches,
        gate_memories,
        ..
    } = &mut **workspace;
    for (l, &layer) in network.layers.iter().enumerate() {
        let [weights, biases] = [&mut *weight_gradients[l], &mut *bias_gradients[l]];
        let inputs = match l.checked_sub(1) {
            None => network.inputs(inputs, *rows),
            Some(k) => rows_of(&outputs[k], *rows, layer.inputs),
        };
        if layer.gated && !stretches.is_empty() {
            let gradients = &deltas[l + 1];
            let gated =
                GatedLayer::new(network, packed, l, inputs.elements, &outputs[l], gradients);
            for (i, stretch) in stretches.iter().enumerate() {
                let (adds, gradients) = (adds || i > 0, [&mut *weights, &mut *biases]);
                let memories = &mut gate_memories[..threads];
                masked_outer_weights(simd, gated.gate(stretch), adds, memories, gradients);
            }
        } else {
            let deltas = rows_of(&deltas[l], *rows, layer.outputs);
            affine_backward_weights(simd, layer, inputs, deltas, adds, [weights, biases]);
        }
    }
    workspace.has_gradients = true;
}
