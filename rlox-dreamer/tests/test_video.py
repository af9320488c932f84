"""Open-loop videos: their frames, no effect on training, and their event file."""

from io import BytesIO
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from dreamers import SMALL
from gymnasium import spaces
from rlox.errors import SpaceError
from rlox.logging import LoggerCallback
from rlox_dreamer.dreamer import DreamerV3
from rlox_dreamer.video import OpenLoopVideo

VIDEO = {"every": 20, "n_sequences": 2, "context": 3, "horizon": 4}


class Stripes(gym.Env[Any, Any]):
    """Each step's image has its own colour, with a stripe for the last action."""

    def __init__(self, shape=(16, 20, 3), nested=False):
        image = spaces.Box(0, 255, shape, np.uint8)
        vector = spaces.Box(-1, 1, (2,))
        self.observation_space = spaces.Dict({"a": vector, "eye": image}) if nested else image
        self.action_space = spaces.Discrete(2)
        self._shape, self._nested, self._step = shape, nested, 0

    def _obs(self, action):
        image = np.full(self._shape, 9 * self._step, np.uint8)
        image[..., :4, :] = 200 * action
        return {"a": np.zeros(2, np.float32), "eye": image} if self._nested else image

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._step = 0
        return self._obs(0), {}

    def step(self, action):
        self._step += 1
        return self._obs(int(action)), 1.0, self._step == 25, False, {}


class Recorder(LoggerCallback):
    """Stores videos."""

    def __init__(self):
        self.videos = []

    def on_video(self, step, name, frames, fps):
        self.videos.append((step, name, frames, fps))


def test_a_frame_is_the_true_image_the_models_and_their_difference():
    """The true image is the stored row, and the difference is 128 where both agree."""
    algo = DreamerV3(Stripes, **SMALL)
    algo.train(60)
    frames = OpenLoopVideo(**VIDEO).film(algo)
    assert frames.shape == (7, 48, 40, 3)
    assert frames.dtype == np.uint8
    rows = algo.replay.buffer.sample(2, 7, seed=0)["obs"][:, 1:]
    true, model, difference = (frames[:, i : i + 16].astype(int) for i in (0, 16, 32))
    np.testing.assert_array_equal(true, np.concatenate([rows[0], rows[1]], 2))
    assert np.abs(difference - (model - true + 255) / 2).max() <= 1
    algo.close()


def test_imagined_steps_see_actions_and_no_images():
    """Changed images after the context have no effect, changed actions and context images do."""
    algo = DreamerV3(Stripes, **SMALL)
    algo.train(100)
    video, buffer = OpenLoopVideo(**VIDEO), algo.replay.buffer
    shown = video.film(algo)[:, 16:32]
    drawn = buffer.sample(2, 7, seed=0)["indices"][:, 1:]
    # with shared rows, one sequence's context would be another's later step
    assert not np.intersect1d(drawn[0], drawn[1]).size
    assert buffer.n_envs == 1
    later, context = drawn[:, 3:].reshape(-1), drawn[:, :3].reshape(-1)

    def changed(name, rows, values):
        kept, other = buffer.state(), buffer.state()
        other[f"row {name}"][rows] = values
        buffer.set_state(other)
        now = video.film(algo)[:, 16:32]
        buffer.set_state(kept)
        return (now != shown).reshape(7, -1).any(1)

    # float32 weights after few updates change less than a pixel: make them large
    with torch.no_grad():
        for p in algo.model.parameters():
            p.mul_(4)
    shown = video.film(algo)[:, 16:32]
    assert not changed("obs", later, 77).any()
    assert changed("obs", context, 255)[:3].any()
    by_actions = changed("action", later, 1 - buffer.state()["row action"][later])
    assert by_actions[3:].any()
    assert not by_actions[:3].any()
    algo.close()


def test_training_is_the_same_with_and_without():
    """Bit for bit, because the draw has its own seed."""
    seen = Recorder()
    with_video = DreamerV3(Stripes, **SMALL, logger=seen, callbacks=[OpenLoopVideo(**VIDEO)])
    without = DreamerV3(Stripes, **SMALL)
    with_video.train(60)
    without.train(60)
    assert [step for step, *_ in seen.videos] == [20, 40, 60]
    assert {(name, fps) for _, name, _, fps in seen.videos} == {("open_loop", 8)}
    pairs = zip(with_video.model.parameters(), without.model.parameters(), strict=True)
    assert all(torch.equal(p, q) for p, q in pairs)
    with_video.close()
    without.close()


def test_it_waits_for_sequences_that_are_long_enough():
    """Until then nothing is logged, and no error is raised."""
    seen, video = Recorder(), OpenLoopVideo(20, 2, 5, 50)
    algo = DreamerV3(lambda: Stripes(nested=True), **SMALL, logger=seen, callbacks=[video])
    algo.train(60)
    assert [(step, name) for step, name, *_ in seen.videos] == [(60, "open_loop/eye")]
    algo.close()


@pytest.mark.parametrize(("shape", "expected"), [((16, 16), (48, 32)), ((4, 18, 16), (54, 32))])
def test_grey_and_stacked_images(shape, expected):
    """Grey images are shown in RGB; from stacked frames the last one is."""
    algo = DreamerV3(lambda: Stripes(shape), **SMALL)
    algo.train(40)
    frames = OpenLoopVideo(**VIDEO).film(algo)
    assert frames.shape == (7, *expected, 3)
    assert (frames == frames[..., :1]).all()
    algo.close()


def test_tensorboard_plays_it(tmp_path):
    """The event file holds a GIF with every frame of the step's video."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    image = pytest.importorskip("PIL.Image")
    from rlox.logging import LoggerList, TensorBoardLogger

    seen = Recorder()
    logger = LoggerList(TensorBoardLogger(tmp_path), seen)
    algo = DreamerV3(Stripes, **SMALL, logger=logger, callbacks=[OpenLoopVideo(**VIDEO)])
    algo.train(40)
    algo.close()
    events = accumulator.EventAccumulator(str(tmp_path))
    events.Reload()
    logged = events.Images("videos/open_loop")
    assert [event.step for event in logged] == [20, 40]
    for event, (_, _, frames, _) in zip(logged, seen.videos, strict=True):
        gif = image.open(BytesIO(event.encoded_image_string))
        assert (event.height, event.width, gif.size) == (48, 40, (40, 48))
        assert gif.n_frames == len(frames) == 7
        for t, frame in enumerate(frames):
            gif.seek(t)
            shown = np.asarray(gif.convert("RGB"), float)
            palette = np.asarray(image.fromarray(frame).quantize().convert("RGB"))
            np.testing.assert_array_equal(shown, palette)
            assert np.abs(shown - frame).mean() < 10


def test_what_cannot_be_shown_is_refused():
    """The error comes before any step, with the remedy."""
    logger = Recorder()
    for env, video, error, said in [
        ("CartPole-v1", OpenLoopVideo(**VIDEO), SpaceError, r"needs an image.*'vector', \(4,\)"),
        (Stripes, OpenLoopVideo(**VIDEO, leaf="eye"), ValueError, "leaf must be one of"),
        (Stripes, OpenLoopVideo(20, 2, 5, 400), ValueError, "context \\+ horizon must be less"),
    ]:
        algo = DreamerV3(env, **SMALL, logger=logger, callbacks=[video])
        with pytest.raises(error, match=said):
            algo.train(20)
        assert algo.clock.env_steps == 0
        algo.close()
    with pytest.raises(ValueError, match="has no logger; pass one"):
        DreamerV3(Stripes, **SMALL, callbacks=[OpenLoopVideo(**VIDEO)]).train(20)
    with pytest.raises(TypeError, match="of DreamerV3, got object"):
        OpenLoopVideo().film(object())
    with pytest.raises(ValueError, match="context must be at least 1, got 0"):
        OpenLoopVideo(context=0)
