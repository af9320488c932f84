"""Addresses, certificates and tokens."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from rlox.errors import ConfigError, EnvError

LAST_PORT = 65_535


def require_address(address: str, *, serving: bool) -> None:
    """Check that an address is ``host:port`` or ``unix:path``.

    Args:
        address: the address to check.
        serving: whether it is bound, where port 0 takes a free one, or connected to.

    Raises:
        ConfigError: it is not; the text names the problem.
    """
    if address.startswith("unix:"):
        return
    host, colon, port = address.rpartition(":")
    least = 0 if serving else 1
    if not colon or not port or port.endswith("]"):  # as in [::1]
        problem = "the port is missing"
    elif not host:
        problem = "the host is missing"
    elif not (port.isascii() and port.isdigit() and least <= int(port[:6]) <= LAST_PORT):
        problem = f"the port must be a number from {least} to {LAST_PORT}, got '{port}'"
    else:
        return
    raise ConfigError(f"'{address}' must be host:port; {problem}")


def require_workers(addresses: Sequence[str]) -> None:
    """Check that a list names each worker once.

    Raises:
        EnvError: it is not a list of strings, is empty, or has an address twice.
    """
    listed = not isinstance(addresses, str) and addresses
    if not listed or not all(isinstance(each, str) for each in addresses):
        raise EnvError(f"addresses must be a list of 'host:port', got {addresses!r}")
    for address in addresses:
        if (times := list(addresses).count(address)) > 1:
            raise EnvError(f"addresses must name each worker once, got '{address}' {times} times")


TOKEN_VARIABLE = "RLOX_WORKER_TOKEN"  # noqa: S105  # the variable's name


def is_loopback(address: str) -> bool:
    """Return whether only this machine reaches ``host:port``."""
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
        ConfigError: the file cannot be read, or the content of it or the variable is not a token.
            The text shows no content.
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
    """Files of certificates and of the token; they are never part of a config or message."""

    token_file: str | Path | None = None
    """``None``: the variable ``RLOX_WORKER_TOKEN``."""
    tls_ca: str | Path | None = None
    """Certificates that must have signed the other side's."""
    tls_cert: str | Path | None = None
    """The own certificate; a learner's is for workers that require it (mutual TLS)."""
    tls_key: str | Path | None = None

    def require_for(self, address: str, *, serving: bool) -> None:
        """Require TLS and a token for an address that other machines reach.

        Args:
            address: ``host:port``.
            serving: whether it is bound or connected to.

        Raises:
            ConfigError: it is not an address, or TLS or the token is missing.
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
        """Return the contents of the TLS files: ``ca``, ``cert`` and ``key``.

        A learner uses TLS if it has a CA, a worker if it has a certificate; a worker with a CA also
        requires certificates of learners.

        Raises:
            ConfigError: a file cannot be read.
        """
        return {"ca": _read(self.tls_ca), "cert": _read(self.tls_cert), "key": _read(self.tls_key)}


class Files(TypedDict):
    """Contents of PEM files, as arguments of streams and servers."""

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
