"""Calls of reward and preference functions, and checks of what they return."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import rlox
from rlox.errors import ConfigError
from torch import Tensor

from rlox_llm.sampling import Completions

__all__ = ["RewardFunctions", "group_advantages", "preferences"]

RewardFn = Callable[..., Any]


class RewardFunctions:
    """One reward function, or several whose weighted rewards add up.

    A function is called with N whole rows of token ids, prompt and completion, and the prompts
    (N, P) that they begin with. If it names an argument ``completion_ids``, it also gets the
    completions alone.

    Args:
        functions: one or several.
        weights: one per function; ``None`` weighs all with 1.

    Raises:
        TypeError: one cannot be called.
        ConfigError: there is none, or the weights do not fit.
    """

    def __init__(
        self, functions: RewardFn | Sequence[RewardFn], weights: Sequence[float] | None = None
    ) -> None:
        self.functions = [functions] if callable(functions) else list(functions or ())
        if not self.functions:
            raise ConfigError("reward_fn is missing; pass a function of completions and prompts")
        for function in self.functions:
            if not callable(function):
                raise TypeError(f"reward_fn must be callable, got {type(function).__name__}")
        if weights is not None and len(weights) != len(self.functions):
            raise ConfigError(
                f"reward_weights must hold {len(self.functions)} numbers, one for each reward_fn, "
                f"got {len(weights)}"
            )
        self.weights = np.ones(len(self.functions)) if weights is None else np.array(weights)

    def __call__(self, completions: Completions, pad: int) -> npt.NDArray[np.float64]:
        """Return the rewards (N,) of completions.

        A function may return ``None`` for a row, which then counts nothing of it.

        Raises:
            TypeError: a function returns no numbers.
            ValueError: a function returns another number of rewards, one that is not finite, or
                all of them none for one row.
        """
        rows, prompts = completions.rows(pad)
        columns = []
        for function in self.functions:
            extra = {}
            if "completion_ids" in _names(function):
                pairs = zip(completions.tokens, completions.mask, strict=True)
                extra["completion_ids"] = [tokens[mask] for tokens, mask in pairs]
            columns.append(_checked(function, function(rows, prompts, **extra), len(rows)))
        table = np.stack(columns, 1)
        without = np.isnan(table).all(1)
        if without.any():
            raise ValueError(f"completion {int(without.argmax())} got no reward: None of every "
                             "reward_fn")  # fmt: skip
        rewards: npt.NDArray[np.float64] = np.nansum(table * self.weights, 1)
        return rewards


def _names(function: RewardFn) -> Any:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return ()


def _checked(function: RewardFn, rewards: Any, n: int) -> npt.NDArray[np.float64]:
    """Return rewards as float64, NaN for ``None``."""
    name = getattr(function, "__name__", type(function).__name__)
    if isinstance(rewards, Tensor):
        rewards = rewards.detach().cpu().numpy()
    if isinstance(rewards, (str, bytes)) or not hasattr(rewards, "__len__"):
        raise TypeError(
            f"reward_fn '{name}' must return a number for each completion, got "
            f"{type(rewards).__name__}"
        )
    if len(rewards) != n:
        raise ValueError(
            f"reward_fn '{name}' must return {n} rewards, one for each completion, got "
            f"{len(rewards)}"
        )
    found = np.full(n, np.nan)
    for i, reward in enumerate(rewards):
        if reward is None:
            continue
        if isinstance(reward, (str, bytes)):
            raise TypeError(f"reward_fn '{name}' must return numbers, got {reward!r}")
        try:
            found[i] = float(reward)
        except (TypeError, ValueError, RuntimeError):
            raise TypeError(
                f"reward_fn '{name}' must return a number for each completion, got "
                f"{type(reward).__name__}"
            ) from None
        if not np.isfinite(found[i]):
            raise ValueError(
                f"reward_fn '{name}' returned {found[i]} for completion {i}, expected a finite "
                "number, or None to leave the completion out"
            )
    return found


def preferences(
    preference_fn: Callable[[list[tuple[Tensor, Tensor]]], Any],
    pairs: list[tuple[Tensor, Tensor]],
) -> list[int]:
    """Return which row of each pair is better, 0 or 1.

    Raises:
        TypeError: the function returns no list.
        ValueError: it returns another number of answers, or one that is neither 0 nor 1.
    """
    answers = preference_fn(pairs)
    if isinstance(answers, (str, bytes)) or not hasattr(answers, "__len__"):
        raise TypeError(
            f"preference_fn must return a list of 0 and 1, got {type(answers).__name__}"
        )
    if len(answers) != len(pairs):
        raise ValueError(
            f"preference_fn must return {len(pairs)} answers, one for each pair, got {len(answers)}"
        )
    for answer in answers:
        if not (isinstance(answer, (int, np.integer, Tensor)) and answer in (0, 1)):
            raise ValueError(
                "preference_fn must answer 0 if the first row is better, 1 if the second is, got "
                f"{answer!r}"
            )
    return [int(answer) for answer in answers]


def group_advantages(
    rewards: npt.NDArray[np.float64], group_size: int, scale: str, leave_one_out: bool
) -> npt.NDArray[Any]:
    """Return the advantages (N,) of whole groups of completions, with TRL's numbers.

    Args:
        rewards: (N,)
        group_size: completions of each prompt; one alone has an advantage of 0.
        scale: whose sample standard deviation, plus 1e-4, divides deviations from the group's
            mean: that of the ``"group"``, of the ``"batch"``, or ``"none"``.
        leave_one_out: subtract the mean of the others of the group instead, and divide by nothing.
    """
    advantages: Any = rlox.compute_batch_group_advantages
    if leave_one_out:
        return np.asarray(
            advantages(rewards, group_size, scale="none") * (group_size / max(group_size - 1, 1))
        )
    ddof = int(group_size > 1)
    return np.asarray(advantages(rewards, group_size, ddof=ddof, eps=1e-4, scale=scale))
