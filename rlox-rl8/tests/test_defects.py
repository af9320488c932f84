"""Defects of rl8 1.0 that no code needs, fixed here; more are in other files."""

import copy

import pytest
import torch
from agents import KINDS, small
from rlox.errors import ConfigError, MemoryLimitError
from rlox.nn import keep_freed_memory
from rlox_rl8.algorithms import AlgorithmConfig
from rlox_rl8.engine import automatic_device
from rlox_rl8.env import DiscreteDummyEnv
from rlox_rl8.models import DefaultDiscreteModel
from rlox_rl8.nn import MLP, PositionalEmbedding
from rlox_rl8.nn.functional import generalized_advantage_estimate
from rlox_rl8.trainers import TrainConfig
from rlox_rl8.views import ViewRequirement
from tensordict import TensorDict


def test_the_device_asked_for_is_taken(monkeypatch):
    """Also on a machine with CUDA, which rl8 always uses; here only "auto" does."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert automatic_device() == "cuda"
    algorithm = small(AlgorithmConfig)
    assert algorithm.hparams.device == torch.device("cpu")
    assert algorithm.buffer["obs"].device.type == "cpu"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", [{"horizon": 1}, {"num_envs": 1}], ids=str)
def test_one_step_and_one_env_have_statistics(kind, options):
    """A horizon of one step collects, and the deviation of one env's returns is not NaN."""
    algorithm = small(kind, **options)
    stats = {**algorithm.collect(), **algorithm.step()}
    assert all(value == value for value in stats.values())


@pytest.mark.parametrize("kind", KINDS)
def test_freed_memory_is_kept_without_a_training_of_rlox(kind):
    """A custom loop calls only ``collect`` and ``step``, so the algorithm itself must do it."""
    keep_freed_memory.cache_clear()  # an earlier training in this process has set it
    algorithm = small(kind)
    algorithm.collect()
    algorithm.step()
    assert keep_freed_memory.cache_info().currsize == 1


def test_advantages_leave_the_batch_as_it_is():
    """Rewards are scaled in a copy."""
    ones = torch.ones(2, 4, 1)
    batch = TensorDict({"rewards": ones.clone(), "values": ones.clone()}, [2, 4])
    found = generalized_advantage_estimate(batch, reward_scale=2.0)
    assert torch.equal(batch["rewards"], ones)
    assert sorted(batch.keys()) == ["rewards", "values"]
    assert sorted(found.keys()) == ["advantages", "returns"]
    assert generalized_advantage_estimate(batch, inplace=True) is batch


def test_a_model_that_fails_leaves_gradients_and_modes_on():
    """rl8 leaves gradients off for the whole process."""

    class Failing(DefaultDiscreteModel):
        def forward(self, batch, /):
            if self.failing:
                raise RuntimeError("on purpose")
            return super().forward(batch)

        failing = False

    algorithm = small(AlgorithmConfig, model_cls=Failing)
    model = algorithm.policy.model
    modes = [module.training for module in model.modules()]
    model.failing = True
    for call in (algorithm.collect, lambda: algorithm.policy.sample(algorithm.buffer[:, :1])):
        with pytest.raises(RuntimeError, match="on purpose"):
            call()
        assert torch.is_grad_enabled()
        assert [module.training for module in model.modules()] == modes
    model.failing = False
    algorithm.collect()
    algorithm.step()


def test_a_compiled_model_is_taken():
    """A module wrapped by torch.compile has no length, which rl8 needs."""
    env = DiscreteDummyEnv(4)
    model = DefaultDiscreteModel(env.observation_spec, env.action_spec, hiddens=(8,))
    compiled = torch.compile(model, backend="eager")
    algorithm = small(AlgorithmConfig, model=compiled, model_config=None)
    algorithm.collect()
    algorithm.step()


@pytest.mark.parametrize("kind", KINDS)
def test_a_policy_that_learnt_can_be_copied(kind):
    """A copy leaves out the last call's value and its graph."""
    algorithm = small(kind)
    algorithm.collect()
    algorithm.step()
    again = copy.deepcopy(algorithm.policy)
    pairs = zip(algorithm.policy.model.parameters(), again.model.parameters(), strict=True)
    assert all(torch.equal(one, other) and one is not other for one, other in pairs)


@pytest.mark.parametrize("suffix", [".yml", ".yaml", ".json"])
def test_files_name_modules_that_are_not_imported_yet(suffix, tmp_path, monkeypatch):
    """A submodule of a package is found from the working directory."""
    package = tmp_path / "somewhere" / "inside"
    package.mkdir(parents=True)
    (package / "envs.py").write_text("from rlox.rl8.env import DiscreteDummyEnv as Mine\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    file = tmp_path / f"train{suffix}"
    file.write_text(
        '{"env_cls": "somewhere.inside.envs.Mine", "algorithm_config": {"num_envs": 4}}'
    )
    assert TrainConfig.from_file(file).build().step()["env/steps"] == 4 * 32
    for wrong in ('"recurent": true', '"recurrent": "no"'):
        file.write_text('{"env_cls": "somewhere.inside.envs.Mine", ' + wrong + "}")
        with pytest.raises(ConfigError, match="and nothing else, got"):
            TrainConfig.from_file(file)


def test_modules_take_what_they_should():
    """Activations that cannot work in place, odd widths, and unknown methods of views."""
    assert MLP(3, (4, 4), activation_fn="tanh", inplace=True)(torch.zeros(2, 3)).shape == (2, 4)
    assert PositionalEmbedding(7, 5)(torch.zeros(2, 5, 7)).shape == (2, 5, 7)
    method = "window"
    with pytest.raises(ValueError, match="method must be one of"):
        ViewRequirement(shift=1, method=method)


@pytest.mark.parametrize("kind", KINDS)
def test_more_envs_than_memory_are_refused(kind):
    """The error comes before any allocation; later the system would kill the process."""
    with pytest.raises(MemoryLimitError, match="num_envs = 1000000000000"):
        small(kind, num_envs=10**12)
