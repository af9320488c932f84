"""The base of the algorithms that train language models.

The training is counted in gradient steps; an iteration learns from rows, prompts or pairs.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import torch
from rlox.algorithm import Algorithm
from rlox.callbacks import Callback
from rlox.config.model import require_integer
from rlox.config.schedules import Schedules
from rlox.errors import ConfigError
from rlox.evaluation import MAX_STEPS, EvaluationResult
from rlox.logging import LoggerCallback
from rlox.nn import FlatOptimizer
from rlox.training.hooks import Hooks
from rlox.training.loop import run_iteration
from torch import Tensor

from rlox_llm.building import ModuleOrFolder, build_models
from rlox_llm.configs import LanguageConfig
from rlox_llm.generation import complete
from rlox_llm.generators import make_generator
from rlox_llm.option_checks import parse_duration
from rlox_llm.prompts import Prompt, RowOrder, parse_prompts
from rlox_llm.sampling import Completions, Sampling
from rlox_llm.state import (
    load_reference_state,
    load_trained_state,
    reference_state,
    trained_state,
)

__all__ = ["LanguageAlgorithm"]


class LanguageAlgorithm(Algorithm):
    """An algorithm that trains a language model on rows of a dataset, or on rows that it is given.

    A subclass supplies :meth:`parse`, :meth:`iterate`, which learns from :meth:`next_rows`, and
    :meth:`run_episodes`.

    Args:
        model: maps token ids (B, L) to logits (B, L, V), or is a causal model of transformers, or
            the folder of one. Its parameters are trained in place; with ``lora_rank``, those of a
            new adapter are.
        ref_model: the reference, which nothing trains, as module or folder. ``None`` if none is
            needed; or else a model with a LoRA adapter has it switched off, and one from a folder
            is loaded a second time.
        dataset: rows that ``train(n)`` learns from.
        config: the resolved config.
        callbacks: hooks into training.
        logger: receives the metrics.
        tokenizer: one of transformers, for texts and chats; ``None`` takes that of the model's
            folder, if it has one.
        schedules: callables ``gradient_steps -> value`` for ``learning_rate``, not saved.
        with_reference: whether the algorithm needs a reference.
        without_reference: the option that makes it needless, for the error.

    Raises:
        ConfigError: nothing can be trained, the reference is the model, or one is missing.
    """

    step_unit: ClassVar[str] = "gradient_steps"
    counters: ClassVar[tuple[str, ...]] = ("prompts", "completions", "tokens")
    env_required: ClassVar[bool] = False
    length_unit: ClassVar[str] = "tokens"

    def __init__(
        self,
        model: ModuleOrFolder,
        ref_model: ModuleOrFolder | None,
        dataset: Any,
        *,
        config: LanguageConfig,
        callbacks: Iterable[Callback] | Callback | None = None,
        logger: LoggerCallback | None = None,
        tokenizer: Any = None,
        schedules: Mapping[str, Callable[[int], float]] | None = None,
        with_reference: bool = False,
        without_reference: str = "",
    ) -> None:
        super().__init__(None, config=config, callbacks=callbacks, logger=logger)
        cfg = self.config
        self.schedules = Schedules(cfg, schedules)
        built = build_models(
            self.name, model, ref_model, tokenizer, cfg, self.streams,
            with_reference=with_reference, without_reference=without_reference,
        )  # fmt: skip
        self.policy, self.reference = built.policy, built.reference
        self.eos, self.texts, self.pad = built.eos, built.texts, built.pad
        self.model = self.policy.module
        self.ref_model = None if self.reference is None else self.reference.module
        adam = partial(torch.optim.Adam, fused=True)
        optimizer = FlatOptimizer(self.model, adam, max_grad_norm=cfg.max_grad_norm)
        self.optimizers = {"model": optimizer}
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

    @property
    def learning_rate(self) -> float:
        """Adam's step size in the next gradient step."""
        return self.schedules.value("learning_rate", self.clock.steps, self.clock.target)

    @abstractmethod
    def parse(self, rows: Any) -> Sequence[Any]:
        """Return what the user passed as rows of the kind that :meth:`iterate` learns from."""

    def train(
        self, prompts: Any = None, n_epochs: int | None = None, *,
        n_gradient_steps: int | None = None,
    ) -> dict[str, float]:  # fmt: skip
        """Train and return the last iteration's metrics.

        Args:
            prompts: rows to train on, which become the dataset. Or a number of gradient steps over
                the dataset, rounded up to whole iterations.
            n_epochs: how often each row is taken; ``None``: once, if rows are passed. Without any
                of the three arguments, the training that a checkpoint interrupted is finished.
            n_gradient_steps: the number of gradient steps by name.

        Raises:
            ConfigError: there is no dataset.
            TypeError: a number of gradient steps is given with rows or epochs.
            ValueError: a number is not positive, or there is nothing to finish.
        """
        rows, n_epochs, n_gradient_steps = parse_duration(prompts, n_epochs, n_gradient_steps)
        if rows is not None:
            self._use(self.parse(rows))
        if self._order is None:
            raise ConfigError(
                f"'{self.name}' was made without a dataset; pass one as dataset=, or rows to train"
            )
        if n_epochs is not None:
            n_gradient_steps = n_epochs * self._order.iterations * self.steps_per_iteration
        return super().train(n_gradient_steps)

    def step_on(self, rows: Sequence[Any]) -> dict[str, float]:
        """Run one iteration on rows, all of them at once, and return its metrics.

        Callbacks and the logger are called as in a training, without its start and end.

        Raises:
            ConfigError: the learning rate goes on to the end of a training, and none runs.
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
        options = {"deterministic": False, "n_episodes": None, **options}
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
            n_episodes: how many, from the first, and over again; ``None`` takes each once.
            deterministic: take the likeliest tokens instead of sampling.
            seed: fixes the samples; ``None`` takes the run's.
            max_steps: not used: ``max_new_tokens`` bounds a completion.
        """

    def evaluated_rows(self, rows: Any, n_episodes: int | None) -> Sequence[Any]:
        """Return the rows of an evaluation; without any, a ConfigError is raised."""
        found = self._dataset if rows is None else self.parse(rows)
        if found is None:
            raise ConfigError(f"'{self.name}' was made without a dataset; pass rows to evaluate on")
        if n_episodes is None:
            return found
        count = require_integer("n_episodes", n_episodes, at_least=1)
        return [found[i % len(found)] for i in range(count)]

    def evaluation_generator(self, seed: int | None) -> torch.Generator:
        """Return a generator for an evaluation; the training draws nothing from it."""
        if seed is None:
            seed = self.streams.seeds("evaluation", 1)[0]
        return torch.Generator().manual_seed(require_integer("seed", seed, at_least=0))

    def completions(
        self, prompts: Sequence[Prompt], sampling: Sampling, stream: torch.Generator
    ) -> Completions:
        """Return one completion of each prompt by the present policy, sampled in this process."""
        generator = make_generator(getattr(self.config, "sampler", "auto"), self.policy)
        return complete(generator, self.policy, [each.ids for each in prompts], sampling, stream)

    def predict(
        self, obs: Any, deterministic: bool = True, max_new_tokens: int | None = None
    ) -> Tensor:
        """Return whole rows (N, P + T), one completion of each prompt.

        Args:
            obs: prompts.
            deterministic: take the likeliest tokens; a model's own ``generate`` decides itself.
            max_new_tokens: most tokens of a completion; ``None``: the option, 8 if there is none.
        """
        sampling = Sampling.of(self.config, self.eos, deterministic)
        if max_new_tokens is not None:
            n_tokens = require_integer("max_new_tokens", max_new_tokens, at_least=1)
            sampling = replace(sampling, max_new_tokens=n_tokens)
        prompts = parse_prompts(obs, self.policy.device, self.texts)
        return self.completions(prompts, sampling, self.streams.torch("predict")).padded(self.pad)

    def count(self, hooks: Hooks, prompts: int, completions: int, tokens: int) -> None:
        """Report what an iteration learnt from."""
        for name, n in zip(self.counters, (prompts, completions, tokens), strict=True):
            hooks.count(name, n)

    def learning(self) -> ExitStack:
        """Return a context with dropout as configured, drawn from the run's streams."""
        stack = ExitStack()
        stack.enter_context(self.policy.mode(self.config.dropout))
        if self.config.dropout:
            stack.enter_context(self.streams.as_global("dropout"))
        return stack

    def chunks(self, n: int) -> list[slice]:
        """Return the parts of ``n`` rows that are learnt from in one forward pass each."""
        size = self.config.micro_batch_size or max(n, 1)
        return [slice(start, min(start + size, n)) for start in range(0, n, size)]

    def state_dict(self) -> dict[str, Any]:
        """Return what is trained, digests of what is frozen, and the place in the dataset."""
        moves = getattr(self.config, "sync_ref_model", False)
        return {
            "model": trained_state(self.model),
            "reference": reference_state(self.reference, moves=moves),
            "optimizers": {name: opt.state_dict() for name, opt in self.optimizers.items()},
            "order": None if self._order is None else self._order.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned.

        Raises:
            CheckpointError: model, reference or dataset are others.
        """
        load_reference_state(self.reference, state["reference"])
        if state["order"] is not None and self._order is not None:
            self._order.load_state_dict(state["order"])
        load_trained_state(self.model, "model", state["model"])
        for name, optimizer in self.optimizers.items():
            optimizer.load_state_dict(state["optimizers"][name])

    def _use(self, rows: Sequence[Any]) -> None:
        self._dataset = rows
        self._order = RowOrder(len(rows), self.rows_at_once)
