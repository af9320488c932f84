"""A batched env's algorithm in rlox: envs by name, iterations, state."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import gymnasium
import numpy as np
import torch
from rlox.config.composition import selection
from rlox.config.model import Config, changed
from rlox.envs import fixed_env_count
from rlox.errors import CheckpointError, ConfigError
from rlox.protocols import VecEnv
from rlox.training.hooks import Hooks
from tensordict import TensorDict

from rlox_rl8.vec_envs import tensor_env

__all__ = [
    "RL8Metrics",
    "find_env",
    "fit_to_env",
    "iterate",
    "load_state",
    "state_of",
]

ConfigT = TypeVar("ConfigT", bound=Config)

VEC_DEFAULTS = {
    "n_envs": 32,
    "horizons_per_env_reset": -1,
    "gamma": 0.99,
    "sgd_minibatch_size": 256,
}
"""Options of envs whose episodes end, unless they are given; the size of minibatches is the most
that is taken, see :func:`fit_to_env`."""

RECURRENT_DEFAULTS = {"sgd_minibatch_size": 64, "seqs_per_state_reset": -1}
"""Those of recurrent policies, whose states begin with episodes."""


@dataclass(frozen=True)
class RL8Metrics:
    """One iteration's report."""

    mean_reward: float
    """Mean sum of a horizon's rewards over the envs; of envs whose episodes end, mean return of the
    last 100 of them."""
    policy_loss: float
    value_loss: float
    entropy: float
    """In nats; 0 if its weight is."""
    approx_kl: float
    """In nats."""


def iterate(
    agent: Any, env_config: dict[str, Any] | None, hooks: Hooks
) -> tuple[RL8Metrics, dict[str, float]]:
    """Collect one horizon, then learn from it.

    Args:
        agent: an :class:`rlox_rl8.Algorithm` or an :class:`rlox_rl8.RecurrentAlgorithm`.
        env_config: passed to the env at its next reset.
        hooks: of the training.

    Returns:
        The metrics, and the statistics under the names of :class:`rlox_rl8.Trainer`.
    """
    ends = agent.ends
    with agent.reporting(hooks.env_step, hooks.train_batch, hooks.step_listened):
        collected = agent.collect(env_config=env_config)
        hooks.rollout_end(agent.buffer)
        learnt = agent.step()
    metrics = RL8Metrics(
        mean_reward=collected["returns/mean"] if ends is None else ends.statistics.mean_return,
        policy_loss=-learnt["losses/policy"],
        value_loss=learnt["losses/vf"],
        entropy=learnt["losses/entropy"],
        approx_kl=learnt["monitors/kl_div"],
    )
    return metrics, {**collected, **learnt}


def find_env(env: Any, config: Any) -> Any:
    """Return a class of batched envs.

    Args:
        env: such a class, or ``"module:Class"``, or a function with its arguments; or what ``ppo``
            takes: an id, a callable without arguments that makes an env, an env or a vector env.
        config: says how the latter are made.

    Raises:
        ConfigError: it is no env, or ``env_kwargs`` or ``env_backend`` are given for a class.
    """
    found = env
    if _is_vec_source(env):
        return tensor_env(
            env, env_kwargs=config.env_kwargs, backend=selection(config, "env_backend")
        )
    for name in ("env_kwargs", "env_backend"):
        if changed(config, name):
            raise ConfigError(f"{name} is for gymnasium's and native envs; leave it out")
    if isinstance(env, str):
        module, _, name = env.partition(":")
        if "" in (*module.split("."), name):
            raise ConfigError(f"env must be 'module:Class', got '{env}'")
        if "" not in sys.path:
            sys.path.insert(0, "")
        try:
            found = getattr(importlib.import_module(module), name)
        except (ModuleNotFoundError, AttributeError) as error:
            raise ConfigError(f"env '{env}' cannot be imported: {error}") from None
    steps = all(hasattr(found, name) for name in ("reset", "step"))
    if (inspect.isclass(found) and not steps) or not callable(found):
        raise ConfigError(f"env must be a class of rlox.protocols.TensorEnv, got {found!r}")
    return found


def _is_vec_source(env: Any) -> bool:
    """Return whether an env is one for :func:`rlox.envs.make_vec_env`."""
    if isinstance(env, str):
        return ":" not in env
    if inspect.isclass(env):
        return issubclass(env, gymnasium.Env)
    if isinstance(env, (gymnasium.Env, gymnasium.vector.VectorEnv, VecEnv)):
        return True
    if not callable(env):
        return False
    try:
        inspect.signature(env).bind()
    except (TypeError, ValueError):  # it needs arguments, as a batched env does
        return False
    return True


def fit_to_env(config: ConfigT, env: Any) -> ConfigT:
    """Return the config with what is left out as an env whose episodes end needs it.

    It is reset once, and has 32 copies, a discount of 0.99 and minibatches of 256 samples, or the
    greatest divisor of the buffer's samples below that; rl8's numbers are for thousands of copies
    that are reset together.
    """
    if not _is_vec_source(env):
        return config
    numbers: dict[str, Any] = dict(VEC_DEFAULTS)
    if "seqs_per_state_reset" in type(config).model_fields:
        numbers |= RECURRENT_DEFAULTS
    count = fixed_env_count(env)
    if count is not None:
        numbers["n_envs"] = count
    left_out = {k: v for k, v in numbers.items() if k not in config.model_fields_set}
    if "sgd_minibatch_size" in left_out:
        chosen: Any = config.replace(**left_out)
        copies = chosen.n_envs if count is None else min(chosen.n_envs, count)
        samples = copies * (chosen.horizon // getattr(chosen, "seq_len", 1))
        most = chosen.sgd_minibatch_size
        left_out["sgd_minibatch_size"] = next(n for n in range(most, 0, -1) if samples % n == 0)
    return config.replace(**left_out)


def state_of(agent: Any) -> dict[str, Any]:
    """Return what training changes, as arrays and plain values."""
    env = agent.env
    return {
        "model": {k: _array(v) for k, v in agent.policy.model.state_dict().items()},
        "optimizer": agent.flat.state_dict(),
        "rates": [float(group["lr"]) for group in agent.optimizer.param_groups],
        "entropy_coeff": agent.entropy_scheduler.coeff,
        "scaler": dict(agent.grad_scaler.state_dict()),
        "counters": asdict(agent.state),
        "whole": agent._whole,
        "storage": _leaves(agent._storage),
        "states": _leaves(agent._states) if hasattr(agent, "_states") else {},
        "starts": [_leaves(s) for s in getattr(agent, "_starts", ())],
        "env": env.state_dict() if hasattr(env, "state_dict") else None,
        "env_kind": _state_kind(env),
        "episodes": None if agent.ends is None else agent.ends.statistics.state_dict(),
    }


def load_state(agent: Any, state: Mapping[str, Any]) -> None:
    """Restore what :func:`state_of` returned; an env that no state fits begins with a reset.

    Raises:
        CheckpointError: the state is of another model or env.
    """
    model = {k: torch.from_numpy(np.array(v)) for k, v in state["model"].items()}
    agent.policy.model.load_state_dict(model)
    agent.flat.load_state_dict(state["optimizer"])
    for group, rate in zip(agent.optimizer.param_groups, state["rates"], strict=True):
        group["lr"] = rate
    agent.entropy_scheduler.coeff = state["entropy_coeff"]
    agent.grad_scaler.load_state_dict(dict(state["scaler"]))
    for name, value in state["counters"].items():
        setattr(agent.state, name, value)
    _copy(state["storage"], agent._storage)
    if state["states"]:
        agent._states = _like(agent._states, state["states"])
        agent._starts = [_like(agent._states, s) for s in state["starts"]]
    agent._whole = bool(state["whole"])
    fits = state.get("env_kind", "") == _state_kind(agent.env)
    exact = state["env"] is not None and fits and hasattr(agent.env, "load_state_dict")
    if exact:
        agent.env.load_state_dict(state["env"])
    else:
        agent._whole = False
    if agent.ends is not None and agent.ends.statistics.fits(state["episodes"]):
        agent.ends.statistics.load_state_dict(state["episodes"], keep_running=exact)


def _state_kind(env: Any) -> str:
    """Return whose state an env's is, if only one kind of env takes it."""
    return getattr(env, "state_kind", "")


def _array(x: torch.Tensor) -> np.ndarray[Any, Any]:
    array: np.ndarray[Any, Any] = x.detach().cpu().numpy().copy()
    return array


def _leaves(data: TensorDict) -> dict[str, Any]:
    return {k: _array(v) for k, v in data.flatten_keys("/").items()}


def _copy(saved: Mapping[str, Any], into: TensorDict) -> None:
    for key, value in saved.items():
        target = into[tuple(key.split("/"))]
        found = torch.from_numpy(np.array(value))
        if found.shape != target.shape:
            raise CheckpointError(
                f"'{key}' has shape {tuple(found.shape)}, expected {tuple(target.shape)}"
            )
        target.copy_(found)


def _like(states: TensorDict, saved: Mapping[str, Any]) -> TensorDict:
    out: TensorDict = states.clone()
    _copy(saved, out)
    return out
