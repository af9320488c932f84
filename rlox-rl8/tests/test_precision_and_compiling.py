"""Half precision and compiled code agree with plain code within their rounding errors."""

import numpy as np
import pytest
import rlox
import torch
from agents import KINDS, parameters, small
from rl8_cases import line
from rlox.errors import BackendError
from rlox_rl8.algorithms import AlgorithmConfig, RecurrentAlgorithmConfig
from rlox_rl8.env import ContinuousDummyEnv, DiscreteDummyEnv, Env
from tensordict import TensorDict

GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
DEVICES = ["cpu", pytest.param("cuda", marks=GPU)]
BFLOAT16_ERROR = 2**-8
"""Relative error of one rounding."""


def trained(kind, env, rounds=2, **options):
    """Return a small algorithm after some rounds with fixed draws, and their statistics."""
    torch.manual_seed(0)
    algorithm = small(kind, env, sgd_minibatch_size=16, entropy_coeff=0.01, **options)
    torch.manual_seed(1)
    found = [{**algorithm.collect(deterministic=True), **algorithm.step()} for _ in range(rounds)]
    return algorithm, found


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("kind", "env"), [(KINDS[0], ContinuousDummyEnv), (KINDS[1], DiscreteDummyEnv)]
)
def test_bfloat16_learns_what_single_precision_does(kind, env, device):
    """Losses of one pass differ by at most a few roundings of the networks' numbers."""
    options = {"device": device, "rounds": 1, "num_sgd_iters": 1, "amp_dtype": "bfloat16"}
    full, (expected,) = trained(kind, env, **options)
    half, (found,) = trained(kind, env, enable_amp=True, **options)
    assert not half.grad_scaler.is_enabled()
    for key in ("losses/policy", "losses/vf", "losses/entropy", "losses/total"):
        assert found[key] == pytest.approx(expected[key], rel=8 * BFLOAT16_ERROR, abs=0.02), key
    weights = [parameters(algorithm) for algorithm in (full, half)]
    assert weights[1].dtype == torch.float32
    assert not torch.equal(*weights)
    torch.testing.assert_close(*weights, rtol=0, atol=0.02)


def test_memories_run_in_single_precision_where_there_are_none_in_half(monkeypatch):
    """Simulates processors without AVX-512, where torch fails at an LSTM in bfloat16."""
    monkeypatch.setattr("rlox_rl8.models._has_half_lstm", lambda: False)
    algorithm, (found,) = trained(
        RecurrentAlgorithmConfig, DiscreteDummyEnv, rounds=1, device="cpu", enable_amp=True
    )
    assert np.isfinite(found["losses/total"])
    model, states = algorithm.policy.model, algorithm.policy.init_states(16)
    batch = TensorDict({"obs": torch.zeros(16, 3, 1)}, batch_size=[16, 3])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        features, _ = model(batch, states)
        assert model._latents.dtype is torch.float32
        assert features["logits"].dtype is torch.bfloat16


def test_only_networks_run_in_half_precision():
    """The policy receives bfloat16 features, and integers that it returns stay integers."""
    algorithm, _ = trained(AlgorithmConfig, DiscreteDummyEnv, device="cpu", enable_amp=True)
    assert algorithm.hparams.half is torch.bfloat16
    seen = []
    distribution = algorithm.policy.distribution_cls

    def spying(features, model):
        seen.append(features["logits"])
        return distribution(features, model)

    algorithm.policy.distribution_cls = spying
    algorithm.collect()
    collected = len(seen)
    algorithm.step()
    assert {x.dtype for x in seen} == {torch.float32}
    # bfloat16 keeps 8 bits, so the other bits of numbers converted from it are 0
    learnt = torch.cat([x.flatten() for x in seen[collected:]])
    torch.testing.assert_close(learnt.bfloat16().float(), learnt, rtol=0, atol=0)


@pytest.mark.slow
# torch itself causes these warnings
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty:UserWarning")
@pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores:UserWarning")
@pytest.mark.filterwarnings(r"ignore:\s*Online softmax is disabled:UserWarning")
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is dep:DeprecationWarning")
@pytest.mark.parametrize(
    ("device", "more"),
    [
        ("cpu", {}),
        pytest.param("cuda", {}, marks=GPU),
        # a gradient outlives its graph
        pytest.param("cuda", {"accumulate_grads": True}, marks=GPU),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_compiled_code_gives_the_same_numbers(kind, device, more):
    """Env steps, losses and weights are equal within 1e-5, and changes of the env take effect."""
    torch.compiler.reset()
    env = line(Env, discrete=True)
    plain, expected = trained(kind, env, device=device, **more)
    fast, found = trained(kind, env, device=device, compile=True, **more)
    for one, other in zip(expected, found, strict=True):
        for key in one.keys() - {"profiling/collect_ms", "profiling/step_ms"}:
            assert other[key] == pytest.approx(one[key], rel=1e-5, abs=1e-5), key
    torch.testing.assert_close(parameters(fast), parameters(plain), rtol=1e-5, atol=1e-5)
    before = fast.env.step
    fast.env.step = lambda actions: before(actions).apply(lambda x: x * 0 + 7)
    fast.collect()
    assert (fast.buffer["rewards"][:, :-1] == 7).all()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is dep:DeprecationWarning")
def test_compiled_code_begins_episodes():
    """States are initial where a copy's episode begins, as in plain code: weights to 1e-5."""
    torch.compiler.reset()
    found = []
    for compiles in (False, True):
        algorithm = rlox.make(
            "rl8_recurrent_ppo", env="CartPole-v1", n_envs=4, seed=0, device="cpu", compile=compiles
        )
        algorithm.train(4 * 32)
        found.append(parameters(algorithm.agent))
    torch.testing.assert_close(*found, rtol=1e-5, atol=1e-5)


def test_compiling_needs_a_compiler(monkeypatch):
    """A missing compiler is reported at construction."""
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(BackendError, match="needs a C\\+\\+ compiler"):
        rlox.make("rl8_ppo", env=DiscreteDummyEnv, n_envs=4, compile=True, device="cpu")
