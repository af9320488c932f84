"""BC clones the dataset's policy."""

from __future__ import annotations

from pathlib import Path

import data
import gymnasium
import numpy as np
import pytest
import rlox
import torch
from rlox.errors import ConfigError, DatasetError, EnvError, SpaceError
from rlox_offline.bc import BC
from rlox_offline.datasets import Dataset
from torch import nn


def cloneable(**options: object) -> tuple[Dataset, np.ndarray]:
    """Return observations far from 0, and actions that depend on them."""
    columns = data.columns(2_000)
    columns["actions"] = 2 * np.tanh(0.5 * (columns["obs"][:, :2] - 3.0))
    return Dataset(columns, act_low=-2.0, act_high=2.0, **options), columns["obs"]


@pytest.mark.parametrize(("stochastic", "normalize"), [(False, True), (True, False)])
def test_cloned_policy_acts_on_raw_observations(stochastic: bool, normalize: bool) -> None:
    """The policy takes an env's raw observations, whatever the normalisation."""
    dataset, obs = cloneable(normalize=normalize)
    bc = BC(dataset, stochastic=stochastic, hidden=32, learning_rate=3e-3, seed=0)
    bc.train(600)
    error = np.abs(bc.predict(obs) - dataset.columns["actions"]).mean()
    assert error < 0.1


def test_discrete_policy_learns_the_labels() -> None:
    """Discrete actions are learnt by classification."""
    columns = data.columns(2_000)
    columns["actions"] = (columns["obs"][:, 0] > 3.0).astype(np.int64)
    bc = BC(Dataset(columns), continuous=False, hidden=32, learning_rate=3e-3, seed=0)
    bc.train(300)
    assert (bc.predict(columns["obs"]) == columns["actions"]).mean() > 0.97


def test_one_step_is_a_plain_adam_step() -> None:
    """The update equals torch's own on the same minibatch."""
    dataset = data.continuous(normalize=False)
    bc = BC(dataset, hidden=8, batch_size=32, seed=3)
    layers = [nn.Linear(layer.in_features, layer.out_features) for layer in bc.policy.net.layers]
    twin = nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2], nn.Tanh())
    with torch.no_grad():
        for ours, theirs in zip(bc.policy.parameters(), twin.parameters(), strict=True):
            theirs.copy_(ours)
    adam = torch.optim.Adam(twin.parameters(), lr=3e-4)
    seeds = BC(dataset, seed=3).streams.numpy("minibatches")
    for _ in range(5):
        rows = dataset.sample(32, int(seeds.integers(2**32)))
        loss = ((twin(torch.tensor(rows["obs"])) - torch.tensor(rows["actions"]) / 2) ** 2).mean()
        adam.zero_grad()
        loss.backward()
        adam.step()
    metrics = bc.train(5)
    for ours, theirs in zip(bc.policy.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)
    assert metrics["loss"] > 0


def test_bounds_come_from_the_env_where_the_dataset_has_none() -> None:
    """Pendulum's are ±2."""
    dataset = Dataset(data.columns(act_dim=1))
    assert BC(dataset, env="Pendulum-v1").action_space.high.tolist() == [2.0]
    assert BC(dataset, act_high=3.0, env="Pendulum-v1").action_space.high.tolist() == [3.0]
    with pytest.raises(DatasetError, match=r"action .* not in Box\(-1.0, 1.0.*pass act_high="):
        BC(dataset)


def test_evaluation_needs_an_env() -> None:
    """Without one, the error says what to pass; with one, episodes are run."""
    dataset = Dataset(data.columns(act_dim=1), act_low=-2.0, act_high=2.0)
    with pytest.raises(EnvError, match="'bc' was made without an env; pass one as env="):
        BC(dataset).evaluate()
    result = BC(dataset, env="Pendulum-v1", hidden=8).evaluate(n_episodes=2)
    assert result.lengths.tolist() == [200, 200]
    assert BC(dataset).evaluate(gymnasium.make("Pendulum-v1"), n_episodes=1).lengths.tolist() == [
        200
    ]


def test_an_env_that_does_not_fit_the_dataset_is_refused() -> None:
    """Before the training; more discrete actions than recorded are allowed."""
    dataset = Dataset(data.columns(act_dim=1), act_low=-2.0, act_high=2.0)
    for wrong in ("CartPole-v1", "MountainCarContinuous-v0"):
        with pytest.raises(SpaceError, match=r"shape \(3,\) .* but the env has observations in"):
            BC(dataset, env=wrong)
        with pytest.raises(SpaceError, match="but the env"):
            BC(dataset, hidden=8).evaluate(wrong)
    columns = data.columns(obs_dim=4)
    columns["actions"] = np.zeros(120, np.int64)
    options = {"continuous": False, "hidden": 8}
    bc = BC(Dataset(columns), env="CartPole-v1", act_dim=1, **options)
    assert bc.evaluate(n_episodes=1).lengths[0] > 0
    with pytest.raises(SpaceError, match=r"actions in Discrete\(3\), but the env"):
        BC(Dataset(columns, n_actions=3), env="CartPole-v1", **options)


@pytest.mark.parametrize(
    ("make", "options", "reason"),
    [
        (data.discrete, {}, "actions must be floats, got int64.*continuous=False"),
        (data.continuous, {"continuous": False}, "actions must be integers, got float32"),
        (data.continuous, {"act_dim": 5}, "act_dim is 5, but the dataset's is 2"),
    ],
)
def test_contradictions_are_refused(make: object, options: dict[str, object], reason: str) -> None:
    """The error comes before any work, and names the remedy."""
    with pytest.raises((ConfigError, DatasetError), match=reason):
        rlox.make("bc", dataset=make(), **options)


@pytest.mark.parametrize("no_dataset", [[1, 2, 3], data.columns()])
def test_what_is_no_dataset_is_refused(no_dataset: object) -> None:
    """The error says how to make one."""
    with pytest.raises(DatasetError, match=r"Dataset\(columns\) makes one of arrays"):
        BC(no_dataset)


def test_another_dataset_is_refused_when_resuming(tmp_path: Path) -> None:
    """Other normalisation would make the saved policy see other observations."""
    bc = BC(data.continuous(), hidden=8)
    bc.train(1)
    bc.save(tmp_path / "bc.safetensors")
    with pytest.raises(rlox.errors.CheckpointError, match="obs_mean differs"):
        BC.from_checkpoint(tmp_path / "bc.safetensors", dataset=data.continuous(normalize=False))


class OwnDataset:
    """The minimum of a dataset."""

    def __init__(self, **replaced: object) -> None:
        self.columns = {**data.columns(act_dim=1), **replaced}
        self.columns["actions"] = self.columns["actions"] / 2

    def __len__(self) -> int:
        return len(self.columns["rewards"])

    def sample(self, batch_size: int, seed: int) -> dict[str, np.ndarray]:
        rows = np.random.default_rng(seed).integers(len(self), size=batch_size)
        return {key: column[rows] for key, column in self.columns.items() if column is not None}


def test_own_dataset_needs_sample_and_length_alone() -> None:
    """Its actions are taken in [-1, 1]."""
    bc = rlox.make("bc", dataset=OwnDataset(), hidden=8)
    assert bc.train(2)["loss"] > 0


@pytest.mark.parametrize(
    ("replaced", "reason"),
    [
        ({"rewards": np.full(120, np.nan)}, "rewards holds values that are not finite"),
        ({"terminated": None}, "samples lack terminated"),
        ({"next_obs": np.zeros((120, 2))}, r"differ in shape: \(120, 3\) and \(120, 2\)"),
        ({"rewards": np.zeros((120, 1))}, r"rewards must have shape \(B,\), got \(120, 1\)"),
    ],
)
def test_own_dataset_is_checked_before_training(replaced: dict[str, object], reason: str) -> None:
    """User-defined datasets are checked too."""
    with pytest.raises(DatasetError, match=reason):
        BC(OwnDataset(**replaced))


def test_checkpoint_that_asks_for_huge_networks_is_refused(tmp_path: Path) -> None:
    """A hostile file cannot fill the memory with the sizes that it declares.

    On machines with enough memory, the file's arrays contradict the sizes.
    """
    bc = BC(data.continuous(), hidden=8)
    bc.config = bc.config.model_copy(update={"obs_dim": 10**9})
    bc.save(tmp_path / "huge.safetensors")
    with pytest.raises(rlox.errors.CheckpointError, match="obs_dim"):
        BC.from_checkpoint(tmp_path / "huge.safetensors")
