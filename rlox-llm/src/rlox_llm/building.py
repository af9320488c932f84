"""Policy, reference and tokenizer from modules, folders and adapters."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlox.errors import ConfigError
from rlox.seeding import SeedStreams
from torch import nn

from rlox_llm.configs import LanguageConfig
from rlox_llm.huggingface import (
    adapted,
    is_adapted,
    load_model,
    load_tokenizer,
    require_new_adapter,
    require_tokenizer,
)
from rlox_llm.models import CausalModel
from rlox_llm.tokens import Texts

__all__ = ["Models", "ModuleOrFolder", "build_models", "eos_tokens", "padding_token"]

ModuleOrFolder = nn.Module | str | Path


@dataclass(frozen=True)
class Models:
    """What an algorithm for language models works with."""

    policy: CausalModel
    reference: CausalModel | None
    eos: tuple[int, ...]
    """Tokens that end a completion."""
    texts: Texts
    pad: int
    """Token that fills rows up for callbacks, see :func:`padding_token`."""


def build_models(
    name: str,
    model: ModuleOrFolder,
    ref_model: ModuleOrFolder | None,
    tokenizer: Any,
    config: LanguageConfig,
    streams: SeedStreams,
    *,
    with_reference: bool,
    without_reference: str = "",
) -> Models:
    """Return the models of the algorithm ``name``.

    Args:
        name: what errors call the algorithm.
        model: the model to train, or its folder.
        ref_model: the reference; ``None`` takes, if one is needed, the model without its adapter,
            or loads the folder a second time.
        tokenizer: ``None`` takes that of the folder.
        config: of the algorithm.
        streams: the weights of a new adapter are drawn from them.
        with_reference: whether a reference is needed.
        without_reference: the option that makes it needless, for the error.

    Raises:
        ConfigError: nothing can be trained, the reference is the model, or one is missing.
        TypeError: the model is no module.
    """
    folder = model if isinstance(model, (str, Path)) else None
    if isinstance(model, (str, Path)):
        tokenizer = load_tokenizer(model) if tokenizer is None else tokenizer
        model = load_model(model, config.device)
    if isinstance(tokenizer, (str, Path)):
        tokenizer = require_tokenizer(tokenizer)
    options: dict[str, Any] = {"bf16": config.bf16, "layout": config.layout}
    policy = CausalModel(adapted(model, config, streams), "model", **options)
    module = policy.module
    if not any(p.requires_grad for p in module.parameters()):
        raise ConfigError("the model has no parameter with requires_grad; nothing would learn")
    reference = None
    if ref_model is None and with_reference and is_adapted(module):
        require_new_adapter(module)
        reference = CausalModel(module, "ref_model", adapter_off=True, **options)
    elif ref_model is not None or with_reference:
        given = folder if ref_model is None else ref_model
        found = _reference(name, given, config, without_reference)
        _require_apart(module, found)
        reference = CausalModel(found, "ref_model", **options)
    if config.gradient_checkpointing:
        policy.checkpoint_gradients()
    eos = eos_tokens(config, policy, tokenizer)
    pad = padding_token(config, policy, tokenizer, eos)
    return Models(policy, reference, eos, Texts(tokenizer, eos), pad)


def _reference(
    name: str, given: ModuleOrFolder | None, config: LanguageConfig, without: str
) -> nn.Module:
    if isinstance(given, (str, Path)):
        return load_model(given, config.device).requires_grad_(False)
    if not isinstance(given, nn.Module):
        raise ConfigError(
            f"'{name}' needs ref_model=..., a frozen copy of the model, as copy.deepcopy(model) "
            f"is{f', or {without}' if without else ''}, got {type(given).__name__}"
        )
    return given


def _require_apart(model: nn.Module, reference: nn.Module) -> None:
    theirs = {id(p) for p in reference.parameters()}
    if reference is model or any(id(p) in theirs for p in model.parameters() if p.requires_grad):
        raise ConfigError(
            "ref_model shares its parameters with model and would move with it; pass "
            "copy.deepcopy(model)"
        )


def padding_token(
    config: LanguageConfig, model: CausalModel, tokenizer: Any, eos: tuple[int, ...]
) -> int:
    """Return the padding token: the config's, the model's, the tokenizer's, the first EOS, or 0.

    0 is only taken if nothing needs filling up or masks say what it is.
    """
    found = (config.pad_token_id, model.pad, getattr(tokenizer, "pad_token_id", None), *eos, 0)
    return int(next(token for token in found if token is not None))


def eos_tokens(config: LanguageConfig, model: CausalModel, tokenizer: Any) -> tuple[int, ...]:
    """Return the tokens that end a completion: the config's, the model's, or the tokenizer's.

    Raises:
        ConfigError: the config's lie outside the vocabulary.
    """
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
