"""Refuses requests to `dagster dev`, which has no login, sent by a browser for a page of another origin.

Dagster runs mutations sent by GET, and checks neither Origin nor Host. A link in any page could start a restore, and a
page with a name that leads to this machine (DNS rebinding) could read the answers.
"""

import os
from collections.abc import Collection
from ipaddress import ip_address
from typing import Any, final
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send


def guard_development_server() -> None:
    """Refuse such requests, if this process is the webserver of `dagster dev`. A deployment has its own proxy."""
    if "DAGSTER_IS_DEV_CLI" not in os.environ:
        return
    # imported by the webserver's process anyway, and by no other
    from dagster_webserver.webserver import DagsterWebserver

    webserver: Any = DagsterWebserver
    build = webserver.build_middleware

    def build_middleware(server: object) -> list[Middleware]:
        return [Middleware(OriginGuard), *build(server)]

    webserver.build_middleware = build_middleware


@final
class OriginGuard:
    """Refuses requests to other names than `names` and localhost, and from foreign pages."""

    def __init__(self, app: ASGIApp, names: Collection[str] = ()) -> None:
        self._app = app
        self._names = frozenset(("localhost", *(name.casefold() for name in names)))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        flaw = self._find_flaw(scope) if scope["type"] in ("http", "websocket") else None
        if flaw is None:
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await PlainTextResponse(f"refused: {flaw}\n", 403)(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    def _find_flaw(self, scope: Scope) -> str | None:
        headers = Headers(scope=scope)
        host, origin = headers.get("host", ""), headers.get("origin")
        if not self._is_own_name(host):
            return f"it is for {host!r}: use localhost or the address of this machine, which no foreign name leads to"
        if origin is not None and origin.partition("://")[2] != host:
            return f"it comes from a page of {origin!r}, not of {host!r}"
        # A browser sends no origin with GET. Dagster's own pages use POST.
        if scope.get("method") == "GET" and "query" in parse_qs(scope["query_string"].decode("latin-1")):
            return "a GraphQL query by GET may come from a foreign page: use POST"
        return None

    def _is_own_name(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
            return name in self._names or bool(ip_address(name))
        except ValueError:
            return False
