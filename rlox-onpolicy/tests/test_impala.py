"""IMPALA: conformance, order and lag of unrolls, exact resuming, and its options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import rlox
import rlox.testing
import torch
from rlox.batches.rollout import Unroll
from rlox.envs.make import make_vec_env
from rlox.errors import ConfigError
from rlox_onpolicy.impala import IMPALA

SMALL: dict[str, Any] = {"n_actors": 2, "n_envs": 2, "n_steps": 16, "hidden": 8}


def test_passes_the_conformance_suite() -> None:
    """One probed env per actor; no check is left out, with moments that travel."""
    options = {**SMALL, "normalize_observations": True, "frame_stack": 2}
    assert rlox.testing.check_algorithm("impala", **options) == {}


def test_resuming_is_exact_with_a_memory_and_uneven_updates() -> None:
    """More unrolls than actors, each with its first state, and some unfinished when saved."""
    options = {**SMALL, "recurrent": "lstm", "memory_size": 8, "unrolls_per_update": 3}
    options |= {"queue_size": 3, "loss_reduction": "sum"}
    assert rlox.testing.check_resume("impala", **options) is None


@pytest.mark.parametrize(("queue_size", "lags"), [(0, (0, 0)), (3, (1, 2)), (4, (2, 2))])
def test_the_lag_follows_from_the_queue(queue_size: int, lags: tuple[int, int]) -> None:
    """Once the queue is full, the age of unrolls is its length."""
    with IMPALA("CartPole-v1", seed=0, queue_size=queue_size, **SMALL) as impala:
        metrics = impala.train(6 * 64)
        assert impala.clock.iterations == 6
        assert (metrics["lag_min"], metrics["lag_max"]) == lags
        assert metrics["mean_abs_log_rho"] < 1e-6 or queue_size > 0


def test_actor_and_version_of_each_unroll_are_fixed() -> None:
    """Unroll k is actor k mod A's, with weights version max(0, ceil((k + 1 - Q) / U) - 1)."""
    kept: list[tuple[int, int, int]] = []
    with IMPALA("CartPole-v1", seed=0, **{**SMALL, "n_actors": 3}, unrolls_per_update=2,
                queue_size=3) as impala:  # fmt: skip
        pool = impala.actors._pool
        take = pool.take

        def watch(weights: Any) -> Any:
            taken = take(weights)
            kept.extend((u.actor, u.sequence, u.weights_version) for u in taken.unrolls)
            return taken

        pool.take = watch  # type: ignore[method-assign]
        impala.train(6 * 64)
    expected = [(k % 3, k // 3, max(0, -(-(k + 1 - 3) // 2) - 1)) for k in range(12)]
    assert kept == expected


def test_arrival_drops_what_is_too_old() -> None:
    """The first ready actor is served first; unrolls beyond max_lag are counted and dropped."""
    options = {**SMALL, "order": "arrival", "queue_size": 6, "max_lag": 1}
    with IMPALA("CartPole-v1", seed=0, **options) as impala:
        metrics = impala.train(12 * 64)
        assert metrics["lag_max"] <= 1
        assert metrics["unrolls_dropped"] >= 1
        assert impala.clock.env_steps == 12 * 64


@pytest.mark.parametrize("n_envs", [1, 4])
def test_another_number_of_envs_goes_on(tmp_path: Path, n_envs: int) -> None:
    """New episodes begin, and unrolls of the old number of envs are dropped."""
    with IMPALA("CartPole-v1", seed=0, **SMALL) as impala:
        impala.train(256)
        impala.save(tmp_path / "impala.safetensors")
    with IMPALA.from_checkpoint(tmp_path / "impala.safetensors", n_envs=n_envs) as resumed:
        assert resumed.train(n_envs * 256)["episodes"] > 0
        assert resumed.clock.env_steps == 256 + n_envs * 256


class Paying(gymnasium.Env[Any, Any]):
    """Three steps that pay 0.5, 7 and -9, clipped to the bound."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, bound: float = np.inf) -> None:
        self._bound = bound
        self._step = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Begin with the first reward."""
        super().reset(seed=seed)
        self._step = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        """Pay the next reward."""
        reward = float(np.clip((0.5, 7.0, -9.0)[self._step], -self._bound, self._bound))
        self._step += 1
        return np.full(2, self._step / 4, np.float32), reward, self._step == 3, False, {}


def test_envs_that_are_objects_give_the_number_of_actors() -> None:
    """A list has one vector env per actor; a single vector env makes one actor."""
    envs = [make_vec_env("CartPole-v1", n_envs=3) for _ in range(2)]
    with IMPALA(envs, n_steps=4) as impala:
        assert (impala.config.n_actors, impala.config.n_envs) == (2, 3)
        impala.train(1)
        assert impala.clock.env_steps == 24
    with IMPALA(envs[0], n_steps=4) as impala:
        assert (impala.config.n_actors, impala.config.n_envs) == (1, 3)


@pytest.mark.parametrize(
    ("env", "options", "message"),
    [
        ("CartPole-v1", {"order": "fixed", "min_workers": 1}, "needs order='arrival'"),
        ("CartPole-v1", {"min_workers": 3}, "min_workers 3 exceeds n_actors 2"),
        ("CartPole-v1", {"queue_size": 4, "max_lag": 1}, "max_lag 1 is less than the lag 2"),
        ([], {}, "a list of envs must hold a vector env for each actor"),
        (Paying, {"worker_addresses": ["127.0.0.1:1"] * 2}, "needs the id of the env"),
        ("object", {"n_actors": 2}, "n_actors is 2, but the env is 1 vector envs"),
        ("object", {"actor_backend": "process"}, "actor_backend 'process' builds its envs"),
    ],
)
def test_contradictions_are_refused(env: Any, options: dict[str, Any], message: str) -> None:
    """Before any work, with the remedy."""
    given = make_vec_env("CartPole-v1", n_envs=2) if env == "object" else env
    with pytest.raises(ConfigError, match=message):
        IMPALA(given, **options)


def test_a_checkpoint_of_other_actors_does_not_fit(tmp_path: Path) -> None:
    """The number of actors is part of the state."""
    path = tmp_path / "impala.rlox"
    with IMPALA("CartPole-v1", **SMALL) as impala:
        impala.train(1)
        impala.save(path)
    with pytest.raises(rlox.errors.CheckpointError, match="it has 2 actors, got n_actors=3"):
        IMPALA.from_checkpoint(path, n_actors=3)


def test_added_losses_and_objectives_get_the_unroll() -> None:
    """A custom loss is a function of policy and unroll."""

    def small_weights(policy: Any, unroll: Unroll) -> torch.Tensor:
        assert unroll.obs.shape == (17, 4, 4)
        return sum(p.square().sum() for p in policy.parameters()) * 0.0

    losses = {"policy": small_weights}
    with IMPALA("CartPole-v1", added_losses=losses, **SMALL) as impala:
        assert impala.train(1)["small_weights"] == 0.0


def test_envs_without_a_state_begin_new_episodes(tmp_path: Path) -> None:
    """Returns start anew, and nothing is counted twice."""
    path = tmp_path / "impala.rlox"
    options = {**SMALL, "env_backend": "gymnasium", "queue_size": 2}
    with IMPALA("CartPole-v1", seed=0, **options) as impala:
        impala.train(4 * 64)
        impala.save(path)
        before = impala.actors.statistics.finished
    with IMPALA.from_checkpoint(path) as impala:
        assert impala.actors.statistics.finished == before
        impala.train(64 * 8)
        lengths = impala.actors.statistics.mean_length
        assert lengths == impala.actors.statistics.mean_return


@pytest.mark.parametrize("name", ["impala", "appo"])
def test_clipped_rewards_are_learnt_from_and_not_reported(name: str) -> None:
    """Parameters equal those of training on clipped rewards; returns stay the env's."""
    learnt = []
    for env, clip, mean_return in ((Paying, 1.0, -1.5), (lambda: Paying(1.0), None, 0.5)):
        with rlox.make(name, env=env, seed=0, clip_rewards=clip, **SMALL) as algorithm:
            for _ in range(3):
                metrics = algorithm.train(1)
            assert metrics["mean_reward"] == mean_return
            learnt.append(algorithm.optimizers["policy"].parameters.clone())
    assert torch.equal(*learnt)
