"""The frames of the algorithms that train language models.

The training is counted in gradient steps; an iteration learns from rows, prompts or pairs.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import Any, ClassVar

import torch
from rlox.algorithm import Algorithm
from rlox.callbacks import Callback
from rlox.config.model import Config, require_integer, resolve_config
from rlox.config.schedules import Schedules
from rlox.envs.evaluation import MAX_STEPS, EvaluationResult
from rlox.errors import ConfigError
from rlox.logging import LoggerCallback
from rlox.nn import FlatOptimizer, load_parts_state, parts_state
from rlox.training.hooks import Hooks
from rlox.training.loop import run_iteration
from torch import Tensor

from rlox_llm.building import ModuleOrFolder, make_model, make_reference
from rlox_llm.generation import Completions, Generator, Sampling, complete
from rlox_llm.generators import make_generator
from rlox_llm.models import CausalModel
from rlox_llm.prompts import Prompt, RowOrder, fitting_prompts, parse_prompts
from rlox_llm.state import load_reference_state, load_trained_state, reference_state, trained_state


class LanguageAlgorithm(Algorithm):
    """An algorithm that trains a language model on rows of a dataset, or on rows passed to it.

    A subclass supplies :meth:`parse`, :meth:`iterate`, which learns from :meth:`next_rows`, and
    :meth:`judge`.

    Args:
        model: a module from token ids (B, L) to logits (B, L, V), a transformers causal model, or
            the folder of one. Its parameters are trained in place; with ``lora_rank``, only those
            of a new adapter.
        dataset: rows for ``train(n)``.
        tokenizer: a transformers tokenizer for texts and chats; ``None``: from the model's folder,
            if it has one.
        schedules: callables ``gradient_steps -> value`` for ``learning_rate``, not saved.
        config: an object of the algorithm's config class, a mapping, or the path of a YAML or JSON
            file.
        callbacks: hooks into training.
        logger: receives the metrics.
        options: the arguments of :attr:`takes` and :attr:`functions`, and options of the config,
            which override ``config``. ``ref_model`` is the reference, a module or folder that is
            not trained. If one is needed and not given, it is the model with its LoRA adapter
            switched off, or a second copy loaded from the model's folder.

    Raises:
        ConfigError: an option is unknown or out of range, nothing can be trained, the reference is
            the model, or a needed argument is missing.
    """

    step_unit: ClassVar[str] = "gradient_steps"
    counters: ClassVar[tuple[str, ...]] = ("prompts", "completions", "tokens")
    env_required: ClassVar[bool] = False
    length_unit: ClassVar[str] = "tokens"
    takes: ClassVar[tuple[str, ...]] = ("ref_model",)
    """Further arguments of the constructor."""
    functions: ClassVar[Mapping[str, str]] = {}
    """Required functions by argument, with descriptions for the error."""
    rows_option: ClassVar[str] = "batch_size"
    """The option for the maximum number of rows in an iteration."""
    without_reference: ClassVar[str] = ""
    """The option that makes a reference unnecessary, for the error."""

    def __init__(
        self,
        model: ModuleOrFolder,
        *,
        dataset: Any = None,
        tokenizer: Any = None,
        schedules: Mapping[str, Callable[[int], float]] | None = None,
        config: Config | Mapping[str, Any] | str | Path | None = None,
        callbacks: Iterable[Callback] | Callback | None = None,
        logger: LoggerCallback | None = None,
        **options: Any,
    ) -> None:
        given = {name: options.pop(name, None) for name in (*self.takes, *self.functions)}
        resolved = resolve_config(self.config_class, config, **options)
        for name, what in self.functions.items():
            if given[name] is None:
                raise ConfigError(
                    f"'{self.name}' needs {name}=..., {what}; on the command line "
                    f"--{name.removesuffix('_fn')} module:function"
                )
        super().__init__(None, config=resolved, callbacks=callbacks, logger=logger)
        cfg = self.config
        self.schedules = Schedules(cfg, schedules)
        made = make_model(model, tokenizer, cfg, self.streams)
        self.policy, self.eos, self.texts, self.pad = made.policy, made.eos, made.texts, made.pad
        self.model = self.policy.module
        if not any(p.requires_grad for p in self.model.parameters()):
            raise ConfigError("the model has no parameter with requires_grad; nothing would learn")
        ref_model = given.get("ref_model")
        self.reference: CausalModel | None = None
        if self.needs_reference or ref_model is not None:
            self.reference = make_reference(
                self.name, self.policy, ref_model, model, cfg, self.without_reference
            )
        self.ref_model = None if self.reference is None else self.reference.module
        if cfg.gradient_checkpointing:
            self.policy.checkpoint_gradients()
        adam = partial(torch.optim.Adam, fused=True)
        optimizer = FlatOptimizer(self.model, adam, max_grad_norm=cfg.max_grad_norm)
        self.optimizers = {"model": optimizer}
        self._given: Sequence[Any] | None = None
        self._dataset: Sequence[Any] | None = None
        self._order: RowOrder | None = None
        self.prepare(given)
        if dataset is not None:
            self._use(self.parse(dataset))

    @property
    def needs_reference(self) -> bool:
        """Whether the algorithm learns with a reference."""
        return False

    @property
    def steps_per_iteration(self) -> int:
        """Gradient steps of one iteration."""
        return 1

    @property
    def learning_rate(self) -> float:
        """Adam's step size in the next gradient step."""
        return self.schedules.value("learning_rate", self.clock.steps, self.clock.target)

    def prepare(self, given: Mapping[str, Any]) -> None:
        """Store the arguments of :attr:`takes` and :attr:`functions`, once the models exist."""

    @abstractmethod
    def parse(self, rows: Any) -> Sequence[Any]:
        """Return a user's rows in the form for :meth:`iterate`."""

    def train(
        self, prompts: Any = None, n_epochs: int | None = None, *,
        n_gradient_steps: int | None = None,
    ) -> dict[str, float]:  # fmt: skip
        """Train and return the last iteration's metrics.

        Args:
            prompts: rows to train on, which become the dataset; or a number of gradient steps over
                the dataset, rounded up to whole iterations.
            n_epochs: passes over the rows; ``None``: one, if rows are passed. Without any of the
                three arguments, the interrupted training of a checkpoint is finished.
            n_gradient_steps: the number of gradient steps, by keyword.

        Raises:
            ConfigError: there is no dataset.
            TypeError: a number of gradient steps is given with rows or epochs.
            ValueError: a number is not positive, or there is no training to finish.
        """
        if isinstance(prompts, Integral):
            if n_gradient_steps is not None:
                raise TypeError("the number of gradient steps is given twice; leave one out")
            n_gradient_steps = require_integer("n_gradient_steps", prompts, at_least=1)
            prompts = None
        if n_gradient_steps is not None and (prompts is not None or n_epochs is not None):
            raise TypeError(
                f"n_gradient_steps={n_gradient_steps} is for the constructor's dataset, and "
                "excludes rows to train on and n_epochs=; leave one out"
            )
        if n_epochs is not None or prompts is not None:
            n_epochs = require_integer("n_epochs", 1 if n_epochs is None else n_epochs, at_least=1)
        if prompts is not None:
            self._use(self.parse(prompts))
        if self._order is None:
            raise ConfigError(
                f"'{self.name}' was made without a dataset; pass one as dataset=, or rows to train"
            )
        if n_epochs is not None:
            n_gradient_steps = n_epochs * self._order.iterations * self.steps_per_iteration
        return super().train(n_gradient_steps)

    def step_on(self, rows: Sequence[Any]) -> dict[str, float]:
        """Run one iteration on all rows at once, and return its metrics.

        Callbacks and the logger are called as in a training, without its start and end.

        Raises:
            ConfigError: the learning rate depends on a training's end, and no training runs.
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
        """Return the mean return over rows, without learning; see :meth:`run_episodes`.

        Args:
            prompts: rows; ``None``: the dataset's.
            options: options of :meth:`run_episodes`.
        """
        options = {"deterministic": False, "n_episodes": None, **options}
        return self.run_episodes(prompts, **options).mean_return

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
            env: rows; ``None``: the dataset's.
            n_episodes: number of rows, from the first, repeating if needed; ``None``: each once.
            deterministic: use the likeliest tokens instead of sampling.
            seed: fixes the samples; ``None``: the run's.
            max_steps: unused, because ``max_new_tokens`` bounds a completion.
        """
        return self.judge(self.evaluated_rows(env, n_episodes), deterministic, seed)

    @abstractmethod
    def judge(self, rows: Sequence[Any], deterministic: bool, seed: int | None) -> EvaluationResult:
        """Return the return of each row, and its length in tokens; see :meth:`run_episodes`."""

    def evaluated_rows(self, rows: Any, n_episodes: int | None) -> Sequence[Any]:
        """Return the rows of an evaluation, or raise a ConfigError without any."""
        found = self._dataset if rows is None else self.parse(rows)
        if found is None:
            raise ConfigError(f"'{self.name}' was made without a dataset; pass rows to evaluate on")
        if n_episodes is None:
            return found
        count = require_integer("n_episodes", n_episodes, at_least=1)
        return [found[i % len(found)] for i in range(count)]

    def evaluation_generator(self, seed: int | None) -> torch.Generator:
        """Return a random generator for an evaluation, separate from the training's."""
        if seed is None:
            seed = self.streams.seeds("evaluation", 1)[0]
        return torch.Generator().manual_seed(require_integer("seed", seed, at_least=0))

    def predict(
        self, obs: Any, deterministic: bool = True, max_new_tokens: int | None = None
    ) -> Tensor:
        """Return whole rows (N, P + T), one completion of each prompt.

        Args:
            obs: prompts.
            deterministic: use the likeliest tokens; a model's own ``generate`` ignores this.
            max_new_tokens: maximum length of a completion; ``None``: the option's value, or 8.
        """
        sampling = Sampling.of(self.config, self.eos, deterministic)
        if max_new_tokens is not None:
            n_tokens = require_integer("max_new_tokens", max_new_tokens, at_least=1)
            sampling = replace(sampling, max_new_tokens=n_tokens)
        prompts = parse_prompts(obs, self.policy.device, self.texts)
        generator = make_generator(getattr(self.config, "sampler", "auto"), self.policy)
        rows, stream = [prompt.ids for prompt in prompts], self.streams.torch("predict")
        return complete(generator, self.policy, rows, sampling, stream).padded(self.pad)

    def count(self, hooks: Hooks, prompts: int, completions: int, tokens: int) -> None:
        """Report an iteration's counts."""
        for name, n in zip(self.counters, (prompts, completions, tokens), strict=True):
            hooks.count(name, n)

    def learn(
        self, n: int, loss_of: Callable[[slice], tuple[Tensor, Mapping[str, float]]]
    ) -> dict[str, float]:
        """Take one gradient step; return the learning rate and sums of numbers by name.

        Args:
            n: number of rows.
            loss_of: returns the loss and numbers by name for a slice of the rows; those of all
                slices must add up to those of all rows.
        """
        optimizer, sums = self.optimizers["model"], {"learning_rate": self.learning_rate}
        with self.learning():
            for part in self.chunks(n):
                loss, numbers = loss_of(part)
                optimizer.backward(loss)
                for name, value in numbers.items():
                    sums[name] = sums.get(name, 0.0) + value
        optimizer.apply(sums["learning_rate"])
        return sums

    def learning(self) -> ExitStack:
        """Return a context for learning, with dropout as configured from the run's streams."""
        stack = ExitStack()
        stack.enter_context(self.policy.mode(self.config.dropout))
        if self.config.dropout:
            stack.enter_context(self.streams.as_global("dropout"))
        return stack

    def chunks(self, n: int) -> list[slice]:
        """Split ``n`` rows into parts for one forward pass each."""
        size = self.config.micro_batch_size or max(n, 1)
        return [slice(start, min(start + size, n)) for start in range(0, n, size)]

    def state_dict(self) -> dict[str, Any]:
        """Return trained weights, digests of frozen ones, optimisers, and the rows' order."""
        moves = getattr(self.config, "sync_ref_model", False)
        return {
            "model": trained_state(self.model),
            "reference": reference_state(self.reference, moves=moves),
            "optimizers": parts_state(self.optimizers),
            "order": None if self._order is None else self._order.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a :meth:`state_dict`.

        Raises:
            CheckpointError: model, reference or dataset differ.
        """
        load_reference_state(self.reference, state["reference"])
        if state["order"] is not None and self._order is not None:
            self._order.load_state_dict(state["order"])
        load_trained_state(self.model, "model", state["model"])
        load_parts_state(self.optimizers, state["optimizers"])

    def _use(self, rows: Sequence[Any]) -> None:
        self._dataset = rows
        self._order = RowOrder(len(rows), getattr(self.config, self.rows_option))


class SamplingAlgorithm(LanguageAlgorithm):
    """An algorithm that samples completions of prompts and learns from them."""

    takes = ("ref_model", "generator")
    rows_option = "prompts_per_rollout"
    generator: Generator
    """The sampler: the argument ``generator``, or the one of the option ``sampler``."""

    def prepare(self, given: Mapping[str, Any]) -> None:
        """Make the sampler, unless one is given."""
        self.sampling = Sampling.of(self.config, self.eos)
        self.generator = given["generator"] or make_generator(self.config.sampler, self.policy)

    def parse(self, rows: Any) -> list[Prompt]:
        """Return prompts; see :func:`rlox_llm.prompts.fitting_prompts`."""
        return fitting_prompts(rows, self.policy, self.texts, self.config.max_new_tokens)

    def train_step(self, prompts: Any) -> dict[str, float]:
        """Sample completions of all prompts, learn from them, and return the metrics."""
        return self.step_on(self.parse(prompts))

    def sample(self, prompts: Sequence[Prompt], n: int) -> Completions:
        """Return ``n`` completions of each prompt for learning."""
        return complete(
            self.generator, self.policy, [prompt.ids for prompt in prompts], self.sampling,
            self.streams.torch("completions"), n, version=self.clock.gradient_steps,
        )  # fmt: skip

    def sample_from(
        self,
        model: CausalModel,
        prompts: Sequence[Prompt],
        deterministic: bool,
        stream: torch.Generator,
    ) -> Completions:
        """Return one completion of each prompt by a model, sampled in this process."""
        sampling = Sampling.of(self.config, self.eos, deterministic)
        generator = make_generator(self.config.sampler, model)
        return complete(generator, model, [prompt.ids for prompt in prompts], sampling, stream)

    def hand_on_completions(
        self, hooks: Hooks, done: Completions, columns: Mapping[str, Sequence[Any]]
    ) -> None:
        """Pass completions to the logger as the table ``completions``, with ``log_completions``.

        Args:
            hooks: the iteration's.
            done: N completions.
            columns: further columns of N values, by name.
        """
        if self.config.log_completions:
            n_rows = self.config.num_completions_to_print
            hooks.table("completions", done.table(self.texts, columns, n_rows))
