"""Options that all algorithms for language models have, and those of sampling."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import model_validator
from rlox.config.model import (
    PRESET,
    SEED,
    Config,
    ScheduleValue,
    choice,
    count,
    flag,
    option,
    positive,
    probability,
    schedule,
)

from rlox_llm.loss_options import TRL
from rlox_llm.option_checks import require_logged_completions, require_lora_rank, take_name_of_trl

__all__ = ["LanguageConfig", "SamplingConfig"]

Tokens = int | tuple[int, ...] | None


class LanguageConfig(Config):
    """Options that all algorithms for language models have."""

    schedule_bounds: ClassVar[Mapping[str, tuple[float, float]]] = {"learning_rate": (0.0, 1.0)}

    learning_rate: ScheduleValue = schedule(
        1e-4, help="Adam's step size", source="rlox's documents"
    )
    max_grad_norm: float | None = positive(
        1.0, help="Euclidean norm that gradients are scaled down to; `None`: never",
        source=TRL,
    )  # fmt: skip
    eos_token_id: Tokens = option(
        None, unit="token ids", source="transformers",
        help="tokens that end a completion; `None`: those of the model's generation config, else "
        "the tokenizer's",
    )  # fmt: skip
    pad_token_id: int | None = count(
        None, ge=0, unit="token id", source="transformers",
        help="token that fills rows up; `None`: that of the model's config, else its first EOS",
    )  # fmt: skip
    micro_batch_size: int | None = count(
        None, unit="rows", source="rlox",
        help="rows in one forward pass; the gradients of several add up; `None`: all",
    )  # fmt: skip
    dropout: bool = flag(
        False, help="whether dropout is active while learning", source="TRL's disable_dropout"
    )
    layout: Literal["auto", "padded", "shared_prefix", "packed"] = choice(
        "auto", source="rlox",
        help="how rows go through a model of transformers while learning: each filled up, prompts "
        "once for all their completions, or packed; auto: shared where prompts repeat",
    )  # fmt: skip
    bf16: bool = flag(
        False, help="whether models compute in bfloat16; weights stay as they are", source=TRL
    )
    gradient_checkpointing: bool = flag(
        False, help="whether a model of transformers computes its activations twice to save memory",
        source="Chen et al. 2016",
    )  # fmt: skip
    lora_rank: int | None = count(
        None, unit="ranks", source="Hu et al. 2021",
        help="rank of a LoRA adapter that is trained instead of the weights; `None`: no adapter",
    )  # fmt: skip
    lora_alpha: float | None = positive(
        None,
        help="scale of the adapter, divided by its rank; `None`: twice the rank",
        source="peft",
    )
    lora_dropout: float = probability(
        0.0, help="dropout of the adapter's inputs, with dropout on", source="peft"
    )
    lora_target_modules: str | tuple[str, ...] = option(
        "all-linear", help="layers that the adapter is put on: names, or a pattern", unit="name",
        source="peft",
    )  # fmt: skip
    device: str = option(
        "cpu", help="torch device of models that are loaded from folders; others stay where they "
        "are", unit="name", source="rlox", min_length=1,
    )  # fmt: skip
    seed: int | None = SEED
    preset: str = PRESET
    torch_threads: int | None = count(
        None, unit="threads", source="rlox",
        help="torch threads while training; `None`: leave torch's setting",
    )  # fmt: skip

    @model_validator(mode="after")
    def _require_lora_rank(self) -> LanguageConfig:
        require_lora_rank(self)
        return self


class SamplingConfig(LanguageConfig):
    """Options of algorithms that sample completions."""

    max_new_tokens: int = count(
        8, unit="tokens", help="most tokens of a completion", source="rlox's documents"
    )
    prompts_per_rollout: int = count(
        32, unit="prompts", help="prompts of one iteration, if there are more", source="rlox"
    )
    sampler: Literal["auto", "rlox", "model", "transformers"] = choice(
        "auto", source="rlox",
        help="who samples: rlox, the model's own generate, or that of transformers; auto: a "
        "generate of the model's own, and rlox for models of transformers",
    )  # fmt: skip
    temperature: float = positive(
        1.0, help="what logits are divided by, sampling and learning", source=TRL
    )
    top_k: int = count(
        0, ge=0, unit="tokens", help="sample of the k likeliest; 0: of all", source=TRL
    )
    top_p: float = option(
        1.0, help="sample of the likeliest tokens of this total probability", unit="1",
        source="Holtzman et al. 2020", gt=0.0, le=1.0,
    )  # fmt: skip
    min_p: float = probability(
        0.0, help="sample of the tokens at least this many times as likely as the likeliest",
        source="Nguyen et al. 2024",
    )  # fmt: skip
    log_completions: bool = flag(
        False, help="whether the logger gets a table of the completions of each iteration",
        source=TRL,
    )  # fmt: skip
    num_completions_to_print: int | None = count(
        None, unit="completions", help="rows of that table; `None`: all", source=TRL
    )

    @model_validator(mode="before")
    @classmethod
    def _take_the_name_of_trl(cls, values: dict[str, Any]) -> dict[str, Any]:
        return take_name_of_trl(values)

    @model_validator(mode="after")
    def _require_logged_completions(self) -> SamplingConfig:
        require_logged_completions(self)
        return self
