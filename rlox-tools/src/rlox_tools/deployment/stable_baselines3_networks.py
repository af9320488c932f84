"""Networks of Stable-Baselines3's policies, described as layers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from rlox.errors import ExportError, SpaceError
from rlox.nn.layer_data import FUNCTIONS, LayerData, activation, chain, mode
from rlox.spaces import ActionRows

__all__ = ["KINDS", "Kind", "Network"]

Array = npt.NDArray[Any]

NAMES = {kind.__name__: name for kind, name in FUNCTIONS.items()}
"""Activations by their names in torch."""


@dataclass(frozen=True)
class Kind:
    """How one family of Stable-Baselines3's algorithms acts."""

    algorithm: str
    """Registered name of rlox's algorithm of this kind."""
    marker: str
    """A parameter that no other family has."""
    features: str
    """Prefix of the encoder's parameters."""
    hidden: tuple[str, ...]
    """Prefixes of layers that an activation follows."""
    output: str
    """Prefix of the layers that end in the outputs."""
    activation: str
    """Between the layers, unless the file names another."""
    squashed: bool = False
    """Whether the outputs become actions by tanh and the bounds of the actions."""


KINDS = (
    Kind("ppo", "action_net.weight", "features_extractor.", ("mlp_extractor.policy_net.",),
          "action_net.", "tanh"),
    Kind("sac", "actor.latent_pi.0.weight", "actor.features_extractor.", ("actor.latent_pi.",),
          "actor.mu.", "relu", squashed=True),
    Kind("td3", "actor.mu.0.weight", "actor.features_extractor.", (), "actor.mu.", "relu",
          squashed=True),
    Kind("dqn", "q_net.q_net.0.weight", "q_net.features_extractor.", (), "q_net.q_net.", "relu"),
    Kind("dqn", "quantile_net.quantile_net.0.weight", "quantile_net.features_extractor.", (),
          "quantile_net.quantile_net.", "relu"),
)  # fmt: skip


class Network:
    """A policy's parameters, and their description as layers.

    Args:
        parameters: by their names.
        kind: what they are of.
        options: the text of ``policy_kwargs``.
        path: named in errors.
    """

    def __init__(
        self, parameters: Mapping[str, Array], kind: Kind, options: dict[str, Any], path: str
    ) -> None:
        self._parameters, self._kind, self._options, self._path = parameters, kind, options, path
        named = re.search(r"(\w+)'>$", str(options.get("activation_fn", "")))
        self._activation = NAMES.get(named[1], named[1]) if named else kind.activation
        if self._activation not in NAMES.values():
            raise self._refused(f"the activation {self._activation}", ", ".join(NAMES))

    def describe(self, space: gymnasium.Space[Any], actions: gymnasium.Space[Any]) -> LayerData:
        """Return layers from observations to rows of actions.

        Raises:
            ExportError: a part cannot be described.
            SpaceError: the spaces are not those of the parameters.
        """
        kind = self._kind
        layers = [*self._features(space), *self._memory()]
        for prefix in kind.hidden:
            layers += self._linears(prefix, follow=True)
        layers += self._linears(kind.output, follow=False)
        outputs = len(_last(layers, "weight"))
        if kind.squashed:
            layers += self._bounded(actions, outputs)
            return chain(*layers)
        rows = ActionRows(actions)
        expected = sum(sum(leaf.sizes) or leaf.columns for leaf in rows.leaves)
        if isinstance(actions, spaces.MultiBinary):
            expected = rows.leaves[0].columns
        if "quantile" in kind.marker:
            layers += self._quantiles(layers, expected)
            outputs = len(_last(layers, "weight")) // layers[-2]["count"]
        self._fits(outputs, expected, "actions", actions)
        return chain(*layers, mode(actions))

    def _features(self, space: gymnasium.Space[Any]) -> list[LayerData]:
        """Return the layers from observations to features."""
        prefix = self._kind.features
        own = [name for name in self._parameters if name.startswith(prefix)]
        if any(".extractors." in name for name in own) or isinstance(space, spaces.Dict):
            raise self._refused("observations that are a Dict", "Box, Discrete and Multi... ones")
        if own and not any(name.startswith(f"{prefix}cnn.") for name in own):
            raise self._refused("a features extractor of your own", "FlattenExtractor, NatureCNN")
        normalized = self._options.get("normalize_images", True) is not False
        image = _is_image(space)
        scale = 255.0 if image and normalized else 1.0
        first = {"layer": "image", "channels_first": _channels_first(space), "divide_by": scale}
        flat = {"layer": "flatten", "divide_by": 1.0}
        if own:
            if len(space.shape or ()) != 3:
                raise SpaceError(f"'{self._path}' takes images, got an env with {space}")
            layers: list[LayerData] = [first]
            for at, stride in zip((0, 2, 4), (4, 2, 1), strict=True):
                convolution = self._layer(f"{prefix}cnn.{at}.", dimensions=4)
                layers += [{**convolution, "layer": "convolution", "stride": stride}]
                layers += [activation("relu")]
            return [*layers, flat, self._layer(f"{prefix}linear.0."), activation("relu")]
        if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)):
            sizes = np.array(space.n if isinstance(space, spaces.Discrete) else space.nvec).ravel()
            places = np.cumsum(sizes) - sizes - np.array(space.start).ravel()
            layers = [{"layer": "one_hot", "first": places, "size": int(sizes.sum())}]
            size = int(sizes.sum())
        else:
            layers = [first, flat] if image else [flat]
            size = int(np.prod(space.shape or (1,)))
        lstm = self._parameters.get("lstm_actor.weight_ih_l0")
        inner = (*self._kind.hidden, self._kind.output)
        taken = lstm if lstm is not None else self._first(inner)
        self._fits(taken.shape[1], size, "observations", space)
        return layers

    def _memory(self) -> list[LayerData]:
        """Return the LSTM of a RecurrentPPO, if there is one."""
        prefix = "lstm_actor."
        if f"{prefix}weight_ih_l0" not in self._parameters:
            return []
        if f"{prefix}weight_ih_l1" in self._parameters:
            raise self._refused("an LSTM of several layers", "one of one layer")
        names = {"input_weight": "weight_ih_l0", "hidden_weight": "weight_hh_l0",
                 "input_bias": "bias_ih_l0", "hidden_bias": "bias_hh_l0"}  # fmt: skip
        read = {key: self._parameters[prefix + name] for key, name in names.items()}
        return [{"layer": "memory", "kind": "lstm", **read}]

    def _first(self, prefixes: tuple[str, ...]) -> Array:
        """Return the weights that the features go into."""
        names = (f"{prefix}{at}weight" for prefix in prefixes for at in ("0.", ""))
        return next(self._parameters[name] for name in names if name in self._parameters)

    def _linears(self, prefix: str, *, follow: bool) -> list[LayerData]:
        """Return the linear layers below a prefix, an activation after each or between them."""
        if f"{prefix}weight" in self._parameters:
            return [self._layer(prefix)]
        found = (re.fullmatch(rf"{re.escape(prefix)}(\d+)\.weight", n) for n in self._parameters)
        places = sorted(int(match[1]) for match in found if match)
        if places != list(range(0, 2 * len(places), 2)):
            raise self._refused("layers other than linear ones and activations", "nothing else")
        layers: list[LayerData] = []
        for at in places:
            layers += [self._layer(f"{prefix}{at}."), activation(self._activation)]
        return layers if follow else layers[:-1]

    def _layer(self, prefix: str, dimensions: int = 2) -> LayerData:
        weight = self._parameters.get(f"{prefix}weight")
        if weight is None or weight.ndim != dimensions:
            raise self._refused(f"what is called {prefix}weight", "linear layers and NatureCNN")
        bias = self._parameters.get(f"{prefix}bias", np.zeros(len(weight), np.float32))
        return {"layer": "linear", "weight": weight, "bias": bias}

    def _bounded(self, actions: gymnasium.Space[Any], outputs: int) -> list[LayerData]:
        """Return the layers from outputs to actions within their bounds."""
        if not isinstance(actions, spaces.Box):
            raise SpaceError(f"'{self._path}' takes actions of a Box, got an env with {actions}")
        self._fits(outputs, int(np.prod(actions.shape)), "actions", actions)
        low, high = (np.ravel(each).astype(np.float64) for each in (actions.low, actions.high))
        affine = {"layer": "affine", "scale": (high - low) / 2, "shift": (low + high) / 2}
        return [activation("tanh"), affine]

    def _quantiles(self, layers: list[LayerData], n_actions: int) -> list[LayerData]:
        """Return the mean over quantiles, of outputs put in order: here by action first."""
        last = layers[-1]
        count = len(last["weight"]) // n_actions
        order = np.arange(count * n_actions).reshape(count, n_actions).T.ravel()
        layers[-1] = {**last, "weight": last["weight"][order], "bias": last["bias"][order]}
        return [{"layer": "atoms", "count": count}, {"layer": "mean"}]

    def _fits(self, found: int, expected: int, what: str, space: gymnasium.Space[Any]) -> None:
        if found != expected:
            raise SpaceError(
                f"'{self._path}' has {found} numbers for {what}, and the env's {what} in {space} "
                f"need {expected}; pass the env that it was trained on, with its wrappers"
            )

    def _refused(self, what: str, known: str) -> ExportError:
        return ExportError(f"'{self._path}' has {what}; what can be read: {known}")


def _is_image(space: gymnasium.Space[Any]) -> bool:
    """Return whether Stable-Baselines3 takes observations for images."""
    return (
        isinstance(space, spaces.Box)
        and len(space.shape) == 3
        and space.dtype == np.uint8
        and bool((space.low == 0).all() and (space.high == 255).all())
    )


def _channels_first(space: gymnasium.Space[Any]) -> bool:
    return len(space.shape or ()) == 3 and int(np.argmin(space.shape or ())) == 0


def _last(layers: list[LayerData], key: str) -> Array:
    array: Array = next(layer[key] for layer in reversed(layers) if key in layer)
    return array
