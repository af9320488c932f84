"""Calls of reward and preference functions, and checks of their results."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from rlox.errors import ConfigError, RloxError, suggest
from torch import Tensor, nn

from rlox_llm.generation import Completions
from rlox_llm.tokens import Texts

RewardFn = Callable[..., Any]


class RewardError(RloxError, TypeError, ValueError):
    """A reward or preference function failed, or did not return what it must."""


class RewardFunctions:
    """One reward function, or several with weighted rewards that add up.

    A function is called with N whole rows of token ids, prompt and completion, and their prompts
    (N, P). Further arguments are filled by their names, with one entry per completion:
    ``prompt_ids`` and ``completion_ids``, without padding; ``texts`` of completions; ``row_texts``
    of prompts with completions; and the columns of the dataset. ``**kwargs`` receives all columns.

    Args:
        functions: one or several; may be a transformers sequence classifier, whose only logit is
            the reward.
        weights: one per function; ``None``: all 1.

    Raises:
        TypeError: a function is not callable.
        ConfigError: there is none, one does not take rows and prompts, or the weights do not fit.
    """

    def __init__(
        self, functions: RewardFn | Sequence[RewardFn], weights: Sequence[float] | None = None
    ) -> None:
        given = [functions] if callable(functions) else list(functions or ())
        if not given:
            raise ConfigError("reward_fn is missing; pass a function of completions and prompts")
        for function in given:
            if not callable(function):
                raise TypeError(f"reward_fn must be callable, got {type(function).__name__}")
            _require_two_arguments(function)
        self.functions = [
            ClassifierReward(each) if isinstance(each, nn.Module) else each for each in given
        ]
        if weights is not None and len(weights) != len(self.functions):
            raise ConfigError(
                f"reward_weights must hold {len(self.functions)} numbers, one for each reward_fn, "
                f"got {len(weights)}"
            )
        self.weights = np.ones(len(self.functions)) if weights is None else np.array(weights)

    def __call__(
        self,
        completions: Completions,
        pad: int,
        columns: Sequence[Mapping[str, Any]] = (),
        texts: Texts | None = None,
    ) -> npt.NDArray[np.float64]:
        """Return the rewards (N,) of completions, NaN for those without any reward.

        A function may return ``None`` for a row, to which it then adds nothing.

        Args:
            completions: N completions.
            pad: padding token for shorter prompts.
            columns: N rows of the dataset, by column; empty without columns.
            texts: turns token ids into texts.

        Raises:
            ConfigError: a function has an argument for missing texts or columns.
            RewardError: a function fails, returns another number of rewards, or one that is not
                finite, or no completion got a reward.
        """
        rows, prompts = completions.rows(pad)
        lengths = completions.lengths.tolist()
        ids = [row[:n].clone() for row, n in zip(completions.tokens, lengths, strict=True)]
        found = []
        for function in self.functions:
            extra = _asked_for(function, (completions.prompts, ids), columns, texts or Texts(None))
            rewards = _called("reward_fn", function, rows, prompts, **extra)
            found.append(_checked(function, rewards, len(rows)))
        table = np.stack(found, 1)
        without = np.isnan(table).all(1)
        if without.all():
            raise RewardError(
                "no completion got a reward: every reward_fn returned None for all of them"
            )
        return np.where(without, np.nan, np.nansum(table * self.weights, 1))


class ClassifierReward:
    """A transformers sequence classifier as a reward function: its only logit is the reward.

    Args:
        model: gets the trained model's token ids, unless there is a tokenizer.
        tokenizer: the classifier's own, if its token ids differ; it then reads the texts of rows.

    Raises:
        ConfigError: the classifier has more or less than one logit.
    """

    def __init__(self, model: nn.Module, tokenizer: Any = None) -> None:
        config: Any = getattr(model, "config", None)
        if getattr(config, "num_labels", None) != 1:
            raise ConfigError(
                "a model that rewards completions must be a sequence classifier with "
                f"num_labels=1, got {type(model).__name__} with "
                f"{getattr(config, 'num_labels', 'no')} labels"
            )
        self.model = model
        self.tokenizer = tokenizer
        self.__name__ = type(model).__name__

    @torch.no_grad()
    def __call__(
        self,
        completions: Sequence[Tensor],
        prompts: Tensor,
        prompt_ids: Sequence[Tensor],
        completion_ids: Sequence[Tensor],
        row_texts: Sequence[str] | None = None,
    ) -> Tensor:
        """Return the rewards (N,) of prompts with their completions."""
        was = self.model.training
        device = next(self.model.parameters()).device
        if self.tokenizer is None:
            rows = [torch.cat(pair) for pair in zip(prompt_ids, completion_ids, strict=True)]
        else:
            read = [self.tokenizer(text)["input_ids"] for text in row_texts or ()]
            rows = [torch.tensor(ids) for ids in read]
        self.model.eval()
        try:  # one by one: classifiers differ in finding the last token of a padded row
            logits = [self.model(row[None].to(device)).logits.reshape(1) for row in rows]
        finally:
            self.model.train(was)
        return torch.cat(logits).float()


def _called(what: str, function: Callable[..., Any], *arguments: Any, **extra: Any) -> Any:
    """Call a user's function; an error names the place in its file."""
    try:
        return function(*arguments, **extra)
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)[1:]
        own = [frame for frame in frames if frame.filename == frames[0].filename]
        place = f" in {own[-1].filename}, line {own[-1].lineno}: {own[-1].line}" if own else ""
        raise RewardError(
            f"{what} '{_name(function)}' raised {type(error).__name__}: {error}{place}"
        ) from error


def _asked_for(
    function: RewardFn,
    parts: tuple[Sequence[Tensor], Sequence[Tensor]],
    columns: Sequence[Mapping[str, Any]],
    texts: Texts,
) -> dict[str, Any]:
    """Return a function's arguments after rows and prompts, by name.

    Args:
        function: the function.
        parts: prompts and completions, without padding.
        columns: columns of the dataset.
        texts: turns token ids into texts.

    Raises:
        ConfigError: an argument without a default is not a column, or one is in the prompts' place.
    """
    known = [name for name in columns[0] if all(name in row for row in columns)] if columns else []
    given: dict[str, Any] = {}
    if len(names := [*_names(function)]) > 1 and names[1] in known and names[1] != "prompt":
        raise _misplaced(function)
    for parameter in list(_names(function).values())[2:]:
        name = parameter.name
        if parameter.kind is parameter.VAR_KEYWORD:
            given |= {c: [row[c] for row in columns] for c in known if c not in given}
        elif name in ("prompt_ids", "completion_ids"):
            given[name] = list(parts[name == "completion_ids"])
        elif name == "texts":
            given[name] = [texts.text(row.tolist()) for row in parts[1]]
        elif name == "row_texts" and texts.tokenizer is not None:
            rows = zip(*parts, strict=True)
            given[name] = [texts.text(torch.cat(row).tolist()) for row in rows]
        elif name in known:
            given[name] = [row[name] for row in columns]
        elif (
            parameter.default is parameter.empty and parameter.kind is not parameter.VAR_POSITIONAL
        ):
            raise ConfigError(
                f"reward_fn '{_name(function)}' asks for '{name}', which the dataset does not "
                f"have; its columns are {', '.join(known) or 'none'}{suggest(name, known)}"
            )
    return given


def _name(function: RewardFn) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


def _names(function: RewardFn) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}


def _require_two_arguments(function: RewardFn) -> None:
    """Check that a function takes rows, then prompts by position, unlike TRL's.

    Raises:
        ConfigError: it does not.
    """
    parameters = _names(function).values()
    if not parameters:
        return  # a builtin without a signature
    first = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    takes_any = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    if (
        (len(first) < 2 and not takes_any)
        or first[:1] == ["prompts"]
        or first[1:2] == ["completions"]
    ):
        raise _misplaced(function)


def _misplaced(function: RewardFn) -> ConfigError:
    return ConfigError(
        f"reward_fn '{_name(function)}' must take (completions, prompts, ...) in this order, "
        "whole rows of token ids and their prompts, got "
        f"({', '.join(map(str, _names(function).values()))}); for texts of completions alone, as "
        f"in TRL, write def {_name(function)}(completions, prompts, texts)"
    )


def _checked(function: RewardFn, rewards: Any, n: int) -> npt.NDArray[np.float64]:
    """Return rewards as float64, NaN for ``None``."""
    name = f"reward_fn '{_name(function)}'"
    if isinstance(rewards, (Tensor, np.ndarray)):
        if rewards.shape != (n,):
            raise RewardError(
                f"{name} must return {n} rewards, one for each completion, got the shape "
                f"{tuple(rewards.shape)}"
            )
        rewards = rewards.tolist()
    wrong = f"{name} must return a number for each completion, got "
    if not _is_listed(rewards):
        raise RewardError(wrong + type(rewards).__name__)
    if len(rewards) != n:
        raise RewardError(
            f"{name} must return {n} rewards, one for each completion, got {len(rewards)}"
        )
    found = np.full(n, np.nan)
    for i, reward in enumerate(rewards):
        if reward is None:
            continue
        if isinstance(reward, (str, bytes)):
            raise RewardError(f"{wrong}{reward!r}")
        try:
            found[i] = float(reward)
        except (TypeError, ValueError, RuntimeError):
            raise RewardError(wrong + type(reward).__name__) from None
        if not np.isfinite(found[i]):
            raise RewardError(
                f"{name} returned {found[i]} for completion {i}, expected a finite number, or None "
                "to leave the completion out"
            )
    return found


def _is_listed(answers: Any) -> bool:
    """Return whether answers are ordered; a set is not, and a dict would yield its keys."""
    others = str, bytes, bytearray, Mapping, Set
    return hasattr(answers, "__len__") and not isinstance(answers, others)


def preferences(
    preference_fn: Callable[[list[tuple[Tensor, Tensor]]], Any], pairs: list[tuple[Tensor, Tensor]]
) -> list[int]:
    """Return the index of each pair's better row, 0 or 1.

    Raises:
        RewardError: the function fails, returns no list or another number of answers, or one that
            is neither 0 nor 1.
    """
    answers = _called("preference_fn", preference_fn, pairs)
    if not _is_listed(answers):
        raise RewardError(
            f"preference_fn must return a list of 0 and 1, got {type(answers).__name__}"
        )
    if len(answers) != len(pairs):
        raise RewardError(
            f"preference_fn must return {len(pairs)} answers, one for each pair, got {len(answers)}"
        )
    for answer in answers:
        if not (isinstance(answer, (int, np.integer, np.bool_, Tensor)) and answer in (0, 1)):
            raise RewardError(
                "preference_fn must answer 0 if the first row is better, 1 if the second is, got "
                f"{answer!r}"
            )
    return [int(answer) for answer in answers]
