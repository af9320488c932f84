"""Writes ``option_types.pyi``, which git ignores; source distributions hold it already."""

from pathlib import Path
from runpy import run_path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class OptionTypes(BuildHookInterface[Any]):
    """Runs the script that all families share."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the file if this is a clone, and add it to the build."""
        script = Path(self.root).parent / "rlox-core" / "option_types.py"
        if script.exists():
            run_path(str(script))["write"](Path(self.root))
        build_data["artifacts"].append("option_types.pyi")
