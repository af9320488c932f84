"""Down-sampled logs of runs that are under way."""

from __future__ import annotations

import csv
import json
import math
import os
from array import array
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from rlox.analysis.runs import open_in_run

__all__ = ["LogRow", "SampledLog"]

POINTS = 192
"""Rows of a part of a log that is sampled; at most twice as many are kept."""

WHOLE = 2**18
"""Bytes up to which what is new in a log is read whole."""

BLOCK = 2**13
"""Bytes that are read to find a row."""

LONGEST = 2**16
"""Bytes of the longest row."""

SCANNED = 2**22
"""Bytes that are searched for evaluations at a time."""

LAST = 8
"""Lines at the end that are always read: the last may be an evaluation's."""

MOST_METRICS = 256
"""Metrics of a row."""


class LogRow(NamedTuple):
    """One row of a log."""

    step: int
    names: tuple[str, ...]
    values: Sequence[float]
    """Finite, one per name."""

    def get(self, name: str) -> float | None:
        """Return a metric; ``None`` if the row has no finite value of it."""
        return self.values[self.names.index(name)] if name in self.names else None


class SampledLog:
    """The rows of a run's log at about evenly spaced places, and those that are appended.

    A long log is not read whole: rows are looked up by position, so that a hundred thousand rows
    take as long as a few hundred. Rows of evaluations are rare and all of them count, so
    :meth:`scan` searches a long log for them, a part at each call. Lines that are damaged are left
    out.

    Args:
        run: a run folder, which may have no log yet.
        points: rows to sample.
    """

    def __init__(self, run: Path, points: int = POINTS) -> None:
        self.run = run
        self.points = points
        self.generation = 0
        """Times that the log was cut or replaced, after which the rows are others."""
        self.train: list[LogRow] = []
        """Rows of the training, by step."""
        self.evaluations: list[LogRow] = []
        """Rows of evaluations, by step."""
        self._files: list[_GrowingFile] = []
        self._names: tuple[str, ...] = ()

    @property
    def metrics(self) -> list[str]:
        """Names of the metrics in the last rows; those of evaluations begin with ``eval/``."""
        found = dict.fromkeys(name for row in self.train[-1:] for name in row.names)
        evaluated = dict.fromkeys(name for row in self.evaluations[-1:] for name in row.names)
        return [*found, *(f"eval/{name}" for name in evaluated)]

    @property
    def updated(self) -> float:
        """When the log was last written, in seconds since 1970; 0: never."""
        return max((file.updated for file in self._files), default=0.0)

    @property
    def scanned(self) -> bool:
        """Whether all evaluations are found."""
        return not any(file.skipped for file in self._files)

    def rows(self, metric: str) -> tuple[list[LogRow], str]:
        """Return the rows that have a metric, and its name in them."""
        kind, _, name = metric.rpartition("/")
        return (self.evaluations if kind == "eval" else self.train), name

    def refresh(self) -> bool:
        """Read what is new and return whether anything is.

        Raises:
            OSError: the log cannot be read.
        """
        if not self._files:
            self._files = _files_of(self.run, self.points)
        news = False
        for file in self._files:
            restarted, lines = file.news()
            if restarted:
                self.generation += 1
                self.train, self.evaluations = [], []
                for other in self._files:
                    other.forget()
                return self.refresh()
            news |= self._add(file, lines)
        return news

    def scan(self) -> bool:
        """Search the next part of what was passed over and return whether evaluations are in it."""
        for file in self._files:
            if file.skipped:
                lines = [line for line in file.passed_over() if b'"eval"' in line[:32]]
                return self._add(file, lines)
        return False

    def _add(self, file: _GrowingFile, lines: Sequence[bytes]) -> bool:
        news = False
        for line in lines:
            kind, row = self._row(file.parse, line)
            if row is None:
                continue
            rows = self.evaluations if kind == "eval" else self.train
            if kind == "eval" and any(known.step == row.step for known in rows):
                continue  # it was sampled before it was found
            rows.append(row)
            news = True
            if len(rows) > 1 and rows[-2].step > row.step:
                rows.sort(key=lambda each: each.step)
            if len(rows) > 2 * self.points:
                del rows[1:-1:2]
        return news

    def _row(self, parse: Callable[[bytes], Any], line: bytes) -> tuple[str, LogRow | None]:
        try:
            found = parse(line)
            kind, step = str(found.pop("kind")), int(found.pop("step"))
            for name in [n for n, value in found.items() if type(value) not in (float, int)]:
                del found[name]
            names, values = tuple(found), array("d", found.values())
            if not math.isfinite(sum(values)):  # one is not, or all are huge
                found = {name: value for name, value in found.items() if math.isfinite(value)}
                names, values = tuple(found), array("d", found.values())
        except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError):
            return "", None
        if len(names) > MOST_METRICS:
            names, values = names[:MOST_METRICS], values[:MOST_METRICS]
        if names == self._names:  # rows share the names of their metrics
            names = self._names
        self._names = names
        return kind, LogRow(step, names, values)


def _parse_json(line: bytes) -> Any:
    return json.loads(line.decode())


class _GrowingFile:
    """Complete lines of a file that somebody else appends to."""

    def __init__(self, run: Path, name: str, parse: Callable[[bytes], Any], points: int) -> None:
        self.parse = parse
        self.updated = 0.0
        self.skipped: list[tuple[int, int]] = []
        """Parts between sampled lines that are not searched yet, as first and last byte."""
        self._run, self._name, self._points = run, name, points
        self._end = 0
        self._known: tuple[int, int, int] | None = None

    def forget(self) -> None:
        """Begin again."""
        self._end, self._known, self.skipped = 0, None, []

    def news(self) -> tuple[bool, list[bytes]]:
        """Return whether the file was cut or replaced, else the lines that are new, or some."""
        try:
            found = os.stat(self._run / self._name)
        except FileNotFoundError:
            return self._known is not None and self._end > 0, []
        state = (found.st_ino, found.st_size, found.st_mtime_ns)
        if state == self._known:
            return False, []
        replaced = self._known is not None and self._known[0] != found.st_ino
        if self._end and (replaced or found.st_size < self._end):
            return True, []
        self._known, self.updated = state, found.st_mtime
        with open_in_run(self._run, self._name) as file:
            stop = _end_of_lines(file, self._end, found.st_size)
            start, self._end = self._end, stop
            if stop - start <= WHOLE:
                file.seek(start)
                return False, file.read(stop - start).splitlines()
            if self.parse is _parse_json:  # the table of evaluations holds nothing else
                self.skipped.append((start, stop))
            return False, list(_sample(file, start, stop, self._points))

    def passed_over(self) -> list[bytes]:
        """Return the lines of the first part that was passed over."""
        start, stop = self.skipped.pop(0)
        with open_in_run(self._run, self._name) as file:
            end = _end_of_lines(file, start, min(start + SCANNED, stop))
            file.seek(start)
            content = file.read(end - start)
        if start < end < stop:
            self.skipped.insert(0, (end, stop))
        # lines of evaluations are few: all others stay in one piece
        return [content[a : content.find(b"\n", a)] for a in _evaluations(content)]


def _files_of(run: Path, points: int) -> list[_GrowingFile]:
    """Return the files of a run's log: JSON lines, else tables, else none."""
    if (run / "metrics.jsonl").is_file():
        return [_GrowingFile(run, "metrics.jsonl", _parse_json, points)]
    tables = {"metrics.csv": "train", "evaluations.csv": "eval"}
    return [
        _GrowingFile(run, name, _table_parser(kind), points)
        for name, kind in tables.items()
        if (run / name).is_file()
    ]


def _table_parser(kind: str) -> Callable[[bytes], dict[str, Any]]:
    """Return a function that makes rows of the lines of a table, of which the first is named."""
    columns: list[str] = []

    def parse(line: bytes) -> dict[str, Any]:
        cells = next(csv.reader([line.decode()]))
        if cells[0] == "step":
            columns[:] = cells
        row = zip(columns, cells, strict=True)
        return {"kind": kind, **{name: float(cell) for name, cell in row if cell}}

    return parse


def _evaluations(content: bytes) -> Iterator[int]:
    """Yield where the lines of evaluations begin."""
    mark = b'{"kind": "eval"'
    place = content.find(mark)
    while place >= 0:
        if place == 0 or content[place - 1] == 10:
            yield place
        place = content.find(mark, place + 1)


def _end_of_lines(file: BinaryIO, start: int, stop: int) -> int:
    """Return where the last complete line between two places ends; ``start`` if there is none."""
    begin = max(start, stop - LONGEST)
    file.seek(begin)
    newline = file.read(stop - begin).rfind(b"\n")
    return begin + newline + 1 if newline >= 0 else start


def _sample(file: BinaryIO, start: int, stop: int, points: int) -> Iterator[bytes]:
    """Yield the first line, the last ones, and those at evenly spaced places between two places."""
    last = -1
    for place in (start + (stop - start) * i // points for i in range(points)):
        begin, line = _line_after(file, place, stop) if place > start else _line_at(file, start)
        if line and begin > last:
            last = begin
            yield line
    file.seek(max(start, stop - LONGEST))
    end = file.read(stop - file.tell()).splitlines(keepends=True)[-LAST:]
    begin = stop - sum(map(len, end))
    for each in end:
        if begin > last:
            yield each
        begin += len(each)


def _line_at(file: BinaryIO, place: int) -> tuple[int, bytes]:
    file.seek(place)
    return place, file.readline(LONGEST).rstrip(b"\n")


def _line_after(file: BinaryIO, place: int, stop: int) -> tuple[int, bytes]:
    """Return the first line that begins after a place, and where it begins."""
    file.seek(place)
    block = file.read(min(BLOCK, stop - place))
    first = block.find(b"\n")
    second = block.find(b"\n", first + 1)
    if 0 <= first < second:
        return place + first + 1, block[first + 1 : second]
    file.seek(place)
    skipped = file.readline(LONGEST)
    begin = place + len(skipped)
    line = file.readline(LONGEST) if begin < stop and skipped.endswith(b"\n") else b""
    return begin, line.rstrip(b"\n")
