"""An HTTP proxy between a client and the S3 server: loses, holds, refuses or falsifies chosen requests, or delays all.

The client is pointed at the proxy and signs for its address; the `Host` header goes through unchanged, so the server,
which checks the signature against the header it received, accepts it. What is changed on its way is signed anew.
"""

import http.client
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from email.utils import format_datetime, parsedate_to_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal
from urllib.parse import unquote, urlsplit

from kafka_s3_platform_tests.store.servers import signed_anew

Answer = tuple[int, list[tuple[str, str]], bytes]
"""Status, headers and body."""

FOREVER = 1_000_000
_HOP_BY_HOP = frozenset({"connection", "expect", "keep-alive", "transfer-encoding", "content-length"})
_LIMIT_SECONDS = 60


@dataclass
class Fault:
    """What happens to the requests that match: to `times` of them, from the `nth` on, counted from 1.

    `target` is searched in the decoded path and query. `lose`: the server does it, the client sees its connection
    close. `hold`: the server does it, the response waits for `release`. `refuse`: `status` and `code` are answered and
    the server sees nothing. `falsify`: the response is what `falsified` makes of it. `delay`: 204 is answered, and the
    server gets the request when it is delivered.
    """

    method: str
    target: str
    action: Literal["lose", "hold", "refuse", "falsify", "delay"]
    nth: int = 1
    times: int = 1
    status: int = 503
    code: str = "SlowDown"
    falsified: Callable[[Answer], Answer] = lambda answer: answer
    delayed: list[Callable[[], Answer]] = field(default_factory=list)
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

    def deliver(self) -> list[int]:
        """Send what was delayed; the statuses of the answers."""
        return [send()[0] for send in self.delayed]

    def wait_for_release(self) -> None:
        assert self._released.wait(_LIMIT_SECONDS), "a held response was never released"


class FaultyProxy(ThreadingHTTPServer):
    """Forwards to the S3 server at `upstream` (an http URL). Used through `faulty_proxy`."""

    daemon_threads = True

    def __init__(self, upstream: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream = urlsplit(upstream).netloc
        self.requests: list[tuple[str, str]] = []
        self.date_shift: timedelta | None = timedelta()
        """How far the server's `Date` is shifted on its way to the client; None: it is left out."""
        self._unconditional: tuple[tuple[str, str], str, str] | None = None
        self.seconds_to_answer = 0.0
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

    def delay(self, method: str, target: str) -> Fault:
        """Answer matching requests with 204, as if they were done; the server gets them by `deliver`."""
        return self._add(Fault(method, target, "delay", 1, FOREVER))

    def falsify(self, method: str, target: str, falsified: Callable[[Answer], Answer]) -> Fault:
        """Answer matching requests, which the server processes, with something else."""
        return self._add(Fault(method, target, "falsify", 1, FOREVER, falsified=falsified))

    def answer_stale(self, method: str, target: str) -> Fault:
        """Answer matching requests with what the first of them was answered, whatever was written since."""
        kept: list[Answer] = []

        def first(answer: Answer) -> Answer:
            kept.append(answer)
            return kept[0]

        return self.falsify(method, target, first)

    def ignore_conditions(
        self, signer: tuple[str, str], method: str = "PUT|POST|DELETE", condition: str = "if-match|if-none-match"
    ) -> None:
        """Be a store that ignores conditions of what `method` sends; `signer` is an access key that it knows."""
        self._unconditional = signer, method, condition

    def sent(self, method: str, path: str, headers: dict[str, str], body: bytes) -> dict[str, str]:
        """The headers that go to the server."""
        if self._unconditional is None:
            return headers
        signer, methods, conditions = self._unconditional
        kept = {name: value for name, value in headers.items() if not re.fullmatch(conditions, name.lower())}
        if len(kept) == len(headers) or not re.fullmatch(methods, method):
            return headers
        return signed_anew(method, f"http://{self.upstream}{path}", kept, body, signer)

    def clear(self) -> None:
        """Forward everything again."""
        self._unconditional = None
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
        time.sleep(self.server.seconds_to_answer)
        request = self._request(body)
        if fault is None:
            self._answer(*request())
            return
        if fault.action == "delay":
            fault.delayed.append(request)
            self._answer(204, [], b"")
        elif fault.action == "refuse":
            self._answer(fault.status, [("Content-Type", "application/xml")], _error(fault.code))
        else:
            self._answer_wrongly(fault, request())
        fault.hit.set()

    def _answer_wrongly(self, fault: Fault, answer: Answer) -> None:
        """What was asked for is done."""
        fault.hit.set()
        if fault.action == "lose":
            self.close_connection = True
            return
        if fault.action == "hold":
            fault.wait_for_release()
        self._answer(*(fault.falsified(answer) if fault.action == "falsify" else answer))

    def _request(self, body: bytes) -> Callable[[], Answer]:
        """Sends the request to the server."""
        method, path = self.command, self.path
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP_BY_HOP}
        headers = self.server.sent(method, path, headers, body)

        def send() -> Answer:
            with closing(http.client.HTTPConnection(self.server.upstream, timeout=_LIMIT_SECONDS)) as upstream:
                upstream.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
                for name, value in headers.items():
                    upstream.putheader(name, value)
                upstream.putheader("Content-Length", str(len(body)))
                upstream.endheaders(body)
                response = upstream.getresponse()
                return response.status, response.getheaders(), response.read()

        return send

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.send_response_only(status)
        length = str(len(body))
        for name, value in headers:
            if name.lower() == "content-length" and self.command == "HEAD":
                length = value
            elif name.lower() == "date":
                self._send_date(value)
            elif name.lower() not in _HOP_BY_HOP:
                self.send_header(name, value)
        self.send_header("Content-Length", length)
        self.end_headers()
        self.wfile.write(body)

    def _send_date(self, told: str) -> None:
        if (shift := self.server.date_shift) is not None:
            self.send_header("Date", format_datetime(parsedate_to_datetime(told) + shift, usegmt=True))


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
