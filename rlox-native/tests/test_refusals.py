"""Errors name the refused argument and its value, in every call."""

import copy
import pickle

import numpy as np
import pytest
import rlox_native
from rlox_native import MmapReplayBuffer, PrioritizedReplayBuffer, ReplayBuffer, VecEnv

ONES = np.ones(3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rlox_native.compute_gae(ONES, ONES, ONES, None, 0.9, 0.9), "last_value"),
        (lambda: rlox_native.compute_vtrace(*[ONES] * 4, 0.0, 0.9, c_bar=None), "c_bar"),
        (lambda: rlox_native.compute_group_advantages(ONES, eps=None), "eps"),
        (lambda: PrioritizedReplayBuffer(9, 2, 1, alpha=None), "alpha"),
    ],
)
def test_what_is_no_real_number_is_refused_by_its_name(call, message):
    """The error has its type."""
    with pytest.raises(TypeError, match=f"^{message} must be a real number, got NoneType"):
        call()


@pytest.mark.parametrize("flag", [True, False])
@pytest.mark.parametrize(
    "call",
    [
        VecEnv,
        lambda flag: ReplayBuffer(flag, 1, 1),
        lambda flag: ReplayBuffer(1, flag, 1),
        lambda flag: ReplayBuffer(1, 1, (2, flag)),
        lambda flag: ReplayBuffer(1, 1, 1).sample(flag),
        lambda flag: rlox_native.compute_n_step_returns(ONES, ONES, ONES, 0.0, 0.9, flag),
        lambda flag: rlox_native.normalize_advantages(ONES, ddof=flag),
    ],
)
def test_a_flag_is_no_size(call, flag):
    """Nor a seed: arguments have been mixed up."""
    with pytest.raises(TypeError, match=r"must be an integer, got bool"):
        call(flag)


def instances(folder):
    """One instance of every class that refuses copies."""
    return [
        rlox_native.CartPole(seed=0),
        rlox_native.pack_sequences([1, 2], 3),
        rlox_native.ActorCriticLearner(3, (4,), n_actions=2),
        rlox_native.QLearner(3, (4,), 2),
        rlox_native.ContinuousLearner(3, 1, (4,), 2),
        rlox_native.ImplicitLearner(3, 1, (4,), 2, log_std_bounds=(-5, 2)),
        MmapReplayBuffer(2, 9, 3, 1, folder / "cold"),
        VecEnv(1),
    ]


def test_copies_are_refused_with_a_remedy(tmp_path):
    """By every class."""
    for instance in instances(tmp_path):
        name = type(instance).__name__
        for function in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match=rf"^this {name} cannot be copied or pickled; \w"):
                function(instance)


@pytest.mark.parametrize("wrap", [np.array, list, lambda element: np.array(element[0])])
def test_a_transition_may_come_in_arrays_of_one_element(wrap):
    """As from batched envs; arrays of several elements are refused."""
    buffer = ReplayBuffer(9, 2, 1)
    buffer.push([1, 2], wrap([3.0]), wrap([4.0]), wrap([True]), wrap([0]), [5, 6])
    batch = buffer.sample(1)
    assert (batch["rewards"], batch["terminated"], batch["truncated"]) == (4, True, False)
    for reward in (np.ones(2), [1.0, 2.0], [], np.array([])):
        with pytest.raises(TypeError, match=r"^reward must be a real number, got (ndarray|list)$"):
            buffer.push([1, 2], 3.0, reward, True, False)
    assert len(buffer) == 1
