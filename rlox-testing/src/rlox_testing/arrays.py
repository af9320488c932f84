"""Conformance checks of what algorithms make of an env's arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from rlox.errors import SpaceError
from rlox.spaces.rows import ActionRows, map_nested

from rlox_testing.cases import CARTPOLE, Case, open_case
from rlox_testing.probes import ProbeGroup, check, require_same

__all__ = ["RewritingVecEnv", "check_rewritten_arrays"]


class RewritingVecEnv:
    """Returns arrays that are good until its next step or reset, which overwrites all of them.

    So it does with the actions that it was given. What it wraps may be a vector env of one agent or
    of several, and keeps all its other members.

    Args:
        env: what is stepped.
        rewrites: whether it does; if not, the arrays are nobody else's.
        masked: forbid one choice of the actions, another in each step.
    """

    def __init__(self, env: Any, *, rewrites: bool = True, masked: bool = False) -> None:
        self._env, self._rewrites = env, rewrites
        self._mask_size = ActionRows(env.action_space).mask_size if masked else 0
        self._n_steps = 0
        self._lent: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        """Return a member of the env; what its methods return is overwritten too."""
        if name.startswith("__"):
            raise AttributeError(name)
        if name == "action_masks" and self._mask_size:
            return self._forbid_one
        member = getattr(self._env, name)
        return (lambda: self._lend(member())) if name in ("action_masks", "state") else member

    def _forbid_one(self) -> npt.NDArray[np.bool_]:
        masks = np.ones((self._env.n_envs, self._mask_size), np.bool_)
        masks[:, self._n_steps % self._mask_size] = False
        lent: npt.NDArray[np.bool_] = self._lend(masks)
        return lent

    def reset_all(self, seed: Any = None) -> Any:
        """Reset all envs."""
        self._overwrite(self._lent)
        return self._lend(self._env.reset_all(seed))

    def step_all(self, actions: Any) -> Any:
        """Step all envs."""
        self._overwrite(self._lent)
        self._n_steps += 1
        step = self._lend(self._env.step_all(actions))
        self._overwrite([actions])
        return step

    def _lend(self, value: Any) -> Any:
        self._lent.append(map_nested(lambda one: None if one is None else np.array(one), value))
        return self._lent[-1]

    def _overwrite(self, values: list[Any]) -> None:
        while self._rewrites and values:
            map_nested(_overwrite, values.pop())


def _overwrite(array: npt.NDArray[Any]) -> None:
    if array is not None and array.flags.writeable:
        array[...] = np.nan if array.dtype.kind == "f" else ~array


@check
def check_rewritten_arrays(name: str, env: Any = CARTPOLE, **arguments: Any) -> str | None:
    """Check that an env may write into all arrays that it returned before, and into the actions."""
    with open_case(name, env, arguments) as case:
        try:
            fresh = _trained(case, masked=True)
            masked = True
        except SpaceError:  # it takes no masks
            fresh, masked = _trained(case), False
        require_same(
            fresh,
            _trained(case, rewrites=True, masked=masked),
            "copy what is kept beyond the next step: an env that writes each step into the same "
            "arrays is learnt from otherwise",
        )
    return None


def _trained(case: Case, *, rewrites: bool = False, masked: bool = False) -> dict[str, Any]:
    """Return the state after two iterations."""
    watched: Any = case.probe()
    if isinstance(watched, ProbeGroup):
        watched.probes = [
            RewritingVecEnv(each, rewrites=rewrites, masked=masked) for each in watched.probes
        ]
    else:
        watched = RewritingVecEnv(watched, rewrites=rewrites, masked=masked)
    algorithm = case.build(watched)
    for _ in range(2):
        algorithm.train(1)
    return algorithm.state_dict()
