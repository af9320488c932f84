"""N simulations of one MuJoCo model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import gymnasium
import numpy as np
import numpy.typing as npt
from rlox.envs.gymnasium import log_mujoco_warnings
from rlox.errors import EnvError

Array = npt.NDArray[Any]
T = TypeVar("T")


class Simulations:
    """N simulations of a model, stepped together on MuJoCo's threads.

    Derived fields such as ``xpos`` belong to the state before a step's last substep, as ``mj_step``
    leaves them. Results do not depend on the number of threads.

    Args:
        xml_file: a path that begins with ``.``, ``~`` or the root, or the name of one of
            gymnasium's models.
        n: number of simulations N.
        frame_skip: substeps of a step.
        contact_forces: whether :attr:`cfrc_ext` is computed.
        threads: threads that step.

    Raises:
        EnvError: the file does not exist, or is not a model.
    """

    def __init__(
        self, xml_file: str, n: int, frame_skip: int, contact_forces: bool, threads: int
    ) -> None:
        import mujoco
        from mujoco import batch

        log_mujoco_warnings()
        path = _find(xml_file)
        try:
            self.model = mujoco.MjModel.from_xml_path(str(path))
        except ValueError as error:
            raise EnvError(f"{path} is not a MuJoCo model: {error}") from error
        self._mujoco = mujoco
        self._failure = batch.SimulationError
        # every simulation's data is kept only for contact forces, which another call computes
        self._batch = batch.Batch(self.model, n, threads, persistent=contact_forces)
        self._frame_skip = frame_skip
        self.dt: float = self.model.opt.timestep * frame_skip
        """Seconds of a step."""
        self._defaults: Array = self.state[0].copy()
        self.qpos: Array = self._batch.bind("qpos")
        """(N, nq) positions."""
        self.qvel: Array = self._batch.bind("qvel")
        """(N, nv) velocities."""
        before = mujoco.mj_stateSize(self.model, mujoco.mjtState.mjSTATE_TIME)
        self.qpos_qvel: Array = self.state[:, before : before + self.model.nq + self.model.nv]
        """(N, nq + nv) positions and velocities, adjacent as in states."""
        self.ctrl: Array = self._batch.bind("ctrl")
        """(N, nu) controls of the last step."""
        self.cfrc_ext: Array = np.zeros((n, self.model.nbody, 6))
        """(N, nbody, 6) contact forces on bodies, zeros in new episodes as in gymnasium's envs."""
        self._data = mujoco.MjData(self.model) if contact_forces else None
        # sources of forces on bodies: contacts, equalities, and forces set from outside
        sources = ("ncon", "ne", "xfrc_applied") if contact_forces else ()
        self._sources = [self._batch.bind(name) for name in sources]
        self._bodies: dict[str | int, Array] = {}
        self._known: dict[str, Any] = {}

    @property
    def n(self) -> int:
        """Number of simulations N."""
        return int(self._batch.nsim)

    @property
    def state(self) -> Array:
        """(N, size) full physics state, in MuJoCo's order."""
        rows: Array = self._batch.state
        return rows

    def field(self, name: str) -> Array:
        """Return (N, ...) values of an ``MjData`` field; bind it before the first step."""
        values: Array = self._batch.bind(name)
        return values

    def body(self, name: str | int) -> Array:
        """Return the (N, 3) positions of a body.

        Raises:
            EnvError: the model has no such body.
        """
        values = self._bodies.get(name)
        if values is None:
            try:
                index = self.model.body(name).id
            except (KeyError, IndexError) as error:
                raise EnvError(f"the model has no body {name!r}: {error}") from None
            values = self._bodies[name] = self._batch.bind("xpos")[:, index]
        return values

    def once(self, name: str, compute: Callable[[Simulations], T]) -> T:
        """Return a function's value for the simulations, cached until they change.

        Args:
            name: cache key.
            compute: the function.
        """
        if name not in self._known:
            self._known[name] = compute(self)
        value: T = self._known[name]
        return value

    def step(self, actions: Array) -> None:
        """Apply (N, nu) actions for ``frame_skip`` substeps.

        Raises:
            EnvError: MuJoCo reports an error.
        """
        self._known.clear()
        self.ctrl[...] = actions
        try:
            self._batch.step(nstep=self._frame_skip)
        except self._failure as error:
            raise EnvError(f"a step of MuJoCo failed: {error}") from error
        if self._data is not None:
            self._compute_forces(self._data)

    def _compute_forces(self, data: Any) -> None:
        contacts, equalities, given = self._sources
        self.cfrc_ext[...] = 0.0
        # without a source forces are zero, as in most steps of running or jumping
        rows = range(self.n) if given.any() else (contacts + equalities).nonzero()[0]
        for row in rows:
            self._batch.get_data(row, data)
            self._mujoco.mj_rnePostConstraint(self.model, data)
            self.cfrc_ext[row] = data.cfrc_ext

    def restore(self, state: Array) -> None:
        """Go on from a saved :attr:`state`."""
        self._known.clear()
        self.state[...] = state

    def begin(self, rows: Array, qpos: Array, qvel: Array) -> None:
        """Begin the simulations at ``rows`` with (len(rows), nq) positions and velocities."""
        self._known.clear()
        self.state[rows] = self._defaults
        self.qpos[rows], self.qvel[rows] = qpos, qvel
        self._batch.forward(rows)
        self.cfrc_ext[rows] = 0.0


def _find(xml_file: str) -> Path:
    """Return a model's path, searched for as gymnasium does."""
    assets = Path(gymnasium.__file__).parent / "envs/mujoco/assets"
    path = Path(xml_file).expanduser() if xml_file[:1] in "./~" else assets / xml_file
    if not path.is_file():
        raise EnvError(
            f"xml_file {xml_file!r} does not exist ({path}); name a file, or one of gymnasium's "
            f"models such as 'half_cheetah.xml' from {assets}"
        )
    return path
