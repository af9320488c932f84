"""Conformance checks of algorithms that train language models.

A model is trained in place, so every check makes its own: ``arguments`` is a function that returns
the arguments of :func:`rlox.make`, among them ``model`` and a small ``dataset``. Each call makes
new but equal ones.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rlox.algorithm import make
from rlox.registry.table import algorithm_class, config_class, spec

from rlox_testing.declarations import check_config_documented, check_spec
from rlox_testing.probes import Recorder, SaveOnce, check, refused, require, require_same
from rlox_testing.restoring import require_gradient_steps, require_resumes

Arguments = Callable[[], Mapping[str, Any]]

N = 4
"""Gradient steps of a training."""


@check
def check_language_options(name: str, arguments: Arguments) -> None:
    """Check that a misspelt option is refused, that no env is taken, and that a model is needed."""
    option = list(config_class(name).model_fields)[-1]
    with refused(f"'{option}_'", f"'{option}'"):
        make(name, **{**arguments(), f"{option}_": 1})
    with refused("env"):
        make(name, **{**arguments(), "env": "CartPole-v1"})
    require("model" in spec(name).needs, f"needs of '{name}' must have 'model'")


@check
def check_language_training(name: str, arguments: Arguments) -> None:
    """Check that gradient steps and tokens are counted, logged and can stop; metrics are floats."""

    def build(**more: Any) -> Any:
        return make(name, **more, **arguments())

    _, rows = require_gradient_steps(build, N)
    for counter in ("prompts", "completions", "tokens"):
        counts = [row.get(counter, -1.0) for _, row in rows]
        require(
            counts[0] > 0 and counts == sorted(counts),
            f"the metric '{counter}' must grow from row to row, got {counts}",
        )


@check
def check_language_seeding(name: str, arguments: Arguments) -> None:
    """Check that one seed gives one state, bit for bit, with and without evaluations."""

    def trained(evaluates: bool = False) -> dict[str, Any]:
        algorithm = make(name, **{**arguments(), "seed": 1})
        for _ in range(2):
            algorithm.train(N // 2)
            if evaluates:
                algorithm.run_episodes(n_episodes=2, deterministic=False)
        return algorithm.state_dict()

    first = trained()
    require_same(first, trained(), "two trainings with the same seed differ")
    require_same(first, trained(evaluates=True), "run_episodes() changes the training")


@check
def check_language_evaluation(name: str, arguments: Arguments) -> None:
    """Check that an evaluation has the requested number of finite returns, and repeats."""
    algorithm = make(name, **arguments())
    results = [algorithm.run_episodes(n_episodes=5, seed=3) for _ in range(2)]
    for result in results:
        require(
            len(result.returns) == len(result.lengths) == 5,
            f"5 episodes were asked for, got {len(result.returns)} returns",
        )
        require(all(map(math.isfinite, result.returns)), f"returns are {result.returns}")
        require(bool((result.lengths > 0).all()), f"lengths in tokens are {result.lengths}")
    require(
        bool((results[0].returns == results[1].returns).all()),
        "two evaluations with one seed differ",
    )


@check
def check_language_resume(name: str, arguments: Arguments) -> None:
    """Check that saving, restoring and going on equals training straight through, bit by bit."""
    fields = config_class(name).model_fields
    own = {k: v for k, v in arguments().items() if k not in fields and k != "config"}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "halfway.safetensors")
        straight = make(name, callbacks=[SaveOnce(path)], **arguments())
        straight.train(N)
        resumed = algorithm_class(name).from_checkpoint(path, callbacks=[Recorder()], **own)
    require_resumes(resumed, straight)


LANGUAGE_CHECKS: tuple[Callable[..., str | None], ...] = (
    check_spec,
    check_config_documented,
    check_language_options,
    check_language_training,
    check_language_seeding,
    check_language_evaluation,
    check_language_resume,
)
"""All checks of an algorithm for language models, in the order in which they are run."""


def check_language_algorithm(name: str, arguments: Arguments) -> None:
    """Run every check of an algorithm that trains language models.

    Args:
        name: registered name of the algorithm.
        arguments: returns the arguments of :func:`rlox.make`, among them a new model and a dataset.

    Raises:
        AssertionError: a check failed; the text begins with its name.
    """
    for run in LANGUAGE_CHECKS:
        run(name, arguments)
