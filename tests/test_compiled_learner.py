"""Tests of the learner backend ``torch-compile`` with the algorithms that it compiles."""

from __future__ import annotations

import numpy as np
import pytest
import rlox
import torch
from rlox.errors import BackendError
from rlox.learners.compiled import compiled
from rlox_onpolicy.ppo import PPO

REPLAY = {"hidden": 16, "batch_size": 32, "learning_starts": 40, "buffer_size": 1_000,
          "steps_per_iteration": 8}  # fmt: skip
TENSORS = {"env_backend": "tensors", "n_envs": 4, "n_steps": 8, "batch_size": 16,
           "recurrent": "gru"}  # fmt: skip


GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


# torch itself looks at those
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty:UserWarning")
@pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores:UserWarning")
@pytest.mark.filterwarnings(r"ignore:\s*Online softmax is disabled:UserWarning")
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is dep:DeprecationWarning")
@pytest.mark.parametrize(
    ("device", "compiles"),
    [
        ("cpu", False),  # Python stands for the compiler, which takes a minute
        pytest.param("cpu", True, marks=pytest.mark.slow),
        pytest.param("cuda", True, marks=GPU),
    ],
)
@pytest.mark.parametrize(
    ("algorithm", "env", "options", "steps"),
    [
        ("ppo", "CartPole-v1", {"n_envs": 2, "n_steps": 16, "batch_size": 16, "n_epochs": 2}, 64),
        ("ppo", "CartPole-v1", TENSORS, 64),
        ("dqn", "CartPole-v1", {**REPLAY, "train_freq": 4, "gradient_steps": 1}, 72),
        ("sac", "Pendulum-v1", REPLAY, 46),
    ],
)
def test_compiled_training_is_the_same_but_for_rounding(
    algorithm, env, options, steps, device, compiles,
    monkeypatch,
):  # fmt: skip
    """The same batches, noise and schedules give the same parameters, and report the same."""
    compiled_functions = []
    if not compiles:
        monkeypatch.setattr(
            "torch.compile", lambda function, **_: compiled_functions.append(1) or function
        )
    found = {}
    for backend in ("torch", "torch-compile"):
        if compiles:
            torch.compiler.reset()
        # Rust's envs would do as well; a falling rate must not recompile every step
        with rlox.make(
            algorithm,
            env=env,
            backend=backend,
            device=device,
            seed=3,
            learning_rate=f"linear(1e-3, 1e-4, {steps})",
            **{"env_backend": "gymnasium", **options},
        ) as trained:
            assert trained.learner.backend == backend
            metrics = trained.train(steps)
            del metrics["env_steps_per_second"]
            network = "network" if algorithm == "dqn" else "policy"
            found[backend] = trained.state_dict()[network], metrics
    assert compiles or compiled_functions
    (parameters, metrics), (compiled, compiled_metrics) = found.values()
    assert parameters.keys() == compiled.keys()
    for name, values in parameters.items():
        np.testing.assert_allclose(compiled[name], values, rtol=1e-4, atol=1e-5, err_msg=name)
    assert compiled_metrics == pytest.approx(metrics, rel=1e-3, abs=1e-5, nan_ok=True)


def test_missing_compiler_is_reported_before_the_training(monkeypatch):
    """Torch would raise an error of its own in the middle of the first step."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(BackendError, match=r"'torch-compile' cannot do this: torch\.compile"):
        rlox.make("sac", env="Pendulum-v1", backend="torch-compile")


def test_automatic_choice_never_compiles_on_the_cpu():
    """Torch, which can do everything, comes first."""
    with rlox.make("dqn", env="CartPole-v1", noisy=True, buffer_size=2_000) as dqn:
        assert dqn.learner.backend == "torch"


@GPU
@pytest.mark.parametrize(("iterations", "compiles"), [(2, False), (3, True)])
def test_long_trainings_on_a_gpu_compile(iterations, compiles, monkeypatch, tmp_path):
    """That is decided once: a short rest of the training goes on with the same code."""
    monkeypatch.setattr("rlox.learners.tensors.LONG", 3)
    with rlox.make("ppo", env="CartPole-v1", device="cuda", **TENSORS) as ppo:
        ppo.train(32 * iterations)
        assert ppo.collector.compiles is compiles
        ppo.save(tmp_path / "ppo.rlox")
    with PPO.from_checkpoint(tmp_path / "ppo.rlox") as rest:
        rest.train(32)
        assert rest.collector.compiles is compiles


def test_terms_outlive_the_next_replay(monkeypatch):
    """Which on a GPU writes over what the last one returned."""
    returned = []

    def graphs(function, *, mode):
        assert mode == "reduce-overhead"

        def replay(*arguments):
            out = function(*arguments)
            returned[:] = out.terms.values()
            return out

        return replay

    def lose():
        for tensor in returned:
            tensor.fill_(float("nan"))

    monkeypatch.setattr("torch.compile", graphs)
    monkeypatch.setattr("torch.compiler.cudagraph_mark_step_begin", lose)
    small = {"hidden": 8, "units": 8, "batch_size": 2, "seq_len": 4, "learning_starts": 32,
             "steps_per_iteration": 32}  # fmt: skip
    with rlox.make("dreamer_v3", env="CartPole-v1", train_ratio=4, **small) as agent:
        agent.train(64)
        learn = compiled(agent.objective.learn, torch.device("cuda"))
        for _ in range(2):
            found = learn(agent.parts, agent.replay.draw(), 1e-4)
        lose()
        assert torch.isfinite(found.terms["model_loss"])
