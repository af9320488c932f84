"""World models: what they predict of a chain, and policies that were learnt in imagination."""

from functools import partial

import gymnasium as gym
import pytest
import rlox
import torch
from gymnasium import spaces
from image_tasks import Catch, Cue
from rlox_dreamer.dreamer import DreamerV3
from rlox_dreamer.video import predict_open_loop

ENV_STEPS = 30_000
STATES = 10
SEEN, IMAGINED, SEQUENCES = 4, 10, 200
"""Observed and imagined steps of a prediction, and how many predictions are judged."""


@pytest.mark.learn
def test_dreamer_balances_with_its_default_options(score_seeds):
    """Every seed reaches 450 on CartPole-v1."""
    make = partial(rlox.make, "dreamer_v3", env="CartPole-v1")
    scores = score_seeds(make, "dreamer_v3-CartPole-v1", ENV_STEPS, 450.0, n_seeds=3)
    assert min(scores) >= 450


class Chain(gym.Env):
    """A ring of states that the action goes along, with a reward of 1 for every step."""

    observation_space = spaces.Discrete(STATES)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._state, self._steps = int(self.np_random.integers(STATES)), 0
        return self._state, {}

    def step(self, action):
        self._state = (self._state + (1 if action else -1)) % STATES
        self._steps += 1
        return self._state, 1.0, False, self._steps >= 30, {}


@pytest.mark.learn
@torch.no_grad()
def test_a_chain_is_predicted_and_its_constant_reward_valued():
    """Below 1 % wrong states over ten imagined steps; values within 5 % of 1 / (1 - γ).

    Neither free nats nor a share of the uniform distribution: both let imagined states be random.
    """
    gamma = 0.9
    dreamer = DreamerV3(
        Chain, seed=0, deter_dim=32, stoch_dim=4, stoch_classes=4, hidden=32, units=32, blocks=4,
        encoder_layers=1, head_layers=1, batch_size=8, seq_len=12, imagination_horizon=3,
        buffer_size=2_000, learning_starts=400, train_ratio=96.0, learning_rate=3e-3, gamma=gamma,
        free_nats=0.0, unimix=0.0,
    )  # fmt: skip
    with torch.enable_grad():
        dreamer.train(2_000)
    net, steps = dreamer.model, SEEN + IMAGINED
    batch = dreamer.replay.draw_sequences(SEQUENCES, steps, seed=1)
    noise = torch.rand(steps, SEQUENCES, 4, generator=torch.Generator().manual_seed(0))
    features = predict_open_loop(
        net, net.rssm.initial(SEQUENCES), batch, SEEN, noise
    ).features()  # fmt: skip
    states = net.decoder(features.flatten(0, 1))[""].argmax(-1).view(steps, SEQUENCES)
    # where an episode begins, its state is no consequence of what came before
    follows = batch.is_first.cumsum(0) == 0
    follows[:SEEN] = False
    assert follows.sum() > SEQUENCES
    wrong = (states != batch.obs)[follows].float().mean().item()
    values = net.value.predict(features) * (1 - gamma)
    dreamer.close()
    assert wrong < 0.01
    assert values.min() > 0.95
    assert values.max() < 1.05


IMAGES = {
    "batch_size": 16, "train_ratio": 128.0, "learning_rate": 1e-3, "entropy": 0.01,
}  # fmt: skip
"""Of rewards of size 1, with the default bonus, policies were certain before rewards were known."""


@pytest.mark.learn
def test_dreamer_swings_up(score_seeds):
    """Every seed reaches -250 on Pendulum-v1 in a fifth of 20,000 env steps."""
    make = partial(rlox.make, "dreamer_v3", env="Pendulum-v1", preset="tuned")
    assert min(score_seeds(make, "dreamer_v3-Pendulum-v1", 4_000, -250.0)) >= -250


@pytest.mark.learn
def test_dreamer_catches_what_it_sees(score_seeds):
    """Every seed catches 19 of 20 balls, seen in images of 16 by 16 pixels."""
    make = partial(rlox.make, "dreamer_v3", env=Catch, depth=4, **IMAGES)
    assert min(score_seeds(make, "dreamer_v3-catch", 10_000, 0.9, n_seeds=3)) >= 0.9


@pytest.mark.learn
def test_dreamer_remembers_a_cue(score_seeds):
    """Every seed answers as the first image said, ten steps later."""
    make = partial(rlox.make, "dreamer_v3", env=Cue, depth=2, **IMAGES)
    assert min(score_seeds(make, "dreamer_v3-cue", 8_000, 0.9, n_seeds=3)) >= 0.9


@pytest.mark.learn
def test_a_policy_without_memory_guesses_the_cue(score_seeds):
    """PPO is right half of the time, as whatever it does makes it."""
    make = partial(rlox.make, "ppo", env=Cue)
    assert max(score_seeds(make, "ppo-cue-no-memory", 20_000, 0.65, n_seeds=3)) < 0.65
