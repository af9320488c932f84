"""V-trace's objective: its numbers against a loop over the paper's formula, and its gradient."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from rlox import kernels
from rlox.batches.rollout import Unroll, join_unrolls, unroll_from_arrays, unroll_to_arrays
from rlox.networks.actor_critics import DiscretePolicy, make_policy
from rlox_onpolicy.vtrace import VTraceActorCritic

T, N, OBS, ACTIONS = 6, 3, 4, 3


def paper_targets(
    log_rhos: Any, rewards: Any, values: Any, next_values: Any, goes_on: Any, gamma: float,
    rho_bar: float, c_bar: float, pg_rho_bar: float,
) -> tuple[Any, Any]:  # fmt: skip
    """Return vs and advantages by summing eq. 1 as it is written, for one env, in float64.

    ``next_values[t]`` is the value of step t's next observation (0 after a termination),
    ``goes_on[t]`` whether the episode goes on after it.
    """
    ratios = np.exp(np.asarray(log_rhos, np.float64))
    rho, c = np.minimum(rho_bar, ratios), np.minimum(c_bar, ratios)
    delta = rho * (rewards + gamma * next_values - values)
    steps = len(rewards)
    vs = np.array(values, np.float64)
    for s in range(steps):
        for t in range(s, steps):
            if not all(goes_on[s:t]):
                break
            vs[s] += gamma ** (t - s) * np.prod(c[s:t]) * delta[t]
    next_vs = np.array(next_values, np.float64)
    for t in range(steps - 1):
        if goes_on[t]:
            next_vs[t] = vs[t + 1]
    return vs, np.minimum(pg_rho_bar, ratios) * (rewards + gamma * next_vs - values)


@pytest.mark.parametrize("rho_bar", [0.7, 1.0, 3.7])
@pytest.mark.parametrize("c_bar", [0.7, 1.0, 2.3])
def test_kernel_equals_the_sum_of_the_paper(rho_bar: float, c_bar: float) -> None:
    """In double precision to 1e-12, in single precision to 1e-6."""
    rng = np.random.default_rng(0)
    steps = 7
    log_rhos = rng.uniform(-2.5, 2.5, steps)
    rewards, values, final = rng.normal(size=(3, steps))
    terminated = np.array([0, 0, 1, 0, 0, 0, 0], bool)
    truncated = np.array([0, 0, 0, 0, 1, 0, 0], bool)
    bootstrap = 0.4
    next_values = np.append(values[1:], bootstrap)
    next_values[terminated] = 0.0
    next_values[truncated] = final[truncated]
    expected = paper_targets(
        log_rhos, rewards, values, next_values, ~(terminated | truncated), 0.9, rho_bar, c_bar,
        rho_bar,
    )  # fmt: skip
    for dtype, tolerance in ((np.float64, 1e-12), (np.float32, 1e-6)):
        got = kernels.backend().compute_vtrace(
            log_rhos.astype(dtype), rewards.astype(dtype), values.astype(dtype), terminated,
            dtype(bootstrap), 0.9, rho_bar, c_bar, truncated=truncated,
            final_values=final.astype(dtype),
        )  # fmt: skip
        for one, other in zip(got, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance * 4)


def random_unroll(rng: np.random.Generator, dtype: torch.dtype = torch.float64) -> Unroll:
    """Return T steps of N envs with a termination and two truncations, none in the last step."""
    terminated, truncated = np.zeros((2, T, N), bool)
    terminated[2, 0] = truncated[1, 1] = truncated[4, 2] = True
    return Unroll(
        obs=torch.from_numpy(rng.normal(size=(T + 1, N, OBS))).to(dtype),
        actions=torch.from_numpy(rng.integers(0, ACTIONS, (T, N))),
        log_probs=torch.from_numpy(rng.uniform(-2.5, -0.2, (T, N))).to(dtype),
        rewards=rng.normal(size=(T, N)).astype(np.float32),
        terminated=terminated,
        truncated=truncated,
        final_obs=torch.from_numpy(rng.normal(size=(2, OBS))).to(dtype),
    )


def make_double_policy() -> DiscretePolicy:
    """Return a policy in double precision."""
    generator = torch.Generator().manual_seed(1)
    return DiscretePolicy(OBS, ACTIONS, 8, generator=generator).double()


def reference_loss(policy: DiscretePolicy, unroll: Unroll, objective: VTraceActorCritic) -> Any:
    """Return the mean loss, env by env, from :func:`paper_targets`."""
    total: Any = 0.0
    found = {(1, 1): 0, (4, 2): 1}
    for env in range(N):
        obs = unroll.obs[:, env]
        log_policy = torch.log_softmax(policy.actor(obs[:-1]), -1)
        log_probs = log_policy.gather(1, unroll.actions[:, env, None])[:, 0]
        entropy = -(log_policy.exp() * log_policy).sum(-1)
        values = policy.critic(obs)[:, 0]
        next_values = values[1:].detach().numpy().copy()
        for t in range(T):
            if unroll.terminated[t, env]:
                next_values[t] = 0.0
            if unroll.truncated[t, env]:
                final = unroll.final_obs[found[t, env]]
                next_values[t] = policy.critic(final[None]).item()
        log_rhos = (log_probs - unroll.log_probs[:, env]).detach().numpy()
        vs, advantages = paper_targets(
            log_rhos, unroll.rewards[:, env].astype(np.float64), values[:-1].detach().numpy(),
            next_values, ~(unroll.terminated | unroll.truncated)[:, env], objective.gamma,
            objective.rho_bar, objective.c_bar, objective.pg_rho_bar,
        )  # fmt: skip
        total = total - (torch.from_numpy(advantages) * log_probs).sum()
        total = total + objective.vf_coef * (values[:-1] - torch.from_numpy(vs)).square().sum()
        total = total - objective.ent_coef * entropy.sum()
    return total / (T * N)


@pytest.mark.parametrize("pg_rho_bar", [1.0, 0.6, 2.0])
@pytest.mark.parametrize("loss_reduction", ["mean", "sum"])
def test_loss_and_gradient_equal_the_reference(pg_rho_bar: float, loss_reduction: Any) -> None:
    """One update in double precision, with truncations, agrees to 1e-9."""
    unroll, policy = random_unroll(np.random.default_rng(3)), make_double_policy()
    objective = VTraceActorCritic(
        gamma=0.9, vf_coef=0.4, ent_coef=0.02, rho_bar=0.8, c_bar=0.7, pg_rho_bar=pg_rho_bar,
        loss_reduction=loss_reduction,
    )  # fmt: skip
    parameters = list(policy.parameters())
    expected = reference_loss(policy, unroll, objective) * (T * N if loss_reduction == "sum" else 1)
    loss, terms = objective.loss(policy, unroll)
    torch.testing.assert_close(loss, expected, rtol=1e-9, atol=1e-9)
    found = torch.autograd.grad(loss, parameters)
    for one, other in zip(found, torch.autograd.grad(expected, parameters), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)
    assert 0 < float(terms.clipped_fraction) < 1
    assert all(not term.requires_grad for term in vars(terms).values())


def test_values_of_the_actor_are_not_read() -> None:
    """Targets use the learner's current values, not the actor's estimates."""
    unroll, policy = random_unroll(np.random.default_rng(5)), make_double_policy()
    objective = VTraceActorCritic(gamma=0.9, vf_coef=0.4)
    stale = replace(
        unroll, values=torch.full((T + 1, N), 1e6), final_values=np.full((T, N), 1e6, np.float32)
    )
    assert torch.equal(objective.loss(policy, stale)[0], objective.loss(policy, unroll)[0])


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_memory_is_replayed_to_final_observations(kind: Any) -> None:
    """Final observations of truncations use the episode's memory, first ones after resets none."""
    rng = np.random.default_rng(7)
    box = spaces.Box(-1, 1, (OBS,), np.float32)
    policy: Any = make_policy(box, spaces.Discrete(ACTIONS), recurrent=kind, memory_size=5)
    unroll = random_unroll(rng, torch.float32)
    ended = torch.from_numpy(unroll.terminated | unroll.truncated)
    starts = torch.cat([torch.zeros(1, N, dtype=torch.bool), ended[:-1]])
    memory = torch.from_numpy(rng.normal(size=(N, policy.state_size))).float()
    unroll = replace(unroll, episode_starts=starts, initial_state=memory)
    objective = VTraceActorCritic(gamma=0.9, vf_coef=1.0)
    loss, _ = objective.loss(policy, unroll)
    found = {(1, 1): 0, (4, 2): 1}
    total = 0.0
    for env in range(N):
        state = memory[env : env + 1]
        log_rhos, values, next_values, log_probs = [], [], np.zeros(T), []
        for t in range(T):
            state = torch.zeros_like(state) if starts[t, env] else state
            step = policy.step(unroll.obs[t, env : env + 1], state)
            values.append(step[1].item())
            log_probs.append(step[0].log_prob(unroll.actions[t, env : env + 1]).item())
            log_rhos.append(log_probs[-1] - unroll.log_probs[t, env].item())
            state = step[2]
            if (t, env) in found:
                final = unroll.final_obs[found[t, env]][None]
                next_values[t] = policy.step(final, state)[1].item()
            elif not unroll.terminated[t, env]:
                following = unroll.obs[t + 1, env : env + 1]
                next_values[t] = policy.step(following, state)[1].item()
        vs, advantages = paper_targets(
            log_rhos, unroll.rewards[:, env].astype(float), np.array(values), next_values,
            ~(unroll.terminated | unroll.truncated)[:, env], 0.9, 1.0, 1.0, 1.0,
        )  # fmt: skip
        total += float((-advantages * log_probs + (np.array(values) - vs) ** 2).sum())
    assert math.isclose(loss.item(), total / (T * N), rel_tol=1e-5)


def test_joined_unrolls_have_the_mean_of_their_losses() -> None:
    """Final observations keep their places among the envs of several actors."""
    rng, policy = np.random.default_rng(8), make_double_policy()
    unrolls = [random_unroll(rng), random_unroll(rng)]
    unrolls.append(replace(random_unroll(rng), truncated=np.zeros((T, N), bool), final_obs=None))
    objective = VTraceActorCritic(gamma=0.9, vf_coef=0.4, ent_coef=0.01)
    apart = [objective.loss(policy, unroll)[0] for unroll in unrolls]
    joined = join_unrolls(unrolls)
    assert joined.n_envs == 3 * N
    torch.testing.assert_close(
        objective.loss(policy, joined)[0], torch.stack(apart).mean(), rtol=1e-12, atol=1e-12
    )


def test_unrolls_of_different_lengths_are_not_joined() -> None:
    """The error names the lengths."""
    unroll = random_unroll(np.random.default_rng(9))
    short = replace(unroll, rewards=unroll.rewards[:-1])
    with pytest.raises(ValueError, match=r"got the lengths \[5, 6\]"):
        join_unrolls([unroll, short])


def test_arrays_of_an_unroll_make_it_again() -> None:
    """Nested observations, memory, masks, moments and plain numbers are included."""
    rng = np.random.default_rng(10)
    unroll = random_unroll(rng)
    unroll = replace(
        unroll,
        obs={"a.b": unroll.obs, "c:d": unroll.obs + 1},
        final_obs={"a.b": unroll.final_obs, "c:d": unroll.final_obs + 1},
        action_masks=torch.ones(T, N, ACTIONS, dtype=torch.bool),
        initial_state=torch.ones(N, 2),
        episode_starts=torch.zeros(T, N, dtype=torch.bool),
        weights_version=3, actor=1, sequence=7, resets=True,
        moments={"a.b": {"mean": np.ones(4), "variance": np.ones(4), "count": np.array(2.0)}},
    )  # fmt: skip
    arrays = unroll_to_arrays(unroll)
    again = unroll_to_arrays(unroll_from_arrays(arrays))
    assert set(arrays) == set(again)
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, again[name])
