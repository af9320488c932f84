"""Layers of limited reach: sliding windows, chunks, convolutions and recurrent states."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Reach", "limited_reach"]

UNLIMITED = ("full_attention", "attention", "moe", "sparse", "dense")
"""Layers that see the whole row, and those that see a single token."""


@dataclass(frozen=True)
class Reach:
    """How far back the layer of a model sees that sees least.

    Behind padding in a cache such a layer sees other tokens than without it, so that rows longer
    than the reach go through the model whole.
    """

    kind: str
    """The kind of the layer, as transformers calls it."""
    tokens: int
    """Length of rows that the layer sees all of; 0 of layers with a state."""


def limited_reach(module: Any) -> Reach | None:
    """Return the shortest reach of a model's layers, ``None`` if all of them see whole rows.

    Args:
        module: a model; only those with a config of transformers have layers of limited reach.
    """
    config: Any = text_config(module)
    if not hasattr(config, "get_text_config"):
        return None
    window = getattr(config, "sliding_window", None)
    if not getattr(config, "use_sliding_window", True):
        window = None
    windows = {
        "sliding_attention": window,
        "chunked_attention": getattr(config, "attention_chunk_size", None),
        "local": getattr(config, "window_size", None),
    }
    kinds = list(getattr(config, "layer_types", None) or ())
    if not kinds:
        kinds = [kind for kind in ("sliding_attention", "chunked_attention") if windows[kind]]
    if "local" in (getattr(config, "attention_layers", None) or ()):  # GPT-Neo
        kinds.append("local")
    if getattr(module, "_is_stateful", False):
        kinds.append("recurrent state")
    found = [Reach(kind, windows.get(kind) or 0) for kind in kinds if kind not in UNLIMITED]
    return min(found, key=lambda reach: reach.tokens, default=None)


def text_config(module: Any) -> Any:
    """Return the config of a model's language part; one that is not of transformers as it is."""
    config = getattr(module, "config", None)
    find = getattr(config, "get_text_config", None)
    return config if find is None else find(decoder=True)
