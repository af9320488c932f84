"""Tests of the public names of :mod:`rlox` and how they resolve."""

import importlib
import subprocess
import sys

import pytest
import rlox
from rlox import kernels, trainers
from rlox.errors import MissingDependencyError
from rlox.kernels import backend, reference
from rlox.registry.families import ALGORITHMS

PUBLIC = [
    "ActorBackendSpec", "Algorithm", "AlgorithmSpec", "BufferSpec", "CallbackSpec",
    "CandleCollector", "CartPole",
    "CommandSpec", "Config", "DPOPair", "EnvBackendSpec", "HerReplayBuffer", "LearnerBackendSpec",
    "LoggerSpec", "LossSpec", "MmapReplayBuffer", "OfflineDatasetBuffer", "PlaceSpec",
    "PresetsSpec", "PrioritizedReplayBuffer", "ReplayBuffer", "RunOptionsSpec", "RunningMeanStd",
    "SequenceReplayBuffer", "VecEnv",
    "compute_batch_group_advantages", "compute_batch_token_kl", "compute_batch_token_kl_schulman",
    "compute_discounted_returns", "compute_gae", "compute_gae_batched", "compute_gae_batched_f32",
    "compute_group_advantages", "compute_lambda_returns", "compute_n_step_returns",
    "compute_token_kl", "compute_token_kl_schulman", "compute_vtrace", "evaluate", "explain",
    "export", "get_num_threads", "hookimpl", "list_algorithms", "load_policy", "make",
    "normalize_advantages", "pack_sequences", "set_num_threads", "spec",
]  # fmt: skip
RUST = {
    "CandleCollector": "candle", "CartPole": "native", "MmapReplayBuffer": "native",
    "VecEnv": "native",
}  # fmt: skip
KERNELS = [name for name in PUBLIC if name in reference.__all__]


@pytest.fixture
def no_native(monkeypatch):
    """Make rlox-native look absent and forget what was resolved."""
    monkeypatch.setattr(kernels, "installed", lambda package: False)
    monkeypatch.setattr(kernels, "backend", backend)
    for name in [*RUST, *KERNELS]:
        monkeypatch.delitem(vars(rlox), name, raising=False)
    backend.cache_clear()
    yield
    backend.cache_clear()
    for name in KERNELS:
        vars(rlox).pop(name, None)


def test_public_names_are_the_documented_ones():
    """The list is sorted, and equal to the documentation's."""
    assert rlox.__all__ == sorted(rlox.__all__)
    assert rlox.__all__ == PUBLIC
    assert dir(rlox) == sorted([*PUBLIC, "__version__"])


def test_public_names_resolve():
    """Everything but the Rust classes is there with core alone."""
    for name in set(PUBLIC) - set(RUST):
        assert getattr(rlox, name) is getattr(rlox, name)


def test_import_is_light():
    """Importing rlox and using the registry load neither torch nor an algorithm."""
    code = (
        "import sys, rlox; heavy = lambda: {'torch', 'gymnasium', 'rlox_onpolicy.ppo'} & "
        "set(sys.modules); assert not heavy(), heavy(); rlox.list_algorithms(); rlox.Config; "
        "assert 'torch' not in sys.modules and 'rlox_onpolicy.ppo' not in sys.modules, heavy()"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mak", "module 'rlox' has no 'mak'; did you mean 'make'?"),
        ("compute_gea", "module 'rlox' has no 'compute_gea'; did you mean 'compute_gae' or"),
        ("xyzzy", "module 'rlox' has no 'xyzzy'"),
    ],
)
def test_unknown_name_is_an_attribute_error(name, message):
    """A misspelt name raises an error with the nearest ones, and hasattr works."""
    with pytest.raises(AttributeError) as caught:
        getattr(rlox, name)
    assert str(caught.value).startswith(message)
    assert not hasattr(rlox, name)


@pytest.mark.usefixtures("no_native")
@pytest.mark.parametrize(("name", "extra"), RUST.items())
def test_rust_class_without_rust_names_the_command(name, extra):
    """A known name whose distribution is missing is an import error with the remedy."""
    with pytest.raises(MissingDependencyError) as caught:
        getattr(rlox, name)
    assert str(caught.value) == (
        f"rlox.{name} needs a distribution that is not installed; "
        f'run: pip install "rlox-core[{extra}]"'
    )


@pytest.mark.usefixtures("no_native")
def test_kernel_without_rust_is_the_reference_with_one_warning():
    """The slow path is reported once, at the first use."""
    with pytest.warns(RuntimeWarning, match=r'pip install "rlox-core\[native\]"') as caught:
        function = rlox.compute_gae
    assert function is reference.compute_gae
    assert rlox.compute_gae_batched is reference.compute_gae_batched
    assert rlox.ReplayBuffer is reference.ReplayBuffer
    assert len(caught) == 1


@pytest.fixture
def no_onpolicy(monkeypatch):
    """Make rlox-onpolicy look absent."""
    monkeypatch.setitem(sys.modules, "rlox_onpolicy", None)
    monkeypatch.setitem(sys.modules, "rlox_onpolicy.ppo", None)
    monkeypatch.delitem(sys.modules, "rlox.algorithms.ppo", raising=False)


@pytest.mark.usefixtures("no_onpolicy")
@pytest.mark.parametrize(
    "access",
    [
        lambda: importlib.import_module("rlox.algorithms").PPO,
        lambda: importlib.import_module("rlox.algorithms.ppo"),
    ],
    ids=["attribute", "module"],
)
def test_algorithm_without_its_family_names_the_command(access):
    """All ways to the class end in the same remedy."""
    with pytest.raises(MissingDependencyError, match=r'run: pip install "rlox-core\[onpolicy\]"$'):
        access()


def test_unknown_algorithm_class_is_an_attribute_error():
    """A class that no family has is not blamed on an installation."""
    algorithms = importlib.import_module("rlox.algorithms")
    with pytest.raises(AttributeError, match=r"^module 'rlox\.algorithms' has no 'XYZ'"):
        _ = algorithms.XYZ
    assert {"A2C", "PPO", "SAC", "TD3BC"} <= set(dir(algorithms))
    assert dir(algorithms) == sorted(row.class_name for row in ALGORITHMS)


@pytest.mark.parametrize("name", trainers.__all__)
def test_a_trainer_makes_its_algorithm(name, monkeypatch):
    """With the arguments that it gets, as rlox.make does."""
    monkeypatch.setattr(trainers, "make", lambda *names, **arguments: (names, arguments))
    made, arguments = getattr(trainers, name)("CartPole-v1", seed=3)
    assert "".join(made).replace("_", "") == name.removesuffix("Trainer").lower()
    assert arguments == {"env": "CartPole-v1", "seed": 3}
