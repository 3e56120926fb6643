"""An HTTP proxy before an S3 server, whose answers a subclass may change.

The client is pointed at the proxy and signs for its address; the `Host` header goes through unchanged, so the server,
which checks the signature against the header it received, accepts it.
"""

import http.client
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from kafka_s3_platform_tests.chaos.lies import threaded

_HOP_BY_HOP = frozenset({"connection", "expect", "keep-alive", "transfer-encoding", "content-length"})
_LIMIT_SECONDS = 60


@dataclass(frozen=True)
class HttpRequest:
    """What a client asked: `path` as it stands in the request line, headers without those of the connection."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    @property
    def target(self) -> str:
        """Path and query, decoded."""
        return unquote(self.path)


@dataclass(frozen=True)
class HttpAnswer:
    """What a server answered; of a HEAD the length is in the headers."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


def forwarded(upstream: str, request: HttpRequest) -> HttpAnswer:
    """The answer of the server at `upstream` (host and port) to the request as it is."""
    with closing(http.client.HTTPConnection(upstream, timeout=_LIMIT_SECONDS)) as connection:
        connection.putrequest(request.method, request.path, skip_host=True, skip_accept_encoding=True)
        for name, value in request.headers:
            connection.putheader(name, value)
        connection.putheader("Content-Length", str(len(request.body)))
        connection.endheaders(request.body)
        response = connection.getresponse()
        return HttpAnswer(response.status, tuple(response.getheaders()), response.read())


def refusal(status: int, code: str) -> HttpAnswer:
    """An error as S3 words it."""
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>by the test's proxy</Message></Error>"
    return HttpAnswer(status, (("Content-Type", "application/xml"),), body.encode())


class Proxy(ThreadingHTTPServer):
    """Answers for the S3 server at `upstream` (an http URL): truly, unless a subclass says otherwise."""

    daemon_threads = True

    def __init__(self, upstream: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream = urlsplit(upstream).netloc

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away in the middle is none of ours."""

    def answer(self, request: HttpRequest) -> HttpAnswer | None:
        """What the client is told; None closes its connection instead."""
        return forwarded(self.upstream, request)


class _Handler(BaseHTTPRequestHandler):
    """One connection of a client."""

    server: Proxy
    protocol_version = "HTTP/1.1"
    timeout = _LIMIT_SECONDS

    def __getattr__(self, name: str) -> object:
        if name.startswith("do_"):
            return self._serve
        raise AttributeError(name)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base class's
        """Say nothing: the liar knows what it told."""

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = tuple((n, v) for n, v in self.headers.items() if n.lower() not in _HOP_BY_HOP)
        answered = self.server.answer(HttpRequest(self.command, self.path, headers, body))
        if answered is None:
            self.close_connection = True
        else:
            self._tell(answered)

    def _tell(self, answered: HttpAnswer) -> None:
        self.send_response_only(answered.status)
        length = str(len(answered.body))
        for name, value in answered.headers:
            if name.lower() == "content-length" and self.command == "HEAD":
                length = value
            elif name.lower() not in _HOP_BY_HOP:
                self.send_header(name, value)
        self.send_header("Content-Length", length)
        self.end_headers()
        self.wfile.write(answered.body)


P = TypeVar("P", bound=Proxy)


@contextmanager
def serving(proxy: P) -> Iterator[P]:
    """The proxy, while it serves."""
    with threaded(proxy):
        yield proxy
