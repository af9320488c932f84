"""Policy files: writer and reader.

A file ``policy.rlox`` is one safetensors file: the arrays are its tensors, and its metadata holds
JSON with the format version, the spaces, the preprocessing and the layers
(:mod:`rlox.deployment.layers`). Nothing in it is code. A file ``policy.onnx`` is a graph that any
ONNX runtime computes, whose metadata holds the rest.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from collections.abc import Callable
from dataclasses import replace
from operator import index
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as safetensors_bytes

from rlox.deployment.policy import (
    Compute,
    Exportable,
    LoadedPolicy,
    NumPyNetwork,
    PolicyData,
    example,
)
from rlox.deployment.teams import LoadedTeam, TeamData
from rlox.envs.preprocessing import Preprocessor
from rlox.errors import MISFITS, CheckpointError, ConfigError, ExportError, import_extra
from rlox.files import open_regular, require_memory_for, write_atomically
from rlox.spaces import ActionRows
from rlox.spaces.data import count_numbers, space_from_data, space_to_data
from rlox.training.checkpoint import installed_versions
from rlox.training.segments import metadata_of, pack, require_like, unpack

MARK = "rlox-sha256:"
PLACEHOLDER = MARK + "0" * 64
"""Stands in a file's metadata until its digest is known."""

FOUND = re.compile(re.escape(MARK).encode() + b"[0-9a-f]{64}")


def seal(content: bytes) -> bytes:
    """Return a file's contents, the :data:`PLACEHOLDER` replaced by their SHA-256."""
    digest = MARK + hashlib.sha256(content).hexdigest()
    return content.replace(PLACEHOLDER.encode(), digest.encode())


def is_intact(content: bytes) -> bool:
    """Return whether a sealed file's digest matches its contents."""
    found = FOUND.search(content)
    if found is None:
        return False
    whole = content.replace(found.group(), PLACEHOLDER.encode())
    return found.group() == MARK.encode() + hashlib.sha256(whole).hexdigest().encode()


FORMAT_VERSION = 2  # 2 has teams

ALWAYS_MADE = 2**20
"""Array size that any file may ask for; a genuine file has the weights for a larger one."""

SUFFIXES = (".rlox", ".onnx")
"""Suffixes of policy files."""

TEAM_FIELDS = ("agents", "groups", "remembers_rests")
"""Fields that a file of a team has besides its policies."""

Read = Callable[[PolicyData], Compute]


def export(algorithm: object, path: str | Path, *, agent: str | None = None) -> None:
    """Write the policy of a trained algorithm, or a team's policies, as one file without torch.

    Args:
        algorithm: returned by :func:`rlox.make` or ``from_checkpoint``.
        path: of the file; folders are made as needed. Its suffix sets the format: ``.rlox`` for
            :func:`load_policy` with NumPy, ``.onnx`` for any ONNX runtime (extra ``onnx``).
        agent: name of the only agent of a team to write, as for an env of one agent; ``None``
            writes all.

    Raises:
        ConfigError: the suffix is another.
        ExportError: the algorithm gives no policy, the policy holds a module that cannot be
            described, there is no such agent, or a whole team is to be one ONNX graph.
        MissingDependencyError: ONNX is not installed.
        OSError: the file cannot be written.
    """
    path = Path(path)
    _require_suffix(path)
    if not isinstance(algorithm, Exportable):
        name = getattr(algorithm, "name", type(algorithm).__name__)
        raise ExportError(
            f"'{name}' cannot be exported: it has no method policy_data(); use its checkpoint"
        )
    data = algorithm.policy_data()
    if agent is not None:
        if not isinstance(data, TeamData):
            raise ExportError(f"the policy is of one agent, got agent='{agent}'; leave it out")
        data = data.of_agent(agent)
    content = _to_bytes(data)
    if path.suffix == ".onnx":
        if isinstance(data, TeamData):
            raise ExportError(
                "a file .onnx holds one policy, and the agents are "
                f"{', '.join(data.agents)}; write one of them with agent=, or a file .rlox of all"
            )
        # the graph's layers are not repeated in the metadata
        rest = _to_bytes(replace(data, preprocessor=None, network={"layer": "chain", "layers": []}))
        header = {"rlox_policy": base64.b64encode(rest).decode(), "digest": PLACEHOLDER}
        content = _onnx().onnx_bytes(data, header)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, seal(content))


def load_policy(path: str | Path) -> LoadedPolicy | LoadedTeam:
    """Return the policy, or the policies of a team, in a file that :func:`export` wrote.

    Args:
        path: of a file ``.rlox`` or ``.onnx``.

    Raises:
        CheckpointError: the file is missing, damaged, not a policy, or too new.
        ConfigError: its suffix is another.
        MissingDependencyError: onnxruntime is not installed.
    """
    path = Path(path)
    _require_suffix(path)
    try:
        with open_regular(path, "rb") as file:
            size = 3 * os.fstat(file.fileno()).st_size  # with a copy for the digest, and the arrays
            require_memory_for("its arrays", None, size, "load it on a larger machine")
            content = file.read()
    except (MemoryError, OSError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CheckpointError(f"policy file '{path}' cannot be read: {reason}") from None
    if not is_intact(content):
        raise CheckpointError(
            f"'{path}' is not a policy file or is damaged: its digest is missing or does not fit; "
            "write one with rlox export"
        )
    read: Read = lambda data: NumPyNetwork(data.network)  # noqa: E731
    onnx = _onnx() if path.suffix == ".onnx" else None
    try:
        if onnx is not None:
            content, read = onnx.open_onnx(content, path)
        data = _from_bytes(content, path)
        if isinstance(data, TeamData):
            team = LoadedTeam(data, read)
            for one in team.agents.values():
                _try(one)
            return team
        policy = LoadedPolicy(data, read(data))
        _try(policy)
    except CheckpointError:
        raise
    except (SafetensorError, *MISFITS) as error:
        raise CheckpointError(f"'{path}' is not a policy file or is damaged: {error!r}") from None
    return policy


def _onnx() -> Any:
    """Return the module that writes and runs ONNX graphs."""
    return import_extra("rlox_tools.deployment.onnx", "a policy file .onnx", "tools")


def _try(policy: LoadedPolicy) -> None:
    """Act once, to refuse a network that does not fit the spaces."""
    rows, after = policy.act(*example(policy.data), {})
    actions = ActionRows(policy.action_space)
    columns = sum(leaf.columns for leaf in actions.leaves)
    if not np.isfinite(rows).all():
        raise ValueError("its network returns actions that are not finite")
    memory = np.shape(after.get("memory", [[]]))
    if rows.size != columns or len(rows) != 1 or memory != (1, policy.state_size):
        raise ValueError("its network returns other shapes than the actions have")
    actions.take(actions.to_env(rows), 0)


def _require_suffix(path: Path) -> None:
    if path.suffix not in SUFFIXES:
        raise ConfigError(
            f"the name of a policy file must end in {' or '.join(SUFFIXES)}, got '{path}'; rlox "
            "export writes one of a run"
        )


def _to_bytes(data: PolicyData | TeamData) -> bytes:
    tensors: dict[str, npt.NDArray[Any]] = {}
    header: dict[str, Any] = {
        "format_version": FORMAT_VERSION,
        "versions": installed_versions(),
    }
    if isinstance(data, TeamData):
        policies = {name: _tree(one) for name, one in data.policies.items()}
        rest = {name: getattr(data, name) for name in ("algorithm", *TEAM_FIELDS)}
        header["team"] = pack({"policies": policies, **rest}, "", tensors)
    else:
        header["policy"] = pack(_tree(data), "", tensors)
    return safetensors_bytes(
        tensors, metadata={"rlox_policy": json.dumps(header), "digest": PLACEHOLDER}
    )


def _tree(data: PolicyData) -> dict[str, Any]:
    seen = data.preprocessor
    return {
        "algorithm": data.algorithm,
        "observation_space": space_to_data(data.observation_space),
        "action_space": space_to_data(data.action_space),
        "preprocessing": None
        if seen is None
        else {"frame_stack": seen.frame_stack, "moments": seen.state_dict()},
        "takes_masks": data.takes_masks,
        "network": data.network,
    }


def _sizes_asked_for(layer: Any) -> list[int]:
    """Return sizes that layers allocate without having an array of that size."""
    if isinstance(layer, list):
        return [size for each in layer for size in _sizes_asked_for(each)]
    if not isinstance(layer, dict):
        return []
    own = {
        "max_pool": lambda: [index(layer.get("padding", 0)) ** 2],
        "one_hot": lambda: [index(layer["size"])],
        "pad": lambda: [sum(map(index, layer["sides"])) ** 2],
        "world_model": lambda: [sum(map(index, layer["sizes"]))],
    }.get(str(layer.get("layer")), list)()
    return own + [size for each in layer.values() for size in _sizes_asked_for(each)]


def _from_bytes(content: bytes, path: Path) -> PolicyData | TeamData:
    tensors = load_tensors(content)
    header = json.loads(metadata_of(content)["rlox_policy"])
    version = header["format_version"]
    if type(version) is not int or not 1 <= version <= FORMAT_VERSION:
        raise CheckpointError(
            f"policy file '{path}' has format version {version!r}, this rlox reads up to "
            f"{FORMAT_VERSION}; upgrade rlox"
        )
    largest = max(sum(array.size for array in tensors.values()), ALWAYS_MADE)
    if "policy" in header:
        return _policy(unpack(header["policy"], tensors), largest)
    team = unpack(header["team"], tensors)
    return TeamData(
        algorithm=str(team["algorithm"]),
        policies={name: _policy(one, largest) for name, one in team["policies"].items()},
        agents={agent: (name, index(number)) for agent, (name, number) in team["agents"].items()},
        groups={name: tuple(agents) for name, agents in team["groups"].items()},
        remembers_rests=bool(team["remembers_rests"]),
    )


def _policy(tree: Any, largest: int) -> PolicyData:
    """Return a policy whose arrays have at most ``largest`` numbers each."""
    space = space_from_data(tree["observation_space"])
    options = tree["preprocessing"]
    frames = 1 if options is None else index(options["frame_stack"])
    action_space = space_from_data(tree["action_space"])
    sizes = [count_numbers(space) * frames, count_numbers(action_space)]
    if max(sizes + _sizes_asked_for(tree["network"])) > largest:
        raise ValueError("it asks for arrays that are larger than the file")
    require_like(tree["network"], None, "network")
    require_like(options, None, "preprocessing")
    preprocessor = None
    if options is not None:
        normalize = bool(options["moments"])
        preprocessor = Preprocessor(space, normalize=normalize, frame_stack=frames)
        preprocessor.load_state_dict(options["moments"])
    return PolicyData(
        algorithm=str(tree["algorithm"]),
        observation_space=space,
        action_space=action_space,
        network=tree["network"],
        preprocessor=preprocessor,
        takes_masks=bool(tree["takes_masks"]),
    )
