"""A proxy between a client and the S3 server: loses, holds, refuses or falsifies chosen requests, or delays all."""

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from email.utils import format_datetime, parsedate_to_datetime
from typing import Literal

from kafka_s3_platform_tests.store.http_proxy import (
    HttpAnswer,
    HttpRequest,
    Proxy,
    forwarded,
    refusal,
    running,
    signed_anew,
)

FOREVER = 1_000_000
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
    falsified: Callable[[HttpAnswer], HttpAnswer] = lambda answer: answer
    delayed: list[Callable[[], HttpAnswer]] = field(default_factory=list)
    seen: int = 0
    hit: threading.Event = field(default_factory=threading.Event)
    _released: threading.Event = field(default_factory=threading.Event)

    def matches(self, request: HttpRequest) -> bool:
        """Whether this request is to suffer. Counts it if it is of the kind."""
        if request.method != self.method or not re.search(self.target, request.target):
            return False
        self.seen += 1
        return self.nth <= self.seen < self.nth + self.times

    def release(self) -> None:
        """Let the held responses go."""
        self._released.set()

    def deliver(self) -> list[int]:
        """Send what was delayed; the statuses of the answers."""
        return [send().status for send in self.delayed]

    def wait_for_release(self) -> None:
        assert self._released.wait(_LIMIT_SECONDS), "a held response was never released"


class FaultyProxy(Proxy):
    """Forwards to the S3 server at `upstream` (an http URL). Used through `faulty_proxy`."""

    def __init__(self, upstream: str) -> None:
        super().__init__(upstream)
        self.requests: list[tuple[str, str]] = []
        self.date_shift: timedelta | None = timedelta()
        """How far the server's `Date` is shifted on its way to the client; None: it is left out."""
        self._unconditional: tuple[tuple[str, str], str, str] | None = None
        self.seconds_to_answer = 0.0
        self._faults: list[Fault] = []
        self._lock = threading.Lock()

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

    def falsify(self, method: str, target: str, falsified: Callable[[HttpAnswer], HttpAnswer]) -> Fault:
        """Answer matching requests, which the server processes, with something else."""
        return self._add(Fault(method, target, "falsify", 1, FOREVER, falsified=falsified))

    def answer_stale(self, method: str, target: str) -> Fault:
        """Answer matching requests with what the first of them was answered, whatever was written since."""
        kept: list[HttpAnswer] = []

        def first(answer: HttpAnswer) -> HttpAnswer:
            kept.append(answer)
            return kept[0]

        return self.falsify(method, target, first)

    def list_nothing(self, prefix: str) -> Fault:
        """Answer the lists of what begins with something that holds `prefix` as if nothing were there."""

        def without_entries(answer: HttpAnswer) -> HttpAnswer:
            return replace(answer, body=re.sub(rb"<Contents>.*</Contents>", b"", answer.body, flags=re.DOTALL))

        return self.falsify("GET", rf"(?=.*list-type)(?=.*prefix=[^&]*{prefix})", without_entries)

    def ignore_conditions(
        self, signer: tuple[str, str], method: str = "PUT|POST|DELETE", condition: str = "if-match|if-none-match"
    ) -> None:
        """Be a store that ignores conditions of what `method` sends; `signer` is an access key that it knows."""
        self._unconditional = signer, method, condition

    def answer(self, request: HttpRequest) -> HttpAnswer | None:
        fault = self._fault_of(request)
        time.sleep(self.seconds_to_answer)
        answered = self._forwarded(request) if fault is None else self._answered_wrongly(fault, request)
        if fault is not None:
            fault.hit.set()
        return None if answered is None else self._dated(answered)

    def clear(self) -> None:
        """Forward everything again."""
        self._unconditional = None
        with self._lock:
            self._faults.clear()

    def _fault_of(self, request: HttpRequest) -> Fault | None:
        with self._lock:
            self.requests.append((request.method, request.target))
            hit = [fault for fault in self._faults if fault.matches(request)]
        return hit[0] if hit else None

    def _answered_wrongly(self, fault: Fault, request: HttpRequest) -> HttpAnswer | None:
        if fault.action == "delay":
            fault.delayed.append(lambda: self._forwarded(request))
            return HttpAnswer(204)
        if fault.action == "refuse":
            return refusal(fault.status, fault.code)
        answered = self._forwarded(request)
        # from here on what was asked for is done
        fault.hit.set()
        if fault.action == "lose":
            return None
        if fault.action == "hold":
            fault.wait_for_release()
            return answered
        return fault.falsified(answered)

    def _forwarded(self, request: HttpRequest) -> HttpAnswer:
        return forwarded(self.upstream, self._sent(request))

    def _sent(self, request: HttpRequest) -> HttpRequest:
        """The request as the server gets it."""
        if self._unconditional is None:
            return request
        signer, methods, conditions = self._unconditional
        kept = {name: value for name, value in request.headers.items() if not re.fullmatch(conditions, name)}
        if len(kept) == len(request.headers) or not re.fullmatch(methods, request.method):
            return request
        return signed_anew(self.upstream, replace(request, headers=kept), signer)

    def _dated(self, answered: HttpAnswer) -> HttpAnswer:
        told = next((value for name, value in answered.headers if name.lower() == "date"), None)
        if told is None or self.date_shift is None:
            return answered.dated(None)
        return answered.dated(format_datetime(parsedate_to_datetime(told) + self.date_shift, usegmt=True))

    def _add(self, fault: Fault) -> Fault:
        with self._lock:
            self._faults.append(fault)
        return fault


@contextmanager
def faulty_proxy(upstream: str) -> Iterator[FaultyProxy]:
    """A running proxy in front of the S3 server at `upstream`."""
    with running(FaultyProxy(upstream)) as proxy:
        yield proxy
