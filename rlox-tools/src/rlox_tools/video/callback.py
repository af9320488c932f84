"""Video recording of the policy during training."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from rlox.callbacks.base import Callback, Multiples, require_at_least
from rlox.config.model import require_integer
from rlox.errors import import_extra

from rlox_tools.video.video_files import VideoFormat

if TYPE_CHECKING:
    import gymnasium

__all__ = ["VideoCallback"]


class VideoCallback(Callback):
    """Record episodes of the current policy as ``step-<env steps>-episode-<number>.mp4``.

    At the end of the iteration that reaches or passes each multiple of ``every``, in the one
    evaluation loop and on an env of its own, which the training does not notice.

    Args:
        video_dir: folder; made if missing.
        every: env steps between recordings.
        n_episodes: episodes per recording, a file each.
        format: ``"mp4"``, or ``"gif"``, which holds its frames in memory until the episode ends.
        env: an id, or a callable that makes a gymnasium env; ``None`` uses the one that the
            algorithm trains on. A callable must return an env with ``render_mode="rgb_array"`` or
            take ``render_mode`` as an argument.
        fps: frames per second; ``None`` uses the env's metadata, else 30.
        deterministic: act with the mode of the policy rather than a sample.
        seed: seed of every recording, so that all see the same starts.

    Raises:
        ValueError: an option is out of range.
        MissingDependencyError: what writes the format is not installed.
    """

    def __init__(
        self,
        video_dir: str | Path = "videos",
        every: int = 10_000,
        n_episodes: int = 1,
        format: VideoFormat = "mp4",  # noqa: A002  # the word for it
        *,
        env: str | Callable[..., gymnasium.Env[Any, Any]] | None = None,
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
        """Count from the algorithm's present env step; an env that cannot be filmed fails now."""
        from rlox_tools.video.filming import make_renderable, rendered

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
        """Record ``n_episodes`` episodes of the present policy and return their files.

        Raises:
            EnvError: the env cannot be made, or renders no RGB arrays.
        """
        from rlox.evaluation import evaluate

        from rlox_tools.video.filming import Filmed, make_renderable

        source, env_kwargs = self._source(algo), self._env_kwargs(algo)
        self.video_dir.mkdir(parents=True, exist_ok=True)
        paths = [
            self.video_dir / f"step-{algo.clock.steps}-episode-{i}.{self.format}"
            for i in range(1, self.n_episodes + 1)
        ]
        evaluate(
            algo,
            lambda: Filmed(make_renderable(source, env_kwargs), paths, self.format, self.fps),
            n_episodes=self.n_episodes,
            deterministic=self.deterministic,
            seed=self.seed,
            max_envs=1,
        )
        return paths

    def _source(self, algo: Any) -> Any:
        return algo.env_source if self.env is None else self.env

    def _env_kwargs(self, algo: Any) -> Any:
        arguments = getattr(algo, "env_arguments", None)
        return arguments(self.env).get("env_kwargs") if callable(arguments) else None
