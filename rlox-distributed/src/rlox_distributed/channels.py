"""Names of the protocol, alike on both sides."""

from __future__ import annotations

__all__ = ["HEADROOM", "PROTOCOL_VERSION", "SERVICE"]

PROTOCOL_VERSION = 3
SERVICE = "rlox.distributed.v1.EnvWorker"
HEADROOM = 1 << 16
"""Bytes of a message beside its arrays."""
