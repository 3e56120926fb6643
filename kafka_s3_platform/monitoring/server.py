"""The HTTP server of `kafka-s3 serve`: a status page, a health check and metrics. It changes nothing."""

import ipaddress
import json
import socket
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from kafka_s3_platform.errors import ConfigError
from kafka_s3_platform.instance.foreign_pages import OriginGuard
from kafka_s3_platform.monitoring.docs_page import find_docs, render_document
from kafka_s3_platform.monitoring.lookout import Lookout, Seen
from kafka_s3_platform.monitoring.metrics import render_metrics
from kafka_s3_platform.monitoring.status_page import PageLinks, render_status_page

HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


@dataclass(frozen=True)
class ServerPaths:
    """The paths of the three answers."""

    page: str
    health: str
    metrics: str

    @property
    def docs(self) -> str:
        """Below it are the documents, beside the page."""
        return f"{self.page.rstrip('/')}/docs"


def make_app(lookout: Lookout, paths: ServerPaths, links: PageLinks, interval: float, *, is_local: bool) -> Starlette:
    """Make the application. All answers come from what `lookout` has seen: none of them waits for Kafka or the store.

    One that `is_local` answers only requests for this machine by its own name: a page of others could read it else.
    """

    def show_page(seen: Seen, request: Request) -> Response:  # noqa: ARG001
        return HTMLResponse(render_status_page(seen, links, datetime.now(timezone.utc), interval))

    def tell_health(seen: Seen, request: Request) -> Response:  # noqa: ARG001
        body = json.dumps(describe_health(seen), indent=2)
        return Response(f"{body}\n", 200 if seen.is_well else 503, media_type="application/json")

    def expose_metrics(seen: Seen, request: Request) -> Response:
        body, content_type = render_metrics(seen, request.headers.get("accept", ""))
        return Response(body, headers={"Content-Type": content_type})

    def answer(make: Callable[[Seen, Request], Response]) -> Callable[[Request], Response]:
        def handle(request: Request) -> Response:
            response = make(lookout.read(), request)
            response.headers.update(HEADERS)
            return response

        return handle

    docs = find_docs()

    def show_document(seen: Seen, request: Request) -> Response:  # noqa: ARG001
        text = render_document(docs, request.path_params["name"]) if docs else None
        return PlainTextResponse("there is no such document\n", 404) if text is None else HTMLResponse(text)

    answers = {
        paths.page: show_page,
        paths.health: tell_health,
        paths.metrics: expose_metrics,
        f"{paths.docs}/{{name:path}}": show_document,
    }
    routes = [Route(path, answer(make), methods=["GET"]) for path, make in answers.items()]
    return Starlette(routes=routes, middleware=[Middleware(OriginGuard)] if is_local else [])


def describe_health(seen: Seen) -> dict[str, object]:
    """Make the JSON of the health check."""
    reasons = [{"check": reason.check, "reason": reason.says} for reason in seen.reasons]
    if seen.error:
        reasons.insert(0, {"check": "look", "reason": seen.error})
    return {
        "status": "healthy" if seen.is_well else "unhealthy",
        "reasons": reasons,
        "looked_at": seen.looked_at.isoformat() if seen.looked_at else None,
        "last_good_look": {name: good.looked_at.isoformat() for name, good in sorted(seen.good.items())},
    }


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches that address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def open_socket(host: str, port: int) -> socket.socket:
    """Listen on the address. Port 0 is any free one. ConfigError if the address cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as err:
        why = str(err.strerror or err).partition(" (while")[0]
        raise ConfigError(
            f"cannot listen on {host}:{port}: {why}; choose another address with --host or --port"
        ) from err


def run_server(app: Starlette, listening: socket.socket) -> None:
    """Serve until SIGINT, which is raised as KeyboardInterrupt, or SIGTERM."""
    config = uvicorn.Config(app, log_level="warning", access_log=False, server_header=False)
    uvicorn.Server(config).run(sockets=[listening])
