"""Configs of the multi-agent algorithms."""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator
from rlox.config.clipped import ClippedSurrogateConfig
from rlox.config.model import (
    ScheduleValue,
    changed,
    choice,
    count,
    option,
    positive,
    probability,
    schedule,
)

__all__ = ["IPPOConfig", "MAPPOConfig"]

YU = "Yu et al. 2022"
MISSION = "rlox, as PPO on small tasks"


class MAPPOConfig(ClippedSurrogateConfig):
    """Options of MAPPO: PPO's, and those of teams, which are neutral by default."""

    schedule_bounds = {  # noqa: RUF012  # pydantic keeps class variables of the base
        **ClippedSurrogateConfig.schedule_bounds,
        "critic_learning_rate": (0.0, 1.0),
    }

    n_agents: int | None = count(
        None, unit="agents", help="number of agents; None: the env's", source="rlox"
    )
    n_envs: int = count(4, unit="envs", help="number of envs N stepped together", source=MISSION)
    n_steps: int = count(64, unit="env steps per env", help="rollout length T", source=MISSION)
    n_epochs: int = count(4, unit="epochs", help="passes over each rollout", source=MISSION)
    batch_size: int = count(
        128, unit="rows",
        help="minibatch size, a row being a step of an agent; an epoch's last has the remainder",
        source=MISSION,
    )  # fmt: skip
    learning_rate: ScheduleValue = schedule(2.5e-4, help="Adam's step size", source=MISSION)
    ent_coef: ScheduleValue = schedule(
        0.01, help="weight of the entropy bonus", unit="1/nats", source=f"{YU}, table 7"
    )
    critic: Literal["auto", "state", "observations", "agent_state", "local"] = choice(
        "auto", source=f"{YU}, sec. 5.2",
        help="what the critic of an agent sees: the env's state, all observations, the state and "
        "the agent's observation, or the latter alone; auto: the state if the env has one, else "
        "all observations",
    )  # fmt: skip
    share_parameters: str = option(
        "group", source=f"{YU}, sec. 4", unit="names", min_length=1,
        help="group: one policy for all agents of equal spaces, which see who they are; agent: one "
        "each; or who shares one, as in 'left,right;goalkeeper'",
    )  # fmt: skip
    team_reward: Literal["own", "mean", "sum"] = choice(
        "own", source="rlox",
        help="what an agent learns from: its own reward, or the mean or the sum over all agents",
    )  # fmt: skip
    normalize_values: Literal["none", "value_norm", "popart"] = choice(
        "none", source=f"{YU}, sec. 5.1",
        help="how value targets are normalised, by running moments",
    )  # fmt: skip
    huber_delta: float | None = positive(
        None, help="value errors beyond it count linearly; None: all are squared", unit="return",
        source=f"{YU}, table 7, where it is 10",
    )  # fmt: skip
    critic_learning_rate: ScheduleValue | None = schedule(
        None, source=f"{YU}, table 7",
        help="the critic's step size, which then has an optimiser of its own; None: learning_rate",
    )  # fmt: skip

    opponents: Literal["none", "even", "rating"] = choice(
        "none", source="Vinyals et al. 2019, methods",
        help="whom the learner plays in a game of two: itself, or also earlier policies from a "
        "pool, drawn evenly or as likely as they are to win",
    )  # fmt: skip
    pool_size: int = count(
        20, unit="policies", help="most earlier policies in the pool", source="rlox"
    )
    pool_interval: int = count(
        20_000, unit="env steps", help="env steps from one policy in the pool to the next",
        source="rlox",
    )  # fmt: skip
    pool_share: float = probability(
        0.5, help="share of the games against the pool, not against itself", source="rlox"
    )

    @property
    def rows_depend_on_env(self) -> bool:
        """Whether there may be several agents, each of which has a row for each of its steps."""
        return self.n_agents != 1

    @model_validator(mode="after")
    def _check_teams(self) -> MAPPOConfig:
        for name in ("pool_size", "pool_interval", "pool_share"):
            if self.opponents == "none" and changed(self, name):
                raise ValueError(f"{name} needs opponents='even' or 'rating', got opponents='none'")
        if self.share_parameters == "agent" and self.n_agents == 1:
            raise ValueError("share_parameters='agent' needs several agents, got n_agents=1")
        return self


class IPPOConfig(MAPPOConfig):
    """Options of IPPO: MAPPO's, with critics that see what their agent does."""

    critic: Literal["local"] = choice(
        "local", help="the critic of an agent sees its observation", source="de Witt et al. 2020"
    )
