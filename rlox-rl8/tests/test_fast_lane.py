"""A backend that collects and learns without torch gives torch's results."""

from functools import partial
from types import SimpleNamespace

import pytest
import rlox
import torch
from agents import parameters
from rlox.callbacks import Callback
from rlox.errors import BackendError
from rlox_rl8.algorithms import AlgorithmConfig, RecurrentAlgorithmConfig
from rlox_rl8.env import ContinuousDummyEnv, DiscreteDummyEnv
from rlox_rl8.vec_envs import tensor_env

native = pytest.importorskip("rlox_native._native")

IDS = ("CartPole-v1", "Pendulum-v1", "MountainCarContinuous-v0", "Acrobot-v1")
SMALL = {
    "num_envs": 24, "horizon": 40, "horizons_per_env_reset": -1, "device": "cpu",
    "model_config": {"hiddens": (32, 32)},
}  # fmt: skip
REMEMBERS = {
    "model_config": {"hidden_size": 20}, "seq_len": 5, "seqs_per_state_reset": -1
}  # fmt: skip


ALL_TERMS = {
    "entropy_coeff": 0.01, "dual_clip_param": 1.5, "vf_clip_param": 0.3, "num_sgd_iters": 6,
}  # fmt: skip
ACCUMULATED = {"sgd_minibatch_size": 60, "accumulate_grads": True, "entropy_coeff": 0.01}
STOPPED = {"sgd_minibatch_size": 60, "target_kl_div": 1e-4}


def built(env, backend, **options):
    """Return an algorithm with fixed weights."""
    torch.manual_seed(0)
    source = tensor_env(env) if isinstance(env, str) else env
    config = RecurrentAlgorithmConfig if "seq_len" in options else AlgorithmConfig
    algorithm = config(**{**SMALL, **options}, backend=backend).build(source)
    torch.manual_seed(1)
    return algorithm


@pytest.mark.parametrize(
    ("env_id", "deterministic"), [*zip(IDS, (False, False, True, True), strict=True)]
)
def test_a_horizon_in_one_call_is_that_of_single_steps(env_id, deterministic):
    """Equal within rounding over three horizons, ends of episodes and random draws included."""
    fast, slow = built(env_id, "native"), built(env_id, "torch")
    calls = []
    lane = fast.fast.collect
    fast.fast.collect = lambda *given: (calls.append(given), lane(*given))
    found = []
    for algorithm in (fast, slow):
        torch.manual_seed(2)
        stats = [algorithm.collect(deterministic=deterministic) for _ in range(3)]
        found.append((stats, torch.rand(1)))
    assert len(calls) == 3
    assert torch.equal(found[0][1], found[1][1])  # the same number of draws
    for key in fast.buffer.keys() - {"advantages", "returns"}:
        one, other = fast.buffer[key][:, :-1], slow.buffer[key][:, :-1]
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3, msg=key)
    for one, other in zip(found[0][0], found[1][0], strict=True):
        for key in one.keys() - {"profiling/collect_ms"}:
            assert one[key] == pytest.approx(other[key], rel=1e-4, abs=1e-4), key
    statistics = [a.ends.statistics.mean_return for a in (fast, slow)]
    assert statistics[0] == pytest.approx(statistics[1], rel=1e-5, nan_ok=True)


def require_same_horizons(fast, slow, deterministic, keys):
    """Collect three horizons with either, and require equal numbers of draws and last horizons."""
    draws = []
    for algorithm in (fast, slow):
        torch.manual_seed(2)
        for _ in range(3):
            algorithm.collect(deterministic=deterministic)
        draws.append(torch.rand(1))
    assert torch.equal(*draws)  # the same number
    assert fast._lane is fast.fast
    for key in keys:
        one, other = fast.buffer[key][:, :-1], slow.buffer[key][:, :-1]
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4, msg=key)


@pytest.mark.parametrize(
    ("env", "deterministic"),
    [(DiscreteDummyEnv, False), (ContinuousDummyEnv, True), ("CartPole-v1", False)],
)
def test_a_memory_acts_as_that_of_torch(env, deterministic):
    """Equal within rounding over three horizons, resets of states and random draws included."""
    fast, slow = (built(env, backend, **REMEMBERS) for backend in ("native", "torch"))
    assert fast.fast.acts()
    require_same_horizons(
        fast, slow, deterministic, ("obs", "actions", "logp", "values", "rewards")
    )
    for one, other in zip(
        [fast._states, *fast._starts], [slow._states, *slow._starts], strict=True
    ):
        for key in ("hidden_states", "cell_states"):
            torch.testing.assert_close(one[key], other[key], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("env", "deterministic"), [(DiscreteDummyEnv, True), (ContinuousDummyEnv, False)]
)
def test_a_policy_acts_as_that_of_torch_on_any_env(env, deterministic):
    """Equal within rounding over three horizons, and so is the number of random draws."""
    fast, slow = (built(env, backend) for backend in ("native", "torch"))
    assert fast.fast.acts()
    assert not fast.fast.steps_envs()
    require_same_horizons(fast, slow, deterministic, ("obs", "actions", "logp", "rewards"))
    torch.testing.assert_close(fast.buffer["values"], slow.buffer["values"], rtol=1e-4, atol=1e-4)
    fast.validate()  # its single step uses the policy itself
    assert fast._lane is None


@pytest.mark.parametrize("kind", [{}, REMEMBERS])
def test_parameters_are_copied_once_while_nothing_can_change_them(kind, monkeypatch):
    """With a callback between steps, which may change them, each step reads them anew."""
    from rlox_native.actor_critics import NativePerceptrons

    copied = []
    read = NativePerceptrons._flat
    monkeypatch.setattr(NativePerceptrons, "_flat", lambda self: (copied.append(1), read(self))[1])
    algorithm = built(DiscreteDummyEnv, "native", **kind)
    algorithm.collect()
    assert len(copied) == 1

    def erase(_):
        with torch.no_grad():
            for parameter in algorithm.policy.model.parameters():
                parameter.zero_()

    algorithm.hooks = SimpleNamespace(env_step=erase, step_listened=True)
    algorithm.collect()
    assert len(copied) > algorithm.hparams.horizon
    logp = algorithm.buffer["logp"][:, 1:-1]
    torch.testing.assert_close(logp, torch.full_like(logp, 0.5).log())


@pytest.mark.parametrize(
    ("kind", "env", "options"),
    [
        ({}, DiscreteDummyEnv, ALL_TERMS),
        ({}, ContinuousDummyEnv, ACCUMULATED),
        ({}, "CartPole-v1", STOPPED),
        (REMEMBERS, DiscreteDummyEnv, STOPPED),
        (REMEMBERS, ContinuousDummyEnv, ALL_TERMS),
        (REMEMBERS, "CartPole-v1", ACCUMULATED),
    ],
)
def test_gradients_are_those_of_torch(kind, env, options, monkeypatch):
    """Statistics and weights after two rounds are equal within 1e-5; a stop leaves no gradient."""
    if kind and "sgd_minibatch_size" in options:  # counts sequences; some come in parts
        options = {**options, "sgd_minibatch_size": 48}
    monkeypatch.setattr("rlox_rl8.losses.MICRO_BATCH", 35)
    fast, slow = (built(env, backend, **kind, **options) for backend in ("native", "torch"))
    assert slow.fast is None
    for algorithm in (fast, slow):
        torch.manual_seed(1)
        algorithm.collect()
    fast._storage.copy_(slow._storage)
    if kind:
        fast._states, fast._starts = slow._states, slow._starts
    fast.state.reward_scale = slow.state.reward_scale
    fast.loss_and_terms = fast.loss_and_terms  # set to the same object
    assert fast.fast.learns()
    found = []
    for algorithm in (fast, slow):
        torch.manual_seed(3)
        algorithm.step()
        algorithm.collect(deterministic=True)
        found.append(algorithm.step())
    for key in found[0].keys() - {"profiling/step_ms"}:
        assert found[0][key] == pytest.approx(found[1][key], rel=1e-4, abs=1e-5), key
    torch.testing.assert_close(parameters(fast), parameters(slow), rtol=1e-4, atol=1e-5)


def test_gradients_of_sequences_are_the_same_bits_on_any_number_of_threads(request):
    """The layers are wide enough for threads to share the products."""
    request.addfinalizer(partial(native.set_num_threads, native.get_num_threads()))
    wide = {**REMEMBERS, "model_config": {"hidden_size": 256}, "num_envs": 64}
    found = []
    for threads in (1, 2):
        native.set_num_threads(threads)
        algorithm = built(DiscreteDummyEnv, "native", **wide)
        algorithm.collect()
        algorithm.step()
        found.append(parameters(algorithm))
    assert torch.equal(*found)


def test_what_was_replaced_is_called():
    """Hooks of the model, methods of policy and env, and losses bring torch back."""
    algorithm = built("CartPole-v1", "auto")
    lane = algorithm.fast
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
    algorithm = built(DiscreteDummyEnv, "auto", **REMEMBERS)
    assert algorithm.fast.learns()
    algorithm.policy.init_states = algorithm.policy.init_states
    assert not algorithm.fast.learns()


def test_a_backend_that_cannot_is_refused_by_name():
    """With ``auto`` torch is used instead."""
    options = {"model_config": {"hiddens": (8,), "activation_fn": "gelu"}}
    assert built(DiscreteDummyEnv, "auto", **options).fast is None
    with pytest.raises(BackendError, match="'native' cannot do this: it knows ReLU and tanh"):
        built(DiscreteDummyEnv, "native", **options)
    for memory in ({"num_layers": 2}, {"bias": False}):
        options = {**REMEMBERS, "model_config": memory}
        assert built(DiscreteDummyEnv, "auto", **options).fast is None
        with pytest.raises(BackendError, match="an LSTM of one layer with biases"):
            built(DiscreteDummyEnv, "native", **options)


def test_a_listener_is_called_between_steps():
    """With one, horizons are collected step by step; both ways train to the same weights."""
    seen = []

    class Listener(Callback):
        def on_step(self, **kwargs):
            seen.append(float(kwargs["algo"].agent.buffer["rewards"][:, :-1].sum()))

    weights = []
    for callbacks in ([], [Listener()]):
        options = {"n_envs": 8, "horizon": 16, "sgd_minibatch_size": 64, "seed": 0}
        with rlox.make("rl8_ppo", env="CartPole-v1", callbacks=callbacks, **options) as training:
            training.train(256)
            weights.append(parameters(training.agent))
    assert len(seen) == 32
    assert seen[:16] == [8.0 * (i + 1) for i in range(16)]
    torch.testing.assert_close(*weights, rtol=1e-3, atol=1e-3)
