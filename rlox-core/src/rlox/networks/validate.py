"""Validation of user-supplied networks with a dry run before training.

Wrongly shaped outputs would be broadcast in the losses, and learning would silently fail.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import nn
from torch.nn.parameter import is_lazy

from rlox.config.model import Config, changed
from rlox.errors import ConfigError
from rlox.nn.mlp import Layers
from rlox.protocols import RecurrentActor
from rlox.spaces.rows import ActionRows, ObservationRows, is_nested, leaf_spaces, map_leaves, split

LAYER_OPTIONS = tuple(each.name for each in fields(Layers))
"""The options of the layers of all default networks."""

B = 3
"""Observations that a network is tried on; with two, (B, 2) would look like (2, B)."""

Shape = tuple[int | None, ...]

LARGEST = 10.0
"""Values for a ``Box`` without bounds, or with its dtype's; this size overflows nowhere."""


def refuse_network_options(
    names: Sequence[str], config: Config, keywords: Mapping[str, Any]
) -> None:
    """Refuse options of the default networks if the caller passes all networks.

    Args:
        names: of those options; the config need not have all of them.
        config: the caller's options, resolved.
        keywords: options passed one by one. Only they count if the config has every option,
            since such a config was saved and does not show what the user chose.

    Raises:
        ConfigError: an option would be ignored.
    """
    saved = config.model_fields_set == set(type(config).model_fields)
    given = keywords if saved else config.given()
    for name in names:
        if name in given and changed(config, name):
            raise ConfigError(
                f"{name} is of the default networks, got {name}={getattr(config, name)!r} and "
                "networks of your own; leave it out, and build them as they are to be"
            )


def example_observations(space: gymnasium.Space[Any]) -> Any:
    """Return :data:`B` copies of an observation, see :class:`rlox.spaces.ObservationRows`.

    Args:
        space: of one env; its random stream does not change.
    """
    space = copy.deepcopy(space)
    space.seed(0)
    leaves: Any = leaf_spaces(space)
    leaves = leaves if is_nested(space) else leaves[""]
    rows = map_leaves(
        lambda value, leaf: np.stack([_moderate(value, leaf)] * B),
        split(space, space.sample()),
        leaves,
    )
    return ObservationRows(space).stored(rows)


def _moderate(value: Any, space: gymnasium.Space[Any]) -> Any:
    if not isinstance(space, spaces.Box) or space.dtype.kind != "f":
        return value
    return np.clip(np.clip(value, -LARGEST, LARGEST), space.low, space.high)


def try_network(
    network: nn.Module,
    called: str,
    call: Callable[[], Any],
    asked: str,
    *shapes: Shape | list[Shape],
) -> tuple[Any, ...]:
    """Call a network and check what it returns; neither its buffers nor a random stream change.

    Args:
        network: the module that is called.
        called: its name for the caller, and its method.
        call: calls it.
        asked: the arguments of the call, in words.
        shapes: of the output, or of several outputs; ``None`` allows any size; a list: one of
            these.

    Returns:
        The outputs.

    Raises:
        ConfigError: the call fails, or the outputs have other shapes.
    """
    try:
        with _undisturbed(network):
            returned = call()
    except Exception as error:
        raise ConfigError(f"{called} fails on {asked}: {error}") from error
    several = len(shapes) > 1 and isinstance(returned, (tuple, list))
    outputs = tuple(returned) if several else (returned,)
    got = [getattr(output, "shape", None) for output in outputs]
    if len(got) != len(shapes) or not all(map(_fits, got, shapes)):
        expected, found = " and ".join(map(_text, shapes)), " and ".join(map(_text, got))
        raise ConfigError(f"{called} must return {expected} for {asked}, got {found}")
    return outputs


@contextmanager
def _undisturbed(network: nn.Module) -> Iterator[None]:
    """On leaving the block, restore all random streams and the network's buffers and mode."""
    modules = list(network.modules())
    modes = [module.training for module in modules]
    buffers = [
        (module, name, buffer, buffer.clone())
        for module in modules
        for name, buffer in module.named_buffers(recurse=False)
        if not is_lazy(buffer)
    ]
    held = [value for module in modules for value in vars(module).values()]
    streams = [(g, g.get_state()) for g in held if isinstance(g, torch.Generator)]
    devices = {p.device for p in network.parameters() if p.device.type == "cuda"}
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=list(devices)):
            network.eval()
            yield
    finally:
        for module, trains in zip(modules, modes, strict=True):
            module.training = trains
        for module, name, buffer, value in buffers:
            setattr(module, name, buffer)
            buffer.detach().copy_(value)
        for generator, state in streams:
            generator.set_state(state)


def _fits(got: Any, shape: Shape | list[Shape]) -> bool:
    if isinstance(shape, list):
        return any(_fits(got, each) for each in shape)
    return got is not None and (
        len(got) == len(shape) and all(s in (None, g) for s, g in zip(shape, got, strict=True))
    )


def _text(shape: Any) -> str:
    if shape is None:
        return "no tensor"
    if isinstance(shape, list):
        return " or ".join(map(_text, shape))
    sizes = ["any" if s is None else str(s) for s in shape]
    return f"({', '.join(sizes)}{',' * (len(sizes) == 1)})"


def require_actor(policy: object) -> None:
    """Check that a policy has the methods of an actor-critic.

    Raises:
        TypeError: it is not a module, or lacks a method.
    """
    if isinstance(policy, RecurrentActor):
        return
    methods = ("get_action_and_logprob", "get_value", "get_logprob_and_entropy", "deterministic")
    missing = [name for name in methods if not callable(getattr(policy, name, None))]
    if not isinstance(policy, nn.Module) or missing:
        lacks = f", which lacks {', '.join(missing)}" if isinstance(policy, nn.Module) else ""
        raise TypeError(
            "policy must be a torch.nn.Module with the methods of rlox.protocols.OnPolicyActor, "
            f"got {type(policy).__name__}{lacks}"
        )


def try_actor(
    policy: Any,
    observation_space: gymnasium.Space[Any],
    action_space: gymnasium.Space[Any],
    device: torch.device,
) -> None:
    """Try all methods of a policy on :data:`rlox.networks.validate.B` observations.

    Neither its buffers nor a random stream change.

    Args:
        policy: has the methods of :class:`rlox.protocols.OnPolicyActor` or
            :class:`rlox.protocols.RecurrentActor`.
        observation_space: of one env, as the policy sees it.
        action_space: of one env.
        device: where the policy is.

    Raises:
        ConfigError: a method fails, or returns other shapes; the text names it.
    """
    obs = map_leaves(
        lambda leaf: torch.from_numpy(leaf).to(device), example_observations(observation_space)
    )
    rows = ActionRows(action_space)
    columns = sum(leaf.columns for leaf in rows.leaves)
    # as flat rows, or in the space's shape
    discrete, shape = isinstance(action_space, spaces.Discrete), action_space.shape
    actions: list[Shape] = [(B,)] if discrete else [(B, columns)]
    actions += [] if shape is None or (B, *shape) in actions else [(B, *shape)]
    asked = f"{B} observations of {observation_space}"

    def attempt(method: str, call: Callable[[], Any], given: str, *shapes: Any) -> Any:
        return try_network(policy, f"policy.{method}", call, given, *shapes)

    if isinstance(policy, RecurrentActor):
        state = torch.zeros(B, policy.state_size, device=device)
        known = {"state": state, "episode_starts": torch.ones(B, dtype=torch.bool, device=device)}

        def step() -> Any:
            distribution, values, after = policy.step(obs, state, None)
            sampled = distribution.sample(torch.Generator(device))
            return *sampled, distribution.mode(), values, after

        drawn, *_ = attempt("step", step, asked, actions, (B,), actions, (B,), tuple(state.shape))
        evaluate = partial(policy.evaluate_actions, obs, drawn, **known)
        attempt("evaluate_actions", evaluate, f"{asked} and {B} actions", (B,), (B,), (B,))
        return
    masks = torch.ones(B, rows.mask_size, dtype=torch.bool, device=device)

    def tried(method: str, given: tuple[Any, ...], *shapes: Any) -> Any:
        function = getattr(policy, method)
        taken = inspect.signature(function).parameters.get("action_masks")
        more = (masks,) if taken is not None and taken.default is taken.empty else ()
        text = asked if len(given) == 1 else f"{asked} and {B} actions"
        return attempt(method, lambda: function(*given, *more), text, *shapes)

    drawn, _ = tried("get_action_and_logprob", (obs,), actions, (B,))
    if hasattr(policy, "act_with_value"):
        tried("act_with_value", (obs,), actions, (B,), (B,))
    tried("deterministic", (obs,), actions)
    tried("get_value", (obs,), (B,))
    tried("get_logprob_and_entropy", (obs, drawn), (B,), (B,))
    if hasattr(policy, "evaluate_actions"):
        tried("evaluate_actions", (obs, drawn), (B,), (B,), (B,))
