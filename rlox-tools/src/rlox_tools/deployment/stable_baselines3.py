"""Policies of Stable-Baselines3, read without running code from their files.

A file ``model.zip`` holds parameters and pickled objects. Nothing is unpickled: the parameters are
read by ``torch.load(weights_only=True)``, their names and shapes identify the network, and the
plain text of the file's JSON names the activations between the layers. The spaces, which are
pickled, are taken from the env.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from rlox.deployment.policy import LoadedPolicy, NumPyNetwork, PolicyData
from rlox.envs import make_vec_env
from rlox.envs.preprocessing import Preprocessor
from rlox.errors import CheckpointError, ExportError, MissingDependencyError, SpaceError
from rlox.files import require_memory_for
from rlox.nn.layer_data import FUNCTIONS, LayerData, activation, chain, mode
from rlox.spaces import ActionRows

Array = npt.NDArray[Any]

SAFE_TORCH = (2, 6)
"""In earlier versions a file of parameters could run code (CVE-2025-32434)."""


def from_stable_baselines3(
    path: str | Path,
    env: Any,
    *,
    observation_moments: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
) -> LoadedPolicy:
    """Return the policy in a file that Stable-Baselines3's ``model.save`` wrote.

    PPO, A2C, SAC, TD3, DDPG and DQN; of sb3-contrib TRPO, MaskablePPO, RecurrentPPO, TQC and
    QR-DQN. It needs torch 2.6 or newer, but not Stable-Baselines3.

    Args:
        path: path of the file ``model.zip``.
        env: the training's env, for its spaces: an id, a callable that makes an env, an env or a
            vector env, with the wrappers of the training.
        observation_moments: mean and variance, each with the shape of an observation, if the
            training normalised observations: ``obs_rms.mean`` and ``obs_rms.var`` of the
            ``VecNormalize``, which are not in the file.

    Returns:
        A policy that acts, and that :func:`rlox.export` writes.

    Raises:
        CheckpointError: the file is missing or damaged, or not one of Stable-Baselines3.
        ExportError: it holds networks that cannot be described.
        MissingDependencyError: torch is older.
        SpaceError: the env's spaces differ from those of the training.
    """
    data, parameters = _read(Path(path))
    kind = next((kind for kind in KINDS if kind.marker in parameters), None)
    if kind is None:
        raise ExportError(
            f"'{path}' holds no policy of a known kind, its parameters are "
            f"{', '.join(sorted(parameters)[:5])}, ...; it may be of a policy class of your own"
        )
    if data.get("use_sde"):
        raise ExportError(f"'{path}' was trained with use_sde=True, which is not supported")
    vec_env = make_vec_env(env)
    space, actions = vec_env.observation_space, vec_env.action_space
    if isinstance(env, str) or callable(env):
        vec_env.close()
    options = data.get("policy_kwargs")
    network = Network(parameters, kind, options if isinstance(options, dict) else {}, str(path))
    masked = "maskable" in str(data.get("policy_class", {}).get("__module__", ""))
    policy = PolicyData(
        algorithm=kind.algorithm,
        observation_space=space,
        action_space=actions,
        network=network.describe(space, actions),
        preprocessor=_preprocessor(space, observation_moments),
        takes_masks=masked and ActionRows(actions).mask_size > 0,
    )
    return LoadedPolicy(policy, NumPyNetwork(policy.network))


def read_moments(path: Path) -> tuple[Array, Array]:
    """Return mean and variance from a file ``.npz`` with the arrays ``mean`` and ``var``.

    Raises:
        CheckpointError: the file is missing or damaged, or lacks one of them.
    """
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return np.asarray(arrays["mean"]), np.asarray(arrays["var"])
    except (OSError, LookupError, TypeError, ValueError, zipfile.BadZipFile) as error:
        raise CheckpointError(
            f"'{path}' is no .npz with the arrays mean and var: {error}; write one with "
            "np.savez(path, mean=env.obs_rms.mean, var=env.obs_rms.var)"
        ) from None


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return the JSON of a file and the parameters by their names."""
    _require_safe_torch()
    try:
        with zipfile.ZipFile(path) as archive:
            sizes = {entry.filename: entry.file_size for entry in archive.infolist()}
            size = sum(sizes.get(name, 0) for name in ("data", "policy.pth"))
            require_memory_for("policy file", str(path), 2 * size, "take a smaller one")
            data = json.loads(archive.read("data"))
            file = io.BytesIO(archive.read("policy.pth"))
        parameters = torch.load(file, map_location="cpu", weights_only=True)
        found = {str(name): np.asarray(value.numpy()) for name, value in parameters.items()}
    except MemoryError:
        raise
    except OSError as error:
        raise CheckpointError(f"'{path}' cannot be read: {error}") from None
    except Exception as error:  # damaged content makes zipfile, json and torch raise many types
        raise CheckpointError(
            f"'{path}' is damaged or not a file of Stable-Baselines3: {error}"
        ) from None
    if not isinstance(data, dict):
        raise CheckpointError(f"'{path}' is not Stable-Baselines3's: its data is not a mapping")
    return data, found


def _require_safe_torch() -> None:
    if tuple(map(int, torch.__version__.split(".")[:2])) < SAFE_TORCH:
        raise MissingDependencyError(
            "reading a policy of Stable-Baselines3 needs torch 2.6 or newer, got "
            f"{torch.__version__}; run: pip install 'torch>=2.6'"
        )


def _preprocessor(space: gymnasium.Space[Any], moments: Any) -> Preprocessor | None:
    if moments is None:
        return None
    shape = space.shape or ()
    mean, variance = (np.asarray(each, np.float64) for each in moments)
    if mean.shape != shape or variance.shape != shape:
        raise SpaceError(
            f"observation_moments must be of shape {shape} each, as the env's observations, got "
            f"{mean.shape} and {variance.shape}"
        )
    preprocessor = Preprocessor(space, normalize=True, frame_stack=1)
    preprocessor.load_state_dict({"": {"mean": mean, "variance": variance, "count": 1.0}})
    return preprocessor


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
        parameters: arrays by name.
        kind: family of the algorithm.
        options: the text of ``policy_kwargs``.
        path: path for errors.
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
        """Return the weights that take the features."""
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
            raise self._refused(f"a parameter {prefix}weight", "linear layers and NatureCNN")
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
        """Return the mean over quantiles, after reordering the outputs by action first."""
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
    """Return whether Stable-Baselines3 treats observations as images."""
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
