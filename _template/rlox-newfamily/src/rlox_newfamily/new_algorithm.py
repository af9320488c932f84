"""Actor-critic (Sutton and Barto 2018, sec. 13.5).

Each iteration collects T steps of N envs and takes one step down the gradient of

    loss = -mean A_t log π(a_t|s_t) + c_v mean (V(s_t) - G_t)²,

where A_t are generalised advantage estimates and G_t = A_t + V(s_t).

Deviations from the book:
    1. one step on T·N samples instead of one on each;
    2. advantages have a trace decay λ (Schulman et al. 2016); λ = 0 gives the book's δ_t;
    3. Adam with a bound on the gradient's norm instead of plain ascent.
"""

from __future__ import annotations

from typing import final

from rlox.losses import PolicyGradient
from rlox.rollouts import RolloutAlgorithm

from rlox_newfamily.configs import NewAlgorithmConfig


@final
class NewAlgorithm(RolloutAlgorithm):
    """Policy gradient with a learned value function.

    The arguments are those of :class:`rlox.rollouts.RolloutAlgorithm`, with the options of
    :class:`NewAlgorithmConfig`.
    """

    name = "new_algorithm"
    config_class = NewAlgorithmConfig
    objective_class = PolicyGradient
    arguments = ("env_id", "n_envs", "seed", "policy", "logger", "callbacks")
