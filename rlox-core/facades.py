"""Writes ``rlox.algorithms`` and the types of ``rlox.make`` from ``rlox.registry.families``.

Run ``python rlox-core/facades.py`` after a change of the table; ``--check`` reports a difference
instead. They are files for editors and type checkers to see; Python finds the modules by the table.
"""

from __future__ import annotations

import sys
from pathlib import Path

from rlox.registry.families import ALGORITHMS, AlgorithmRow

FOLDER = Path(__file__).parent / "src" / "rlox" / "algorithms"

LINE = "from {row.module} import {row.class_name} as {row.class_name}\n"

MAKE = '''"""Types of ``rlox.make``: an overload for each algorithm, and one for plugins.

Written by ``python rlox-core/facades.py``; families write their options when they are built. A
plugin's options, and those of algorithms whose name is no literal, go as ``config={{...}}``: among
arguments that every name may bring, no type checker could report a misspelt one.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, overload

{imports}
from typing_extensions import Unpack

from rlox import algorithms
from rlox.algorithm import Algorithm
from rlox.callbacks import Callback
from rlox.config.model import Config
from rlox.logging import LoggerCallback

{overloads}\
@overload
def make(
    name: str,
    env: Any = None,
    *,
    config: Config | Mapping[str, Any] | str | Path | None = None,
    preset: str | None = None,
    callbacks: Iterable[Callback | str] | Callback | str | None = None,
    logger: LoggerCallback | str | Iterable[LoggerCallback | str] | None = None,
    log_dir: str | Path = "runs",
) -> Algorithm: ...
'''

OVERLOAD = """@overload
def make(
    name: Literal["{row.name}"],
    env: Any = None,
    **arguments: Unpack[{row.extra}.{row.class_name}Arguments],
) -> algorithms.{row.class_name}: ...
"""


def files(rows: tuple[AlgorithmRow, ...] = ALGORITHMS) -> dict[str, str]:
    """Return the text of every module, by file name."""
    written = {f"{row.file}.pyi": LINE.format(row=row) for row in rows}
    written["__init__.pyi"] = "".join(sorted(written.values()))
    built = [row for row in rows if row.registered]
    extras = sorted({row.extra for row in built})
    written["make_types.pyi"] = MAKE.format(
        imports="\n".join(f"from rlox_{name} import option_types as {name}" for name in extras),
        overloads="".join(OVERLOAD.format(row=row) for row in built),
    )
    return written


def differences() -> list[str]:
    """Return the names of the files that are not what the table says."""
    expected = files()
    names = [path.name for path in FOLDER.glob("*.pyi")]
    found = {name: (FOLDER / name).read_text(encoding="utf-8") for name in names}
    return sorted(name for name in {*expected, *found} if expected.get(name) != found.get(name))


if __name__ == "__main__":
    changed = differences()
    if "--check" in sys.argv:
        sys.exit(f"run python rlox-core/facades.py to write {', '.join(changed)}" if changed else 0)
    for name in changed:
        if name in files():
            (FOLDER / name).write_text(files()[name], encoding="utf-8")
        else:
            (FOLDER / name).unlink()
