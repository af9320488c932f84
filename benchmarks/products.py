"""The matrix products of gradient steps alone, as autograd multiplies them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from rlox.nn import torch_threads

Tensors = list[torch.Tensor]


def network(*sizes: int) -> Tensors:
    """Return a perceptron's weights, inputs × outputs each."""
    return [torch.randn(*shape) / 16 for shape in pairwise(sizes)]


class Products:
    """Products of batches with weights in torch, gathered first and then computed by :meth:`run`.

    They share operands where those of a gradient step do; each has a result of its own.

    Args:
        batch_size: rows of a batch.
    """

    def __init__(self, batch_size: int) -> None:
        self.batch_size = batch_size
        self._calls: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []

    def run(self) -> None:
        """Compute them one after the other."""
        for left, right, out in self._calls:
            torch.mm(left, right, out=out)

    def forward(self, weights: Tensors, repeats: int = 1) -> Tensors:
        """Gather those of a forward pass, with ``repeats`` rows for each row of the batch.

        Returns:
            The inputs of all layers, and the outputs.
        """
        values = [torch.randn(repeats * self.batch_size, len(weights[0]))]
        for weight in weights:
            values.append(self._multiply(values[-1], weight))
        return values

    def backward(
        self, weights: Tensors, values: Sequence[torch.Tensor], *, to_inputs: bool = False
    ) -> None:
        """Gather those of a backward pass: to weights, or with ``to_inputs`` to inputs alone."""
        gradient = torch.randn_like(values[-1])
        for layer in reversed(range(len(weights))):
            if not to_inputs:
                self._multiply(values[layer].T, gradient)
            if layer or to_inputs:
                gradient = self._multiply(gradient, weights[layer].T)

    def learn(self, weights: Tensors, repeats: int = 1) -> None:
        """Gather those of a regression's gradient."""
        self.backward(weights, self.forward(weights, repeats))

    def _multiply(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        out = torch.empty(left.shape[0], right.shape[1])
        self._calls.append((left, right, out))
        return out


def learn_critics(
    products: Products, inputs: int, hidden: int, next_actions: Tensors
) -> list[Tensors]:
    """Gather those of two critics' regression on their targets; return the critics.

    Args:
        products: gathers them.
        inputs: observed numbers and actions.
        hidden: units of both layers.
        next_actions: weights of the network that chooses the targets' actions.
    """
    critics, targets = ([network(inputs, hidden, hidden, 1) for _ in range(2)] for _ in range(2))
    for weights in (next_actions, *targets):
        products.forward(weights)
    for critic in critics:
        products.learn(critic)
    return critics


def products_of_sac(obs_dim: int, act_dim: int, hidden: int, batch_size: int) -> Products:
    """Return those of SAC's gradient step, sixteen of them hidden × hidden."""
    products = Products(batch_size)
    policy = network(obs_dim, hidden, hidden, 2 * act_dim)
    critics = learn_critics(products, obs_dim + act_dim, hidden, policy)
    values = products.forward(policy)
    for critic in critics:
        products.backward(critic, products.forward(critic), to_inputs=True)
    products.backward(policy, values)
    return products


def products_of_td3(
    obs_dim: int, act_dim: int, hidden: int, batch_size: int, *, moves_policy: bool
) -> Products:
    """Return those of TD3's gradient step of the critics, with or without one of the policy."""
    products = Products(batch_size)
    policy, target = (network(obs_dim, hidden, hidden, act_dim) for _ in range(2))
    critics = learn_critics(products, obs_dim + act_dim, hidden, target)
    if moves_policy:
        values = products.forward(policy)
        products.backward(critics[0], products.forward(critics[0]), to_inputs=True)
        products.backward(policy, values)
    return products


def products_of_dqn(obs_dim: int, n_actions: int, hidden: int, batch_size: int) -> Products:
    """Return those of DQN's gradient step."""
    products = Products(batch_size)
    values, target = (network(obs_dim, hidden, hidden, n_actions) for _ in range(2))
    products.forward(target)
    products.learn(values)
    return products


def products_of_acting(rows: int, *sizes: int) -> Products:
    """Return those of a policy's forward pass, from observations to an action distribution."""
    products = Products(rows)
    products.forward(network(*sizes))
    return products


def products_of_ppo(obs_dim: int, act_dim: int, hidden: int, batch_size: int) -> Products:
    """Return those of PPO's step on a minibatch, with a network for actions and one for values."""
    products = Products(batch_size)
    for outputs in (act_dim, 1):
        products.learn(network(obs_dim, hidden, hidden, outputs))
    return products


def multiply(
    acting: Sequence[Products],
    steps: int,
    learning: Sequence[Products],
    updates: int,
    *,
    threads: int = 1,
) -> None:
    """Compute the products of a training.

    Args:
        acting: all are computed in each vector step.
        steps: number of vector steps.
        learning: one is computed in each gradient step, in turn.
        updates: number of gradient steps.
        threads: of torch.
    """
    with torch.no_grad(), torch_threads(threads):
        for _ in range(steps):
            for each in acting:
                each.run()
        for i in range(updates):
            learning[i % len(learning)].run()
