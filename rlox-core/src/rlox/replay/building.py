"""Parts of replay algorithms: config, envs, buffer; refusal of options without effect."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlox.algorithm import Algorithm
from rlox.config.composition import selection
from rlox.config.model import UNSET, Config, changed, resolve_config
from rlox.config.presets import fill_in
from rlox.config.schedules import Schedules
from rlox.envs.make import fit_env_count
from rlox.envs.running import RunningEnvs
from rlox.errors import ConfigError
from rlox.networks.validate import LAYER_OPTIONS, refuse_network_options
from rlox.protocols import PrioritizedBuffer, VecEnv
from rlox.registry import get_registry
from rlox.replay.buffers import BufferOptions, make_buffer
from rlox.replay.codecs import ReplayObservations, make_actions
from rlox.replay.goals import find_goals
from rlox.replay.loop import ReplayLoop

NETWORK_OPTIONS = (*LAYER_OPTIONS, "dueling", "noisy_std")
"""Options of the default networks."""

OF_MADE_PARTS = {"buffer": ("buffer_size", "buffers"), "exploration": ("noise_std", "noise")}
"""By argument: the option of the part made here, which an object sets itself, and the kind."""


@dataclass(frozen=True)
class Given:
    """The replay buffer, exploration and option names that a caller passed."""

    parts: Mapping[str, Any]
    """Registered names or objects, by argument that was passed."""
    options: Collection[str] = ()
    """Names of the given options; see :func:`_given_options`."""

    def own(self, name: str) -> Any:
        """Return the object that was passed as an argument; ``None`` if there is none."""
        part = self.parts.get(name)
        return None if isinstance(part, str) else part


def resolve(
    cls: type[Config],
    config: Config | Mapping[str, Any] | str | Path | None,
    env: Any,
    networks: Collection[Any],
    options: Mapping[str, Any],
) -> tuple[Any, Given]:
    """Return an algorithm's config, and the parts that the caller names or passes as objects.

    Args:
        cls: the algorithm's config class.
        config: see :func:`rlox.config.model.resolve_config`.
        env: the user's env.
        networks: the user's value for each of the networks; ``None`` is the default one.
        options: options that override ``config``. ``buffer`` and ``exploration``, if the config
            has them, may be objects; ``None`` leaves them to the config.

    Raises:
        ConfigError: an option is wrong, or has no effect.
    """
    known = OF_MADE_PARTS.keys() & cls.model_fields.keys()
    parts = {k: v for k, v in options.items() if k in known and v is not None and v is not UNSET}
    options = {k: v for k, v in options.items() if k not in known or isinstance(parts.get(k), str)}
    keywords = {name for name, value in options.items() if value is not UNSET}
    _require_no_ignored_options(Given(parts), keywords)  # first: the config's error misleads here
    resolved: Any = resolve_config(cls, config, **options)
    if networks and all(network is not None for network in networks):
        refuse_network_options(NETWORK_OPTIONS, resolved, options)
    given = Given(parts, _given_options(resolved, keywords - known))
    _require_no_ignored_options(given, given.options)
    _require_capacity(resolved, given.own("buffer"))
    return fit_env_count(resolved, env), given


def _given_options(config: Config, keywords: Collection[str]) -> set[str]:
    """Return the names of the options that the caller chose.

    Args:
        config: config from the caller's options. A saved one has every option, and does not show
            the choice; nor do the options of a preset, or those at their defaults.
        keywords: options passed one by one, which count at any value.
    """
    if config.model_fields_set == set(type(config).model_fields):
        return set(keywords)
    given = config.given()
    preset = fill_in(type(config), {"preset": given.get("preset", "none")})
    return {
        name
        for name, value in given.items()
        if name in keywords or (changed(config, name) and preset.get(name, UNSET) != value)
    }


def _require_no_ignored_options(given: Given, options: Collection[str]) -> None:
    """Refuse options that an object sets itself.

    Raises:
        ConfigError: such an option is given.
    """
    for part, (option, kind) in OF_MADE_PARTS.items():
        own = given.own(part)
        if own is not None and option in options:
            raise ConfigError(
                f"{option} belongs to {kind} made here, and your {type(own).__name__} has its own; "
                "leave it out"
            )


def _require_capacity(config: Any, own: Any) -> None:
    """Refuse a buffer that is overwritten before the first batch is drawn.

    Args:
        config: a :class:`rlox.config.frames.ReplayConfig`.
        own: the caller's buffer, compared by its ``capacity`` if any. ``None``: one made here.

    Raises:
        ConfigError: the capacity is below ``learning_starts``.
    """
    name, capacity = "buffer_size", config.buffer_size
    remedy = "lower it, enlarge the buffer or pass a larger one of your own as buffer="
    if own is not None:
        name = f"the capacity of your {type(own).__name__},"
        capacity = getattr(own, "capacity", None)
        remedy = "lower it or enlarge the buffer"
    if isinstance(capacity, int) and config.learning_starts > capacity:
        raise ConfigError(
            f"learning_starts {config.learning_starts} exceeds {name} {capacity}: the first "
            f"transitions would be lost unseen; {remedy}"
        )


def make_replay(algorithm: Algorithm, given: Given, schedules: Schedules) -> ReplayLoop:
    """Return the envs and the replay buffer of an algorithm; closing the algorithm closes them.

    Args:
        algorithm: its base has been initialised; its config is a
            :class:`rlox.config.frames.ReplayConfig`.
        given: with the caller's own buffer, if any, an object with the methods of
            :class:`rlox.protocols.ReplayBuffer` or :class:`rlox.protocols.ReplayBufferProtocol`;
            otherwise the buffer that the config names is made.
        schedules: schedules with the functions that the caller passed.

    Raises:
        ConfigError: ``n_step`` is given with a buffer made for another value, or
            ``priority_beta`` with one without priorities, or the buffer lacks methods or would
            mix the envs.
        EnvError: the env cannot be built.
        SpaceError: see :class:`rlox.replay.loop.ReplayLoop`.
    """
    cfg, streams = algorithm.config, algorithm.streams
    buffer = given.own("buffer")
    if buffer is not None and cfg.n_step > 1:
        raise ConfigError(
            f"n_step {cfg.n_step} is for buffers made here; give it to your "
            f"{type(buffer).__name__} and leave the option at 1"
        )
    envs = RunningEnvs.of(algorithm)
    options = _buffer_options(algorithm, envs.env, named=buffer is None)
    named = selection(cfg, "buffer")
    made: Any = make_buffer(named.name if buffer is None else buffer, options, named.options)
    if buffer is None and hasattr(made, "close"):
        algorithm.resources.callback(made.close)
    beta = "priority_beta"
    asked = beta in schedules.overridden or (beta in given.options and changed(cfg, beta))
    if asked and not isinstance(made, PrioritizedBuffer):
        raise ConfigError(
            "priority_beta needs buffer='prioritized' or another buffer with update_priorities and "
            f"set_beta, got a {type(made).__name__}; leave it out"
        )
    return ReplayLoop(envs, made, options, streams, algorithm.clock, cfg)


def _buffer_options(algorithm: Algorithm, env: VecEnv, *, named: bool) -> BufferOptions:
    cfg, space = algorithm.config, env.observation_space
    actions, observations = make_actions(env.action_space), ReplayObservations(space)
    goals = None
    if named and get_registry().get("rlox_buffers", cfg.buffer).spec.goals:
        goals = find_goals(
            algorithm.env_source,
            space,
            buffer=cfg.buffer,
            env_kwargs=cfg.env_kwargs,
            resources=algorithm.resources,
        )
    return BufferOptions(
        capacity=cfg.buffer_size,
        obs_shape=observations.shape,
        obs_dtype=observations.dtype,
        act_shape=actions.shape,
        act_dtype=actions.dtype,
        n_envs=env.n_envs,
        n_step=cfg.n_step,
        gamma=cfg.gamma,
        seed=algorithm.streams.seeds("replay", 1)[0],
        goals=goals,
    )
