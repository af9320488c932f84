"""DreamerV3 from a user's view: spaces, resume, options, stored rows and errors."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from dreamers import SMALL
from gymnasium import spaces
from rlox.config.presets import list_presets
from rlox.errors import CheckpointError, ConfigError, EnvError, SpaceError
from rlox.learners.transitions import StepResult
from rlox.testing import check_algorithm
from rlox_dreamer.configs import SIZES, DreamerV3Config
from rlox_dreamer.dreamer import DreamerV3
from rlox_dreamer.losses import two_hot_loss


class Scripted(gym.Env[Any, Any]):
    """Counts its steps; episodes of a fixed length are terminated or truncated, in turn."""

    def __init__(self, observation_space=None, action_space=None, length=7, bad_step=None):
        self.observation_space = observation_space or spaces.Box(-1e6, 1e6, (2,))
        self.action_space = action_space or spaces.Discrete(2)
        self._length, self._bad_step = length, bad_step
        self._step = self._episode = -1

    def _obs(self):
        if isinstance(self.observation_space, spaces.Box) and self.observation_space.shape == (2,):
            bad = self._step == self._bad_step
            return np.array([np.nan if bad else self._episode, self._step], np.float32)
        return self.observation_space.sample()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self._step, self._episode = 0, self._episode + 1
        return self._obs(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self._step += 1
        ended = self._step >= self._length
        cut = bool(self._episode % 2)
        return self._obs(), float(self._step), ended and not cut, ended and cut, {}


def stored(algo):
    """Return the rows in the buffer of an algorithm with one env, in order of their slots."""
    buffer = algo.replay.buffer
    rows = buffer.rows(0, len(buffer))
    return {name.removeprefix("row "): array for name, array in rows.items()}


def test_it_passes_the_conformance_suite():
    """The suite includes exact resume."""
    check_algorithm("dreamer_v3", "Pendulum-v1", **SMALL, save_replay_buffer=True)


@pytest.mark.parametrize(
    ("observation", "action"),
    [
        (spaces.Box(0, 255, (16, 16, 3), np.uint8), spaces.Discrete(3, start=1)),
        (spaces.Box(0, 255, (3, 20, 17), np.uint8), spaces.MultiDiscrete([2, 3])),
        (spaces.Dict({"image": spaces.Box(0, 255, (16, 16), np.uint8),
                      "number": spaces.Discrete(4, start=2),
                      "vector": spaces.Box(-1, 1, (3,))}), spaces.Box(-2, 5, (2,))),
        (spaces.MultiDiscrete([3, 2]), spaces.MultiBinary(2)),
    ],
)  # fmt: skip
def test_it_trains_on_any_space(observation, action):
    """Images of either layout and odd sizes, classes, vectors, all kinds of actions."""
    algo = DreamerV3(lambda: Scripted(observation, action), n_envs=2, **SMALL)
    metrics = algo.train(40)
    assert np.isfinite(metrics["model_loss"])
    assert action.contains(algo.predict(observation.sample(), deterministic=False))
    algo.close()


def test_rows_are_what_the_env_showed():
    """Rewards are stored with the next observation, ends have their own row, resets no reward."""
    algo = DreamerV3(Scripted, **{**SMALL, "learning_starts": 200})
    algo.train(100)
    count = len(algo.replay.buffer)
    rows = stored(algo)
    obs, first, last = rows["obs"], rows["is_first"], rows["is_last"]
    steps = obs[:, 1]
    np.testing.assert_array_equal(first, steps == 0)
    np.testing.assert_array_equal(last, steps == 7)
    np.testing.assert_array_equal(rows["is_terminal"], last & (obs[:, 0] % 2 == 0))
    np.testing.assert_array_equal(rows["reward"], steps)
    assert not rows["action"][first].any()
    assert (rows["action"][~first].sum(-1) == 1).all()
    assert count == 100 + (steps == 7).sum()
    algo.close()


def test_written_states_are_those_of_the_batch():
    """After an update the buffer holds the model's states of the drawn rows."""
    algo = DreamerV3(Scripted, **SMALL)
    algo.train(40)
    batch = algo.replay.draw()
    shape = (SMALL["batch_size"], SMALL["seq_len"])
    marks, stoch = torch.rand(*shape, SMALL["deter_dim"]), torch.full((*shape, 3), 2)
    algo.replay.give_back(batch, StepResult({}, outputs={"deter": marks, "stoch": stoch}))
    buffer = algo.replay.buffer
    slots = batch.indices % buffer.capacity  # with one env
    # a row drawn twice holds the last one
    rows = stored(algo)
    np.testing.assert_array_equal(rows["stoch"][slots], 2)
    unique, places = np.unique(slots.reshape(-1)[::-1], return_index=True)
    flat = marks.flatten(0, 1).numpy()[::-1]
    np.testing.assert_array_equal(rows["deter"][unique], flat[places])
    algo.close()


def test_observations_are_normalised_when_they_are_seen(tmp_path):
    """Rows are the env's own; batches and predictions have mean 0 and deviation 1."""
    algo = DreamerV3(Scripted, **SMALL)
    algo.train(80)
    buffer = algo.replay.buffer
    rows = stored(algo)
    # acting leaves out final observations, which are stored too
    seen = rows["obs"][~rows["is_last"]].astype(np.float64)
    batch = algo.replay.draw_sequences(64, 5, seed=0)
    raw = buffer.sample(64, 5, 0)["obs"][:, 1:].swapaxes(0, 1)
    expected = (raw - seen.mean(0)) / seen.std(0)
    np.testing.assert_allclose(batch.obs, expected, rtol=1e-3, atol=1e-3)
    algo.save(tmp_path / "a.rlox")
    again = DreamerV3.from_checkpoint(tmp_path / "a.rlox", env_id=Scripted)
    plain = DreamerV3(Scripted, **SMALL, normalize_observations=False)
    one = np.array([[3.0, 4.0]], np.float32)
    seen, restored, unchanged = (a.replay.see(one) for a in (algo, again, plain))
    assert torch.equal(seen, restored)
    assert torch.equal(unchanged, torch.from_numpy(one))
    for each in (algo, again, plain):
        each.close()


def test_updates_follow_the_ratio_whatever_the_number_of_envs():
    """The ratio is replayed steps per env step, counted from the start of learning."""
    for n_envs in (1, 3):
        algo = DreamerV3(
            Scripted, n_envs=n_envs, **{**SMALL, "train_ratio": 5.0, "steps_per_iteration": 60}
        )
        algo.train(60)
        steps = 60 - 20
        assert abs(algo.clock.gradient_steps - steps * 5 / 20) <= 2
        algo.close()


def test_prediction_remembers_what_it_is_given():
    """With the previous step's state as in an evaluation, or as an episode's first step."""
    algo = DreamerV3("CartPole-v1", **SMALL)
    algo.train(40)
    obs = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    actions, state = algo.predict(obs, state=None)
    assert actions.shape == (3,)
    np.testing.assert_array_equal(actions, algo.predict(obs))
    again, _ = algo.predict(obs, state=state, episode_start=True)
    np.testing.assert_array_equal(again, actions)
    _, after = algo.predict(obs, state=state)
    assert not np.array_equal(after, state)
    with pytest.raises(ValueError, match="state must have shape"):
        algo.predict(obs, state=np.zeros((3, 2)))
    algo.close()


def test_imagination_leaves_the_world_model_alone():
    """Actor and critic losses on imagined steps have no gradient into the model."""
    with DreamerV3(Scripted, **SMALL) as algo:
        start, generator = algo.model.rssm.initial(4), torch.Generator().manual_seed(0)
        features, actions = algo.model.imagine(start, 3, generator)
    assert features.shape == (4, 4, 16 + 12)
    assert actions.shape == (4, 4, 2)
    assert not features.requires_grad


def test_bfloat16_trains_float32_parameters():
    """Products are in bfloat16, parameters and losses are not."""
    algo = DreamerV3("CartPole-v1", **{**SMALL, "compute_dtype": "bfloat16"})
    assert np.isfinite(algo.train(60)["model_loss"])
    assert {p.dtype for p in algo.model.parameters()} == {torch.float32}
    algo.close()


@pytest.mark.parametrize("size", ["debug", max(SIZES)])
def test_sizes_are_options_that_given_ones_win_over(size):
    """The resolved config holds all of them."""
    config = DreamerV3Config(size=size)
    assert {name: getattr(config, name) for name in SIZES[size]} == SIZES[size]
    assert DreamerV3Config(size=size, units=32).units == 32
    assert DreamerV3Config(**config.to_dict()) == config


PUBLISHED = [preset for preset in list_presets("dreamer_v3") if preset.for_several]
"""Those for all envs; a preset of one env has its own numbers."""


@pytest.mark.parametrize("preset", PUBLISHED, ids=lambda preset: preset.name)
def test_presets_set_the_published_numbers(preset):
    """Given options win over the preset, and the size over its sizes."""
    config = DreamerV3Config(preset=preset.name)
    assert all(getattr(config, name) == value for name, value in preset.options.items())
    assert (config.batch_size, config.seq_len, config.imagination_horizon) == (16, 64, 15)
    assert config.gamma == pytest.approx(1 - 1 / 333)
    assert config.deter_dim == SIZES[config.size]["deter_dim"]
    assert DreamerV3Config(preset=preset.name, size="debug").deter_dim == 64
    assert DreamerV3Config(preset=preset.name, train_ratio=8).train_ratio == 8


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"deter_dim": 10}, "blocks must divide deter_dim"),
        ({"obs_dim": 7}, "obs_dim follows from the env and is 4, got 7"),
        ({"buffer_size": 5}, "buffer_size must hold more than seq_len=5"),
        ({"encoder_keys": ["image"]}, "no leaf 'image'"),
        ({"decoder_keys": []}, "decoder_keys must name at least one"),
    ],
)
def test_contradictory_options_are_refused(options, said):
    """The error comes before any work."""
    with pytest.raises(ConfigError, match=said):
        DreamerV3("CartPole-v1", **{**SMALL, **options})


def test_the_size_of_features_is_computed(caplog):
    """A given value is ignored, with a single warning."""
    with DreamerV3("CartPole-v1", latent_dim=-3, **SMALL) as agent:
        assert agent.latent_dim == -3
    assert [record.message for record in caplog.records] == [
        "latent_dim is ignored: it follows from deter_dim, stoch_dim and stoch_classes"
    ]


@pytest.mark.parametrize(
    ("env", "error", "said"),
    [
        (lambda: Scripted(bad_step=7), EnvError, "not finite"),
        (lambda: Scripted(spaces.Box(0, 255, (8, 8, 3), np.uint8)), SpaceError, "at least 16"),
        (lambda: Scripted(action_space=spaces.Box(-np.inf, np.inf, (1,))), SpaceError, "bounded"),
        (lambda: Scripted(action_space=spaces.Tuple([spaces.Discrete(2)] * 2)), SpaceError, "join"),
    ],
)
def test_hostile_envs_are_refused(env, error, said):
    """Each error names the fault and the remedy."""
    with pytest.raises(error, match=said):
        DreamerV3(env, **SMALL).train(60)


@pytest.mark.parametrize(("length", "rows"), [(1, 30), (3, 8), (50, 30)])
def test_episodes_may_be_shorter_or_longer_than_sequences(length, rows):
    """Episodes of one step, a buffer smaller than a batch, and episodes longer than a stream."""
    algo = DreamerV3(
        lambda: Scripted(length=length), **{**SMALL, "buffer_size": rows, "learning_starts": 8}
    )
    assert np.isfinite(algo.train(60)["model_loss"])
    algo.close()


def test_normalising_cannot_be_switched_on_between(tmp_path):
    """Networks trained on raw observations would suddenly see scaled ones."""
    algo = DreamerV3("CartPole-v1", **SMALL, normalize_observations=False)
    algo.train(20)
    algo.save(tmp_path / "a.rlox")
    with pytest.raises(CheckpointError, match="normalize_observations=False, got"):
        DreamerV3.from_checkpoint(tmp_path / "a.rlox", normalize_observations=True)
    algo.close()


def in_float64():
    """Return an algorithm with replayed episodes, terminated and truncated, and random values."""
    algo = DreamerV3(Scripted, seed=3, **SMALL)
    algo.train(60)
    algo.model.double()
    generator = torch.Generator().manual_seed(0)
    for parameter in algo.model.value.parameters():
        parameter.data.normal_(generator=generator)
    return algo


def test_the_replayed_loss_equals_its_formula():
    """λ-returns that stop at an episode's end, two-hot targets, and no loss at the last steps."""
    algo = in_float64()
    batch = algo.replay.draw_sequences(8, 6, seed=1)
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(6, 8, 28, generator=generator).double()
    first = torch.rand(48, generator=generator).double()
    got = algo.objective.replay_value_loss(algo.model, batch, features, first)
    assert batch.is_last[:-1].any()
    assert (batch.is_last & ~batch.is_terminal).any()
    bootstraps, value = first.view(6, 8), algo.model.value
    losses = []
    for b in range(8):
        following = bootstraps[5, b].item()
        for t in range(4, -1, -1):
            goes_on = 0.99 * (not batch.is_terminal[t + 1, b])
            lam = 0.0 if batch.is_last[t + 1, b] else 0.95
            then = (1 - lam) * bootstraps[t + 1, b].item() + lam * following
            following = batch.rewards[t + 1, b].item() + goes_on * then
            losses.append(0.0)
            if batch.is_last[t, b]:
                continue
            log_probs = value(features[t, b])
            for target in (following, 0.0):  # the slow critic predicts 0
                losses[-1] += two_hot_loss(log_probs, torch.tensor(target), value.bins).item()
    assert got.item() == pytest.approx(np.mean(losses), rel=1e-5)


def test_the_replayed_gradient_reaches_the_states():
    """It equals finite differences, and is 0 at the steps that end an episode."""
    algo = in_float64()
    batch = algo.replay.draw_sequences(3, 6, seed=1)
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(6, 3, 28, generator=generator).double().requires_grad_()
    first = torch.rand(18, generator=generator).double()

    def loss(states):
        return algo.objective.replay_value_loss(algo.model, batch, states, first)

    assert torch.autograd.gradcheck(loss, (features,))
    (gradient,) = torch.autograd.grad(loss(features), features)
    moved = gradient.abs().sum(-1) > 0
    assert torch.equal(moved[:-1], ~batch.is_last[:-1])
    assert not moved[-1].any()
