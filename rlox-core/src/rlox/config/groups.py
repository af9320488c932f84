"""Groups of options by subject, for help texts."""

from __future__ import annotations

from typing import Literal, get_args

from pydantic.fields import FieldInfo

__all__ = ["GROUPS", "Group", "group_of"]

Group = Literal["run", "env", "learning", "network", "speed"]

GROUPS: dict[str, str] = {
    "run": "Run",
    "env": "Env, and what is seen of it",
    "learning": "Learning",
    "network": "Network",
    "speed": "Speed",
}
"""Headings of the groups, in the order in which they are shown."""

UNITS: dict[str, Group] = {
    "units": "network",
    "layers": "network",
    "threads": "speed",
    "actors": "speed",
    "workers": "speed",
    "envs": "env",
}
"""Groups of options that count something; a name of :data:`NAMES` wins."""

NAMES: dict[Group, tuple[str, ...]] = {
    "run": ("seed", "preset", "save_replay_buffer", "log_completions", "num_completions_to_print"),
    "env": (
        "act_dim", "act_high", "clip_rewards", "env_backend", "env_kwargs", "frame_stack",
        "n_actions", "n_agents", "n_envs", "normalize_observations", "normalize_rewards",
        "obs_dim", "opponents", "pool_interval", "pool_share", "pool_size", "reward_scale",
        "reward_shift", "team_reward",
    ),
    "network": (
        "bins", "blocks", "critic", "decoder_keys", "depth", "deter_dim", "distributional",
        "dropout", "dueling", "encoder_keys", "hyper_size", "latent_dim", "lora_alpha",
        "lora_dropout", "lora_rank", "lora_target_modules", "memory_size", "mixing_size", "n_atoms",
        "n_quantiles", "network", "noisy", "noisy_std", "recurrent", "share_parameters", "size",
        "stoch_classes", "stoch_dim",
    ),
    "speed": (
        "actor_backend", "amp_dtype", "backend", "bf16", "compile", "compute_dtype", "device",
        "enable_amp", "gradient_checkpointing", "layout", "max_restarts", "micro_batch_size",
        "overlap", "queue_size", "vectorization", "worker_timeout",
    ),
}  # fmt: skip
"""Options that mean the same in every config; those of no other group are about learning."""

GROUP_OF = {name: group for group, names in NAMES.items() for name in names}


def group_of(name: str, field: FieldInfo) -> Group:
    """Return the group of an option.

    Args:
        name: of the option.
        field: its ``group`` wins, which :func:`rlox.option` sets.
    """
    extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
    given = extra.get("group")
    for group in get_args(Group):
        if given == group:
            return group  # type: ignore[no-any-return]
    return GROUP_OF.get(name) or UNITS.get(str(extra.get("unit")), "learning")
