"""Local Minari datasets: reading and creating."""

from __future__ import annotations

import json
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from rlox.errors import DatasetError, import_extra
from rlox.spaces.rows import is_bounded

from rlox_offline.datasets.columns import (
    DIGEST,
    KEY,
    Columns,
    Digest,
    Pieces,
    checked,
    first_gap,
    require_loading,
)
from rlox_offline.datasets.dataset import Dataset
from rlox_offline.datasets.hdf5 import require_own_data


def minari_pieces(dataset_id: str, rows: int | None) -> tuple[Pieces, dict[str, Any]]:
    """Return the columns of each episode of a local Minari dataset, and the metadata.

    Args:
        dataset_id: such as ``"pendulum/medium-v0"``; ``minari download`` fetches others.
        rows: ``None`` makes one piece of all episodes.

    Raises:
        DatasetError: there is no such dataset, its observations or actions are not arrays, or its
            values are in other files; while iterating, a value is outside its space, or the
            dataset has changed since rlox saved it.
        MissingDependencyError: minari is not installed.
    """
    minari = import_extra("minari", f"reading the Minari dataset '{dataset_id}'", "minari")
    local = sorted(minari.list_local_datasets())
    if dataset_id not in local:
        raise DatasetError(
            f"there is no local Minari dataset '{dataset_id}' (there are: "
            f"{', '.join(local) or 'none'}); run: minari download {dataset_id}"
        )
    source = minari.load_dataset(dataset_id)
    for name in ("observation", "action"):
        space = getattr(source.spec, f"{name}_space")
        if not isinstance(space, (spaces.Box, spaces.Discrete)):
            raise DatasetError(f"the {name}s must be arrays of numbers, got {space}")
    file = source.storage.data_path / "main_data.hdf5"  # absent in Arrow's format
    if file.exists():
        n_bytes = require_own_data(file)
        if rows is None:
            require_loading(n_bytes)
    metadata = _metadata(source)
    digest = source.storage.metadata.get(DIGEST)
    texts = {} if digest is None else {KEY: json.dumps(metadata), DIGEST: digest}
    pieces = checked(_episodes(source), texts)
    if rows is None:
        episodes = list(pieces)
        if not episodes:
            raise DatasetError("the dataset holds no episodes")
        pieces = iter([{k: np.concatenate([e[k] for e in episodes]) for k in episodes[0]}])
    return pieces, metadata


def _episodes(source: Any) -> Pieces:
    """Yield the columns of each episode, after checking observations against their space."""
    for episode in source.iterate_episodes():
        _require_in(source.spec.observation_space, np.asarray(episode.observations))
        yield _columns(episode)


def _require_in(space: Any, obs: Any) -> None:
    """Refuse observations (T, ...) outside the dataset's declared space."""
    if isinstance(space, spaces.Discrete):
        outside = (obs < space.start) | (obs >= space.start + space.n)
    elif obs.shape[1:] != space.shape:
        raise DatasetError(f"observations must have shape {space.shape}, got {obs.shape[1:]}")
    else:
        outside = (obs < space.low) | (obs > space.high)
    if outside.any():
        row = int(np.flatnonzero(outside.reshape(len(obs), -1).any(1))[0])
        raise DatasetError(
            f"the observation {obs[row]} is out of the space that the dataset declares, {space}"
        )


def _columns(episode: Any) -> Columns:
    """Return the columns of an episode; without a recorded end, its last step is truncated."""
    truncated = np.array(episode.truncations, np.bool_)
    truncated[-1] |= not episode.terminations[-1]
    return {
        "obs": episode.observations[:-1],
        "next_obs": episode.observations[1:],
        "actions": episode.actions,
        "rewards": episode.rewards,
        "terminated": episode.terminations,
        "truncated": truncated,
    }


def _metadata(source: Any) -> dict[str, Any]:
    space, stored = source.spec.action_space, source.storage.metadata
    values = {
        "env_id": source.env_spec.id if source.env_spec is not None else None,
        "random_return": stored.get("ref_min_score"),
        "expert_return": stored.get("ref_max_score"),
    }
    if isinstance(space, spaces.Discrete):
        values["n_actions"] = int(space.n)
    elif is_bounded(space.low, space.high):
        values |= {"act_low": space.low.tolist(), "act_high": space.high.tolist()}
    return {name: value for name, value in values.items() if value is not None}


def write_minari(dataset_id: str, dataset: Dataset) -> None:
    """Create a local Minari dataset from ``dataset``, with the spaces of its ``env_id``.

    Raises:
        DatasetError: the env is unknown, the dataset already exists, or an episode's observations
            are not consecutive, which Minari's format requires.
        MissingDependencyError: minari is not installed.
    """
    minari = import_extra("minari", f"creating the Minari dataset '{dataset_id}'", "minari")
    if dataset.env_id is None:
        raise DatasetError("a Minari dataset needs the env that it comes from; pass env_id=")
    if dataset_id in minari.list_local_datasets():
        raise DatasetError(
            f"there is a Minari dataset '{dataset_id}' already; choose another name, or run: "
            f"minari delete {dataset_id}"
        )
    data_collector = import_extra("minari.data_collector", "creating it", "minari")
    columns = dataset.columns
    if (gap := first_gap(columns)) is not None:
        raise DatasetError(
            f"a Minari dataset keeps one row of observations per episode, but next_obs of row {gap}"
            f" is not obs of row {gap + 1}; save it in a file"
        )
    buffers = [
        data_collector.EpisodeBuffer(
            id=i,
            observations=np.concatenate(
                [columns["obs"][rows], columns["next_obs"][rows.stop - 1 : rows.stop]]
            ),
            actions=columns["actions"][rows],
            rewards=columns["rewards"][rows],
            terminations=columns["terminated"][rows],
            truncations=columns["truncated"][rows],
        )
        for i, rows in enumerate(dataset.episodes())
    ]
    env = gymnasium.make(dataset.env_id)
    try:
        for name in ("obs", "next_obs"):
            _require_in(env.observation_space, columns[name])
        created = minari.create_dataset_from_buffers(
            dataset_id, buffers, env=env, algorithm_name="rlox",
            ref_min_score=dataset.random_return, ref_max_score=dataset.expert_return,
        )  # fmt: skip
        digest = Digest(json.dumps(_metadata(created)))
        for episode in created.iterate_episodes():
            digest.add(_columns(episode))
        created.storage.update_metadata({DIGEST: digest.text()})
    finally:
        env.close()
