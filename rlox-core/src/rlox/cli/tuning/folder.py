"""Folder of ``rlox tune``: plan, trials and best options."""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlox import registry
from rlox.cli.runs.options import RunOptions
from rlox.cli.sweeps.folder import Sweep
from rlox.cli.tuning.space import Dimension, parse_space
from rlox.config.files import to_yaml
from rlox.config.model import changed
from rlox.config.presets import user_folder
from rlox.errors import ConfigError
from rlox.files import read_text, require_plain_folder, write_atomically

if TYPE_CHECKING:
    from rlox.config.model import Config

__all__ = ["Plan", "TuningFolder"]


@dataclass(frozen=True)
class Plan:
    """What is to be searched, and how long."""

    space: tuple[str, ...]
    """As :func:`rlox.cli.tuning.space.parse_space` takes it."""
    trials: int
    seeds: tuple[int, ...]
    """Of every trial."""
    prune: bool
    """Whether trials that are worse than the others at the same step end early."""
    save_preset: str | None = None
    """Name of the user's preset that the best options become."""


@dataclass(frozen=True)
class TuningFolder:
    """A folder with ``tune.json``, the study and a sweep for each trial."""

    path: Path
    algorithm: str
    config: Config
    """Options that are not searched, and the present values of those that are."""
    options: RunOptions
    plan: Plan

    @property
    def space(self) -> tuple[Dimension, ...]:
        """What is searched."""
        return parse_space(self.plan.space, self.config)

    @property
    def study(self) -> Path:
        """Optuna's journal."""
        return self.path / "study.log"

    def trial(self, number: int) -> Sweep:
        """Return the sweep over the seeds of a trial."""
        folder = self.path / "trials" / f"{number:04d}"
        return Sweep(folder, self.algorithm, self.plan.seeds, ({},), self.options)

    def start_trial(self, number: int, config: Config) -> Sweep:
        """Write the options of a trial, and return its sweep."""
        sweep = self.trial(number)
        sweep.path.mkdir(parents=True, exist_ok=True)
        values = {k: v for k, v in config.to_dict().items() if k != "seed"}
        write_atomically(sweep.path / "config.yaml", to_yaml(values).encode())
        sweep.start()
        return sweep

    def start(self) -> None:
        """Write ``config.yaml`` and ``tune.json``."""
        self.path.mkdir(parents=True, exist_ok=True)
        self.config.dump(self.path / "config.yaml")
        record = {
            "algorithm": self.algorithm,
            "env": self.options.env,
            "command": shlex.join(["rlox", *sys.argv[1:]]),
            "plan": asdict(self.plan),
            "options": self.options.to_dict(),
        }
        text = json.dumps(record, indent=2) + "\n"
        write_atomically(self.path / "tune.json", text.encode())

    @staticmethod
    def is_in(path: Path) -> bool:
        """Return whether a folder is one of ``rlox tune``."""
        return (path / "tune.json").is_file()

    @staticmethod
    def read(path: Path) -> TuningFolder:
        """Return what is in a folder.

        Raises:
            ConfigError: it is damaged, or holds a link or a named pipe.
        """
        require_plain_folder(path)
        try:
            record = json.loads(read_text(path / "tune.json"))
            plan = Plan(
                space=tuple(map(str, record["plan"]["space"])),
                trials=int(record["plan"]["trials"]),
                seeds=tuple(map(int, record["plan"]["seeds"])),
                prune=bool(record["plan"]["prune"]),
                save_preset=record["plan"]["save_preset"],
            )
            options = RunOptions.from_dict(record["options"])
            algorithm = str(record["algorithm"])
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise ConfigError(f"'{path / 'tune.json'}' is damaged: {error}") from None
        config = registry.config_class(algorithm).load(path / "config.yaml")
        return TuningFolder(path, algorithm, config, options, plan)

    def write_best(self, config: Config, returns: list[float]) -> list[Path]:
        """Write the best options as a file for ``--config`` and as presets.

        Args:
            config: the best options.
            returns: of its evaluations, one per seed.
        """
        values = {k: v for k, v in config.to_dict().items() if k != "seed"}
        best, preset = self.path / "best.yaml", self.path / "preset.yaml"
        write_atomically(best, to_yaml(values).encode())
        written = [best]
        if self.options.env is None:  # a preset is for an env
            return written
        text = to_yaml(self._preset(config, returns)).encode()
        write_atomically(preset, text)
        written.append(preset)
        if self.plan.save_preset is not None:
            env = self.options.env.replace("/", "_").replace(":", "_")
            name = f"{self.algorithm}-{env}-{self.plan.save_preset}.yaml"
            user_folder().mkdir(parents=True, exist_ok=True)
            write_atomically(user_folder() / name, text)
            written.append(user_folder() / name)
        return written

    def _preset(self, config: Config, returns: list[float]) -> dict[str, Any]:
        score = sum(returns) / len(returns)
        options = {k: v for k, v in config.to_dict().items() if changed_option(config, k)}
        fields = {
            "steps": self.options.total_timesteps,
            "score": round(score, 3),
            "tolerance": round(max(score - min(returns), 0.1 * abs(score)), 3),
            "episodes": self.options.eval_episodes,
            "source": f"rlox tune, {self.plan.trials} trials of {len(self.plan.seeds)} seeds",
            "options": options,
        }
        name = self.plan.save_preset or "tuned-here"
        return {"presets": {self.algorithm: {str(self.options.env): {name: fields}}}}


def changed_option(config: Config, name: str) -> bool:
    """Return whether a preset has to hold an option for it to be as in the config."""
    return name not in ("seed", "preset") and changed(config, name)
