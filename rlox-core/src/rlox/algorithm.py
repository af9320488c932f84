"""Base class of all algorithms, and their construction by registered name.

An algorithm supplies :meth:`Algorithm.iterate` (one collect-and-learn round), a policy to act with
and its state; training, evaluation, saving and restoring are implemented here for all. No algorithm
overrides the concrete methods or derives from another algorithm; the abstract class for learning
from a dataset (:mod:`rlox_offline.base`) extends two of them.
"""

from __future__ import annotations

import functools
import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar, cast

import numpy.typing as npt

from rlox.callbacks import Callback, CallbackList
from rlox.config.composition import local_options, plugin_fields, selection
from rlox.config.model import UNSET, Config
from rlox.config.presets import full_name
from rlox.envs.evaluation import MAX_STEPS, EvaluationResult, evaluate
from rlox.errors import ConfigError, EnvError, suggest
from rlox.logging import LoggerCallback, LoggerList
from rlox.logging.base import require_logger
from rlox.ranks import RANKS, agreed_seed, own_rank
from rlox.registry.specs import AlgorithmSpec
from rlox.registry.table import (
    Registration,
    algorithm_class,
    config_class,
    find_algorithm,
    get_registry,
    spec,
)
from rlox.seeding import SeedStreams, draw_seed
from rlox.training import checkpoint
from rlox.training.hooks import Hooks, NamedLosses, NoLosses, Progress
from rlox.training.loop import run
from rlox.training.segments import remove_checkpoint

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from rlox.learners.rollouts import ChosenLearner
    from rlox.learners.transitions import ChosenReplayLearner
    from rlox.nn import FlatOptimizer

AlgorithmT = TypeVar("AlgorithmT", bound="Algorithm")


class Algorithm(ABC):
    """One learning algorithm with its env, its config and its progress.

    Args:
        env: the user's ``env`` argument; ``None`` if there is none.
        config: the resolved config; its ``seed`` fixes every random draw, and ``None`` takes a
            seed from entropy.
        callbacks: hooks into training.
        logger: receives the metrics.
    """

    name: ClassVar[str]
    """Registered name; checkpoints carry it."""

    config_class: ClassVar[type[Config]]
    """Class of :attr:`config`."""

    step_unit: ClassVar[str] = "env_steps"
    """Unit of the training's length: the name of a counter of :attr:`clock`."""

    counters: ClassVar[tuple[str, ...]] = ()
    """Names of further cumulative counters, such as ``("prompts", "tokens")``: :attr:`clock` holds
    them, checkpoints save them and every row of metrics has them."""

    length_unit: ClassVar[str] = "env steps"
    """Unit of the lengths of episodes."""

    return_name: ClassVar[str] = "return"
    """What evaluations print before the return, such as ``"accuracy"``."""

    env_required: ClassVar[bool] = True
    """Whether an env is the constructor's first argument; if not, it is the keyword ``env``."""

    arguments: ClassVar[tuple[str, ...]] = ()
    """Names of the constructor's positional arguments, for a class that inherits its constructor;
    empty if the constructor declares them itself."""

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        if "__init__" in vars(cls):
            setattr(cls, "__init__", _freeing_where_it_fails(vars(cls)["__init__"]))  # noqa: B010
        if "config_class" in vars(cls):
            if "__init__" in vars(cls) or cls.arguments:
                signature = _full_signature(cls.__init__, cls.config_class, cls.arguments)
                setattr(cls, "__signature__", signature)  # noqa: B010
            for name in cls.config_class.model_fields:
                if not hasattr(cls, name):
                    setattr(cls, name, _Option(name))

    def __init__(
        self,
        env: Any,
        *,
        config: Config,
        callbacks: Iterable[Callback] | Callback | None = None,
        logger: LoggerCallback | None = None,
    ) -> None:
        seed = getattr(config, "seed", None)
        if seed is None:
            seed = agreed_seed(draw_seed())
            if "seed" in type(config).model_fields:
                config = config.replace(seed=seed)
        self.config: Any = config
        self.env_source = env
        self.callbacks = CallbackList(callbacks)
        if logger is not None:
            require_logger(logger)
        self.logger = logger
        self.resources = ExitStack()
        """Freed by :meth:`close` and when a constructor fails; algorithms add their envs."""
        self._closed = False
        self.learner: ChosenLearner | ChosenReplayLearner | None = None
        """Takes the gradient steps, if the algorithm offers several learner backends."""
        self.optimizers: dict[str, FlatOptimizer] = {}
        """Optimisers by the name of the network or part that learns; :meth:`train` checks that they
        reach the parameters and that these stay finite."""
        self.added_losses: NamedLosses = NoLosses()
        """The user's own loss terms, if the algorithm takes any; checkpoints hold their names."""
        self.own_objective: Any = None
        """A user's own objective, if the algorithm takes one; ``None``: the algorithm's."""
        self.own_parts: Mapping[str, Any] = {}
        """A replay buffer or exploration that the user passed, by argument."""
        self.clock = Progress(self.step_unit, counters=dict.fromkeys(self.counters, 0))
        self.streams = SeedStreams(seed, own_rank())

    def __repr__(self) -> str:
        on = "" if self.env_source is None else f" on {self.env_source}"
        return f"<{type(self).__name__}{on} after {self.clock.steps:,} {self.clock.unit_text}>"

    @property
    def env_id(self) -> Any:
        """The user's ``env`` argument; the other arguments are attributes by their names too."""
        return self.env_source

    @abstractmethod
    def iterate(self, hooks: Hooks) -> Any:
        """Collect once, learn once, and return a frozen dataclass of float metrics.

        Args:
            hooks: called after every vector step and every optimiser step; they advance the clock
                and call the callbacks. Their ``StopTraining`` drops the iteration; if caught,
                return the metrics so far.
        """

    @abstractmethod
    def predict(self, obs: npt.ArrayLike, deterministic: bool = True) -> Any:
        """Return an action for one observation, or actions (B, ...) for a batch.

        Args:
            obs: one observation or a batch (B, *shape).
            deterministic: the mode of the action distribution rather than a sample.

        Returns:
            An int for one discrete action, else a NumPy array.
        """

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Return everything that training changes, as nested dicts of arrays and plain values."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""

    def train(self, total_timesteps: int | None = None) -> dict[str, float]:
        """Train and return the last metrics.

        Args:
            total_timesteps: steps (:attr:`step_unit`) to train for, on top of those already done;
                env steps are rounded up to whole iterations. ``None`` finishes the training that a
                checkpoint interrupted.

        Returns:
            The last iteration's metrics; if an env is stepped, ``mean_reward`` is the mean
            return of the last 100 finished episodes (NaN before the first).

        Raises:
            ValueError: ``total_timesteps`` is not positive, or ``None`` with nothing to finish.
            DivergenceError: parameters are no longer finite; raised before callbacks, and thus
                checkpoints, see the iteration, or at the end if callbacks changed them.
            RuntimeError: the algorithm is closed, or the parameters of a network were replaced.
        """
        if self._closed:
            raise RuntimeError(
                f"this '{self.name}' was closed, and its envs and logger with it; train before "
                "close(), or save and go on with from_checkpoint"
            )
        if RANKS and not self.streams.is_spread:  # in the first training only
            RANKS[0].require_one_policy(self.optimizers)
            self.streams.spread(self.clock.steps)
        return run(self, total_timesteps)

    def evaluate(
        self,
        env: Any = None,
        *,
        n_episodes: int = 10,
        deterministic: bool = True,
        seed: int | None = None,
        max_steps: int = MAX_STEPS,
    ) -> EvaluationResult:
        """Run episodes without learning; see :func:`rlox.envs.evaluation.evaluate`.

        Raises:
            EnvError: there is no env to run them in, or an episode does not end.
        """
        return self.run_episodes(
            env, n_episodes=n_episodes, deterministic=deterministic, seed=seed, max_steps=max_steps
        )

    def run_episodes(
        self,
        env: Any = None,
        *,
        n_episodes: int = 10,
        deterministic: bool = True,
        seed: int | None = None,
        max_steps: int = MAX_STEPS,
    ) -> EvaluationResult:
        """Evaluate for callbacks and commands; see :class:`rlox.envs.evaluation.RunsEpisodes`.

        A family whose episodes do not come from an env overrides this, and may give its own
        :meth:`evaluate` another signature.
        """
        env = self.env_source if env is None else env
        if env is None:
            raise EnvError(f"'{self.name}' was made without an env; pass one as env=")
        return evaluate(
            self,
            env,
            n_episodes=n_episodes,
            deterministic=deterministic,
            seed=self.streams.seeds("evaluation", 1, shared=True)[0] if seed is None else seed,
            max_steps=max_steps,
            **self.env_arguments(env),
        )

    def env_arguments(self, env: Any = None) -> dict[str, Any]:
        """Return the arguments for making further envs like the training's.

        Args:
            env: the env to make; ``None``: the algorithm's own. Any other env is made without the
                training's arguments.

        Returns:
            ``env_kwargs`` and ``backend`` for :func:`rlox.envs.evaluation.evaluate`.
        """
        same = env is None or env is self.env_source
        if not (same or (isinstance(env, str) and env == self.env_source)):
            return {}
        arguments: dict[str, Any] = {"env_kwargs": getattr(self.config, "env_kwargs", None)}
        cls = type(self.config)
        here = local_options(cls, {"env_backend": getattr(self.config, "env_backend", "auto")})
        if "env_backend" in cls.selected and here:
            arguments["backend"] = selection(self.config, "env_backend").for_evaluation()
        return arguments

    def close(self) -> None:
        """Free the algorithm's resources: its envs and their processes, and the logger's files.

        It still acts, evaluates and saves, but no longer trains.
        """
        self._closed = True
        self.resources.close()
        if self.logger is not None:
            self.logger.close()

    def __enter__(self: AlgorithmT) -> AlgorithmT:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            self.close()
        except OSError:  # from a log; the error that ended the training is more informative
            if kind is None:
                raise

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(
            f"this {type(self).__name__} cannot be copied or pickled; save(path) writes all of it, "
            f"and {type(self).__name__}.from_checkpoint(path) makes another one"
        )

    def save(self, path: str | Path) -> None:
        """Write a checkpoint; see :func:`rlox.training.checkpoint.save`.

        With several ranks, all call it outside of training, and rank 0 writes.
        """
        checkpoint.save(self, path)

    @staticmethod
    def remove_checkpoint(path: str | Path) -> None:
        """Delete a checkpoint and the segments that no other checkpoint in its folder needs.

        Ranks above 0 write no checkpoints and delete none.
        """
        if not own_rank():
            remove_checkpoint(Path(path))

    @classmethod
    def from_checkpoint(
        cls: type[AlgorithmT], path: str | Path, env_id: Any = None, **arguments: Any
    ) -> AlgorithmT:
        """Restore an algorithm from a checkpoint.

        Args:
            path: the checkpoint.
            env_id: anything that the constructor takes as env; ``None`` takes the checkpoint's id,
                if the algorithm needs an env or was made with one.
            arguments: the constructor's other arguments, such as ``policy=``, ``callbacks=`` and
                ``logger=``, and options to change. With another ``seed=`` all random streams
                start again; envs whose state is in the checkpoint continue with it.

        Raises:
            CheckpointError: the file is damaged, foreign, of another algorithm or another env.
        """
        return checkpoint.load(cls, path, env_id, arguments)


class _Option:
    # an algorithm's own attribute with the name of an option wins over it
    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, algorithm: Any, _: object = None) -> Any:
        return self if algorithm is None else getattr(algorithm.config, self.name)


class _Foreign:
    # not __getattr__, with which type checkers would accept any name
    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, _: object, cls: type[Any]) -> NoReturn:
        raise AttributeError(f"{cls.__name__} has no '{self.name}'{suggest(self.name, ())}")


for _name in ("learn", "load"):
    setattr(Algorithm, _name, _Foreign(_name))


def _freeing_where_it_fails(constructor: Callable[..., None]) -> Callable[..., None]:
    """Wrap the constructor of an algorithm so that it frees its resources when it fails.

    Like :func:`rlox.make`, it names a missing argument with a :class:`rlox.errors.ConfigError`.
    An inherited constructor, which takes keywords, gets the positional arguments under the names
    that the class has declared.
    """
    _, *parameters = inspect.signature(constructor).parameters.values()
    positional = [p for p in parameters if p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]

    @functools.wraps(constructor)
    def construct(self: Any, *args: Any, **kwargs: Any) -> None:
        if type(self).__init__ is construct:  # not again in the constructors of its bases
            _require_declarations(type(self))
        names, cls = type(self).arguments, type(self).__name__
        if args and isinstance(args[0], str) and (hint := suggest(args[0], ())):
            raise ConfigError(f"{cls} takes no '{args[0]}'{hint}")
        if names:
            if twice := set(kwargs).intersection(names[: len(args)]):
                raise TypeError(f"{cls} got {sorted(twice)[0]} twice: in its place and by its name")
            if len(args) > len(names):
                raise TypeError(
                    f"{cls} takes {len(names)} arguments without a name, {', '.join(names)}; got "
                    f"{len(args)}: name the others"
                )
            args, kwargs = (), {**dict(zip(names, args, strict=False)), **kwargs}
        for parameter in positional[len(args) :]:
            if parameter.default is inspect.Parameter.empty and parameter.name not in kwargs:
                raise ConfigError(_missing(cls, parameter.name, kwargs))
        try:
            constructor(self, *args, **kwargs)
        except BaseException:
            if "resources" in vars(self):
                self.resources.close()
            raise

    return construct


def _require_declarations(cls: type[Any]) -> None:
    """Refuse a class that leaves out its bases' declarations, before anything is made.

    Raises:
        TypeError: a base annotates a class variable such as ``objective_class`` that has no value,
            and the method that uses it, such as :meth:`make_objective`, is not overridden.
    """
    for base in cls.__mro__[1:]:
        for name, kind in inspect.get_annotations(base).items():
            method = f"make_{name.removesuffix('_class')}"
            overridden = getattr(cls, method, None) is not getattr(base, method, None)
            if str(kind).startswith("ClassVar") and not hasattr(cls, name) and not overridden:
                raise TypeError(
                    f"{cls.__name__} has no {name}; write {name} = ... into the class, as "
                    f"{base.__module__}.{base.__name__}.{name} asks"
                )


def _full_signature(
    constructor: Callable[..., Any], config: type[Config], arguments: Collection[str] = ()
) -> inspect.Signature:
    """Return a constructor's signature with the options that its ``**kwargs`` takes.

    :func:`help`, notebooks and :func:`inspect.signature` then show every option and its default.
    The ``**kwargs`` remains, for the options of plugins.

    Args:
        constructor: ``__init__`` of an algorithm's class.
        config: class of the options that are its further keywords.
        arguments: names of the positional ones, so that the others are keywords only; if empty, the
            constructor's own.
    """
    _, *given = inspect.signature(constructor).parameters.values()
    fields, kinds = config.model_fields, inspect.Parameter
    if arguments:
        own = {p.name: p for p in given}
        for name in arguments:
            shown: dict[str, Any] = {"default": None}
            if name in fields:
                shown = {"default": fields[name].default, "annotation": _text(fields[name])}
            own.setdefault(name, kinds(name, kinds.POSITIONAL_OR_KEYWORD, **shown))
        placed = [own.pop(name) for name in arguments]
        given = [p.replace(kind=kinds.POSITIONAL_OR_KEYWORD) for p in placed]
        given += [p.replace(kind=max(p.kind, kinds.KEYWORD_ONLY)) for p in own.values()]
    named = [
        parameter.replace(default=fields[parameter.name].default)
        if parameter.default is UNSET and parameter.name in fields
        else parameter
        for parameter in given
    ]
    if named and named[-1].kind is kinds.VAR_KEYWORD:
        known = {parameter.name for parameter in named}
        named[-1:-1] = [
            kinds(name, kinds.KEYWORD_ONLY, default=field.default, annotation=_text(field))
            for name, field in fields.items()
            if name not in known
        ]
    return inspect.Signature(named)


def _missing(of: str, name: str, given: Mapping[str, Any]) -> str:
    """Return the text of an error about a missing argument."""
    other = name.removesuffix("_id")
    if other != name and other in given:
        return f"{of} needs {name}=..., got {other}={given[other]!r}; rename {other} to {name}"
    return f"{of} needs {name}=..., got none"


def _text(field: FieldInfo) -> str:
    """Return the type of a field without the modules of its parts."""
    return re.sub(r"\b\w+\.(?=\w)", "", inspect.formatannotation(field.annotation))


def make(
    name: str,
    env: Any = None,
    *,
    config: Config | Mapping[str, Any] | str | Path | None = None,
    preset: str | None = None,
    callbacks: Iterable[Callback | str] | Callback | str | None = None,
    logger: LoggerCallback | str | Iterable[LoggerCallback | str] | None = None,
    log_dir: str | Path = "runs",
    **overrides: Any,
) -> Algorithm:
    """Build the algorithm registered as ``name``.

    Args:
        name: registered name, ``"ppo"``; :func:`list_algorithms` lists all.
        env: the env to learn in: a gymnasium id, a callable that makes a gymnasium env, a gymnasium
            env, a gymnasium vector env, or a :class:`rlox.protocols.VecEnv`.
        config: a config object, a mapping, or the path of a YAML or JSON file.
        preset: tuned options for ``env``, over which ``config`` and ``overrides`` win: one of
            :func:`rlox.config.presets.list_presets`, such as ``"tuned"``.
        callbacks: callbacks, as objects or registered names.
        logger: a logger or several, as objects or registered names.
        log_dir: folder for loggers and callbacks given by name.
        overrides: config options, which win over ``config``, and the algorithm's own arguments.

    Raises:
        UnknownNameError: ``name`` is not registered, or there is no such preset; the text has the
            nearest names.
        ConfigError: an option is unknown or out of range, or a needed argument is missing.

    Example:
        >>> make("pppo", env="CartPole-v1")  # doctest: +IGNORE_EXCEPTION_DETAIL
        Traceback (most recent call last):
        rlox.errors.UnknownNameError: unknown algorithm 'pppo'; did you mean 'ppo'?
    """
    found = spec(name)
    given = {"env": env, **overrides}
    for need in found.needs:
        if given.get(need) is None and not (need == "env" and given.get("env_fn")):
            renamed = need == "env" and "env_id" in given
            got = "env_id=...; rename env_id to env" if renamed else "none"
            raise ConfigError(f"the algorithm '{name}' needs {need}=..., got {got}")
    if preset is not None:
        given["preset"] = full_name(name, env, preset)
    # the documented constructors call their first argument env_id
    arguments = [given.pop("env")] if "env" in found.needs else []
    if given.get("env", ...) is None:
        del given["env"]
    elif "env" in given and not found.env:
        raise ConfigError(f"the algorithm '{name}' takes no env, got {env!r}; leave it out")
    factory = cast("Any", algorithm_class(name))
    made = make_callbacks(callbacks, log_dir)
    algorithm: Algorithm = factory(*arguments, config=config, callbacks=made, logger=None, **given)
    try:
        # last, so that an error before leaves behind no file and no run at a tracking service
        algorithm.logger = make_logger(logger, log_dir)
    except BaseException:
        algorithm.close()
        raise
    return algorithm


def explain(name: str) -> str:
    """Return a text about an algorithm: paper, distribution, and every option with its unit."""
    registration = find_algorithm(name)
    found = cast("AlgorithmSpec", registration.spec)
    lines = [
        f"{found.name}: {found.summary}",
        f"paper: {found.paper or '-'}",
        f"distribution: {registration.distribution}",
        f"needs: {', '.join(found.needs)}",
        "options:",
    ]
    fields = config_class(name).model_fields
    lines += [_option_line(option, field) for option, field in fields.items()]
    for selector, plugin, own in plugin_fields(config_class(name)):
        lines.append(f"options with {selector}='{plugin.spec.name}' ({plugin.distribution}):")
        lines += [_option_line(option, field) for option, field in own.items()]
    return "\n".join(lines)


def _option_line(name: str, field: FieldInfo) -> str:
    extra = cast("dict[str, Any]", field.json_schema_extra or {})
    return (
        f"  {name} = {field.default} [{extra.get('unit', '1')}] {field.description} "
        f"({extra.get('source', '-')})"
    )


def make_callbacks(
    callbacks: Iterable[Callback | str] | Callback | str | None, log_dir: str | Path
) -> list[Callback]:
    """Return callbacks given as objects or registered names.

    Args:
        callbacks: one or several.
        log_dir: folder for the files of callbacks given by name.

    Raises:
        UnknownNameError: a name is not registered.
        ConfigError: a name is given twice.
        MissingDependencyError: a package that a callback needs is not installed.
        PluginError: a registered plugin is broken.
    """

    def make(registration: Registration) -> Any:
        return registration.build(*[log_dir] * registration.spec.in_folder)

    return _made("rlox_callbacks", callbacks, make)


def make_logger(
    loggers: LoggerCallback | str | Iterable[LoggerCallback | str] | None, log_dir: str | Path
) -> LoggerCallback | None:
    """Return one logger for loggers given as objects or registered names.

    Args:
        loggers: one or several.
        log_dir: folder for loggers given by name.

    Raises:
        TypeError: one of them is not a logger.
        UnknownNameError: a name is not registered.
        ConfigError: a name is given twice.
        MissingDependencyError: a package that a logger needs is not installed.
        PluginError: a registered plugin is broken.
    """
    with ExitStack() as opened:  # closed if a later one fails

        def make(registration: Registration) -> Any:
            logger = registration.build(log_dir)
            opened.callback(logger.close)
            return logger

        made = _made("rlox_loggers", loggers, make)
        if len(made) > 1:
            made = [LoggerList(*made)]
        for logger in made:
            require_logger(logger)
        opened.pop_all()
    return made[0] if made else None


def _made(hook: str, items: Any, make: Callable[[Registration], Any]) -> list[Any]:
    """Return one or several items as a list, with names replaced by objects from ``make``."""
    if items is None:
        return []
    several = isinstance(items, Iterable) and not isinstance(items, str)
    listed = list(items) if several else [items]
    names = [item for item in listed if isinstance(item, str)]
    found = dict(zip(names, get_registry().get_all(hook, names), strict=True))
    return [make(found[item]) if isinstance(item, str) else item for item in listed]
