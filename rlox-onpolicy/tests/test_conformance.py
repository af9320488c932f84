"""PPO passes ``rlox.testing``, and ``rlox.testing`` catches planted faults.

Every mutant below is PPO, a vector env or a logger with one planted fault; the check named next to
it must fail and say why.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rlox.testing
import torch
from gymnasium import spaces
from rlox import registry
from rlox.envs.gymnasium import GymVecEnv
from rlox.logging import JsonlLogger
from rlox.registry import table
from rlox.registry.specs import AlgorithmSpec, EnvBackendSpec, LoggerSpec
from rlox.registry.table import Registration
from rlox.training.hooks import StopTraining
from rlox_onpolicy.configs import PPOConfig
from rlox_onpolicy.ppo import PPO

pytestmark = pytest.mark.filterwarnings("ignore:rlox-native is not installed:RuntimeWarning")

SMALL = {"n_envs": 2, "n_steps": 64, "batch_size": 32, "n_epochs": 2}

Plant = Callable[..., None]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {
            "recurrent": "lstm", "memory_size": 8, "hidden": 8, "normalize_observations": True,
            "normalize_rewards": True, "frame_stack": 3, "batch_size": 64,
        },
    ],
)  # fmt: skip
def test_ppo_conforms(options: dict[str, Any]) -> None:
    """No check is left out; memory, moments and frames are saved and restored too."""
    assert rlox.testing.check_algorithm("ppo", **{**SMALL, **options}) == {}


def test_gymnasium_backend_conforms() -> None:
    """The gymnasium backend keeps the contract, but its envs do not expose their state."""
    skipped = rlox.testing.check_env_backend("gymnasium", "Pendulum-v1")
    assert list(skipped) == ["check_env_state"]


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Iterator[Plant]:
    """Return a function that registers an object of this process under the name "mutant"."""
    module = types.ModuleType("planted")
    monkeypatch.setitem(sys.modules, "planted", module)
    installed = registry.load_plugins()

    def plant(hook: str, spec_class: type, **parts: Any) -> None:
        references = {}
        for part, value in parts.items():
            setattr(module, part, value)
            references[part] = value if isinstance(value, str) else f"planted:{part}"
        spec = spec_class(name="mutant", summary="A planted fault.", **references)
        registrations = [*installed, Registration(spec, hook, "planted")]
        monkeypatch.setattr(table, "load_plugins", lambda: registrations)
        registry.get_registry.cache_clear()

    yield plant
    registry.get_registry.cache_clear()


def plant_algorithm(
    plant: Plant, factory: type, config: Any = "rlox_onpolicy.configs:PPOConfig"
) -> None:
    """Register a subclass of PPO as "mutant"."""
    mutant = type(factory.__name__, (factory,), {"name": "mutant"})
    plant("rlox_algorithms", AlgorithmSpec, factory=mutant, config=config)


class HooksWith:
    """The runner's hooks with one of them replaced."""

    def __init__(self, hooks: Any, **replaced: Any) -> None:
        self._hooks = hooks
        self.__dict__.update(replaced)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._hooks, name)


class IgnoresSeed(PPO):
    def __init__(self, env_id: Any, **arguments: Any) -> None:
        super().__init__(env_id, **{**arguments, "seed": 0})


class DrawsFromTheGlobalStream(PPO):
    def iterate(self, hooks: Any) -> Any:
        self.optimizer.parameters.add_(1e-3 * torch.randn(()))
        return super().iterate(hooks)


class ActsFromTheTrainingStream(PPO):
    def predict(self, obs: Any, deterministic: bool = True) -> Any:
        self.streams.torch("policy").seed()
        self.streams.numpy("native actions").random()  # where rlox-native is installed
        return super().predict(obs, deterministic)


class ForgetsTheOptimiser(PPO):
    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "optimizer": {}}


class ForgetsThePolicy(PPO):
    def load_state_dict(self, state: Any) -> None:
        self.optimizer.load_state_dict(state["optimizer"])
        self.collector.load_state_dict(state["collector"])


class SavesViews(PPO):
    def state_dict(self) -> dict[str, Any]:
        views = {name: value.numpy() for name, value in self.policy.state_dict().items()}
        return {**super().state_dict(), "policy": views}


class AddsToWhatItHas(PPO):
    def load_state_dict(self, state: Any) -> None:
        finished = self.collector.statistics.finished
        super().load_state_dict(state)
        self.collector.statistics.finished += finished


class CountsVectorSteps(PPO):
    def iterate(self, hooks: Any) -> Any:
        return super().iterate(HooksWith(hooks, env_step=lambda count: hooks.env_step(1)))


class CountsOncePerRollout(PPO):
    def iterate(self, hooks: Any) -> Any:
        counts: list[int] = []
        metrics = super().iterate(HooksWith(hooks, env_step=counts.append))
        hooks.env_step(sum(counts))
        return metrics


class AdvancesTheClockItself(PPO):
    def iterate(self, hooks: Any) -> Any:
        self.clock.iterations += 1
        return super().iterate(hooks)


class NeverStops(PPO):
    def iterate(self, hooks: Any) -> Any:
        def env_step(count: int) -> None:
            with contextlib.suppress(StopTraining):
                hooks.env_step(count)

        return super().iterate(HooksWith(hooks, env_step=env_step))


class DropsCallbacks(PPO):
    def __init__(self, env_id: Any, **arguments: Any) -> None:
        super().__init__(env_id, **{**arguments, "callbacks": None})


class DropsUnknownOptions(PPO):
    def __init__(self, env_id: Any, **arguments: Any) -> None:
        known = {*PPOConfig.model_fields, "config", "callbacks", "logger"}
        super().__init__(env_id, **{k: v for k, v in arguments.items() if k in known})


class ReportsARolloutsSum(PPO):
    def iterate(self, hooks: Any) -> Any:
        sums: list[float] = []

        def rollout_end(batch: Any) -> None:
            sums.append(float(batch.rewards.sum()))

        metrics = super().iterate(HooksWith(hooks, rollout_end=rollout_end))
        return dataclasses.replace(metrics, mean_reward=sums[0])


class ReportsNaN(PPO):
    def iterate(self, hooks: Any) -> Any:
        return dataclasses.replace(super().iterate(hooks), entropy=float("nan"))


class PredictsATensor(PPO):
    def predict(self, obs: Any, deterministic: bool = True) -> Any:
        return torch.as_tensor(super().predict(obs, deterministic))


class TakesABatchOfOneForOne(PPO):
    def predict(self, obs: Any, deterministic: bool = True) -> Any:
        return super().predict(np.squeeze(obs), deterministic)


class PredictsOutOfBounds(PPO):
    def predict(self, obs: Any, deterministic: bool = True) -> Any:
        return np.float32(100) * super().predict(obs, deterministic)


class SortsItsActions(PPO):
    def policy_data(self) -> Any:
        data = super().policy_data()
        space: Any = data.action_space
        return dataclasses.replace(data, action_space=spaces.Dict({**space.spaces}))


class Remembers(PPO):
    def __init__(self, env_id: Any, **arguments: Any) -> None:
        super().__init__(env_id, **{**arguments, "recurrent": "gru", "batch_size": 64})


class ForgetsWhatItSaw(Remembers):
    def predict(
        self, obs: Any, deterministic: bool = True, *, state: Any = None, **given: Any
    ) -> Any:
        return super().predict(obs, deterministic, state=None, **given)


class NeverForgets(Remembers):
    def predict(self, obs: Any, deterministic: bool = True, *, state: Any = None, **_: Any) -> Any:
        return super().predict(obs, deterministic, state=state)


class IgnoresMasks(PPO):
    def predict(
        self, obs: Any, deterministic: bool = True, *, action_masks: Any = None, **given: Any
    ) -> Any:
        return super().predict(obs, deterministic, **given)


FAULTS: list[tuple[type, str, str]] = [
    (IgnoresSeed, "check_seeding", "the seed is ignored"),
    (DrawsFromTheGlobalStream, "check_seeding", r"same seed differ: .* 'policy\.actor"),
    (ActsFromTheTrainingStream, "check_seeding", r"predict\(deterministic=False\) changes"),
    (ForgetsTheOptimiser, "check_resume", r"ends elsewhere .* 'state_dict\.policy"),
    (ForgetsThePolicy, "check_checkpoint", r"restored state differs .* 'state_dict\.policy"),
    (SavesViews, "check_checkpoint", "must return copies, but training changed .* 'policy"),
    (AddsToWhatItHas, "check_checkpoint", r"must replace its own: .*'collector\.statistics"),
    (CountsVectorSteps, "check_training", "64 env steps, the env made 128"),
    (CountsOncePerRollout, "check_callbacks", r"after each vector step .* got \[128\]"),
    (AdvancesTheClockItself, "check_training", "leave the clock to hooks"),
    (NeverStops, "check_callbacks", "returned False after 4 env steps, but training went on"),
    (DropsCallbacks, "check_callbacks", r"on_step must come .* \(0 of 64\)"),
    (DropsCallbacks, "check_resume", "pass callbacks= on"),
    (DropsUnknownOptions, "check_unknown_option", "'adaptive_kl_' was accepted"),
    (ReportsARolloutsSum, "check_training", "mean_reward is 128.0, but the mean return"),
    (ReportsNaN, "check_training", "the metric 'entropy' is nan"),
    (PredictsATensor, "check_predict", "must be a NumPy array, got Tensor"),
    (TakesABatchOfOneForOne, "check_predict", "must be a NumPy array, got int"),
    (SortsItsActions, "check_order", "exported, it acts otherwise"),
    (ForgetsWhatItSaw, "check_memory", "it forgets its first observation"),
    (NeverForgets, "check_memory", "an episode's begin does not empty its memory"),
    (IgnoresMasks, "check_masks", "the action . is forbidden by the mask"),
]


@pytest.mark.parametrize(
    ("factory", "check", "reason"), FAULTS, ids=[f"{f.__name__}-{check}" for f, check, _ in FAULTS]
)
def test_check_catches_a_faulty_algorithm(
    plant: Plant, factory: type, check: str, reason: str
) -> None:
    """The check fails with its name first, the algorithm's next and then the reason."""
    plant_algorithm(plant, factory)
    with pytest.raises(AssertionError, match=rf"^{check}\('mutant'\): .*{reason}"):
        getattr(rlox.testing, check)("mutant", **SMALL)


def test_check_predict_catches_actions_out_of_bounds(plant: Plant) -> None:
    """Continuous actions must lie in the action space."""
    plant_algorithm(plant, PredictsOutOfBounds)
    with pytest.raises(AssertionError, match=r"check_predict.* must lie in Box\(-2.0, 2.0"):
        rlox.testing.check_predict("mutant", env="Pendulum-v1", **SMALL)


def test_check_spec_catches_a_class_of_another_name(plant: Plant) -> None:
    """A checkpoint carries the class's name, so it must be the registered one."""
    plant("rlox_algorithms", AlgorithmSpec, factory=PPO, config="rlox_onpolicy.configs:PPOConfig")
    with pytest.raises(AssertionError, match=r"PPO\.name must be 'mutant', got 'ppo'"):
        rlox.testing.check_spec("mutant")


def test_check_spec_catches_a_config_that_imports_torch(
    plant: Plant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A config module must stay free of torch."""
    code = "import torch\nfrom rlox_onpolicy.configs import PPOConfig\n"
    (tmp_path / "heavy_config.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    plant_algorithm(plant, PPO, config="heavy_config:PPOConfig")
    with pytest.raises(AssertionError, match="'heavy_config' imports torch"):
        rlox.testing.check_spec("mutant")


def test_check_config_documented_catches_a_bare_field(plant: Plant) -> None:
    """An option without a unit and a source is named."""

    class BareConfig(PPOConfig):
        """Options with one that nobody documented."""

        depth: int = 3

    plant_algorithm(plant, PPO, config=BareConfig)
    with pytest.raises(AssertionError, match="'depth' lacks its description, unit, source"):
        rlox.testing.check_config_documented("mutant")


def test_check_config_round_trip_catches_an_option_that_is_not_written(plant: Plant) -> None:
    """An option that the file lacks comes back as its default."""

    class LossyConfig(PPOConfig):
        """Options, one of which is not written."""

        hidden: int = PPOConfig.model_fields["hidden"].merge_field_infos(
            PPOConfig.model_fields["hidden"], exclude=True
        )

    plant_algorithm(plant, PPO, config=LossyConfig)
    with pytest.raises(AssertionError, match="yaml changes hidden"):
        rlox.testing.check_config_round_trip("mutant", hidden=7)


class VecEnvOf(GymVecEnv):
    """Gymnasium's CartPole; subclasses plant faults."""

    def __init__(self, env_id: str, *, n_envs: int, env_kwargs: Any) -> None:
        super().__init__(env_id, n_envs, env_kwargs=env_kwargs)


class LosesTheFinalObservation(VecEnvOf):
    def step_all(self, actions: Any) -> Any:
        step = super().step_all(actions)
        return {**step, "final_obs": step["obs"]}


class RewardsInFloat32(VecEnvOf):
    def step_all(self, actions: Any) -> Any:
        step = super().step_all(actions)
        return {**step, "rewards": step["rewards"].astype(np.float32)}


class ResetsWithoutSeed(VecEnvOf):
    def reset_all(self, seed: Any = None) -> Any:
        return super().reset_all()


class SeedsAllAlike(VecEnvOf):
    def reset_all(self, seed: Any = None) -> Any:
        return super().reset_all([seed] * self.n_envs if isinstance(seed, int) else seed)


class ForgetsItsStream(VecEnvOf):
    def state(self) -> dict[str, Any]:
        return {"cart": np.array([env.unwrapped.state for env in self._env.envs])}

    def set_state(self, state: dict[str, Any]) -> None:
        for env, cart in zip(self._env.envs, state["cart"], strict=True):
            env.unwrapped.state = cart


@pytest.mark.parametrize(
    ("factory", "check", "reason"),
    [
        (LosesTheFinalObservation, "check_env_autoreset", "ended with obs equal to final_obs"),
        (RewardsInFloat32, "check_env_shapes", r"rewards must be \(3,\) float64, got .* float32"),
        (ResetsWithoutSeed, "check_env_seeding", "the same seed and actions in a new env"),
        (SeedsAllAlike, "check_env_seeding", r"must give env i the seed s \+ i"),
        (ForgetsItsStream, "check_env_state", "a restored env must go on with the same bits"),
    ],
)
def test_check_catches_a_faulty_env(plant: Plant, factory: type, check: str, reason: str) -> None:
    """The check fails with its name first, the backend's next and then the reason."""
    plant("rlox_env_backends", EnvBackendSpec, factory=factory)
    with pytest.raises(AssertionError, match=rf"^{check}\('mutant'\): .*{reason}"):
        getattr(rlox.testing, check)("mutant", "CartPole-v1")


class RefusesNaN(JsonlLogger):
    def on_train_step(self, step: int, metrics: Any) -> None:
        if any(value != value for value in metrics.values()):
            raise ValueError("not a number")


class ClosesOnce(JsonlLogger):
    def close(self) -> None:
        self._file.write("")
        self._file.close()


class BeginsAnew(JsonlLogger):
    def __init__(self, log_dir: Path) -> None:
        (log_dir / "metrics.jsonl").unlink(missing_ok=True)
        super().__init__(log_dir)


@pytest.mark.parametrize(
    ("factory", "reason"),
    [
        (RefusesNaN, "ValueError: not a number"),
        (ClosesOnce, "ValueError: I/O operation on closed file"),
        (BeginsAnew, "a second run in the same folder erased rows of metrics.jsonl"),
    ],
)
def test_check_catches_a_faulty_logger(plant: Plant, factory: type, reason: str) -> None:
    """The check fails with the logger's name and the reason."""
    plant("rlox_loggers", LoggerSpec, factory=factory)
    with pytest.raises(AssertionError, match=rf"^check_logger\('mutant'\): .*{reason}"):
        rlox.testing.check_logger("mutant")
