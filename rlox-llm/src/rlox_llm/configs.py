"""Configs of the algorithms for language models."""

from __future__ import annotations

from typing import Literal

from pydantic import field_validator, model_validator
from rlox.config.model import choice, coefficient, count, flag, option, positive, probability

from rlox_llm.language_config import LanguageConfig, SamplingConfig
from rlox_llm.loss_options import TRL, require_loss

__all__ = [
    "DPOConfig",
    "GRPOConfig",
    "LanguageConfig",
    "OnlineDPOConfig",
    "SFTConfig",
    "SamplingConfig",
]

SHAO = "Shao et al. 2024"


class GRPOConfig(SamplingConfig):
    """Options of GRPO."""

    group_size: int = count(
        4, unit="completions", help="completions of each prompt", source="rlox's documents"
    )
    kl_coef: float = coefficient(
        0.1, help="weight of the KL to the reference; 0: no reference is needed",
        source="rlox's documents",
    )  # fmt: skip
    loss_type: str = option(
        "dapo", unit="name", source=TRL, min_length=1, selects="rlox_policy_losses",
        help="loss by registered name: grpo, bnpo, dr_grpo, dapo, cispo, sapo, luspo, vespo, or a "
        "plugin's",
    )  # fmt: skip
    importance_sampling_level: Literal["token", "sequence"] = choice(
        "token", help="whether a ratio is a token's or a completion's", source="Zheng et al. 2025"
    )
    epsilon: float = coefficient(
        0.2, help="how far a ratio may fall below 1", source=f"{SHAO}, eq. 3; {TRL}"
    )
    epsilon_high: float | None = coefficient(
        None, help="how far a ratio may rise above 1, of cispo the largest ratio; `None`: epsilon",
        source="Yu et al. 2025",
    )  # fmt: skip
    delta: float | None = positive(
        None, help="largest ratio at negative advantages too; `None`: unbounded", source=TRL
    )
    num_iterations: int = count(
        1, unit="gradient steps", help="gradient steps on each rollout", source=f"{SHAO}, alg. 1"
    )
    scale_rewards: Literal["group", "batch", "none"] = choice(
        "group", source=f"{SHAO}; Liu et al. 2025",
        help="whose standard deviation divides the advantages",
    )  # fmt: skip
    leave_one_out: bool = flag(
        False, help="whether the baseline of a completion is the mean of the others of its group, "
        "without division", source="Ahmadian et al. 2024",
    )  # fmt: skip
    reward_weights: tuple[float, ...] | None = option(
        None, help="weights of several reward functions; `None`: 1 each", unit="1", source=TRL
    )
    kl_estimator: Literal["k1", "k2", "k3"] = choice(
        "k3", help="estimator of the KL", source="Schulman 2020"
    )
    use_bias_correction_kl: bool = flag(
        True, help="whether the importance ratio multiplies that estimate", source=TRL
    )
    entropy_coef: float = coefficient(
        0.0, help="weight of the mean entropy per token, which the loss is lowered by",
        unit="1 / nats", source=TRL,
    )  # fmt: skip
    sync_ref_model: bool = flag(
        False,
        help="whether the reference follows the policy",
        source=f"Gorbatovski et al. 2024; {TRL}",
    )
    ref_model_sync_steps: int = count(
        512, unit="gradient steps", help="gradient steps from one move of it to the next",
        source=TRL,
    )  # fmt: skip
    ref_model_mixup_alpha: float = probability(
        0.6, help="weight of the policy in the reference at each move", source=TRL
    )
    engine_ratio_max: float = positive(
        3.0, source=TRL,
        help="probability of a completion by that of the engine that sampled it, beyond which it "
        "is left out; without an engine it has no effect",
    )  # fmt: skip
    filter_flat_groups: bool = flag(
        False, help="whether groups of equal rewards are left out of the forward and backward "
        "pass, which changes no gradient and needs kl_coef=0", source="Yu et al. 2025",
    )  # fmt: skip
    mask_truncated_completions: bool = flag(
        False, help="whether completions without EOS are left out of the loss",
        source="Yu et al. 2025",
    )  # fmt: skip

    @field_validator("loss_type")
    @classmethod
    def _require_loss(cls, name: str) -> str:
        return require_loss("rlox_policy_losses", name)

    @model_validator(mode="after")
    def _check_options_that_go_together(self) -> GRPOConfig:
        if self.kl_estimator == "k1" and self.kl_coef and not self.use_bias_correction_kl:
            raise ValueError(
                "the gradient of kl_estimator='k1' alone is 0 in expectation; leave "
                "use_bias_correction_kl on, or take 'k2' or 'k3'"
            )
        if self.loss_type == "cispo" and self.epsilon_high is None:
            raise ValueError(
                "loss_type='cispo' needs epsilon_high, its largest ratio; 5.0 is common"
            )
        if self.sync_ref_model and not self.kl_coef:
            raise ValueError("sync_ref_model moves a reference, and kl_coef=0 has none; set one")
        if self.filter_flat_groups and (self.kl_coef or self.entropy_coef):
            raise ValueError(
                "filter_flat_groups leaves out completions that kl_coef and entropy_coef act on; "
                "set both to 0"
            )
        return self


class PreferenceConfig(LanguageConfig):
    """Options of losses of preference pairs."""

    beta: float = positive(
        0.1, help="how strongly the policy is held to the reference",
        source="Rafailov et al. 2023",
    )  # fmt: skip
    loss_type: str = option(
        "sigmoid", unit="name", source=TRL, min_length=1, selects="rlox_preference_losses",
        help="loss by registered name: sigmoid, hinge, ipo, robust, cdpo, sppo_hard, nca_pair, "
        "bco_pair, apo_zero, apo_down, exo_pair, aot, discopop, sigmoid_norm, or a plugin's",
    )  # fmt: skip
    label_smoothing: float = option(
        0.0, help="probability that a preference is the wrong way round", unit="1",
        source="Mitchell 2023", ge=0.0, lt=0.5,
    )  # fmt: skip

    @field_validator("loss_type")
    @classmethod
    def _require_loss(cls, name: str) -> str:
        return require_loss("rlox_preference_losses", name)


class DPOConfig(PreferenceConfig):
    """Options of DPO."""

    batch_size: int = count(16, unit="pairs", help="pairs of one gradient step", source="rlox")
    precompute_ref_log_probs: bool = flag(
        False, help="whether the reference runs once over the dataset, before training, and never "
        "again", source=TRL,
    )  # fmt: skip


class SFTConfig(LanguageConfig):
    """Options of supervised fine-tuning."""

    batch_size: int = count(16, unit="rows", help="rows of one gradient step", source="rlox")


class OnlineDPOConfig(PreferenceConfig, SamplingConfig):
    """Options of OnlineDPO."""
