"""Normalised and stacked observations, and scaled rewards, of teams."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlox.errors import CheckpointError, ConfigError
from rlox_marl.collector import MultiAgentCollector, RunningTeams
from rlox_marl.envs import PettingZooVecEnv
from rlox_marl.ippo import IPPO
from rlox_marl.mappo import MAPPO
from rlox_marl.views import TeamPreprocessor, make_views
from scripted_teams import RandomPolicy, by_turns, parallel, random_actions

SPREAD = "mpe2/simple_spread_v3"
SMALL = {"n_envs": 4, "n_steps": 8, "batch_size": 32, "n_epochs": 2, "hidden": 8}


def numbers_of(obs):
    """Return a scripted observation as a vector, nested or not."""
    return obs["numbers"] if isinstance(obs, dict) else obs


class Slow:
    """One agent's input, from the list of all observations that its group has acted on."""

    def __init__(self, frames):
        self.frames, self.acted_on, self.stacks = frames, [], {}

    def take_in(self, rows):
        self.acted_on += [np.asarray(row, np.float64) for row in rows]

    def normal(self, obs):
        """Moments of all rows, with a prior of 1e-4 observations of mean 0 and variance 1."""
        values = np.array(self.acted_on)
        total = len(values) + 1e-4
        mean = values.sum(0) / total
        variance = (1e-4 * (1 + mean**2) + np.square(values - mean).sum(0)) / total
        return np.clip((obs - mean) / np.sqrt(variance + 1e-8), -10, 10)

    def stack(self, who, obs, active):
        frame = self.normal(obs)
        before = self.stacks.get(who, [frame] * self.frames)
        seen = [*before[1:], frame] if who in self.stacks else before
        if active:
            self.stacks[who] = seen
        return np.concatenate(seen)


@given(
    st.sampled_from([parallel, by_turns]), st.integers(1, 3), st.integers(1, 3), st.integers(0, 99)
)
def test_what_is_seen_is_the_oracles(factory, n_envs, frames, seed) -> None:
    """Deaths, late joiners, turns: moments and frames cover observations that agents acted on."""
    raw, other = (PettingZooVecEnv(factory, n_envs) for _ in range(2))
    seen = TeamPreprocessor(other, normalize=True, frame_stack=frames)
    slow = {group.name: Slow(frames) for group in raw.groups}
    rng = np.random.default_rng(seed)
    step, found = raw.reset_all(0), seen.reset(other.reset_all(0))
    for _ in range(14):
        ended = step.get("episode_ended", np.ones(n_envs, np.bool_))
        for group in raw.groups:
            one, name = slow[group.name], group.name
            one.take_in(numbers_of(step["obs"][name])[step["active"][name]])
            if not one.acted_on:
                continue  # the moments are the prior's
            for i in range(n_envs):
                for column in range(len(group.agents)):
                    if "final_obs" in step:
                        end = numbers_of(step["final_obs"][name])[i, column]
                        expected = one.stack((i, column), end, active=False)
                        last = numbers_of(found["final_obs"][name])[i, column]
                        np.testing.assert_allclose(last, expected, atol=1e-4)
                    if ended[i]:
                        one.stacks.pop((i, column), None)
                    now = numbers_of(step["obs"][name])[i, column]
                    active = bool(step["active"][name][i, column])
                    expected = one.stack((i, column), now, active)
                    shown = numbers_of(found["obs"][name])[i, column]
                    np.testing.assert_allclose(shown, expected, atol=1e-4)
        actions = random_actions(rng, raw)
        step, found = raw.step_all(actions), seen.step(other.step_all(actions))


@pytest.mark.parametrize("factory", [parallel, by_turns])
def test_scaled_rewards_are_the_formulas(factory) -> None:
    """Divided by the deviation of discounted returns, of agents that acted or got a reward."""
    env = PettingZooVecEnv(factory, 2)
    views = make_views(env, "local", "group")
    collector = MultiAgentCollector(
        RunningTeams(env, 0), views, gamma=0.9, normalize_rewards=True
    )  # fmt: skip
    unrolls = collector.unroll({view.name: RandomPolicy(0) for view in views}, 12)
    for unroll, active in unrolls.values():
        returns, taken_in = np.zeros(active.shape[1]), []
        for t in range(12):
            returns = 0.9 * returns + unroll.rewards[t]
            rows = active[t] | (unroll.rewards[t] != 0)
            taken_in += returns[rows].tolist()
            total = len(taken_in) + 1e-4
            mean = np.sum(taken_in) / total
            squares = np.square(np.array(taken_in) - mean).sum() + 1e-4 * (1 + mean**2)
            scaled = np.clip(unroll.rewards[t] / np.sqrt(squares / total + 1e-8), -10, 10)
            np.testing.assert_allclose(unroll.scaled_rewards[t], scaled, rtol=1e-5)
            returns[unroll.terminated[t] | unroll.truncated[t]] = 0.0


def test_wrong_choices_are_errors(tmp_path) -> None:
    """Nothing to normalise, and a checkpoint with other options."""
    with pytest.raises(ConfigError, match="no observation of the agents has a Box of floats"):
        IPPO("classic/tictactoe-v3", normalize_observations=True, **SMALL)
    with MAPPO(SPREAD, seed=1, **SMALL, normalize_rewards=True) as saved:
        state = saved.state_dict()
    with (
        MAPPO(SPREAD, seed=1, **SMALL) as other,
        pytest.raises(CheckpointError, match="normalize_rewards=True, got normalize_rewards=False"),
    ):
        other.load_state_dict(state)
