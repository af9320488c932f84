"""DQN as a whole: its data, its update schedule, its errors."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
import rlox
import torch
from gymnasium import spaces
from rlox.callbacks import Callback
from rlox.config.model import UNSET
from rlox.errors import CheckpointError, ConfigError, EnvError, SpaceError
from rlox.learners.transitions import StepResult
from rlox.testing import check_algorithm
from rlox_offpolicy.dqn import DQN

SMALL: dict[str, Any] = {
    "hidden": 8, "buffer_size": 200, "learning_starts": 8, "train_freq": 4, "gradient_steps": 2,
    "batch_size": 16, "steps_per_iteration": 16, "env_backend": "gymnasium",
}  # fmt: skip


def make(env: Any = "CartPole-v1", **options: Any) -> DQN:
    """Return a small DQN over gymnasium envs."""
    return DQN(env, **{**SMALL, **options})


def test_passes_the_conformance_suite() -> None:
    """DQN passes every check of rlox.testing; resuming with the buffer is exact."""
    options = {"n_envs": 3, "dueling": True, "double_dqn": True, "loss": "mse", "tau": 0.1}
    arguments = {**SMALL, "save_replay_buffer": True, **options}
    assert check_algorithm("dqn", env="CartPole-v1", **arguments) == {}


class Scripted(gymnasium.Env[Any, Any]):
    """Observations count steps; odd episodes are truncated after three, even ones terminate."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,))
    action_space = spaces.Discrete(2, start=5)
    count = 0
    episodes = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Begin an episode of three steps."""
        super().reset(seed=seed)
        self.left = 3
        self.episodes += 1
        self.count += 100
        return np.array([self.count], np.float32), {}

    def step(self, action: Any) -> Any:
        """Refuse an action outside the env's space."""
        assert action in (5, 6)
        self.left -= 1
        self.count += 1
        ended, even = self.left == 0, self.episodes % 2 == 0
        obs = np.array([self.count], np.float32)
        return obs, float(action), ended and even, ended and not even, {}


def test_stores_true_final_observations_and_its_own_actions() -> None:
    """Successors are never reset observations; actions count from 0, whatever the space's start."""
    dqn = make(Scripted())
    dqn.train(16)
    state = dqn.replay.buffer.state()
    assert np.array_equal(state["next_obs"], state["obs"] + 1)
    assert np.flatnonzero(state["terminated"]).tolist() == [5, 11]
    assert np.flatnonzero(state["truncated"]).tolist() == [2, 8, 14]
    assert np.array_equal(state["actions"][:, 0] + 5, state["rewards"])
    assert set(state["actions"][:, 0]) == {0, 1}
    assert dqn.predict(np.zeros(1)) in (5, 6)
    assert set(dqn.predict(np.zeros((200, 1)), deterministic=False)) <= {5, 6}


def test_discounts_are_zero_at_terminations_only() -> None:
    """A transition counts its successor's value by γ, unless the task ended with it."""
    dqn = make(Scripted(), gamma=0.9, batch_size=64)
    dqn.train(32)
    stored, batch = dqn.replay.buffer.state(), dqn.replay.draw()
    ends = stored["next_obs"][stored["terminated"], 0]
    cut = stored["next_obs"][stored["truncated"], 0]
    last = batch.next_obs[:, 0].numpy()
    expected = np.where(np.isin(last, ends), np.float32(0), np.float32(0.9))
    assert np.array_equal(batch.discounts.numpy(), expected)
    assert np.isin(last, ends).any()
    assert np.isin(last, cut).any()
    assert batch.weights.shape == ()


def test_nothing_is_learnt_before_learning_starts() -> None:
    """Until then, actions are uniform, loss metrics NaN and the parameters unchanged."""
    dqn = make(learning_starts=32, epsilon=0.0)
    before = dqn.optimizers["network"].parameters.clone()
    metrics = dqn.train(16)
    assert np.isnan(metrics["q_loss"])
    assert torch.equal(dqn.optimizers["network"].parameters, before)
    assert len(set(dqn.replay.buffer.state()["actions"].flatten())) == 2
    assert dqn.clock.gradient_steps == 0
    dqn.train(17)
    assert dqn.clock.gradient_steps > 0
    assert not torch.equal(dqn.optimizers["network"].parameters, before)


def test_target_network_is_copied_at_its_interval() -> None:
    """It changes only at multiples of the interval, and then equals the network."""
    dqn = make(target_update_interval=6, learning_starts=0)
    seen = []
    learner = dqn.learner

    def watch(name: str, *arguments: Any) -> Any:
        if name == "learn":
            seen.append(next(iter(dqn.network_target.parameters())).clone())
        return learner.step(name, *arguments)

    dqn.learner = SimpleNamespace(step=watch, takes_arrays=learner.takes_arrays)
    dqn.train(64)
    changes = [i for i in range(1, len(seen)) if not torch.equal(seen[i], seen[i - 1])]
    assert changes == [6, 12, 18, 24, 30]


def test_prioritized_transitions_get_their_errors() -> None:
    """A gradient step changes the drawn transitions' priorities; β follows the schedule."""
    dqn = make(buffer="prioritized", priority_beta="linear(0.5, 1.0)")
    dqn.train(32)
    assert len(set(dqn.replay.buffer.state()["priorities"])) > 2
    batch = dqn.replay.draw()
    drawn = np.unique(np.asarray(batch.indices, np.int64))
    dqn.replay.give_back(batch, StepResult({}, torch.zeros(len(batch.rewards))))
    assert dqn.replay.buffer.state()["priorities"][drawn] == pytest.approx(1e-6**0.6)
    assert dqn.replay.buffer.beta == pytest.approx(1.0)


class Saves(Callback):
    """Saves after some env steps or gradient steps."""

    def __init__(self, event: str, count: int, path: Path) -> None:
        self.at, self.path = (event, count), path

    def _save(self, event: str, count: int, algo: Any) -> None:
        if self.at == (event, count):
            algo.save(self.path)

    def on_step(self, **kwargs: Any) -> None:
        """Save."""
        self._save("step", kwargs["step"], kwargs["algo"])

    def on_train_batch(self, **kwargs: Any) -> None:
        """Save."""
        self._save("batch", kwargs["gradient_step"], kwargs["algo"])


@pytest.mark.parametrize("saved", [("step", 38), ("batch", 5)])
def test_a_checkpoint_of_the_middle_of_an_iteration_is_exact(
    saved: tuple[str, int], tmp_path: Path
) -> None:
    """Updates due at the save run first, and no target update is lost."""
    pytest.importorskip("rlox_native", reason="its envs are the ones that can save their state")
    path = tmp_path / "saved.rlox"
    options = {"steps_per_iteration": 32, "target_update_interval": 5, "n_envs": 2}
    options |= {"env_backend": "auto", "save_replay_buffer": True}
    whole = make(**options, callbacks=[Saves(*saved, path)])
    whole.train(96)
    restored = DQN.from_checkpoint(path)
    restored.train()
    for name in ("network", "network_target"):
        pair = (getattr(each, name).parameters() for each in (restored, whole))
        assert all(map(torch.equal, *pair))


def test_weights_scale_the_loss() -> None:
    """With weights of 0, no parameter moves, whatever the errors."""
    dqn = make(buffer="prioritized", learning_starts=17)
    dqn.train(16)
    drawn = dqn.replay.draw()
    before = dqn.optimizers["network"].parameters.clone()
    dqn.objective.learn(dqn.parts, type(drawn)(**{**vars(drawn), "weights": torch.zeros(16)}), 0.1)
    assert torch.equal(dqn.optimizers["network"].parameters, before)
    dqn.objective.learn(dqn.parts, drawn, 0.1)
    assert not torch.equal(dqn.optimizers["network"].parameters, before)


def test_epsilon_follows_its_schedule() -> None:
    """The reported ε belongs to the env steps done; a callable overrides the config."""
    assert make(epsilon="linear(1, 0, 64)").train(16)["epsilon"] == 0.75
    assert make(schedules={"epsilon": lambda step: step / 100}).train(16)["epsilon"] == 0.16


def test_resuming_without_the_buffer_fills_it_anew(tmp_path: Path) -> None:
    """The policy acts, and learning continues after learning_starts new transitions."""
    dqn = make(learning_starts=32, epsilon=0.0)
    dqn.train(48)
    dqn.save(tmp_path / "dqn.rlox")
    restored = DQN.from_checkpoint(tmp_path / "dqn.rlox")
    assert len(restored.replay.buffer) == 0
    steps = restored.clock.gradient_steps
    parameters = restored.optimizers["network"].parameters.clone()
    assert torch.equal(parameters, dqn.optimizers["network"].parameters)
    restored.train(16)
    assert restored.clock.gradient_steps == steps
    stored = restored.replay.buffer.state()
    assert np.array_equal(stored["actions"][:, 0], restored.predict(stored["obs"]))
    restored.train(32)
    assert restored.clock.gradient_steps > steps


def test_targets_of_several_steps_end_where_a_resumed_run_begins_anew(tmp_path: Path) -> None:
    """Gymnasium envs do not expose their state, so no target may reach into a new episode."""
    options: dict[str, Any] = {"n_step": 3, "gamma": 0.5, "save_replay_buffer": True}
    dqn = make(Scripted, **options, steps_per_iteration=8)
    dqn.train(8)
    dqn.save(tmp_path / "dqn.safetensors")

    class Later(Scripted):
        count = 1_000

    restored = DQN.from_checkpoint(tmp_path / "dqn.safetensors", Later)
    restored.train(8)
    last = dqn.replay.buffer.state()["obs"][-1, 0]
    assert restored.replay.buffer.state()["truncated"][7]
    restored.replay.config = restored.config.replace(batch_size=200)
    batch = restored.replay.draw()
    rows = [i for i in range(200) if float(batch.obs[i, 0]) == last]
    assert rows
    assert all(float(batch.next_obs[i, 0]) == last + 1 for i in rows)
    assert all(float(batch.discounts[i]) == 0.5 for i in rows)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"n_envs": 300}, ConfigError, "buffer_size 200 holds not even one step of n_envs = 300"),
        (
            {
                "n_step": 3,
                "buffer": rlox.ReplayBuffer(10, 4, 1, act_dtype="int64"),
                "buffer_size": UNSET,
            },
            ConfigError,
            "n_step 3 is for buffers made here; give it to your ReplayBuffer",
        ),
        ({"learning_starts": 500}, ConfigError, "learning_starts 500 exceeds buffer_size 200"),
        ({"prioritized": True, "buffer": "uniform"}, ConfigError, "and so does buffer='uniform'"),
        ({"env": "Pendulum-v1"}, SpaceError, "DQN needs Discrete actions"),
    ],
)
def test_bad_input_is_named_before_any_work(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    """The error names the value, the expected ones and the remedy."""
    with pytest.raises(error, match=message):
        make(**options)


def test_action_masks_are_refused_rather_than_ignored() -> None:
    """Buffers do not keep masks, so targets would use values of impossible actions."""

    class Masking(Scripted):
        def action_masks(self) -> Any:
            return np.array([True, False])

    with pytest.raises(SpaceError, match="the env masks actions, which replay buffers do not"):
        make(Masking()).train(16)


@pytest.mark.parametrize("at", ["step", "reset"])
def test_observations_that_are_not_finite_are_refused(at: str) -> None:
    """The error names the env."""

    class Broken(Scripted):
        def reset(self, **kwargs: Any) -> Any:
            obs, info = super().reset(**kwargs)
            return obs * (np.nan if at == "reset" else 1), info

        def step(self, action: Any) -> Any:
            obs, *rest = super().step(action)
            return obs * np.nan, *rest

    with pytest.raises(EnvError, match="env 0 returned an observation that is not finite"):
        make(Broken()).train(16)


@pytest.mark.parametrize(
    ("option", "given", "message"),
    [
        ("n_envs", 3, "n_envs=2, got 3"),
        ("buffer_size", 16, "buffer_size=200, got 16"),
    ],
)
def test_a_saved_buffer_that_does_not_fit_names_the_option(
    option: str, given: Any, message: str, tmp_path: Path
) -> None:
    """The error has both values; checkpoints without a buffer skip the check."""
    dqn = make(n_envs=2, buffer="prioritized", save_replay_buffer=True)
    dqn.train(32)
    dqn.save(path := tmp_path / "saved")
    with pytest.raises(CheckpointError, match=f"{message}.*save_replay_buffer=False to fill"):
        DQN.from_checkpoint(path, **{option: given})
    restored = DQN.from_checkpoint(path, **{option: given}, save_replay_buffer=False)
    assert len(restored.replay.buffer) == 0
