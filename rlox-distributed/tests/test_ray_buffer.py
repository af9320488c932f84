"""The replay buffer in a Ray actor: the batches of a local one, drawn ahead, saved and lost."""

import os
import signal

import numpy as np
import pytest
import rlox
import rlox.testing
from rlox.errors import WorkerLostError
from rlox.replay.buffers import BufferOptions, make_buffer
from rlox_distributed.options import RayBufferOptions
from rlox_distributed.ray_buffer import make_ray_buffer
from rlox_testing.probes import first_difference

pytest.importorskip("ray", reason="the extra 'ray' is not installed")
pytest.importorskip("rlox_offpolicy")

pytestmark = pytest.mark.usefixtures("cluster")

SMALL = {
    "seed": 1, "hidden": 8, "n_envs": 2, "learning_starts": 40, "batch_size": 16,
    "buffer_size": 300, "backend": "torch", "save_replay_buffer": True,
}  # fmt: skip


@pytest.mark.parametrize("ahead", [False, True])
def test_the_buffer_conforms(ahead):
    """Draws are pushed transitions, by seed, through state and segments."""
    options = RayBufferOptions(draw_ahead=ahead)
    left_out = rlox.testing.check_buffer(lambda asked: make_ray_buffer(asked, options=options))
    assert set(left_out) == {"check_buffer_priorities"}


def pushed(buffer, first, steps):
    """Push vector steps whose observations count."""
    for t in range(first, first + steps):
        obs = np.full((2, 1), t, np.float32)
        no = np.zeros(2, np.bool_)
        buffer.push_batch(obs, obs / 100, np.zeros(2), no, no, obs + 1)


def test_a_batch_that_is_drawn_ahead_lacks_what_came_after():
    """It equals a local buffer's batch of one push earlier; no step is lost."""
    asked = BufferOptions(
        capacity=100, obs_shape=(1,), obs_dtype="float32", act_shape=(1,), act_dtype="float32",
        n_envs=2, n_step=1, gamma=0.99, seed=3,
    )  # fmt: skip
    local = make_buffer("uniform", asked)
    far = make_ray_buffer(asked, options=RayBufferOptions(draw_ahead=True))
    for buffer in (local, far):
        pushed(buffer, 0, 5)
    assert first_difference(local.sample(8), far.sample(8)) is None
    early = local.sample(8)
    for buffer in (local, far):
        pushed(buffer, 5, 30)
    assert first_difference(early, far.sample(8)) is None
    assert len(far) == len(local) == 70
    late = local.sample(64)
    assert late["obs"].max() > 5
    assert first_difference(late, far.sample(64)) is not None  # of another size
    assert far.sample(64)["obs"].max() > 5


def test_sac_learns_from_it_as_from_a_local_one(tmp_path):
    """Bit for bit if it does not draw ahead; if it does, also through a checkpoint."""
    states = {}
    for name, options in {
        "uniform": {}, "ray": {"draw_ahead": False}, "ahead": {"draw_ahead": True},
    }.items():  # fmt: skip
        buffer = "uniform" if name == "uniform" else "ray"
        path = tmp_path / f"{name}.safetensors"
        with rlox.make("sac", env="Pendulum-v1", buffer=buffer, **SMALL, **options) as sac:
            sac.train(100)
            sac.save(path)
            sac.train(100)
            states[name] = sac.policy.state_dict()
            kind = type(sac)
        with kind.from_checkpoint(path) as sac:
            sac.train(100)
            assert first_difference(states[name], sac.policy.state_dict()) is None
    assert first_difference(states["uniform"], states["ray"]) is None
    assert first_difference(states["uniform"], states["ahead"]) is not None


def test_a_buffer_that_is_lost_is_one_error():
    """The error names it, as its transitions cannot be collected again."""
    with rlox.make("sac", env="Pendulum-v1", buffer="ray", **SMALL) as sac:
        sac.train(100)
        os.kill(sac.replay.buffer._worker.pid, signal.SIGKILL)
        with pytest.raises(WorkerLostError, match="the replay buffer has died on Ray"):
            sac.train(100_000)
