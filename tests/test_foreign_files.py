"""Damaged and hostile files: a few of those that fuzzing makes."""

from foreign_files import every_kind


def test_no_damaged_file_is_more_than_refused():
    """``nox -s fuzz`` tries thousands; a few find what refuses nothing, or fails."""
    counts = every_kind(20, 1)
    assert [line for count in counts.values() for line in count.faults] == []
    assert counts.keys() >= {
        "checkpoint", "policy", "config", "model of Stable-Baselines3", "run folder",
        "dataset `.npz`",
    }  # fmt: skip
    assert all(count.refused > 0 for count in counts.values())
