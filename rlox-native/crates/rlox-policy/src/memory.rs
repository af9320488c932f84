//! Layers that remember: LSTM, GRU, and the state of `DreamerV3`'s world model.

use std::sync::Arc;

use crate::activations::sigmoid;
use crate::array::{Array, round32, side_by_side};
use crate::dense::linear;
use crate::error::{Result, damaged};
use crate::layers::{Input, Layer};
use crate::step::Step;
use crate::tree::Node;

/// A step of an LSTM or a GRU.
pub(crate) struct Recurrent {
    is_lstm: bool,
    size: usize,
    /// Of input and hidden state: weight and bias.
    sides: [[Arc<Array>; 2]; 2],
}

impl Recurrent {
    pub(crate) fn read(node: &Node<'_>) -> Result<Self> {
        let kind = node.get("kind")?;
        let is_lstm = match kind.text()? {
            "lstm" => true,
            "gru" => false,
            _ => return kind.expected("lstm or gru"),
        };
        let weight = |key| node.get(key)?.array_of::<2>();
        let [input, hidden] = [weight("input_weight")?, weight("hidden_weight")?];
        let [gates, size] = hidden.dims("a hidden weight")?;
        if size.checked_mul(if is_lstm { 4 } else { 3 }) != Some(gates) || input.shape()[0] != gates
        {
            return damaged(format!(
                "a memory has weights {:?} and {:?}",
                input.shape(),
                hidden.shape()
            ));
        }
        let bias = |key| node.get(key)?.vector(Some(gates));
        let sides = [[input, bias("input_bias")?], [hidden, bias("hidden_bias")?]];
        Ok(Self { is_lstm, size, sides })
    }

    pub(crate) fn state_size(&self) -> usize {
        self.size * if self.is_lstm { 2 } else { 1 }
    }

    pub(crate) fn compute(&self, x: &Array, step: &mut Step<'_>) -> Result<Array> {
        let n = self.size;
        let hidden = step.recall(n)?;
        if x.shape().len() != 2 || x.rows() != hidden.rows() {
            return damaged(format!("a memory takes columns, got {:?}", x.shape()));
        }
        let [of_input, of_hidden] = &self.sides;
        let given = linear(x, &of_input[0], &of_input[1])?;
        let own = linear(&hidden, &of_hidden[0], &of_hidden[1])?;
        let mut after = Array::zeros(vec![x.rows(), n]);
        if !self.is_lstm {
            for i in 0..x.rows() {
                let (g, r, h) = (given.row(i), own.row(i), hidden.row(i));
                for (j, new) in after.row_mut(i).iter_mut().enumerate() {
                    let update = sigmoid(g[n + j] + r[n + j]);
                    let candidate = (g[2 * n + j] + sigmoid(g[j] + r[j]) * r[2 * n + j]).tanh();
                    *new = round32((1.0 - update) * candidate + update * h[j]);
                }
            }
            step.remember(after.clone());
            return Ok(after);
        }
        let mut cells = step.recall(n)?;
        for i in 0..x.rows() {
            let (g, r, cell) = (given.row(i), own.row(i), cells.row_mut(i));
            for (j, new) in after.row_mut(i).iter_mut().enumerate() {
                let gate = |k: usize| g[k * n + j] + r[k * n + j];
                cell[j] = round32(sigmoid(gate(1)) * cell[j] + sigmoid(gate(0)) * gate(2).tanh());
                *new = round32(sigmoid(gate(3)) * cell[j].tanh());
            }
        }
        step.remember(side_by_side(&[after.clone(), cells])?);
        Ok(after)
    }
}

/// A step of `DreamerV3`'s state, and the action there as the model sees it.
pub(crate) struct WorldModel {
    /// Of deter, stoch and action.
    pub(crate) sizes: [usize; 3],
    before: [Layer; 3],
    own: Layer,
    shared: Layer,
    norm: Layer,
    gates: Layer,
    posterior: Layer,
    policy: Layer,
    blocks: usize,
}

impl WorldModel {
    pub(crate) fn read(node: &Node<'_>) -> Result<Self> {
        let layer = |key| Layer::read(&node.get(key)?);
        let sizes = node.get("sizes")?;
        let [blocks, ..] = node.get("gates")?.get("weight")?.array()?.dims::<3>("gates")?;
        let sizes =
            <[usize; 3]>::try_from(sizes.sizes()?).or_else(|_| sizes.expected("3 sizes"))?;
        if blocks == 0 || sizes[0] % blocks != 0 {
            return damaged(format!("{blocks} blocks do not divide {} numbers", sizes[0]));
        }
        Ok(Self {
            sizes,
            before: [layer("deter")?, layer("stoch")?, layer("action")?],
            own: layer("own")?,
            shared: layer("shared")?,
            norm: layer("norm")?,
            gates: layer("gates")?,
            posterior: layer("posterior")?,
            policy: layer("policy")?,
            blocks,
        })
    }

    /// See [`Layer::asks_for`].
    pub(crate) fn asks_for(&self) -> usize {
        let parts =
            [&self.own, &self.shared, &self.norm, &self.gates, &self.posterior, &self.policy];
        let within = parts.into_iter().chain(&self.before).map(Layer::asks_for).max();
        within.unwrap_or(0).max(self.sizes.iter().sum())
    }

    pub(crate) fn compute(&self, x: Array, step: &mut Step<'_>) -> Result<Array> {
        let mut recalled = Vec::with_capacity(3);
        for size in self.sizes {
            recalled.push(step.recall(size)?);
        }
        let mut deter = recalled[0].clone();
        let mut parts = Vec::with_capacity(3);
        for (layer, part) in self.before.iter().zip(recalled) {
            parts.push(layer.compute(Input::Array(part), step)?);
        }
        let seen = Input::Array(side_by_side(&parts)?);
        let shared = self.shared.compute(seen, step)?;
        let own = self.own.compute(Input::Array(deter.clone()), step)?;
        let inputs = own.zip(&shared, |x, y| round32(x + y))?;
        let normed = self.norm.compute(Input::Array(inputs), step)?;
        let gates = self.gates.compute(Input::Array(normed), step)?;
        let n = self.sizes[0] / self.blocks;
        if gates.width() != 3 * self.sizes[0] || gates.rows() != deter.rows() {
            return damaged(format!(
                "gates {:?} are not three of {} numbers",
                gates.shape(),
                self.sizes[0]
            ));
        }
        for i in 0..deter.rows() {
            let gates = gates.row(i);
            for (j, d) in deter.row_mut(i).iter_mut().enumerate() {
                let gate = |k: usize| gates[j / n * 3 * n + k * n + j % n];
                let candidate = (sigmoid(gate(0)) * gate(1)).tanh();
                *d = round32(*d + sigmoid(gate(2) - 1.0) * (candidate - *d));
            }
        }
        let seen = side_by_side(&[deter.clone(), x])?;
        let stoch = self.posterior.compute(Input::Array(seen), step)?;
        let state = side_by_side(&[deter, stoch])?;
        let chosen = self.policy.compute(Input::Array(state.clone()), step)?;
        step.remember(side_by_side(&[state, chosen.clone()])?);
        Ok(chosen)
    }
}
