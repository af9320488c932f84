"""Feed-forward and recurrent PPO on batched envs, with their configs.

Each iteration collects T steps of B envs and takes E passes of minibatches up

    L = mean L_π + c_H mean H - c_V mean L_V

of :func:`rlox_rl8.losses.clipped_losses`, with generalised advantage estimates of rewards
divided by the deviation of R_t = γ R_{t-1} + r_t over the horizon (Engstrom et al. 2020, sec. 3).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from tensordict import TensorDict

from rlox_rl8.arguments import Collecting, Learning, Sequences
from rlox_rl8.building import set_up
from rlox_rl8.data import (
    AlgorithmHparams,
    AlgorithmState,
    RecurrentAlgorithmHparams,
    RecurrentAlgorithmState,
)
from rlox_rl8.engine import GenericAlgorithmBase
from rlox_rl8.env import EnvFactory
from rlox_rl8.models import Model, ModelFactory, RecurrentModel, RecurrentModelFactory
from rlox_rl8.policies import Policy, RecurrentPolicy

__all__ = [
    "Algorithm",
    "AlgorithmConfig",
    "AlgorithmHparams",
    "AlgorithmState",
    "GenericAlgorithmBase",
    "RecurrentAlgorithm",
    "RecurrentAlgorithmConfig",
    "RecurrentAlgorithmHparams",
    "RecurrentAlgorithmState",
]


@dataclass
class AlgorithmConfig(Learning, Collecting):
    """Arguments of :class:`Algorithm`; the numbers are documented with ``rl8_ppo``'s options."""

    model: Model | None = None
    model_cls: ModelFactory | None = None

    def build(self, env_cls: EnvFactory) -> Algorithm:
        """Return an algorithm for a class of envs, validated."""
        algorithm = Algorithm(env_cls, config=self)
        algorithm.validate()
        return algorithm


@dataclass
class RecurrentAlgorithmConfig(Learning, Sequences, Collecting):
    """Arguments of :class:`RecurrentAlgorithm`; see ``rl8_recurrent_ppo``'s options."""

    model: RecurrentModel | None = None
    model_cls: RecurrentModelFactory | None = None

    if TYPE_CHECKING:

        def build(self, env_cls: EnvFactory) -> RecurrentAlgorithm:
            """Return an algorithm for a class of envs, validated; on the class, with defaults."""


class _Build:
    """``build`` of a config, or of the class with its defaults."""

    def __get__(self, config: Any, cls: type[RecurrentAlgorithmConfig]) -> Any:
        def build(env_cls: EnvFactory) -> RecurrentAlgorithm:
            algorithm = RecurrentAlgorithm(env_cls, config=cls() if config is None else config)
            algorithm.validate()
            return algorithm

        return build


RecurrentAlgorithmConfig.build = _Build()  # type: ignore[method-assign, assignment]


class Algorithm(GenericAlgorithmBase[AlgorithmHparams, AlgorithmState, Policy]):
    """Feed-forward PPO.

    Args:
        env_cls: a class of :class:`rlox_rl8.Env`.
        config: the rest; ``None`` takes the defaults.

    Raises:
        ValueError: a number is out of range.
    """

    def __init__(self, env_cls: EnvFactory, /, config: AlgorithmConfig | None = None) -> None:
        self.state = AlgorithmState()
        set_up(self, env_cls, config or AlgorithmConfig(), Policy, AlgorithmHparams)
        observed = self.buffer.select("obs")
        self._observed = [observed[:, : t + 1] for t in range(self.hparams.horizon + 1)]

    def _require_ends(self) -> None:
        views = self.policy.model.view_requirements
        past = [key for key, view in views.items() if view.shift]
        if past:
            raise ValueError(
                f"the model's view of {past[0]!r} has shift {views[past[0]].shift}, and its "
                "windows would reach from one episode into the next; use envs whose episodes do "
                "not end, or stack observations in the env"
            )

    def _before_step(self, t: int) -> None:
        pass

    def _act(self, t: int, deterministic: bool, *, last: bool = False) -> TensorDict:
        return self.policy.sample(
            self._observed[t],
            deterministic=deterministic,
            return_actions=not last,
            return_logp=not last,
            return_values=True,
        )

    def _samples(self) -> TensorDict:
        past = self.buffer[:, :-1]
        views = self.policy.model.apply_view_requirements(past, kind="all")
        kept = past.select("actions", "logp", "advantages", "returns").reshape(-1)
        kept["views"] = views
        return kept

    def _forward(self, samples: TensorDict) -> TensorDict:
        return self.policy.sample(
            samples, kind="all", requires_grad=True, return_actions=False, return_values=True
        )


class RecurrentAlgorithm(
    GenericAlgorithmBase[RecurrentAlgorithmHparams, RecurrentAlgorithmState, RecurrentPolicy]
):
    """Recurrent PPO: gradients go back ``seq_len`` steps, from the states met while collecting.

    Args:
        env_cls: a class of :class:`rlox_rl8.Env`.
        config: the rest; ``None`` takes the defaults.

    Raises:
        ValueError: a number is out of range.
    """

    def __init__(
        self, env_cls: EnvFactory, /, config: RecurrentAlgorithmConfig | None = None
    ) -> None:
        self.state = RecurrentAlgorithmState()
        config = config or RecurrentAlgorithmConfig()
        set_up(self, env_cls, config, RecurrentPolicy, RecurrentAlgorithmHparams)
        observed, past = self.buffer.select("obs"), self.policy.model.sees_past
        # with views, all of the horizon so far
        begins = (0 if past else t for t in range(self.hparams.horizon + 1))
        self._observed = [observed[:, first : t + 1] for t, first in enumerate(begins)]
        self._forget()

    def _forget(self) -> None:
        hparams = self.hparams
        self.state.seqs = 0
        self._states = self.policy.model.init_states(hparams.num_envs)
        self._starts: list[TensorDict] = []
        """States (B) at the start of each sequence of the buffer."""

    def _require_ends(self) -> None:
        raise ValueError(
            "states of a recurrent policy would pass from one episode into the next; use envs "
            "whose episodes do not end, or 'ppo' with recurrent='lstm'"
        )

    def _before_step(self, t: int) -> None:
        hparams = self.hparams
        if t == 0:
            self._starts = []
        if t % hparams.seq_len:
            return
        every, done = hparams.seqs_per_state_reset, self.state.seqs
        if done == 0 if every < 0 else done % every == 0:
            self._states = self.policy.init_states(hparams.num_envs)
        self._starts.append(self._states)
        self.state.seqs += 1

    def _act(self, t: int, deterministic: bool, *, last: bool = False) -> TensorDict:
        observed = self._observed[t]
        if self.policy.model.sees_past:
            observed = self.policy.latest(observed)
        out, states = self.policy.sample(
            observed,
            self._states,
            deterministic=deterministic,
            return_actions=not last,
            return_logp=not last,
            return_values=True,
        )
        if not last:
            self._states = states
        return out

    def _samples(self) -> TensorDict:
        hparams = self.hparams
        past = self.buffer[:, :-1].select("obs", "actions", "logp", "advantages", "returns")
        if self.policy.model.sees_past:  # before sequences are cut, whose windows begin earlier
            past["views"] = self.policy.views(past)
        rows = past.reshape(-1, hparams.seq_len)
        starts: TensorDict = torch.stack(self._starts, 1).reshape(-1)
        # one copy per sequence, found again by its number
        rows["sequence"] = torch.arange(len(rows), device=hparams.device)[:, None].expand(
            -1, hparams.seq_len
        )
        self._flat_starts = starts
        return rows

    def _forward(self, samples: TensorDict) -> TensorDict:
        states = self._flat_starts[samples["sequence"][:, 0]]
        out, _ = self.policy.sample(
            samples, states, requires_grad=True, return_actions=False, return_values=True
        )
        return out
