"""PPO's advantages, loss, gradients and normalisation against Stable-Baselines3's."""

import importlib

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.wrappers import TimeLimit
from rlox.envs.gymnasium import GymVecEnv
from rlox.envs.preprocessing import Preprocessor, RewardScaler
from rlox.losses import PPOLoss
from rlox.networks.actor_critics import ContinuousPolicy, make_policy
from torch import nn

stable_baselines3 = pytest.importorskip("stable_baselines3")

CLIP_EPS, VF_COEF, ENT_COEF = 0.2, 0.5, 0.01


def sb3_policy(env_id):
    """Return the policy of a fresh Stable-Baselines3 PPO, its weights made larger."""
    model = stable_baselines3.PPO("MlpPolicy", env_id, seed=0, device="cpu", n_steps=64)
    with torch.no_grad():
        for parameter in model.policy.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model.policy


def pairs(ours, theirs):
    """Return the parameters that correspond: ours, theirs."""
    modules = [
        (ours.actor.layers[0], theirs.mlp_extractor.policy_net[0]),
        (ours.actor.layers[1], theirs.mlp_extractor.policy_net[2]),
        (ours.actor.layers[2], theirs.action_net),
        (ours.critic.layers[0], theirs.mlp_extractor.value_net[0]),
        (ours.critic.layers[1], theirs.mlp_extractor.value_net[2]),
        (ours.critic.layers[2], theirs.value_net),
    ]
    found = [(getattr(a, n), getattr(b, n)) for a, b in modules for n in ("weight", "bias")]
    if isinstance(ours, ContinuousPolicy):
        found.append((ours.log_std, theirs.log_std))
    assert len(found) == len(list(ours.parameters())) == len(list(theirs.parameters()))
    return found


def twins(env_id):
    """Return our policy and Stable-Baselines3's with the same weights."""
    theirs = sb3_policy(env_id)
    env = gymnasium.make(env_id)
    ours = make_policy(env.observation_space, env.action_space, hidden=64)
    env.close()
    with torch.no_grad():
        for a, b in pairs(ours, theirs):
            a.copy_(b)
    return ours, theirs


def batch(ours, obs_dim, size=256):
    """Return a minibatch that an older policy might have left, advantages standardised."""
    generator = torch.Generator().manual_seed(1)

    def normal(*shape):
        return torch.randn(*shape, generator=generator)

    obs = normal(size, obs_dim)
    with torch.no_grad():
        actions, log_probs = ours.get_action_and_logprob(obs)
        advantages = 3 * normal(size) + 1
        return {
            "obs": obs,
            "actions": actions,
            "old_log_probs": log_probs + 0.3 * normal(size),
            "advantages": (advantages - advantages.mean()) / (advantages.std() + 1e-8),
            "returns": 5 * normal(size),
            "old_values": ours.get_value(obs) + normal(size),
        }


def sb3_loss(theirs, x):
    """Compute the loss as ``stable_baselines3.PPO.train`` does."""
    values, log_prob, entropy = theirs.evaluate_actions(x["obs"], x["actions"])
    ratio = torch.exp(log_prob - x["old_log_probs"])
    policy_loss_1 = x["advantages"] * ratio
    policy_loss_2 = x["advantages"] * torch.clamp(ratio, 1 - CLIP_EPS, 1 + CLIP_EPS)
    policy_loss = -torch.min(policy_loss_1, policy_loss_2).mean()
    value_loss = nn.functional.mse_loss(x["returns"], values.flatten())
    return policy_loss - ENT_COEF * torch.mean(entropy) + VF_COEF * value_loss


@pytest.mark.parametrize(("env_id", "obs_dim"), [("CartPole-v1", 4), ("Pendulum-v1", 3)])
def test_loss_and_gradients_agree(env_id, obs_dim):
    """Loss and every gradient agree to 1e-5 of their size.

    The value clip is left out: Stable-Baselines3 drops the unclipped error that openai/baselines
    and rlox take the maximum with.
    """
    ours, theirs = twins(env_id)
    x = batch(ours, obs_dim)
    loss, terms = PPOLoss(CLIP_EPS, VF_COEF, ENT_COEF)(ours, **x)
    expected = sb3_loss(theirs, x)
    assert 0.1 < float(terms["clip_fraction"]) < 0.9
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    loss.backward()
    expected.backward()
    for a, b in pairs(ours, theirs):
        assert a.grad is not None
        assert b.grad is not None
        error = torch.linalg.vector_norm(a.grad - b.grad)
        assert float(error) <= 1e-5 * float(torch.linalg.vector_norm(b.grad))


@pytest.mark.parametrize("kernels", ["rlox_native", "rlox.kernels.reference"])
def test_advantages_and_returns_agree(kernels):
    """GAE equals their rollout buffer's, which adds γ V(final observation) where truncated."""
    from stable_baselines3.common.buffers import RolloutBuffer

    rng = np.random.default_rng(0)
    n_steps, n_envs, gamma, lam = 64, 5, 0.97, 0.9
    shape = (n_steps, n_envs)
    rewards, values, final_values = (rng.normal(size=shape).astype(np.float32) for _ in range(3))
    terminated = rng.random(shape) < 0.05
    truncated = (rng.random(shape) < 0.05) & ~terminated
    last_values = rng.normal(size=n_envs).astype(np.float32)
    ended = terminated | truncated
    space = gymnasium.spaces.Box(-1, 1, (1,))
    theirs = RolloutBuffer(n_steps, space, space, "cpu", lam, gamma, n_envs)
    theirs.rewards = rewards + gamma * final_values * truncated
    theirs.values = values
    theirs.episode_starts = np.concatenate([np.zeros((1, n_envs)), ended[:-1]]).astype(np.float32)
    theirs.compute_returns_and_advantage(torch.from_numpy(last_values), ended[-1])
    advantages, returns = importlib.import_module(kernels).compute_gae_time_major(
        rewards, values, terminated, truncated, final_values, last_values, gamma, lam
    )
    np.testing.assert_allclose(advantages, theirs.advantages, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(returns, theirs.returns, rtol=1e-5, atol=1e-5)


GAMMA = 0.97


def make():
    """Return CartPole whose episodes both fall and are cut."""
    return TimeLimit(gymnasium.make("CartPole-v1"), 15)


def test_the_same_stream_gives_the_same_numbers():
    """VecNormalize's observations, true final ones and rewards of 200 steps of 3 envs."""
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    theirs = VecNormalize(DummyVecEnv([make] * 3), gamma=GAMMA)
    theirs.seed(7)
    env = GymVecEnv(make, 3)
    preprocessor = Preprocessor(env.observation_space, normalize=True, frame_stack=1)
    scaler = RewardScaler(3, GAMMA)
    expected = theirs.reset()
    seen = preprocessor.reset(env.reset_all(7))
    rng = np.random.default_rng(0)
    # the envs of both must begin later episodes alike
    for mine, other in zip(env._env.envs, theirs.venv.envs, strict=True):
        other.unwrapped.np_random.bit_generator.state = mine.unwrapped.np_random.bit_generator.state
    cuts = falls = 0
    for _ in range(200):
        np.testing.assert_allclose(seen, expected, rtol=1e-4, atol=1e-5)
        actions = rng.integers(2, size=3)
        expected, rewards, done, infos = theirs.step(actions)
        step = preprocessor.step(seen, env.step_all(actions))
        ended = step["terminated"] | step["truncated"]
        np.testing.assert_allclose(scaler.scale(step["rewards"], ended), rewards, rtol=1e-5)
        assert np.array_equal(ended, done)
        for i in np.flatnonzero(ended):
            final = infos[i]["terminal_observation"]
            np.testing.assert_allclose(step["final_obs"][i], final, rtol=1e-4, atol=1e-5)
        cuts += int(step["truncated"].sum())
        falls += int(step["terminated"].sum())
        seen = step["obs"]
    assert cuts > 5
    assert falls > 5
