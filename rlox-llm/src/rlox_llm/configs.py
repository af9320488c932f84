"""Configs of the algorithms for language models, and the options of single losses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import field_validator, model_validator
from rlox.config.composition import selectors
from rlox.config.model import (
    Config,
    RunConfig,
    ScheduleValue,
    choice,
    coefficient,
    count,
    flag,
    option,
    positive,
    probability,
    schedule,
)
from rlox.errors import ConfigError, UnknownNameError
from rlox.registry.table import get_registry

SHAO = "Shao et al. 2024"

TRL = "TRL 1.16"

Tokens = int | tuple[int, ...] | None


class LanguageConfig(RunConfig):
    """Options of all algorithms for language models."""

    schedule_bounds: ClassVar[Mapping[str, tuple[float, float]]] = {"learning_rate": (0.0, 1.0)}

    learning_rate: ScheduleValue = schedule(
        1e-4, help="Adam's step size", source="rlox's documents"
    )
    max_grad_norm: float | None = positive(
        1.0, help="bound of the gradient's Euclidean norm; `None`: unbounded", source=TRL
    )
    eos_token_id: Tokens = option(
        None, unit="token ids", source="transformers",
        help="tokens that end a completion; `None`: from the model's generation config, else the "
        "tokenizer's",
    )  # fmt: skip
    pad_token_id: int | None = count(
        None, ge=0, unit="token id", source="transformers",
        help="padding token; `None`: from the model's config, else its first EOS",
    )  # fmt: skip
    micro_batch_size: int | None = count(
        None, unit="rows", source="rlox",
        help="rows in one forward pass; gradients of several passes add up; `None`: all",
    )  # fmt: skip
    dropout: bool = flag(
        False, help="whether dropout is active while learning", source="TRL's disable_dropout"
    )
    layout: Literal["auto", "padded", "shared_prefix", "packed"] = choice(
        "auto", source="rlox",
        help="form of rows in a transformers model while learning: padded, prompts once for all "
        "their completions, or packed; auto: shared where prompts repeat",
    )  # fmt: skip
    bf16: bool = flag(
        False, help="whether models compute in bfloat16; weights keep their dtype", source=TRL
    )
    gradient_checkpointing: bool = flag(
        False, help="whether a transformers model recomputes activations to save memory",
        source="Chen et al. 2016",
    )  # fmt: skip
    lora_rank: int | None = count(
        None, unit="ranks", source="Hu et al. 2021",
        help="rank of a LoRA adapter, trained instead of the weights; `None`: no adapter",
    )  # fmt: skip
    lora_alpha: float | None = positive(
        None,
        help="scale of the adapter, divided by its rank; `None`: twice the rank",
        source="peft",
    )
    lora_dropout: float = probability(
        0.0, help="dropout of the adapter's inputs, if `dropout` is on", source="peft"
    )
    lora_target_modules: str | tuple[str, ...] = option(
        "all-linear", help="layers with an adapter: names, or a pattern", unit="name", source="peft"
    )
    device: str = option(
        "cpu", help="torch device of models loaded from folders; other models keep their device",
        unit="name", source="rlox", min_length=1,
    )  # fmt: skip
    torch_threads: int | None = count(
        None, unit="threads", source="rlox",
        help="torch threads while training; `None`: torch's own setting",
    )  # fmt: skip

    @field_validator("loss_type", check_fields=False)
    @classmethod
    def _require_loss(cls, name: str) -> str:
        try:
            get_registry().get(selectors(cls)["loss_type"], name)
        except UnknownNameError as error:
            raise ConfigError(str(error)) from None
        return name

    @model_validator(mode="after")
    def _require_lora_rank(self) -> LanguageConfig:
        for name in ("lora_alpha", "lora_dropout"):
            if self.lora_rank is None and getattr(self, name):
                raise ValueError(
                    f"{name}={getattr(self, name)} needs an adapter, and there is none; set "
                    f"lora_rank, or leave {name} out"
                )
        return self


class SamplingConfig(LanguageConfig):
    """Options of algorithms that sample completions."""

    max_new_tokens: int = count(
        8, unit="tokens", help="maximum length of a completion", source="rlox's documents"
    )
    prompts_per_rollout: int = count(
        32, unit="prompts", help="maximum number of prompts in one iteration", source="rlox"
    )
    sampler: Literal["auto", "rlox", "model", "transformers"] = choice(
        "auto", source="rlox",
        help="sampler: rlox, the model's own generate, or that of transformers; auto: the model's "
        "own if it has one, else rlox",
    )  # fmt: skip
    temperature: float = positive(
        1.0, help="divisor of logits, in sampling and learning", source=TRL
    )
    top_k: int = count(
        0, ge=0, unit="tokens", help="sample from the k likeliest; 0: from all", source=TRL
    )
    top_p: float = option(
        1.0, help="sample from the likeliest tokens of this total probability", unit="1",
        source="Holtzman et al. 2020", gt=0.0, le=1.0,
    )  # fmt: skip
    min_p: float = probability(
        0.0, help="sample from tokens with at least this share of the likeliest one's probability",
        source="Nguyen et al. 2024",
    )  # fmt: skip
    log_completions: bool = flag(
        False, help="whether to log a table of each iteration's completions", source=TRL
    )
    num_completions_to_print: int | None = count(
        None, unit="completions", help="rows of that table; `None`: all", source=TRL
    )

    @model_validator(mode="before")
    @classmethod
    def _take_the_name_of_trl(cls, values: dict[str, Any]) -> dict[str, Any]:
        if "max_completion_length" not in values:
            return values
        length = values["max_completion_length"]
        if values.get("max_new_tokens", length) != length:
            raise ValueError(
                f"max_completion_length={length} is TRL's name of max_new_tokens, got "
                f"max_new_tokens={values['max_new_tokens']} as well; leave one out"
            )
        others = {name: value for name, value in values.items() if name != "max_completion_length"}
        return {**others, "max_new_tokens": length}

    @model_validator(mode="after")
    def _require_logged_completions(self) -> SamplingConfig:
        if self.num_completions_to_print is not None and not self.log_completions:
            raise ValueError(
                f"num_completions_to_print={self.num_completions_to_print} applies to a table that "
                "only log_completions=True makes; set it, or leave num_completions_to_print out"
            )
        return self


class GRPOConfig(SamplingConfig):
    """Options of GRPO."""

    group_size: int = count(
        4, unit="completions", help="completions of each prompt", source="rlox's documents"
    )
    kl_coef: float = coefficient(
        0.1, help="weight of the KL to the reference; 0: needs no reference",
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
        0.2, help="bound of a ratio's distance below 1", source=f"{SHAO}, eq. 3; {TRL}"
    )
    epsilon_high: float | None = coefficient(
        None, help="bound of a ratio's distance above 1, in cispo of the ratio; `None`: epsilon",
        source="Yu et al. 2025",
    )  # fmt: skip
    delta: float | None = positive(
        None, help="bound of the ratio, also at negative advantages; `None`: none", source=TRL
    )
    num_iterations: int = count(
        1, unit="gradient steps", help="gradient steps on each rollout", source=f"{SHAO}, alg. 1"
    )
    scale_rewards: Literal["group", "batch", "none"] = choice(
        "group", source=f"{SHAO}; Liu et al. 2025",
        help="set of rewards whose standard deviation divides advantages",
    )  # fmt: skip
    leave_one_out: bool = flag(
        False, help="whether a completion's baseline is the mean reward of its group's others, "
        "without division", source="Ahmadian et al. 2024",
    )  # fmt: skip
    reward_weights: tuple[float, ...] | None = option(
        None, help="weights of the reward functions; `None`: 1 each", unit="1", source=TRL
    )
    kl_estimator: Literal["k1", "k2", "k3"] = choice(
        "k3", help="estimator of the KL", source="Schulman 2020"
    )
    use_bias_correction_kl: bool = flag(
        True, help="whether to multiply the KL estimate by the importance ratio", source=TRL
    )
    entropy_coef: float = coefficient(
        0.0, help="weight of the mean entropy per token, subtracted from the loss",
        unit="1 / nats", source=TRL,
    )  # fmt: skip
    sync_ref_model: bool = flag(
        False,
        help="whether the reference follows the policy",
        source=f"Gorbatovski et al. 2024; {TRL}",
    )
    ref_model_sync_steps: int = count(
        512, unit="gradient steps", help="gradient steps between moves of the reference", source=TRL
    )
    ref_model_mixup_alpha: float = probability(
        0.6, help="weight of the policy in the reference at each move", source=TRL
    )
    engine_ratio_max: float = positive(
        3.0, source=TRL,
        help="bound of a completion's probability ratio to the sampling engine; beyond it, the "
        "completion is left out; unused without an engine",
    )  # fmt: skip
    filter_flat_groups: bool = flag(
        False, help="whether to skip groups of equal rewards in the forward and backward pass, "
        "which changes no gradient and needs kl_coef=0", source="Yu et al. 2025",
    )  # fmt: skip
    mask_truncated_completions: bool = flag(
        False, help="whether to leave completions without EOS out of the loss",
        source="Yu et al. 2025",
    )  # fmt: skip

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
        0.1, help="strength of the pull to the reference", source="Rafailov et al. 2023"
    )
    loss_type: str = option(
        "sigmoid", unit="name", source=TRL, min_length=1, selects="rlox_preference_losses",
        help="loss by registered name: sigmoid, hinge, ipo, robust, cdpo, sppo_hard, nca_pair, "
        "bco_pair, apo_zero, apo_down, exo_pair, aot, discopop, sigmoid_norm, or a plugin's",
    )  # fmt: skip
    label_smoothing: float = option(
        0.0, help="probability that a preference is reversed", unit="1",
        source="Mitchell 2023", ge=0.0, lt=0.5,
    )  # fmt: skip


class DPOConfig(PreferenceConfig):
    """Options of DPO."""

    batch_size: int = count(16, unit="pairs", help="pairs of one gradient step", source="rlox")
    precompute_ref_log_probs: bool = flag(
        False, help="whether the reference runs over the dataset only once, before training",
        source=TRL,
    )  # fmt: skip


class SFTConfig(LanguageConfig):
    """Options of supervised fine-tuning."""

    batch_size: int = count(16, unit="rows", help="rows of one gradient step", source="rlox")


class OnlineDPOConfig(PreferenceConfig, SamplingConfig):
    """Options of OnlineDPO."""


class SAPOOptions(Config):
    """Options of the policy loss "sapo"."""

    sapo_temperature_pos: float = positive(
        1.0, help="τ at positive advantages", source=f"Gao et al. 2025; {TRL}"
    )
    sapo_temperature_neg: float = positive(
        1.05, help="τ at other advantages", source=f"Gao et al. 2025; {TRL}"
    )


class VESPOOptions(Config):
    """Options of the policy loss "vespo"."""

    vespo_k_pos: float = positive(
        2.0, help="exponent k at advantages that are positive or 0", source=TRL
    )
    vespo_lambda_pos: float = positive(
        3.0, help="rate λ at advantages that are positive or 0", source=TRL
    )
    vespo_k_neg: float = positive(3.0, help="exponent k at negative advantages", source=TRL)
    vespo_lambda_neg: float = positive(2.0, help="rate λ at negative advantages", source=TRL)


class DiscoPOPOptions(Config):
    """Options of the preference loss "discopop"."""

    discopop_tau: float = positive(
        0.05, help="temperature τ of the mixture", source=f"Lu et al. 2024; {TRL}"
    )


class BCOOptions(Config):
    """Options of the preference loss "bco_pair"."""

    bco_delta: float = option(
        0.0, help="reward δ between the chosen and the rejected completions'", unit="1",
        source=f"Jung et al. 2024, there a running mean of the rewards; {TRL}",
    )  # fmt: skip
