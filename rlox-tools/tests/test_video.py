"""Tests of :mod:`rlox_tools.video`, whose files are read back."""

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium
import numpy as np
import pytest
import rlox
from gymnasium import spaces
from rlox.callbacks import VideoCallback
from rlox.errors import EnvError

HEIGHT, WIDTH, LENGTH = 24, 33, 5

# of the reader, which only the tests use
leaky_reader = pytest.mark.filterwarnings(
    "ignore:unclosed file:ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)

needs_gif = pytest.mark.skipif(not importlib.util.find_spec("PIL"), reason="needs Pillow")
needs_mp4 = pytest.mark.skipif(
    not importlib.util.find_spec("imageio_ffmpeg"), reason="needs imageio-ffmpeg"
)


@pytest.fixture(autouse=True)
def _workplace():
    """Work without the command line."""


@pytest.fixture(autouse=True)
def _tools():
    """Look at all plugins."""


class Lamp(gymnasium.Env[Any, Any]):
    """Grows brighter with every step of an episode of ``LENGTH``; each is distinct in a video."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012  # gymnasium's

    def __init__(self, render_mode=None):
        self.observation_space = spaces.Box(0, LENGTH, (1,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.render_mode = render_mode
        self.time = 0

    def reset(self, *, seed=None, options=None):
        """Begin an episode."""
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        """Move on."""
        self.time += 1
        return np.full(1, self.time, np.float32), 1.0, self.time == LENGTH, False, {}

    def render(self):
        """Return a grey area with a border that differs, or nothing."""
        if self.render_mode is None:
            return None
        frame = np.full((HEIGHT, WIDTH, 3), 40 * self.time, np.uint8)
        frame[0] = 255 - 40 * self.time
        return frame


GREYS = [40 * time for time in range(LENGTH + 1)]
"""Of the frames of an episode: the first observation's and one a step."""


class BrokenLamp(Lamp):
    """Fails in the middle of an episode once it has done one."""

    episodes = 0

    def step(self, action):
        """Move on or fail."""
        result = super().step(action)
        if result[2]:
            type(self).episodes += 1
        if type(self).episodes == 1 and self.time == 2:
            raise ArithmeticError("burnt out")
        return result


def trained(counting, callback, env=Lamp, steps=8):
    """Return an algorithm trained with the callback."""
    algorithm = counting.CountingAlgorithm(env, callbacks=[callback])
    algorithm.train(steps)
    return algorithm


def gif_frames(path):
    """Return size, grey and milliseconds of each frame."""
    from PIL import Image, ImageSequence

    with Image.open(path) as image:
        return [
            (frame.size, frame.convert("RGB").getpixel((5, 5))[0], frame.info["duration"])
            for frame in ImageSequence.Iterator(image)
        ]


@needs_mp4
@leaky_reader
def test_mp4_has_every_frame(counting: ModuleType, tmp_path: Path) -> None:
    """The odd width is made even, as the codec wants it."""
    import imageio.v2 as imageio

    trained(counting, VideoCallback(tmp_path, 8))
    [path] = tmp_path.iterdir()
    assert path.name == "step-8-episode-1.mp4"
    with imageio.get_reader(path) as reader:
        assert reader.get_meta_data()["fps"] == 20
        frames = list(reader.iter_data())
    assert [frame.shape for frame in frames] == [(HEIGHT, WIDTH + 1, 3)] * (LENGTH + 1)
    assert [int(frame[12, 16, 0]) for frame in frames] == pytest.approx(GREYS, abs=6)


@needs_gif
def test_files_are_named_after_step_and_episode(counting: ModuleType, tmp_path: Path) -> None:
    """Each recording has as many whole episodes as asked for, a file each, and nothing else."""
    callback = VideoCallback(tmp_path, 10, 2, "gif", fps=10)
    algorithm = trained(counting, callback, steps=24)
    names = {f"step-{step}-episode-{i}.gif" for step in (16, 24) for i in (1, 2)}
    assert {path.name for path in tmp_path.iterdir()} == names
    for path in tmp_path.iterdir():
        assert gif_frames(path) == [((WIDTH, HEIGHT), grey, 100) for grey in GREYS]
    assert [path.name for path in callback.record(algorithm)] == [
        "step-24-episode-1.gif", "step-24-episode-2.gif",
    ]  # fmt: skip


@needs_gif
def test_a_team_is_filmed(tmp_path):
    """In a parallel env and by turns, from the first observation to the last step."""
    pytest.importorskip("rlox_marl")
    from pettingzoo import ParallelEnv
    from pettingzoo.utils.conversions import parallel_to_aec

    class Lamps(ParallelEnv):
        """A lamp that two agents watch."""

        metadata = {"name": "lamps", "render_fps": 20}  # noqa: RUF012  # PettingZoo's

        def __init__(self, render_mode=None):
            self.possible_agents, self.render_mode = ["a", "b"], render_mode
            self.lamp = Lamp(render_mode)
            self.render = self.lamp.render

        def observation_space(self, agent):
            return self.lamp.observation_space

        def action_space(self, agent):
            return self.lamp.action_space

        def reset(self, seed=None, options=None):
            self.agents = list(self.possible_agents)
            obs, info = self.lamp.reset(seed=seed)
            return dict.fromkeys(self.agents, obs), dict.fromkeys(self.agents, info)

        def step(self, actions):
            each = [dict.fromkeys(self.agents, part) for part in self.lamp.step(0)]
            self.agents = [] if each[2]["a"] else self.agents
            return tuple(each)

    def by_turns():
        env = parallel_to_aec(Lamps("rgb_array"))
        env.metadata = {**env.metadata, "is_parallelizable": False}
        env.render_mode = "rgb_array"
        return env

    with rlox.make("vdn", env=Lamps, hidden=4, buffer_size=2_000) as algorithm:
        [path] = VideoCallback(tmp_path / "a", format="gif").record(algorithm)
        assert gif_frames(path) == [((WIDTH, HEIGHT), grey, 50) for grey in GREYS]
        [path] = VideoCallback(tmp_path / "b", format="gif", env=by_turns).record(algorithm)
        assert sorted({grey for _, grey, _ in gif_frames(path)}) == GREYS


@needs_gif
def test_a_run_is_filmed(run, install, plugin, monkeypatch, tmp_path):
    """The command takes a run folder, and writes into it."""
    monkeypatch.chdir(tmp_path)
    install("rlox-counting", plugin)
    monkeypatch.setenv("RLOX_PLUGINS", "rlox-counting,rlox-tools")
    gymnasium.register("rlox-tests/Lamp-v0", entry_point=Lamp)
    try:
        train = ("train", "counting", "--env", "rlox-tests/Lamp-v0", "--total-timesteps", 8)
        assert run(*train, "--eval-episodes", 1, "--run-dir", "one", "--quiet").code == 0
        result = run("film", "one", "--format", "gif", "--episodes", 2)
    finally:
        del gymnasium.registry["rlox-tests/Lamp-v0"]
    assert result.code == 0, result.err
    for number in (1, 2):
        path = Path(f"one/videos/step-8-episode-{number}.gif")
        assert str(path) in result.out
        assert len(gif_frames(path)) == LENGTH + 1


def test_env_by_id_and_env_with_an_id_are_made_to_render(counting, tmp_path):
    """An id's env is made with a render mode, whatever the training's has."""
    pytest.importorskip("PIL")
    gymnasium.register("rlox-tests/Lamp-v0", entry_point=Lamp, max_episode_steps=LENGTH)
    try:
        env = gymnasium.make("rlox-tests/Lamp-v0")
        for source in ("rlox-tests/Lamp-v0", env):
            [path] = VideoCallback(tmp_path, format="gif").record(
                counting.CountingAlgorithm(source)
            )
            assert len(gif_frames(path)) == LENGTH + 1
    finally:
        del gymnasium.registry["rlox-tests/Lamp-v0"]


class Still(Lamp):
    """Renders something else."""

    def render(self):
        """Return a grey image without channels."""
        return np.zeros((HEIGHT, WIDTH), np.uint8)


@needs_gif
@pytest.mark.parametrize(
    ("env", "message"),
    [
        (lambda: Lamp(None),
         r"cannot be filmed: its render_mode is None, expected 'rgb_array'; pass"),
        (Lamp("rgb_array"), r"^Lamp cannot be made again for a video; pass env= as an id or as a"),
        (Still, r"must render uint8 arrays \(height, width, 3\), got uint8 \(24, 33\)"),
        ("Nowhere-v0", r"^an env of 'Nowhere-v0' to be filmed cannot be made: "),
        (lambda: 3, r"^the callable must make an env of gymnasium or PettingZoo, got int$"),
        (None, r"^there is no env to be filmed; pass env= as an id or as a callable$"),
    ],
)  # fmt: skip
def test_env_that_cannot_be_filmed_fails_before_the_training(
    counting: ModuleType, tmp_path: Path, env: Any, message: str
) -> None:
    """Not after hours, at the first recording."""
    algorithm = counting.CountingAlgorithm(env, callbacks=[VideoCallback(tmp_path, format="gif")])
    with pytest.raises(EnvError, match=message):
        algorithm.train(8)
    assert algorithm.clock.env_steps == 0


@pytest.mark.parametrize(
    "format_", [pytest.param("gif", marks=needs_gif), pytest.param("mp4", marks=needs_mp4)]
)
def test_cut_episode_leaves_no_file(counting, tmp_path, format_):
    """An error in the second episode keeps the first, and nothing half-written."""
    BrokenLamp.episodes = 0
    callback = VideoCallback(tmp_path, n_episodes=2, format=format_)
    with pytest.raises(ArithmeticError, match="burnt out"):
        callback.record(counting.CountingAlgorithm(BrokenLamp))
    assert [path.name for path in tmp_path.iterdir()] == [f"step-0-episode-1.{format_}"]
