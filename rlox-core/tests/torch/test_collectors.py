"""Tests of :mod:`rlox.rollouts.collector`: every autoreset mode ends in the same batches."""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import given
from hypothesis import strategies as st
from rlox.envs.running import RunningEnvs
from rlox.errors import ConfigError, EnvError, SpaceError
from rlox.kernels.reference import ReplayBuffer
from rlox.networks.actor_critics import ActorCriticPolicy, make_policy
from rlox.networks.validate import try_actor
from rlox.replay.loop import ReplayCollector
from rlox.rollouts.collector import RolloutCollector, ValueActor

GAMMA, LAM = 0.9, 0.8
MODES = list(AutoresetMode)
steps = st.tuples(st.integers(-4, 4).map(float), st.booleans(), st.booleans())
scripts = st.lists(st.lists(steps, min_size=1, max_size=5), min_size=1, max_size=3)
FIELDS = (
    "obs", "actions", "log_probs", "values", "rewards", "terminated", "truncated", "advantages",
    "returns",
)  # fmt: skip


class Scripted:
    """A policy whose actions and values are pure functions of the observation."""

    def __init__(self, module):
        self._module = module

    def get_action_and_logprob(self, obs):
        """Return the action and, as its log-probability, minus the value."""
        return torch.from_numpy(self._module.action_of(obs.numpy())), -self.get_value(obs)

    def get_value(self, obs):
        """Return a value that distinguishes observations."""
        return torch.from_numpy(self._module.value_of(obs.numpy()))


def collect(scripted, env, lengths):
    """Collect rollouts of the given lengths one after the other and close the env."""
    collector = RolloutCollector(env, gamma=GAMMA, gae_lambda=LAM)
    policy = Scripted(scripted)
    batches = [collector.collect(policy, n_steps) for n_steps in lengths]
    collector.close()
    return batches


def oracle(scripted, scripts, lengths):
    """Collect with plain gymnasium calls, env by env, and sum advantages by their definition."""
    envs = [make() for make in scripted.makers(scripts)]
    observations = [env.reset()[0] for env in envs]
    rollouts = []
    for n_steps in lengths:
        columns = []
        for i, env in enumerate(envs):
            column = []
            for _ in range(n_steps):
                obs = observations[i]
                action = scripted.action_of(obs)
                final, reward, terminated, truncated, _ = env.step(action)
                observations[i] = env.reset()[0] if terminated or truncated else final
                column.append((obs, action, reward, terminated, truncated, final))
            columns.append(column)
        rollouts.append(_flatten(scripted, columns, n_steps))
    return rollouts


def _flatten(scripted, columns, n_steps):
    rows = {name: [] for name in FIELDS}
    for t in range(n_steps):
        for column in columns:
            obs, action, reward, terminated, truncated, _ = column[t]
            value = scripted.value_of(obs)
            advantage = 0.0
            for k in range(t, n_steps):
                o, _, r, term, trunc, final = column[k]
                following = 0.0 if term else float(scripted.value_of(final))
                delta = r + GAMMA * following - float(scripted.value_of(o))
                advantage += (GAMMA * LAM) ** (k - t) * delta
                if term or trunc:
                    break
            for name, item in zip(
                FIELDS,
                (obs, action, -value, value, reward, terminated, truncated, advantage,
                 advantage + float(value)),
                strict=True,
            ):  # fmt: skip
                rows[name].append(item)
    return {name: np.array(items) for name, items in rows.items()}


def assert_equal_to_oracle(batches, expected):
    """Compare data exactly and estimates to float32 rounding."""
    for batch, rollout in zip(batches, expected, strict=True):
        for name in FIELDS:
            got = getattr(batch, name).numpy()
            if name in ("advantages", "returns"):
                np.testing.assert_allclose(got, rollout[name], rtol=1e-5, atol=1e-5)
            else:
                np.testing.assert_array_equal(got, rollout[name], err_msg=name)


def assert_identical(a, b):
    """Compare byte for byte."""
    for one, other in zip(a, b, strict=True):
        for name in FIELDS:
            x, y = getattr(one, name), getattr(other, name)
            assert x.dtype == y.dtype
            assert x.numpy().tobytes() == y.numpy().tobytes(), name


@given(scripts=scripts, lengths=st.lists(st.integers(1, 6), min_size=1, max_size=3))
def test_every_mode_equals_single_envs(scripted, scripts, lengths):
    """Whatever the autoreset mode, the batches are those of envs stepped one by one."""
    expected = oracle(scripted, scripts, lengths)
    first = None
    for mode in MODES:
        env = SyncVectorEnv(scripted.makers(scripts), autoreset_mode=mode)
        batches = collect(scripted, env, lengths)
        assert_equal_to_oracle(batches, expected)
        first = first or batches
        assert_identical(batches, first)


def test_truncation_bootstraps_from_the_final_observation(scripted):
    """One step, cut: A = r + γ V(final) - V(obs), by hand.

    The first observation is (0, 1, 0) with V = 0.25 and action 2; the final one (0, 1, 1) has
    V = 0.25 + 0.125; the reset one, (0, 2, 0), would have V = 0.5.
    """
    (cut,) = collect(scripted, SyncVectorEnv(scripted.makers([[(1.0, False, True)]])), [1])
    assert float(cut.advantages) == pytest.approx(3.0 + GAMMA * 0.375 - 0.25)
    (both,) = collect(scripted, SyncVectorEnv(scripted.makers([[(1.0, True, True)]])), [1])
    assert float(both.advantages) == pytest.approx(3.0 - 0.25)


class OneStep(gymnasium.Env):
    """Gives one observation and one reward for ever, and keeps the actions."""

    action_space = spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, space, reward=1.0):
        self.observation_space, self.reward = space, reward
        self.actions = []

    def reset(self, *, seed=None, options=None):
        """Begin."""
        return self.observation_space.high, {}

    def step(self, action):
        """Keep the action."""
        self.actions.append(float(action[0]))
        return self.observation_space.high, self.reward, False, False, {}


class Far:
    """Acts far outside the bounds."""

    def get_action_and_logprob(self, obs):
        """Return action 5."""
        return torch.full((len(obs), 1), 5.0), torch.zeros(len(obs))

    def get_value(self, obs):
        """Return 0."""
        return torch.zeros(len(obs))


def test_actions_are_clipped_for_the_env_and_stored_as_sampled():
    """The learner needs the action whose probability it knows."""
    env = OneStep(spaces.Box(-1, 1, (2,), np.float32))
    policy = Far()
    batch = RolloutCollector(env).collect(policy, 3)
    assert env.actions == [1.0, 1.0, 1.0]
    assert batch.actions.flatten().tolist() == [5.0, 5.0, 5.0]


@pytest.mark.parametrize("reward", [float("nan"), float("inf")])
def test_reward_that_is_not_finite_is_an_error(reward):
    """The error names the env before the value spreads through the network."""
    policy = Far()
    collector = RolloutCollector(OneStep(spaces.Box(0, 1, (2,)), reward))
    with pytest.raises(EnvError, match=f"^env 0 returned the reward {reward}; rewards must be fin"):
        collector.collect(policy, 2)


class Broken(gymnasium.Env):
    """Lasts three steps and returns one NaN: after ``at`` steps, or in place of a start.

    Args:
        at: how many steps of the first episode come before it; 4: the second episode's start.
    """

    observation_space = spaces.Box(-1, 1, (2,))
    action_space = spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, at):
        self.at, self.seen = at, -1

    def reset(self, *, seed=None, options=None):
        """Begin."""
        self.taken = 0
        return self.look(), {}

    def step(self, action):
        """Cut the episode after three steps."""
        self.taken += 1
        return self.look(), 1.0, False, self.taken == 3, {}

    def look(self):
        """Return the next observation."""
        self.seen += 1
        return np.array([0.0, np.nan if self.seen == self.at else 0.5], np.float32)


@pytest.mark.parametrize(("at", "normalize"), [*((at, False) for at in range(7)), (3, True)])
def test_observation_that_is_not_finite_is_an_error(at, normalize):
    """At an episode's start, within it, at its cut end and after the rollout's last step alike."""
    policy = Far()
    envs = [lambda: Broken(99), lambda: Broken(at)]
    collector = RolloutCollector(SyncVectorEnv(envs), normalize_observations=normalize)
    with pytest.raises(EnvError, match=r"^env 1 returned an observation that is not finite$"):
        collector.collect(policy, 5)
    if collector.preprocessor is not None:
        assert np.isfinite(collector.preprocessor.moments[""].mean).all()


def test_restored_collector_starts_other_episodes():
    """Envs that do not expose their state begin again, not with the run's first starts again."""
    policy = Far()
    collector = RolloutCollector("Pendulum-v1", 2, 0, backend="gymnasium")
    first = collector.collect(policy, 250)
    restored = RolloutCollector("Pendulum-v1", 2, 0, backend="gymnasium")
    restored.load_state_dict(collector.state_dict())
    assert restored.statistics.finished == 2
    assert restored.statistics.mean_return == collector.statistics.mean_return
    again = restored.collect(policy, 1)
    assert not torch.equal(again.obs[:2], first.obs[:2])
    collector.close()
    restored.close()


N_ENVS, N_STEPS, LENGTH = 3, 7, 4


class Flicker(gymnasium.Env):
    """Random frames; every episode is truncated after ``LENGTH`` steps."""

    observation_space = spaces.Box(0, 255, (1, 36, 36), np.uint8)
    action_space = spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        """Begin."""
        super().reset(seed=seed)
        self.left = LENGTH
        return self._frame(), {}

    def step(self, action):
        """Show another frame."""
        self.left -= 1
        return self._frame(), float(action), False, self.left == 0, {}

    def _frame(self):
        return self.np_random.integers(0, 256, self.observation_space.shape, np.uint8)


def images(seed=0):
    """Return the default policy of the frames, with values of the size of 1."""
    generator = torch.Generator().manual_seed(seed)
    made = make_policy(Flicker.observation_space, Flicker.action_space, generator=generator)
    assert isinstance(made, ActorCriticPolicy)
    return made


class Plain:
    """The same policy without ``act_with_value``."""

    def __init__(self, policy):
        self.get_action_and_logprob, self.get_value = (
            policy.get_action_and_logprob,
            policy.get_value,
        )


def test_observations_are_encoded_once():
    """T*N frames as they are acted on, then the N next ones and the true final ones."""
    policy, rows = images(), []
    policy.encoder.register_forward_hook(lambda _, given, out: rows.append(len(given[0])))
    unroll = RolloutCollector(Flicker, N_ENVS).unroll(policy, N_STEPS)
    assert sum(rows) == (N_STEPS + 1) * N_ENVS + unroll.truncated.sum()
    assert unroll.values.shape == (N_STEPS + 1, N_ENVS)


def test_rollouts_are_those_of_values_at_the_end():
    """The same actions and rewards; values and advantages but for rounding."""
    policies = [images(), Plain(images())]
    kept, computed = (RolloutCollector(Flicker, N_ENVS).collect(p, N_STEPS) for p in policies)
    assert torch.equal(kept.actions, computed.actions)
    assert torch.equal(kept.log_probs, computed.log_probs)
    assert kept.truncated.any()
    for name in ("values", "advantages", "returns"):
        torch.testing.assert_close(getattr(kept, name), getattr(computed, name))


class Halved(ActorCriticPolicy):
    """Inherits ``act_with_value``, and says otherwise what a value is."""

    def get_value(self, obs):
        """Return half of it."""
        return super().get_value(obs) / 2


def test_what_a_subclass_overrides_is_asked():
    """``act_with_value`` of the base class knows nothing of it."""
    plain, halved = images(), images()
    halved.__class__ = Halved
    assert ValueActor.fits(plain)
    assert not ValueActor.fits(halved)
    collected = [RolloutCollector(Flicker, N_ENVS).collect(p, N_STEPS) for p in (plain, halved)]
    torch.testing.assert_close(collected[1].values, collected[0].values / 2)


def test_masks_are_passed_on():
    """Nothing masked is done; a policy whose method takes no masks is reported."""
    policy, obs = images(), torch.zeros(64, 1, 36, 36, dtype=torch.uint8)
    masks = torch.tensor([True, False, True]).repeat(64, 1)
    actions, _ = ValueActor(policy).act(obs, masks)
    assert set(actions.tolist()) == {0, 2}
    policy.act_with_value = lambda obs: None
    with pytest.raises(SpaceError, match="no argument 'action_masks'"):
        ValueActor(policy).act(obs, masks)


def test_wrong_shapes_are_reported_before_training():
    """As those of the other methods are."""
    policy = images()
    acted = policy.act_with_value
    policy.act_with_value = lambda obs: (*acted(obs)[:2], torch.zeros(1))
    with pytest.raises(ConfigError, match=r"policy\.act_with_value"):
        try_actor(policy, Flicker.observation_space, Flicker.action_space, torch.device("cpu"))


class Paying(gymnasium.Env):
    """Three steps that pay 0.5, 7 and -9, or the nearest within the bound."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, bound=np.inf):
        self._bound = bound
        self._step = 0

    def reset(self, *, seed=None, options=None):
        """Begin with the first reward."""
        super().reset(seed=seed)
        self._step = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        """Pay the next reward."""
        reward = (0.5, 7.0, -9.0)[self._step]
        self._step += 1
        reward = float(np.clip(reward, -self._bound, self._bound))
        return np.full(2, self._step / 4, np.float32), reward, self._step == 3, False, {}


@pytest.mark.parametrize("bound", [1.0, 2.5])
def test_advantages_are_of_clipped_rewards(bound):
    """They equal those of an env that pays clipped rewards; batches and returns are the env's."""
    batches, collectors = [], []
    for env, clip in ((Paying, bound), (lambda: Paying(bound), None)):
        collector = RolloutCollector(env, 2, seed=0, clip_rewards=clip)
        torch.manual_seed(0)
        policy = make_policy(collector.observation_space, collector.env.action_space)
        batches.append(collector.collect(policy, 7))
        collectors.append(collector)
    ours, expected = batches
    assert torch.equal(ours.advantages, expected.advantages)
    assert torch.equal(ours.returns, expected.returns)
    assert ours.rewards.min() == -9.0
    assert collectors[0].statistics.mean_return == -1.5


def test_stored_rewards_are_clipped():
    """A replay buffer gets clipped rewards, the statistics the env's."""
    envs, buffer = RunningEnvs.make(Paying, 1, 0), ReplayBuffer(9, 2, 1, act_dtype="int64")
    collector = ReplayCollector(envs, buffer, clip_rewards=1.0)
    for _ in range(3):
        collector.step(collector.obs, np.zeros((1, 1), np.int64), np.zeros(1, np.int64))
    collector.count_episodes()
    assert buffer.state()["rewards"].tolist() == [0.5, 1.0, -1.0]
    assert envs.statistics.mean_return == -1.5
