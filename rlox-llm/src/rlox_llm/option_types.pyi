"""Types of the algorithms' options, for editors and type checkers.

Written by ``python rlox-core/option_types.py`` from the configs, which say what each option is.
"""

from collections.abc import Sequence
from typing import Literal, TypedDict

from typing_extensions import Unpack

__all__ = ["DPOOptions", "GRPOOptions", "OnlineDPOOptions", "SFTOptions", "Unpack"]

class DPOOptions(TypedDict, total=False):
    """Options of :class:`DPOConfig`."""

    max_grad_norm: float | None
    eos_token_id: int | Sequence[int] | None
    pad_token_id: int | None
    micro_batch_size: int | None
    dropout: bool
    layout: Literal["auto", "padded", "shared_prefix", "packed"]
    bf16: bool
    gradient_checkpointing: bool
    lora_rank: int | None
    lora_alpha: float | None
    lora_dropout: float
    lora_target_modules: str | Sequence[str]
    device: str
    seed: int | None
    preset: str
    torch_threads: int | None
    loss_type: str
    label_smoothing: float
    batch_size: int
    precompute_ref_log_probs: bool
    bco_delta: float
    discopop_tau: float

class GRPOOptions(TypedDict, total=False):
    """Options of :class:`GRPOConfig`."""

    max_grad_norm: float | None
    eos_token_id: int | Sequence[int] | None
    pad_token_id: int | None
    micro_batch_size: int | None
    dropout: bool
    layout: Literal["auto", "padded", "shared_prefix", "packed"]
    bf16: bool
    gradient_checkpointing: bool
    lora_rank: int | None
    lora_alpha: float | None
    lora_dropout: float
    lora_target_modules: str | Sequence[str]
    device: str
    seed: int | None
    preset: str
    torch_threads: int | None
    prompts_per_rollout: int
    sampler: Literal["auto", "rlox", "model", "transformers"]
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    log_completions: bool
    num_completions_to_print: int | None
    loss_type: str
    importance_sampling_level: Literal["token", "sequence"]
    epsilon: float
    epsilon_high: float | None
    delta: float | None
    num_iterations: int
    scale_rewards: Literal["group", "batch", "none"]
    leave_one_out: bool
    reward_weights: Sequence[float] | None
    kl_estimator: Literal["k1", "k2", "k3"]
    use_bias_correction_kl: bool
    entropy_coef: float
    sync_ref_model: bool
    ref_model_sync_steps: int
    ref_model_mixup_alpha: float
    engine_ratio_max: float
    filter_flat_groups: bool
    mask_truncated_completions: bool
    sapo_temperature_pos: float
    sapo_temperature_neg: float
    vespo_k_pos: float
    vespo_lambda_pos: float
    vespo_k_neg: float
    vespo_lambda_neg: float

class OnlineDPOOptions(TypedDict, total=False):
    """Options of :class:`OnlineDPOConfig`."""

    max_grad_norm: float | None
    eos_token_id: int | Sequence[int] | None
    pad_token_id: int | None
    micro_batch_size: int | None
    dropout: bool
    layout: Literal["auto", "padded", "shared_prefix", "packed"]
    bf16: bool
    gradient_checkpointing: bool
    lora_rank: int | None
    lora_alpha: float | None
    lora_dropout: float
    lora_target_modules: str | Sequence[str]
    device: str
    seed: int | None
    preset: str
    torch_threads: int | None
    prompts_per_rollout: int
    sampler: Literal["auto", "rlox", "model", "transformers"]
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    log_completions: bool
    num_completions_to_print: int | None
    loss_type: str
    label_smoothing: float
    bco_delta: float
    discopop_tau: float

class SFTOptions(TypedDict, total=False):
    """Options of :class:`SFTConfig`."""

    max_grad_norm: float | None
    eos_token_id: int | Sequence[int] | None
    pad_token_id: int | None
    micro_batch_size: int | None
    dropout: bool
    layout: Literal["auto", "padded", "shared_prefix", "packed"]
    bf16: bool
    gradient_checkpointing: bool
    lora_rank: int | None
    lora_alpha: float | None
    lora_dropout: float
    lora_target_modules: str | Sequence[str]
    device: str
    seed: int | None
    preset: str
    torch_threads: int | None
    batch_size: int
