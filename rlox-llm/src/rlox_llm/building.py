"""Policies, references and tokenizers from modules, folders and adapters.

Folders hold transformers models and tokenizers; adapters are peft's.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rlox.errors import ConfigError, import_extra
from rlox.seeding import SeedStreams
from torch import nn

from rlox_llm.configs import LanguageConfig
from rlox_llm.models import CausalModel
from rlox_llm.tokens import Texts

ModuleOrFolder = nn.Module | str | Path


@dataclass(frozen=True)
class Model:
    """A language model with its tokenizer and special tokens."""

    policy: CausalModel
    eos: tuple[int, ...]
    """Tokens that end a completion."""
    texts: Texts
    pad: int
    """Padding token: the config's, the model's, the tokenizer's, the first EOS, or 0, which is used
    only where rows need no padding or masks mark it."""


def make_model(
    model: ModuleOrFolder, tokenizer: Any, config: LanguageConfig, streams: SeedStreams
) -> Model:
    """Return a model with its tokenizer and special tokens.

    Args:
        model: a module, or its folder.
        tokenizer: a tokenizer, or its folder; ``None``: from the model's folder.
        config: the algorithm's.
        streams: random streams for the weights of a new adapter.

    Raises:
        ConfigError: there is no model or tokenizer, or the config's EOS is not in the vocabulary.
        TypeError: the model is not a module.
    """
    if isinstance(model, (str, Path)):
        tokenizer = load_tokenizer(model) if tokenizer is None else tokenizer
        model = load_model(model, config.device)
    if isinstance(tokenizer, (str, Path)):
        folder, tokenizer = tokenizer, load_tokenizer(tokenizer)
        if tokenizer is None:
            raise ConfigError(
                f"'{folder}' holds no tokenizer; pass the folder of one, or a transformers "
                "tokenizer"
            )
    module = adapted(model, config, streams)
    policy = CausalModel(module, "model", bf16=config.bf16, layout=config.layout)
    eos = _eos(config, policy, tokenizer)
    pads = (config.pad_token_id, policy.pad, getattr(tokenizer, "pad_token_id", None), *eos, 0)
    pad = int(next(token for token in pads if token is not None))
    # a model's config may name a BOS even if the tokenizer has none
    bos = policy.bos if tokenizer is None else getattr(tokenizer, "bos_token_id", None)
    return Model(policy, eos, Texts(tokenizer, eos, config.pad_token_id, bos), pad)


def make_reference(
    name: str,
    policy: CausalModel,
    ref_model: ModuleOrFolder | None,
    model: ModuleOrFolder,
    config: LanguageConfig,
    instead: str = "",
) -> CausalModel:
    """Return the reference of a policy.

    Args:
        name: the algorithm's name in errors.
        policy: the trained model.
        ref_model: a module, or its folder; ``None``: the policy without its new adapter, or a
            second copy from the policy's folder.
        model: the ``model`` argument of the policy.
        config: the algorithm's.
        instead: the option that makes a reference unnecessary, for the error.

    Raises:
        ConfigError: there is no reference, or it is the policy itself.
    """
    module = policy.module
    options: dict[str, Any] = {"bf16": config.bf16, "layout": config.layout}
    if ref_model is None and is_adapted(module):
        without = CausalModel(module, "ref_model", adapter_off=True, **options)
        if not _are_alike(policy, without):
            raise ConfigError(
                "the model's adapter has been trained, so the model without it is not a valid "
                "reference; pass ref_model=copy.deepcopy(model)"
            )
        return without
    given = model if ref_model is None and isinstance(model, (str, Path)) else ref_model
    if isinstance(given, (str, Path)):
        given = load_model(given, config.device).requires_grad_(False)
    elif not isinstance(given, nn.Module):
        raise ConfigError(
            f"'{name}' needs ref_model=..., a frozen copy such as copy.deepcopy(model)"
            f"{f', or {instead}' if instead else ''}, got {type(given).__name__}"
        )
    theirs = {id(p) for p in given.parameters()}
    if any(id(p) in theirs for p in module.parameters() if p.requires_grad):
        raise ConfigError(
            "ref_model shares its parameters with model and would move with it; pass "
            "copy.deepcopy(model)"
        )
    return CausalModel(given, "ref_model", **options)


@torch.no_grad()
def _are_alike(policy: CausalModel, reference: CausalModel) -> bool:
    """Return whether two models give the same logits for tokens of the whole vocabulary."""
    size = policy.vocabulary or 1
    count = min(size, policy.context or size, 64)
    ids = torch.linspace(0, size - 1, count).long()[None].to(policy.device)
    with policy.mode(training=False):
        found = [model.logits_of(model.forward(ids), ids) for model in (policy, reference)]
    return torch.allclose(found[0], found[1], rtol=1e-5, atol=1e-5)


def _eos(config: LanguageConfig, model: CausalModel, tokenizer: Any) -> tuple[int, ...]:
    """Return the tokens that end a completion: the config's, the model's, or the tokenizer's."""
    given = config.eos_token_id
    if given is not None:
        found = (given,) if isinstance(given, int) else tuple(given)
        for token in found:
            if token < 0 or (model.vocabulary is not None and token >= model.vocabulary):
                size = "" if model.vocabulary is None else f", {model.vocabulary} tokens"
                raise ConfigError(
                    f"eos_token_id={token} lies outside the vocabulary of the {model.name}{size}; "
                    "no completion would end"
                )
        return found
    own = getattr(tokenizer, "eos_token_id", None)
    return model.eos or (() if own is None else (int(own),))


def load_model(folder: str | Path, device: str = "cpu") -> nn.Module:
    """Return the causal model in a folder, in float32; nothing is downloaded.

    Adam's steps are too small for bfloat16 weights; the option ``bf16`` computes in bfloat16.

    Raises:
        ConfigError: the folder holds no causal model.
        MissingDependencyError: transformers is not installed.
    """
    transformers = import_extra("transformers", "a model from a folder", "hf")
    if not Path(folder).is_dir():
        raise ConfigError(
            "model must be a module or a folder from save_pretrained of transformers, but there is "
            f"no folder '{folder}'"
        )
    try:
        model: nn.Module = transformers.AutoModelForCausalLM.from_pretrained(
            str(folder), dtype=torch.float32, local_files_only=True
        )
    except (OSError, ValueError) as error:
        raise ConfigError(f"'{folder}' holds no causal model: {_first_line(error)}") from None
    return model.to(torch.device(device)).eval()


def load_tokenizer(folder: str | Path) -> Any:
    """Return the tokenizer in a folder, or ``None``; nothing is downloaded.

    Raises:
        MissingDependencyError: transformers is not installed.
    """
    transformers = import_extra("transformers", "a tokenizer from a folder", "hf")
    names = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json")
    if not any((Path(folder) / name).is_file() for name in names):
        return None
    return transformers.AutoTokenizer.from_pretrained(str(folder), local_files_only=True)


def is_adapted(module: Any) -> bool:
    """Return whether a module is a peft model, with an adapter that can be switched off."""
    return hasattr(module, "disable_adapter") and hasattr(module, "get_base_model")


def adapted(module: Any, config: LanguageConfig, streams: SeedStreams) -> nn.Module:
    """Return a model; with ``lora_rank``, with a new LoRA adapter and all other weights frozen.

    Raises:
        ConfigError: it already has an adapter, or lacks the config's layers.
        MissingDependencyError: peft is not installed.
    """
    if config.lora_rank is None:
        return module  # type: ignore[no-any-return]
    peft = import_extra("peft", "lora_rank", "hf")
    if is_adapted(module):
        raise ConfigError("the model has an adapter of peft; leave out lora_rank")
    rank, targets = config.lora_rank, config.lora_target_modules
    settings = peft.LoraConfig(
        r=rank,
        lora_alpha=2 * rank if config.lora_alpha is None else config.lora_alpha,
        lora_dropout=config.lora_dropout,
        target_modules=targets if isinstance(targets, str) else list(targets),
        task_type="CAUSAL_LM",
    )
    try:
        with streams.as_global("adapter"), warnings.catch_warnings():
            # peft uses names that transformers 5.23 deprecates
            warnings.filterwarnings("ignore", ".*gradient_checkpointing", FutureWarning)
            model: nn.Module = peft.get_peft_model(module, settings)
    except (AttributeError, ValueError) as error:
        raise ConfigError(f"no LoRA adapter fits the model: {_first_line(error)}") from None
    return model


def merged(module: Any) -> Any:
    """Return a transformers model, with any adapter merged into its weights."""
    return module.merge_and_unload() if is_adapted(module) else module


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
