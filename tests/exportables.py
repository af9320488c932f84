"""Algorithms and spaces whose policies can be exported, for tests of what acts with the files."""

import json
from collections.abc import Mapping

import gymnasium
import numpy as np
import rlox
import torch
from gymnasium import spaces
from rlox.deployment.files import PLACEHOLDER, seal
from safetensors.numpy import load, save
from torch import nn

VECTOR = spaces.Box(-1, 1, (3,), np.float32)
LARGE_IMAGE = spaces.Box(0, 255, (40, 40, 3), np.uint8)
SMALL_IMAGE = spaces.Box(0, 1, (4, 10, 10), np.uint8)
# pairs, because gymnasium sorts the keys of a dict
NESTED = spaces.Dict(
    [
        ("image", SMALL_IMAGE),
        ("place", spaces.Discrete(4, start=2)),
        ("kinds", spaces.MultiDiscrete([3, 2])),
        ("switches", spaces.MultiBinary(3)),
        ("pair", spaces.Tuple((VECTOR, spaces.Box(-5, 5, (2, 2), np.float32)))),
    ]
)
MODEL_SEES = spaces.Dict(
    [
        ("place", spaces.Discrete(4, start=2)),
        ("image", spaces.Box(0, 255, (3, 20, 26), np.uint8)),
        ("kinds", spaces.MultiDiscrete([3, 2])),
        ("vector", spaces.Box(-9, 9, (2, 2), np.float32)),
        ("plain", spaces.Box(0, 255, (33, 17), np.uint8)),
    ]
)
NUMBERS = spaces.Box(-1, 1, (2, 2), np.float32)
RL8_SEES = spaces.Dict(
    [("place", spaces.Discrete(4, 2)), ("pair", NUMBERS), ("image", SMALL_IMAGE)]
)
RL8 = {"sgd_minibatch_size": 16}
TORQUES = spaces.Box(np.array([-2, 0], np.float32), np.array([2, 5], np.float32))
CHOICES = spaces.Discrete(4, start=3)
ALL_ACTIONS = spaces.Dict(
    [
        ("choice", CHOICES),
        ("torques", TORQUES),
        ("switches", spaces.MultiBinary(2)),
        ("kinds", spaces.MultiDiscrete([[2, 4], [3, 2]])),
        ("gears", spaces.Box(0, 3, (2,), np.int64)),
    ]
)


class Env(gymnasium.Env):
    """Random observations of any space."""

    def __init__(self, observation_space, action_space):
        self.observation_space, self.action_space = observation_space, action_space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        self.steps += 1
        return self.observation_space.sample(), 1.0, self.steps == 20, False, {}


CASES = {
    "ppo": ("ppo", VECTOR, CHOICES, {"normalize_observations": True, "frame_stack": 3}),
    "ppo-nested": ("ppo", NESTED, ALL_ACTIONS, {"normalize_observations": True, "frame_stack": 2}),
    "ppo-lstm": (
        "ppo", NESTED, ALL_ACTIONS,
        {"recurrent": "lstm", "normalize_observations": True, "frame_stack": 2},
    ),
    "ppo-gru": ("ppo", VECTOR, TORQUES, {"recurrent": "gru"}),
    "ppo-image": ("ppo", LARGE_IMAGE, CHOICES, {"frame_stack": 2}),
    "ppo-impala": ("ppo", LARGE_IMAGE, CHOICES, {"conv": "impala"}),
    "a2c": ("a2c", SMALL_IMAGE, spaces.MultiDiscrete([3, 2]), {}),
    "a2c-binary": ("a2c", spaces.MultiBinary(4), spaces.MultiBinary(3), {}),
    "impala": ("impala", spaces.Discrete(5, start=-1), CHOICES, {"n_actors": 1}),
    "appo": ("appo", VECTOR, TORQUES, {"n_actors": 1}),
    "mappo": ("mappo", VECTOR, TORQUES, {}),
    "ippo": ("ippo", spaces.MultiDiscrete([2, 3]), CHOICES, {}),
    "dqn": ("dqn", VECTOR, CHOICES, {}),
    "dqn-rainbow": (
        "dqn", VECTOR, CHOICES,
        {"dueling": True, "noisy": True, "distributional": "c51", "v_min": -9.0, "v_max": 9.0},
    ),
    "dqn-quantiles": ("dqn", NESTED, CHOICES, {"dueling": True, "distributional": "qr-dqn"}),
    "discrete_sac": ("discrete_sac", NESTED, CHOICES, {}),
    "sac": ("sac", NESTED, TORQUES, {}),
    "crossq": ("crossq", VECTOR, TORQUES, {}),
    "crossq-encoded": ("crossq", NESTED, TORQUES, {}),
    "dreamer_v3": ("dreamer_v3", VECTOR, CHOICES, {"normalize_observations": True}),
    "dreamer_v3-torques": ("dreamer_v3", VECTOR, TORQUES, {"blocks": 2}),
    "dreamer_v3-images": (
        "dreamer_v3", MODEL_SEES, spaces.MultiDiscrete([3, 2]), {"depth": 4, "units": 32},
    ),
    "dreamer_v3-switches": ("dreamer_v3", LARGE_IMAGE, spaces.MultiBinary(3), {"depth": 4}),
    "rl8_ppo": ("rl8_ppo", VECTOR, CHOICES, RL8),
    "rl8_ppo-nested": ("rl8_ppo", RL8_SEES, TORQUES, RL8),
    "rl8_ppo-kinds": ("rl8_ppo", SMALL_IMAGE, spaces.MultiDiscrete([3, 2]), RL8),
    "rl8_ppo-switches": ("rl8_ppo", spaces.Discrete(5, start=-1), spaces.MultiBinary(3), RL8),
    "rl8_recurrent_ppo": ("rl8_recurrent_ppo", VECTOR, TORQUES, RL8),
    "td3": ("td3", VECTOR, TORQUES, {}),
    "ddpg": (
        "ddpg", SMALL_IMAGE, spaces.Box(-2, 2, (2,), np.float64), {"conv": [[6, 3, 1], [4, 3, 2]]},
    ),
}  # fmt: skip


def make(name, observed, acted, **options):
    """Return an algorithm whose weights are not those of a policy that prefers nothing."""
    torch.manual_seed(1)
    observed.seed(1)  # spaces are shared by all cases, whose order may differ
    acted.seed(1)
    algorithm = rlox.make(name, env=lambda: Env(observed, acted), n_envs=2, seed=1, **options)
    unsettle(algorithm)
    return algorithm


def unsettle(algorithm, scale=0.05):
    """Change the weights of an algorithm at random."""
    found = [*vars(algorithm).values(), *getattr(algorithm, "policies", {}).values()]
    if algorithm.name.startswith("rl8"):
        found.append(algorithm.agent.policy.model)
    for module in found:
        if isinstance(module, nn.Module):
            for parameter in module.parameters():
                parameter.data.add_(scale * torch.randn_like(parameter))


def stacked(samples):
    """Return samples of a space as one batch, nested alike."""
    if isinstance(samples[0], Mapping):
        return {key: stacked([each[key] for each in samples]) for key in samples[0]}
    if isinstance(samples[0], tuple):
        return tuple(stacked(list(each)) for each in zip(*samples, strict=True))
    return np.stack(samples)


def one_at_least(masks):
    """Return masks with a possible choice in every row."""
    masks[~masks.any(1), -1] = True
    return masks


def require_same(ours, theirs, ties=0):
    """Require equal actions: exactly if they are discrete, to 1e-5 if not.

    Args:
        ours: of the exported policy.
        theirs: of the algorithm.
        ties: how many discrete numbers may differ, where scores are equal up to rounding.

    Returns:
        How many do.
    """
    if isinstance(ours, Mapping):
        assert list(ours) == list(theirs)
        found = 0
        for key in ours:
            found += require_same(ours[key], theirs[key], ties - found)
        return found
    assert type(ours) is type(theirs)
    assert np.asarray(ours).dtype == np.asarray(theirs).dtype
    if np.asarray(ours).dtype.kind == "f":
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
        return 0
    differing = int(np.count_nonzero(np.asarray(ours) != np.asarray(theirs)))
    if differing > ties:
        np.testing.assert_array_equal(ours, theirs)
    return differing


DEEP = '{"layer": "chain", "layers": [' * 5000 + "]}" * 5000


def changed(content, change):
    """Return a policy file with another header."""
    size = int.from_bytes(content[:8], "little")
    header = json.loads(json.loads(content[8 : 8 + size])["__metadata__"]["rlox_policy"])
    change(header)
    text = json.dumps(header).replace('"deep"', DEEP)
    return seal(save(load(content), metadata={"rlox_policy": text, "digest": PLACEHOLDER}))
