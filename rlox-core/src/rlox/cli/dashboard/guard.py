"""Access checks of the dashboard: secret address, host, origin."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

__all__ = ["POLICY", "Guard"]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; media-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""What the page may load and who may frame it: itself, and nobody."""

HEADERS = {
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
}


class Guard:
    """ASGI middleware that lets through requests of the page itself.

    A page of another site can send requests to this machine, and by a name of its own that leads
    here (DNS rebinding) also read the answers. So the host must be a name of this machine, the
    origin that of the page, and the path must begin with a secret.

    Args:
        app: answers what is let through, without the secret in the path.
        token: the secret.
        port: of the server.
    """

    def __init__(self, app: App, token: str, port: int) -> None:
        self._app = app
        self._prefix = f"/{token}/"
        self._hosts = {f"{name}:{port}" for name in ("127.0.0.1", "localhost")}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        status = self._refusal(scope)

        async def send_guarded(message: Any) -> None:
            if message["type"] == "http.response.start":
                own = [(k.encode(), v.encode()) for k, v in HEADERS.items()]
                message = {**message, "headers": [*message.get("headers", []), *own]}
            await send(message)

        if status:
            await send_guarded({"type": "http.response.start", "status": status, "headers": []})
            await send_guarded({"type": "http.response.body", "body": b""})
            return
        path = scope["path"][len(self._prefix) - 1 :]
        inner = {**scope, "path": path, "raw_path": path.encode()}
        await self._app(inner, receive, send_guarded)

    def _refusal(self, scope: Scope) -> int:
        """Return the status with which a request is refused; 0 lets it through."""
        headers: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.decode("latin-1"), []).append(value.decode("latin-1"))
        hosts = headers.get("host", [])
        if len(hosts) != 1 or hosts[0] not in self._hosts:
            return 403
        if any(origin != f"http://{hosts[0]}" for origin in headers.get("origin", [])):
            return 403
        if any(site not in ("same-origin", "none") for site in headers.get("sec-fetch-site", [])):
            return 403
        given = scope["path"][: len(self._prefix)].encode()
        if not hmac.compare_digest(given, self._prefix.encode()):
            return 404
        return 0 if scope["method"] in ("GET", "HEAD") else 405
