"""An env whose first observation alone tells the right action."""

import torch
from rlox_rl8.env import Env
from tensordict import TensorDict
from torchrl.data import Categorical, Unbounded

STEPS = 8


class Cue(Env):
    """Shows -1 or 1 in the first step after a reset and 0 later; pays 1 for the matching action.

    Without a memory, the best policy is right in the first of 8 steps and in half of the others:
    4.5 in the mean.
    """

    max_horizon = STEPS

    def __init__(self, num_envs, /, horizon=None, *, device="cpu"):
        super().__init__(num_envs, horizon, device=device)
        one = torch.Size([1])
        self.observation_spec = Unbounded(one, device=device)
        self.action_spec = Categorical(2, shape=one, device=device)
        self.cue = torch.zeros(num_envs, 1, device=device)

    def reset(self, *, config=None):
        """Draw a cue for each copy and show it."""
        self.cue = 2 * torch.randint(0, 2, self.cue.shape, device=self.device).float() - 1
        return self.cue.clone()

    def step(self, action):
        """Pay 1 if the action, 0 or 1, matches the cue."""
        right = (2 * action - 1) == self.cue
        out = {"obs": torch.zeros_like(self.cue), "rewards": right.float()}
        return TensorDict(out, batch_size=[self.num_envs], device=self.device)
