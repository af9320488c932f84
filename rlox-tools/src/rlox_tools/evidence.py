"""Evidence: trainings that anyone can replay, whose curves and parameters' hashes are kept.

A cell is the JSON file of one task: algorithm, config, env and steps, and ``runs``, one for each
seed. A run is cut into ten segments of equal length. It keeps the hash of its parameters at their
ends, so that the first segment, a tenth of the time, checks it.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import rlox
from rlox.callbacks import Callback, CheckpointCallback, EvalCallback
from rlox.callbacks.base import Multiples
from rlox.registry import algorithm_class

SEGMENTS = 10


class Segments(Callback):
    """Keeps env steps, hash of the parameters and processor seconds at the ends of segments.

    Args:
        env_steps: of the whole training.
        until: number of the segment after which the training stops.
    """

    def __init__(self, env_steps: int, until: int) -> None:
        self.until = until
        self.ends: dict[str, list[Any]] = {"env_steps": [], "hash": [], "processor_seconds": []}
        self._due = Multiples("env_steps", env_steps // SEGMENTS)

    def on_training_start(self, **kwargs: Any) -> None:
        """Count from the present env step, and add to the seconds until then."""
        self._due.count_from(kwargs["step"])
        self._start = time.process_time() - sum(self.ends["processor_seconds"][-1:])

    def on_iteration_end(self, **kwargs: Any) -> bool:
        """Keep the values of a segment that has ended; stop after the last one."""
        if self._due.reached(kwargs["step"]):
            self.ends["env_steps"].append(kwargs["step"])
            self.ends["hash"].append(parameter_hash(kwargs["algo"]))
            self.ends["processor_seconds"].append(round(time.process_time() - self._start, 1))
        return len(self.ends["hash"]) < self.until

    def state_dict(self) -> dict[str, Any]:
        """Return the values of the segments that have ended."""
        return self.ends

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on after these segments."""
        self.ends = {name: list(state[name]) for name in self.ends}


def train(
    cell: Mapping[str, Any], seed: int, *, until: int = SEGMENTS, folder: Path | None = None,
    start: Path | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Train one seed of a cell and return its run.

    Args:
        cell: has ``algorithm``, ``env``, ``env_steps``, ``config``, ``eval_freq`` in env steps,
            ``eval_episodes`` of each point of the curve and ``episodes`` of the last evaluation.
        seed: of all random streams.
        until: segment after which the training stops.
        folder: for checkpoints at the ends of segments; ``None`` saves none.
        start: checkpoint at the end of a segment to go on from.

    Returns:
        ``curve``, of deterministic evaluations, and ``segments``; after the last segment also the
        last evaluation, and the mean return of the last episodes in training.
    """
    evaluations = EvalCallback(None, cell["eval_freq"], cell["eval_episodes"], verbose=False)
    segments = Segments(cell["env_steps"], until)
    callbacks: list[Callback] = [evaluations, segments]
    if folder is not None:
        callbacks.append(CheckpointCallback(cell["env_steps"] // SEGMENTS, folder, verbose=False))
    if start is None:
        config = {**cell["config"], "seed": seed}
        algorithm = rlox.make(cell["algorithm"], cell["env"], config=config, callbacks=callbacks)
    else:
        algorithm = algorithm_class(cell["algorithm"]).from_checkpoint(start, callbacks=callbacks)
    with algorithm:
        metrics = algorithm.train(cell["env_steps"] if start is None else None)
        steps, returns = np.transpose(evaluations.eval_results)
        run = {
            "seed": seed,
            "curve": {
                "env_steps": steps.astype(int).tolist(),
                "mean_return": returns.round(2).tolist(),
            },
            "segments": segments.ends,
        }
        if until == SEGMENTS:
            result = algorithm.evaluate(n_episodes=cell["episodes"])
            run |= {"mean_return": result.mean_return, "std_return": result.std_return}
            run["mean_return_of_last_100_episodes"] = metrics["mean_reward"]
    return run


def parameter_hash(algorithm: Any) -> str:
    """Return the beginning of the SHA-256 of all learnt parameters, 16 digits."""
    found = {}
    for name, optimizer in sorted(algorithm.optimizers.items()):
        if hasattr(optimizer, "parameters"):
            found[name] = optimizer.parameters.numpy()
        else:  # modules of rl8
            state = algorithm.agent.policy.model.state_dict()
            found[name] = {key: value.numpy() for key, value in state.items()}
    return digest(found)


def digest(state: Any) -> str:
    """Return the beginning of the SHA-256 of all arrays of nested dicts, 16 digits."""
    found = hashlib.sha256()

    def add(value: Any) -> None:
        if isinstance(value, dict):
            for key in sorted(value):
                add(value[key])
        elif isinstance(value, np.ndarray):
            found.update(np.ascontiguousarray(value).tobytes())

    add(state)
    return found.hexdigest()[:16]
