"""The base of the algorithms that train language models.

The training is counted in gradient steps. What an iteration learns from are rows: prompts, or pairs
of completions.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from numbers import Integral
from typing import Any, ClassVar, cast

import torch
from rlox.algorithm import Algorithm
from rlox.callbacks import Callback
from rlox.errors import ConfigError
from rlox.evaluation import MAX_STEPS, EvaluationResult
from rlox.logging import LoggerCallback
from rlox.nn import FlatOptimizer, module_digest, require_digest
from rlox.training.loop import run_iteration
from rlox.validation import require_integer
from torch import nn

from rlox_llm.configs import LanguageConfig
from rlox_llm.models import CausalModel
from rlox_llm.prompts import RowOrder
from rlox_llm.state import load_trained_state, trained_state

__all__ = ["LanguageAlgorithm"]

COUNTERS = ("prompts", "completions", "tokens")


class LanguageAlgorithm(Algorithm):
    """An algorithm that trains a language model on rows of a dataset, or on rows that it is given.

    A subclass supplies :meth:`parse`, :meth:`iterate`, which learns from :meth:`next_rows`, and
    :meth:`run_episodes`.

    Args:
        model: maps token ids (B, L) to logits (B, L, V), or is a causal model of transformers. Its
            parameters are trained in place.
        ref_model: the reference, which nothing trains; ``None`` if none is needed.
        dataset: rows that ``train(n)`` learns from.
        config: the resolved config.
        callbacks: hooks into training.
        logger: receives the metrics.

    Raises:
        ConfigError: nothing can be trained, or the reference is the model.
    """

    step_unit: ClassVar[str] = "gradient_steps"
    env_required: ClassVar[bool] = False

    def __init__(
        self,
        model: nn.Module,
        ref_model: nn.Module | None,
        dataset: Any,
        *,
        config: LanguageConfig,
        callbacks: Iterable[Callback] | Callback | None = None,
        logger: LoggerCallback | None = None,
    ) -> None:
        self.policy = CausalModel(model, "model")
        self.reference = None if ref_model is None else CausalModel(ref_model, "ref_model")
        trainable = [p for p in model.parameters() if p.requires_grad]
        if not trainable:
            raise ConfigError("the model has no parameter with requires_grad; nothing would learn")
        if ref_model is not None:
            theirs = {id(p) for p in ref_model.parameters()}
            if ref_model is model or any(id(p) in theirs for p in trainable):
                raise ConfigError(
                    "ref_model shares its parameters with model and would move with it; pass "
                    "copy.deepcopy(model)"
                )
        super().__init__(None, config=config, callbacks=callbacks, logger=logger)
        cfg: LanguageConfig = self.config
        self.model = model
        self.ref_model = ref_model
        self.eos = self.policy.eos if cfg.eos_token_id is None else _tuple(cfg.eos_token_id)
        adam = partial(torch.optim.Adam, fused=True)
        self.optimizers = {"model": FlatOptimizer(model, adam, max_grad_norm=cfg.max_grad_norm)}
        self.counts = dict.fromkeys(COUNTERS, 0)
        """Prompts, completions and their tokens learnt from so far."""
        self._given: Sequence[Any] | None = None
        self._dataset: Sequence[Any] | None = None
        self._order: RowOrder | None = None
        if dataset is not None:
            self._use(self.parse(dataset))

    @property
    @abstractmethod
    def rows_at_once(self) -> int:
        """Most rows of one iteration."""

    @property
    def steps_per_iteration(self) -> int:
        """Gradient steps of one iteration."""
        return 1

    @abstractmethod
    def parse(self, rows: Any) -> Sequence[Any]:
        """Return what the user passed as rows of the kind that :meth:`iterate` learns from."""

    @property
    def pad(self) -> int:
        """Token that fills rows up for callbacks: the config's, the model's, the first EOS, or 0.

        0 is only taken if nothing needs filling up or masks say what it is.
        """
        if self.config.pad_token_id is not None:
            return int(self.config.pad_token_id)
        if self.policy.pad is not None:
            return self.policy.pad
        return self.eos[0] if self.eos else 0

    def train(
        self, prompts: Any = None, n_epochs: int = 1, *, n_gradient_steps: int | None = None
    ) -> dict[str, float]:
        """Train and return the last iteration's metrics.

        Args:
            prompts: rows to train on, ``n_epochs`` times each; they become the dataset. Or a
                number of gradient steps over the constructor's dataset, rounded up to whole
                iterations. ``None`` finishes the training that a checkpoint interrupted.
            n_epochs: how often each row is taken.
            n_gradient_steps: the number of gradient steps by name.

        Raises:
            ConfigError: there is no dataset.
            TypeError: rows and a number of gradient steps are given.
            ValueError: a number is not positive, or there is nothing to finish.
        """
        if isinstance(prompts, Integral):
            if n_gradient_steps is not None:
                raise TypeError("the number of gradient steps is given twice; leave one out")
            n_gradient_steps = require_integer("n_gradient_steps", prompts, at_least=1)
            prompts = None
        if prompts is not None:
            if n_gradient_steps is not None:
                raise TypeError(
                    f"n_gradient_steps={n_gradient_steps} is for the constructor's dataset; "
                    "with rows to train on pass n_epochs="
                )
            n_epochs = require_integer("n_epochs", n_epochs, at_least=1)
            order = self._use(self.parse(prompts))
            n_gradient_steps = n_epochs * order.iterations * self.steps_per_iteration
        if self._dataset is None:
            raise ConfigError(
                f"'{self.name}' was made without a dataset; pass one as dataset=, or rows to train"
            )
        return super().train(n_gradient_steps)

    def step_on(self, rows: Sequence[Any]) -> dict[str, float]:
        """Run one iteration on rows, all of them at once, and return its metrics.

        Callbacks and the logger are called as in a training, without its start and end.

        Raises:
            RuntimeError: the algorithm is closed.
        """
        if self._closed:
            raise RuntimeError(f"this '{self.name}' was closed; train before close()")
        self._given = rows
        try:
            return run_iteration(self)
        finally:
            self._given = None

    def next_rows(self) -> Sequence[Any]:
        """Return the rows of this iteration."""
        if self._given is not None:
            return self._given
        assert self._order is not None
        assert self._dataset is not None
        chosen = self._order.next(self.streams.numpy("rows"))
        return [self._dataset[index] for index in chosen]

    def evaluate(self, prompts: Any = None, **options: Any) -> float:  # type: ignore[override]
        """Return the mean return over rows, see :meth:`run_episodes`; nothing is learnt.

        Args:
            prompts: rows; ``None`` takes the dataset's.
            options: of :meth:`run_episodes`.
        """
        options.setdefault("deterministic", False)
        options.setdefault("n_episodes", None)
        return self.run_episodes(prompts, **options).mean_return

    @abstractmethod
    def run_episodes(
        self,
        env: Any = None,
        *,
        n_episodes: int | None = 10,
        deterministic: bool = True,
        seed: int | None = None,
        max_steps: int = MAX_STEPS,
    ) -> EvaluationResult:
        """Return the return of each row, and its length in tokens, without learning.

        Args:
            env: rows; ``None`` takes the dataset's.
            n_episodes: how many of them, from the first, and over again if they are fewer;
                ``None`` takes each once.
            deterministic: take the likeliest tokens instead of sampling.
            seed: fixes the samples; ``None`` takes the run's.
            max_steps: not used: ``max_new_tokens`` bounds a completion.
        """

    def evaluated_rows(self, rows: Any, n_episodes: int | None) -> Sequence[Any]:
        """Return the rows of an evaluation.

        Raises:
            ConfigError: there are none.
        """
        found = self._dataset if rows is None else self.parse(rows)
        if found is None:
            raise ConfigError(f"'{self.name}' was made without a dataset; pass rows to evaluate on")
        if n_episodes is None:
            return found
        count = require_integer("n_episodes", n_episodes, at_least=1)
        return [found[i % len(found)] for i in range(count)]

    def evaluation_generator(self, seed: int | None) -> torch.Generator:
        """Return a generator for an evaluation; the training draws nothing from it."""
        generator = torch.Generator()
        generator.manual_seed(
            self.streams.seeds("evaluation", 1)[0]
            if seed is None
            else require_integer("seed", seed, at_least=0)
        )
        return generator

    def learning(self) -> ExitStack:
        """Return a context with dropout as configured, drawn from the run's streams."""
        stack = ExitStack()
        stack.enter_context(self.policy.mode(self.config.dropout))
        if self.config.dropout:
            stack.enter_context(self.streams.as_global("dropout"))
        return stack

    def chunks(self, n: int) -> list[slice]:
        """Return the parts of ``n`` rows that are learnt from in one forward pass each."""
        size = self.config.micro_batch_size or n
        return [slice(start, min(start + size, n)) for start in range(0, n, size)]

    def state_dict(self) -> dict[str, Any]:
        """Return what is trained, digests of what is frozen, and the place in the dataset."""
        reference = None if self.ref_model is None else module_digest(self.ref_model)
        return {
            "model": trained_state(self.model),
            "reference": reference,
            "optimizers": {name: opt.state_dict() for name, opt in self.optimizers.items()},
            "counts": dict(self.counts),
            "order": None if self._order is None else self._order.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned.

        Raises:
            CheckpointError: model, reference or dataset are others.
        """
        if state["reference"] is not None and self.ref_model is not None:
            require_digest(self.ref_model, "ref_model", state["reference"])
        if state["order"] is not None and self._order is not None:
            self._order.load_state_dict(state["order"])
        load_trained_state(self.model, "model", state["model"])
        for name, optimizer in self.optimizers.items():
            optimizer.load_state_dict(state["optimizers"][name])
        self.counts = {name: int(state["counts"][name]) for name in COUNTERS}

    def _use(self, rows: Sequence[Any]) -> RowOrder:
        self._dataset = rows
        self._order = RowOrder(len(rows), self.rows_at_once)
        return self._order


def _tuple(ids: int | tuple[int, ...]) -> tuple[int, ...]:
    return (ids,) if isinstance(ids, int) else cast("tuple[int, ...]", tuple(ids))
