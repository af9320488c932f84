"""The ``rlox`` command-line entry point; :mod:`rlox.cli.app` lists its commands."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any, TextIO, cast

import typer

from rlox.cli.output import PipeSafeStdout
from rlox.errors import RloxError, missing_extra, name_clash, suggest

__all__ = ["main"]

SWEEPS = ("--seeds", "--sweep", "--jobs", "--on")
"""Flags that the run options ``sweeps`` of rlox-tools add."""


def main() -> None:
    """Run the command line in ``sys.argv`` and exit.

    The exit code is 0, 2 for an error that the user can fix (one line on stderr), 128 plus the
    signal's number when interrupted, and 1 with a traceback for a bug.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed, for example by >&-
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    formatwarning, stdout = warnings.formatwarning, sys.stdout
    guarded = PipeSafeStdout(stdout)
    warnings.formatwarning, sys.stdout = _one_line, cast("TextIO", guarded)
    try:
        # the registry warns of broken plugins and raises on conflicts, hence inside the try
        from rlox.cli.app import build_app
        from rlox.cli.output import show_notices

        show_notices()

        code = build_app()(args=sys.argv[1:] or ["--help"], prog_name="rlox", standalone_mode=False)
    except typer.TyperException as error:
        code = _report(_text_of(error))
    except (RloxError, OSError, MemoryError) as error:
        code = _report(str(error) or "not enough memory")
    except (ImportError, AttributeError) as error:
        if not (problem := name_clash()):
            raise
        code = _report(f"{error}; {problem}")
    except (typer.Abort, KeyboardInterrupt):
        code = 130
    finally:
        warnings.formatwarning, sys.stdout = formatwarning, stdout
    if not code and guarded.error is not None and not isinstance(guarded.error, BrokenPipeError):
        code = _report(str(guarded.error))  # the requested output is incomplete
    sys.exit(code or 0)


def _one_line(message: Warning | str, *_: Any, **__: Any) -> str:
    return f"warning: {' '.join(str(message).split())}\n"


def _text_of(error: typer.TyperException) -> str:
    """Return the error's text; for an option that a missing distribution adds, name it."""
    from rlox.registry.table import get_registry

    option = getattr(error, "option_name", "")
    known = get_registry().names("rlox_run_options")
    if option in SWEEPS and sys.argv[1] in ("train", "resume") and "sweeps" not in known:
        return str(missing_extra(f"the option {option}", "tools"))
    message, ctx = error.format_message(), getattr(error, "ctx", None)
    if ctx is not None and hasattr(error, "possibilities"):
        flags = [flag for parameter in ctx.command.get_params(ctx) for flag in parameter.opts]
        message = f"no such option: {option}{suggest(option, flags)}"
    return (message[:1].lower() + message[1:]).removesuffix(".")


def _report(message: str) -> int:
    print(f"error: {' '.join(message.split())}", file=sys.stderr)
    return 2
