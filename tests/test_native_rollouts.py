"""Rollouts that the native learner backend collects, against envs and policy taken one by one."""

import numpy as np
import pytest
import torch
from rlox.batches.rollout import estimate_advantages
from rlox.callbacks import Callback
from rlox.networks.actor_critics import DiscretePolicy
from rlox.seeding import ResetSeeds, SeedStreams
from rlox.training.hooks import Hooks
from rlox_native import ActorCriticLearner, VecEnv, compute_gae_time_major
from rlox_onpolicy.a2c import A2C
from rlox_onpolicy.ppo import PPO

ENVS = ["CartPole-v1", "Acrobot-v1", "MountainCar-v0", "Pendulum-v1", "MountainCarContinuous-v0"]

N_ENVS, N_STEPS = 3, 220
"""Long enough for Pendulum's and MountainCar's time limit of 200."""


def make(env, **options):
    """Return PPO on native envs, learning natively."""
    small = {"n_envs": N_ENVS, "n_steps": N_STEPS, "batch_size": 330, "n_epochs": 1, "seed": 4}
    return PPO(env, backend="native", **small | options)


def collected(ppo):
    """Return a rollout of an untrained policy, with a wider head than usual."""
    with torch.no_grad():
        ppo.policy.actor.layers[-1].weight.mul_(100)
        if not ppo.policy.actor.layers[-1].bias.any():
            ppo.policy.actor.layers[-1].bias.add_(0.3)
    unroll = ppo.learner.collect(N_STEPS, Hooks(ppo))
    return estimate_advantages(unroll, None, 0.99, 0.95)


@pytest.mark.parametrize("env", ENVS)
def test_rollout_is_what_the_envs_answer_to_its_actions(env):
    """Replaying the actions gives the same observations, rewards, ends and advantages."""
    ppo = make(env)
    batch = collected(ppo)
    envs = VecEnv(N_ENVS, env_id=env)
    space = envs.action_space
    obs = envs.reset_all(ResetSeeds(*ppo.streams.seeds("envs", 1), N_ENVS).next())
    final_values = np.zeros((N_STEPS, N_ENVS), np.float32)
    for t in range(N_STEPS):
        rows = slice(t * N_ENVS, (t + 1) * N_ENVS)
        np.testing.assert_array_equal(batch.obs[rows], obs)
        actions = batch.actions[rows].numpy()
        if actions.dtype == np.float32:
            actions = np.clip(actions, space.low, space.high)
        step = envs.step_all(actions)
        np.testing.assert_array_equal(batch.rewards[rows], step["rewards"].astype(np.float32))
        np.testing.assert_array_equal(batch.terminated[rows], step["terminated"])
        np.testing.assert_array_equal(batch.truncated[rows], step["truncated"])
        with torch.no_grad():
            values = ppo.policy.get_value(torch.from_numpy(step["final_obs"])).numpy()
        final_values[t] = np.where(step["truncated"], values, 0)
        obs = step["obs"]
    with torch.no_grad():
        values = ppo.policy.get_value(batch.obs)
        log_probs, _ = ppo.policy.get_logprob_and_entropy(batch.obs, batch.actions)
        last_values = ppo.policy.get_value(torch.from_numpy(obs)).numpy()
    torch.testing.assert_close(batch.values, values, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(batch.log_probs, log_probs, rtol=1e-5, atol=2e-5)
    table = [
        x.numpy().reshape(N_STEPS, N_ENVS)
        for x in (batch.rewards, values, batch.terminated, batch.truncated)
    ]
    advantages, returns = compute_gae_time_major(*table, final_values, last_values, 0.99, 0.95)
    np.testing.assert_allclose(batch.advantages, advantages.ravel(), rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(batch.returns, returns.ravel(), rtol=1e-4, atol=1e-3)


def test_discrete_actions_are_drawn_as_documented():
    """Each env takes one number, and the first action whose cumulative probability exceeds it."""
    ppo = make("CartPole-v1")
    batch = collected(ppo)
    numbers = SeedStreams(4).numpy("native actions").random(N_STEPS * N_ENVS)
    with torch.no_grad():
        probabilities = ppo.policy.actor(batch.obs).softmax(-1).double().numpy()
    expected = (numbers[:, None] >= probabilities.cumsum(1)).sum(1)
    assert set(expected) == {0, 1}
    # a number within rounding of a boundary may go either way
    assert (batch.actions.numpy() == expected).mean() > 0.999


def test_continuous_actions_are_drawn_as_documented():
    """Each component takes two numbers, by Box and Muller."""
    ppo = make("Pendulum-v1")
    batch = collected(ppo)
    u, v = SeedStreams(4).numpy("native actions").random((N_STEPS * N_ENVS, 2)).T
    noise = np.sqrt(-2 * np.log1p(-u)) * np.cos(2 * np.pi * v)
    with torch.no_grad():
        means = ppo.policy.actor(batch.obs).numpy()
    np.testing.assert_allclose(batch.actions.numpy()[:, 0], means[:, 0] + noise, atol=1e-5)


class Counting(Callback):
    """Counts vector steps, and ends the training in one of them."""

    def __init__(self, last=None):
        self.steps = []
        self._last = last

    def on_step(self, **kwargs):
        self.steps.append(kwargs["step"])
        return len(self.steps) != self._last


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_watching_every_step_changes_nothing(env):
    """A callback on_step is called for each vector step and the training keeps its bits."""
    counting = Counting()
    alone, watched = make(env), make(env, callbacks=[counting])
    for ppo in (alone, watched):
        ppo.train(2 * N_ENVS * N_STEPS)
    assert counting.steps == [N_ENVS * (t + 1) for t in range(2 * N_STEPS)]
    assert torch.equal(alone.optimizer.parameters, watched.optimizer.parameters)


def test_a_rollout_ended_by_a_callback_counts_its_episodes():
    """The episodes of the steps that were taken are finished episodes."""
    ppo = make("Pendulum-v1", callbacks=[Counting(last=205)])
    ppo.train(N_ENVS * N_STEPS)
    assert ppo.clock.env_steps == 205 * N_ENVS
    assert ppo.collector.statistics.finished == N_ENVS
    assert ppo.clock.gradient_steps == 0


@pytest.mark.parametrize(
    ("algorithm", "env"), [(PPO, "CartPole-v1"), (A2C, "MountainCarContinuous-v0")]
)
def test_gymnasium_envs_get_the_same_actions(algorithm, env):
    """Envs that answer alike are learnt alike, to the bit, whoever steps them."""
    runs = {
        backend: algorithm(env, backend="native", env_backend=backend, n_envs=3, seed=4)
        for backend in ("native", "gymnasium")
    }
    for run in runs.values():
        run.train(600)
    native, gymnasium = runs.values()
    for name, value in native.collector.statistics.state_dict().items():
        np.testing.assert_array_equal(gymnasium.collector.statistics.state_dict()[name], value)
    assert torch.equal(gymnasium.optimizer.parameters, native.optimizer.parameters)


def test_masked_actions_are_drawn_from_the_others():
    """Probabilities are those of the masked distribution; a mask that allows none is refused."""
    learner = ActorCriticLearner(2, [8], n_actions=3)
    rng = np.random.default_rng(0)
    parameters = rng.normal(size=learner.n_parameters).astype(np.float32)
    obs = rng.normal(size=(700, 2)).astype(np.float32)
    masks = rng.random((700, 3)) < 0.6
    masks[np.arange(700), rng.integers(3, size=700)] = True
    state = np.array([1, 2, 3, 5], np.uint64)
    actions, log_probs = learner.act(parameters, state.copy(), obs, action_masks=masks)
    assert masks[np.arange(700), actions].all()
    assert set(actions) == {0, 1, 2}
    policy = DiscretePolicy(2, 3, hidden=(8,))
    torch.nn.utils.vector_to_parameters(torch.from_numpy(parameters), policy.parameters())
    expected, _ = policy.get_logprob_and_entropy(
        *map(torch.from_numpy, (obs, actions)), torch.from_numpy(masks)
    )
    np.testing.assert_allclose(log_probs, expected.detach(), rtol=1e-5, atol=1e-5)
    masks[500] = False
    with pytest.raises(ValueError, match=r"action_masks\[500\] allows no action"):
        learner.act(parameters, state, obs, action_masks=masks)


def test_normalised_observations_reach_the_native_policy():
    """It acts on what the torch policy would see."""
    ppo = make("Pendulum-v1", normalize_observations=True, normalize_rewards=True, frame_stack=2)
    unroll = ppo.learner.collect(N_STEPS, Hooks(ppo))
    batch = estimate_advantages(unroll, None, 0.99, 0.95)
    assert batch.obs.shape == (N_STEPS * N_ENVS, 6)
    with torch.no_grad():
        log_probs, _ = ppo.policy.get_logprob_and_entropy(batch.obs, batch.actions)
        values = ppo.policy.get_value(batch.obs)
    torch.testing.assert_close(batch.log_probs, log_probs, rtol=1e-5, atol=2e-5)
    torch.testing.assert_close(batch.values, values, rtol=1e-5, atol=1e-5)
