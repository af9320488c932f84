"""Q-learning in Rust: the gradient steps of DQN."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from rlox.batches.transitions import TransitionBatch
from rlox.errors import BackendError
from rlox.learners.transitions import ReplayTask, StepResult
from rlox.networks import DiscreteQNetwork, DuelingQNetwork
from rlox.nn import flatten_parameters
from torch import Tensor, nn

from rlox_native._native import QLearner
from rlox_native.optimizers import Adam
from rlox_native.perceptrons import (
    activation_of,
    as_array,
    batch_arrays,
    make_rust_learner,
    require_plain,
    sizes_of,
)


class NativeQLearner:
    """Takes the gradient steps of ``QLearning``.

    Args:
        task: the task to learn.

    Raises:
        BackendError: the network is not a default one.
    """

    takes_arrays = True
    """See ``rlox.learners.transitions.ReplayLearner``."""

    def __init__(self, task: ReplayTask) -> None:
        objective, parts = task.objective, task.parts
        self._task = task
        self._learner = _q_learner(parts.network)
        self._adam = Adam(parts.optimizers["network"], self._learner.n_parameters)
        self._target = flatten_parameters(parts.network_target).numpy()
        self._options = {"double": objective.double, "huber": objective.loss == "huber"}

    def step(self, name: str, batch: TransitionBatch, learning_rate: float) -> StepResult:
        """Take one of the objective's steps; see ``rlox.learners.transitions.ReplayLearner``."""
        if name != "learn":  # the step of the target, which torch takes
            moved: StepResult = getattr(self._task.objective, name)(
                self._task.parts, batch, learning_rate
            )
            return moved
        loss, value, errors = self._learner.step(
            self._adam.arguments(),
            self._target,
            batch_arrays(batch),
            learning_rate=learning_rate,
            **self._options,
        )
        self._adam.count()
        return StepResult({"q_loss": loss, "q_value": value}, errors)

    def act(self, obs: Tensor | npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Return the actions (N,) of the highest values."""
        return self._learner.act(self._adam.parameters, as_array(obs))

    def gradients(self) -> npt.NDArray[Any]:
        """Return the clipped gradient of the last step, (P,) like the parameters."""
        return self._learner.gradients()


def _q_learner(network: nn.Module) -> QLearner:
    if getattr(network, "n_atoms", None) is not None:
        raise BackendError("it learns values, not the distributions of returns")
    require_plain(network)
    if type(network) is DuelingQNetwork:
        net: Any = network.shared
        sizes, activation = [sizes_of(net, activates_last=True)], activation_of(net)
        sizes += [sizes_of(stream, activation) for stream in (network.value, network.advantage)]
        width, n_actions = sizes[0][-1], sizes[2][-1]
        expected = [sizes[0], [width, width, 1], [width, width, n_actions]]
    elif type(network) in (DiscreteQNetwork, nn.Sequential):
        net = network if type(network) is nn.Sequential else network.net
        sizes = expected = [sizes_of(net)]
        n_actions = sizes[0][-1]
    else:
        raise BackendError(f"it learns the default networks, not {type(network).__name__}")
    if sizes != expected:
        raise BackendError(f"it learns networks of layers {expected}, not {sizes}")
    dueling, widths = len(sizes) > 1, sizes[0]
    hidden = widths[1:] if dueling else widths[1:-1]
    options = {"dueling": dueling, "tanh": activation_of(net) == "tanh"}
    return make_rust_learner(QLearner, widths[0], hidden, n_actions, **options)
