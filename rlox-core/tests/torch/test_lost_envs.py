"""Envs in processes that die or stall: clear errors, restarts, and rollouts without them."""

import os
import signal
import threading
import time
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from rlox.envs.preprocessing import RewardScaler
from rlox.envs.processes import ProcessVecEnv
from rlox.errors import EnvError, WorkerError, WorkerLostError
from rlox.networks.actor_critics import make_policy
from rlox.rollouts import RolloutCollector


class Counting(gymnasium.Env):
    """An env whose observation counts the steps of its episode; it ends after ten of them."""

    observation_space = spaces.Dict({"count": spaces.Box(0, 1e6, (1,), np.float32)})
    action_space = spaces.Tuple((spaces.Discrete(2), spaces.Box(-1, 1, (2,), np.float32)))

    def __init__(self, flag="", behaviour=""):
        self.flag, self.behaviour = Path(flag or "/nonexistent"), behaviour
        self.count = 0

    def reset(self, *, seed=None, options=None):
        """Begin at 0."""
        super().reset(seed=seed)
        self.count = 0
        return self._obs(), {}

    def step(self, action):
        """Count, or do what it is there for; what ends the process, once."""
        self.count += 1
        if self.count == 4 and self.flag.exists():
            if self.behaviour:
                self.flag.unlink()
            if self.behaviour == "die":
                os._exit(7)
            if self.behaviour == "stall":
                time.sleep(600)
            raise ZeroDivisionError("the wheel came off")
        return self._obs(), 1.0, False, self.count == 10, {}

    def _obs(self):
        return {"count": np.array([self.count], np.float32)}


def actions(n_envs):
    """Return a batch of actions."""
    return (np.zeros(n_envs, np.int64), np.zeros((n_envs, 2), np.float32))


def test_nested_spaces_go_through_processes():
    """Observations by leaf, actions nested, final observations where an episode ended."""
    env = ProcessVecEnv(Counting, 2)
    assert env.observation_space == Counting.observation_space
    assert env.reset_all(0)["count"].tolist() == [[0], [0]]
    for step in range(1, 11):
        answer = env.step_all(actions(2))
        assert "lost" not in answer
        assert answer["final_obs"]["count"].tolist() == [[step]] * 2
        assert answer["obs"]["count"].tolist() == [[step % 10]] * 2
        assert answer["truncated"].tolist() == [step == 10] * 2
    env.close()


def test_an_error_in_an_env_is_raised_with_its_traceback(tmp_path):
    """It is the envs' fault, so nothing begins again; the next answers are of the next call."""
    flag = tmp_path / "flag"
    env = ProcessVecEnv(Counting, 2, env_kwargs={"flag": str(flag)}, max_restarts=3)
    env.reset_all(0)
    flag.touch()
    for _ in range(3):
        env.step_all(actions(2))
    with pytest.raises(ZeroDivisionError, match="the wheel came off") as caught:
        env.step_all(actions(2))
    assert isinstance(caught.value.__cause__, WorkerError)
    assert "in step" in str(caught.value.__cause__)
    assert env.step_all(actions(2))["obs"]["count"].tolist() == [[5], [5]]
    assert env.reset_all(0)["count"].tolist() == [[0], [0]]
    env.close()


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [("die", r"has died \(exit status 7\)"), ("stall", "has not answered in")],
)
def test_a_lost_env_is_an_error_that_names_it(tmp_path, behaviour, reason):
    """Within its deadline, and without waiting for ever, as gymnasium's processes may."""
    flag = tmp_path / "flag"
    kwargs = {"flag": str(flag), "behaviour": behaviour}
    env = ProcessVecEnv(Counting, 1, env_kwargs=kwargs, step_timeout=120.0)
    env.reset_all(0)
    flag.touch()
    for _ in range(3):
        env.step_all(actions(1))
    if behaviour == "stall":
        env._step_timeout = 0.5
    with pytest.raises(WorkerLostError, match=f"the process of env 0 {reason}"):
        env.step_all(actions(1))
    env.close()


def test_a_lost_env_begins_a_new_episode(caplog):
    """Its row is marked lost, and holds nothing of an outcome."""
    env = ProcessVecEnv(Counting, 2, max_restarts=1)
    env.reset_all(0)
    for _ in range(3):
        env.step_all(actions(2))
    os.kill(env.pids[1], signal.SIGKILL)
    step = env.step_all(actions(2))
    assert step["lost"].tolist() == [False, True]
    assert step["obs"]["count"].tolist() == [[4], [0]]
    assert step["final_obs"]["count"].tolist() == [[4], [3]]
    assert step["rewards"].tolist() == [1, 0]
    assert step["truncated"].tolist() == [False, True]
    assert not step["terminated"].any()
    assert env.step_all(actions(2))["obs"]["count"].tolist() == [[5], [1]]
    assert "env 1 begins again: the process of env 1 has died (signal 9)" in caplog.text
    os.kill(env.pids[1], signal.SIGKILL)
    with pytest.raises(WorkerLostError, match="after 1 restart"):
        env.step_all(actions(2))
    env.close()


def test_a_callable_that_cannot_be_sent_says_so():
    """With the remedy."""
    lock = threading.Lock()
    with pytest.raises(EnvError, match=r"cannot be sent to a process.*vectorization='sync'"):
        ProcessVecEnv(lambda: lock and Counting())


class Flaky:
    """A vector env of three that counts, and loses env 1 in chosen steps."""

    n_envs = 3
    observation_space = spaces.Box(-1e6, 1e6, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, *lost_in, which=(1,)):
        self.lost_in, self.which, self.steps = lost_in, list(which), 0
        self.counts = np.zeros(3)

    def reset_all(self, seed=None):
        """Begin at 0."""
        return self._obs()

    def step_all(self, actions):
        """Count; episodes of env i end after 4 + i steps."""
        self.steps += 1
        before = self.counts.copy()
        self.counts += 1
        lost = np.zeros(3, bool)
        if self.steps in self.lost_in:
            lost[self.which] = True
        final = np.where(lost, before, self.counts)
        truncated = lost | (self.counts >= 4 + np.arange(3))
        self.counts[truncated] = 0
        step = {
            "obs": self._obs(),
            "rewards": np.where(lost, 0.0, 1.0),
            "terminated": np.zeros(3, bool),
            "truncated": truncated,
            "final_obs": final[:, None].astype(np.float32),
        }
        return {**step, "lost": lost} if lost.any() else step

    def _obs(self):
        return self.counts[:, None].astype(np.float32)

    def close(self):
        """Do nothing."""


LEARNERS = pytest.mark.parametrize(
    ("recurrent", "preprocessing"),
    [("none", {}), ("lstm", {"frame_stack": 2}), ("none", {"normalize_rewards": True})],
)


@LEARNERS
def test_a_step_that_fails_begins_new_episodes(recurrent, preprocessing):
    """Env 0 had moved on: nothing of the cut episodes is remembered."""
    from scripted_env import Failing  # the processes of other tests cannot import it

    fails = iter((0, 8))
    envs = lambda: Failing(next(fails), KeyboardInterrupt(), 5)  # noqa: E731
    collector = RolloutCollector(envs, 2, **preprocessing)
    policy = make_policy(
        collector.observation_space,
        collector.env.action_space,
        hidden=4,
        recurrent=recurrent,
        memory_size=4,
    )
    with pytest.raises(KeyboardInterrupt):
        collector.unroll(policy, 12)
    unroll = collector.unroll(policy, 3)
    seen = unroll.obs.flatten(2)
    assert seen[..., -1].T.tolist() == [[0, 1, 2, 3]] * 2
    if "frame_stack" in preprocessing:
        assert seen[..., -3].T.tolist() == [[0, 0, 1, 2]] * 2
    if recurrent != "none":
        assert unroll.episode_starts.T.tolist() == [[True, False, False]] * 2
        assert not unroll.initial_state.any()
    if collector.reward_scaler is not None:
        returns = collector.reward_scaler.state_dict()["returns"]
        np.testing.assert_allclose(returns, 1 + 0.99 + 0.99**2)
    collector.unroll(policy, 12)
    assert set(collector.statistics.state_dict()["lengths"]) == {5}


def unroll_of(env, n_steps, **options):
    """Return an unroll of a default policy, and its collector."""
    recurrent = options.pop("recurrent", "none")
    collector = RolloutCollector(env, **options)
    policy = make_policy(
        collector.observation_space, env.action_space, hidden=4, recurrent=recurrent, memory_size=4
    )
    return collector.unroll(policy, n_steps), collector


@LEARNERS
def test_a_lost_env_leaves_the_unroll(recurrent, preprocessing):
    """What is left is a rectangle of the others, with their own final observations."""
    unroll, collector = unroll_of(Flaky(3), 8, recurrent=recurrent, **preprocessing)
    assert unroll.envs.tolist() == [0, 2]
    assert unroll.rewards.shape == (8, 2)
    assert unroll.rewards.all()
    assert tuple(unroll.obs.shape[:2]) == (9, 2)
    assert unroll.truncated.T.nonzero()[1].tolist() == [3, 7, 5]
    assert unroll.final_obs.flatten(1)[:, -1].tolist() == [4, 6, 4]
    if recurrent != "none":
        assert len(unroll.initial_state) == 2
        assert tuple(unroll.values.shape) == (9, 2)
    # env 1 was lost after 2 steps and then made a whole episode of 5
    lengths = collector.statistics.state_dict()["lengths"]
    assert sorted(lengths.tolist()) == [4, 4, 5, 6]


def test_a_rollout_of_lost_envs_alone_is_an_error():
    """There is nothing to learn from."""
    with pytest.raises(EnvError, match="all envs were lost in one rollout"):
        unroll_of(Flaky(2, which=(0, 1, 2)), 4)


def test_reward_scaling_does_not_count_a_lost_step():
    """The moments are those of the others."""
    one, other = RewardScaler(3, 0.9), RewardScaler(2, 0.9)
    none = np.zeros(3, bool)
    lost = np.array([False, True, False])
    one.scale(np.array([1.0, 0.0, 3.0]), none, lost=lost)
    other.scale(np.array([1.0, 3.0]), none[:2])
    assert one.moments.state_dict() == other.moments.state_dict()
