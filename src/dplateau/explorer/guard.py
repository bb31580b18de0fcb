"""Who may ask: this machine's own page, and nobody else.

A page of another site can make a browser send requests to 127.0.0.1, and a name server can make a
foreign name point there. So every request must carry the token in its path, name this server as
its host, and come from this page; answers may not be read, framed or run by anything else.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

MOST_BYTES = 262_144  # of a request's body: a plan with a written-out schedule fits
_OWN_SITE = {b"same-origin", b"none"}  # "none": typed, or opened by the command line

HEADERS = [
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        b"img-src 'self' data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),  # the address holds the token
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
]


class Guard:
    """Refuses what is not from this page, bounds bodies, and never lets an error through.

    Parameters
    ----------
    app : ASGI application
        It sees paths without the token.
    token : str
        The secret part of the address.
    hosts : tuple of str
        The values of the Host header that mean this server.
    """

    def __init__(self, app: App, token: str, hosts: tuple[str, ...]) -> None:
        self._app = app
        self._token = token.encode()
        self._hosts = {host.encode() for host in hosts}
        self._origins = {b"http://" + host for host in self._hosts}

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # no web sockets here; closing before accepting refuses them
            await send({"type": "websocket.close", "code": 1008})
            return
        begun = False

        async def guarded_send(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                message["headers"] = [*message.get("headers", []), *HEADERS]
            await send(message)

        status, reason = self._refusal(scope)
        if status:
            await _say(guarded_send, status, reason)
            return
        try:
            await self._app(self._without_token(scope), receive, guarded_send)
        except Exception as trouble:
            if not begun:
                await _say(guarded_send, 500, f"This went wrong: {type(trouble).__name__}.")

    def _refusal(self, scope: MutableMapping[str, Any]) -> tuple[int, str]:
        headers: dict[bytes, bytes] = {}
        for name, value in scope["headers"]:
            if name.lower() in headers and name.lower() in (b"host", b"origin"):
                return 400, "A header is given twice."
            headers[name.lower()] = value
        if headers.get(b"host", b"").lower() not in self._hosts:
            return 403, "This server answers to its own address on this machine only."
        if b"origin" in headers and headers[b"origin"].lower() not in self._origins:
            return 403, "Requests from other sites are refused."
        if headers.get(b"sec-fetch-site", b"none") not in _OWN_SITE:
            return 403, "Requests from other sites are refused."
        given = scope["path"].encode().split(b"/", 2)
        if len(given) < 2 or not hmac.compare_digest(given[1], self._token):
            return 403, "The token is missing: open the address that `dplateau explore` printed."
        try:
            length = int(headers.get(b"content-length", b"0"))
        except ValueError:
            return 400, "The length of the request is no number."
        if length > MOST_BYTES:
            return 413, f"A request may have {MOST_BYTES} bytes at most."
        return 0, ""

    def _without_token(self, scope: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        rest = scope["path"].split("/", 2)
        path = f"/{rest[2]}" if len(rest) > 2 else "/top"  # relative addresses need the slash
        return {**scope, "path": path, "raw_path": path.encode(), "root_path": ""}


async def read_body(receive: Receive) -> bytes:
    """The whole body, or a `ValueError` where it is longer than its header said it may be."""
    parts, total = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ConnectionError("the page went away")
        parts.append(message.get("body", b""))
        total += len(parts[-1])
        if total > MOST_BYTES:
            raise ValueError(f"A request may have {MOST_BYTES} bytes at most.")
        if not message.get("more_body", False):
            return b"".join(parts)


async def _say(send: Send, status: int, reason: str) -> None:
    body = json.dumps({"kind": "refused", "message": reason}).encode()
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


__all__ = ["HEADERS", "MOST_BYTES", "Guard", "read_body"]
