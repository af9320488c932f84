"""Files that one iteration of an algorithm passes, traced while it runs.

    python docs/_ext/walks.py

prints those of an iteration of PPO, of MAPPO and of a step of SAC, with the torch learner and with
the default one.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).parents[2]

PACKAGES = {
    path.name: path.relative_to(ROOT).as_posix()
    for kind in ("src", "python")
    for path in ROOT.glob(f"rlox-*/{kind}/rlox*")
}
"""Folders of rlox's packages in the repository, by name; they may be installed elsewhere."""

OURS = re.compile(r".*/(?:src|python|site-packages)/(rlox\w*)/(.+)")


@dataclass(frozen=True)
class Walk:
    """Files of rlox that a piece of work passes."""

    files: tuple[str, ...]
    """Paths from the repository's root, in the order they are entered first."""
    calls: tuple[tuple[str, str], ...]
    """Pairs (caller, callee) of files, in the order of their first calls."""

    @property
    def returns(self) -> int:
        """Calls into a file that was entered before; a reader goes back for each."""
        return len(self.calls) - (len(self.files) - 1)


def trace(work: Callable[[], Any]) -> Walk:
    """Return the files of rlox whose functions run in ``work``, in this thread.

    Comprehensions and lambdas count for the file they are written in.
    """
    names: dict[str, str] = {}
    files: dict[str, None] = {}
    calls: dict[tuple[str, str], None] = {}

    def name_of(frame: FrameType) -> str:
        path = frame.f_code.co_filename
        if path not in names:
            found = OURS.fullmatch(path)
            folder = PACKAGES.get(found[1]) if found else None
            names[path] = f"{folder}/{found[2]}" if found and folder else ""
        return names[path]

    def caller_of(frame: FrameType) -> str:
        above = frame.f_back
        while above is not None and not name_of(above):
            above = above.f_back
        return name_of(above) if above is not None else ""

    def on_event(frame: FrameType, event: str, _: object) -> None:
        if event != "call" or not (name := name_of(frame)):
            return
        files[name] = None
        caller = caller_of(frame)
        if caller and caller != name:
            calls[caller, name] = None

    sys.setprofile(on_event)
    try:
        work()
    finally:
        sys.setprofile(None)
    return Walk(tuple(files), tuple(calls))


def ppo_iteration(backend: str, env_backend: str) -> Walk:
    """Trace the second iteration of PPO; the first one builds what later ones reuse."""
    from rlox.training.hooks import Hooks
    from rlox_onpolicy.ppo import PPO

    options = {"n_envs": 2, "n_steps": 128, "seed": 0, "env_backend": env_backend}
    ppo = PPO("CartPole-v1", backend=backend, **options)
    ppo.train(256)
    ppo.clock.extend(256)
    hooks = Hooks(ppo)
    return trace(lambda: ppo.iterate(hooks))


def sac_step(backend: str, env_backend: str) -> Walk:
    """Trace an iteration of one env step with one gradient step."""
    from rlox.training.hooks import Hooks
    from rlox_offpolicy.sac import SAC

    options = {"learning_starts": 50, "buffer_size": 1_000, "steps_per_iteration": 1, "seed": 0}
    sac = SAC("Pendulum-v1", backend=backend, env_backend=env_backend, **options)
    sac.train(60)
    sac.clock.extend(1)
    hooks = Hooks(sac)
    return trace(lambda: sac.iterate(hooks))


def team_iteration(backend: str, env_backend: str) -> Walk:
    """Trace an iteration of MAPPO with three agents."""
    from rlox.training.hooks import Hooks
    from rlox_marl.mappo import MAPPO

    options = {"n_envs": 2, "n_steps": 64, "seed": 0}
    env_backend = "vectorized" if env_backend == "gymnasium" else env_backend
    mappo = MAPPO("mpe2/simple_spread_v3", backend=backend, env_backend=env_backend, **options)
    mappo.train(256)
    mappo.clock.extend(256)
    hooks = Hooks(mappo)
    return trace(lambda: mappo.iterate(hooks))


if __name__ == "__main__":
    for work in (ppo_iteration, sac_step, team_iteration):
        for learner, envs in (("torch", "gymnasium"), ("torch", "auto"), ("auto", "auto")):
            walk = work(learner, envs)
            print(f"{work.__name__}, learner {learner}, envs {envs}: "
                  f"{len(walk.files)} files, {walk.returns} returns")  # fmt: skip
            print("\n".join(f"  {name}" for name in walk.files))
