"""Config of REINFORCE; importable without torch."""

from rlox.config.model import SEED, Config, coefficient, count, discount, positive

__all__ = ["ReinforceConfig"]

OURS = "this plugin"


class ReinforceConfig(Config):
    """Options of REINFORCE."""

    seed: int | None = SEED
    n_envs: int = count(8, unit="envs", help="number of envs N stepped together", source=OURS)
    n_steps: int = count(64, unit="env steps per env", help="rollout length T", source=OURS)
    learning_rate: float = positive(1e-2, help="Adam's step size", source=OURS)
    gamma: float = discount(
        0.99, help="discount factor γ", source="Sutton and Barto 2018, sec. 13.4"
    )
    baseline_coef: float = coefficient(
        0.5, help="weight of the baseline's squared error", source=OURS
    )
    max_grad_norm: float = positive(1.0, help="bound of the gradient's Euclidean norm", source=OURS)
    hidden: int = count(32, unit="units", help="width of the two hidden layers", source=OURS)
