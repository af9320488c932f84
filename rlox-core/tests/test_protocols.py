"""Runtime checks of protocols: what a wrapper forwards counts, and nothing else."""

import pytest
from rlox.envs.make import make_vec_env
from rlox.protocols import (
    MaskingVecEnv,
    MultiAgentVecEnv,
    PrioritizedBuffer,
    StatefulBuffer,
    StatefulVecEnv,
    VecEnv,
)


class Forwarding:
    """A wrapper as users write them."""

    def __init__(self, inner):
        self.inner = inner

    def __getattr__(self, name):
        return getattr(self.inner, name)


class Masking:
    """Has masks, and no more of an env."""

    def action_masks(self):
        """Return no masks."""


def test_a_wrapper_is_what_it_forwards_to():
    """On every version of Python, also where isinstance itself asks no __getattr__."""
    env = Forwarding(make_vec_env("CartPole-v1", n_envs=2))
    assert isinstance(env, VecEnv)
    assert isinstance(Forwarding(Masking()), MaskingVecEnv)
    assert not isinstance(Forwarding(Masking()), VecEnv)


@pytest.mark.parametrize(
    "protocol",
    [MaskingVecEnv, MultiAgentVecEnv, PrioritizedBuffer, StatefulBuffer, StatefulVecEnv, VecEnv],
)
def test_a_wrapper_of_something_else_is_nothing(protocol):
    """What lacks members still does."""
    assert not isinstance(Forwarding(object()), protocol)
    assert not isinstance(object(), protocol)
