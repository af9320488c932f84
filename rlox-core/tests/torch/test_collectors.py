"""Tests of :mod:`rlox.rollouts.collector`: every autoreset mode ends in the same batches."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import given
from hypothesis import strategies as st
from rlox.batches.rollout import RolloutBatch
from rlox.errors import EnvError
from rlox.networks.actor_critics import make_policy
from rlox.rollouts.collector import RolloutCollector

GAMMA, LAM = 0.9, 0.8
MODES = list(AutoresetMode)
steps = st.tuples(st.integers(-4, 4).map(float), st.booleans(), st.booleans())
scripts = st.lists(st.lists(steps, min_size=1, max_size=5), min_size=1, max_size=3)
FIELDS = (
    "obs", "actions", "log_probs", "values", "rewards", "terminated", "truncated", "advantages",
    "returns",
)  # fmt: skip

SCRIPTS = [
    [(1.0, False, False), (2.0, True, False), (3.0, False, False)],
    [(0.5, False, True)],
    [(1.0, True, True), (1.0, False, False), (2.0, False, True), (0.0, False, False)],
]


class Scripted:
    """A policy whose actions and values are pure functions of the observation."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def get_action_and_logprob(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the action and, as its log-probability, minus the value."""
        return torch.from_numpy(self._module.action_of(obs.numpy())), -self.get_value(obs)

    def get_value(self, obs: torch.Tensor) -> torch.Tensor:
        """Return a value that distinguishes observations."""
        return torch.from_numpy(self._module.value_of(obs.numpy()))


def collect(scripted: ModuleType, env: Any, lengths: list[int]) -> list[RolloutBatch]:
    """Collect rollouts of the given lengths one after the other and close the env."""
    collector = RolloutCollector(env, gamma=GAMMA, gae_lambda=LAM)
    policy: Any = Scripted(scripted)
    batches = [collector.collect(policy, n_steps) for n_steps in lengths]
    collector.close()
    return batches


def oracle(scripted: ModuleType, scripts: Any, lengths: list[int]) -> list[dict[str, Any]]:
    """Collect with plain gymnasium calls, env by env, and sum advantages by their definition."""
    envs = [make() for make in scripted.makers(scripts)]
    observations = [env.reset()[0] for env in envs]
    rollouts = []
    for n_steps in lengths:
        columns = []
        for i, env in enumerate(envs):
            column = []
            for _ in range(n_steps):
                obs = observations[i]
                action = scripted.action_of(obs)
                final, reward, terminated, truncated, _ = env.step(action)
                observations[i] = env.reset()[0] if terminated or truncated else final
                column.append((obs, action, reward, terminated, truncated, final))
            columns.append(column)
        rollouts.append(_flatten(scripted, columns, n_steps))
    return rollouts


def _flatten(scripted: ModuleType, columns: Any, n_steps: int) -> dict[str, Any]:
    rows: dict[str, list[Any]] = {name: [] for name in FIELDS}
    for t in range(n_steps):
        for column in columns:
            obs, action, reward, terminated, truncated, _ = column[t]
            value = scripted.value_of(obs)
            advantage = 0.0
            for k in range(t, n_steps):
                o, _, r, term, trunc, final = column[k]
                following = 0.0 if term else float(scripted.value_of(final))
                delta = r + GAMMA * following - float(scripted.value_of(o))
                advantage += (GAMMA * LAM) ** (k - t) * delta
                if term or trunc:
                    break
            for name, item in zip(
                FIELDS,
                (obs, action, -value, value, reward, terminated, truncated, advantage,
                 advantage + float(value)),
                strict=True,
            ):  # fmt: skip
                rows[name].append(item)
    return {name: np.array(items) for name, items in rows.items()}


def assert_equal_to_oracle(batches: list[RolloutBatch], expected: list[dict[str, Any]]) -> None:
    """Compare data exactly and estimates to float32 rounding."""
    for batch, rollout in zip(batches, expected, strict=True):
        for name in FIELDS:
            got = getattr(batch, name).numpy()
            if name in ("advantages", "returns"):
                np.testing.assert_allclose(got, rollout[name], rtol=1e-5, atol=1e-5)
            else:
                np.testing.assert_array_equal(got, rollout[name], err_msg=name)


def assert_identical(a: list[RolloutBatch], b: list[RolloutBatch]) -> None:
    """Compare byte for byte."""
    for one, other in zip(a, b, strict=True):
        for name in FIELDS:
            x, y = getattr(one, name), getattr(other, name)
            assert x.dtype == y.dtype
            assert x.numpy().tobytes() == y.numpy().tobytes(), name


@given(scripts=scripts, lengths=st.lists(st.integers(1, 6), min_size=1, max_size=3))
def test_every_mode_equals_single_envs(
    scripted: ModuleType, scripts: Any, lengths: list[int]
) -> None:
    """Whatever the autoreset mode, the batches are those of envs stepped one by one."""
    expected = oracle(scripted, scripts, lengths)
    first = None
    for mode in MODES:
        env = SyncVectorEnv(scripted.makers(scripts), autoreset_mode=mode)
        batches = collect(scripted, env, lengths)
        assert_equal_to_oracle(batches, expected)
        first = first or batches
        assert_identical(batches, first)


def test_truncation_bootstraps_from_the_final_observation(scripted: ModuleType) -> None:
    """One step, cut: A = r + γ V(final) - V(obs), by hand.

    The first observation is (0, 1, 0) with V = 0.25 and action 2; the final one (0, 1, 1) has
    V = 0.25 + 0.125; the reset one, (0, 2, 0), would have V = 0.5.
    """
    (cut,) = collect(scripted, SyncVectorEnv(scripted.makers([[(1.0, False, True)]])), [1])
    assert float(cut.advantages) == pytest.approx(3.0 + GAMMA * 0.375 - 0.25)
    (both,) = collect(scripted, SyncVectorEnv(scripted.makers([[(1.0, True, True)]])), [1])
    assert float(both.advantages) == pytest.approx(3.0 - 0.25)


def test_episodes_run_on_across_rollouts(scripted: ModuleType) -> None:
    """Two short rollouts hold the same steps as one long one."""
    makers = scripted.makers(SCRIPTS)
    short = collect(scripted, SyncVectorEnv(makers), [3, 4])
    (long,) = collect(scripted, SyncVectorEnv(makers), [7])
    for name in ("obs", "actions", "rewards", "terminated", "truncated", "values"):
        parts = torch.cat([getattr(batch, name) for batch in short])
        assert torch.equal(parts, getattr(long, name))


def test_statistics_count_whole_episodes(scripted: ModuleType) -> None:
    """Returns are of finished episodes, also those that span rollouts."""
    script = [(1.0, False, False)] * 4 + [(1.0, True, False)]
    collector = RolloutCollector(SyncVectorEnv(scripted.makers([script, script])))
    policy: Any = Scripted(scripted)
    total = 0.0
    for _ in range(5):
        batch = collector.collect(policy, 3)
        total += float(batch.rewards[:].sum())
    assert collector.statistics.finished == 6
    assert collector.statistics.mean_length == 5.0
    # 15 steps of each env are 3 whole episodes, so nothing is left over
    assert collector.statistics.mean_return == pytest.approx(total / 6)
    collector.close()


def test_on_step_hears_of_every_vector_step(scripted: ModuleType) -> None:
    """Each call says how many env steps were taken."""
    counts: list[int] = []
    collector = RolloutCollector(SyncVectorEnv(scripted.makers(SCRIPTS)))
    policy: Any = Scripted(scripted)
    batch = collector.collect(policy, 4, counts.append)
    assert counts == [3, 3, 3, 3]
    assert (batch.n_steps, batch.n_envs, len(batch.obs)) == (4, 3, 12)
    collector.close()


def test_seed_fixes_the_batches() -> None:
    """Same seed, same bytes; another seed, other starts."""
    batches = []
    for seed in (3, 3, 4):
        collector = RolloutCollector("Pendulum-v1", 2, seed, backend="gymnasium")
        env = collector.env
        generator = torch.Generator().manual_seed(0)
        policy = make_policy(env.observation_space, env.action_space, hidden=8, generator=generator)
        batches.append([collector.collect(policy, 16)])
        collector.close()
    assert_identical(batches[0], batches[1])
    assert not torch.equal(batches[0][0].obs, batches[2][0].obs)


class OneStep(gymnasium.Env[Any, Any]):
    """Gives one observation and one reward for ever, and keeps the actions."""

    action_space = spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, space: spaces.Box, reward: float = 1.0) -> None:
        self.observation_space, self.reward = space, reward
        self.actions: list[float] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Begin."""
        return self.observation_space.high, {}

    def step(self, action: Any) -> Any:
        """Keep the action."""
        self.actions.append(float(action[0]))
        return self.observation_space.high, self.reward, False, False, {}


class Far:
    """Acts far outside the bounds."""

    def get_action_and_logprob(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return action 5."""
        return torch.full((len(obs), 1), 5.0), torch.zeros(len(obs))

    def get_value(self, obs: torch.Tensor) -> torch.Tensor:
        """Return 0."""
        return torch.zeros(len(obs))


def test_actions_are_clipped_for_the_env_and_stored_as_sampled() -> None:
    """The learner needs the action whose probability it knows."""
    env = OneStep(spaces.Box(-1, 1, (2,), np.float32))
    policy: Any = Far()
    batch = RolloutCollector(env).collect(policy, 3)
    assert env.actions == [1.0, 1.0, 1.0]
    assert batch.actions.flatten().tolist() == [5.0, 5.0, 5.0]


@pytest.mark.parametrize(
    ("dtype", "expected"), [(np.uint8, torch.uint8), (np.float64, torch.float32)]
)
def test_images_stay_uint8_and_vectors_become_float32(dtype: Any, expected: Any) -> None:
    """An image's bytes are not blown up before they reach the device."""
    policy: Any = Far()
    batch = RolloutCollector(OneStep(spaces.Box(0, 7, (2, 2), dtype))).collect(policy, 2)
    assert batch.obs.dtype == expected
    assert batch.obs.shape == (2, 2, 2)


@pytest.mark.parametrize("reward", [float("nan"), float("inf")])
def test_reward_that_is_not_finite_is_an_error(reward: float) -> None:
    """The error names the env before the value spreads through the network."""
    policy: Any = Far()
    collector = RolloutCollector(OneStep(spaces.Box(0, 1, (2,)), reward))
    with pytest.raises(EnvError, match=f"^env 0 returned the reward {reward}; rewards must be fin"):
        collector.collect(policy, 2)


class Broken(gymnasium.Env[Any, Any]):
    """Lasts three steps and returns one NaN: after ``at`` steps, or in place of a start.

    Args:
        at: how many steps of the first episode come before it; 4: the second episode's start.
    """

    observation_space = spaces.Box(-1, 1, (2,))
    action_space = spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, at: int) -> None:
        self.at, self.seen = at, -1

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Begin."""
        self.taken = 0
        return self.look(), {}

    def step(self, action: Any) -> Any:
        """Cut the episode after three steps."""
        self.taken += 1
        return self.look(), 1.0, False, self.taken == 3, {}

    def look(self) -> Any:
        """Return the next observation."""
        self.seen += 1
        return np.array([0.0, np.nan if self.seen == self.at else 0.5], np.float32)


@pytest.mark.parametrize(("at", "normalize"), [*((at, False) for at in range(7)), (3, True)])
def test_observation_that_is_not_finite_is_an_error(at: int, normalize: bool) -> None:
    """At an episode's start, within it, at its cut end and after the rollout's last step alike."""
    policy: Any = Far()
    envs = [lambda: Broken(99), lambda: Broken(at)]
    collector = RolloutCollector(SyncVectorEnv(envs), normalize_observations=normalize)
    with pytest.raises(EnvError, match=r"^env 1 returned an observation that is not finite$"):
        collector.collect(policy, 5)
    if collector.preprocessor is not None:
        assert np.isfinite(collector.preprocessor.moments[""].mean).all()


@pytest.mark.parametrize("n_steps", [0, -1])
def test_rollout_needs_steps(scripted: ModuleType, n_steps: int) -> None:
    """An empty rollout has no advantages."""
    collector = RolloutCollector(SyncVectorEnv(scripted.makers(SCRIPTS)))
    policy: Any = Scripted(scripted)
    with pytest.raises(ValueError, match=f"^n_steps must be at least 1, got {n_steps}$"):
        collector.collect(policy, n_steps)
    collector.close()


def test_restored_collector_starts_other_episodes() -> None:
    """Envs that do not expose their state begin again, not with the run's first starts again."""
    policy: Any = Far()
    collector = RolloutCollector("Pendulum-v1", 2, 0, backend="gymnasium")
    first = collector.collect(policy, 250)
    restored = RolloutCollector("Pendulum-v1", 2, 0, backend="gymnasium")
    restored.load_state_dict(collector.state_dict())
    assert restored.statistics.finished == 2
    assert restored.statistics.mean_return == collector.statistics.mean_return
    again = restored.collect(policy, 1)
    assert not torch.equal(again.obs[:2], first.obs[:2])
    collector.close()
    restored.close()
