"""Conformance checks of :class:`rlox.AlgorithmSpec` and its config."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlox.files import write_atomically
from rlox.registry.table import algorithm_class, config_class, spec

from rlox_testing.cases import CARTPOLE, open_case
from rlox_testing.probes import check, refused, require


@check
def check_spec(name: str, env: Any = CARTPOLE, **arguments: Any) -> None:
    """Check that the spec is complete, resolves, and that its config needs no torch."""
    found = spec(name)
    require(found.name == found.name.lower(), f"the name must be lower case, got '{found.name}'")
    require(found.summary.strip(), "the spec needs a summary")
    config, factory = config_class(name), algorithm_class(name)
    require(
        getattr(factory, "name", None) == found.name,
        f"{factory.__name__}.name must be '{found.name}', got {getattr(factory, 'name', None)!r}",
    )
    require(
        getattr(factory, "config_class", None) is config,
        f"{factory.__name__}.config_class must be {config.__name__}",
    )
    module = found.config.partition(":")[0]
    code = (
        f"import importlib, sys; importlib.import_module({module!r}); print('torch' in sys.modules)"
    )
    done = subprocess.run(  # noqa: S603  # this interpreter, on a module that is installed
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    require(done.returncode == 0, f"'{module}' cannot be imported on its own:\n{done.stderr}")
    require(
        done.stdout.split()[-1] == "False",
        f"'{module}' imports torch; keep configs and the package's __init__ free of it, so that "
        "listing, the CLI's flags and the documentation load at once",
    )


@check
def check_config_documented(name: str, env: Any = CARTPOLE, **arguments: Any) -> None:
    """Check that every option has a sentence, a unit and a source, and that there is a seed."""
    fields = config_class(name).model_fields
    require("seed" in fields, "the config needs a field 'seed'; it fixes every random draw")
    for option, field in fields.items():
        extra = field.json_schema_extra
        documented: Mapping[str, Any] = extra if isinstance(extra, Mapping) else {}
        lacking = [] if field.description else ["description"]
        lacking += [key for key in ("unit", "source") if not documented.get(key)]
        require(
            not lacking,
            f"the option '{option}' lacks its {', '.join(lacking)}; make it with a helper of "
            "rlox.config.model, which asks for all three",
        )


@check
def check_config_round_trip(name: str, env: Any = CARTPOLE, **arguments: Any) -> None:
    """Check that the config written as YAML and as JSON reads back equal."""
    cls = config_class(name)
    with open_case(name, env, arguments) as case, tempfile.TemporaryDirectory() as folder:
        for config in (cls(), case.config):
            yaml_file, json_file = Path(folder, "config.yaml"), Path(folder, "config.json")
            config.dump(yaml_file)
            text = json.dumps(config.to_dict(), allow_nan=False)
            write_atomically(json_file, text.encode())
            for file in (yaml_file, json_file):
                read = cls.load(file)
                changed = [k for k in cls.model_fields if getattr(read, k) != getattr(config, k)]
                require(not changed, f"{file.suffix[1:]} changes {', '.join(changed)}")


@check
def check_unknown_option(name: str, env: Any = CARTPOLE, **arguments: Any) -> None:
    """Check that a misspelt option is refused and the error names the right one."""
    with open_case(name, env, arguments) as case:
        option = list(config_class(name).model_fields)[-1]
        misspelt = f"{option}_"
        with refused(f"'{misspelt}'", f"'{option}'"):
            case.build(case.probe(), **{misspelt: 1})
