"""Results of ``rlox tune``: best trials, importances and options as files."""

from __future__ import annotations

import importlib.util
import math
import warnings
from typing import Any

from rlox.cli.output import print_pairs, print_table
from rlox.cli.tuning.folder import TuningFolder
from rlox.cli.tuning.space import with_values
from rlox.config.files import to_yaml
from rlox.errors import RunError
from rlox.files import write_atomically

__all__ = ["importances", "print_tuning"]

SHOWN = 10
"""Trials in the table, the best ones."""


def print_tuning(folder: TuningFolder, study: Any) -> None:
    """Print the best trials and what mattered, and write the best options.

    Raises:
        RunError: no trial has come to its end.
    """
    done = [trial for trial in study.trials if trial.value is not None and trial.state.name ==
            "COMPLETE"]  # fmt: skip
    if not done:
        raise RunError(
            f"none of the {len(study.trials)} trials came to its end; the logs of their runs are "
            f"in '{folder.path / 'trials'}'"
        )
    done.sort(key=lambda trial: -trial.value)
    names = [each.name for each in folder.space]
    print_table(
        ("trial", "return", *names),
        [
            (str(trial.number), f"{trial.value:.1f}", *(_shown(trial.params[n]) for n in names))
            for trial in done[:SHOWN]
        ],
        whole=("trial", "return"),
    )
    found = importances(study)
    if found:
        rows = [(name, f"{share:.2f}") for name, share in found.items()]
        print_table(("option", "importance"), rows, whole=("option",))
        values = {name: round(share, 4) for name, share in found.items()}
        write_atomically(folder.path / "importance.yaml", to_yaml(values).encode())
    best = done[0]
    members = folder.trial(best.number).members()
    returns = [float(member.folder.read()["evaluation"]["mean"]) for member in members]
    written = folder.write_best(with_values(folder.config, best.params), returns)
    states = [trial.state.name for trial in study.trials]
    pairs = {
        "trials": f"{len(done)} finished, {states.count('PRUNED')} pruned, "
        f"{states.count('FAIL')} failed",
        "best": f"trial {best.number}: {best.value:.1f} over {len(returns)} seeds",
        "best options": f"{written[0]}; to train with them: --config {written[0]}",
    }
    if len(written) > 1:
        pairs["as presets"] = ", ".join(map(str, written[1:]))
    if found and importlib.util.find_spec("matplotlib") is not None:
        path = folder.path / "importance.png"
        _draw(found).savefig(path)
        pairs["importance"] = str(path)
    print_pairs({**pairs, "folder": str(folder.path)})


def importances(study: Any) -> dict[str, float]:
    """Return how much each option matters for being among the best, shares that add up to 1.

    By PED-ANOVA (Watanabe et al. 2023); empty if there are too few trials, or they are alike.
    """
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)  # that all are equal, as trials are alike
            found = get_param_importances(study, evaluator=PedAnovaImportanceEvaluator())
    except (ValueError, RuntimeError, UserWarning):  # the first: of fewer than two trials
        return {}
    return found if all(map(math.isfinite, found.values())) else {}


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _draw(found: dict[str, float]) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 0.6 + 0.4 * len(found)), dpi=160, layout="constrained")
    axes = figure.subplots()
    names = list(found)[::-1]
    axes.barh(names, [found[name] for name in names], color="#4477aa")
    axes.set_xlabel("importance")
    return figure
