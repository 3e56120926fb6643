"""The HTTP server of `kafka-s3 serve`: a status page, a health check and metrics. It changes nothing."""

import asyncio
import ipaddress
import json
import posixpath
import re
import socket
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from kafka_s3_platform.core.errors import ConfigError, PlatformError
from kafka_s3_platform.core.text import escape_unprintable
from kafka_s3_platform.operate.instance.webserver import OriginGuard
from kafka_s3_platform.operate.monitoring.hours import HoursReader
from kafka_s3_platform.operate.monitoring.hours_page import MAX_DAYS, HoursPage, render_hours_page
from kafka_s3_platform.operate.monitoring.lookout import HealthReport, Lookout
from kafka_s3_platform.operate.monitoring.metrics import render_metrics
from kafka_s3_platform.operate.monitoring.overview import load_named
from kafka_s3_platform.operate.monitoring.status_page import StatusPage, render_status_page

MOST_FILTER = 249
"""The most characters of a filter. No topic in Kafka has a longer name."""

HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


MOST_CONNECTIONS = 200


@dataclass(frozen=True)
class ServerPaths:
    """The paths of the server's three answers."""

    page: str
    health: str
    metrics: str

    @property
    def hours(self) -> str:
        """The path above the hours of topics, which are at `<connector>/<topic>` below it."""
        return f"{self.page.rstrip('/')}/hours"

    def relate(self, path: str, page: str | None = None) -> str:
        """Return the path as a link on a page, by default the status page.

        A proxy may forward requests here from any prefix, so no link of this server begins at the root.
        """
        folder = posixpath.relpath(posixpath.dirname(path), posixpath.dirname(page or self.page))
        return f"{folder}/{posixpath.basename(path)}"


def make_app(
    lookout: Lookout, paths: ServerPaths, dagster: str, interval: float, *, names: Collection[str] | None
) -> Starlette:
    """Make the application. It answers from `lookout`'s reports, without waiting for Kafka. Only hours need a store."""

    def show_page(report: HealthReport, request: Request) -> Response:
        name_filter = request.query_params.get("topic", "")[:MOST_FILTER]
        opened = request.query_params.getlist("open") if "open" in request.query_params else None
        now = datetime.now(timezone.utc)
        facts = StatusPage(report, dagster, paths.relate(paths.hours), now, interval, name_filter, opened)
        # the page as a whole, since a name is to be trusted no more than an error
        return HTMLResponse(escape_unprintable(render_status_page(facts)))

    def tell_health(report: HealthReport, request: Request) -> Response:  # noqa: ARG001
        body = json.dumps(describe_health(report), indent=2)
        return Response(f"{body}\n", 200 if report.is_well else 503, media_type="application/json")

    def expose_metrics(report: HealthReport, request: Request) -> Response:
        body, content_type = render_metrics(report, request.headers.get("accept", ""))
        return Response(body, headers={"Content-Type": content_type})

    def answer(make: Callable[[HealthReport, Request], Response]) -> Callable[[Request], Response]:
        def handle(request: Request) -> Response:
            response = make(lookout.read(), request)
            response.headers.update(HEADERS)
            return response

        return handle

    show_hours = partial(_show_hours, reader=HoursReader(interval), paths=paths, dagster=dagster)
    answers: dict[str, Callable[[HealthReport, Request], Response]] = {
        paths.page: show_page,
        f"{paths.hours}/{{connector}}/{{topic}}": show_hours,
        paths.health: tell_health,
        paths.metrics: expose_metrics,
    }
    routes = [Route(path, answer(make), methods=["GET"]) for path, make in answers.items()]
    return Starlette(routes=routes, middleware=[] if names is None else [Middleware(OriginGuard, names=names)])


def _show_hours(
    report: HealthReport, request: Request, reader: HoursReader, paths: ServerPaths, dagster: str
) -> Response:
    """Answer with the hours of a topic that a look has found. The hours are read now, since looks do not read them."""
    connector = request.path_params["connector"]
    topic = request.path_params["topic"]
    topics_by_name = {(c.connector, t.topic): t for c in (*report.good.values(), *report.connectors) for t in c.topics}
    numbers = _read_asked(request)
    if (connector, topic) not in topics_by_name or numbers is None:
        return PlainTextResponse("there is no such page\n", 404)
    days, kafka_partition = numbers
    configs, failures = load_named([connector])
    try:
        if not configs:
            raise ConfigError(failures[0].error)
        risk = topics_by_name[connector, topic].risk
        hours = reader.read(configs[0], topic, days, risk.hours if risk else None)
    except PlatformError as err:
        return PlainTextResponse(f"{escape_unprintable(str(err))}\n", 503)
    up = paths.relate(paths.page, f"{paths.hours}/connector/topic")
    return HTMLResponse(render_hours_page(HoursPage(hours, kafka_partition, days, up, dagster)))


def _read_asked(request: Request) -> tuple[int, int | None] | None:
    """Return the requested days and kafka partition, or None if they are out of range or not numbers."""
    days = request.query_params.get("days", "31")
    number = request.query_params.get("kafka_partition")
    if not re.fullmatch(r"[0-9]{1,3}", days) or not 1 <= int(days) <= MAX_DAYS:
        return None
    if number is not None and not re.fullmatch(r"[0-9]{1,9}", number):
        return None
    return int(days), None if number is None else int(number)


def describe_health(report: HealthReport) -> dict[str, object]:
    """Return the JSON of `/health`: whether all is well, the reasons, and when everything was last known."""
    reasons = [{"check": c.check, "reason": c.text} for c in report.concerns if c.check]
    if report.error:
        reasons.insert(0, {"check": "look", "reason": report.error})
    return {
        "status": "healthy" if report.is_well else "unhealthy",
        "reasons": reasons,
        "looked_at": report.looked_at.isoformat() if report.looked_at else None,
        "last_good_look": {name: good.looked_at.isoformat() for name, good in sorted(report.good.items())},
    }


def is_loopback(host: str) -> bool:
    """Return True if the address can be reached from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def open_socket(host: str, port: int) -> socket.socket:
    """Listen on the address. Port 0 stands for any free port. Raise ConfigError if the address cannot be used."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as err:
        why = str(err.strerror or err).partition(" (while")[0]
        raise ConfigError(
            f"cannot listen on {host}:{port}: {why}; choose another address with --host or --port"
        ) from err


class FewConnections(H11Protocol):
    """Ends an earlier connection when there are too many: the oldest idle one, or else the oldest.

    So a client that opens many, but asks nothing or reads no answer, uses up neither this process's files nor the
    places of other clients.
    """

    began = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept the connection."""
        super().connection_made(transport)
        self.began = time.monotonic()
        others = [c for c in self.connections if isinstance(c, FewConnections) and c is not self]
        open_ones = [c for c in others if not c.transport.is_closing()]
        if len(open_ones) >= MOST_CONNECTIONS:
            min(open_ones, key=lambda c: (c.is_asked, c.began)).transport.abort()

    @property
    def is_asked(self) -> bool:
        """True while a request on the connection is being answered."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete


def run_server(app: Starlette, listening: socket.socket) -> None:
    """Serve until SIGTERM or SIGINT. SIGINT is raised as KeyboardInterrupt."""
    config = uvicorn.Config(app, log_level="warning", access_log=False, server_header=False, http=FewConnections)
    uvicorn.Server(config).run(sockets=[listening])
