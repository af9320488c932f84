"""Configs of the offline algorithms."""

from __future__ import annotations

from pydantic import JsonValue
from rlox.config.frames import ActorCriticConfig, NetworkConfig, activation
from rlox.config.model import (
    BACKEND,
    ENV_KWARGS,
    Activation,
    RunConfig,
    Widths,
    coefficient,
    count,
    discount,
    flag,
    option,
    positive,
    widths,
)

FUJIMOTO = "Fujimoto and Gu 2021"
KOSTRIKOV = "Kostrikov et al. 2022"
KUMAR = "Kumar et al. 2020"
NAIR = "Nair et al. 2020"
NAKAMOTO = "Nakamoto et al. 2023"


class OfflineConfig(RunConfig):
    """Base of the configs of offline algorithms."""

    obs_dim: int | None = count(
        None, unit="numbers", source="rlox",
        help="size of an observation; `None` takes the dataset's",
    )  # fmt: skip
    act_dim: int | None = count(
        None, unit="numbers", source="rlox",
        help="size of an action, or the number of discrete actions; `None` takes the dataset's",
    )  # fmt: skip
    act_high: float | None = positive(
        None, unit="action", source="sfujim/TD3_BC",
        help="actions lie in [-act_high, act_high]; `None` takes the dataset's bounds, else "
        "the env's, else those of a policy to be evaluated, else 1",
    )  # fmt: skip
    batch_size: int = count(
        256, unit="rows", help="transitions in a minibatch", source="Fujimoto and Gu 2021, table 3"
    )
    steps_per_iteration: int = count(
        1000, unit="gradient steps", source="rlox",
        help="gradient steps over which metrics are averaged and after which they are logged",
    )  # fmt: skip
    env_kwargs: dict[str, JsonValue] = ENV_KWARGS


class LearnerConfig(OfflineConfig, NetworkConfig):
    """Options of all offline algorithms."""

    hidden: Widths = widths(256, source=f"{FUJIMOTO}, table 3")
    activation: Activation = activation("relu", source=f"{FUJIMOTO}, table 3")
    learning_rate: float = positive(3e-4, help="Adam's step size", source=f"{FUJIMOTO}, table 3")


class ValueConfig(LearnerConfig):
    """Options of the algorithms that learn values."""

    gamma: float = discount(0.99, help="discount factor γ", source=f"{FUJIMOTO}, table 3")
    tau: float = discount(
        0.005, help="share of the way that target networks go at each update",
        source=f"{FUJIMOTO}, table 3",
    )  # fmt: skip


class ControlConfig(ValueConfig, ActorCriticConfig):
    """Options of the algorithms that learn policies from values."""

    reward_scale: float = positive(1.0, help="factor of the dataset's rewards", source="rlox")
    reward_shift: float = option(
        0.0, unit="scaled reward", help="term that is then added to them", source="rlox"
    )


class BCConfig(LearnerConfig):
    """Options of behavioural cloning."""

    continuous: bool = flag(
        True, help="whether actions are vectors of numbers rather than one of several",
        source="rlox",
    )  # fmt: skip
    stochastic: bool = flag(
        False, help="whether a continuous policy is a Gaussian, fitted by likelihood, rather than "
        "one action, fitted by squared error; discrete policies always give probabilities",
        source="rlox",
    )  # fmt: skip


class TD3BCConfig(ControlConfig):
    """Options of TD3+BC."""

    alpha: float = positive(
        2.5, help="weight α of the normalised value against cloning", source=f"{FUJIMOTO}, eq. 5"
    )
    policy_delay: int = count(
        2, unit="gradient steps", help="gradient steps of the critics for one of the policy",
        source=f"{FUJIMOTO}, table 3",
    )  # fmt: skip
    target_noise: float = coefficient(
        0.2, unit="act_high", source=f"{FUJIMOTO}, table 3",
        help="deviation of the noise on the target policy's actions",
    )  # fmt: skip
    noise_clip: float = coefficient(
        0.5, unit="act_high", help="bound of that noise", source=f"{FUJIMOTO}, table 3"
    )
    backend: str = BACKEND


class IQLConfig(ControlConfig):
    """Options of IQL."""

    expectile: float = option(
        0.7, unit="1", help="expectile τ of the value regression; ½: the mean",
        source=f"{KOSTRIKOV}, sec. 5.1", gt=0.0, lt=1.0,
    )  # fmt: skip
    temperature: float = coefficient(
        3.0, help="inverse temperature β of the policy extraction; 0: cloning",
        unit="1/return", source=f"{KOSTRIKOV}, sec. 5.1",
    )  # fmt: skip
    max_weight: float = positive(
        100.0, help="bound of the weights exp(β A)", source="ikostrikov/implicit_q_learning"
    )
    stochastic: bool = flag(
        True, help="whether the policy is a Gaussian, fitted by likelihood, rather than one "
        "action, fitted by squared error",
        source="tinkoff-ai/CORL, which has the choice",
    )  # fmt: skip
    actor_decay_steps: int | None = count(
        None, unit="gradient steps", source=f"{KOSTRIKOV}, appendix B",
        help="gradient steps over which the policy's step size falls to 0 along a cosine; "
        "`None`: to the end of each call of train, so set it if several calls make a training",
    )  # fmt: skip
    backend: str = BACKEND


class AWACConfig(ControlConfig):
    """Options of AWAC."""

    awac_lambda: float = positive(
        1.0, help="multiplier λ that advantages are divided by; large: cloning", unit="return",
        source=f"{NAIR}, table 2",
    )  # fmt: skip
    max_weight: float = positive(
        100.0, help="bound of the weights exp(A / λ)", source="ikostrikov/implicit_q_learning"
    )


class CQLConfig(ControlConfig):
    """Options of CQL(H) and of Cal-QL."""

    cql_alpha: float = coefficient(
        5.0, help="weight α of the conservative penalty", source=f"{KUMAR}, appendix F"
    )
    n_random_actions: int = count(
        10, unit="actions", source=f"{KUMAR}, appendix F",
        help="actions drawn from each of the uniform distribution, π(s) and π(s') for the penalty",
    )  # fmt: skip
    calibrated: bool = flag(
        False, help="whether the penalty spares values of the policy's actions that are below the "
        "return that the dataset reached from there on: Cal-QL",
        source=f"{NAKAMOTO}, eq. 5.1",
    )  # fmt: skip
    auto_alpha: bool = flag(
        False, help="whether a Lagrange multiplier holds the penalty at cql_target_value",
        source=f"{KUMAR}, eq. 30",
    )  # fmt: skip
    cql_target_value: float = option(
        -1.0, unit="return", source=f"{KUMAR}, appendix F, has 5 or 10",
        help="value of the unweighted penalty that the multiplier aims at",
    )  # fmt: skip
    mode_targets: bool = flag(
        False, help="whether targets take the mode of π(s') rather than an action drawn from it",
        source="takuseno/d3rlpy, which does",
    )  # fmt: skip
    actor_learning_rate: float = positive(
        1e-4, help="Adam's step size for policy and temperature", source=f"{KUMAR}, appendix F"
    )
    bc_steps: int = count(
        0, unit="gradient steps", ge=0, source="aviralkumar2907/CQL, which has 40 000",
        help="gradient steps at the beginning in which the policy clones the dataset",
    )  # fmt: skip
    auto_entropy: bool = flag(
        True, help="whether the entropy's weight is tuned to target_entropy",
        source="Haarnoja et al. 2018",
    )  # fmt: skip
    target_entropy: float | None = option(
        None, unit="nats", help="entropy to aim at; `None`: -act_dim", source="Haarnoja et al. 2018"
    )
    backend: str = BACKEND


class FQEConfig(ValueConfig):
    """Options of fitted Q evaluation."""
