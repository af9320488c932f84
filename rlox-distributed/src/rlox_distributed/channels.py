"""Names of the protocol, alike on both sides."""

from __future__ import annotations

__all__ = ["HEADROOM", "PROTOCOL_VERSION"]

PROTOCOL_VERSION = 3
HEADROOM = 1 << 16
"""Bytes of a message beside its arrays."""
