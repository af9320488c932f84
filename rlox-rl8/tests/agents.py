"""Small algorithms of both kinds, and a model that sees the past."""

from typing import Any, ClassVar

import torch
from rlox_rl8.algorithms import AlgorithmConfig, RecurrentAlgorithmConfig
from rlox_rl8.env import DiscreteDummyEnv
from rlox_rl8.models import DefaultDiscreteModel
from rlox_rl8.views import ViewRequirement

NETWORKS = {AlgorithmConfig: {"hiddens": (8,)}, RecurrentAlgorithmConfig: {"hidden_size": 8}}
KINDS = tuple(NETWORKS)


def small(kind, env=DiscreteDummyEnv, **options):
    """Return an algorithm of 16 envs and 8 steps on the CPU, whose memory is never reset."""
    given = {"num_envs": 16, "horizon": 8, "device": "cpu", "model_config": NETWORKS[kind]}
    if kind is RecurrentAlgorithmConfig:
        given |= {"seq_len": min(4, options.get("horizon", 8)), "seqs_per_state_reset": -1}
    return kind(**{**given, **options}).build(env)


def parameters(algorithm):
    """Return a copy of all parameters as one vector."""
    return torch.cat([p.detach().flatten() for p in algorithm.policy.model.parameters()])


class Windows(DefaultDiscreteModel):
    """Acts on the mean of the last three observations, and stores its views."""

    method: Any = "padded_rolling_window"
    seen: ClassVar[list[torch.Tensor]] = []

    def __init__(self, *specs):
        super().__init__(*specs, hiddens=(8,))
        self.view_requirements["obs"] = ViewRequirement(shift=2, method=self.method)

    def forward(self, batch):
        """Return features of actions."""
        windows = batch["obs"]
        windows = windows if isinstance(windows, torch.Tensor) else windows["inputs"]
        self.seen.append(windows.clone())
        return super().forward({"obs": windows.mean(1)})
