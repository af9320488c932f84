"""Policies of Stable-Baselines3, read without running what their files hold.

A file ``model.zip`` holds pickled objects beside the parameters. None of them is unpickled: the
parameters are read by ``torch.load(weights_only=True)``, their names and shapes say what network
they are of, and the plain text of the file's JSON says which activations lie between the layers.
The spaces, which are pickled, are those of the env.
"""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import torch
from rlox.deployment.policy import LoadedPolicy, NumPyNetwork, PolicyData
from rlox.envs import make_vec_env
from rlox.errors import CheckpointError, ExportError, MissingDependencyError, SpaceError
from rlox.files import require_memory_for
from rlox.preprocessing import Preprocessor
from rlox.spaces import ActionRows

from rlox_tools.deployment.stable_baselines3_networks import KINDS, Network

__all__ = ["from_stable_baselines3", "read_moments"]

Array = npt.NDArray[Any]

SAFE_TORCH = (2, 6)
"""Earlier versions could be made to run code by a file of parameters (CVE-2025-32434)."""


def from_stable_baselines3(
    path: str | Path,
    env: Any,
    *,
    observation_moments: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
) -> LoadedPolicy:
    """Return the policy in a file that Stable-Baselines3's ``model.save`` wrote.

    PPO, A2C, SAC, TD3, DDPG and DQN; of sb3-contrib TRPO, MaskablePPO, RecurrentPPO, TQC and
    QR-DQN. It needs torch 2.6 or newer, and Stable-Baselines3 not at all.

    Args:
        path: of the file ``model.zip``.
        env: what it was trained on, for its spaces: an id, a callable that makes an env, an env or
            a vector env, with the wrappers of the training.
        observation_moments: mean and variance, each with the shape of an observation, if the
            training normalised observations: ``obs_rms.mean`` and ``obs_rms.var`` of the
            ``VecNormalize``, which are not in the file.

    Returns:
        A policy that acts, and that :func:`rlox.export` writes.

    Raises:
        CheckpointError: the file is missing or damaged, or not one of Stable-Baselines3.
        ExportError: it holds networks that cannot be described.
        MissingDependencyError: torch is older than that.
        SpaceError: the env has other spaces than what it was trained on.
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
    except Exception as error:  # whatever damaged content makes zipfile, json and torch raise
        raise CheckpointError(
            f"'{path}' is damaged or no file of Stable-Baselines3: {error}"
        ) from None
    if not isinstance(data, dict):
        raise CheckpointError(f"'{path}' is no file of Stable-Baselines3: its data is no mapping")
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
