"""An HTTP proxy between a client and the S3 server that loses, holds or refuses chosen requests.

The client is pointed at the proxy and signs for its address; the `Host` header goes through unchanged, so the server,
which checks the signature against the header it received, accepts it.
"""

import http.client
import re
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal
from urllib.parse import unquote, urlsplit

FOREVER = 1_000_000
_HOP_BY_HOP = frozenset({"connection", "expect", "keep-alive", "transfer-encoding", "content-length"})
_LIMIT_SECONDS = 60


@dataclass
class Fault:
    """What happens to the requests that match: to `times` of them, from the `nth` on, counted from 1.

    `target` is searched in the decoded path and query. `lose`: the server does it, the client sees its connection
    close. `hold`: the server does it, the response waits for `release`. `refuse`: `status` and `code` are answered and
    the server sees nothing.
    """

    method: str
    target: str
    action: Literal["lose", "hold", "refuse"]
    nth: int = 1
    times: int = 1
    status: int = 503
    code: str = "SlowDown"
    seen: int = 0
    hit: threading.Event = field(default_factory=threading.Event)
    _released: threading.Event = field(default_factory=threading.Event)

    def matches(self, method: str, target: str) -> bool:
        """Whether this request is to suffer. Counts it if it is of the kind."""
        if method != self.method or not re.search(self.target, unquote(target)):
            return False
        self.seen += 1
        return self.nth <= self.seen < self.nth + self.times

    def release(self) -> None:
        """Let the held responses go."""
        self._released.set()

    def wait_for_release(self) -> None:
        assert self._released.wait(_LIMIT_SECONDS), "a held response was never released"


class FaultyProxy(ThreadingHTTPServer):
    """Forwards to the S3 server at `upstream` (an http URL). Used through `faulty_proxy`."""

    daemon_threads = True

    def __init__(self, upstream: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream = urlsplit(upstream).netloc
        self.requests: list[tuple[str, str]] = []
        self._faults: list[Fault] = []
        self._lock = threading.Lock()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def lose_response(self, method: str, target: str, nth: int = 1, times: int = 1) -> Fault:
        """Have the server process matching requests, and close the connection instead of answering."""
        return self._add(Fault(method, target, "lose", nth, times))

    def hold_response(self, method: str, target: str, nth: int = 1) -> Fault:
        """Have the server process a matching request; its answer waits for `release`. `hit` is set when it waits."""
        return self._add(Fault(method, target, "hold", nth))

    def refuse(self, method: str, target: str, status: int, code: str, times: int = FOREVER) -> Fault:
        """Answer matching requests with an error, unseen by the server."""
        return self._add(Fault(method, target, "refuse", 1, times, status, code))

    def clear(self) -> None:
        """Forward everything again."""
        with self._lock:
            self._faults.clear()

    def fault_of(self, method: str, target: str) -> Fault | None:
        with self._lock:
            self.requests.append((method, unquote(target)))
            hit = [fault for fault in self._faults if fault.matches(method, target)]
        return hit[0] if hit else None

    def _add(self, fault: Fault) -> Fault:
        with self._lock:
            self._faults.append(fault)
        return fault


class _Handler(BaseHTTPRequestHandler):
    """One connection of a client."""

    server: FaultyProxy
    protocol_version = "HTTP/1.1"
    timeout = _LIMIT_SECONDS

    def __getattr__(self, name: str) -> object:
        if name.startswith("do_"):
            return self._serve
        raise AttributeError(name)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base class's
        """Say nothing: `FaultyProxy.requests` has it all."""

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        fault = self.server.fault_of(self.command, self.path)
        if fault and fault.action == "refuse":
            self._answer(fault.status, [("Content-Type", "application/xml")], _error(fault.code))
            fault.hit.set()
            return
        status, headers, answer = self._forward(body)
        if fault:
            fault.hit.set()
        if fault and fault.action == "lose":
            self.close_connection = True
            return
        if fault:
            fault.wait_for_release()
        self._answer(status, headers, answer)

    def _forward(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        sent = {name: value for name, value in self.headers.items() if name.lower() not in _HOP_BY_HOP}
        with closing(http.client.HTTPConnection(self.server.upstream, timeout=_LIMIT_SECONDS)) as upstream:
            upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in sent.items():
                upstream.putheader(name, value)
            upstream.putheader("Content-Length", str(len(body)))
            upstream.endheaders(body)
            response = upstream.getresponse()
            return response.status, response.getheaders(), response.read()

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.send_response_only(status)
        length = str(len(body))
        for name, value in headers:
            if name.lower() == "content-length" and self.command == "HEAD":
                length = value
            elif name.lower() not in _HOP_BY_HOP:
                self.send_header(name, value)
        self.send_header("Content-Length", length)
        self.end_headers()
        self.wfile.write(body)


def _error(code: str) -> bytes:
    return f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>by the test's proxy</Message></Error>".encode()


@contextmanager
def faulty_proxy(upstream: str) -> Iterator[FaultyProxy]:
    """A running proxy in front of the S3 server at `upstream`."""
    with FaultyProxy(upstream) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield proxy
        finally:
            proxy.shutdown()
            thread.join()
