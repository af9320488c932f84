"""The choice of a learner backend for a task."""

from __future__ import annotations

import logging
from typing import Any

from rlox import registry
from rlox.errors import BackendError

__all__ = ["find_learner"]


def find_learner(backend: str, task: Any, *, role: str = "the learner") -> tuple[Any, str, str]:
    """Return a learner, the name of its backend and why it was chosen, and log the latter two.

    Args:
        backend: registered name; ``"auto"`` takes the one of highest priority that can do the task.
        task: what is to be learnt, a :class:`rlox.learners.tasks.RolloutTask` or a
            :class:`rlox.learners.transitions.ReplayTask`.
        role: what the log calls it.

    Raises:
        UnknownNameError: no such backend is registered.
        BackendError: the backend cannot do the task; the text says why.
    """
    learner, name, reason = _find_learner(backend, task)
    logging.getLogger("rlox").info("%s is %s (%s)", role, name, reason)
    return learner, name, reason


def _find_learner(backend: str, task: Any) -> tuple[Any, str, str]:
    found = registry.get_registry()
    if backend != "auto":
        try:
            learner = found.get("rlox_learner_backends", backend).build(task)
        except BackendError as error:
            raise BackendError(
                f"the learner backend '{backend}' cannot do this: {error}; "
                "backend='auto' takes one that can"
            ) from None
        return learner, backend, "as configured"
    refusals = []
    for registration in found.by_priority("rlox_learner_backends"):
        name = registration.spec.name
        try:
            learner = registration.build(task)
        except BackendError as error:
            refusals.append(f"not {name}: {error}")
            continue
        return learner, name, "; ".join(refusals) or "the fastest there is"
    raise BackendError(f"no learner backend can do this: {'; '.join(refusals) or 'none installed'}")
