"""Conformance checks of :class:`rlox_offline.base.OfflineAlgorithm`.

Every check takes the registered name, a small dataset and the arguments of :func:`rlox.make`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rlox.algorithm import make
from rlox.registry.table import algorithm_class, config_class

from rlox_testing.declarations import check_config_documented, check_spec
from rlox_testing.known_envs import check_offline_masks
from rlox_testing.probes import (
    Recorder,
    SaveOnce,
    check,
    refused,
    require,
    require_actions,
    require_seeded,
)
from rlox_testing.restoring import require_gradient_steps, require_resumes

N = 6
"""Gradient steps of a training."""


@check
def check_offline_options(name: str, dataset: Any, **arguments: Any) -> None:
    """Check that a misspelt option, and a size other than the dataset's, are refused."""
    option = list(config_class(name).model_fields)[-1]
    with refused(f"'{option}_'", f"'{option}'"):
        make(name, dataset=dataset, **{**arguments, f"{option}_": 1})
    with refused("obs_dim", "10000"):
        make(name, dataset=dataset, **{**arguments, "obs_dim": 10_000})


@check
def check_offline_training(name: str, dataset: Any, **arguments: Any) -> None:
    """Check that gradient steps are counted, logged and stopped at, and that metrics are floats."""
    build = partial(make, name, dataset=dataset, **arguments)
    algorithm, rows = require_gradient_steps(build, N)
    taken = algorithm.clock.gradient_steps
    require(taken == N, f"train({N}) took {taken} gradient steps")
    require([step for step, _ in rows] == [N], f"the logger must get a row at step {N}, got {rows}")


@check
def check_offline_seeding(name: str, dataset: Any, **arguments: Any) -> None:
    """Check that one seed gives one state, bit for bit, with predictions too; others differ."""
    require_seeded(
        lambda seed: make(name, dataset=dataset, **{**arguments, "seed": seed}),
        lambda algorithm: algorithm.predict(_some_obs(dataset), deterministic=False),
        N // 2,
    )


@check
def check_offline_predict(name: str, dataset: Any, **arguments: Any) -> None:
    """Check actions for one observation and for batches: type, shape, dtype, within bounds."""
    algorithm: Any = make(name, dataset=dataset, **arguments)
    require_actions(algorithm, _some_obs(dataset), algorithm.action_space)


@check
def check_offline_resume(name: str, dataset: Any, **arguments: Any) -> None:
    """Check that saving, restoring and going on equals training straight through, bit by bit.

    An algorithm restored without a dataset acts like the saved one, and refuses to train.
    """
    fields = config_class(name).model_fields
    own = {key: value for key, value in arguments.items() if key not in fields and key != "config"}
    sizes = {**arguments, "steps_per_iteration": N}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "halfway.safetensors")
        straight = make(name, dataset=dataset, callbacks=[SaveOnce(path)], **sizes)
        straight.train(2 * N)
        resumed = algorithm_class(name).from_checkpoint(
            path, dataset=dataset, callbacks=[Recorder()], **own
        )
        informed = algorithm_class(name).from_checkpoint(path, dataset=dataset, **own)
        acting = algorithm_class(name).from_checkpoint(path, **own)
    obs = _some_obs(dataset)
    require(
        np.array_equal(informed.predict(obs), acting.predict(obs)),
        "an algorithm restored without a dataset chooses other actions",
    )
    with refused("dataset"):
        acting.train(1)
    require_resumes(resumed, straight)


def _some_obs(dataset: Any) -> Any:
    return np.asarray(dataset.sample(5, 0)["obs"], np.float32)


OFFLINE_CHECKS: tuple[Callable[..., str | None], ...] = (
    check_spec,
    check_config_documented,
    check_offline_options,
    check_offline_training,
    check_offline_seeding,
    check_offline_predict,
    check_offline_resume,
    check_offline_masks,
)
"""All checks of an offline algorithm, in the order in which they are run."""


def check_offline_algorithm(name: str, dataset: Any, **arguments: Any) -> None:
    """Run every check of an algorithm that learns from a dataset.

    Args:
        name: registered name of the algorithm.
        dataset: a small one; see :class:`rlox_offline.datasets.protocol.OfflineDataset`.
        arguments: of :func:`rlox.make`.

    Raises:
        AssertionError: a check failed; the text begins with its name.
    """
    for run in OFFLINE_CHECKS:
        run(name, dataset, **arguments)
