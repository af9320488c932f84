"""APPO: batches near a target policy, the target network, exact resume, threads and processes."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import rlox.testing
import torch
from rlox.batches.rollout import Unroll, estimate_advantages
from rlox.envs import make_vec_env
from rlox.errors import ConfigError
from rlox.losses import evaluate_actions
from rlox.networks.actor_critics import make_policy
from rlox.rollouts import RolloutCollector
from rlox_onpolicy.appo import APPO
from rlox_onpolicy.vtrace import TargetPolicy

SMALL: dict[str, Any] = {"n_actors": 2, "n_envs": 2, "n_steps": 16, "hidden": 8, "batch_size": 16}


def test_passes_the_conformance_suite() -> None:
    """One probed env per actor; no check is left out."""
    assert rlox.testing.check_algorithm("appo", env="Pendulum-v1", **SMALL) == {}


def test_resuming_is_exact_with_memory_and_moments() -> None:
    """With more unrolls than actors, and a target network older than the policy."""
    options = {"recurrent": "lstm", "memory_size": 8, "normalize_observations": True}
    options |= {"unrolls_per_update": 3, "target_update_interval": 3, "queue_size": 3}
    assert rlox.testing.check_resume("appo", **SMALL, **options) is None


def collected(n_steps: int = 32) -> tuple[Unroll, Any]:
    """Return an unroll of CartPole and the policy that acted."""
    collector = RolloutCollector("CartPole-v1", 3, 0)
    spaces = collector.observation_space, collector.env.action_space
    policy = make_policy(*spaces, hidden=8, generator=torch.Generator().manual_seed(0))
    unroll = collector.unroll(policy, n_steps)
    collector.close()
    return unroll, policy


def moved(policy: Any, by: float = 0.3) -> Any:
    """Return a policy whose parameters differ."""
    other = copy.deepcopy(policy)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in other.parameters():
            p.add_(by * torch.randn(p.shape, generator=generator))
    return other


def test_with_fresh_weights_and_gae_the_batch_is_ppos() -> None:
    """The target policy is the acting one."""
    unroll, policy = collected()
    batch, ratios = TargetPolicy(0.99, "gae", 0.9).batch(unroll, policy)
    expected = estimate_advantages(unroll, policy, 0.99, 0.9)
    for name in ("log_probs", "values", "advantages", "returns"):
        torch.testing.assert_close(getattr(batch, name), getattr(expected, name))
    assert ratios["mean_abs_log_rho"] < 1e-6
    assert ratios["clipped_fraction"] == 0.0


def test_with_fresh_weights_vtrace_is_gae_without_decay() -> None:
    """On-policy V-trace's targets are n-step returns (Espeholt et al. 2018, remark 1)."""
    unroll, policy = collected()
    batch, _ = TargetPolicy(0.99, "vtrace").batch(unroll, policy)
    expected = estimate_advantages(unroll, policy, 0.99, 1.0)
    torch.testing.assert_close(batch.returns, expected.returns, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(batch.advantages, expected.advantages, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("bound", [1.0, 1.1, 2.0])
def test_the_ratio_is_the_papers(bound: float) -> None:
    """π / old equals min(μ/π_t, β) π/μ for every step."""
    unroll, acted = collected()
    target, policy = moved(acted), moved(acted, 0.5)
    batch, ratios = TargetPolicy(0.99, ratio_bound=bound).batch(unroll, target)
    with torch.no_grad():
        new, of_target = (evaluate_actions(p, batch)[0] for p in (policy, target))
    mu = unroll.log_probs.flatten()
    expected = (mu - of_target).clamp(max=math.log(bound)) + new - mu
    torch.testing.assert_close(new - batch.log_probs, expected)
    assert bool(((mu - of_target) > math.log(1.1)).any())  # the bound has something to do
    assert ratios["mean_abs_log_rho"] == pytest.approx(float((of_target - mu).abs().mean()))


def test_vtrace_corrects_for_old_weights_and_gae_does_not() -> None:
    """Only V-trace's advantages depend on the ratios of target policy and actors."""
    unroll, acted = collected()
    target = moved(acted)
    batch, _ = TargetPolicy(0.9, "vtrace").batch(unroll, target)
    gae, _ = TargetPolicy(0.9, "gae", 1.0).batch(unroll, target)
    ratios = (gae.log_probs - unroll.log_probs.flatten()).exp().view(32, 3)[-1]
    last = unroll.terminated[-1] | unroll.truncated[-1]
    assert not last.any()
    # in the last step, V-trace's advantage is the clipped ratio times GAE's
    expected = ratios.clamp(max=1.0) * gae.advantages.view(32, 3)[-1]
    torch.testing.assert_close(batch.advantages.view(32, 3)[-1], expected)


def test_the_target_network_follows_every_k_updates() -> None:
    """It copies the policy before updates 0, k, 2k, ... and is fixed in between."""
    with APPO("CartPole-v1", seed=0, target_update_interval=3, **SMALL) as appo:
        before, targets = [], []
        for _ in range(5):
            before.append(appo.optimizer.parameters.clone())
            appo.train(1)
            targets.append(torch.nn.utils.parameters_to_vector(appo.target.parameters()).clone())
        for update, target in enumerate(targets):
            assert torch.equal(target, before[update - update % 3])
        assert not torch.equal(before[0], before[3])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 65}, "batch_size 65 exceeds the 64 rows of an update"),
        ({"batch_size": 24, "recurrent": "gru"}, "not a multiple of n_steps 16"),
        ({"batch_size": 21}, "a minibatch of one of the update's 64 rows"),
    ],
)
def test_contradictions_are_refused(options: dict[str, Any], message: str) -> None:
    """Before any work, with the remedy."""
    with pytest.raises(ConfigError, match=message):
        APPO("CartPole-v1", **{**SMALL, **options})


def test_minibatches_are_compared_with_the_rows_of_the_env() -> None:
    """Not with those of the default numbers of actors and envs."""
    with APPO(make_vec_env("CartPole-v1", n_envs=32), n_steps=16, batch_size=512) as appo:
        assert (appo.config.n_actors, appo.config.n_envs) == (1, 32)
