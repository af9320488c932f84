"""Rollouts of scripted teams against a slow oracle that follows one agent at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rlox.seeding import SeedStreams
from rlox_marl.collector import MultiAgentCollector, RunningTeams, estimate_team_advantages
from rlox_marl.envs import PettingZooVecEnv
from rlox_marl.views import make_views
from scripted_teams import (
    AGENTS,
    Life,
    RandomPolicy,
    ScriptedParallel,
    ScriptedTurns,
    lives,
    parallel_oracle,
    turns,
    turns_oracle,
    value_of,
)

GAMMA, LAMBDA, STEPS = 0.9, 0.8, 11


def value(numbers):
    """Return V of one observation."""
    return float(value_of(torch.tensor([numbers], dtype=torch.float32))[0])


def own_steps(rows, agent, team_reward):
    """Return an agent's steps: time, observation, reward, kind of end, final observation."""
    steps, lasting = [], None
    for t in range(STEPS):
        before, after = rows[t], rows[t + 1]
        if agent in before.active:
            lasting = {"t": t, "obs": before.obs[agent], "paid": 0.0, "end": None, "last": None}
            steps.append(lasting)
        pays = [after.rewards.get(one, 0.0) for one in AGENTS]
        pay = {"own": after.rewards.get(agent, 0.0), "mean": np.mean(pays), "sum": np.sum(pays)}
        if lasting is not None:
            lasting["paid"] += pay[team_reward]
            if agent in after.terminated or agent in after.truncated:
                lasting["end"] = "terminated" if agent in after.terminated else "truncated"
                lasting["last"] = after.final_obs[agent]
                lasting = None
    if lasting is not None:
        lasting["end"], lasting["last"] = "truncated", rows[STEPS].obs[agent]
    return steps


def oracle(rows, agent, team_reward):
    """Return {t: (reward, advantage)} for an agent's steps."""
    steps = own_steps(rows, agent, team_reward)
    found, following = {}, None
    for i in reversed(range(len(steps))):
        step = steps[i]
        if step["end"] is None:
            successor, carried = value(steps[i + 1]["obs"]), following
        else:
            successor = 0.0 if step["end"] == "terminated" else value(step["last"])
            carried = 0.0
        delta = step["paid"] + GAMMA * successor - value(step["obs"])
        following = delta + GAMMA * LAMBDA * carried
        found[step["t"]] = step["paid"], following
    return found


def check(make, slow, n_envs, share, team_reward, seed):
    """Compare a rollout's batches with the oracle's, agent by agent."""
    env = PettingZooVecEnv(make, n_envs)
    views = make_views(env, "local", share)
    envs = RunningTeams(env, seed)
    collector = MultiAgentCollector(
        envs, views, team_reward=team_reward, gamma=GAMMA, gae_lambda=LAMBDA
    )
    policies = {view.name: RandomPolicy(seed + i) for i, view in enumerate(views)}
    unrolls = collector.unroll(policies, STEPS)
    actions = {}
    for view in views:
        unroll, _ = unrolls[view.name]
        taken = unroll.actions.view(STEPS, n_envs, len(view.columns)).numpy()
        for column, agent in enumerate(view.agents):
            actions[agent] = taken[:, :, column]
    for i in range(n_envs):
        rows = slow([{agent: int(actions[agent][t, i]) for agent in AGENTS} for t in range(STEPS)])
        for view in views:
            unroll, active = unrolls[view.name]
            batch = estimate_team_advantages(unroll, active, policies[view.name], GAMMA, LAMBDA)
            place = np.full(active.shape, -1)
            place[active] = np.arange(active.sum())
            for column, agent in enumerate(view.agents):
                where = place[:, i * len(view.columns) + column]
                expected = oracle(rows, agent, team_reward)
                assert set(np.flatnonzero(where >= 0).tolist()) == set(expected)
                for t, (paid, advantage) in expected.items():
                    assert batch.rewards[where[t]].item() == pytest.approx(paid, rel=1e-5, abs=1e-4)
                    found = batch.advantages[where[t]].item()
                    assert found == pytest.approx(advantage, rel=1e-4, abs=1e-2)
    env.close()


@given(
    st.lists(lives(), min_size=1, max_size=3),
    st.integers(1, 3),
    st.sampled_from(["group", "agent"]),
    st.sampled_from(["own", "mean", "sum"]),
    st.integers(0, 99),
)
def test_batches_of_agents_that_die_and_join_are_the_oracles(
    episodes, n_envs, share, team_reward, seed
) -> None:
    """Generated deaths, joins, truncations and masks, at any number of envs."""

    def slow(actions):
        return parallel_oracle(episodes, actions)

    check(lambda: ScriptedParallel(episodes), slow, n_envs, share, team_reward, seed)


@given(
    st.lists(turns(), min_size=1, max_size=3),
    st.integers(1, 3),
    st.sampled_from(["group", "agent"]),
    st.sampled_from(["own", "mean", "sum"]),
    st.integers(0, 99),
)
def test_batches_of_agents_that_wait_are_the_oracles(
    episodes, n_envs, share, team_reward, seed
) -> None:
    """Generated turns: rewards while an agent waits belong to its last action."""

    def slow(actions):
        return turns_oracle(episodes, actions)

    check(lambda: ScriptedTurns(episodes), slow, n_envs, share, team_reward, seed)


def test_a_rollout_of_agents_that_rest_throughout_has_no_batch() -> None:
    """A policy whose agents never act learns nothing from the rollout."""
    episodes = [{AGENTS[0]: Life(0, 40, "terminated")}]
    env = PettingZooVecEnv(lambda: ScriptedParallel(episodes), 1)
    views = make_views(env, "local", "agent")
    collector = MultiAgentCollector(RunningTeams(env, SeedStreams(0).seed), views)
    batches = collector.collect({view.name: RandomPolicy(0) for view in views}, 5)
    assert list(batches) == [AGENTS[0]]
