"""APPO: batches near a target policy, the target network, exact resume, threads and processes."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rlox.testing
import torch
from rlox.batches import join_unrolls
from rlox.batches.rollout import Unroll, estimate_advantages
from rlox.errors import ConfigError
from rlox.learners import TargetPolicy
from rlox.losses import evaluate_actions
from rlox.networks.actor_critics import make_policy
from rlox.rollouts import RolloutCollector
from rlox_onpolicy.appo import APPO
from rlox_testing.probes import first_difference

SMALL: dict[str, Any] = {"n_actors": 2, "n_envs": 2, "n_steps": 16, "hidden": 8, "batch_size": 16}


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_passes_the_conformance_suite(env: str) -> None:
    """One probed env per actor; no check is left out."""
    assert rlox.testing.check_algorithm("appo", env=env, **SMALL) == {}


@pytest.mark.parametrize(
    "options",
    [
        {"recurrent": "lstm", "memory_size": 8},
        {"normalize_observations": True, "frame_stack": 2, "advantages": "gae"},
        {"unrolls_per_update": 3, "target_update_interval": 3, "backend": "torch"},
    ],
    ids=["memory", "preprocessing", "uneven"],
)
def test_options_pass_the_conformance_suite(options: dict[str, Any]) -> None:
    """Memory, moments that travel with the weights, and more unrolls than actors."""
    small = {**SMALL, "unrolls_per_update": 2, **options}
    for check in rlox.testing.ALGORITHM_CHECKS[4:]:
        assert check("appo", **small) is None


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
    """The target policy is the one that acted."""
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
    """The ratios of target policy and actors decide the advantages of the former alone."""
    unroll, acted = collected()
    target = moved(acted)
    batch, _ = TargetPolicy(0.9, "vtrace").batch(unroll, target)
    gae, _ = TargetPolicy(0.9, "gae", 1.0).batch(unroll, target)
    ratios = (gae.log_probs - unroll.log_probs.flatten()).exp().view(32, 3)[-1]
    last = unroll.terminated[-1] | unroll.truncated[-1]
    assert not last.any()
    # of the last step, V-trace's advantage is the clipped ratio times that without a ratio
    expected = ratios.clamp(max=1.0) * gae.advantages.view(32, 3)[-1]
    torch.testing.assert_close(batch.advantages.view(32, 3)[-1], expected)


def test_the_target_network_follows_every_k_updates() -> None:
    """It is the policy before updates 0, k, 2k, and rests in between."""
    with APPO("CartPole-v1", seed=0, target_update_interval=3, **SMALL) as appo:
        before, targets = [], []
        for _ in range(5):
            before.append(appo.optimizer.parameters.clone())
            appo.train(1)
            targets.append(torch.nn.utils.parameters_to_vector(appo.target.parameters()).clone())
        for update, target in enumerate(targets):
            assert torch.equal(target, before[update - update % 3])
        assert not torch.equal(before[0], before[3])


def test_resuming_between_copies_is_exact(tmp_path: Path) -> None:
    """With unrolls under way and a target network that is older than the policy."""
    path = tmp_path / "appo.rlox"
    options = {**SMALL, "queue_size": 3, "target_update_interval": 3}
    with APPO("CartPole-v1", seed=0, **options) as appo:
        appo.train(4 * 64)
        appo.save(path)
        appo.train(4 * 64)
        expected = appo.state_dict()
    with APPO.from_checkpoint(path) as appo:
        appo.train(4 * 64)
        assert first_difference(expected, appo.state_dict()) is None


def test_processes_train_as_threads_do() -> None:
    """Bit for bit, with a queue and moments that travel."""
    options = {**SMALL, "normalize_observations": True, "queue_size": 2, "seed": 1}
    states = []
    for backend in ("thread", "process"):
        with APPO("Pendulum-v1", actor_backend=backend, **options) as appo:
            appo.train(4 * 64)
            states.append(appo.state_dict())
    assert first_difference(states[0], states[1]) is None


def test_the_update_is_taken_in_rust_where_it_can() -> None:
    """The surrogate is PPO's, which the native backend knows."""
    pytest.importorskip("rlox_native")
    with APPO("CartPole-v1", **SMALL) as appo:
        assert appo.learner.backend == "native"
        appo.train(64)


def test_arrival_drops_what_is_too_old() -> None:
    """Unrolls beyond max_lag are counted and not learned from."""
    options = {**SMALL, "order": "arrival", "queue_size": 6, "max_lag": 1}
    with APPO("CartPole-v1", seed=0, **options) as appo:
        metrics = appo.train(12 * 64)
        assert metrics["lag_max"] <= 1
        assert metrics["unrolls_dropped"] >= 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 65}, "batch_size 65 exceeds the 64 rows of an update"),
        ({"batch_size": 24, "recurrent": "gru"}, "no multiple of n_steps 16"),
        ({"batch_size": 21}, "a minibatch of one of the update's 64 rows"),
        ({"ratio_bound": 0.5}, "ratio_bound"),
        ({"target_update_interval": 0}, "target_update_interval"),
        ({"queue_size": 4, "max_lag": 1}, "max_lag 1 is less than the lag 2"),
    ],
)
def test_contradictions_are_refused(options: dict[str, Any], message: str) -> None:
    """Before any work, with the remedy."""
    with pytest.raises(ConfigError, match=message):
        APPO("CartPole-v1", **{**SMALL, **options})


def test_minibatches_are_no_larger_than_an_update() -> None:
    """Unless the size was chosen, it is at most the update's."""
    small = {name: value for name, value in SMALL.items() if name != "batch_size"}
    with APPO("CartPole-v1", **small) as appo:
        assert appo.config.batch_size == 64


def test_unrolls_of_several_actors_are_joined_before() -> None:
    """One batch of all envs side by side."""
    unroll, policy = collected()
    joined = join_unrolls([unroll, unroll])
    batch, _ = TargetPolicy(0.99).batch(joined, policy)
    single, _ = TargetPolicy(0.99).batch(unroll, policy)
    rows = batch.advantages.view(32, 6)
    np.testing.assert_array_equal(rows[:, :3], single.advantages.view(32, 3))
    np.testing.assert_array_equal(rows[:, 3:], single.advantages.view(32, 3))
