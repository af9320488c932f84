"""Config of REINFORCE; importable without torch."""

from rlox.config import RolloutConfig, coefficient, count, discount, positive

OURS = "this plugin"


class ReinforceConfig(RolloutConfig):
    """Options of REINFORCE: those of every rollout, and one of its own."""

    n_steps: int = count(64, unit="env steps per env", help="rollout length T", source=OURS)
    learning_rate: float = positive(1e-2, help="Adam's step size", source=OURS)
    gae_lambda: float = discount(
        1.0, help="trace decay λ; 1 takes Monte-Carlo returns",
        source="Sutton and Barto 2018, sec. 13.4",
    )  # fmt: skip
    baseline_coef: float = coefficient(
        0.5, help="weight of the baseline's squared error", source=OURS
    )
    max_grad_norm: float = positive(1.0, help="bound of the gradient's Euclidean norm", source=OURS)
    hidden: int = count(32, unit="units", help="width of the two hidden layers", source=OURS)
