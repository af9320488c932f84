"""User-defined networks, noise and buffers: support, and errors before any step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import rlox
import torch
from rlox.cli.runs.run import restore
from rlox.config.model import UNSET
from rlox.errors import CheckpointError, ConfigError
from rlox.networks import QNetwork, SquashedGaussianPolicy, TwinQNetwork
from rlox.nn import EnsembleMLP
from rlox.protocols import (
    DeterministicActor,
    ExplorationStrategy,
    ReplayBuffer,
    ReplayBufferProtocol,
    StochasticActor,
)
from rlox_offpolicy.ddpg import DDPG
from rlox_offpolicy.discrete_sac import DiscreteSAC
from rlox_offpolicy.dqn import DQN
from rlox_offpolicy.sac import SAC
from rlox_offpolicy.td3 import TD3
from torch import Tensor, nn

SMALL: dict[str, Any] = {
    "hidden": 8, "learning_starts": 8, "batch_size": 16, "steps_per_iteration": 16, "seed": 0,
    "env_backend": "gymnasium",
}  # fmt: skip

ENVS = {SAC: "Pendulum-v1", TD3: "Pendulum-v1", DDPG: "Pendulum-v1", DQN: "CartPole-v1"}
ENVS[DiscreteSAC] = "CartPole-v1"


def make(algorithm: Any, **options: Any) -> Any:
    """Return a small algorithm."""
    return algorithm(ENVS[algorithm], **{**SMALL, **options})


class Actor(nn.Module):
    """A policy with only the protocol's methods, and configurable faults in its outputs."""

    def __init__(self, log_probs: tuple[int, ...] = (-1,), copies: int = 1) -> None:
        super().__init__()
        self.policy = SquashedGaussianPolicy(3, 1, 8, generator=torch.Generator().manual_seed(0))
        self.log_probs, self.copies = log_probs, copies

    def sample(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Return samples with log-probabilities of a given shape."""
        actions, log_probs = self.policy.sample(obs)
        return actions, log_probs.reshape(self.log_probs)

    def deterministic(self, obs: Tensor) -> Tensor:
        """Return the given number of copies of the action."""
        return self.policy.deterministic(obs).repeat(1, self.copies)


class Transposed(nn.Module):
    """Two critics whose values are (B, 2)."""

    def __init__(self) -> None:
        super().__init__()
        self.critics = TwinQNetwork(3, 1, 8)

    def forward(self, obs: Tensor, actions: Tensor) -> Tensor:
        """Return the values of both critics, stacked along the last axis."""
        return self.critics(obs, actions).T


FOR = r"for 3 observations of Box"


@pytest.mark.parametrize(
    ("algorithms", "parts", "message"),
    [
        ([SAC, TD3, DDPG], {"critic": QNetwork(3, 1, 8)}, rf"critic must return \(any, 3\) {FOR}"),
        ([SAC, TD3, DDPG], {"critic": Transposed()}, r"and 3 actions, got \(3, 2\)"),
        ([SAC, TD3, DDPG], {"critic": nn.Linear(3, 1)}, "critic fails on 3 observations of Box"),
        ([SAC, TD3, DDPG], {"critic": len}, "critic must be a torch.nn.Module, got builtin"),
        (
            [SAC],
            {"policy": Actor((-1, 1))},
            r"sample must return \(3, 1\) and \(3,\) .* \(3, 1\) and",
        ),
        ([SAC], {"policy": nn.Linear(3, 1)}, "a method get_action_and_logprob or sample, got Line"),
        (
            [SAC, TD3],
            {"policy": Actor(copies=2)},
            r"policy.deterministic must return \(3, 1\) .* got \(3, 2\)",
        ),
        ([TD3, DDPG], {"policy": nn.Linear(3, 2)}, rf"policy must return \(3, 1\) {FOR}"),
        ([TD3, DDPG], {"policy": nn.Linear(4, 1)}, f"policy fails on {FOR[4:]}"),
        (
            [DQN],
            {"network": nn.Linear(3, 2), "hidden": UNSET},
            "network fails on 3 observations of Box",
        ),
    ],
)
def test_networks_that_do_not_fit_are_refused(
    algorithms: list[Any], parts: dict[str, Any], message: str
) -> None:
    """Even shapes that torch would broadcast; the error has the expected and the actual shape."""
    for algorithm in algorithms:
        with pytest.raises(ConfigError, match=message):
            make(algorithm, **parts)


OWN: dict[Any, dict[str, nn.Module]] = {
    SAC: {"policy": Actor(), "critic": TwinQNetwork(3, 1, 8)},
    TD3: {"policy": nn.Linear(3, 1), "critic": TwinQNetwork(3, 1, 8)},
    DDPG: {"policy": nn.Linear(3, 1), "critic": TwinQNetwork(3, 1, 8, n_critics=1)},
    DiscreteSAC: {"policy": nn.Linear(4, 2), "critic": EnsembleMLP(2, (4, 8, 2))},
    DQN: {"network": nn.Linear(4, 2)},
}


@pytest.mark.parametrize(
    ("algorithm", "option"),
    [(SAC, {"hidden": 9}), (DiscreteSAC, {"hidden": 9}), (DQN, {"dueling": True})],
)
def test_options_of_the_default_networks_are_refused(
    algorithm: Any, option: dict[str, Any], tmp_path: Path
) -> None:
    """By keyword, in a config, or next to a checkpoint; not those from a checkpoint."""
    ((name, value),) = option.items()
    message = rf"{name} is of the default networks, got {name}={value} and networks of your own"
    small = {**SMALL, "hidden": UNSET}
    given = {k: v for k, v in {**small, **option}.items() if v is not UNSET}
    for arguments in (given, {"config": given}, {"config": algorithm.config_class(**given)}):
        with pytest.raises(ConfigError, match=message):
            algorithm(ENVS[algorithm], **OWN[algorithm], **arguments)
    mine = algorithm(ENVS[algorithm], **OWN[algorithm], **small)
    mine.config = algorithm.config_class(**given)  # as older versions saved it
    mine.save(tmp_path / "saved")
    restored = algorithm.from_checkpoint(tmp_path / "saved", **OWN[algorithm])
    assert getattr(restored.config, name) == value
    with pytest.raises(ConfigError, match=message):
        algorithm.from_checkpoint(tmp_path / "saved", **OWN[algorithm], **option)


def test_trying_a_network_disturbs_nothing() -> None:
    """It leaves its random stream, torch's, and the modes of its parts unchanged."""
    generator = torch.Generator().manual_seed(5)
    policy = SquashedGaussianPolicy(3, 1, 8, generator=generator)
    policy.net.eval()
    before = generator.get_state(), torch.get_rng_state()
    make(SAC, policy=policy)
    make(SAC, policy=Actor())
    after = generator.get_state(), torch.get_rng_state()
    assert all(map(torch.equal, before, after))
    assert policy.training
    assert not policy.net.training


def test_sac_takes_an_actor_with_the_protocols_methods_alone() -> None:
    """``sample`` is another name for ``get_action_and_logprob``."""
    actor = Actor()
    assert isinstance(actor, StochasticActor)
    sac = make(SAC, policy=actor)
    before = [p.clone() for p in actor.parameters()]
    sac.train(32)
    assert not any(map(torch.equal, before, actor.parameters()))
    assert sac.predict(np.zeros(3)).shape == sac.predict(np.zeros(3), deterministic=False).shape


def test_td3_takes_a_plain_module() -> None:
    """It is called with observations, and does not need ``deterministic``."""
    actor = nn.Sequential(nn.Linear(3, 1), nn.Tanh())
    assert isinstance(actor, DeterministicActor)
    made = make(TD3, policy=actor)
    made.train(32)
    obs = np.ones(3, np.float32)
    expected = 2 * actor(torch.from_numpy(obs)).detach().numpy()
    np.testing.assert_allclose(made.predict(obs), expected, rtol=1e-5)
    lagging = made.policy_target(torch.from_numpy(obs))
    assert not torch.equal(lagging, actor(torch.from_numpy(obs)))


def test_own_networks_are_in_training_mode_in_gradient_steps_alone() -> None:
    """With dropout, predictions repeat; normalisation takes one row; evaluation moves nothing.

    The target network copies the running moments.
    """
    norm = nn.BatchNorm1d(16)
    network = nn.Sequential(nn.Linear(4, 16), norm, nn.ReLU(), nn.Dropout(), nn.Linear(16, 2))
    options = {"learning_starts": 16, "batch_size": 8, "steps_per_iteration": 32, "seed": 0}
    options |= {"train_freq": 8, "gradient_steps": 2, "target_update_interval": 1}
    dqn = DQN("CartPole-v1", network=network, **options)
    dqn.train(64)
    assert not torch.equal(norm.running_mean, torch.zeros(16))
    assert torch.equal(norm.running_mean, dqn.network_target[1].running_mean)
    assert not any(
        module.training for module in (*network.modules(), *dqn.network_target.modules())
    )
    before = norm.running_mean.clone()
    obs = np.random.default_rng(0).normal(size=(16, 4))
    assert len({tuple(dqn.predict(obs)) for _ in range(8)}) == 1
    dqn.predict(obs[0])
    dqn.evaluate(n_episodes=1)
    assert torch.equal(before, norm.running_mean)


class Rows:
    """A buffer of single transitions, drawn by a seed, without the library's code."""

    def __init__(self, seeded: bool) -> None:
        self.rows: list[Any] = []
        if seeded:
            self.sample = self._sample
        else:
            rng = np.random.default_rng(0)
            self.sample = lambda batch_size: self._sample(batch_size, rng.integers(100))

    def __len__(self) -> int:
        return len(self.rows)

    def push(self, *row: Any) -> None:
        """Keep a transition."""
        assert [type(each) for each in row[2:5]] == [float, bool, bool]
        self.rows.append(row)

    def _sample(self, batch_size: int, seed: int) -> dict[str, Any]:
        chosen = np.random.default_rng(seed).integers(len(self.rows), size=batch_size)
        names = ("obs", "actions", "rewards", "terminated", "truncated", "next_obs")
        columns = zip(*(self.rows[i] for i in chosen), strict=True)
        batch = {name: np.stack(each) for name, each in zip(names, columns, strict=True)}
        batch["rewards"] = batch["rewards"].astype(np.float32)
        return batch


@pytest.mark.parametrize("seeded", [True, False])
def test_a_buffer_of_single_transitions_will_do(seeded: bool) -> None:
    """It gets one row per env, and one seed still fixes the training."""
    runs = [make(SAC, buffer=Rows(seeded), n_envs=2) for _ in range(2)]
    for run in runs:
        assert isinstance(run.replay.buffer, ReplayBufferProtocol)
        assert not isinstance(run.replay.buffer, ReplayBuffer)
        run.train(32)
        assert len(run.replay.buffer) == 32
    first, second = (run.optimizers["critic"].parameters for run in runs)
    assert torch.equal(first, second)
    assert isinstance(rlox.ReplayBuffer(4, 3, 1), ReplayBufferProtocol)


def test_a_buffer_of_other_shapes_is_refused_at_its_first_draw() -> None:
    """Learning from it would fail silently; the envs run until there is a batch."""

    class Upright(Rows):
        def _sample(self, batch_size: int, seed: int) -> dict[str, Any]:
            batch = super()._sample(batch_size, seed)
            return {**batch, "rewards": batch["rewards"][:, None]}

    with pytest.raises(
        ConfigError, match=r"Upright.sample\(16\) .* 'rewards', .*\(16,\).*\(16, 1\)"
    ):
        make(SAC, buffer=Upright(True)).train(32)
    with pytest.raises(ConfigError, match="save_replay_buffer needs a buffer with state and"):
        make(SAC, buffer=Rows(True), save_replay_buffer=True)


class Far:
    """Exploration that leaves [-1, 1]."""

    def explore(self, actions: Any, episode_start: Any, step: int) -> Any:
        """Return actions beyond the upper bound."""
        return actions + np.float32(5)

    def state_dict(self) -> dict[str, Any]:
        """Return nothing."""
        return {}

    def load_state_dict(self, state: Any) -> None:
        """Do nothing."""


def test_the_buffer_gets_the_actions_that_the_env_gets() -> None:
    """Noise beyond the bounds is clipped for both."""
    assert isinstance(Far(), ExplorationStrategy)
    made = make(TD3, exploration=Far(), learning_starts=0)
    made.train(16)
    assert set(made.replay.buffer.state()["actions"].ravel()) == {1.0}


def test_a_buffer_that_discounts_otherwise_is_refused() -> None:
    """Its discounts override the algorithm's gamma, which would be recorded but unused."""
    buffer = rlox.ReplayBuffer(100, 4, 1, act_dtype="int64", n_step=3, gamma=0.9)
    message = r"^ReplayBuffer discounts its steps by gamma=0\.9, and gamma=0\.99 was asked for"
    options = {"env": "CartPole-v1", "buffer": buffer, "learning_starts": 50}
    with pytest.raises(ConfigError, match=message):
        rlox.make("dqn", **options)
    rlox.make("dqn", **options, gamma=0.9).close()


def prioritized(capacity: int = 1_000) -> Any:
    """Return a prioritized buffer for CartPole."""
    return rlox.PrioritizedReplayBuffer(capacity, 4, 1, act_dtype="int64", seed=0)


def test_a_checkpoint_asks_for_own_parts_again(tmp_path: Path) -> None:
    """Defaults would replace them silently; explicit names do replace them."""
    path = tmp_path / "saved"
    buffer = rlox.ReplayBuffer(100, 3, 1)
    make(TD3, buffer=buffer, exploration=Far()).save(path)
    own = {"buffer": buffer, "exploration": Far()}
    for argument, name in (("buffer", "ReplayBuffer"), ("exploration", "Far")):
        others = {k: v for k, v in own.items() if k != argument}
        message = f"your own {name} as {argument}; pass one again as {argument}="
        with pytest.raises(CheckpointError, match=message):
            TD3.from_checkpoint(path, **others)
    restored = TD3.from_checkpoint(path, **own)
    assert restored.replay.buffer is buffer
    assert restored.exploration is own["exploration"]
    with restore(path, None, {}) as acting:  # acting needs neither
        assert acting.predict(np.zeros(3)).shape == (1,)
    named = TD3.from_checkpoint(path, buffer="prioritized", exploration="none")
    named.save(path)
    assert TD3.from_checkpoint(path).replay.prioritized


@pytest.mark.parametrize(
    ("algorithm", "part", "options"),
    [
        (DQN, {"buffer": prioritized()}, {"buffer_size": 5_000}),
        (TD3, {"exploration": Far()}, {"noise_std": 0.3}),
    ],
)
def test_options_that_an_object_brings_itself_are_refused(
    algorithm: Any, part: dict[str, Any], options: dict[str, Any], tmp_path: Path
) -> None:
    """By keyword, in a config, or next to a checkpoint; not those from a checkpoint."""
    ((name, value),) = options.items()
    (own,) = part.values()
    message = f"{name} belongs to .* made here, and your {type(own).__name__} has its own"
    noise = {"exploration": "gaussian"} if name == "noise_std" else {}
    with pytest.raises(ConfigError, match=message):
        make(algorithm, **part, **options)
    with pytest.raises(ConfigError, match=message):
        algorithm(ENVS[algorithm], **part, config={**noise, **options})
    made = make(algorithm, **part)
    made.config = made.config.replace(**options, **noise)  # as older versions saved it
    made.save(tmp_path / "saved")
    assert getattr(algorithm.from_checkpoint(tmp_path / "saved", **part).config, name) == value
    with pytest.raises(ConfigError, match=message):
        algorithm.from_checkpoint(tmp_path / "saved", **part, **options)


def test_priority_beta_is_of_any_buffer_with_priorities(tmp_path: Path) -> None:
    """Also of a buffer object; a buffer without priorities would ignore it."""
    dqn = make(DQN, buffer=prioritized(), priority_beta=0.6)
    dqn.save(tmp_path / "saved")
    restored = DQN.from_checkpoint(tmp_path / "saved", buffer=prioritized())
    assert restored.config.priority_beta == 0.6
    plain = rlox.ReplayBuffer(100, 4, 1, act_dtype="int64")
    for buffer in (plain, "uniform"):
        message = "priority_beta needs buffer='prioritized' or another .*, got a ReplayBuffer"
        with pytest.raises(ConfigError, match=message):
            make(DQN, buffer=buffer, priority_beta=0.6)
        with pytest.raises(ConfigError, match=message):
            make(DQN, buffer=buffer, schedules={"priority_beta": lambda step: 0.6})
    make(DQN, buffer=prioritized(), schedules={"priority_beta": lambda step: 0.6})


def test_learning_starts_within_the_capacity_of_the_buffer_in_use() -> None:
    """A buffer object's own capacity counts, not the option; an object without one is accepted."""
    made = make(DQN, buffer=prioritized(300_000), learning_starts=200_000)
    assert made.config.learning_starts > made.config.buffer_size
    with pytest.raises(ConfigError, match="the capacity of your PrioritizedReplayBuffer, 100"):
        make(DQN, buffer=prioritized(100), learning_starts=200)
    make(SAC, buffer=Rows(True), learning_starts=200)


class Watched(gymnasium.Wrapper):
    """Counts closed envs."""

    closed = 0

    def close(self):
        """Count."""
        Watched.closed += 1
        super().close()


@pytest.mark.parametrize(
    ("algorithm", "env", "options"),
    [
        (SAC, "CartPole-v1", {}),
        (DQN, "Pendulum-v1", {}),
        (DiscreteSAC, "Pendulum-v1", {}),
        (TD3, "Pendulum-v1", {"policy": nn.Linear(3, 2)}),
        (DDPG, "Pendulum-v1", {"buffer": object()}),
        (SAC, "Pendulum-v1", {"buffer": "her"}),
    ],
)
def test_envs_are_closed_where_the_constructor_fails(algorithm, env, options):
    """For any cause of the failure."""
    Watched.closed = 0
    with pytest.raises(ValueError):  # noqa: PT011  # whichever
        algorithm(lambda: Watched(gymnasium.make(env)), **{**SMALL, **options})
    assert Watched.closed == 1
