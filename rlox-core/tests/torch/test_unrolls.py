"""Tests of unrolls and minibatches: what they hold, and the batches that are made from them."""

import dataclasses
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
import torch
from rlox.batches.rollout import RolloutBatch, add_values, estimate_advantages
from rlox.envs.make import make_vec_env
from rlox.envs.running import RunningEnvs
from rlox.errors import EnvError
from rlox.networks.actor_critics import DiscretePolicy, make_policy
from rlox.rollouts.collector import RolloutCollector

T, N = 40, 3


def envs():
    """Return CartPole whose episodes are cut after 15 steps."""
    return gymnasium.make("CartPole-v1", max_episode_steps=15)


def unrolled(policy):
    """Return a collector and its first unroll."""
    collector = RolloutCollector(envs, n_envs=N, seed=3)
    return collector, collector.unroll(policy, T)


@pytest.fixture
def policy():
    """Return a policy with seeded weights and draws."""
    generator = torch.Generator().manual_seed(0)
    return DiscretePolicy(4, 2, generator=generator)


def test_an_unroll_is_time_major_with_one_observation_more(policy):
    """The last observation is to act on next; after an end comes the next episode's first."""
    collector, unroll = unrolled(policy)
    assert (unroll.n_steps, unroll.n_envs) == (T, N)
    assert unroll.obs.shape == (T + 1, N, 4)
    assert unroll.actions.shape == unroll.log_probs.shape == (T, N)
    for array in (unroll.rewards, unroll.terminated, unroll.truncated):
        assert array.shape == (T, N)
    np.testing.assert_array_equal(unroll.obs[-1], collector.envs.obs)
    assert unroll.truncated.any()
    assert len(unroll.final_obs) == unroll.truncated.sum()
    ended = unroll.terminated | unroll.truncated
    first = unroll.obs[1:][torch.from_numpy(ended)]
    assert first.abs().max() <= 0.05  # CartPole begins there
    assert unroll.final_obs.abs().max() > 0.05
    assert unroll.values is None
    assert (unroll.weights_version, unroll.actor, unroll.sequence) == (0, 0, 0)


def test_known_values_are_taken_as_they_are(policy):
    """A faster actor hands them over; the policy is not asked."""
    _, unroll = unrolled(policy)
    known = add_values(unroll, lambda obs: torch.full((len(obs),), 2.0))
    batch = estimate_advantages(known, None, 0.99, 0.95)
    assert (batch.values == 2).all()
    assert known.final_values is not None
    np.testing.assert_array_equal(known.final_values, 2.0 * unroll.truncated)


def test_scaled_rewards_are_for_advantages_alone(policy):
    """The batch keeps the env's rewards."""
    _, unroll = unrolled(policy)
    scaled = replace(unroll, scaled_rewards=unroll.rewards / 10)
    plain, other = (estimate_advantages(u, policy, 0.99, 0.95) for u in (unroll, scaled))
    assert torch.equal(plain.rewards, other.rewards)
    assert not torch.equal(plain.advantages, other.advantages)


def test_a_policy_with_a_memory_brings_its_values():
    """They are made as it acts, with what replays the memory."""
    space = make_vec_env(envs)
    spaces = space.observation_space, space.action_space
    _, unroll = unrolled(make_policy(*spaces, recurrent="lstm"))
    assert unroll.values.shape == (T + 1, N)
    assert unroll.episode_starts.shape == (T, N)
    assert unroll.episode_starts[0].all()
    assert not unroll.initial_state.any()


def test_a_collector_takes_running_envs(policy):
    """It goes on where they stand, and does not close them."""
    closed = []
    vec_env = make_vec_env(envs, n_envs=N)
    vec_env.close = lambda: closed.append(True)
    running = RunningEnvs(vec_env, seed=3, owned=True)
    collector = RolloutCollector(running)
    collector.unroll(policy, 5)
    before = running.obs.copy()
    other = RolloutCollector(running)
    np.testing.assert_array_equal(other.unroll(policy, 2).obs[0], before)
    collector.close()
    assert not closed
    running.close()
    assert closed
    with pytest.raises(EnvError, match="n_envs is 7, but 3 envs are running"):
        RolloutCollector(running, n_envs=7)


SIZE = 12


def batch():
    """Return a batch whose every field says the row."""
    row = torch.arange(SIZE)
    return RolloutBatch(
        obs=torch.stack([row, row], 1).float(),
        actions=row,
        log_probs=row + 0.1,
        values=row + 0.2,
        rewards=row + 0.3,
        terminated=row == 0,
        truncated=row == 1,
        advantages=row + 0.4,
        returns=row + 0.5,
        n_steps=4,
        n_envs=3,
    )


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("batch_size", [1, 4, 5, 12])
def test_every_row_comes_exactly_once(batch_size, shuffle):
    """With all its fields; minibatches part the rollout, and the last has the remainder."""
    parts = list(batch().sample_minibatches(batch_size, shuffle))
    assert [len(p.obs) for p in parts[:-1]] == [batch_size] * (len(parts) - 1)
    rows = torch.cat([p.actions for p in parts])
    assert sorted(rows.tolist()) == list(range(SIZE))
    assert shuffle or rows.tolist() == list(range(SIZE))
    offsets = {"log_probs": 0.1, "values": 0.2, "advantages": 0.4, "returns": 0.5}
    for name, offset in offsets.items():
        fields = torch.cat([getattr(p, name) for p in parts])
        torch.testing.assert_close(fields, rows + offset)


@pytest.mark.parametrize("batch_size", [0, -1, SIZE + 1])
def test_wrong_batch_size_is_refused(batch_size):
    """A minibatch has at least one row and at most all."""
    with pytest.raises(ValueError, match=rf"^batch_size must lie in \[1, 12\], got {batch_size}$"):
        list(batch().sample_minibatches(batch_size))


@pytest.mark.filterwarnings("error")
def test_one_row_has_no_explained_variance():
    """It is 0, without torch's warning about degrees of freedom."""
    one = torch.ones(1)
    single = dataclasses.replace(batch(), returns=one, values=one)
    assert single.explained_variance() == 0.0
