"""Checks of workers' addresses, before anything is connected to."""

from __future__ import annotations

from collections.abc import Sequence

from rlox.errors import ConfigError, EnvError

__all__ = ["require_address", "require_workers"]

LAST_PORT = 65_535


def require_address(address: str, *, serving: bool) -> None:
    """Check that an address is ``host:port`` or ``unix:path``.

    Args:
        address: to check.
        serving: whether it is bound, where port 0 takes a free one, else connected to.

    Raises:
        ConfigError: it is not; the text says what is wrong with it.
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
        EnvError: it is no list of texts, is empty, or has an address twice.
    """
    listed = not isinstance(addresses, str) and addresses
    if not listed or not all(isinstance(each, str) for each in addresses):
        raise EnvError(f"addresses must be a list of 'host:port', got {addresses!r}")
    for address in addresses:
        if (times := list(addresses).count(address)) > 1:
            raise EnvError(f"addresses must name each worker once, got '{address}' {times} times")
