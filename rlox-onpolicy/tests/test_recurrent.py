"""Policies with a memory: remembering, forgetting, and their sequences in learning."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from rlox.batches.rollout import estimate_advantages, keep_envs
from rlox.errors import ConfigError
from rlox.losses import evaluate_actions
from rlox.protocols import RecurrentActor
from rlox_onpolicy.a2c import A2C
from rlox_onpolicy.ppo import PPO

SMALL: dict[str, Any] = {"n_envs": 4, "n_steps": 16, "hidden": 8, "memory_size": 8}
PPO_SMALL: dict[str, Any] = {**SMALL, "batch_size": 32, "n_epochs": 2}


class Recall(gymnasium.Env[Any, Any]):
    """Show a number once, then ask for it three times; only that number is rewarded.

    Episodes are terminated or truncated, in turn, and their lengths vary.

    Args:
        masked: masks forbid the action after the number shown.
    """

    observation_space = spaces.Discrete(4)
    action_space = spaces.Discrete(3)

    def __init__(self, masked: bool = False) -> None:
        self.masked, self.episodes = masked, 0

    def _info(self) -> dict[str, Any]:
        return {"action_mask": np.arange(3) != (self.shown + 1) % 3} if self.masked else {}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Show a number."""
        super().reset(seed=seed)
        self.shown = int(self.np_random.integers(3))
        self.steps, self.episodes = 0, self.episodes + 1
        return self.shown, self._info()

    def step(self, action: Any) -> Any:
        """Ask for it."""
        self.steps += 1
        over = self.steps == 2 + self.episodes % 3
        cut = self.episodes % 2 == 0
        return 3, float(action == self.shown), over and not cut, over and cut, self._info()


@pytest.mark.parametrize(
    ("kind", "masked", "algorithm"), [("lstm", True, PPO), ("gru", False, A2C)]
)
def test_the_learner_replays_what_the_actor_remembered(
    kind: str, masked: bool, algorithm: Any
) -> None:
    """Before any step ratios are 1 and values equal, across ends of episodes and rollouts."""
    options = PPO_SMALL if algorithm is PPO else SMALL
    with algorithm(lambda: Recall(masked), recurrent=kind, **options) as learner:
        for _ in range(3):
            batch = learner.collector.collect(learner.policy, 16)
            assert batch.episode_starts.any()
            for rows in (batch, *batch.sample_minibatches(32)):
                log_probs, _, values = evaluate_actions(learner.policy, rows)
                torch.testing.assert_close(log_probs, rows.log_probs, atol=1e-5, rtol=1e-5)
                torch.testing.assert_close(values, rows.values, atol=1e-5, rtol=1e-5)
        # proof that the memory matters
        batch.episode_starts.fill_(True)
        values = evaluate_actions(learner.policy, batch)[2]
        assert not torch.allclose(values, batch.values, atol=1e-4)


def test_minibatches_are_whole_sequences() -> None:
    """Each env's steps stay together and in order, and every row occurs once."""
    with PPO(Recall, recurrent="gru", **PPO_SMALL) as ppo:
        batch = ppo.collector.collect(ppo.policy, 16)
        rows = torch.arange(64, dtype=torch.float32)
        marked = type(batch)(**{**vars(batch), "values": rows})
        seen = [m.values.view(16, 2) for m in marked.sample_minibatches(32)]
        assert all(torch.equal(part - part[0], 4 * torch.arange(16.0)[:, None].expand(16, 2))
                   for part in seen)  # fmt: skip
        assert sorted(torch.cat(seen).flatten().tolist()) == rows.tolist()
        with pytest.raises(ValueError, match=r"batch_size must lie in \[16, 64\], got 15"):
            batch.sample_minibatches(15)


class Oracle(torch.nn.Module):
    """Counts the episode's observations; its value is the count."""

    state_size = 1

    def __init__(self) -> None:
        super().__init__()
        self.logits = torch.nn.Parameter(torch.zeros(3))

    def step(self, obs: torch.Tensor, state: torch.Tensor, action_masks: Any = None) -> Any:
        """Count on."""
        distribution = Fixed(self.logits.expand(len(obs), 3))
        return distribution, state[:, 0] + 1, state + 1

    def evaluate_actions(self, obs: torch.Tensor, *arguments: Any, **options: Any) -> Any:
        """Return constants."""
        return torch.zeros(3, len(obs)).unbind()


class Fixed:
    """Always 0."""

    def __init__(self, logits: torch.Tensor) -> None:
        self.logits = logits

    def sample(self, generator: Any = None) -> Any:
        """Return 0."""
        return self.mode(), torch.zeros(len(self.logits))

    def mode(self) -> torch.Tensor:
        """Return 0."""
        return torch.zeros(len(self.logits), dtype=torch.int64)


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_memories_are_empty_where_episodes_begin_and_whole_where_they_are_cut(
    mode: AutoresetMode,
) -> None:
    """Values match a count by hand, over rollouts that end within episodes."""
    policy: Any = Oracle()
    assert isinstance(policy, RecurrentActor)
    envs = SyncVectorEnv([Recall, Recall], autoreset_mode=mode)
    gamma = 0.5
    with PPO(envs, policy=policy, n_steps=7, batch_size=7, gamma=gamma,
             gae_lambda=0.0) as ppo:  # fmt: skip
        seen = 0
        for _ in range(4):
            batch = ppo.collector.collect(policy, 7)
            values, rewards, returns = (
                getattr(batch, name).view(7, 2)[:, 0].tolist()
                for name in ("values", "rewards", "returns")
            )
            ended, cut = (
                getattr(batch, name).view(7, 2)[:, 0].tolist()
                for name in ("terminated", "truncated")
            )
            for t in range(7):
                seen += 1
                assert values[t] == seen
                following = 0 if ended[t] else seen + 1
                assert returns[t] == pytest.approx(rewards[t] + gamma * following)
                if ended[t] or cut[t]:
                    seen = 0


@pytest.mark.parametrize(
    ("kind", "seq_len"), [("lstm", None), pytest.param("gru", 8, marks=pytest.mark.slow)]
)
def test_what_must_be_remembered_is_learnt(kind: Any, seq_len: int | None) -> None:
    """Only a memory can distinguish the numbers; some sequences begin within episodes."""
    sizes = {"n_envs": 8, "n_steps": 16, "hidden": 32, "gamma": 0.5, "ent_coef": 0.01, "seed": 0}
    options = {"batch_size": 64, "learning_rate": 5e-3, "n_epochs": 6, "memory_size": 32}
    with PPO(Recall, recurrent=kind, seq_len=seq_len, **sizes, **options) as learner:
        learner.train(8_192)
        # 2, 3 or 4 questions an episode
        assert learner.evaluate(n_episodes=60).mean_return > 2.7


def test_predict_carries_the_memory() -> None:
    """Acting step by step equals the collector, for one env and for several."""
    with PPO(Recall, recurrent="lstm", **PPO_SMALL) as ppo:
        ppo.train(64)
        obs = [0, 3, 3, 1, 3]
        starts = [True, False, False, True, False]
        state = torch.zeros(1, ppo.policy.state_size)
        with torch.no_grad():
            expected = []
            for number, start in zip(obs, starts, strict=True):
                distribution, _, state = ppo.policy.step(
                    torch.tensor([number]), state * (not start)
                )
                expected.append(int(distribution.mode()))
        memory: Any = None
        single = []
        for number, start in zip(obs, starts, strict=True):
            action, memory = ppo.predict(number, state=memory, episode_start=start)
            single.append(action)
        assert single == expected
        assert memory is not None
        np.testing.assert_allclose(memory["memory"], state.numpy(), atol=1e-6)
        memory = None
        for number, start, action in zip(obs, starts, expected, strict=True):
            actions, memory = ppo.predict(
                np.full(3, number), state=memory, episode_start=np.full(3, start)
            )
            assert actions.tolist() == [action] * 3
        with pytest.raises(ValueError, match=r"state must have shape \(2, 32\), got \(3, 32\)"):
            ppo.predict(np.zeros(2, int), state=memory)


def test_predict_without_state_takes_each_observation_for_a_first_one() -> None:
    """The action is returned alone, as from any other policy."""
    with PPO(Recall, recurrent="lstm", **PPO_SMALL) as ppo:
        assert type(ppo.predict(0)) is int
        assert ppo.predict(0) == ppo.predict(0, state=None)[0]
    with PPO(Recall, **{**PPO_SMALL, "memory_size": 64}) as ppo:
        assert ppo.predict(0, state=None) == (ppo.predict(0), None)


def test_sequences_start_from_the_states_that_were_met() -> None:
    """Parts of 4 steps have the values of acting, and every row keeps its place."""
    with PPO(Recall, recurrent="lstm", seq_len=4, **{**PPO_SMALL, "batch_size": 20}) as ppo:
        for _ in range(3):
            unroll = ppo.collector.unroll(ppo.policy, 16)
            batch = estimate_advantages(unroll, ppo.policy, 0.99, 0.95)
            assert (batch.n_steps, batch.n_envs) == (4, 16)
            rewards = batch.rewards.view(4, 4, 4)  # step, part, env
            assert np.array_equal(rewards.transpose(0, 1).flatten(0, 1), unroll.rewards)
            minibatches = list(batch.sample_minibatches(20))
            assert [len(m.values) for m in minibatches] == [20, 20, 20, 4]
            for rows in (batch, *minibatches):
                log_probs, _, values = evaluate_actions(ppo.policy, rows)
                torch.testing.assert_close(log_probs, rows.log_probs, atol=1e-5, rtol=1e-5)
                torch.testing.assert_close(values, rows.values, atol=1e-5, rtol=1e-5)
        lost = keep_envs(unroll, np.array([True, False, True, True]))
        kept = estimate_advantages(lost, ppo.policy, 0.99, 0.95)
        values = evaluate_actions(ppo.policy, kept)[2]
        torch.testing.assert_close(values, kept.values, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_gradients_end_where_sequences_begin(kind: str) -> None:
    """Gradients equal those of stepping by hand with a state detached every 4 steps."""
    with PPO(Recall, recurrent=kind, seq_len=4, **PPO_SMALL) as ppo:
        policy = ppo.policy
        batch = ppo.collector.collect(policy, 16)

        def gradient(values: torch.Tensor) -> torch.Tensor:
            found = torch.autograd.grad(
                values.square().sum(), list(policy.critic_memory.parameters())
            )
            return torch.cat([each.flatten() for each in found])

        truncated = gradient(evaluate_actions(policy, batch)[2])
        steps = [batch.obs, batch.episode_starts]
        obs, starts = (x.view(4, 4, 4).transpose(0, 1).reshape(16, 4) for x in steps)
        by_hand = []
        for length in (4, 16):
            state = batch.initial_state[:4]
            values = []
            for t in range(16):
                state = state.detach() if t % length == 0 else state
                state = state.masked_fill(starts[t, :, None], 0.0)
                _, value, state = policy.step(obs[t], state)
                values.append(value)
            by_hand.append(gradient(torch.cat(values)))
        torch.testing.assert_close(truncated, by_hand[0], atol=1e-5, rtol=1e-4)
        assert not torch.allclose(truncated, by_hand[1], atol=1e-3)


def test_sequences_are_refused_where_they_do_not_fit() -> None:
    """Each error names the options."""
    with pytest.raises(ConfigError, match="seq_len 5 does not divide n_steps 16"):
        PPO(Recall, recurrent="lstm", seq_len=5, **{**PPO_SMALL, "batch_size": 30})
    with pytest.raises(ConfigError, match="batch_size 30 is not a multiple of seq_len 4"):
        PPO(Recall, recurrent="lstm", seq_len=4, **{**PPO_SMALL, "batch_size": 30})
    with pytest.raises(ConfigError, match="seq_len is of policies with a memory, got seq_len=4"):
        PPO(Recall, seq_len=4, **{**PPO_SMALL, "memory_size": 64})
    with pytest.raises(ConfigError, match="batch_size 24 is not a multiple of n_steps 16"):
        PPO(Recall, recurrent="lstm", **{**PPO_SMALL, "batch_size": 24})
