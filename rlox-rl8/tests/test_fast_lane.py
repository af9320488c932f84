"""A backend that collects and learns without torch does what torch does."""

from __future__ import annotations

from typing import Any

import pytest
import rlox
import torch
from rlox.callbacks import Callback
from rlox.errors import BackendError
from rlox_rl8.algorithms import AlgorithmConfig
from rlox_rl8.env import ContinuousDummyEnv, DiscreteDummyEnv
from rlox_rl8.vec_envs import tensor_env

pytest.importorskip("rlox_native")

IDS = ("CartPole-v1", "Pendulum-v1", "MountainCarContinuous-v0", "Acrobot-v1")
SMALL: dict[str, Any] = {
    "num_envs": 24, "horizon": 40, "horizons_per_env_reset": -1, "device": "cpu",
    "model_config": {"hiddens": (32, 32)},
}  # fmt: skip


def built(env: Any, backend: str, **options: Any) -> Any:
    """Return an algorithm with fixed weights."""
    torch.manual_seed(0)
    source = tensor_env(env) if isinstance(env, str) else env
    algorithm = AlgorithmConfig(**{**SMALL, **options}, backend=backend).build(source)
    torch.manual_seed(1)
    return algorithm


def both(env: Any, **options: Any) -> tuple[Any, Any]:
    """Return the same algorithm with a backend and with torch, after a horizon each."""
    algorithms = built(env, "native", **options), built(env, "torch", **options)
    assert algorithms[1].fast is None
    for algorithm in algorithms:
        torch.manual_seed(1)
        algorithm.collect()
    return algorithms


@pytest.mark.parametrize("env_id", IDS)
@pytest.mark.parametrize("deterministic", [False, True])
def test_a_horizon_in_one_call_is_that_of_single_steps(env_id: str, deterministic: bool) -> None:
    """Equal within rounding over three horizons, ends of episodes and random draws included."""
    fast, slow = built(env_id, "native"), built(env_id, "torch")
    calls: list[Any] = []
    lane = fast.fast.collect
    fast.fast.collect = lambda *given: (calls.append(given), lane(*given))
    found = []
    for algorithm in (fast, slow):
        torch.manual_seed(2)
        stats = [algorithm.collect(deterministic=deterministic) for _ in range(3)]
        found.append((stats, torch.rand(1)))
    assert len(calls) == 3
    assert torch.equal(found[0][1], found[1][1])  # as many draws
    for key in fast.buffer.keys() - {"advantages", "returns"}:
        one, other = fast.buffer[key][:, :-1], slow.buffer[key][:, :-1]
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3, msg=key)
    for one, other in zip(found[0][0], found[1][0], strict=True):
        for key in one.keys() - {"profiling/collect_ms"}:
            assert one[key] == pytest.approx(other[key], rel=1e-4, abs=1e-4), key
    statistics = [a.ends.statistics.mean_return for a in (fast, slow)]
    assert statistics[0] == pytest.approx(statistics[1], rel=1e-5, nan_ok=True)


@pytest.mark.parametrize("options", [
    {},
    {"entropy_coeff": 0.01, "dual_clip_param": 1.5, "vf_clip_param": 0.3, "num_sgd_iters": 6},
    {"sgd_minibatch_size": 60, "accumulate_grads": True, "entropy_coeff": 0.01},
    {"sgd_minibatch_size": 60, "target_kl_div": 1e-4},
])  # fmt: skip
@pytest.mark.parametrize("env", [DiscreteDummyEnv, ContinuousDummyEnv, "CartPole-v1"])
def test_gradients_are_those_of_torch(env: Any, options: dict[str, Any]) -> None:
    """Statistics and weights after two rounds are equal within 1e-5; a stop leaves no gradient."""
    fast, slow = both(env, **options)
    fast._storage.copy_(slow._storage)
    fast.state.reward_scale = slow.state.reward_scale
    fast.loss_and_terms = fast.loss_and_terms  # an attribute that was set, to the same
    found: list[Any] = []
    for algorithm in (fast, slow):
        torch.manual_seed(3)
        algorithm.step()
        algorithm.collect(deterministic=True)
        found.append(algorithm.step())
    for key in found[0].keys() - {"profiling/step_ms"}:
        assert found[0][key] == pytest.approx(found[1][key], rel=1e-4, abs=1e-5), key
    for p, q in zip(fast.policy.model.parameters(), slow.policy.model.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-4, atol=1e-5)


def test_what_was_replaced_is_called() -> None:
    """Hooks of the model, methods of policy and env, and losses bring torch back."""
    algorithm = built("CartPole-v1", "auto")
    lane = algorithm.fast
    assert lane is not None
    assert lane.backend.startswith("native")
    assert lane.steps_envs()
    assert lane.learns()
    step = algorithm.env.step
    algorithm.env.step = lambda actions: step(actions).set_("rewards", torch.full((24, 1), 7.0))
    algorithm.collect()
    assert (algorithm.buffer["rewards"][:, :-1] == 7).all()
    del algorithm.env.step
    assert lane.steps_envs()
    handle = algorithm.policy.model.vf.register_forward_hook(lambda *_: None)
    assert not lane.steps_envs()
    assert not lane.learns()
    handle.remove()
    algorithm.loss_and_terms = lambda *given: given
    assert not lane.learns()


def test_a_backend_that_cannot_is_refused_by_name() -> None:
    """``auto`` takes torch then."""
    options = {"model_config": {"hiddens": (8,), "activation_fn": "gelu"}}
    assert built(DiscreteDummyEnv, "auto", **options).fast is None
    with pytest.raises(BackendError, match="'native' cannot do this: it knows ReLU and tanh"):
        built(DiscreteDummyEnv, "native", **options)


def test_a_listener_is_called_between_steps() -> None:
    """With one, horizons are collected step by step; both ways train to the same weights."""
    seen = []

    class Listener(Callback):
        def on_step(self, **kwargs: Any) -> None:
            seen.append(float(kwargs["algo"].agent.buffer["rewards"][:, :-1].sum()))

    weights = []
    for callbacks in ([], [Listener()]):
        options = {"n_envs": 8, "horizon": 16, "sgd_minibatch_size": 64, "seed": 0}
        with rlox.make("rl8_ppo", env="CartPole-v1", callbacks=callbacks, **options) as training:
            training.train(256)
            parameters = training.agent.policy.model.parameters()
            weights.append(torch.cat([p.detach().flatten() for p in parameters]))
    assert len(seen) == 32
    assert seen[:16] == [8.0 * (i + 1) for i in range(16)]
    torch.testing.assert_close(*weights, rtol=1e-3, atol=1e-3)
