"""How policies act, and how torch computes within the blocks that algorithms learn in."""

import numpy as np
import pytest
import torch
from gymnasium import spaces
from rlox import seeding
from rlox.networks.actor_critics import ContinuousPolicy, DiscretePolicy
from rlox.networks.predict import predict
from rlox.nn import Layers, flush_denormals, make_encoder, set_compute_dtype
from rlox.rollouts.collector import acting
from rlox.seeding import SeedStreams

BOX = spaces.Box(-10, 10, (3,), np.float32)
TORQUE = spaces.Box(np.array([-0.5, -2.0], np.float32), np.array([0.5, 2.0], np.float32))
DISCRETE = DiscretePolicy(3, 4, 8, generator=torch.Generator().manual_seed(0))
WIDE = Layers(8, log_std=2.0)
GAUSSIAN = ContinuousPolicy(3, 2, WIDE, generator=torch.Generator().manual_seed(0))


class Echo:
    """Acts with the observation itself and keeps what it saw."""

    def deterministic(self, obs):
        """Keep the observations and return the first entries as int64."""
        self.seen = obs
        return obs.flatten(1)[:, 0].long() if obs.ndim > 1 else obs.long()


@pytest.mark.parametrize("obs", [np.zeros(3), [0.0, 0.0, 0.0], np.zeros(3, np.int64)])
def test_one_observation_gives_one_action(obs):
    """A discrete action is an int, a continuous one an array."""
    assert type(predict(DISCRETE, BOX, spaces.Discrete(4), obs, True)) is int
    action = predict(GAUSSIAN, BOX, TORQUE, obs, True)
    assert isinstance(action, np.ndarray)
    assert (action.shape, action.dtype) == ((2,), np.float32)


@pytest.mark.parametrize("size", [0, 1, 5])
def test_batch_gives_arrays(size):
    """A batch of one stays a batch."""
    obs = np.zeros((size, 3))
    actions = predict(DISCRETE, BOX, spaces.Discrete(4), obs, True)
    assert (actions.shape, actions.dtype) == ((size,), np.int64)
    assert predict(GAUSSIAN, BOX, TORQUE, obs, True).shape == (size, 2)


def test_continuous_actions_are_clipped():
    """Samples far outside come back at the bounds."""
    actions = predict(GAUSSIAN, BOX, TORQUE, np.zeros((200, 3)), False)
    assert (np.abs(actions) <= [0.5, 2.0]).all()
    assert (np.abs(actions) == [0.5, 2.0]).any(0).all()


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float64])
def test_space_decides_the_dtype(dtype):
    """Images stay uint8 and vectors become float32, whatever array the user has."""
    echo = Echo()
    image = spaces.Box(0, 255, (2, 2), np.uint8)
    predict(echo, image, spaces.Discrete(4), np.ones((2, 2), dtype), True)
    assert (echo.seen.dtype, echo.seen.shape) == (torch.uint8, (1, 2, 2))
    predict(echo, BOX, spaces.Discrete(4), np.ones(3, dtype), True)
    assert echo.seen.dtype == torch.float32


def test_discrete_observation_is_a_number():
    """For a space without dimensions a scalar is one observation and a vector a batch."""
    echo = Echo()
    assert predict(echo, spaces.Discrete(5), spaces.Discrete(5), 3, True) == 3
    batch = predict(echo, spaces.Discrete(5), spaces.Discrete(5), [1, 2], True)
    assert batch.tolist() == [1, 2]


@pytest.mark.parametrize("shape", [(), (4,), (2, 4), (2, 2, 3)])
def test_wrong_shape_is_refused(shape):
    """The error says both shapes that would do."""
    with pytest.raises(ValueError, match=r"^obs must have shape \(3,\) or \(B, 3\), got "):
        predict(DISCRETE, BOX, spaces.Discrete(4), np.zeros(shape), True)


def denormal():
    """Return what the processor makes of a number too small for float32's full precision."""
    return float((torch.tensor([1e-40]) * 1)[0])


def test_acting_converts_parameters_once_until_it_ends():
    """In the outermost block, also if a block within it has ended, with an error or without."""
    encoder = make_encoder(spaces.Box(0, 255, (12, 12, 3), np.uint8))
    set_compute_dtype(encoder, "bfloat16")
    obs = torch.randint(0, 256, (2, 12, 12, 3), dtype=torch.uint8)
    with acting():
        first = encoder(obs)
        assert first.any()
        assert not first.requires_grad
        encoder.layer.weight.data.zero_()
        with pytest.raises(ZeroDivisionError), acting():
            raise ZeroDivisionError
        assert torch.equal(encoder(obs), first)
    features = encoder(obs)
    assert features.requires_grad
    assert not features.any()


@pytest.mark.skipif(not torch.set_flush_denormal(False), reason="the processor cannot")
def test_denormals_are_flushed_within_the_block_only():
    """Also when blocks are nested or end with an error."""
    assert denormal() > 0
    with flush_denormals():
        assert denormal() == 0
        with flush_denormals():
            assert denormal() == 0
        assert denormal() == 0
    with pytest.raises(RuntimeError), flush_denormals():
        raise RuntimeError
    assert denormal() > 0


def test_global_draws_are_the_runs_and_leave_the_callers_alone():
    """Two runs of a seed draw the same, whatever the caller drew between."""
    torch.manual_seed(0)
    before = torch.get_rng_state()
    draws = []
    for noise in (1, 5):
        torch.rand(noise)
        streams = SeedStreams(7)
        with streams.as_global("envs"):
            first = torch.rand(3)
        with streams.as_global("envs"):
            draws.append((first, torch.rand(3)))
    assert torch.equal(draws[0][0], draws[1][0])
    assert torch.equal(draws[0][1], draws[1][1])
    assert not torch.equal(*draws[0])
    torch.manual_seed(0)
    torch.rand(6)
    assert not torch.equal(torch.get_rng_state(), before)


def test_the_stream_is_saved_where_a_block_left_it():
    """A resumed run draws on."""
    whole = SeedStreams(3)
    with whole.as_global("dropout"):
        torch.rand(5)
        state_expected = torch.rand(4)
    resumed = SeedStreams(3)
    with resumed.as_global("dropout"):
        torch.rand(5)
    other = SeedStreams(0)
    other.load_state_dict(resumed.state_dict())
    with other.as_global("dropout"):
        assert torch.equal(torch.rand(4), state_expected)


def test_devices_have_a_stream_of_their_own(monkeypatch):
    """What is drawn on the CPU is the same with GPUs, which are seeded again in every block.

    Those that the process has not used yet are seeded when it does; after a block, as before.
    """
    seeds = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeds.append)
    found = []
    for gpus in (0, 2):
        monkeypatch.setattr(seeding, "_count_gpus", lambda gpus=gpus: gpus)
        streams = SeedStreams(5)
        for _ in range(2):
            with streams.as_global("envs"):
                found.append(torch.rand(3).tolist())
    assert found[:2] == found[2:]
    first, before, second, after = seeds
    assert before == after == torch.initial_seed()
    assert len({first, second, before}) == 3
