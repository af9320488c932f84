"""Envs stepped for replay: what is counted, and when an iteration ends."""

import numpy as np
import pytest
from gymnasium import spaces
from rlox import kernels
from rlox.envs.running import RunningEnvs
from rlox.errors import EnvError
from rlox.replay.loop import ReplayCollector, ReplaySteps
from rlox.training.hooks import Progress
from scripted_env import Failing


class Lives:
    """Two envs whose games have six steps; the third loses a life."""

    n_envs = 2
    observation_space = spaces.Box(0, 10, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, bad_reward=1.0):
        self._count, self._bad_reward = 0, bad_reward

    def reset_all(self, seed=None):
        """Begin a game."""
        return np.zeros((2, 1), np.float32)

    def step_all(self, actions):
        """Go on."""
        self._count += 1
        final = np.full((2, 1), self._count, np.float32)
        ended, life = self._count % 3 == 0, self._count == 3
        self._count %= 6
        step = {
            "obs": np.full((2, 1), self._count, np.float32),
            "rewards": np.array([1.0, self._bad_reward]),
            "terminated": np.full(2, ended),
            "truncated": np.zeros(2, bool),
            "final_obs": final,
        }
        return step | {"life_lost": np.ones(2, bool)} if life else step

    def close(self):
        """Do nothing."""


def test_a_lost_life_begins_an_episode_and_ends_no_game():
    """What acts forgets; the statistics count games, also over several blocks of steps."""
    steps = ReplaySteps(RunningEnvs(Lives()))
    _ = steps.envs.obs
    starts = []
    for k in range(12):
        starts.append(bool(steps.episode_start.all()))
        step = steps.step_envs(np.zeros(2, np.int64))
        assert np.array_equal(steps.envs.obs, step["obs"])
        if k % 5 == 0:
            steps.count_episodes()
    steps.count_episodes()
    assert starts == [k % 3 == 0 for k in range(12)]
    found = steps.statistics
    assert (found.finished, found.mean_length, found.mean_return) == (4, 6, 6)


@pytest.mark.parametrize(
    ("reward", "message"),
    [
        (np.nan, "nan; rewards must be finite"),
        (np.inf, "inf; rewards must be finite"),
        (-1e300, r"-1e\+300; rewards must fit float32; clip them in the env"),
    ],
)
def test_rewards_must_be_finite_and_fit_float32(reward, message):
    """The error names the env and the reward, and the step is not counted."""
    steps = ReplaySteps(RunningEnvs(Lives(reward)))
    _ = steps.envs.obs
    with pytest.raises(EnvError, match=f"env 1 returned the reward {message}"):
        steps.step_envs(np.zeros(2, np.int64))
    steps.count_episodes()
    assert steps.statistics.finished == 0


@pytest.mark.parametrize("reward", [3e38, -1e30, 1e-300])
def test_large_rewards_that_fit_float32_are_taken(reward):
    """Also those whose squares fit no float."""
    steps = ReplaySteps(RunningEnvs(Lives(reward)))
    _ = steps.envs.obs
    assert steps.step_envs(np.zeros(2, np.int64))["rewards"][1] == reward


def numbered(fails_at, error, n_step):
    """Return a collector over two envs, the second of which fails, and its buffer."""
    failing = iter((0, fails_at))
    envs = RunningEnvs.make(lambda: Failing(next(failing), error, 10), 2)
    backend = kernels.backend()
    steps = {"n_envs": 2, "n_step": n_step, "gamma": 0.5}
    buffer = backend.ReplayBuffer(200, 2, 1, act_dtype="int64", **steps)
    return ReplayCollector(envs, buffer), buffer


def go_on(collector, n_steps):
    """Take vector steps."""
    actions = np.zeros(2, np.int64)
    for _ in range(n_steps):
        collector.step(collector.obs, actions[:, None], actions)


def require_true_transitions(buffer, n_step):
    """Require that no transition leads from one episode to another, and that rewards add up."""
    batch = buffer.sample(2_000)
    obs, next_obs = np.asarray(batch["obs"]), np.asarray(batch["next_obs"])
    spans = next_obs[:, 1] - obs[:, 1]
    assert np.array_equal(obs[:, 0], next_obs[:, 0])
    assert set(spans) == set(range(1, n_step + 1))
    np.testing.assert_allclose(batch["rewards"], 2 - 0.5 ** (spans - 1))


@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize("fails_at", [10, 15])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("the simulator crashed")])
def test_a_step_that_fails_begins_new_episodes(error, fails_at, n_step):
    """Some envs have moved on by then: their next observations follow from no stored one."""
    collector, buffer = numbered(fails_at, error, n_step)
    with pytest.raises(type(error)):
        go_on(collector, 40)
    assert collector.episode_start.all()
    go_on(collector, 25)
    collector.count_episodes()
    require_true_transitions(buffer, n_step)
    state = collector.statistics.state_dict()
    assert set(state["lengths"]) == set(state["returns"]) == {10}
    assert state["running_length"].tolist() == [5, 5]


def test_envs_that_are_reset_after_a_failure_repeat_nothing():
    """Their seeds are others than those of the first episodes, also in a checkpoint."""
    seeds = []

    class Seeded(Lives):
        def reset_all(self, seed=None):
            seeds.append(list(seed))
            return super().reset_all(seed)

        def step_all(self, actions):
            raise RuntimeError

    envs = RunningEnvs(Seeded())
    for _ in range(3):
        _ = envs.obs
        with pytest.raises(RuntimeError):
            envs.step(np.zeros(2, np.int64))
    state = envs.state_dict()
    envs = RunningEnvs(Seeded())
    assert not envs.load_state_dict(state)
    _ = envs.obs
    assert len({tuple(each) for each in seeds}) == 4


def test_an_iteration_ends_at_multiples_of_its_steps():
    """Rounded up to whole vector steps; an interrupted one goes on."""
    left = [Progress(env_steps=done).vector_steps_left(4, 10) for done in (0, 4, 8, 12)]
    assert left == [3, 2, 1, 3]
    assert Progress(env_steps=10).vector_steps_left(1, 10) == 10
