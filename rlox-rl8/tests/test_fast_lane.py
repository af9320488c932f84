"""A backend that computes gradients without torch gives torch's."""

import pytest
import torch
from agents import parameters
from rlox.errors import BackendError
from rlox_rl8.algorithms import AlgorithmConfig
from rlox_rl8.env import ContinuousDummyEnv, DiscreteDummyEnv
from rlox_rl8.vec_envs import tensor_env

pytest.importorskip("rlox_native._native")

SMALL = {"num_envs": 24, "horizon": 32, "device": "cpu", "model_config": {"hiddens": (32, 32)}}
ALL_TERMS = {
    "entropy_coeff": 0.01, "dual_clip_param": 1.5, "vf_clip_param": 0.3, "num_sgd_iters": 6,
}  # fmt: skip
ACCUMULATED = {"sgd_minibatch_size": 48, "accumulate_grads": True, "entropy_coeff": 0.01}


def built(env, backend, **options):
    """Return an algorithm with fixed weights."""
    torch.manual_seed(0)
    return AlgorithmConfig(**{**SMALL, **options}, backend=backend).build(env)


@pytest.mark.parametrize(
    ("env", "options"),
    [
        (DiscreteDummyEnv, ALL_TERMS),
        (ContinuousDummyEnv, ACCUMULATED),
        (tensor_env("CartPole-v1"), {"sgd_minibatch_size": 48}),
    ],
)
def test_gradients_are_those_of_torch(env, options):
    """Statistics and weights after a round are equal within 1e-5."""
    found = []
    for backend in ("native", "torch"):
        algorithm = built(env, backend, **options)
        torch.manual_seed(1)
        algorithm.collect()
        found.append((algorithm.step(), parameters(algorithm)))
        assert (algorithm.fast is None) == (backend == "torch")
    (fast, weights), (slow, expected) = found
    for key in fast.keys() - {"profiling/step_ms"}:
        assert fast[key] == pytest.approx(slow[key], rel=1e-4, abs=1e-5), key
    torch.testing.assert_close(weights, expected, rtol=1e-4, atol=1e-5)


def test_what_was_replaced_is_called():
    """Hooks of the model, methods of the policy, and losses bring torch back."""
    algorithm = built(DiscreteDummyEnv, "auto")
    assert algorithm.fast.learns()
    handle = algorithm.policy.model.vf.register_forward_hook(lambda *_: None)
    assert not algorithm.fast.learns()
    handle.remove()
    assert algorithm.fast.learns()
    algorithm.policy.sample = algorithm.policy.sample
    assert not algorithm.fast.learns()
    del algorithm.policy.sample
    algorithm.loss_and_terms = lambda *given: given
    assert not algorithm.fast.learns()


def test_a_backend_that_cannot_is_refused_by_name():
    """With ``auto`` torch is used instead."""
    options = {"model_config": {"activation_fn": "gelu"}}
    assert built(DiscreteDummyEnv, "auto", **options).fast is None
    with pytest.raises(BackendError, match="it knows ReLU and tanh, not GELU"):
        built(DiscreteDummyEnv, "native", **options)
