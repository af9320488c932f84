"""Tests of :mod:`rlox.callbacks.checkpoint`."""

from pathlib import Path

import pytest
from rlox.callbacks import Callback, CheckpointCallback


class IterationCounter(Callback):
    """Counts iterations, and has the count in checkpoints."""

    def __init__(self):
        self.count = 0

    def on_iteration_end(self, **kwargs):
        """Count."""
        self.count += 1

    def state_dict(self):
        """Return the count."""
        return {"count": self.count}

    def load_state_dict(self, state):
        """Restore the count."""
        self.count = state["count"]


def names(folder):
    """Return the names of the files in a folder."""
    return {path.name for path in folder.iterdir()}


def test_resumed_training_equals_the_uninterrupted_one(counting, tmp_path):
    """Draws, clock and other callbacks' counts are those of a run that never stopped."""

    def callbacks(folder):
        # the checkpoint stands first, and yet has the counts of those behind it
        return [CheckpointCallback(20, tmp_path / folder, verbose=False), IterationCounter()]

    whole = counting.CountingAlgorithm("CartPole-v1", seed=3, callbacks=callbacks("whole"))
    whole.train(64)
    resumed = counting.CountingAlgorithm.from_checkpoint(
        tmp_path / "whole" / "step-24.safetensors", callbacks=callbacks("resumed")
    )
    resumed.train()
    assert resumed.draws.tolist() == whole.draws.tolist()
    assert resumed.clock == whole.clock
    for before, after in zip(whole.callbacks.callbacks, resumed.callbacks.callbacks, strict=True):
        assert after.state_dict() == before.state_dict()
    assert names(tmp_path / "whole") == {f"step-{s}.safetensors" for s in (24, 40, 64)}
    assert names(tmp_path / "resumed") == {f"step-{s}.safetensors" for s in (40, 64)}


def test_older_checkpoints_are_deleted(counting, tmp_path):
    """The last ones stay, and so does every file that this training did not save."""
    strangers = {"best.safetensors", "step-7.safetensors", "notes.txt"}
    for name in strangers:
        (tmp_path / name).touch()
    callback = CheckpointCallback(8, tmp_path, verbose=False, keep_last=2)
    counting.CountingAlgorithm("CartPole-v1", callbacks=[callback]).train(40)
    assert names(tmp_path) == strangers | {"step-32.safetensors", "step-40.safetensors"}
    assert callback.saved_steps == [32, 40]


def test_resumed_training_deletes_what_the_first_saved(counting, tmp_path):
    """The saved env steps are part of the checkpoint that they end with."""
    first = CheckpointCallback(8, tmp_path, verbose=False, keep_last=2)
    counting.CountingAlgorithm("CartPole-v1", callbacks=[first]).train(24)
    second = CheckpointCallback(8, tmp_path, verbose=False, keep_last=2)
    path = tmp_path / "step-24.safetensors"
    algorithm = counting.CountingAlgorithm.from_checkpoint(path, callbacks=[second])
    assert second.saved_steps == [16, 24]
    algorithm.train(8)
    assert names(tmp_path) == {"step-24.safetensors", "step-32.safetensors"}


@pytest.mark.parametrize("numbered", [True, False], ids=["step given", "no step"])
def test_a_loop_of_ones_own_saves_in_on_step(tmp_path, numbered):
    """Such a loop ends no iterations; its object need only save."""

    class Saves:
        def save(self, path):
            assert path.endswith(".safetensors")
            Path(path).touch()

    callback = CheckpointCallback(4, tmp_path / "new", verbose=False, keep_last=2)
    callback.on_training_start(algo=Saves())
    for step in range(1, 14):
        assert callback.on_step(algo=Saves(), **({"step": step} if numbered else {}))
    assert names(tmp_path / "new") == {"step-8.safetensors", "step-12.safetensors"}


def test_failed_save_deletes_nothing(counting, tmp_path, monkeypatch):
    """On a full disk the old checkpoints are all there is."""
    callback = CheckpointCallback(8, tmp_path, verbose=False, keep_last=1)
    algorithm = counting.CountingAlgorithm("CartPole-v1", callbacks=[callback])
    algorithm.train(8)

    def fail(path):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(algorithm, "save", fail)
    with pytest.raises(OSError, match="No space left"):
        algorithm.train(8)
    assert names(tmp_path) == {"step-8.safetensors"}


def test_a_foreign_state_cannot_name_files(tmp_path):
    """What is to be deleted is given by env steps, and text is none."""
    with pytest.raises(ValueError, match="invalid literal for int"):
        CheckpointCallback(save_path=tmp_path).load_state_dict({"saved_steps": ["../../home"]})


def test_checkpoints_of_another_algorithm_are_kept(counting, tmp_path):
    """Only those of the present training are deleted for later ones."""
    callback = CheckpointCallback(16, tmp_path, verbose=False, keep_last=1)
    counting.CountingAlgorithm("CartPole-v1", callbacks=[callback]).train(48)
    counting.CountingAlgorithm("CartPole-v1", callbacks=[callback]).train(32)
    assert sorted(path.stem for path in tmp_path.iterdir()) == ["step-32", "step-48"]
    assert callback.saved_steps == [32]
