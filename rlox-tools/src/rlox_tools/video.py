"""Videos of the policy during training."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

import gymnasium
import numpy as np
import numpy.typing as npt
from rlox.callbacks.base import Callback, Multiples, require_at_least
from rlox.config.model import require_integer
from rlox.envs import fixed_env_count, make_team_env, team_backend
from rlox.errors import EnvError, import_extra
from rlox.logging.trackers import GifFile

Frame = npt.NDArray[np.uint8]
VideoFormat = Literal["mp4", "gif"]

DEFAULT_FPS = 30


class Mp4File:
    """H.264 in an MP4 container; every frame is encoded as it comes.

    Args:
        path: path of the file.
        fps: frames per second.
    """

    def __init__(self, path: Path, fps: float) -> None:
        imageio = import_extra("imageio.v2", "a video in MP4", "video")
        import_extra("imageio_ffmpeg", "a video in MP4", "video")
        self._writer: Any = imageio.get_writer(
            path, format="FFMPEG", mode="I", fps=fps, codec="libx264", macro_block_size=2
        )

    def add(self, frame: Frame) -> None:
        """Append a frame; an odd height or width repeats its last line: H.264 needs even sizes."""
        height, width, _ = frame.shape
        self._writer.append_data(
            np.pad(frame, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
        )

    def close(self) -> None:
        """Finish the file."""
        self._writer.close()


def make_renderable(source: Any, env_kwargs: Mapping[str, Any] | None = None) -> Any:
    """Make an env of gymnasium or PettingZoo whose ``render`` returns RGB arrays.

    Args:
        source: an id, an env with an id, or a callable, called with ``render_mode`` if possible.
        env_kwargs: further arguments of an env that is made here.

    Raises:
        EnvError: the env cannot be made, or has another render mode.
    """
    env = _make(source, {**(env_kwargs or {}), "render_mode": "rgb_array"})
    mode = getattr(env, "render_mode", None)
    if mode != "rgb_array":
        env.close()
        raise EnvError(
            f"{env} cannot be filmed: its render_mode is {mode!r}, expected "
            "'rgb_array'; pass env= as an id, or as a callable that makes an env with "
            "render_mode='rgb_array'"
        )
    return env


def rendered(env: Any) -> Frame:
    """Return the env's current frame.

    Raises:
        EnvError: it is not an array (height, width, 3) of ``uint8``.
    """
    frame: Any = env.render()
    if isinstance(frame, np.ndarray) and frame.dtype == np.uint8 and frame.shape[2:] == (3,):
        return frame
    got = f"{frame.dtype} {frame.shape}" if isinstance(frame, np.ndarray) else repr(frame)
    raise EnvError(f"{env} must render uint8 arrays (height, width, 3), got {got}")


def _make(source: Any, arguments: dict[str, Any]) -> Any:
    if source is None:
        raise EnvError("there is no env to be filmed; pass env= as an id or as a callable")
    if isinstance(source, gymnasium.Env) and source.spec is not None:
        source = source.spec
    elif not isinstance(source, str) and fixed_env_count(source) is not None:
        raise EnvError(
            f"{type(source).__name__} cannot be made again for a video; pass env= as an id or as a "
            "callable"
        )
    try:
        if isinstance(source, str) and team_backend(source) is not None:
            return make_team_env(source, env_kwargs=arguments).envs[0]  # type: ignore[attr-defined]
        if not callable(source):
            return gymnasium.make(source, **arguments)
        if not _takes_render_mode(source):
            del arguments["render_mode"]
        made: Any = source(**arguments)
    except Exception as error:
        raise EnvError(f"an env of {source!r} to be filmed cannot be made: {error}") from error
    if not (isinstance(made, gymnasium.Env) or hasattr(made, "possible_agents")):
        raise EnvError(
            f"the callable must make an env of gymnasium or PettingZoo, got {type(made).__name__}"
        )
    return made


def _takes_render_mode(function: Callable[..., Any]) -> bool:
    try:
        return "render_mode" in inspect.signature(function).parameters
    except ValueError:  # a builtin without a signature
        return False


class Film:
    """Writes each whole episode of an env of any kind to the next of the given files.

    Its methods take the place of the env's own until the env is closed. A file is written under
    another name and renamed at the end, so that it is always complete.
    """

    def __init__(
        self, env: Any, paths: list[Path], video_format: VideoFormat, fps: float | None
    ) -> None:
        self.env = env
        self._own = {name: getattr(env, name) for name in ("reset", "step", "close")}
        env.reset, env.step, env.close = self._reset, self._step, self._close
        self._paths = iter(paths)
        self._open = Mp4File if video_format == "mp4" else GifFile
        self._fps = fps or float(env.metadata.get("render_fps") or DEFAULT_FPS)
        self._first: Frame | None = None
        self._file: Mp4File | GifFile | None = None
        self._path = self._temporary = Path()

    def _reset(self, **kwargs: Any) -> Any:
        """Begin an episode; the file is opened with its first step."""
        result = self._own["reset"](**kwargs)
        self._first = rendered(self.env)
        return result

    def _step(self, action: Any) -> Any:
        result = self._own["step"](action)
        if self._file is None:
            self._path = next(self._paths)
            self._temporary = self._path.with_name(f".{self._path.name}")
            self._file = self._open(self._temporary, self._fps)
            assert self._first is not None
            self._file.add(self._first)
        self._file.add(rendered(self.env))
        of_one = isinstance(self.env, gymnasium.Env)
        if (result[2] or result[3]) if of_one else not self.env.agents:
            self._file.close()
            self._file = None
            self._temporary.replace(self._path)
        return result

    def _close(self) -> None:
        """Close the env, and drop an unfinished episode."""
        if self._file is not None:
            self._file.close()
            self._file = None
            self._temporary.unlink(missing_ok=True)
        vars(self.env).update(self._own)
        self.env.close()


class VideoCallback(Callback):
    """Record episodes of the current policy as ``step-<env steps>-episode-<number>.mp4``.

    It records at the end of the iteration that reaches or passes each multiple of ``every``, in the
    evaluation loop and on an env of its own, without an effect on the training.

    Args:
        video_dir: folder; made if missing.
        every: env steps between recordings.
        n_episodes: episodes per recording, a file each.
        format: ``"mp4"``, or ``"gif"``, which holds its frames in memory until the episode ends.
        env: an id, or a callable that makes an env of gymnasium or PettingZoo; ``None`` uses the
            one that the algorithm trains on. A callable must return an env with
            ``render_mode="rgb_array"`` or take ``render_mode`` as an argument.
        fps: frames per second; ``None`` uses the env's metadata, else 30.
        deterministic: act with the mode of the policy rather than a sample.
        seed: seed of every recording, so that all see the same starts.

    Raises:
        ValueError: an option is out of range.
        MissingDependencyError: the format's writer is not installed.
    """

    def __init__(
        self,
        video_dir: str | Path = "videos",
        every: int = 10_000,
        n_episodes: int = 1,
        format: VideoFormat = "mp4",  # noqa: A002  # the word for it
        *,
        env: str | Callable[..., Any] | None = None,
        fps: float | None = None,
        deterministic: bool = True,
        seed: int = 0,
    ) -> None:
        require_integer("n_episodes", n_episodes, at_least=1)
        if fps is not None:
            require_at_least(1, fps=fps)
        if format not in get_args(VideoFormat):
            raise ValueError(f"format must be 'mp4' or 'gif', got '{format}'")
        for module in ("imageio_ffmpeg", "imageio.v2") if format == "mp4" else ("PIL.Image",):
            import_extra(module, f"VideoCallback(format='{format}')", "video")
        self.video_dir = Path(video_dir)
        self.every = every
        self.n_episodes = n_episodes
        self.format: VideoFormat = format
        self.env = env
        self.fps = fps
        self.deterministic = deterministic
        self.seed = seed
        self._due = Multiples("every", every)

    def on_training_start(self, **kwargs: Any) -> None:
        """Count from the algorithm's current env step; an env that cannot be filmed fails now."""
        self._due.count_from(kwargs["step"])
        algo = kwargs["algo"]
        env = make_renderable(self._source(algo), self._env_kwargs(algo))
        try:
            env.reset(seed=self.seed)
            rendered(env)
        finally:
            env.close()

    def on_iteration_end(self, **kwargs: Any) -> None:
        """Record when the next multiple of ``every`` has been reached or passed."""
        if self._due.reached(kwargs["step"]):
            self.record(kwargs["algo"])

    def record(self, algo: Any) -> list[Path]:
        """Record ``n_episodes`` episodes of the current policy and return their files.

        Raises:
            EnvError: the env cannot be made, or renders no RGB arrays.
        """
        from rlox.envs.evaluation import evaluate

        source, env_kwargs = self._source(algo), self._env_kwargs(algo)
        self.video_dir.mkdir(parents=True, exist_ok=True)
        paths = [
            self.video_dir / f"step-{algo.clock.steps}-episode-{i}.{self.format}"
            for i in range(1, self.n_episodes + 1)
        ]
        evaluate(
            algo,
            lambda: Film(make_renderable(source, env_kwargs), paths, self.format, self.fps).env,
            n_episodes=self.n_episodes, deterministic=self.deterministic, seed=self.seed,
            max_envs=1,
        )  # fmt: skip
        return paths

    def _source(self, algo: Any) -> Any:
        return algo.env_source if self.env is None else self.env

    def _env_kwargs(self, algo: Any) -> Any:
        arguments = getattr(algo, "env_arguments", None)
        return arguments(self.env).get("env_kwargs") if callable(arguments) else None
