"""Learning from a replay buffer that lies in a file mostly, as an option of the algorithms."""

import pytest
import rlox
import rlox.testing
import torch
from rlox.errors import ConfigError
from rlox_offpolicy.dqn import DQN

SMALL = {
    "hidden": 8, "buffer_size": 200, "learning_starts": 16, "train_freq": 4, "batch_size": 16,
    "steps_per_iteration": 16, "seed": 0, "n_envs": 2,
}  # fmt: skip


def make(**options):
    """Return a small DQN."""
    return rlox.make("dqn", env="CartPole-v1", **{**SMALL, **options})


def test_learns_the_same_as_from_memory_and_leaves_no_file(tmp_path):
    """Same seed, same bits as buffer='uniform', past the buffer's size; the file goes with it."""
    with make(buffer="mmap", hot_capacity=20, buffer_folder=str(tmp_path)) as mapped:
        mapped.train(480)
        (file,) = tmp_path.iterdir()
        assert file.stat().st_size > 0
        assert len(mapped.replay.buffer) == 200
    assert not list(tmp_path.iterdir())
    uniform = make()
    uniform.train(480)
    assert torch.equal(
        mapped.optimizers["network"].parameters, uniform.optimizers["network"].parameters
    )


def test_resume_with_the_buffer_is_exact(tmp_path):
    """What lies in the file is saved too, past the buffer's size, and without some next steps."""
    options = {"hot_capacity": 20, "buffer_folder": str(tmp_path), "save_replay_buffer": True}
    with make(buffer="mmap", **options) as half:
        half.train(240)
        half.save(tmp_path / "half.safetensors")
        half.train(240)
    arguments = {"hot_capacity": 30}  # where rows lie makes no difference
    with DQN.from_checkpoint(tmp_path / "half.safetensors", **arguments) as resumed:
        resumed.train(240)
        assert torch.equal(
            half.optimizers["network"].parameters, resumed.optimizers["network"].parameters
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"buffer_folder": "/no/such/folder"}, "needs a folder to write to, got '/no/such/folder'"),
        ({"n_step": 2}, "keeps transitions of one step, got n_step=2; set n_step=1"),
        ({"buffer": "uniform", "hot_capacity": 5}, "hot_capacity needs buffer='mmap'"),
        ({"buffer": "her", "buffer_folder": "."}, "buffer_folder needs buffer='mmap'"),
    ],
)
def test_bad_input_is_named(options, message):
    """The error names the option, what it needs and the remedy."""
    with pytest.raises(ConfigError, match=message):
        make(**{"buffer": "mmap", **options})


def test_the_buffer_conforms():
    """As those in memory do, but for several steps and priorities, which it lacks."""
    assert len(rlox.testing.check_buffer("mmap")) == 2
