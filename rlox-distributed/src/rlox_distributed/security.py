"""Addresses, certificates and tokens."""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from rlox.errors import ConfigError

from rlox_distributed.addresses import require_address

__all__ = ["Credentials", "is_loopback", "read_token"]

TOKEN_VARIABLE = "RLOX_WORKER_TOKEN"  # noqa: S105  # the variable's name


def is_loopback(address: str) -> bool:
    """Return whether ``host:port`` is reached from this machine alone."""
    if address.startswith("unix:"):
        return True
    host = address.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def read_token(file: str | Path | None) -> str | None:
    """Return the token in a file, or in the variable ``RLOX_WORKER_TOKEN``; ``None`` without both.

    Raises:
        ConfigError: the file cannot be read, or what it or the variable holds is no token. The text
            has nothing of the content.
    """
    where = f"the variable {TOKEN_VARIABLE}" if file is None else f"the token file '{file}'"
    if file is None:
        content = os.environ.get(TOKEN_VARIABLE, "")
        if not content:
            return None
    else:
        try:
            content = Path(file).read_bytes().decode("ascii", "replace")
        except OSError as error:
            raise ConfigError(f"the token file cannot be read: {error}") from None
    token = content.strip()
    if not token or not token.isascii() or not token.isprintable():
        raise ConfigError(f"{where} must hold one line of ASCII")
    return token


@dataclass(frozen=True)
class Credentials:
    """Files of certificates and of the token; none of them is part of any config or message."""

    token_file: str | Path | None = None
    """``None``: the variable ``RLOX_WORKER_TOKEN``."""
    tls_ca: str | Path | None = None
    """Certificates that the other side's must be signed by."""
    tls_cert: str | Path | None = None
    """One's own; a learner's is for workers that ask for it (mutual TLS)."""
    tls_key: str | Path | None = None

    def require_for(self, address: str, *, serving: bool) -> None:
        """Refuse to be open on an address that other machines reach.

        Args:
            address: ``host:port``.
            serving: whether it is bound, else connected to.

        Raises:
            ConfigError: it is no address, or TLS or the token is missing.
        """
        require_address(address, serving=serving)
        if is_loopback(address):
            return
        needed = self.tls_cert if serving else self.tls_ca
        if needed is None or read_token(self.token_file) is None:
            files = "tls_cert and tls_key" if serving else "tls_ca"
            raise ConfigError(
                f"'{address}' is reached from other machines, so it needs TLS ({files}) and a "
                f"token (token_file, or the variable {TOKEN_VARIABLE})"
            )

    def token(self) -> str | None:
        """Return the token, as :func:`read_token` does."""
        return read_token(self.token_file)

    def files(self) -> Files:
        """Return the contents of the files of TLS: ``ca``, ``cert`` and ``key``.

        A learner uses TLS with a CA, and a worker with a certificate; with a CA too it asks
        learners for one.

        Raises:
            ConfigError: a file cannot be read.
        """
        return {"ca": _read(self.tls_ca), "cert": _read(self.tls_cert), "key": _read(self.tls_key)}


class Files(TypedDict):
    """Contents of files in PEM, as streams and servers take them."""

    ca: bytes | None
    cert: bytes | None
    key: bytes | None


def _read(path: str | Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"a TLS file cannot be read: {error}") from None
