"""Lost envs: nothing that they did since their last true step is learnt from or counted."""

import numpy as np
import pytest
import rlox
import torch
from gymnasium import spaces
from rlox.callbacks import Callback
from rlox.envs.running import RunningEnvs
from rlox.kernels import reference
from rlox.replay.loop import ReplayCollector
from rlox.training.hooks import Progress
from rlox_dreamer.configs import DreamerV3Config
from rlox_dreamer.experience import OBS, Experience
from rlox_dreamer.networks import ActionCodec

LENGTH = 7
"""Steps of an undisturbed episode."""
LOST = {4: [1], 5: [0, 2], 11: [1], 12: [1], 20: [0, 1, 2]}
"""Which envs are lost, by vector step."""
N_ENVS = 3


class Scripted:
    """Observes (env, episode, step) and pays step + 1; envs are lost at given vector steps."""

    n_envs = N_ENVS
    observation_space = spaces.Box(-1, 1e6, (3,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self):
        self.episode = np.zeros(N_ENVS, np.int64)
        self.time = np.zeros(N_ENVS, np.int64)
        self.steps = 0
        self.finished = []

    def _obs(self):
        return np.stack([np.arange(N_ENVS), self.episode, self.time], 1).astype(np.float32)

    def reset_all(self, seed=None):
        """Begin."""
        return self._obs()

    def step_all(self, actions):
        """Step; a lost env stands at the beginning of its next episode."""
        lost = np.isin(np.arange(N_ENVS), LOST.get(self.steps, []))
        self.steps += 1
        self.time += ~lost
        final = self._obs()
        rewards = np.where(lost, 0.0, self.time)
        terminated = (self.time == LENGTH) & ~lost
        self.finished += [float(LENGTH * (LENGTH + 1) / 2)] * int(terminated.sum())
        over = terminated | lost
        self.episode += over
        self.time[over] = 0
        step = {"obs": self._obs(), "rewards": rewards, "terminated": terminated,
                "truncated": lost, "final_obs": final}  # fmt: skip
        return step | ({"lost": lost} if lost.any() else {})

    def close(self):
        """Do nothing."""


def make(module, kind):
    """Return an empty buffer."""
    steps = {"n_envs": N_ENVS, "gamma": 0.5}
    if kind == "her":
        return module.HerReplayBuffer(
            500, 3, 1, 1, lambda achieved, desired, _: -np.abs(achieved - desired)[:, 0],
            achieved_goal=2, desired_goal=1, n_envs=N_ENVS, seed=0, act_dtype="int64",
        )  # fmt: skip
    cls = module.PrioritizedReplayBuffer if kind == "prioritized" else module.ReplayBuffer
    n_step = {"uniform": 1, "prioritized": 2, "n-step": 3}[kind]
    return cls(500, 3, 1, act_dtype="int64", n_step=n_step, seed=0, **steps)


def collect(buffer, n_steps=30):
    """Step the scripted env into a buffer and check the statistics."""
    env = Scripted()
    envs = RunningEnvs(env)
    collector = ReplayCollector(envs, buffer)
    stored = 0
    for _ in range(n_steps):
        actions = np.zeros((N_ENVS, 1), np.int64)
        stored += collector.step(collector.obs, actions, actions[:, 0])
    collector.count_episodes()
    assert stored == len(buffer) == N_ENVS * (n_steps - sum(t < n_steps for t in LOST))
    assert envs.statistics.finished == len(env.finished) > 0
    assert envs.statistics.mean_return == np.mean(env.finished)
    assert envs.statistics.mean_length == LENGTH
    return env


MODULES = [pytest.param(reference, id="numpy"), pytest.param(rlox, id="rust")]


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("kind", ["uniform", "n-step", "prioritized"])
def test_transitions_are_of_true_steps(module, kind):
    """Every span is of one episode, its reward the sum of what its steps paid."""
    buffer = make(module, kind)
    collect(buffer)
    batch = buffer.sample(4_000)
    spans = set()
    for obs, next_obs, reward, discount in zip(
        batch["obs"], batch["next_obs"], batch["rewards"],
        batch.get("discounts", np.full(4_000, np.nan)), strict=True,
    ):  # fmt: skip
        assert (obs[:2] == next_obs[:2]).all()
        k = int(next_obs[2] - obs[2])
        assert 1 <= k <= max(1, getattr(buffer, "n_step", 1))
        paid = [0.5**i * (obs[2] + i + 1) for i in range(k)]
        assert reward == pytest.approx(sum(paid))
        if not np.isnan(discount):
            assert discount == (0.0 if next_obs[2] == LENGTH else 0.5**k)
        spans.add(k)
    assert spans == set(range(1, getattr(buffer, "n_step", 1) + 1))


@pytest.mark.parametrize("module", MODULES)
def test_sequences_do_not_span_a_loss(module):
    """Their steps follow each other in one episode."""
    buffer = make(module, "uniform")
    collect(buffer)
    drawn = buffer.sample_sequences(2_000, 3)
    obs, follows = drawn["obs"], drawn["mask"][:, 1:]
    assert follows.any()
    assert not follows.all()
    assert (obs[:, 1:, :2] == obs[:, :-1, :2])[follows].all()
    assert (np.diff(obs[:, :, 2], axis=1) == 1)[follows].all()


@pytest.mark.parametrize("module", MODULES)
def test_goals_are_of_the_episode_before_the_loss(module):
    """A goal in place of the own one is a later step's of the same episode."""
    buffer = make(module, "her")
    collect(buffer)
    batch = buffer.sample(4_000)
    assert (batch["obs"][:, 1] == batch["next_obs"][:, 1]).all()
    goals, now = batch["obs"][:, 1], batch["next_obs"][:, 2]
    relabelled = batch["rewards"] <= 0
    assert relabelled.any()
    assert (goals[relabelled] >= now[relabelled]).all()
    assert goals[relabelled].max() <= LENGTH


@pytest.mark.parametrize("kind", ["uniform", "n-step", "prioritized", "her"])
def test_both_backends_hold_the_same(kind):
    """States after losses are equal, the marks of truncation included."""
    pair = [make(module, kind) for module in (reference, rlox)]
    for buffer in pair:
        collect(buffer, 25)
    left, right = (buffer.state() for buffer in pair)
    assert left["truncated"].any()
    for key, value in left.items():
        np.testing.assert_array_equal(value, right[key], err_msg=key)


def test_an_algorithm_of_replay_goes_on(monkeypatch):
    """It learns from what is true; the clock counts every vector step."""
    options = {"buffer_size": 200, "learning_starts": 6, "batch_size": 8, "hidden": 8,
               "steps_per_iteration": 30}  # fmt: skip
    for name in ("dqn", "discrete_sac"):
        with rlox.make(name, env=Scripted(), train_freq=3, n_step=2, **options) as algorithm:
            algorithm.train(90)
            assert algorithm.clock.env_steps >= 90


@pytest.mark.parametrize("backend", ["torch", "auto"])
def test_rollouts_leave_lost_envs_out(backend):
    """Those whose actions are drawn in Rust too; others stay, whole and in order."""
    batches = []

    class Keeps(Callback):
        """Keeps the rollouts."""

        def on_rollout_end(self, **kwargs):
            """Keep it."""
            batches.append(kwargs["batch"])

    with rlox.make(
        "a2c", env=Scripted(), n_steps=5, hidden=8, backend=backend, callbacks=Keeps()
    ) as a2c:
        a2c.train(60)
        assert a2c.collector.statistics.finished == len(a2c.env_source.finished)
    assert len(batches) == 4
    kept = [5 * N_ENVS - 5 * n for n in (1, 2, 1, 0)]
    assert [batch.rewards.numel() for batch in batches] == kept
    for batch in batches:
        obs = batch.obs.reshape(-1, 3)
        assert torch.equal(batch.rewards.reshape(-1), obs[:, 2] + 1)


class Kept:
    """A buffer of sequences that keeps the rows of each env."""

    def __init__(self):
        self.streams = [[] for _ in range(N_ENVS)]

    def push(self, rows, envs):
        """Keep them."""
        for row, env in enumerate(envs):
            self.streams[env].append({name: np.array(rows[name][row]) for name in rows})


def test_streams_of_sequences_are_cut():
    """The row after a loss begins an episode; no row is of a step that was not made."""
    env, kept = Scripted(), Kept()
    envs = RunningEnvs(env)
    config = DreamerV3Config(learning_starts=10_000, deter_dim=2, blocks=1)
    clock, actions = Progress("env_steps"), ActionCodec(env.action_space)
    experience = Experience(envs, kept, actions, None, clock, config)  # type: ignore[arg-type]

    class Hooks:
        """Counts nothing."""

        def env_step(self, count):
            """Do nothing."""

    for _ in range(30):
        experience.step(lambda seen: seen[1].numpy(), Hooks())  # type: ignore[arg-type]
    experience.state_dict()
    assert envs.statistics.finished == len(env.finished)
    losses = 0
    for stream in kept.streams:
        for before, row in zip([None, *stream], stream, strict=False):
            time = row[OBS][2]
            assert row["reward"] == time
            assert bool(row["is_first"]) == (time == 0)
            assert bool(row["is_last"]) == (time == LENGTH)
            if before is not None and row["is_first"] and not before["is_last"]:
                losses += 1
    assert losses == sum(len(envs) for envs in LOST.values())
