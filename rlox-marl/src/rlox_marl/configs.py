"""Configs of the multi-agent algorithms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import model_validator
from rlox.config.frames import CONV, NETWORK, ClippedSurrogateConfig, NetworkConfig, activation
from rlox.config.model import (
    Activation,
    Conv,
    EnvRunConfig,
    ScheduleValue,
    Widths,
    changed,
    choice,
    count,
    discount,
    flag,
    option,
    positive,
    probability,
    schedule,
    widths,
)

YU = "Yu et al. 2022"
RASHID = "Rashid et al. 2018"
SUNEHAG = "Sunehag et al. 2018"
TAN = "Tan 1993"

MISSION = "rlox, as PPO on small tasks"

N_AGENTS = count(None, unit="agents", help="number of agents; None: the env's", source="rlox")


class MAPPOConfig(ClippedSurrogateConfig):
    """Options of MAPPO: PPO's, and options for teams, which are neutral by default."""

    schedule_bounds = {  # noqa: RUF012  # pydantic keeps class variables of the base
        **ClippedSurrogateConfig.schedule_bounds,
        "critic_learning_rate": (0.0, 1.0),
    }

    n_agents: int | None = N_AGENTS
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
        help="input of an agent's critic: the env's state, all observations, the state and "
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
        help="an agent's reward in learning: its own, or the mean or the sum over all agents",
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
        """Whether there may be several agents, each with a row per step of its own."""
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
    """Options of IPPO: MAPPO's, with critics that see only their agent's observation."""

    critic: Literal["local"] = choice(
        "local", help="the critic of an agent sees its observation", source="de Witt et al. 2020"
    )


class TeamValueConfig(NetworkConfig, EnvRunConfig):
    """Options shared by the algorithms that learn action values of teams."""

    schedule_bounds: ClassVar[Mapping[str, tuple[float, float]]] = {
        "learning_rate": (0.0, 1.0),
        "epsilon": (0.0, 1.0),
    }

    n_agents: int | None = N_AGENTS
    n_envs: int = count(8, unit="envs", help="number of envs N stepped together", source="rlox")
    buffer_size: int = count(
        100_000, unit="env steps", help="capacity of the replay buffer", source=f"{RASHID}, app. C"
    )
    learning_starts: int = count(
        1_000, ge=0, unit="env steps", help="steps to collect before learning starts", source="rlox"
    )
    train_freq: int = count(
        32, unit="env steps", help="env steps between learning, all envs counted", source="rlox"
    )
    gradient_steps: int = count(
        4, unit="gradient steps", help="gradient steps each time", source="rlox"
    )
    batch_size: int = count(
        64, unit="sequences", help="sequences of a batch", source=f"{RASHID}, where it is 32"
    )
    sequence_length: int | None = count(
        None, unit="env steps", source=f"{RASHID}, where it is an episode",
        help="steps of a sequence; None: 1, and 16 with a memory",
    )  # fmt: skip
    learning_rate: ScheduleValue = schedule(
        5e-4, help="Adam's step size", source=f"{RASHID}, app. C, of RMSprop"
    )
    adam_eps: float = positive(
        1e-8, help="added to the root of Adam's second moment", source="Kingma and Ba 2015"
    )
    max_grad_norm: float = positive(
        10.0, help="bound of the gradient's Euclidean norm", source="oxwhirl/pymarl"
    )
    gamma: float = discount(0.99, help="discount factor γ", source=f"{RASHID}, app. C")
    epsilon: ScheduleValue = schedule(
        "linear(1, 0.05, 50000)", help="probability ε of a uniform action of an agent",
        source=f"{RASHID}, app. C",
    )  # fmt: skip
    double_q: bool = flag(
        True, help="the network chooses the actions that the target network judges",
        source="van Hasselt et al. 2016; oxwhirl/pymarl",
    )  # fmt: skip
    target_update_interval: int = count(
        200, unit="gradient steps", help="gradient steps between updates of the target network",
        source=f"{RASHID}, app. C, in episodes",
    )  # fmt: skip
    tau: float = probability(
        1.0, help="share of the network in the target's update; 1: a copy",
        source="Mnih et al. 2015, algorithm 1",
    )  # fmt: skip
    share_parameters: str = option(
        "group", source=f"{SUNEHAG}, sec. 3", unit="names", min_length=1,
        help="group: one network for all agents of equal spaces, which see who they are; agent: "
        "one each; or who shares one, as in 'left,right;goalkeeper'",
    )  # fmt: skip
    hidden: Widths = widths(64, source=f"{RASHID}, app. C")
    activation: Activation = activation("relu", source=f"{RASHID}, app. C")
    network: Literal["auto", "mlp", "cnn"] = NETWORK
    conv: Conv = CONV
    recurrent: Literal["none", "gru"] = choice(
        "none", help="kind of the agents' memory", source=f"{RASHID}, app. C, where it is gru"
    )
    memory_size: int = count(
        64, unit="units", help="size of the memory", source=f"{RASHID}, app. C"
    )
    steps_per_iteration: int = count(
        1_000, unit="env steps", source="rlox",
        help="one row of metrics, and one chance to save or evaluate, this often",
    )  # fmt: skip
    save_replay_buffer: bool = flag(
        False, help="checkpoints hold the replay buffer, so that resuming is exact", source="rlox"
    )

    @property
    def length(self) -> int:
        """Steps of a sequence."""
        if self.sequence_length is not None:
            return self.sequence_length
        return 1 if self.recurrent == "none" else 16

    @property
    def n_remembered(self) -> int:
        """Units of an agent's memory; 0 for none."""
        return self.memory_size if self.recurrent == "gru" else 0

    @model_validator(mode="after")
    def _check_options(self) -> TeamValueConfig:
        if self.recurrent == "none" and changed(self, "memory_size"):
            raise ValueError("memory_size needs recurrent='gru', got recurrent='none'")
        if self.n_envs * (self.length + 1) > self.buffer_size:
            raise ValueError(
                f"buffer_size {self.buffer_size} holds no sequence of {self.length} steps and the "
                f"step before it for each of n_envs = {self.n_envs}; enlarge it"
            )
        if self.learning_starts > self.buffer_size:
            raise ValueError(
                f"learning_starts {self.learning_starts} exceeds buffer_size {self.buffer_size}: "
                "the first steps would be lost unseen; lower it or enlarge the buffer"
            )
        return self


class VDNConfig(TeamValueConfig):
    """Options of VDN."""

    team_reward: Literal["mean", "sum"] = choice(
        "mean", help="a team's reward in learning: the mean or the sum of its agents' rewards",
        source="rlox",
    )  # fmt: skip


class QMIXConfig(VDNConfig):
    """Options of QMIX: VDN's, and the mixing network's."""

    mixing_size: int = count(
        32, unit="units", help="width of the mixing network", source=f"{RASHID}, app. C"
    )
    hyper_size: int = count(
        64, ge=0, unit="units", source="hijkzzz/pymarl2 and uoe-agents/epymarl, hypernet_embed",
        help="hidden layer of the networks that make the mixing's weights of the state; 0: they "
        "are linear, as in the paper, which diverges where states are not bounded",
    )  # fmt: skip


class IndependentQConfig(TeamValueConfig):
    """Options of independent Q-learning."""

    team_reward: Literal["own", "mean", "sum"] = choice(
        "own", source=f"{TAN}, sec. 2",
        help="an agent's reward in learning: its own, or the mean or the sum over all agents",
    )  # fmt: skip
