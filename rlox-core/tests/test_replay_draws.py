"""The first batch of a buffer is checked, and no other."""

import dataclasses

import numpy as np
import pytest
from rlox.errors import ConfigError
from rlox.replay.buffers import BufferOptions, first_batch
from rlox.seeding import SeedStreams

OPTIONS = BufferOptions(
    capacity=10, obs_shape=(2,), obs_dtype="float32", act_shape=(1,), act_dtype="int64",
    n_envs=1, n_step=1, gamma=0.5, seed=0,
)  # fmt: skip


class Mine:
    """A buffer that draws one batch, changed by a function."""

    def __init__(self, change):
        self.change = change
        self.draws = 0

    def __len__(self):
        return 1

    def push_batch(self, *columns):
        """Forget what is pushed."""

    def sample(self, batch_size):
        """Return the batch."""
        self.draws += 1
        obs, column = np.zeros((batch_size, 2), np.float32), np.zeros(batch_size, np.float32)
        actions = np.zeros((batch_size, 1), np.int64)
        batch = {"obs": obs, "actions": actions, "rewards": column, "next_obs": obs}
        batch["terminated"] = batch["truncated"] = np.zeros(batch_size, np.bool_)
        batch["weights"] = column
        changed = self.change(batch)
        return batch if changed is None else changed


def draw(buffer, **options):
    """Return a batch of 4 transitions."""
    asked = dataclasses.replace(OPTIONS, **options)
    return first_batch(buffer, 4, asked, SeedStreams(0))[0]


def upright(key):
    """Return a function that gives an array of a batch another dimension."""
    return lambda batch: batch.update({key: batch[key][:, None]})


def without(key):
    """Return a function that takes an array out of a batch."""

    def take(batch):
        del batch[key]

    return take


@pytest.mark.parametrize("key", ["rewards", "terminated", "truncated", "weights"])
def test_a_column_is_refused_where_a_row_is_expected(key):
    """It would be broadcast to (B, B) against the values."""
    dtype = "bool" if key in ("terminated", "truncated") else "float32"
    expected = rf"Mine\.sample\(4\) must return '{key}', an array \(4,\) of {dtype}"
    with pytest.raises(ConfigError, match=rf"{expected}, got \(4, 1\) of "):
        draw(Mine(upright(key)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda batch: batch.update(discounts=batch["rewards"][:, None]),
         r"'discounts', an array \(4,\) of float32, got \(4, 1\)"),
        (without("rewards"), r"'rewards', .* got the keys \['actions',"),
        (without("terminated"), "'terminated', .* got the keys"),
        (lambda batch: batch.update(obs=batch["obs"][:3]), r"'actions', .* \(3, 1\) .*\(4, 1\)"),
        (lambda batch: batch.update(obs=batch["obs"][:, :1]), r"'obs', .* \(4, 2\) .*\(4, 1\)"),
        (lambda batch: batch.update(obs=[[0, 0]] * 4), "'obs', .* float32, got list"),
        (lambda batch: batch.update(actions=np.zeros((4, 2))), r"\(4, 1\) of int64, got \(4, 2\)"),
        (lambda batch: batch.update(next_obs=batch["obs"].astype("U1")), "'next_obs'.* of <U1"),
        (lambda batch: tuple(batch.values()), "must return arrays by key, got tuple"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_reported_by_its_key(change, message):
    """What was expected and what was there are both in the text."""
    with pytest.raises(ConfigError, match=message):
        draw(Mine(change))


def test_other_types_and_single_actions_are_converted():
    """What a buffer of Python numbers stacks."""

    def stack(batch):
        batch.update({key: batch[key].astype(np.float64) for key in batch if key != "actions"})
        batch["actions"] = np.arange(4.0)

    drawn = draw(Mine(stack))
    assert {drawn[key].dtype.name for key in ("obs", "next_obs", "rewards", "weights")} == {
        "float32"
    }
    assert drawn["actions"].tolist() == [[0.0], [1.0], [2.0], [3.0]]
    assert drawn["actions"].dtype == np.int64


def test_later_batches_are_taken_as_they_are():
    """They come from the same code, and are drawn thousands of times a second."""
    buffer = Mine(lambda batch: None)
    _, sample = first_batch(buffer, 4, OPTIONS, SeedStreams(0))
    buffer.change = lambda batch: {}
    assert sample(4) == {}


def test_several_steps_need_discounts():
    """A buffer that ignores n_step would be learnt from as if it had done it."""
    with pytest.raises(ConfigError, match=r"Mine.* no 'discounts', .* n_step=3; set n_step=1"):
        draw(Mine(lambda batch: None), n_step=3)
    draw(Mine(lambda batch: batch.update(discounts=batch["rewards"])), n_step=3)
    own = Mine(lambda batch: None)
    own.n_step = 2
    with pytest.raises(ConfigError, match="no 'discounts'"):
        draw(own)
