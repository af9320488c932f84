"""A training whose networks diverge, or are replaced under it, says so with every backend."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rlox.callbacks import Callback, CheckpointCallback
from rlox.errors import DivergenceError
from rlox_offline.awac import AWAC
from rlox_offline.bc import BC
from rlox_offline.cql import CQL
from rlox_offline.datasets import Dataset
from rlox_offline.fqe import FQE
from rlox_offline.iql import IQL
from rlox_offline.td3_bc import TD3BC
from rlox_offpolicy.crossq import CrossQ
from rlox_offpolicy.ddpg import DDPG
from rlox_offpolicy.discrete_sac import DiscreteSAC
from rlox_offpolicy.dqn import DQN
from rlox_offpolicy.sac import SAC
from rlox_offpolicy.td3 import TD3
from rlox_onpolicy.a2c import A2C
from rlox_onpolicy.ppo import PPO
from torch import nn

SMALL: dict[str, Any] = {"n_envs": 4, "n_steps": 32, "batch_size": 32, "n_epochs": 2}
REPLAY: dict[str, Any] = {
    "hidden": 8,
    "batch_size": 16,
    "buffer_size": 500,
    "learning_starts": 32,
    "steps_per_iteration": 64,
}
OFFLINE: dict[str, Any] = {"hidden": 8, "batch_size": 16, "steps_per_iteration": 8}


def dataset() -> Dataset:
    """Return transitions at random, with actions in [-2, 2]."""
    rng, n = np.random.default_rng(0), 100
    last = np.arange(n) % 10 == 9
    columns = {
        "obs": rng.normal(size=(n, 3)).astype(np.float32),
        "next_obs": rng.normal(size=(n, 3)).astype(np.float32),
        "actions": rng.uniform(-2, 2, (n, 1)).astype(np.float32),
        "rewards": rng.normal(size=n).astype(np.float32),
        "terminated": last,
        "truncated": np.zeros(n, bool),
    }
    return Dataset(columns, act_low=-2.0, act_high=2.0)


class Middle:
    """A policy of one action."""

    def predict(self, obs: Any, deterministic: bool = True) -> Any:
        return np.zeros((*np.shape(obs)[:-1], 1), np.float32)


ALGORITHMS: dict[str, Callable[..., Any]] = {
    "ppo": lambda **options: PPO("CartPole-v1", **SMALL, **options),
    "a2c": lambda **options: A2C("CartPole-v1", n_envs=4, n_steps=32, **options),
    "dqn": lambda **options: DQN("CartPole-v1", **REPLAY, **options),
    "discrete_sac": lambda **options: DiscreteSAC("CartPole-v1", **REPLAY, **options),
    "sac": lambda **options: SAC("Pendulum-v1", **REPLAY, **options),
    "crossq": lambda **options: CrossQ("Pendulum-v1", **REPLAY, **options),
    "td3": lambda **options: TD3("Pendulum-v1", **REPLAY, **options),
    "ddpg": lambda **options: DDPG("Pendulum-v1", **REPLAY, **options),
    "bc": lambda **options: BC(dataset(), **OFFLINE, **options),
    "td3_bc": lambda **options: TD3BC(dataset(), **OFFLINE, **options),
    "awac": lambda **options: AWAC(dataset(), **OFFLINE, **options),
    "iql": lambda **options: IQL(dataset(), **OFFLINE, **options),
    "cql": lambda **options: CQL(dataset(), **OFFLINE, **options),
    "fqe": lambda **options: FQE(dataset(), policy=Middle(), **OFFLINE, **options),
}

BACKENDS = [
    pytest.param(name, options, id=" ".join((name, *options.values())))
    for name in ALGORITHMS
    for options in (
        [{}]
        if name in ("discrete_sac", "crossq", "bc", "awac", "fqe")
        else [{"backend": "torch"}, {"backend": "native"}]
    )
]


class Spoil(Callback):
    """Makes the first network's parameters NaN after some gradient steps."""

    def __init__(self, after: int = 3) -> None:
        self.after = after
        self.spoilt = False

    def on_train_batch(self, **kwargs: Any) -> None:
        if kwargs["gradient_step"] == self.after:
            next(iter(kwargs["algo"].optimizers.values())).parameters.fill_(float("nan"))
            self.spoilt = True

    def on_iteration_end(self, **kwargs: Any) -> None:
        assert not self.spoilt


@pytest.mark.parametrize(("name", "options"), BACKENDS)
def test_parameters_that_are_not_finite_end_a_training(name: str, options: dict[str, str]) -> None:
    """At the end of the iteration, before a callback sees it; before that all trains as ever."""
    spoil = Spoil()
    algorithm = ALGORITHMS[name](callbacks=[spoil], **options)
    first = next(iter(algorithm.optimizers))
    with pytest.raises(DivergenceError, match=rf"diverged: after .* the parameters of {first}"):
        algorithm.train(512)
    assert spoil.spoilt


@pytest.mark.parametrize("backend", ["torch", "native"])
@pytest.mark.parametrize(
    ("env", "env_backend"),
    [("CartPole-v1", "native"), ("Pendulum-v1", "native"), ("Pendulum-v1", "gymnasium")],
)
def test_a_diverged_policy_is_not_the_envs_fault(env: str, env_backend: str, backend: str) -> None:
    """The error says which steps, which network and what to lower, and no env is blamed."""
    ppo = PPO(env, vf_coef=1e38, env_backend=env_backend, backend=backend, **SMALL)
    with pytest.raises(
        DivergenceError, match=r"after 128 env steps the parameters of policy .* lower the learning"
    ):
        ppo.train(2_000)


def test_an_error_within_the_iteration_is_reported_as_divergence() -> None:
    """The env that refuses a diverged policy's actions is the cause, not the error."""
    sac = SAC("Pendulum-v1", **REPLAY, callbacks=[Spoil(after=1)])
    with pytest.raises(DivergenceError, match="the parameters of policy") as caught:
        sac.train(256)
    assert isinstance(caught.value.__cause__, ValueError)
    assert "finite" in str(caught.value.__cause__)


def test_checkpoints_of_a_diverged_training_stay_good(tmp_path: Path) -> None:
    """The iteration that diverged is not saved."""
    saving = CheckpointCallback(128, tmp_path, verbose=False)
    ppo = PPO("CartPole-v1", **SMALL, callbacks=[saving, Spoil(after=12)])
    with pytest.raises(DivergenceError):
        ppo.train(1_000)
    assert [path.name for path in tmp_path.iterdir()] == ["step-128.safetensors"]
    restored = PPO.from_checkpoint(tmp_path / "step-128.safetensors")
    assert restored.optimizer.is_finite()


class SpoilAtTheEnd(Callback):
    """Makes the first network's parameters NaN in one of the last hooks."""

    def __init__(self, hook: str) -> None:
        setattr(self, hook, self.spoil)

    def spoil(self, **kwargs: Any) -> None:
        next(iter(kwargs["algo"].optimizers.values())).parameters.fill_(float("nan"))


@pytest.mark.parametrize("hook", ["on_iteration_end", "on_training_end"])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_what_a_last_hook_made_of_the_parameters_is_reported(name: str, hook: str) -> None:
    """After the last iteration too, for what is saved next would be worthless."""
    algorithm = ALGORITHMS[name]()
    callback = SpoilAtTheEnd(hook)
    algorithm.callbacks.callbacks.append(callback)
    with pytest.raises(DivergenceError, match="diverged: after"):
        algorithm.train(64)


def replace_data(policy: Any) -> None:
    """Give all parameters the data of one vector."""
    values = nn.utils.parameters_to_vector(policy.parameters()).detach().clone()
    nn.utils.vector_to_parameters(values, policy.parameters())


REPLACED = "parameters of the .* were replaced, .*copy_"


@pytest.mark.parametrize(("name", "options"), BACKENDS)
def test_a_training_of_replaced_parameters_is_refused(name: str, options: dict[str, str]) -> None:
    """Before anything is learnt, for gradient steps would not reach them."""
    algorithm = ALGORITHMS[name](**options)
    algorithm.train(64)
    for optimizer in algorithm.optimizers.values():
        optimizer.require_views()
    replace_data(getattr(algorithm, {"dqn": "network", "fqe": "critic"}.get(name, "policy")))
    before = algorithm.clock.steps
    with pytest.raises(RuntimeError, match=REPLACED):
        algorithm.train(64)
    assert algorithm.clock.steps == before


@pytest.mark.parametrize("backend", ["torch", "native"])
def test_two_trainings_of_one_module_are_refused(backend: str) -> None:
    """The second takes the parameters over; the first says so, and a copy is for both."""
    first = PPO("CartPole-v1", backend=backend, **SMALL)
    second = PPO("CartPole-v1", policy=first.policy, backend=backend, **SMALL)
    with pytest.raises(RuntimeError, match=REPLACED):
        first.train(128)
    second.train(128)


@pytest.mark.parametrize("backend", ["torch", "native"])
def test_replacing_parameters_in_the_last_iteration_is_an_error(backend: str) -> None:
    """What was learnt after it is lost, so that the training does not end as if it were not."""

    class Replace(Callback):
        def on_train_batch(self, **kwargs: Any) -> None:
            replace_data(kwargs["algo"].policy)

    with pytest.raises(RuntimeError, match=REPLACED):
        PPO("CartPole-v1", backend=backend, callbacks=[Replace()], **SMALL).train(128)


def test_values_written_in_place_are_trained_on() -> None:
    """Loading a state between two trainings is no replacement."""
    ppo, other = (PPO("CartPole-v1", seed=seed, **SMALL) for seed in (0, 1))
    ppo.policy.load_state_dict(other.policy.state_dict())
    assert torch.equal(ppo.optimizer.parameters, other.optimizer.parameters)
    ppo.train(128)
    assert not torch.equal(ppo.optimizer.parameters, other.optimizer.parameters)
