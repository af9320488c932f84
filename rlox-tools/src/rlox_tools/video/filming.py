"""Env wrapper for recording video of episodes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from rlox.envs.make import fixed_env_count
from rlox.errors import EnvError

from rlox_tools.video.video_files import Frame, VideoFile, VideoFormat, open_video

__all__ = ["Filmed", "make_renderable", "rendered"]

Env = gymnasium.Env[Any, Any]

DEFAULT_FPS = 30


def make_renderable(source: Any, env_kwargs: Mapping[str, Any] | None = None) -> Env:
    """Make an env whose ``render`` returns RGB arrays.

    Args:
        source: an id, an env with an id, or a callable; one that takes ``render_mode`` is given it.
        env_kwargs: further arguments of an env that is made here.

    Raises:
        EnvError: the env cannot be made, or has another render mode.
    """
    env = _make(source, {**(env_kwargs or {}), "render_mode": "rgb_array"})
    if env.render_mode != "rgb_array":
        env.close()
        raise EnvError(
            f"{env} cannot be filmed: its render_mode is {env.render_mode!r}, expected "
            "'rgb_array'; pass env= as an id, or as a callable that makes an env with "
            "render_mode='rgb_array'"
        )
    return env


def rendered(env: Env) -> Frame:
    """Return the env's present frame.

    Raises:
        EnvError: it is no array (height, width, 3) of ``uint8``.
    """
    frame: Any = env.render()
    if isinstance(frame, np.ndarray) and frame.dtype == np.uint8 and frame.shape[2:] == (3,):
        return frame
    got = f"{frame.dtype} {frame.shape}" if isinstance(frame, np.ndarray) else repr(frame)
    raise EnvError(f"{env} must render uint8 arrays (height, width, 3), got {got}")


def _make(source: Any, arguments: dict[str, Any]) -> Env:
    if isinstance(source, gymnasium.Env) and source.spec is not None:
        source = source.spec
    elif not isinstance(source, str) and fixed_env_count(source) is not None:
        raise EnvError(
            f"{type(source).__name__} cannot be made again for a video; pass env= as an id or as a "
            "callable"
        )
    try:
        if not callable(source):
            return gymnasium.make(source, **arguments)
        if not _takes_render_mode(source):
            del arguments["render_mode"]
        made: Any = source(**arguments)
    except Exception as error:
        raise EnvError(f"an env of {source!r} to be filmed cannot be made: {error}") from error
    if not isinstance(made, gymnasium.Env):
        raise EnvError(f"the callable must make a gymnasium.Env, got {type(made).__name__}")
    return made


def _takes_render_mode(function: Callable[..., Any]) -> bool:
    try:
        return "render_mode" in inspect.signature(function).parameters
    except ValueError:  # a builtin without a signature
        return False


class Filmed(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Writes each whole episode to the next of the given files.

    A file is written beside its place and renamed, so that a video in its place is whole.
    """

    def __init__(
        self, env: Env, paths: list[Path], video_format: VideoFormat, fps: float | None
    ) -> None:
        super().__init__(env)
        self._paths = iter(paths)
        self._format: VideoFormat = video_format
        self._fps = fps or float(env.metadata.get("render_fps") or DEFAULT_FPS)
        self._first: Frame | None = None
        self._file: VideoFile | None = None
        self._path = self._temporary = Path()

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; the file is opened with its first step."""
        result = super().reset(**kwargs)
        self._first = rendered(self.env)
        return result

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Film a step."""
        result = super().step(action)
        if self._file is None:
            self._path = next(self._paths)
            self._temporary = self._path.with_name(f".{self._path.name}")
            self._file = open_video(self._temporary, self._format, self._fps)
            assert self._first is not None
            self._file.add(self._first)
        self._file.add(rendered(self.env))
        if result[2] or result[3]:
            self._file.close()
            self._file = None
            self._temporary.replace(self._path)
        return result

    def close(self) -> None:
        """Close the env, and drop the episode that an error cut."""
        if self._file is not None:
            self._file.close()
            self._file = None
            self._temporary.unlink(missing_ok=True)
        super().close()
