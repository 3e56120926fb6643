"""An HTTP proxy in front of a registry that lets through who has the password, and can have faults."""

import base64
import http.client
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

USER = "archive:secret"


class Gate(ThreadingHTTPServer):
    """`status`: what everybody is answered; None lets those with `USER` through."""

    daemon_threads = True

    def __init__(self, upstream: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream = urlsplit(upstream)
        self.status: int | None = None
        self.paths: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}{self.upstream.path}"


class _Handler(BaseHTTPRequestHandler):
    server: Gate

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base class's
        """Say nothing."""

    def do_GET(self) -> None:
        self.server.paths.append(self.path)
        expected = "Basic " + base64.b64encode(USER.encode()).decode()
        if self.server.status is not None:
            self._answer(self.server.status, b'{"error_code":50001,"message":"by the test"}')
        elif self.headers.get("Authorization") != expected:
            self._answer(401, b'{"error_code":40101,"message":"who are you"}')
        else:
            with closing(http.client.HTTPConnection(self.server.upstream.netloc, timeout=60)) as upstream:
                upstream.request("GET", self.path)
                response = upstream.getresponse()
                self._answer(response.status, response.read())

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def gate(upstream: str) -> Iterator[Gate]:
    """A running proxy in front of the registry at `upstream`."""
    with Gate(upstream) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
