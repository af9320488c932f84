"""Digests within policy files, of safetensors and of ONNX; they detect damage."""

from __future__ import annotations

import hashlib
import re

__all__ = ["PLACEHOLDER", "is_intact", "seal"]

MARK = "rlox-sha256:"
PLACEHOLDER = MARK + "0" * 64
"""What a file's metadata hold until its digest is known."""

FOUND = re.compile(re.escape(MARK).encode() + b"[0-9a-f]{64}")


def seal(content: bytes) -> bytes:
    """Return a file's contents with their SHA-256 in the place of the :data:`PLACEHOLDER`."""
    digest = MARK + hashlib.sha256(content).hexdigest()
    return content.replace(PLACEHOLDER.encode(), digest.encode())


def is_intact(content: bytes) -> bool:
    """Return whether a file holds the digest of what it held when it was sealed."""
    found = FOUND.search(content)
    if found is None:
        return False
    whole = content.replace(found.group(), PLACEHOLDER.encode())
    return found.group() == MARK.encode() + hashlib.sha256(whole).hexdigest().encode()
