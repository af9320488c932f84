"""Two tasks on images of 16 by 16 pixels: catching a ball, and remembering a cue."""

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

PIXELS, CELL = 16, 2
CELLS = PIXELS // CELL
DELAY = 10
"""Steps between the cue and the answer."""


class Images(gym.Env[npt.NDArray[np.uint8], int]):
    """An env whose observation is a drawing in cells of 2 by 2 pixels."""

    observation_space = spaces.Box(0, 255, (PIXELS, PIXELS, 1), np.uint8)

    def draw(self, *cells):
        """Return a black image with these (row, column) cells in white."""
        board = np.zeros((CELLS, CELLS), np.uint8)
        for cell in cells:
            board[cell] = 255
        return board.repeat(CELL, 0).repeat(CELL, 1)[..., None]


class Catch(Images):
    """A ball falls a row per step; pays 1 if the paddle is below it at the bottom, else -1.

    The paddle begins in the middle and goes one cell left, stays, or goes one cell right. The ball
    begins in any column.

    Source:
        Osband et al. 2020, "Behaviour suite for reinforcement learning", *catch*.
    """

    action_space = spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        """Drop a ball."""
        super().reset(seed=seed)
        self._row, self._column = 0, int(self.np_random.integers(CELLS))
        self._paddle = CELLS // 2
        return self._image(), {}

    def step(self, action):
        """Move the paddle, and the ball down."""
        self._paddle = int(np.clip(self._paddle + int(action) - 1, 0, CELLS - 1))
        self._row += 1
        ended = self._row == CELLS - 1
        caught = 1.0 if self._paddle == self._column else -1.0
        return self._image(), caught if ended else 0.0, ended, False, {}

    def _image(self):
        return self.draw((self._row, self._column), (CELLS - 1, self._paddle))


class Cue(Images):
    """Shows one of two corners in the first image only; 10 steps later pays 1 for its action.

    All later images are black but the last, which asks. Without a memory every action is right
    half of the time.
    """

    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        """Show a cue."""
        super().reset(seed=seed)
        self._cue, self._steps = int(self.np_random.integers(2)), 0
        return self.draw((0, 0) if self._cue else (0, CELLS - 1)), {}

    def step(self, action):
        """Wait, ask, and end with the answer."""
        self._steps += 1
        asks, answered = self._steps == DELAY, self._steps > DELAY
        image = self.draw((CELLS // 2, CELLS // 2)) if asks else self.draw()
        return image, float(answered and action == self._cue), answered, False, {}
