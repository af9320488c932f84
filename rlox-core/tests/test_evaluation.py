"""Tests of :mod:`rlox.envs.evaluation`."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv
from gymnasium.wrappers import NormalizeObservation
from rlox.callbacks import EvalCallback
from rlox.envs.evaluation import EvaluationResult, evaluate
from rlox.envs.gymnasium import GymVecEnv
from rlox.errors import EnvError
from scripted_env import Negated, Numbered


class Constant:
    """Predicts one action and remembers how it was asked."""

    def __init__(self, action=0):
        self.action = action
        self.deterministic = set()
        self.batches = set()

    def predict(self, obs, deterministic=True):
        """Return the action for each observation."""
        self.deterministic.add(deterministic)
        self.batches.add(len(obs))
        return np.array([self.action] * len(obs))


FLAT = spaces.Box(-1, 100, (1,))
# episodes of env i: return of the script's rewards; the constant action 0 adds nothing
SHORT = [(1.0, True, False)]
LONG = [(1.0, False, False)] * 9 + [(1.0, False, True)]


@pytest.mark.parametrize("n_episodes", [1, 3, 8])
def test_every_env_contributes_its_share(scripted, n_episodes):
    """Short episodes are not favoured: shares are fixed before and differ by at most one."""
    env = GymVecEnv(SyncVectorEnv(scripted.makers([SHORT, LONG])))
    result = evaluate(Constant(), env, n_episodes=n_episodes)
    assert len(result.returns) == n_episodes
    short, long = int((result.lengths == 1).sum()), int((result.lengths == 10).sum())
    assert (short, long) == (n_episodes // 2, n_episodes - n_episodes // 2)
    assert result.returns.tolist() == result.lengths.tolist()
    env.close()


def test_result_equals_single_episodes():
    """Each episode is the one a single env plays from the same seed."""
    result = evaluate(Constant(), "CartPole-v1", n_episodes=3, seed=5)
    expected = []
    for seed in np.random.SeedSequence(5).generate_state(3).tolist():
        env = gymnasium.make("CartPole-v1")
        env.reset(seed=seed)
        length, ended = 0, False
        while not ended:
            _, _, terminated, truncated, _ = env.step(0)
            length, ended = length + 1, terminated or truncated
        expected.append(length)
        env.close()
    assert sorted(result.lengths.tolist()) == sorted(expected)


def test_a_result_is_printed_in_short():
    """For readers of a terminal; its repr has all numbers."""
    result = EvaluationResult(np.array([1.0, 3.0]), np.array([5, 6]))
    assert str(result) == "return 2.0 ± 1.0, min, max 1.0, 3.0, mean length 5.5 over 2 episodes"


def test_copies_are_bounded_and_deterministic_is_passed_on():
    """No more copies than episodes, nor than asked for."""
    predictor = Constant()
    evaluate(predictor, "CartPole-v1", n_episodes=5, max_envs=2, deterministic=False)
    evaluate(predictor, "CartPole-v1", n_episodes=3, deterministic=False)
    assert predictor.batches == {2, 3}
    assert predictor.deterministic == {False}


def test_env_with_an_id_is_made_again():
    """An instance that can be made again is left alone, its arguments kept."""
    env = gymnasium.make("CartPole-v1", max_episode_steps=3)
    env.reset(seed=0)
    result = evaluate(Constant(), env, n_episodes=4)
    assert result.lengths.tolist() == [3, 3, 3, 3]
    env.agents = ["one"]  # which makes no team of it
    assert evaluate(Constant(), env, n_episodes=1).lengths.tolist() == [3]
    env.step(0)
    env.close()


def test_env_that_is_trained_on_is_refused(scripted):
    """An evaluation would reset it in the middle of the training's episodes."""
    predictor = Constant()
    predictor.env_source = GymVecEnv(SyncVectorEnv(scripted.makers([LONG])))
    with pytest.raises(EnvError) as caught:
        evaluate(predictor, predictor.env_source)
    assert str(caught.value) == (
        "cannot evaluate on the GymVecEnv that is trained on, which would reset it; "
        "pass another env"
    )
    predictor.env_source.close()


def test_env_that_has_learnt_moments_is_not_made_again():
    """A new one would show the policy other numbers than it has learnt from."""
    predictor = Constant()
    predictor.env_source = env = NormalizeObservation(gymnasium.make("CartPole-v1"))
    with pytest.raises(EnvError) as caught:
        evaluate(predictor, env)
    assert str(caught.value) == (
        "cannot evaluate on the NormalizeObservation that is trained on, which would reset it; "
        "pass another env, or leave NormalizeObservation to the option normalize_observations=True "
        "if the algorithm has it, whose moments evaluations and checkpoints share"
    )
    other = NormalizeObservation(gymnasium.make("CartPole-v1"))
    assert evaluate(predictor, other, n_episodes=2).mean_return > 0
    assert other.obs_rms.count > 2
    env.close()
    other.close()


def test_env_in_a_wrapper_that_cannot_be_made_again_is_used_itself():
    """The wrapper counts, and only on the env that is trained on it is refused."""
    env = gymnasium.make("CartPole-v1")
    predictor = Constant()
    predictor.env_source = gymnasium.make("CartPole-v1")
    assert evaluate(predictor, Negated(env), n_episodes=2).mean_return < 0
    predictor.env_source = env
    with pytest.raises(EnvError, match=r"^cannot evaluate on the Negated that is trained on, "):
        evaluate(predictor, Negated(env), n_episodes=2)
    assert evaluate(predictor, env, n_episodes=2).mean_return > 0
    env.close()


def test_actions_are_clipped_to_the_box():
    """A prediction outside the bounds is brought inside before the step."""
    seen = []

    class Watched(gymnasium.Env):
        observation_space = spaces.Box(-1, 1, (1,), np.float32)
        action_space = spaces.Box(-1, 1, (1,), np.float32)

        def reset(self, *, seed=None, options=None):
            return np.zeros(1, np.float32), {}

        def step(self, action):
            seen.append(float(action[0]))
            return np.zeros(1, np.float32), 0.0, True, False, {}

    evaluate(Constant([7.0]), Watched, n_episodes=2)
    assert seen == [1.0, 1.0]


def test_an_episode_without_an_end_is_an_error(counting):
    """Instead of an evaluation for ever, also during a training; one that ends in time is none."""

    def endless():
        return Numbered(FLAT, None)

    result = evaluate(Constant(), lambda: Numbered(FLAT, 50), n_episodes=2, max_steps=50)
    assert result.mean_return == 50
    with pytest.raises(EnvError, match="an episode has not ended after 50 env steps; bound it"):
        evaluate(Constant(), endless, n_episodes=2, max_steps=50)
    callback = EvalCallback(endless, eval_freq=8, max_steps=50, verbose=False)
    with pytest.raises(EnvError, match="has not ended after 50"):
        counting.CountingAlgorithm("CartPole-v1", callbacks=callback).train(8)


def test_normalized_score_is_0_for_random_and_100_for_the_expert():
    """Linear in between and beyond."""
    result = EvaluationResult(np.array([-100.0, 0.0]), np.array([1, 1]))
    assert result.normalized_score(-50.0, 50.0) == 0.0
    assert result.normalized_score(-100.0, -50.0) == 100.0
    assert result.normalized_score(-150.0, 50.0) == 50.0
    with pytest.raises(ValueError, match=r"random and the expert return are both 1\.0"):
        result.normalized_score(1.0, 1.0)
    with pytest.raises(ValueError, match="pass random_return= and expert_return="):
        result.normalized_score()
