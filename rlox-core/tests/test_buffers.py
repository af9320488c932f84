"""Replay buffers by name."""

import dataclasses

import numpy as np
import pytest
from rlox import kernels
from rlox.errors import ConfigError, MemoryLimitError
from rlox.protocols import PrioritizedBuffer, ReplayBuffer, StatefulBuffer
from rlox.replay.buffers import (
    BufferOptions,
    GoalOptions,
    HindsightOptions,
    PrioritizedOptions,
    make_buffer,
)

OPTIONS = BufferOptions(
    capacity=10, obs_shape=(2, 3), obs_dtype="uint8", act_shape=(1,), act_dtype="int64",
    n_envs=2, n_step=3, gamma=0.5, seed=7,
)  # fmt: skip


def fill(buffer):
    """Push three vector steps of two envs, all rewards 1."""
    for step in range(3):
        obs = np.full((2, 2, 3), step, np.uint8)
        ends = np.zeros(2, np.bool_)
        buffer.push_batch(obs, np.array([0, 1]), np.ones(2), ends, ends, obs + 1)


@pytest.mark.parametrize("name", ["uniform", "prioritized"])
def test_a_name_makes_a_buffer_of_the_options(name):
    """Shapes, types, steps and discount are those asked for, and all protocols are kept."""
    own = PrioritizedOptions(priority_alpha=0.25) if name == "prioritized" else None
    buffer = make_buffer(name, OPTIONS, own)
    assert isinstance(buffer, ReplayBuffer)
    assert isinstance(buffer, StatefulBuffer)
    assert isinstance(buffer, PrioritizedBuffer) == (name == "prioritized")
    fill(buffer)
    batch = buffer.sample(64)
    assert (batch["obs"].shape, batch["obs"].dtype) == ((64, 2, 3), np.uint8)
    assert (batch["actions"].shape, batch["actions"].dtype) == ((64, 1), np.int64)
    assert set(batch["rewards"]) == {1.0, 1.5, 1.75}
    assert set(batch["discounts"]) == {0.5, 0.25, 0.125}
    if isinstance(buffer, PrioritizedBuffer):
        assert buffer.alpha == 0.25


def test_an_object_is_taken_as_it_is_if_it_can_store_and_draw():
    """What lacks a method is refused, and the method named."""

    class Draws:
        """Can be drawn from only."""

        def sample(self, batch_size):
            return {}

    made = make_buffer("uniform", OPTIONS)
    assert make_buffer(made, OPTIONS) is made
    with pytest.raises(ConfigError, match="got Draws without push_batch or push, __len__"):
        make_buffer(Draws(), OPTIONS)


def test_a_named_buffer_of_other_steps_is_refused(install):
    """The option would be ignored; an object is the caller's own, and is taken as it is."""
    install(
        "deque",
        """
import rlox
from rlox.replay.buffers import BufferOptions

@rlox.hookimpl
def rlox_buffers():
    yield rlox.BufferSpec(name="deque", summary="One step.", factory=f"{__name__}:make")

def make(options):
    return rlox.ReplayBuffer(10, 4, 1, n_envs=options.n_envs)
""",
    )
    message = "buffer 'deque' made a ReplayBuffer with n_step=1, and n_step=3 was asked for; set"
    with pytest.raises(ConfigError, match=message):
        make_buffer("deque", OPTIONS)
    make_buffer("deque", dataclasses.replace(OPTIONS, n_step=1))


@pytest.mark.parametrize("in_memory", [True, False])
def test_memory_is_asked_of_buffers_that_take_it(in_memory, install):
    """A buffer whose rows are elsewhere says so in its spec, and may be larger than the memory."""
    install(
        "remote",
        f"""
import rlox

@rlox.hookimpl
def rlox_buffers():
    factory = f"{{__name__}}:make"
    yield rlox.BufferSpec("remote", "Elsewhere.", factory, in_memory={in_memory})

def make(asked):
    return rlox.ReplayBuffer(10, 4, 1, n_envs=asked.n_envs)
""",
    )
    huge = dataclasses.replace(OPTIONS, capacity=10**15, n_step=1)
    if not in_memory:
        assert len(make_buffer("remote", huge)) == 0
        return
    with pytest.raises(MemoryLimitError, match="buffer_size"):
        make_buffer("remote", huge)


def test_goals_make_a_hindsight_buffer():
    """Where they lie, what they are worth and how they are chosen comes from the options."""
    goals = GoalOptions(
        size=1, achieved=2, desired=0, compute_reward=lambda a, d, info: 10 * a[:, 0] + d[:, 0],
        compute_terminated=lambda a, d, info: a[:, 0] == d[:, 0],
    )  # fmt: skip
    options = dataclasses.replace(OPTIONS, obs_shape=(3,), n_step=1, goals=goals)
    own = HindsightOptions(n_sampled_goal=10**9, goal_selection_strategy="final")
    buffer = make_buffer("her", options, own)
    assert isinstance(buffer, StatefulBuffer)
    for step in range(2):
        obs = np.array([[9, 0, step], [9, 0, step + 5]], np.uint8)
        ends = np.zeros(2, np.bool_)
        next_obs = obs + np.array([0, 0, 1])
        buffer.push_batch(obs, np.array([0, 1]), np.ones(2), ends, ends, next_obs)
    batch = buffer.sample(100)
    drawn = {tuple(map(int, row)) for row in np.c_[batch["obs"], batch["rewards"]]}
    assert drawn == {(2, 0, 0, 12), (2, 0, 1, 22), (7, 0, 5, 67), (7, 0, 6, 77)}
    assert set(batch["obs"][batch["terminated"], 2]) == {1, 6}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("ReplayBuffer", {"n_step": 3, "gamma": 0.5}),
        ("PrioritizedReplayBuffer", {"n_step": 3, "gamma": 0.5}),
        ("HerReplayBuffer", {"goal_dim": 1, "distance_threshold": 0.1}),
    ],
)
def test_a_buffer_that_would_mix_the_envs_is_refused(name, options):
    """Its next step of an env would be another env's; one step at a time is of any env."""
    cls = getattr(kernels.backend(), name)
    with pytest.raises(ConfigError, match=f"{name} was made with n_envs=1 and gets .* of 2 envs"):
        make_buffer(cls(10, 3, 1, **options), OPTIONS)
    made = cls(10, 3, 1, n_envs=2, **options)
    assert make_buffer(made, OPTIONS) is made
    if "n_step" in options:
        make_buffer(cls(10, 3, 1), OPTIONS)
