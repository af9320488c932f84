"""Envs of tensors: the same numbers as in Rust, rollouts and updates as from arrays, programs."""

import copy
import math
from functools import partial

import numpy as np
import pytest
import rlox
import torch
from gymnasium import spaces
from rlox.callbacks import Callback
from rlox.envs.tensors import ENVS, CartPole, TensorVecEnv
from rlox.errors import BackendError, ConfigError, EnvError
from rlox.losses import AdaptiveRate, PPOTerms, passes_target_kl
from rlox.nn.programs import Program
from rlox.rollouts import RolloutCollector
from rlox.training.hooks import Hooks
from rlox_native.envs import make_vec_env
from rlox_testing.env_backends import check_env_backend
from torch.utils._python_dispatch import TorchDispatchMode

N = 6
SMALL = {"n_steps": 12, "n_epochs": 3, "batch_size": 24, "hidden": 16, "seed": 3}
NORMALIZED = {"normalize_observations": True, "normalize_rewards": True}


class Doors:
    """Choices of a position and a door; the door before is closed, and three are the goal."""

    capturable = True

    def __init__(self, n_envs=N):
        self.n_envs, self.device = n_envs, torch.device("cpu")
        self.observation_space = spaces.Dict(
            {"place": spaces.Box(-9, 9, (2,)), "door": spaces.Discrete(3)}
        )
        self.action_space = spaces.MultiDiscrete([2, 3])
        self.place = torch.zeros(n_envs, 2)
        self.door = torch.zeros(n_envs, dtype=torch.int64)
        self.time = torch.zeros(n_envs, dtype=torch.int64)

    def reset(self, seed=None):
        self.place.copy_(torch.linspace(-1, 1, 2 * self.n_envs).view(-1, 2))
        self.door.zero_()
        self.time.copy_(torch.arange(self.n_envs))
        return self.observe()

    def observe(self):
        return {"place": self.place.clone(), "door": self.door.clone()}

    def action_masks(self):
        doors = torch.arange(3) != self.door.unsqueeze(1)
        return torch.cat((torch.ones(self.n_envs, 2, dtype=torch.bool), doors), 1)

    def step(self, actions):
        self.place[:, 0] += 2.0 * actions[:, 0] - 1.0
        self.door.copy_(actions[:, 1])
        self.time += 1
        reached, late = self.place[:, 0] >= 2.0, self.time >= 7
        final, ended = self.observe(), reached | late
        self.place.masked_fill_(ended.unsqueeze(1), 0.0)
        self.door.masked_fill_(ended, 0)
        self.time.masked_fill_(ended, 0)
        rewards = reached.float() - 0.1 * (actions[:, 1] == 2).float()
        return {"obs": self.observe(), "rewards": rewards, "terminated": reached,
                "truncated": late, "final_obs": final}  # fmt: skip


@pytest.mark.parametrize("env_id", ENVS)
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_a_step_equals_the_one_in_rust(env_id, dtype, bound):
    """From 300 states on the way: states to 1e-12 in float64, all outputs to 1e-5."""
    ours, rust = ENVS[env_id](60, dtype=dtype), make_vec_env(env_id, n_envs=60)
    ours.reset(0)
    rust.reset_all(0)
    draw = copy.deepcopy(ours.action_space)
    draw.seed(1)
    for _ in range(5):
        for _ in range(20):
            actions = np.stack([draw.sample() for _ in range(60)])
            rust.step_all(actions)
        physics = rust.state()["physics"].reshape(60, -1)[:, : ours.state.shape[1]]
        ours.state.copy_(torch.tensor(physics))
        ours.elapsed.copy_(torch.tensor(rust.state()["elapsed"].astype(np.int32)))
        step, expected = ours.step(torch.tensor(actions)), rust.step_all(actions)
        ended = expected["terminated"] | expected["truncated"]
        moved = rust.state()["physics"].reshape(60, -1)[~ended, : ours.state.shape[1]]
        np.testing.assert_allclose(ours.state.numpy()[~ended], moved, rtol=0, atol=bound)
        for key in ("rewards", "terminated", "truncated", "final_obs"):
            np.testing.assert_allclose(step[key].numpy(), expected[key], rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("env_id", ENVS)
def test_episodes_equal_those_in_rust(env_id):
    """200 steps of the same actions from the same states, until the first end: to 1e-6."""
    ours, rust = ENVS[env_id](4, dtype=torch.float64), make_vec_env(env_id, n_envs=4)
    obs = rust.reset_all(2)
    ours.reset()
    ours.state.copy_(torch.tensor(rust.state()["physics"].reshape(4, -1)[:, : ours.state.shape[1]]))
    draw = copy.deepcopy(ours.action_space)
    draw.seed(3)
    running = np.ones(4, bool)
    np.testing.assert_allclose(ours.observe(ours.state).numpy(), obs, atol=1e-6)
    for _ in range(200):
        actions = np.stack([draw.sample() for _ in range(4)])
        step, expected = ours.step(torch.tensor(actions)), rust.step_all(actions)
        for key in ("final_obs", "rewards", "terminated", "truncated"):
            found = step[key].numpy()[running]
            np.testing.assert_allclose(found, expected[key][running], rtol=0, atol=1e-6)
        running &= ~(expected["terminated"] | expected["truncated"])


def test_the_backend_conforms():
    """As a vector env of arrays it passes the checks of every env backend, its state included."""
    check_env_backend("tensors", "CartPole-v1")


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (lambda: CartPole(N), {}),
        (lambda: CartPole(N), {"recurrent": "lstm", "seq_len": 4}),
        (Doors, {"recurrent": "gru"}),
        (Doors, NORMALIZED),
        (lambda: ENVS["Pendulum-v1"](N), {"clip_rewards": 5.0}),
    ],
)
def test_rollouts_equal_those_of_the_array_path(make, options):
    """Observations, actions, memory, masks, values and advantages, over two rollouts."""
    ppo = rlox.make("ppo", env=make(), **SMALL, **options)
    policy = copy.deepcopy(ppo.policy)  # with its generator's state
    seed = ppo.streams.seeds("envs", 1)[0]
    arrays = RolloutCollector(
        TensorVecEnv(make()), seed=seed, gamma=0.99, gae_lambda=0.95,
        **{k: v for k, v in options.items() if k != "recurrent"},
    )  # fmt: skip
    for _ in range(2):
        found = ppo.learner.collect(12, Hooks(ppo))
        expected = arrays.collect(policy, 12)
        for name, value in vars(expected).items():
            same = getattr(found, name)
            if isinstance(value, dict):
                assert all(torch.equal(same[leaf], value[leaf]) for leaf in value)
            elif name == "initial_state" and value is not None:
                begins = expected.episode_starts[: len(value), None]  # where it is not used
                assert torch.equal(same * ~begins, value * ~begins)
            elif isinstance(value, torch.Tensor):
                torch.testing.assert_close(same, value, rtol=1e-5, atol=1e-6, msg=name)
            else:
                assert same == value
    assert ppo.collector.statistics.state_dict()["returns"].tolist() == pytest.approx(
        arrays.statistics.state_dict()["returns"].tolist()
    )
    assert ppo.collector.statistics.metrics() == pytest.approx(
        arrays.statistics.metrics(), nan_ok=True
    )


@pytest.mark.parametrize(
    "options",
    [{}, {"target_kl": 0.004, "adaptive_kl": 0.01}, {"recurrent": "lstm", "adaptive_kl": 1e-4}],
)
def test_updates_equal_those_of_the_array_path(options):
    """Minibatches in the same order: parameters and terms to 1e-6, with schedules, and stops."""
    ppo = rlox.make(
        "ppo", env=CartPole(N), learning_rate=0.01, schedules={"clip_eps": lambda t: 0.3 - t / 1e3},
        **SMALL, **options,
    )  # fmt: skip
    policy = copy.deepcopy(ppo.policy)
    optimizer = type(ppo.optimizer)(policy, ppo.make_optimizer(), max_grad_norm=0.5)
    task, stops = ppo.learner.learner._task, 0
    rate = AdaptiveRate(options.get("adaptive_kl", math.inf), task.device)
    for i in range(3):
        batch = ppo.learner.collect(12, Hooks(ppo))
        objective = ppo._objective(ppo.schedules.at(72 * i, 1000))
        order = torch.Generator()
        order.set_state(task.generator.get_state())
        terms = ppo.learner.update(batch, objective, 0.01, Hooks(ppo))
        units = N if options.get("recurrent") else 72
        collected, stopped = [], False
        for _ in range(3):
            drawn = torch.rand(units, generator=order).argsort()
            for minibatch in batch.minibatches(24, drawn):
                if stopped:
                    continue
                loss, each = objective.loss(policy, minibatch)
                collected.append(each.policy_loss)
                stopped = passes_target_kl(each, options.get("target_kl"))
                if "adaptive_kl" in options and not stopped:
                    rate.follow(each)
                if not stopped:
                    optimizer.step(loss, 0.01 * float(rate.factor))
        stops += stopped
        assert terms["policy_loss"] == pytest.approx(float(torch.stack(collected).mean()), abs=1e-6)
        torch.testing.assert_close(
            ppo.optimizer.parameters, optimizer.parameters, rtol=0, atol=1e-6
        )
    assert bool(stops) == ("target_kl" in options)
    assert (rate.factor != 1) == ("adaptive_kl" in options)


HOST = ("_local_scalar_dense", "nonzero", "masked_select", "equal", "lift_fresh", "randperm")


class Captured(TorchDispatchMode):
    """Stands in for a capture: refuses what a graph cannot replay, and notes foreign tensors."""

    def __init__(self):
        super().__init__()
        self.made, self.foreign, self.kept = set(), set(), []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.name().removeprefix("aten::")
        assert name.split(".")[0] not in HOST, f"{name} asks the host"
        inputs = [x for x in torch.utils._pytree.tree_leaves((args, kwargs)) if torch.is_tensor(x)]
        if name.startswith("index"):
            assert all(x.dtype != torch.bool for x in inputs[1:]), f"{name} asks for a shape"
        for x in inputs:
            if x.untyped_storage()._cdata not in self.made:
                self.foreign.add(x.untyped_storage().data_ptr())
        out = function(*args, **(kwargs or {}))
        for x in torch.utils._pytree.tree_leaves(out):
            if torch.is_tensor(x):
                known = {y.untyped_storage().data_ptr() for y in inputs}
                if x.untyped_storage().data_ptr() not in known:
                    self.made.add(x.untyped_storage()._cdata)
                    self.kept.append(x)  # so that no address is used twice
        return out


@pytest.fixture
def called(monkeypatch):
    """Return the tensors that each call of each program has touched."""
    seen = {}

    def call(program):
        function = program._function
        agent = getattr(getattr(function, "func", function), "__self__", None)
        if getattr(agent, "ends", None) is not None and agent._learn is not program:
            function()  # stepped on the host
            return
        with Captured() as mode:
            function()
        seen.setdefault(program, []).append(mode.foreign)

    monkeypatch.setattr(Program, "__call__", call)
    return seen


@pytest.mark.parametrize(
    ("name", "make", "options"),
    [
        ("ppo", lambda: CartPole(N), {"target_kl": 0.01, "adaptive_kl": 0.01}),
        ("ppo", lambda: CartPole(N), {"recurrent": "lstm", "seq_len": 4}),
        ("ppo", Doors, {"critic_obs": ("place",), **NORMALIZED}),
        ("a2c", lambda: ENVS["Pendulum-v1"](N), {}),
    ],
)
def test_programs_can_be_captured(called, name, make, options):
    """They never ask the host, and touch the same tensors in every iteration.

    All but the env's step are programs of their own too, for envs that cannot be captured.
    """
    sizes = {k: v for k, v in SMALL.items() if name == "ppo" or k not in ("n_epochs", "batch_size")}
    algorithm = rlox.make(name, env=make(), **sizes, **options)
    # on a CPU, unlike on a GPU, these ask the host
    for module in algorithm.policy.modules():
        if hasattr(module, "by_step"):
            module.by_step = True
    algorithm.optimizer.max_grad_norm = None
    algorithm.optimizer._make_optimizer = partial(torch.optim.Adam, fused=True)
    algorithm.train(4 * 12 * N)
    assert len(called) == 4 + ("recurrent" in options)
    for places in called.values():
        # the first call makes the optimiser's state
        assert places[1] == places[2] == places[3]


@pytest.mark.parametrize(
    ("name", "env", "captured"),
    [
        ("rl8_ppo", "rlox_rl8.env:ContinuousDummyEnv", 2),
        ("rl8_recurrent_ppo", "rlox_rl8.env:ContinuousDummyEnv", 2),
        ("rl8_recurrent_ppo", "CartPole-v1", 1),
    ],
)
def test_programs_of_rl8_can_be_captured(called, name, env, captured):
    """The same on its batched envs, with minibatches and an entropy that a schedule changes.

    Where episodes end, only the gradient steps are captured.
    """
    parts = {"optimizer_config": {"fused": True}, "entropy_coeff_schedule": [(0, 1e-2), (96, 1e-3)]}
    algorithm = rlox.make(
        name, env=env, n_envs=N, horizon=32, seed=0, parts=parts,
        sgd_minibatch_size=N * 2, **({"backend": "torch"} if name == "rl8_ppo" else {}),
    )  # fmt: skip
    algorithm.train(4 * 32 * N)
    assert len(called) == captured
    for places in called.values():
        assert places[1] == places[2] == places[3]


def test_a_resumed_training_has_the_same_bits(tmp_path):
    """CartPole on tensors, stopped after two iterations and resumed for two, and in one go."""
    options = {"env": "CartPole-v1", "env_backend": "tensors", "n_envs": N, **SMALL}
    # a learning rate without a schedule, whose end would differ
    options |= {"learning_rate": 1e-3, "adaptive_kl": 1e-3, **NORMALIZED}
    whole = rlox.make("ppo", **options)
    whole.train(4 * 12 * N)
    first = rlox.make("ppo", **options)
    first.train(2 * 12 * N)
    first.save(tmp_path / "checkpoint")
    second = type(first).from_checkpoint(tmp_path / "checkpoint")
    second.train(2 * 12 * N)
    assert torch.equal(whole.optimizer.parameters, second.optimizer.parameters)
    assert whole.collector.statistics.metrics() == second.collector.statistics.metrics()
    obs = 0.1 * np.ones((2, 4), np.float32)
    seen = [each.collector.preprocessor.see(obs, None, None) for each in (whole, second)]
    assert np.array_equal(*seen)
    assert not np.array_equal(seen[0], obs)


@pytest.mark.parametrize("backends", [("native", "tensors"), ("tensors", "native")])
def test_a_state_of_other_envs_begins_new_episodes(tmp_path, backends):
    """A checkpoint goes on in Rust's envs and in tensors, whose states have other parts."""
    first = rlox.make(
        "ppo", "CartPole-v1", env_backend=backends[0], n_envs=N, **NORMALIZED, **SMALL
    )
    first.train(2 * 12 * N)
    first.save(tmp_path / "checkpoint")
    second = type(first).from_checkpoint(tmp_path / "checkpoint", env_backend=backends[1])
    second.train(2 * 12 * N)
    assert second.clock.env_steps == 4 * 12 * N


def test_actions_are_alike_in_training_and_evaluation():
    """They have the dtype of the space."""
    for space in (spaces.MultiBinary(2), spaces.MultiDiscrete([2, 3]), spaces.Box(0, 3, (2,), int)):
        env, found = CartPole(N), set()
        env.action_space = space

        def step(actions, env=env, found=found):
            found.add((actions.dtype, actions.shape))
            return CartPole.step(env, actions[:, 0])

        env.step = step
        ppo = rlox.make("ppo", env=env, **SMALL)
        ppo.train(12 * N)
        TensorVecEnv(env).step_all(np.stack([space.sample()] * N))
        assert len(found) == 1


def test_callbacks_hear_of_every_step_and_stop_at_the_end_of_a_phase():
    """12 vector steps and 9 minibatches an iteration; a stop is within the rollout it is from."""

    class Counting(Callback):
        steps = batches = 0

        def on_step(self, *, step, **_):
            self.steps += 1
            return step < 15 * N

        def on_train_batch(self, *, metrics, **_):
            self.batches += 1
            assert math.isfinite(metrics["policy_loss"])

    counting = Counting()
    ppo = rlox.make("ppo", env=CartPole(N), callbacks=[counting], **SMALL)
    ppo.train(40 * N)
    assert (counting.steps, counting.batches) == (24, 9)
    assert ppo.clock.env_steps == 24 * N


def test_precision_is_an_option():
    """TF32 is for the process; hidden layers in bfloat16 learn parameters of float32."""
    before = torch.get_float32_matmul_precision()
    options = {"matmul_precision": "high", "compute_dtype": "bfloat16"}
    try:
        ppo = rlox.make("ppo", env=CartPole(N), **options, **SMALL)
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision(before)
    exact = rlox.make("ppo", env=CartPole(N), **SMALL)
    for each in (ppo, exact):
        each.train(72)
    assert ppo.optimizer.parameters.dtype == torch.float32
    assert not torch.equal(ppo.optimizer.parameters, exact.optimizer.parameters)
    torch.testing.assert_close(
        ppo.optimizer.parameters, exact.optimizer.parameters, rtol=0, atol=0.01
    )


def test_minibatches_are_compared_with_the_rows_of_the_env():
    """Not with those of the default number of envs, also if a config has the options."""
    for options in ({"batch_size": 256}, {"config": {"batch_size": 256}}):
        ppo = rlox.make("ppo", env=CartPole(64), n_steps=4, **options)
        assert (ppo.config.n_envs, ppo.config.n_steps, ppo.config.batch_size) == (64, 4, 256)
    with pytest.raises(ConfigError, match=r"batch_size 512 exceeds .* 64 . 4 = 256 rows"):
        rlox.make("ppo", env=CartPole(64), n_steps=4, batch_size=512)


def test_terms_of_an_objective_may_be_numbers():
    """As for envs of arrays."""

    class Plain:
        def loss(self, policy, minibatch):
            return policy.get_value(minibatch.obs).mean(), PPOTerms(0.0, 0.5, 1.0, 0.0, 0.25)

    metrics = rlox.make("ppo", env=CartPole(N), objective=Plain(), **SMALL).train(72)
    assert (metrics["value_loss"], metrics["clip_fraction"]) == (0.5, 0.25)


def replaced(env, parts, actions):
    """Return a step with other parts."""
    return {**Doors.step(env, actions), **parts}


def test_what_does_not_fit_is_refused():
    """Options of arrays, added losses, an env that broke, one elsewhere that cannot move."""
    with pytest.raises(ConfigError, match="frame_stack is for envs of arrays, got 2"):
        rlox.make("ppo", env=CartPole(2), frame_stack=2)
    with pytest.raises(BackendError, match="tensor envs take no added losses"):
        rlox.make("ppo", env=CartPole(2), added_losses={"policy": passes_target_kl})
    with pytest.raises(ConfigError, match="device 'gpu' cannot be used"):
        rlox.make("ppo", "CartPole-v1", env_backend="tensors", env_kwargs={"device": "gpu"})
    elsewhere = Doors()
    elsewhere.device = torch.device("meta")
    with pytest.raises(ConfigError, match="device must be the env's, meta, got cpu"):
        rlox.make("ppo", env=elsewhere)
    del elsewhere.device
    with pytest.raises(EnvError, match="members of TensorEnv, of which it lacks device"):
        rlox.make("ppo", env=elsewhere)
    ppo = rlox.make("ppo", env=CartPole(2), n_steps=8, batch_size=16)
    with pytest.raises(ValueError, match="write into the tensors of the collected one"):
        ppo.learner.update(copy.copy(ppo.learner.collect(8, Hooks(ppo))), None, 0.0, Hooks(ppo))
    for key, wrong, text in (
        ("rewards", torch.zeros(()), r"rewards of step must be a tensor of torch.float32 \(6,\)"),
        ("terminated", torch.zeros(N), "terminated of step must be a tensor of torch.bool"),
        ("obs", {"place": torch.zeros(N, 2)}, "the leaves .'door', 'place'., got .'place'."),
        (
            "final_obs",
            {"place": torch.zeros(N, 2), "door": torch.zeros(N)},
            "final_obs of step door",
        ),
        ("rewards", torch.zeros(N, device="meta"), "on cpu, got torch.float32 .6,. on meta"),
        (
            "final_obs",
            {"place": torch.full((N, 2), torch.nan), "door": torch.zeros(N, dtype=torch.int64)},
            "finite observations and rewards",
        ),
    ):
        env = Doors()
        env.step = partial(replaced, env, {key: wrong})
        with pytest.raises(EnvError, match=text):
            rlox.make("ppo", env=env, **SMALL).train(72)
    for step, text in (
        (partial(replaced, env, {"rewards": np.zeros(N)}), "must return tensors, got array"),
        (lambda actions: (None, None, None, None, {}), "must return a dict with obs, rewards"),
    ):
        env.step = step
        with pytest.raises(EnvError, match=text):
            TensorVecEnv(env).step_all(np.zeros((N, 2), np.int64))
    closed = Doors()
    closed.action_masks = lambda: torch.zeros(N, 5, dtype=torch.bool)
    with pytest.raises(EnvError, match="masks that allow a choice"):
        rlox.make("ppo", env=closed, **SMALL).train(72)
    broken = CartPole(2)
    broken.advance = lambda state, actions: (state * torch.nan, *broken.zeros)
    broken.zeros = torch.zeros(2), torch.zeros(2, dtype=torch.bool)
    with pytest.raises(EnvError, match="finite observations and rewards"):
        rlox.make("ppo", env=broken, **SMALL).train(24)
