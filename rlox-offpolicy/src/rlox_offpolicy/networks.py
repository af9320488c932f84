"""Networks shared by several algorithms: stochastic policies, critics, a temperature."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from rlox.networks.validate import B
from rlox.replay.algorithm import Network, Outputs
from torch import Tensor, nn

DRAWING = ("get_action_and_logprob", "sample")
"""Methods that return actions and log-probabilities; the first one that a policy has is used."""


def draw(policy: Any, obs: Any) -> tuple[Tensor, Tensor]:
    """Return a policy's actions (N, act_dim) and their log-probabilities (N,)."""
    name = DRAWING[0] if hasattr(policy, DRAWING[0]) else DRAWING[1]
    return getattr(policy, name)(obs)  # type: ignore[no-any-return]


def stochastic_policy(
    make: Callable[..., nn.Module], space: Any, act_dim: int, **sizes: Any
) -> Network:
    """Return a policy that draws actions, or the user's :class:`rlox.protocols.StochasticActor`."""
    outputs = (
        Outputs(((B, act_dim), (B,)), DRAWING),
        Outputs(((B, act_dim),), ("deterministic",)),
    )
    return Network(partial(make, space, act_dim, **sizes), outputs)


def critics(make: Callable[..., nn.Module], space: Any, act_dim: int, **sizes: Any) -> Network:
    """Return critics of continuous actions, or the user's with values (K, B) of any K."""
    outputs = Outputs(((None, B),), actions=True)
    return Network(partial(make, space, act_dim, **sizes), (outputs,))


class Temperature(nn.Module):
    """α as a parameter, kept positive as exp(log α).

    Args:
        alpha: initial value.
        learnt: whether α changes; a fixed α always comes from the config, and loading a checkpoint
            does not change it.
    """

    def __init__(self, alpha: float, learnt: bool = True) -> None:
        super().__init__()
        self.log_alpha, self.learnt = nn.Parameter(torch.tensor(math.log(alpha))), learnt

    def value(self) -> Tensor:
        """Return α without gradient."""
        return self.log_alpha.detach().exp()

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Return log α; for a fixed α a copy, so that loading into it changes nothing."""
        state = super().state_dict(*args, **kwargs)
        return state if self.learnt else {name: each.clone() for name, each in state.items()}


def kept_entropy(config: Any, default: float) -> float | None:
    """Return the temperature's target entropy; ``None`` if the temperature is fixed."""
    if not config.auto_entropy:
        return None
    return default if config.target_entropy is None else float(config.target_entropy)
