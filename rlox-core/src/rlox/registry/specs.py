"""The plugin interface: the mark of hooks (pluggy), and frozen specs with references.

Each hook, one of ``HOOKS`` in :mod:`rlox.registry.table`, returns specs and is called once, when
the registry is first used.

A plugin is an import-light module named by an entry point of the group ``rlox``; the entry point's
name is the distribution's. There are no hooks into training; use callbacks.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import pluggy


@dataclass(frozen=True)
class Spec:
    """What every spec has: a registered name and one sentence."""

    name: str
    summary: str

    def __post_init__(self) -> None:
        """Reject text where several names are expected."""
        for field in fields(self):
            value = getattr(self, field.name)
            # `in` would find substrings, and a loop letters
            if str(field.type).startswith("tuple") and isinstance(value, str):
                raise TypeError(
                    f"{field.name} of '{self.name}' must be a tuple, got the text {value!r}; "
                    f"write ({value!r},)"
                )


@dataclass(frozen=True)
class MadeSpec(Spec):
    """A spec with a factory, ``"module:function"`` or ``"module:Class"``."""

    factory: str


@dataclass(frozen=True)
class AlgorithmSpec(Spec):
    """An algorithm that :func:`rlox.make` builds.

    Args:
        name: lower-case registered name (``"ppo"``).
        summary: one sentence.
        config: ``"module:Class"``, a subclass of :class:`rlox.Config`; importable without torch.
        factory: ``"module:Class"``, a subclass of :class:`rlox.Algorithm`.
        paper: address of the paper.
        needs: required arguments that are not config options: ``"env"``, the constructor's
            first argument, and others by keyword: ``"dataset"``, ``"model"``, ... On the
            command line they are flags; one that ends in ``_fn`` is ``module:function``.
        takes: optional arguments of this kind.
        env: whether it takes an env at all, for training or evaluation.
        trains_teams: whether it takes envs of several agents.

    Raises:
        TypeError: ``needs`` is text.
    """

    config: str
    factory: str
    paper: str = ""
    needs: tuple[str, ...] = ("env",)
    takes: tuple[str, ...] = ()
    env: bool = True
    trains_teams: bool = False

    @classmethod
    def of(
        cls, package: str, kind: str, name: str, summary: str, paper: str, **more: Any
    ) -> AlgorithmSpec:
        """Return the spec of class ``kind`` in the module ``name`` of a package.

        The package's module ``configs`` has its config. ``more`` are the other fields.
        """
        config, factory = f"{package}.configs:{kind}Config", f"{package}.{name}:{kind}"
        return cls(name, summary, config, factory, paper, **more)


@dataclass(frozen=True)
class EnvBackendSpec(MadeSpec):
    """A source of vector envs.

    Args:
        name: registered name (``"native"``).
        summary: one sentence.
        factory: ``"module:function"``; ``function(env_id, *, n_envs, env_kwargs)`` returns a
            :class:`rlox.protocols.VecEnv`. If ``options`` is set, it also gets one instance of
            that model as the keyword ``options``.
        env_ids: ids that it can build.
        env_prefixes: prefixes of further ids that it can build.
        teams: whether its envs have several agents: ``factory`` then takes callables and envs
            too if ``env_ids`` is empty, and returns a :class:`rlox.protocols.MultiAgentVecEnv`.
        priority: among the backends that have an id, ``backend="auto"`` takes the highest; the
            ``gymnasium`` backend, which tries every id, has 0.
        options: ``"module:Model"``, a subclass of :class:`rlox.Config` with the backend's own
            options, which are accepted along with the algorithm's; ``None``: it has none.
        env_kwargs: arguments of envs that it knows; with others, ``backend="auto"`` skips it. A
            backend of envs of several agents without ``env_ids`` tries any.
        remote: whether its envs are on other machines: evaluations then build the id here, and
            checkpoints hold neither the backend nor its options. The model of options may have
            methods ``for_actor(index, n_actors)``, which returns the options of one of several
            actors, and ``for_evaluation()``, which returns those for evaluations.
        unavailable: ``"module:function"`` that returns why it cannot be used here, so that
            ``backend="auto"`` skips it, or an empty string. ``None``: it is always usable.
        processes: whether it can run each env of several agents in a separate process:
            ``factory`` then gets the keyword ``vectorization="async"`` on request.

    Raises:
        TypeError: ``env_ids`` or ``env_kwargs`` is text.
    """

    env_ids: tuple[str, ...] = ()
    priority: int = 50
    options: str | None = None
    env_kwargs: tuple[str, ...] = ()
    env_prefixes: tuple[str, ...] = ()
    teams: bool = False
    remote: bool = False
    unavailable: str | None = None
    processes: bool = False


@dataclass(frozen=True)
class BufferSpec(MadeSpec):
    """A replay buffer that off-policy algorithms find by name.

    Args:
        name: registered name (``"uniform"``).
        summary: one sentence.
        factory: ``"module:function"``; ``function(asked)`` gets a
            :class:`rlox.replay.buffers.BufferOptions` and returns a
            :class:`rlox.protocols.ReplayBuffer`. If ``options`` is set, it also gets one instance
            of that model as the keyword ``options``.
        options: ``"module:Model"``, a subclass of :class:`rlox.Config` with the buffer's own
            options, which are accepted along with the algorithm's; ``None``: it has none.
        sequences: whether it is a buffer of sequences, for world models and recurrent value
            functions: the factory gets a :class:`rlox.replay.buffers.SequenceOptions` and returns
            a :class:`rlox.protocols.SequenceBuffer`.
        goals: whether it needs an env with goals, which the factory gets as ``goals`` of the
            :class:`rlox.replay.buffers.BufferOptions`; other envs are rejected.
        in_memory: whether it keeps all transitions in this machine's memory, so that a too large
            ``buffer_size`` is rejected before the buffer is made.
    """

    options: str | None = None
    sequences: bool = False
    goals: bool = False
    in_memory: bool = True


@dataclass(frozen=True)
class LearnerBackendSpec(MadeSpec):
    """A backend that takes the gradient steps of algorithms.

    Args:
        name: registered name (``"native"``).
        summary: one sentence.
        factory: ``"module:function"``; ``function(task)``, ``task`` being a
            :class:`rlox.learners.rollouts.RolloutTask` returns a
            :class:`rlox.learners.rollouts.Learner`, and for a
            :class:`rlox.learners.transitions.ReplayTask` a
            :class:`rlox.learners.transitions.ReplayLearner`; or it raises
            :class:`rlox.errors.BackendError` with the reason why it cannot do the task.
        priority: ``backend="auto"`` takes the backend of the highest priority that can do the
            task; ``torch``, which can do every task, has 0.
    """

    priority: int = 50


@dataclass(frozen=True)
class ActorBackendSpec(MadeSpec):
    """A place for actors to collect: threads, processes, other machines.

    Args:
        name: registered name (``"thread"``).
        summary: one sentence.
        factory: ``"module:function"``; ``function(plan, index)`` gets a
            :class:`rlox.rollouts.ActorPlan` and the number of the actor to build, and returns a
            :class:`rlox.rollouts.Actor`. If ``options`` is set, it also gets one instance of that
            model as the keyword ``options``.
        options: ``"module:Model"``, a subclass of :class:`rlox.Config` with the backend's own
            options, which are accepted along with the algorithm's; ``None``: it has none.
    """

    options: str | None = None


@dataclass(frozen=True)
class LossSpec(MadeSpec):
    """A loss that algorithms for language models find by name, as their option ``loss_type``.

    Args:
        name: registered name (``"dapo"``).
        summary: one sentence.
        factory: ``"module:function"``; ``function(batch)`` returns the losses of sampled
            completions, or of preference pairs: see the hooks ``rlox_policy_losses`` and
            ``rlox_preference_losses``. If ``options`` is set, it also gets one instance of that
            model as the keyword ``options``.
        options: ``"module:Model"``, a subclass of :class:`rlox.Config` with the loss's own options,
            which are accepted along with the algorithm's; ``None``: it has none.
        adds_up: whether the losses of a batch's parts add up to the loss of the whole; if not,
            ``micro_batch_size`` is refused.
    """

    options: str | None = None
    adds_up: bool = True


class LoggerSpec(MadeSpec):
    """A logger that the CLI and :func:`rlox.make` find by name.

    Args:
        name: registered name (``"jsonl"``).
        summary: one sentence.
        factory: ``"module:Class"``; ``Class(log_dir)`` returns a
            :class:`rlox.logging.LoggerCallback` writing into the folder ``log_dir``.
    """


@dataclass(frozen=True)
class CallbackSpec(MadeSpec):
    """A callback that the CLI and :func:`rlox.make` find by name.

    Args:
        name: registered name (``"eval"``).
        summary: one sentence.
        factory: ``"module:Class"``; ``Class()`` returns a :class:`rlox.callbacks.Callback`.
        in_folder: whether it writes files: ``Class(log_dir)`` is then called, and the callback
            writes into the folder ``log_dir``.
    """

    in_folder: bool = False


@dataclass(frozen=True)
class PresetsSpec(Spec):
    """A file of presets: tuned options with expected scores.

    Args:
        name: registered name, equal to the distribution's; presets have names of their own.
        summary: one sentence.
        file: ``"package:file"``, a YAML file in the package's folder; see
            :mod:`rlox.config.presets`.
    """

    file: str


class PlaceSpec(MadeSpec):
    """A place to execute the runs of sweeps and searches: ``--on NAME``.

    Args:
        name: registered name (``"ray"``).
        summary: one sentence.
        factory: ``"module:function"``; ``function(address)`` gets the address in
            ``NAME:ADDRESS``, or ``None``, and returns a :class:`rlox.cli.places.Place`.
    """


class CommandSpec(MadeSpec):
    """A command of ``rlox``.

    Args:
        name: the word after ``rlox`` on the command line; rlox's own commands cannot be replaced.
        summary: one sentence, for ``rlox --help``.
        factory: ``"module:function"``, imported when the command is called; ``function()`` returns
            a ``typer.Typer``.
    """


@dataclass(frozen=True)
class RunOptionsSpec(Spec):
    """Further options of ``rlox train`` and ``rlox resume``, and their effect.

    The keyword-only parameters of a function are the options, annotated for typer. Core calls the
    function before training; it returns an exit code if it handled the run, or ``None`` to leave
    the run to core.

    Args:
        name: registered name (``"sweeps"``).
        summary: one sentence.
        train: ``"module:function"``; ``function(name, config, options, *, ...)`` gets the
            algorithm's name, its config and the :class:`rlox.cli.runs.options.RunOptions`.
        resume: ``"module:function"``; ``function(run, env, parts, quiet, *, ...)`` gets the folder
            and the values of the other options.
    """

    train: str
    resume: str


hookimpl = pluggy.HookimplMarker("rlox")
"""Marks a plugin's function as the implementation of the hook of the same name."""
