"""Rows of datasets and files, prompts as token ids, and their order in training."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rlox.errors import CheckpointError, DatasetError, import_extra
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from rlox_llm.models import CausalModel
from rlox_llm.tokens import Texts, is_chat

LINES = (".jsonl", ".json", ".ndjson")


@dataclass(frozen=True, eq=False)
class Prompt:
    """A prompt with its dataset's columns."""

    ids: Tensor
    """(L,) token ids."""
    columns: Mapping[str, Any] = field(default_factory=dict)
    """The columns of its row by name, for reward functions."""


def parse_prompts(rows: Any, device: torch.device, texts: Texts) -> list[Prompt]:
    """Return prompts.

    Args:
        rows: rows for :func:`parse_rows`; texts or chats; mappings with one of these as ``prompt``,
            and further columns; or a path or dataset of such mappings, see
            :func:`read_rows`.
        device: device of the token ids.
        texts: turns texts and chats into token ids.

    Raises:
        ConfigError: a text has no tokenizer.
        DatasetError: the file cannot be read, or a row has no prompt.
        TypeError: something else was passed.
        ValueError: there is no prompt, or an empty one.
    """
    rows = read_rows(rows)
    listed = isinstance(rows, Sequence) and not isinstance(rows, str) and len(rows) > 0
    if listed and any(isinstance(row, (str, Mapping)) or is_chat(row) for row in rows):
        found = []
        for i, row in enumerate(rows):
            columns = row if isinstance(row, Mapping) else {"prompt": row}
            require_columns(f"prompts[{i}]", columns, ("prompt",))
            given = columns["prompt"]
            ids = texts.prompt(f"prompts[{i}]", given)
            # a tokenizer adds no padding here
            filled = texts if ids is given else None
            found.append(Prompt(token_row(f"prompts[{i}]", ids, device, filled), dict(columns)))
        return found
    return [Prompt(row) for row in parse_rows("prompts", rows, device, texts)]


def require_columns(what: str, row: Mapping[str, Any], names: Sequence[str]) -> None:
    """Check that a row has all columns.

    Raises:
        DatasetError: a column is missing, or holds ``None``.
    """
    for name in names:
        if name not in row:
            raise DatasetError(
                f"{what} must have the columns {', '.join(names)}, got {_listed(row)}"
            )
        if row[name] is None:
            raise DatasetError(f"{what} has None as its {name}; fill it in or leave the row out")


def listed_rows(what: str, rows: Any) -> Sequence[Any]:
    """Return the rows of a dataset of completions; see :func:`read_rows`.

    Raises:
        TypeError: they are not listed.
        ValueError: there is none.
    """
    rows = read_rows(rows)
    if not isinstance(rows, Sequence):
        raise TypeError(
            f"{what} must be a list, or the path of a JSONL or Parquet file, got "
            f"{type(rows).__name__}"
        )
    if not rows:
        raise ValueError(f"{what} must hold at least one row, got none")
    return rows


def parse_completions(
    what: str, row: Any, columns: Sequence[str], device: torch.device, texts: Texts
) -> list[Tensor]:
    """Return the token ids of a row's prompt, and of the completions in ``columns``.

    Raises:
        ConfigError: a text has no tokenizer.
        DatasetError: a column is missing, or holds ``None``.
        TypeError: the row is not a mapping.
        ValueError: prompt or completion is empty.
    """
    if not isinstance(row, Mapping):
        names = f"{', '.join(('prompt', *columns[:-1]))} and {columns[-1]}"
        raise TypeError(f"{what} must be a mapping with {names}, got {type(row).__name__}")
    require_columns(what, row, ("prompt", *columns))
    prompt = row["prompt"]
    parts = {"prompt": texts.prompt(f"{what} prompt", prompt)} | {
        name: texts.completion(f"{what} {name}", prompt, row[name]) for name in columns
    }
    found = []
    for name, ids in parts.items():
        filled = texts if ids is row[name] else None
        completion = name != "prompt"
        found.append(token_row(f"{what} {name}", ids, device, filled, completion=completion))
    return found


def require_fit(
    model: CausalModel,
    what: str,
    prompt: Tensor,
    completions: Sequence[Tensor] = (),
    max_new_tokens: int = 0,
) -> None:
    """Check that a row fits a model.

    Args:
        model: the model.
        what: the row's name in errors.
        prompt: token ids (L,).
        completions: token ids of each.
        max_new_tokens: maximum number of sampled tokens after the prompt.

    Raises:
        DatasetError: a token is not in the vocabulary, or the row is longer than the context.
    """
    highest = max(int(part.max()) for part in (prompt, *completions))
    if model.vocabulary is not None and highest >= model.vocabulary:
        raise DatasetError(
            f"{what} holds the token id {highest}, which lies outside the vocabulary of the "
            f"{model.name}, {model.vocabulary} tokens; use the model's tokenizer"
        )
    length = len(prompt) + max(map(len, completions), default=0)
    if model.context is not None and length + max_new_tokens > model.context:
        sampled = f" with max_new_tokens={max_new_tokens}" if max_new_tokens else ""
        raise DatasetError(
            f"{what} has {length} tokens, which{sampled} pass the context of the {model.name}, "
            f"{model.context} tokens; shorten it or leave it out"
        )


def _listed(row: Mapping[str, Any]) -> str:
    return ", ".join(map(str, row)) or "none"


def fitting_prompts(
    rows: Any, model: CausalModel, texts: Texts, max_new_tokens: int
) -> list[Prompt]:
    """Return prompts with equal columns that leave a model room for ``max_new_tokens`` tokens.

    Raises:
        DatasetError: columns differ; see also :func:`require_fit` and :func:`parse_prompts`.
    """
    found = parse_prompts(rows, model.device, texts)
    for i, prompt in enumerate(found):
        if set(prompt.columns) != set(found[0].columns):
            raise DatasetError(
                f"prompts[{i}] has the columns {_listed(prompt.columns)}, and prompts[0] "
                f"{_listed(found[0].columns)}; give all rows the same"
            )
        require_fit(model, f"prompts[{i}]", prompt.ids, max_new_tokens=max_new_tokens)
    return found


def parse_rows(
    what: str, rows: Any, device: torch.device, texts: Texts | None, *, completion: bool = False
) -> list[Tensor]:
    """Return rows of token ids of any lengths, (L_i,) each.

    Args:
        what: the rows' name in errors.
        rows: token ids (N, L); sequences of token ids; or a tokenizer's ``input_ids`` with
            ``attention_mask``, padded on either side.
        device: device of the rows.
        texts: knows the padding token.
        completion: whether the rows are completions.

    Raises:
        TypeError: the rows are not integers.
        ValueError: there is no row, an empty one, or a negative id.
    """
    given = rows if isinstance(rows, Mapping) else {}
    if "input_ids" in given:
        ids = torch.as_tensor(given["input_ids"])
        kept = torch.as_tensor(given.get("attention_mask", torch.ones_like(ids))).bool()
        if kept.shape != ids.shape:
            raise ValueError(
                f"attention_mask must have shape {tuple(ids.shape)} like input_ids, got "
                f"{tuple(kept.shape)}"
            )
        rows = [row[mask] for row, mask in zip(ids, kept, strict=True)]
        texts = texts if "attention_mask" not in given else None
    if isinstance(rows, (Tensor, np.ndarray)) and rows.ndim != 2:
        raise ValueError(
            f"{what} must have shape (N, L), got {tuple(rows.shape)}; pass one row as (1, L)"
        )
    if isinstance(rows, str) or not isinstance(rows, (Sequence, Tensor, np.ndarray)):
        raise TypeError(
            f"{what} must be token ids (N, L) or a list of rows of them, got {type(rows).__name__}"
            "; tokenize texts first"
        )
    if len(rows) == 0:
        raise ValueError(f"{what} must hold at least one row, got none")
    return [
        token_row(f"{what}[{i}]", row, device, texts, completion=completion)
        for i, row in enumerate(rows)
    ]


def token_row(
    what: str, row: Any, device: torch.device, texts: Texts | None, *, completion: bool = False
) -> Tensor:
    """Return one row of token ids (L,), without padding known to ``texts``.

    Raises:
        TypeError: the row is not of integers.
        ValueError: the row is empty or not flat, or an id is negative.
    """
    if isinstance(row, str):
        raise TypeError(f"{what} must hold token ids, got text; use a tokenizer first")
    array = row if isinstance(row, Tensor) else torch.as_tensor(np.asarray(row).astype(np.int64)
        if np.asarray(row).dtype.kind == "u" else np.asarray(row))  # fmt: skip
    if array.dim() != 1:
        raise ValueError(f"{what} must have 1 dimension, got {array.dim()}")
    array = array if texts is None else texts.without_filling(array, completion=completion)
    if not array.numel():
        raise ValueError(f"{what} is empty; a row needs at least one token, such as a BOS")
    if array.is_floating_point() or array.dtype in (torch.bool, torch.complex64):
        raise TypeError(f"{what} must be integers, got dtype {array.dtype}")
    if int(array.min()) < 0:
        raise ValueError(f"{what} must hold ids from 0 on, got {int(array.min())}")
    return array.to(device, torch.long)


def padded_prompts(rows: Sequence[Tensor], pad: int) -> Tensor:
    """Return rows of token ids padded on the left, (N, P)."""
    turned = [row.flip(0) for row in rows]
    return pad_sequence(turned, batch_first=True, padding_value=pad).flip(1)


def padded_completions(rows: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Return rows of token ids padded on the right (N, T), and the mask of real tokens."""
    tokens = pad_sequence(list(rows), batch_first=True)
    lengths = torch.tensor([len(row) for row in rows], device=tokens.device)
    return tokens, torch.arange(tokens.shape[1], device=tokens.device) < lengths[:, None]


def read_rows(rows: Any) -> Any:
    """Return the rows of a file or of a dataset as a list of mappings; other rows unchanged.

    Args:
        rows: the path of a JSONL file (``.jsonl``, ``.json``), of a Parquet file (``.parquet``) or
            of a folder saved by ``datasets``; a ``datasets.Dataset``; or other rows.

    Raises:
        DatasetError: the file does not exist, or cannot be read.
        MissingDependencyError: reading it needs ``datasets``, which is not installed.
    """
    if isinstance(rows, (str, Path)):
        return _read(Path(rows))
    if hasattr(rows, "column_names") and not isinstance(rows, (Mapping, Sequence)):
        return list(rows)
    return rows


def _read(path: Path) -> list[Any]:
    if not path.exists():
        raise DatasetError(
            f"dataset '{path}' does not exist; expected the path of a JSONL or Parquet file; put a "
            "single text into a list"
        )
    try:
        read = _lines if path.is_file() and path.suffix in LINES else _with_datasets
        found = read(path)
    except (OSError, ValueError) as error:
        raise DatasetError(f"'{path}' is not a JSONL or Parquet file: {error}") from None
    for i, row in enumerate(found):
        if not isinstance(row, Mapping):
            raise DatasetError(
                f"row {i} of '{path}' is {type(row).__name__}, expected a JSON object in each line"
            )
    return found


def _lines(path: Path) -> list[Any]:
    """Return the lines' objects; str.splitlines() would also split at characters within texts."""
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8-sig").split("\n"), 1):
        if line.strip():
            try:
                found.append(json.loads(line))
            except ValueError as error:
                raise ValueError(f"line {number}: {error}") from None
    return found


def _with_datasets(path: Path) -> list[Any]:
    datasets = import_extra("datasets", f"the dataset '{path}'", "hf")
    if path.is_dir():
        return list(datasets.load_from_disk(str(path)))
    if path.suffix != ".parquet":
        raise ValueError(f"its name ends in '{path.suffix}', not in .jsonl or .parquet")
    with tempfile.TemporaryDirectory() as cache:
        return list(datasets.Dataset.from_parquet(str(path), cache_dir=cache, keep_in_memory=True))


class RowOrder:
    """Order of rows in training: unchanged if all fit at once, else a new permutation each epoch.

    Args:
        n_rows: number of rows.
        at_once: number of rows in one iteration.
    """

    def __init__(self, n_rows: int, at_once: int) -> None:
        self.n_rows = n_rows
        self.at_once = at_once
        self._permutation = np.zeros(0, np.int64)
        self._taken = 0

    @property
    def iterations(self) -> int:
        """Iterations of one epoch."""
        return -(-self.n_rows // self.at_once)

    def next(self, generator: np.random.Generator) -> list[int]:
        """Return the indices of the next rows; an epoch's last call may return fewer."""
        if self.n_rows <= self.at_once:
            return list(range(self.n_rows))
        if self._taken >= len(self._permutation):
            self._permutation, self._taken = generator.permutation(self.n_rows), 0
        indices = self._permutation[self._taken : self._taken + self.at_once]
        self._taken += len(indices)
        return [int(index) for index in indices]

    def state_dict(self) -> dict[str, Any]:
        """Return the place in the epoch."""
        return {"n_rows": self.n_rows, "taken": self._taken, "permutation": self._permutation}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the place in the epoch.

        Raises:
            CheckpointError: the number of rows differs.
        """
        if int(state["n_rows"]) != self.n_rows:
            raise CheckpointError(
                f"the interrupted training had a dataset of {state['n_rows']} rows, got one of "
                f"{self.n_rows}; pass the same dataset="
            )
        self._permutation = np.asarray(state["permutation"], np.int64)
        self._taken = int(state["taken"])
