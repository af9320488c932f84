"""The native learner backend of off-policy algorithms against torch's, autograd on their steps."""

import numpy as np
import pytest
import rlox
import torch
from equal_updates import in_sequence, relative_error
from rlox.config.model import UNSET
from rlox.errors import BackendError
from rlox.networks import (
    DeterministicPolicy,
    DiscreteQNetwork,
    DuelingQNetwork,
    SquashedGaussianPolicy,
    TwinQNetwork,
)
from rlox_offpolicy.ddpg import DDPG
from rlox_offpolicy.discrete_sac import DiscreteSAC
from rlox_offpolicy.dqn import DQN
from rlox_offpolicy.sac import SAC
from rlox_offpolicy.td3 import TD3
from torch import nn

SMALL = {"seed": 3, "n_envs": 2, "hidden": 32, "batch_size": 40, "buffer_size": 500,
         "learning_starts": 64, "steps_per_iteration": 64}  # fmt: skip
CONTINUOUS = {"env_id": "Pendulum-v1", **SMALL}
DISCRETE = {"env_id": "CartPole-v1", **SMALL, "train_freq": 4, "gradient_steps": 2,
            "target_update_interval": 8}  # fmt: skip
PRIORITIZED = {"buffer": "prioritized", "priority_beta": 0.5}

CASES = {
    "dqn": (DQN, {**DISCRETE, "hidden": (32, 24, 20)}),
    "dqn, double, dueling, n-step, prioritized": (
        DQN, {**DISCRETE, **PRIORITIZED, "double_dqn": True, "dueling": True, "n_step": 3},
    ),
    "dqn, squared, unclipped, lagging": (
        DQN, {**DISCRETE, "loss": "mse", "max_grad_norm": None, "tau": 0.3, "hidden": 128},
    ),
    "sac": (SAC, CONTINUOUS),
    "sac, several blocks of rows": (
        SAC,
        {**CONTINUOUS, "batch_size": 260, "hidden": (130, 70, 20), "critic_hidden": (20, 140)},
    ),
    "sac, prioritized, fixed temperature": (
        SAC, {**CONTINUOUS, **PRIORITIZED, "auto_entropy": False, "alpha": 0.3, "n_step": 3},
    ),
    "td3": (TD3, {**CONTINUOUS, "critic_hidden": (20, 40)}),
    "td3, prioritized, no smoothing": (
        TD3, {**CONTINUOUS, **PRIORITIZED, "target_noise": 0.0, "policy_delay": 3},
    ),
    "ddpg": (DDPG, CONTINUOUS),
    "dqn, tanh": (DQN, {**DISCRETE, "activation": "tanh"}),
    "dqn, dueling, tanh": (DQN, {**DISCRETE, "activation": "tanh", "dueling": True}),
    "sac, tanh": (SAC, {**CONTINUOUS, "activation": "tanh", "hidden": (130, 70)}),
    "td3, tanh": (TD3, {**CONTINUOUS, "activation": "tanh"}),
}  # fmt: skip
"""Every branch of the steps."""

cases = pytest.mark.parametrize("case", CASES)
kinds = pytest.mark.parametrize("case", ["dqn", "sac", "td3"])


def parts_of(algorithm):
    """Return the networks and optimisers by name."""
    return algorithm._saved


def parameters_of(algorithm):
    """Return every network's parameters, target ones and the temperature included."""
    return {
        f"{part}.{name}": value.detach().clone()
        for part, module in parts_of(algorithm).items()
        if isinstance(module, torch.nn.Module)
        for name, value in module.state_dict().items()
    }


def moments_of(algorithm):
    """Return what every optimiser keeps."""
    return {
        f"{part}.{name}": torch.as_tensor(value)
        for part, optimizer in parts_of(algorithm).items()
        if part.endswith("optimizer")
        for name, value in optimizer.state_dict().items()
    }


def assert_alike(ours, theirs, tolerance):
    """Every tensor is the same up to rounding."""
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        assert relative_error(ours[name], value) < tolerance, name


def own_network():
    """Return a network of values as a user would write it."""
    return {"network": in_sequence(DiscreteQNetwork(4, 2, (20, 12, 9)).net, nn.ReLU)}


def own_squashed():
    """Return a policy on a network of the user's."""
    net = in_sequence(SquashedGaussianPolicy(3, 1, (20, 12, 9)).net, nn.ReLU)
    return {"policy": SquashedGaussianPolicy(3, 1, net=net)}


def own_policy():
    """Return a deterministic policy of the user's."""
    net = in_sequence(DeterministicPolicy(3, 1, (20, 12, 9)).net, nn.ReLU)
    return {"policy": nn.Sequential(*net, nn.Tanh())}


OWN = {
    "dqn": (DQN, {**DISCRETE, "hidden": UNSET}, own_network),
    "sac": (SAC, CONTINUOUS, own_squashed),
    "td3": (TD3, CONTINUOUS, own_policy),
}


@pytest.mark.parametrize("name", OWN)
def test_a_sequential_of_known_layers_is_learnt_as_torch_does(name):
    """Parameters and actions are torch's up to rounding."""
    kind, settings, make = OWN[name]
    runs = []
    for backend in ("auto", "torch"):
        torch.manual_seed(1)
        runs.append(kind(**settings, **make(), backend=backend))
        runs[-1].train(64 + 20)
    assert runs[0].learner.backend == "native"
    assert_alike(*map(parameters_of, runs), 1e-5)


@cases
def test_a_training_is_the_one_that_torch_makes(case):
    """After each of ten gradient steps parameters, moments, metrics and priorities are torch's.

    Envs, buffers and noise have the same streams: the same transitions are drawn, and rounding is
    all that differs.
    """
    kind, settings = CASES[case]
    native, torch_ = (kind(**settings, backend=backend) for backend in ("native", "torch"))
    assert native.learner.backend == "native"
    metrics = [algorithm.train(64 + 20) for algorithm in (native, torch_)]
    for speed in metrics:
        del speed["env_steps_per_second"]
    assert native.clock.gradient_steps == torch_.clock.gradient_steps >= 10
    # Adam divides a gradient that is little more than rounding by its own size
    assert_alike(parameters_of(native), parameters_of(torch_), 2e-5)
    assert_alike(moments_of(native), moments_of(torch_), 2e-5)
    assert metrics[0] == pytest.approx(metrics[1], rel=2e-5, nan_ok=True)
    buffers = [a.replay.buffer.state() for a in (native, torch_)]
    for name in buffers[0].keys() & {"priorities", "rewards"}:
        np.testing.assert_allclose(buffers[0][name], buffers[1][name], rtol=2e-5, atol=1e-6)


def q_network(dueling):
    """Return a maker of a network for CartPole whose outputs are of size 1."""

    def make():
        generator = torch.Generator().manual_seed(1)
        kind = DuelingQNetwork if dueling else DiscreteQNetwork
        return {"network": kind(4, 2, 48, generator=generator)}

    return make


def actor_and_critic(squashed, n_critics):
    """Return a maker of a policy and critics for Pendulum."""

    def make():
        generator = torch.Generator().manual_seed(1)
        kind = SquashedGaussianPolicy if squashed else DeterministicPolicy
        policy = kind(3, 1, 48, generator=generator)
        policy.generator = None
        critic = TwinQNetwork(3, 1, 48, n_critics=n_critics, generator=generator)
        return {"policy": policy, "critic": critic}

    return make


STEPS = {
    "dqn": (DQN, {"double_dqn": True}, q_network(False)),
    "dueling": (DQN, {"max_grad_norm": 0.01}, q_network(True)),
    "sac": (SAC, {"auto_entropy": False, "alpha": 0.4}, actor_and_critic(True, 3)),
    "td3": (TD3, {}, actor_and_critic(False, 2)),
    "ddpg": (DDPG, {}, actor_and_critic(False, 1)),
}


@pytest.mark.parametrize("name", STEPS)
def test_actions_are_those_that_torch_chooses(name):
    """Of one observation and of more than a block of them, after the parameters have moved."""
    kind, options, networks = STEPS[name]
    settings = {**(DISCRETE if kind is DQN else CONTINUOUS), "hidden": UNSET}
    native, torch_ = (
        kind(**settings, backend=backend, **options, **networks())
        for backend in ("native", "torch")
    )
    obs = torch.randn(300, 4 if kind is DQN else 3, generator=torch.Generator().manual_seed(5))
    acting = [each._choose for each in (native, torch_)]
    assert acting[0] == native.learner.learner.act
    for parameters in (None, 0.9):
        for algorithm in (native, torch_):
            for part in algorithm.optimizers.values():
                part.parameters.mul_(parameters or 1.0)
        for rows in (obs[:1], obs):
            ours, theirs = (act(rows) for act in acting)
            assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    if kind is DQN:
        assert len(np.unique(ours)) == 2


@kinds
def test_batches_of_arrays_give_the_bits_that_tensors_give(case):
    """The learner takes what the buffer returns; a batch for nobody is of tensors."""
    kind, settings = CASES[case]
    arrays, tensors = (kind(**settings, backend="native") for _ in range(2))
    draw = tensors.replay.draw
    tensors.replay.draw = lambda learner: draw()
    step = tensors.replay.step
    tensors.replay.step = lambda choose, hooks, learner: step(choose, hooks)
    for run in (arrays, tensors):
        run.train(128)
    first, second = (parameters_of(run) for run in (arrays, tensors))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert type(arrays.replay.draw(arrays.learner).obs) is np.ndarray
    assert type(arrays.replay.draw().obs) is torch.Tensor


@kinds
@pytest.mark.parametrize("backends", [("native", "torch"), ("torch", "native")])
def test_a_checkpoint_resumes_with_the_other_backend(case, backends, tmp_path):
    """After a switch the training goes on as it would have gone on without, but for rounding."""
    before, after = backends
    kind, settings = CASES[case]
    run = kind(**settings, backend=before, save_replay_buffer=True)
    run.train(128)
    run.save(tmp_path / "run.safetensors")
    switched = kind.from_checkpoint(tmp_path / "run.safetensors", backend=after)
    assert switched.learner.backend == after
    for algorithm in (run, switched):
        algorithm.train(8)
    assert_alike(parameters_of(switched), parameters_of(run), 1e-4)


def test_native_refuses_what_it_cannot_do():
    """Asked for by name, the reason is an error before any work."""
    with pytest.raises(BackendError, match="learns the default networks, not Linear"):
        DQN("CartPole-v1", network=torch.nn.Linear(4, 2), backend="native")
    with pytest.raises(BackendError, match="QuantileQLearning, a subclass of QLearning"):
        DQN("CartPole-v1", distributional="qr-dqn", backend="native")
    with pytest.raises(BackendError, match="plain linear layers"):
        DQN("CartPole-v1", noisy=True, backend="native")


class Halved:
    """A buffer that gives half of each action."""

    def __init__(self):
        self._rows = rlox.ReplayBuffer(500, 4, 1, seed=0, n_envs=2)
        self.push_batch = self._rows.push_batch

    def __len__(self):
        return len(self._rows)

    def sample(self, batch_size):
        """Return a batch."""
        batch = self._rows.sample(batch_size)
        return {**batch, "actions": batch["actions"] / 2}


@pytest.mark.parametrize("kind", [DQN, DiscreteSAC])
@pytest.mark.parametrize("backend", ["torch", "native"])
def test_discrete_actions_come_from_a_buffer_of_floats_too(kind, backend):
    """Whole ones are the same actions to every backend, fractions are none to any."""
    if kind is DiscreteSAC and backend == "native":
        pytest.skip("its steps are torch's")
    fields = {"env_id", *kind.config_class.model_fields} - {"buffer_size"}
    known = {key: value for key, value in DISCRETE.items() if key in fields}
    parameters = []
    for act_dtype in ("int64", "float32"):
        buffer = rlox.ReplayBuffer(500, 4, 1, seed=0, n_envs=2, act_dtype=act_dtype)
        run = kind(**known, backend=backend, buffer=buffer)
        run.train(128)
        optimizer = run.optimizers["network" if kind is DQN else "critic"]
        parameters.append(optimizer.parameters.clone())
    assert torch.equal(*parameters)
    message = r"must be whole numbers, the replay buffer gave 0\.5; make it with act_dtype='int64'$"
    with pytest.raises(ValueError, match=message):
        kind(**known, backend=backend, buffer=Halved()).train(128)


@cases
def test_runs_are_exact_across_a_checkpoint(case, tmp_path):
    """2N env steps are N, a checkpoint, and N more, to the bit."""
    kind, settings = CASES[case]
    settings = {**settings, "save_replay_buffer": True}
    whole = kind(**settings, backend="native")
    whole.train(256)
    half = kind(**settings, backend="native")
    half.train(128)
    half.save(tmp_path / "half.safetensors")
    rest = kind.from_checkpoint(tmp_path / "half.safetensors")
    assert rest.learner.backend == "native"
    rest.train(128)
    first, second = parameters_of(whole), parameters_of(rest)
    assert all(torch.equal(first[name], second[name]) for name in first)
