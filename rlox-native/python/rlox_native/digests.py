"""Digests of the Python code that Rust replaces, to detect edits of that code.

An edited loss must take effect. Before a learner is used, everything that it replaces
(:data:`rlox_native.replaced.REPLACED`) is looked up as the algorithm would call it now and compared
with ``digests.json``: this detects a function replaced at run time, a method of a subclass or of
one object, and an edited file. ``python -m rlox_native.digests`` writes that file; run it after a
change that Rust implements too.
"""

from __future__ import annotations

import hashlib
import json
import linecache
import re
import sys
from contextlib import ContextDecorator, contextmanager
from functools import cache
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from types import CodeType, FunctionType, MethodType
from typing import Any

import torch
from rlox.errors import BackendError

from rlox_native.replaced import REPLACED

FILE = Path(__file__).with_name("digests.json")

CONSTANTS = (bool, int, float, str, tuple)

HEADS = ("def", "async", "class")

TOKEN = re.compile(
    r"""
    [rRbBuUfF]{0,2}(?:
        \"{3}[^"\\]*(?:(?:\\.|"(?!""))[^"\\]*)*\"{3}
        |'{3}[^'\\]*(?:(?:\\.|'(?!''))[^'\\]*)*'{3}
        |"[^"\\]*(?:\\.[^"\\]*)*"
        |'[^'\\]*(?:\\.[^'\\]*)*'
    )
    |(?P<line>(?:[ \t]*(?:\#[^\n]*)?\n)+[ \t]*)
    |(?P<space>[ \t\f]+|\\\n)
    |(?P<open>[(\[{])|(?P<close>[)\]}])
    |\w+|.
    """,
    re.VERBOSE | re.DOTALL,
)
"""A string, the end of a line with the blank lines and comments after it, or another token."""

DECORATORS = re.compile(r"(?:[ \t]*@[^\n]*\n)*")
"""The decorator lines at the start of a function's source."""

MAKERS: tuple[Any, ...] = (contextmanager, ContextDecorator(), torch.no_grad())

WRAPPERS = {decorate(lambda: None).__code__ for decorate in MAKERS}
"""Wrapper functions of decorators, allowed if the replaced function's source names them."""


def require_code(owner: Any, *names: str) -> None:
    """Check that Rust computes the same as this code and the code that it uses.

    Args:
        owner: an object, ``self`` in the names.
        names: names of the replaced code, as in :data:`rlox_native.replaced.REPLACED`; without
            names, the owner itself.

    Raises:
        BackendError: some code differs; the text names it.
    """
    for name in names or ("self",):
        _require(name, owner, {})


def find_edit(owner: Any, *names: str) -> str | None:
    """Return the error text of :func:`require_code`; ``None`` if Rust computes the code."""
    try:
        require_code(owner, *names)
    except BackendError as error:
        return str(error)
    return None


def _require(name: str, owner: Any, scope: dict[str, Any]) -> None:
    """Check the object that a function finds under a name in its module's names ``scope``."""
    first, *path = name.split(".")
    holder, found = None, owner if first == "self" else scope.get(first)
    for part in path:
        holder, found = found, getattr(found, part, None)
    cls = found if isinstance(found, type) else type(found)
    told = found if isinstance(found, (FunctionType, MethodType)) else cls
    where, called = told.__module__, told.__qualname__
    # the code is reported under its original name, even if something has replaced it
    classes = holder.__mro__ if isinstance(holder, type) else type(holder).__mro__
    base = next((each for each in classes if path and path[-1] in vars(each)), None)
    if base is not None:
        where, called = base.__module__, f"{base.__qualname__}.{path[-1]}"
    elif first != "self" and not path:
        where, called = scope["__name__"], name
    key: tuple[str, str] | None = (cls.__module__, cls.__qualname__)
    if isinstance(found, (FunctionType, MethodType, *CONSTANTS)):
        key = _keys().get((called, _digest(found) or ""))
        scope = getattr(_unwrapped(found), "__globals__", {})
        owner = getattr(found, "__self__", holder)
    else:  # a class or its object: the methods are replaced
        scope, owner = vars(sys.modules[cls.__module__]), found
    uses = None if key is None else REPLACED.get(key[0], {}).get(key[1])
    if uses is None:
        if isinstance(found, (FunctionType, MethodType)) and _digest(found) is None:
            raise BackendError(f"the source of {where}.{called} is missing and cannot be compared")
        raise BackendError(f"{where}.{called} is not the code that Rust computes")
    for each in uses.split():
        _require(each, owner, scope)


@cache
def _keys() -> dict[tuple[str, str], tuple[str, str]]:
    """Return module and name in the table by name and digest."""
    digests = json.loads(FILE.read_text("utf-8"))
    return {(n, digest): (m, n) for m, named in digests.items() for n, digest in named.items()}


def _digest(found: Any) -> str | None:
    """Return the digest of a constant or a function; ``None`` for a function without source."""
    if isinstance(found, CONSTANTS):
        return _hash(repr(found))
    function = _unwrapped(found)
    code: Any = getattr(function, "__code__", None)
    if code not in _DIGESTS:
        source = _source(code, function.__globals__)
        _DIGESTS[code] = None if source is None else _hash(_tokens(source))
    return _DIGESTS[code]


_DIGESTS: dict[CodeType | None, str | None] = {None: None}
"""Equal code objects behave equally, and an edited function has another one."""


def _unwrapped(found: Any) -> Any:
    """Return a method's function, without exactly the decorators that its source names."""
    outer = function = getattr(found, "__func__", found)
    layers = 0
    while getattr(function, "__code__", None) in WRAPPERS:
        function, layers = function.__wrapped__, layers + 1
    named = layers and DECORATORS.match(_source(function.__code__, function.__globals__) or "")
    return function if not layers or (named and named.group().count("@") == layers) else outer


def _source(code: CodeType, scope: dict[str, Any]) -> str | None:
    """Return a module's text from the beginning of a function on; ``None`` without a file.

    ``inspect.getsource`` searches all loaded modules for the module, and tokenizes slowly.
    """
    linecache.checkcache(code.co_filename)
    lines = linecache.getlines(code.co_filename, scope)[code.co_firstlineno - 1 :]
    return "".join(lines) or None


def _tokens(text: str) -> str:
    """Return the tokens of the first function in a text, without its docstring, line by line.

    Comments, blank lines and line breaks are left out. Python's own tokens differ between versions,
    such as those of an f-string.
    """
    left = len(text) - len(text.lstrip(" \t"))
    lines, line, depth, head = [], ["0"], 0, ""
    for found in TOKEN.finditer(text + "\n"):
        kind, token = found.lastgroup, found.group()
        depth += (kind == "open") - (kind == "close")
        if kind == "line" and not depth:
            is_docstring = head in HEADS and len(line) == 2 and line[1][0] in "\"'"
            if not is_docstring:
                lines.append(line)
            head = "".join(line[1:2])
            indent = len(token) - token.rindex("\n") - 1 - left
            if indent <= 0 and head != "@":
                break
            line = [str(indent)]
        elif kind not in ("line", "space"):
            line.append(token)
    return "\n".join(map(" ".join, lines))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def current_digests() -> dict[str, dict[str, str | None]]:
    """Return the digests of the installed code, by module and name.

    Classes have none: their methods do.
    """
    found = {
        module: {name: attrgetter(name)(import_module(module)) for name in names}
        for module, names in REPLACED.items()
    }
    return {
        module: {k: _digest(part) for k, part in named.items() if not isinstance(part, type)}
        for module, named in found.items()
    }


if __name__ == "__main__":
    FILE.write_text(json.dumps(current_digests(), indent=1) + "\n", "utf-8")
