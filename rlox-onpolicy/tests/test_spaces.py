"""PPO and A2C on every kind of space, alone and nested."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from rlox.envs.preprocessing import Preprocessor
from rlox.errors import SpaceError
from rlox_onpolicy.a2c import A2C
from rlox_onpolicy.ppo import PPO

SIZES: dict[str, Any] = {"n_envs": 2, "n_steps": 8, "hidden": 8}
ALGORITHMS: dict[type[Any], dict[str, Any]] = {
    PPO: {**SIZES, "n_epochs": 2, "batch_size": 8},
    A2C: SIZES,
}


class Anything(gymnasium.Env[Any, Any]):
    """Any spaces; episodes of five steps, every other one truncated instead of terminated."""

    def __init__(self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any]):
        self.observation_space, self.action_space = observation_space, action_space
        self.episodes = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Begin an episode."""
        if seed is not None:
            self.observation_space.seed(seed)
        self.steps, self.episodes = 0, self.episodes + 1
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        """Refuse values outside the action space."""
        assert self.action_space.contains(action), (self.action_space, action)
        self.steps += 1
        over, cut = self.steps == 5, self.episodes % 2 == 0
        return self.observation_space.sample(), 1.0, over and not cut, over and cut, {}


small = st.integers(1, 4)
discrete = st.builds(spaces.Discrete, small, start=st.integers(-3, 3))
multi_discrete = st.lists(small, min_size=1, max_size=4).map(spaces.MultiDiscrete)
multi_binary = st.one_of(small, st.tuples(small, small)).map(spaces.MultiBinary)
shapes = st.lists(st.integers(1, 4), max_size=3).map(tuple)
box = st.builds(
    lambda shape, dtype, high: spaces.Box(0 if dtype == np.uint8 else -high, high, shape, dtype),
    shapes,
    st.sampled_from([np.float32, np.float64, np.uint8, np.int64]),
    st.integers(1, 9),
)
image = st.builds(
    lambda side, channels, first: spaces.Box(
        0, 255, (channels, side, side) if first else (side, side, channels), np.uint8
    ),
    st.sampled_from([3, 7, 36]),
    st.sampled_from([1, 2]),
    st.booleans(),
)
leaf = st.one_of(discrete, multi_discrete, multi_binary, box)


def nested(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return the leaves, or dicts and tuples of them."""
    return st.recursive(
        leaves,
        lambda child: st.one_of(
            st.lists(child, min_size=1, max_size=3).map(spaces.Tuple),
            st.dictionaries(st.sampled_from("abc"), child, min_size=1, max_size=3).map(spaces.Dict),
        ),
        max_leaves=4,
    )


# gymnasium's vector envs pass NumPy scalars on, and its `Box` warns about them
@pytest.mark.filterwarnings("ignore:.*Casting input x to numpy array")
@settings(
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
@given(
    algorithm=st.sampled_from(list(ALGORITHMS)),
    observation_space=nested(st.one_of(leaf, image)),
    action_space=nested(leaf),
    extras=st.sampled_from([{}, {"recurrent": "gru", "memory_size": 4}, {"frame_stack": 2}]),
)
def test_any_space_trains_acts_and_is_restored(
    algorithm: Any,
    observation_space: spaces.Space[Any],
    action_space: spaces.Space[Any],
    extras: dict[str, Any],
) -> None:
    """After two iterations single and batched actions fit their space; restoring keeps them."""

    def make() -> Anything:
        return Anything(observation_space, action_space)

    if "frame_stack" in extras:
        assume(can_be_stacked(observation_space))
    options = {**ALGORITHMS[algorithm], **extras, "normalize_rewards": True}
    with algorithm(make, **options) as trained, tempfile.TemporaryDirectory() as folder:
        metrics = trained.train(2 * 16)
        assert np.isfinite([metrics["policy_loss"], metrics["value_loss"]]).all()
        path = Path(folder, "checkpoint")
        trained.save(path)
        with algorithm.from_checkpoint(path, make) as restored:
            for _ in range(3):
                obs = observation_space.sample()
                action = trained.predict(obs)
                assert action_space.contains(action)
                assert action_space.contains(trained.predict(obs, deterministic=False))
                assert same(restored.predict(obs), action)
        batch = trained.collector.env.reset_all(0)
        space = gymnasium.vector.utils.batch_space(action_space, 2)
        assert space.contains(trained.predict(batch))


def can_be_stacked(space: spaces.Space[Any]) -> bool:
    """Return whether images keep more pixels than channels."""
    try:
        Preprocessor(space, normalize=False, frame_stack=2)
    except SpaceError:
        return False
    return True


def same(one: Any, other: Any) -> bool:
    """Return whether two nested actions are equal."""
    if isinstance(one, dict):
        return all(same(one[key], other[key]) for key in one)
    if isinstance(one, tuple):
        return all(same(a, b) for a, b in zip(one, other, strict=True))
    return np.array_equal(one, other)
