"""Models, tokenizers and LoRA adapters of transformers and peft, loaded from folders."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch
from rlox.errors import ConfigError, import_extra
from torch import nn

from rlox_llm.configs import LanguageConfig

__all__ = [
    "adapted",
    "add_adapter",
    "is_adapted",
    "load_model",
    "load_tokenizer",
    "merged",
    "require_new_adapter",
    "require_tokenizer",
]

DISCLAIMER = "a folder that save_pretrained of transformers wrote"


def load_model(folder: str | Path, device: str = "cpu") -> nn.Module:
    """Return the causal model that a folder holds, in float32; nothing is downloaded.

    Adam's steps are too small for bfloat16 weights; the option ``bf16`` computes in bfloat16.

    Raises:
        ConfigError: there is none.
        MissingDependencyError: transformers is not installed.
    """
    transformers = import_extra("transformers", "a model from a folder", "hf")
    _require_folder("model", folder)
    try:
        model: nn.Module = transformers.AutoModelForCausalLM.from_pretrained(
            str(folder), dtype=torch.float32, local_files_only=True
        )
    except (OSError, ValueError) as error:
        raise ConfigError(f"'{folder}' holds no causal model: {_first_line(error)}") from None
    return model.to(torch.device(device)).eval()


def load_tokenizer(folder: str | Path) -> Any:
    """Return the tokenizer that a folder holds, or ``None``; nothing is downloaded.

    Raises:
        MissingDependencyError: transformers is not installed.
    """
    transformers = import_extra("transformers", "a tokenizer from a folder", "hf")
    names = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json")
    if not any((Path(folder) / name).is_file() for name in names):
        return None
    return transformers.AutoTokenizer.from_pretrained(str(folder), local_files_only=True)


def require_tokenizer(folder: str | Path) -> Any:
    """Return the tokenizer that a folder holds; see :func:`load_tokenizer`.

    Raises:
        ConfigError: there is none.
    """
    tokenizer = load_tokenizer(folder)
    if tokenizer is None:
        raise ConfigError(
            f"'{folder}' holds no tokenizer; pass the folder of one, or a tokenizer of transformers"
        )
    return tokenizer


def is_adapted(module: Any) -> bool:
    """Return whether a module is one of peft, with an adapter that can be switched off."""
    return hasattr(module, "disable_adapter") and hasattr(module, "get_base_model")


def add_adapter(module: Any, config: LanguageConfig) -> nn.Module:
    """Return ``module`` with a new LoRA adapter, and all else frozen.

    Its weights are drawn from torch's global generator.

    Raises:
        ConfigError: it has an adapter, or no layer that the config names.
        MissingDependencyError: peft is not installed.
    """
    peft = import_extra("peft", "lora_rank", "hf")
    if is_adapted(module):
        raise ConfigError("the model has an adapter of peft; leave out lora_rank")
    rank = config.lora_rank or 0
    targets = config.lora_target_modules
    settings = peft.LoraConfig(
        r=rank,
        lora_alpha=2 * rank if config.lora_alpha is None else config.lora_alpha,
        lora_dropout=config.lora_dropout,
        target_modules=targets if isinstance(targets, str) else list(targets),
        task_type="CAUSAL_LM",
    )
    try:
        with warnings.catch_warnings():  # peft asks transformers 5.23 by names that it deprecates
            warnings.filterwarnings("ignore", ".*gradient_checkpointing", FutureWarning)
            model: nn.Module = peft.get_peft_model(module, settings)
    except (AttributeError, ValueError) as error:
        raise ConfigError(f"no LoRA adapter fits the model: {_first_line(error)}") from None
    return model


def adapted(model: nn.Module, config: LanguageConfig, streams: Any) -> nn.Module:
    """Return the model, with a new adapter if the config says so, drawn from a run's streams."""
    if config.lora_rank is None:
        return model
    with streams.as_global("adapter"):
        return add_adapter(model, config)


def require_new_adapter(module: nn.Module) -> None:
    """Refuse an adapter that has been trained: switched off, it is not where training begins.

    Raises:
        ConfigError: it has been.
    """
    for name, parameter in module.named_parameters():
        if "lora_B" in name and bool(parameter.detach().any()):
            raise ConfigError(
                "the model's adapter has been trained, so that the model without it is no "
                "reference; pass ref_model=copy.deepcopy(model)"
            )


def merged(module: Any) -> Any:
    """Return a model of transformers, with the adapter's weights, if it has one, in its own."""
    return module.merge_and_unload() if is_adapted(module) else module


def _require_folder(what: str, folder: str | Path) -> None:
    if not Path(folder).is_dir():
        raise ConfigError(f"{what} must be a module or {DISCLAIMER}, there is no folder '{folder}'")


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
