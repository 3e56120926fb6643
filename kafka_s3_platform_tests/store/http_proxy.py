"""An HTTP proxy before an S3 server, whose answers a subclass may change.

The client is pointed at the proxy and signs for its address; the `Host` header goes through unchanged, so the server,
which checks the signature against the header it received, accepts it. What is changed on its way is signed anew.
"""

import http.client
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import BaseServer
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

_HOP_BY_HOP = frozenset(
    {"connection", "expect", "keep-alive", "transfer-encoding", "content-length", "proxy-connection"}
)
_RESIGNED = frozenset({"authorization", "x-amz-security-token", "x-amz-date", "host"})
_LIMIT_SECONDS = 60

S = TypeVar("S", bound=BaseServer)


@dataclass(frozen=True)
class HttpRequest:
    """What a client asked: `url` as it stands in the request line; header names are in lower case."""

    method: str
    url: str
    headers: dict[str, str]
    body: bytes

    @property
    def path(self) -> str:
        """Path and query, as they were sent."""
        return urlsplit(self.url)._replace(scheme="", netloc="").geturl()

    @property
    def target(self) -> str:
        """Path and query, decoded."""
        return unquote(self.path)

    @property
    def key(self) -> str:
        """The object's key, for addresses that name the bucket in the path; empty for the bucket itself."""
        return unquote(urlsplit(self.url).path).lstrip("/").partition("/")[2]

    @property
    def access_key(self) -> str:
        """Whose signature it carries."""
        return self.headers.get("authorization", "").partition("Credential=")[2].partition("/")[0]


@dataclass(frozen=True)
class HttpAnswer:
    """What a server answered; of a HEAD the length is in the headers."""

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""

    def dated(self, date: str | None) -> "HttpAnswer":
        """With another `Date`, or without one."""
        others = tuple((name, value) for name, value in self.headers if name.lower() != "date")
        return replace(self, headers=others if date is None else (*others, ("Date", date)))


def forwarded(upstream: str, request: HttpRequest) -> HttpAnswer:
    """The answer of the server at `upstream` (host and port), or of the one that the request's URL names."""
    host = urlsplit(request.url).netloc or upstream
    with closing(http.client.HTTPConnection(host, timeout=_LIMIT_SECONDS)) as connection:
        connection.putrequest(request.method, request.path, skip_host=True, skip_accept_encoding=True)
        for name, value in request.headers.items():
            connection.putheader(name, value)
        connection.putheader("Content-Length", str(len(request.body)))
        connection.endheaders(request.body)
        response = connection.getresponse()
        return HttpAnswer(response.status, tuple(response.getheaders()), response.read())


def signed_anew(upstream: str, request: HttpRequest, signer: tuple[str, str]) -> HttpRequest:
    """The request to the server at `upstream`, signed by the access key `signer` instead of by whom it was."""
    url = f"http://{upstream}{request.path}"
    kept = {name: value for name, value in request.headers.items() if name not in _RESIGNED}
    signed = AWSRequest(request.method, url, kept, request.body)
    S3SigV4Auth(Credentials(*signer), "s3", "us-east-1").add_auth(signed)
    return replace(request, url=url, headers={**dict(signed.headers.items()), "Host": upstream})


def refusal(status: int, code: str) -> HttpAnswer:
    """An error as S3 words it."""
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>by the test's proxy</Message></Error>"
    return HttpAnswer(status, (("Content-Type", "application/xml"),), body.encode())


class HttpServer(ThreadingHTTPServer):
    """Serves on a port of its own what `answer` says."""

    daemon_threads = True
    # delta-rs opens many connections at once.
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away in the middle is none of ours."""

    def answer(self, request: HttpRequest) -> HttpAnswer | None:
        """What the client is told; None closes its connection instead."""
        raise NotImplementedError


class Proxy(HttpServer):
    """Answers for the S3 server at `upstream` (an http URL): truly, unless a subclass says otherwise."""

    def __init__(self, upstream: str) -> None:
        super().__init__()
        self.upstream = urlsplit(upstream).netloc

    def answer(self, request: HttpRequest) -> HttpAnswer | None:
        return forwarded(self.upstream, request)


class _Handler(BaseHTTPRequestHandler):
    """One connection of a client."""

    server: HttpServer
    protocol_version = "HTTP/1.1"
    timeout = _LIMIT_SECONDS

    def __getattr__(self, name: str) -> object:
        if name.startswith("do_"):
            return self._serve
        raise AttributeError(name)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base class's
        """Say nothing: the server knows what was asked."""

    def _serve(self) -> None:
        answered = self.server.answer(self._received())
        if answered is None:
            self.close_connection = True
        else:
            self._tell(answered)

    def _received(self) -> HttpRequest:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items() if name.lower() not in _HOP_BY_HOP}
        return HttpRequest(self.command, self.path, headers, body)

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


@contextmanager
def running(server: S) -> Iterator[S]:
    """The server, at work in a thread of its own until the end."""
    with server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
