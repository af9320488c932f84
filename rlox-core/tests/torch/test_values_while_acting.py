"""Tests of rollouts whose policies estimate values as they act, without a memory."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from rlox.batches.rollout import add_values
from rlox.errors import ConfigError, SpaceError
from rlox.networks.actor_critics import ActorCriticPolicy, make_policy
from rlox.networks.validate import try_actor
from rlox.rollouts.collector import RolloutCollector, ValueActor
from torch import Tensor

N_ENVS, N_STEPS, LENGTH = 3, 7, 4


class Flicker(gymnasium.Env[Any, Any]):
    """Random frames; every episode is truncated after ``LENGTH`` steps."""

    observation_space = spaces.Box(0, 255, (1, 36, 36), np.uint8)
    action_space = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Begin."""
        super().reset(seed=seed)
        self.left = LENGTH
        return self._frame(), {}

    def step(self, action: Any) -> Any:
        """Show another frame."""
        self.left -= 1
        return self._frame(), float(action), False, self.left == 0, {}

    def _frame(self) -> Any:
        return self.np_random.integers(0, 256, self.observation_space.shape, np.uint8)


def images(seed: int = 0) -> ActorCriticPolicy:
    """Return the default policy of the frames, with values of the size of 1."""
    generator = torch.Generator().manual_seed(seed)
    made = make_policy(Flicker.observation_space, Flicker.action_space, generator=generator)
    assert isinstance(made, ActorCriticPolicy)
    return made


class Plain:
    """The same policy without ``act_with_value``."""

    def __init__(self, policy: ActorCriticPolicy) -> None:
        self.get_action_and_logprob, self.get_value = (
            policy.get_action_and_logprob,
            policy.get_value,
        )


def test_observations_are_encoded_once() -> None:
    """T*N frames as they are acted on, then the N next ones and the true final ones."""
    policy, rows = images(), []
    policy.encoder.register_forward_hook(lambda _, given, out: rows.append(len(given[0])))
    unroll = RolloutCollector(Flicker, N_ENVS).unroll(policy, N_STEPS)
    assert sum(rows) == (N_STEPS + 1) * N_ENVS + unroll.truncated.sum()
    assert unroll.values is not None
    assert unroll.values.shape == (N_STEPS + 1, N_ENVS)


def test_rollouts_are_those_of_values_at_the_end() -> None:
    """The same actions and rewards; values and advantages but for rounding."""
    policies: list[Any] = [images(), Plain(images())]
    kept, computed = (RolloutCollector(Flicker, N_ENVS).collect(p, N_STEPS) for p in policies)
    assert torch.equal(kept.actions, computed.actions)
    assert torch.equal(kept.log_probs, computed.log_probs)
    assert kept.truncated.any()
    for name in ("values", "advantages", "returns"):
        torch.testing.assert_close(getattr(kept, name), getattr(computed, name))


def test_final_values_are_of_the_true_final_observations() -> None:
    """Not of those that begin the next episode."""
    policy: Any = images()
    unroll = RolloutCollector(Flicker, N_ENVS).unroll(policy, N_STEPS)
    expected = add_values(unroll, policy.get_value)
    np.testing.assert_allclose(unroll.final_values, expected.final_values, rtol=1e-5, atol=1e-6)
    assert np.count_nonzero(unroll.final_values) == unroll.truncated.sum() > 0


class Halved(ActorCriticPolicy):
    """Inherits ``act_with_value``, and says otherwise what a value is."""

    def get_value(self, obs: Any) -> Tensor:
        """Return half of it."""
        return super().get_value(obs) / 2


def test_what_a_subclass_overrides_is_asked() -> None:
    """``act_with_value`` of the base class knows nothing of it."""
    plain, halved = images(), images()
    halved.__class__ = Halved
    assert ValueActor.fits(plain)
    assert not ValueActor.fits(halved)
    collected = [RolloutCollector(Flicker, N_ENVS).collect(p, N_STEPS) for p in (plain, halved)]
    torch.testing.assert_close(collected[1].values, collected[0].values / 2)


def test_masks_are_passed_on() -> None:
    """Nothing masked is done; a policy whose method takes no masks is reported."""
    policy, obs = images(), torch.zeros(64, 1, 36, 36, dtype=torch.uint8)
    masks = torch.tensor([True, False, True]).repeat(64, 1)
    actions, _ = ValueActor(policy).act(obs, masks)
    assert set(actions.tolist()) == {0, 2}
    policy.act_with_value = lambda obs: None  # type: ignore[method-assign,misc,assignment]
    with pytest.raises(SpaceError, match="no argument 'action_masks'"):
        ValueActor(policy).act(obs, masks)


def test_wrong_shapes_are_reported_before_training() -> None:
    """As those of the other methods are."""
    policy = images()
    acted = policy.act_with_value
    policy.act_with_value = lambda obs: (*acted(obs)[:2], torch.zeros(1))  # type: ignore[method-assign,misc,assignment]
    with pytest.raises(ConfigError, match=r"policy\.act_with_value"):
        try_actor(policy, Flicker.observation_space, Flicker.action_space, torch.device("cpu"))
