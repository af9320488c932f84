"""Action masks from env to loss: nothing forbidden is ever done, and masked tasks are learnt."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from rlox.errors import EnvError, SpaceError
from rlox.losses import evaluate_actions
from rlox_onpolicy.ppo import PPO

MENUS = np.array([[1, 0, 1, 0, 0], [0, 1, 0, 1, 0], [0, 0, 0, 0, 1], [1, 1, 0, 0, 1]], np.int8)
BEST = np.array([2, 1, 4, 0])
"""Allowed orders of each of four guests, and the pleasing one; all others are forbidden."""


class Menus(gymnasium.Env[Any, Any]):
    """Serve eight guests, each from their own menu; any other order is an error.

    Args:
        two: two waiters order for the same guest.
    """

    observation_space = spaces.Discrete(4)

    def __init__(self, two: bool = False) -> None:
        self.two = two
        self.action_space: Any = spaces.MultiDiscrete([5, 5]) if two else spaces.Discrete(5)

    def _guest(self) -> tuple[int, dict[str, Any]]:
        self.guest = int(self.np_random.integers(4))
        menu = MENUS[self.guest]
        return self.guest, {"action_mask": np.concatenate([menu] * 2) if self.two else menu}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Welcome the first guest."""
        super().reset(seed=seed)
        self.served = 0
        return self._guest()

    def step(self, action: Any) -> Any:
        """Serve and welcome the next guest."""
        orders = np.atleast_1d(action)
        assert MENUS[self.guest][orders].all(), "this is not on the menu"
        reward = float((orders == BEST[self.guest]).mean())
        self.served += 1
        return (*self._with(reward),)

    def _with(self, reward: float) -> Any:
        obs, info = self._guest()
        return obs, reward, self.served == 8, False, info


SMALL: dict[str, Any] = {"n_envs": 4, "n_steps": 32, "hidden": 32}


def test_a_masked_task_is_learnt_without_a_forbidden_action() -> None:
    """A forbidden action makes the env fail; a perfect policy gets 8, a random legal one 4.7."""
    options = {**SMALL, "batch_size": 32, "n_epochs": 4, "learning_rate": 5e-3}
    with PPO(lambda: Menus(two=True), **options) as learner:
        assert learner.train(128)["mean_reward"] < 6.5
        learner.train(4_096)
        assert learner.evaluate(n_episodes=20).mean_return > 7.5
        assert learner.evaluate(n_episodes=20, deterministic=False).mean_return > 7.0


@pytest.mark.parametrize("two", [False, True])
def test_the_learner_sees_the_masks_that_the_actor_saw(two: bool) -> None:
    """Ratios are 1 before the first step, and forbidden actions have probability 0."""
    with PPO(lambda: Menus(two), **SMALL, batch_size=32) as ppo:
        batch = ppo.collector.collect(ppo.policy, 32)
        assert batch.action_masks is not None
        menus = torch.from_numpy(MENUS)[batch.obs].bool()
        assert torch.equal(batch.action_masks, torch.cat([menus] * 2, 1) if two else menus)
        for minibatch in batch.sample_minibatches(32):
            log_probs, entropy, _ = evaluate_actions(ppo.policy, minibatch)
            torch.testing.assert_close(log_probs, minibatch.log_probs)
            assert (entropy <= np.log(3) * (2 if two else 1) + 1e-5).all()
        forbidden = (~menus).int().argmax(1)
        actions = torch.stack([forbidden] * 2, 1) if two else forbidden
        log_probs, _ = ppo.policy.get_logprob_and_entropy(batch.obs, actions, batch.action_masks)
        assert not log_probs.exp().any()


def test_predict_takes_masks() -> None:
    """For one action and for a batch; without a mask all actions are possible."""
    with PPO(Menus, **SMALL, batch_size=32) as ppo:
        only = np.eye(5, dtype=np.int8)
        for wanted in range(5):
            assert ppo.predict(0, action_masks=only[wanted]) == wanted
        obs = np.zeros(5, np.int64)
        for deterministic in (True, False):
            assert ppo.predict(obs, deterministic, action_masks=only).tolist() == list(range(5))
        assert len(set(ppo.predict(np.zeros(200, int), deterministic=False).tolist())) == 5
        with pytest.raises(ValueError, match=r"shape \(1, 5\) for Discrete\(5\), got \(1, 3\)"):
            ppo.predict(0, action_masks=[1, 1, 1])
        with pytest.raises(ValueError, match="forbids every choice"):
            ppo.predict(0, action_masks=[0] * 5)


def test_predict_reads_the_mask_in_an_observation() -> None:
    """A mask within the observation needs no argument."""

    class Inside(gymnasium.Wrapper[Any, Any, Any, Any]):
        def __init__(self) -> None:
            super().__init__(Menus())
            self.observation_space = spaces.Dict(
                {"guest": spaces.Discrete(4), "action_mask": spaces.MultiBinary(5)}
            )

        def reset(self, **kwargs: Any) -> Any:
            obs, info = super().reset(**kwargs)
            return {"guest": obs, "action_mask": info.pop("action_mask")}, info

        def step(self, action: Any) -> Any:
            obs, *rest, info = super().step(action)
            return {"guest": obs, "action_mask": info.pop("action_mask")}, *rest, info

    with PPO(Inside, **SMALL, batch_size=32) as ppo:
        ppo.train(256)
        obs, _ = Inside().reset(seed=0)
        for _ in range(20):
            assert obs["action_mask"][ppo.predict(obs, deterministic=False)]


def test_a_policy_without_masks_is_refused_on_a_masked_env() -> None:
    """Such a policy would take forbidden actions."""

    class Blind(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.logits = torch.nn.Parameter(torch.zeros(5))

        def get_value(self, obs: torch.Tensor) -> Any:
            return torch.zeros(len(obs))

        def deterministic(self, obs: torch.Tensor) -> Any:
            return torch.zeros(len(obs), dtype=torch.int64)

        def get_action_and_logprob(self, obs: torch.Tensor) -> Any:
            return self.deterministic(obs), self.get_value(obs)

        def get_logprob_and_entropy(self, obs: torch.Tensor, actions: torch.Tensor) -> Any:
            return self.get_value(obs), self.get_value(obs)

    with (
        PPO(Menus, policy=Blind(), n_envs=4, n_steps=32, batch_size=32) as ppo,
        pytest.raises(SpaceError, match="get_action_and_logprob has no argument 'action_masks'"),
    ):
        ppo.train(128)


def test_a_mask_that_forbids_everything_is_an_error():
    """The error names the env."""

    class Closed(Menus):
        def reset(self, **kwargs: Any) -> Any:
            obs, _ = super().reset(**kwargs)
            return obs, {"action_mask": np.zeros(5, np.int8)}

    with (
        PPO(Closed, **SMALL, batch_size=32) as ppo,
        pytest.raises(EnvError, match="in row 0 forbids every choice"),
    ):
        ppo.train(128)
