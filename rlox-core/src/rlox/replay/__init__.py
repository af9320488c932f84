"""Replay: buffers by name, collecting into them, sampling from them."""

from rlox.replay.action_codec import BoxActions, DiscreteActions, make_actions
from rlox.replay.buffers import (
    BufferOptions,
    GoalOptions,
    cut_episodes,
    her_buffer,
    make_buffer,
    mmap_buffer,
    prioritized_buffer,
    pusher,
    uniform_buffer,
)
from rlox.replay.checked_sampling import require_transitions, sampler
from rlox.replay.collector import ReplayCollector
from rlox.replay.goals import find_goals
from rlox.replay.loop import Choose, ReplayLoop
from rlox.replay.observation_codec import ReplayObservations
from rlox.replay.updates_due import UpdatesDue

__all__ = [
    "BoxActions",
    "BufferOptions",
    "Choose",
    "DiscreteActions",
    "GoalOptions",
    "ReplayCollector",
    "ReplayLoop",
    "ReplayObservations",
    "UpdatesDue",
    "cut_episodes",
    "find_goals",
    "her_buffer",
    "make_actions",
    "make_buffer",
    "mmap_buffer",
    "prioritized_buffer",
    "pusher",
    "require_transitions",
    "sampler",
    "uniform_buffer",
]
