"""Runs Dagster's webserver, which has no login, and refuses requests a browser sends for a page of another origin.

Dagster runs mutations sent by GET, and checks neither Origin nor Host. A link in any page could start a restore, and a
page whose name leads to this machine (DNS rebinding) could read the answers. `python -m` with this module takes the
arguments of `dagster-webserver`.
"""

from collections.abc import Collection
from contextlib import suppress
from ipaddress import ip_address
from typing import Any, final
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from kafka_s3_platform.core.config.environment import DAGSTER_URL, read_dagster_url


def guard_webserver() -> None:
    """Put the OriginGuard before Dagster's webserver. It also accepts the host of KAFKA_S3_DAGSTER_URL."""
    # imported by the webserver's process anyway, and by no other
    from dagster_webserver.webserver import DagsterWebserver

    webserver: Any = DagsterWebserver
    build_original = webserver.build_middleware
    name = urlsplit(read_dagster_url() or "").hostname

    def build_middleware(server: object) -> list[Middleware]:
        return [Middleware(OriginGuard, names=[name] if name else []), *build_original(server)]

    webserver.build_middleware = build_middleware


def start_webserver() -> None:
    """Start the webserver with the arguments of this process."""
    from dagster_webserver import cli

    guard_webserver()
    start: Any = cli.main
    start()


@final
class OriginGuard:
    """Refuses requests to host names other than `names` and localhost, and requests from pages of other origins."""

    def __init__(self, app: ASGIApp, names: Collection[str] = ()) -> None:
        self._app = app
        self._names = frozenset(name.casefold() for name in names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        flaw = self._find_flaw(scope) if scope["type"] in ("http", "websocket") else None
        if flaw is None:
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await PlainTextResponse(f"refused: {flaw}\n", 403)(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    def _find_flaw(self, scope: Scope) -> str | None:
        """Return why to refuse the request (its host, its page, or a query by GET), or None if it is fine."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        origin = headers.get("origin")
        if _normalize_host(f"//{host}") not in {*self._names, "localhost"}:
            return (
                f"it is for {host!r}: use localhost or the address of this machine, which no foreign name leads to. "
                f"{DAGSTER_URL} and `kafka-s3 serve --allowed-host` allow another name"
            )
        # a proxy may have another name than the one it passes on
        if origin is not None and origin.partition("://")[2] != host and _normalize_host(origin) not in self._names:
            return f"it comes from a page of {origin!r}, not of {host!r}"
        # A browser sends no origin with GET. Dagster's own pages use POST.
        if scope.get("method") == "GET" and "query" in parse_qs(scope["query_string"].decode("latin-1")):
            return "a GraphQL query by GET may come from a foreign page: use POST"
        return None


def _normalize_host(url: str) -> str:
    """Return the host name in a URL. It is `localhost` for any address, and empty if there is none."""
    name = ""
    with suppress(ValueError):
        name = urlsplit(url).hostname or ""
        ip_address(name)
        return "localhost"
    return name


if __name__ == "__main__":
    start_webserver()
