"""Conformance checks of :class:`rlox.logging.LoggerCallback` and its spec."""

from __future__ import annotations

import tempfile
from pathlib import Path

from rlox.registry.table import get_registry

from rlox_testing.probes import check, require


@check
def check_logger(name: str) -> None:
    """Check that a registered logger takes every row a training produces.

    It must build from a folder that does not exist yet, take training and evaluation rows (the
    first with NaN, the value of ``mean_reward`` before the first finished episode), survive a
    second ``close``, and continue an earlier run's files in the same folder.

    Args:
        name: registered name.

    Raises:
        AssertionError: the logger breaks the contract.
    """
    registration = get_registry().get("rlox_loggers", name)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary, "runs", "first")
        first = registration.build(folder)
        try:
            first.on_train_step(8, {"mean_reward": float("nan"), "policy_loss": 0.5})
            first.on_eval(8, {"mean_reward": 1.0, "std_reward": 0.0})
            first.on_train_step(16, {"mean_reward": 1.0, "policy_loss": -1e-9})
        finally:
            first.close()
        first.close()
        before = _sizes(folder)
        second = registration.build(folder)
        # a single row, so that a file that was begun again is smaller than before
        second.on_train_step(24, {"mean_reward": 2.0, "policy_loss": 0.25})
        second.close()
        after = _sizes(folder)
        lost = [path for path, size in before.items() if after.get(path, -1) < size]
        require(not lost, f"a second run in the same folder erased rows of {', '.join(lost)}")


def _sizes(folder: Path) -> dict[str, int]:
    # a link to the newest run's file does not belong to the first run
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return {str(path.relative_to(folder)): path.stat().st_size for path in files}
