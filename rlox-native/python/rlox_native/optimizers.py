"""Conversion of torch's optimisers for the Rust learners."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from rlox.errors import BackendError
from rlox.nn import FlatOptimizer


def step_rule(optimizer: FlatOptimizer) -> dict[str, Any]:
    """Return the optimiser's constants as arguments of the Rust learners.

    Raises:
        BackendError: it is neither Adam nor RMSprop, has options unknown to the learners, or moves
            parameters of a dtype other than float32.
    """
    if optimizer.parameters.dtype != torch.float32:
        raise BackendError(f"it computes in float32, not {optimizer.parameters.dtype}")
    options, kind = optimizer.options, optimizer.optimizer_class
    if optimizer.clip is not None:
        raise BackendError("it bounds gradients by their Euclidean norm, not by a rule")
    plain = {"weight_decay", "amsgrad", "maximize", "momentum", "centered"}
    used = [name for name in sorted(plain & options.keys()) if options[name]]
    if used:
        raise BackendError(f"its optimisers have no {', '.join(used)}")
    if kind is torch.optim.Adam:
        return {"betas": options["betas"], "eps": options["eps"]}
    if kind is torch.optim.RMSprop:
        return {"alpha": options["alpha"], "eps": options["eps"]}
    raise BackendError(f"its optimisers are Adam and RMSprop, not {kind.__name__}")


class Adam:
    """Parameters and moments that a Rust learner updates instead of torch's Adam.

    Args:
        optimizer: the optimiser of all parameters of a network.
        n_parameters: number of parameters of the learner.

    Raises:
        BackendError: the optimiser is not Adam, or the parameters differ.
    """

    def __init__(self, optimizer: FlatOptimizer, n_parameters: int) -> None:
        if len(optimizer.parameters) != n_parameters:
            raise BackendError(
                "it learns a network's parameters; some are added, shared or missing"
            )
        rule = step_rule(optimizer)
        if "betas" not in rule:
            raise BackendError("its optimiser of networks with a replay buffer is Adam")
        self._optimizer = optimizer
        self.parameters = optimizer.parameters.numpy()
        """(P,)"""
        self._constants = {**rule, "max_grad_norm": optimizer.max_grad_norm}
        self._found: torch.Tensor | None = None
        self._count: npt.NDArray[Any]
        """The steps taken, shape (), in the optimiser's memory."""
        self._learnt: dict[str, Any]

    def arguments(self) -> dict[str, Any]:
        """Return the argument ``learnt`` of a Rust learner's step.

        NumPy views are kept, because torch's access to a number is many times slower; they are
        renewed when a state is loaded.
        """
        state = self._optimizer.state()
        if state["step"] is not self._found:
            self._found = state["step"]
            self._count = self._found.numpy()
            self._learnt = {
                "parameters": self.parameters,
                "first_moments": state["exp_avg"].numpy(),
                "second_moments": state["exp_avg_sq"].numpy(),
                **self._constants,
            }
        self._learnt["step"] = int(self._count.item())
        return self._learnt

    def count(self) -> None:
        """Count the step that the learner took with :meth:`arguments`."""
        self._count.fill(self._learnt["step"] + 1)  # an in-place sum is many times slower

    def step_down(self, gradient: float, learning_rate: float) -> None:
        """Take one step down the gradient of a single parameter, such as a temperature.

        Torch's own step imports its compiler on first use and takes three times as long.

        Source:
            Kingma and Ba 2015, "Adam: a method for stochastic optimization", algorithm 1.
        """
        learnt, (beta1, beta2) = self.arguments(), self._constants["betas"]
        self.count()
        # Plain numbers, because NumPy is many times slower with arrays of one element.
        memory = self.parameters, learnt["first_moments"], learnt["second_moments"]
        parameter, first, second = (array.item() for array in memory)
        first += (1 - beta1) * (gradient - first)
        second += (1 - beta2) * (gradient**2 - second)
        step = learnt["step"] + 1
        spread = math.sqrt(second / (1 - beta2**step)) + self._constants["eps"]
        parameter -= learning_rate / (1 - beta1**step) * (first / spread)
        for array, value in zip(memory, (parameter, first, second), strict=True):
            array.fill(value)

    def exponential(self) -> float:
        """Return the exponential of the single parameter, in the parameter's precision."""
        return float(np.exp(self.parameters[0]))
