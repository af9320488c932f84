"""N simulations of one MuJoCo model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

from rlox.errors import EnvError

__all__ = ["Simulations"]

Array = npt.NDArray[Any]


class Simulations:
    """N simulations of a model, stepped together on MuJoCo's threads.

    Derived fields such as ``xpos`` are those of the state before the last of a step's substeps, as
    ``mj_step`` leaves them. The number of threads changes no bit.

    Args:
        xml_file: a path that begins with ``.``, ``~`` or the root, or the name of one of
            gymnasium's models.
        n: number of simulations N.
        frame_skip: substeps of a step.
        contact_forces: whether :attr:`cfrc_ext` is computed.
        threads: threads that step.

    Raises:
        EnvError: the file does not exist, or is no model.
    """

    def __init__(
        self, xml_file: str, n: int, frame_skip: int, contact_forces: bool, threads: int
    ) -> None:
        import mujoco
        from mujoco import batch

        path = _find(xml_file)
        try:
            self.model = mujoco.MjModel.from_xml_path(str(path))
        except ValueError as error:
            raise EnvError(f"{path} is no model of MuJoCo: {error}") from error
        self._mujoco = mujoco
        self._failure = batch.SimulationError
        # the data of every simulation is kept only where one more call reads it
        self._batch = batch.Batch(self.model, n, threads, persistent=contact_forces)
        self._frame_skip = frame_skip
        self.dt: float = self.model.opt.timestep * frame_skip
        """Seconds of a step."""
        self.qpos: Array = self._batch.bind("qpos")
        """(N, nq) positions."""
        self.qvel: Array = self._batch.bind("qvel")
        """(N, nv) velocities."""
        self.ctrl: Array = self._batch.bind("ctrl")
        """(N, nu) controls of the last step."""
        self.cfrc_ext: Array = np.zeros((n, self.model.nbody, 6))
        """(N, nbody, 6) contact forces on bodies, zeros in new episodes as in gymnasium's envs."""
        self._data = mujoco.MjData(self.model) if contact_forces else None

    @property
    def n(self) -> int:
        """Number of simulations N."""
        return int(self._batch.nsim)

    @property
    def state(self) -> Array:
        """(N, size) everything that determines what follows, in MuJoCo's order."""
        rows: Array = self._batch.state
        return rows

    def field(self, name: str) -> Array:
        """Return (N, ...) values of a field of ``MjData``; ask for it before the first step."""
        values: Array = self._batch.bind(name)
        return values

    def body(self, name: str | int) -> Array:
        """Return the (N, 3) positions of a body.

        Raises:
            EnvError: the model has no such body.
        """
        try:
            index = self.model.body(name).id
        except (KeyError, IndexError) as error:
            raise EnvError(f"the model has no body {name!r}: {error}") from None
        values: Array = self._batch.bind("xpos")[:, index]
        return values

    def step(self, actions: Array) -> None:
        """Apply (N, nu) actions for ``frame_skip`` substeps.

        Raises:
            EnvError: MuJoCo reports an error.
        """
        self.ctrl[...] = actions
        try:
            self._batch.step(nstep=self._frame_skip)
        except self._failure as error:
            raise EnvError(f"a step of MuJoCo failed: {error}") from error
        if self._data is not None:
            for i in range(self.n):
                self._batch.get_data(i, self._data)
                self._mujoco.mj_rnePostConstraint(self.model, self._data)
                self.cfrc_ext[i] = self._data.cfrc_ext

    def begin(self, rows: Array, qpos: Array, qvel: Array) -> None:
        """Begin the simulations at ``rows`` with (len(rows), nq) positions and velocities."""
        self._batch.reset(rows, stage=int(self._mujoco.mjtStage.mjSTAGE_NONE))
        self.qpos[rows], self.qvel[rows] = qpos, qvel
        self._batch.forward(rows)
        self.cfrc_ext[rows] = 0.0


def _find(xml_file: str) -> Path:
    """Return where a model is, as gymnasium looks for it."""
    assets = Path(gymnasium.__file__).parent / "envs/mujoco/assets"
    path = Path(xml_file).expanduser() if xml_file[:1] in "./~" else assets / xml_file
    if not path.is_file():
        raise EnvError(
            f"xml_file {xml_file!r} does not exist ({path}); name a file, or one of gymnasium's "
            f"models such as 'half_cheetah.xml' from {assets}"
        )
    return path
