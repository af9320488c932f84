"""Config of soft Q-learning; importable without torch."""

from rlox.config.frames import ReplayConfig
from rlox.config.model import ScheduleValue, positive, probability, schedule

OURS = "this plugin"


class SoftQConfig(ReplayConfig):
    """Options of soft Q-learning."""

    learning_rate: ScheduleValue = schedule(1e-3, help="Adam's step size", source=OURS)
    alpha: float = positive(
        0.1, help="temperature α", unit="return/nats", source="Haarnoja et al. 2017, eq. 3"
    )
    tau: float = probability(0.01, help="share of the network in the target's update", source=OURS)
