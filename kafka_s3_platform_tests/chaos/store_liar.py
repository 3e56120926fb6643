"""An HTTP proxy before the S3 server that breaks the promises of stores, one after the other."""

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from random import Random
from typing import Any

from kafka_s3_platform.core.config.settings import StoreSettings
from kafka_s3_platform_tests.chaos.lies import Liar
from kafka_s3_platform_tests.store.http_proxy import (
    HttpAnswer,
    HttpRequest,
    Proxy,
    forwarded,
    refusal,
    running,
    signed_anew,
)

StoreLies = Liar[HttpRequest, "Way"]
_CONDITIONS = frozenset({"if-none-match", "if-match"})
_ENTRY = re.compile(rb"<Contents>.*?</Contents>", re.DOTALL)
_KEY = re.compile(rb"<Key>(.*?)</Key>", re.DOTALL)


class Way:
    """How one request is served: each lie changes a part of it."""

    def __init__(self) -> None:
        self.instead: HttpAnswer | None = None
        self.without_conditions = False
        self.times = 1
        self.late_seconds = 0.0
        self.is_lost = False
        self.clock = timedelta(0)
        self.left_out = 0


class StoreLiar(Proxy):
    """Serves for the S3 server at `upstream`, in the ways that `liar` thinks of."""

    def __init__(self, upstream: str, signer: tuple[str, str], liar: StoreLies) -> None:
        super().__init__(upstream)
        self.liar = liar
        self._signer = signer
        self._written: list[str] = []
        self._late: list[threading.Thread] = []

    def answer(self, request: HttpRequest) -> HttpAnswer | None:
        way = self.liar.said(request, Way()) if self.liar.lies else Way()
        if way.instead is not None:
            return way.instead
        asked = self._unconditional(request) if way.without_conditions else request
        answered = self._served(asked, way)
        self._remember(request, answered)
        if way.left_out:
            answered = self._without_newest(answered, way.left_out)
        if way.clock:
            answered = _dated(answered, way.clock)
        return None if way.is_lost else answered

    def settle(self) -> None:
        """Wait until what was delivered late has arrived."""
        for thread in self._late:
            thread.join()
        self._late.clear()

    def _served(self, request: HttpRequest, way: Way) -> HttpAnswer:
        answered = forwarded(self.upstream, request)
        for _ in range(way.times - 1):
            again = threading.Thread(target=self._again, args=(request, way.late_seconds), daemon=True)
            again.start()
            if way.late_seconds:
                self._late.append(again)
            else:
                again.join()
        return answered

    def _again(self, request: HttpRequest, late_seconds: float) -> None:
        time.sleep(late_seconds)
        forwarded(self.upstream, request)

    def _unconditional(self, request: HttpRequest) -> HttpRequest:
        """The request without its conditions, signed anew: those were signed too."""
        kept = {name: value for name, value in request.headers.items() if name not in _CONDITIONS}
        return signed_anew(self.upstream, replace(request, headers=kept), self._signer)

    def _remember(self, request: HttpRequest, answered: HttpAnswer) -> None:
        if request.method == "PUT" and answered.status == 200:
            self._written.append(request.key)

    def _without_newest(self, answered: HttpAnswer, count: int) -> HttpAnswer:
        newest = {key.encode() for key in self._written[-count:]}

        def kept(entry: re.Match[bytes]) -> bytes:
            key = _KEY.search(entry[0])
            return b"" if key and key[1] in newest else entry[0]

        return replace(answered, body=_ENTRY.sub(kept, answered.body))


def _is_list(request: HttpRequest) -> bool:
    return request.method == "GET" and "list-type=2" in request.path


def _dated(answered: HttpAnswer, clock: timedelta) -> HttpAnswer:
    return answered.dated(format_datetime(datetime.now(timezone.utc) + clock, usegmt=True))


Tell = Callable[[StoreLies, HttpRequest, Way], Way | None]


def _ignored(_liar: StoreLies, request: HttpRequest, way: Way) -> Way | None:
    if request.method == "GET" or _CONDITIONS.isdisjoint(request.headers):
        return None
    way.without_conditions = True
    return way


def _not_found(liar: StoreLies, request: HttpRequest, way: Way) -> Way | None:
    """Read after write: as though what was just written was not there yet."""
    key = request.key
    if request.method == "PUT":
        liar.memory.setdefault("fresh", set()).add(key)
    if request.method not in {"GET", "HEAD"} or key not in liar.memory.get("fresh", ()):
        return None
    liar.memory["fresh"].discard(key)
    way.instead = refusal(404, "NoSuchKey")
    return way


def _left_out(liar: StoreLies, request: HttpRequest, way: Way) -> Way | None:
    if not _is_list(request):
        return None
    way.left_out = liar.random.randint(1, 3)
    return way


def _refused(status: int, code: str, methods: frozenset[str]) -> Tell:
    def tell(_liar: StoreLies, request: HttpRequest, way: Way) -> Way | None:
        if request.method not in methods:
            return None
        way.instead = refusal(status, code)
        return way

    return tell


def _lost(_liar: StoreLies, _request: HttpRequest, way: Way) -> Way:
    way.is_lost = True
    return way


def _twice(_liar: StoreLies, request: HttpRequest, way: Way) -> Way | None:
    if request.method not in {"PUT", "POST", "DELETE"}:
        return None
    way.times = 2
    return way


def _again_later(liar: StoreLies, request: HttpRequest, way: Way) -> Way | None:
    """The answer is lost, the client asks again, and then the first request arrives once more."""
    if _twice(liar, request, way) is None:
        return None
    way.late_seconds, way.is_lost = liar.random.choice((0.05, 0.3, 1.0)), liar.random.random() < 0.5
    return way


def _clock(liar: StoreLies, _request: HttpRequest, way: Way) -> Way:
    """The same for as long as the lie is told."""
    random: Random = liar.random
    way.clock = liar.memory.setdefault("clock", timedelta(hours=random.choice((-48, -3, 3, 24))))
    return way


_ANY = frozenset({"GET", "HEAD", "PUT", "POST", "DELETE"})
STORE_LIES: dict[str, Tell] = {
    "store: conditions ignored": _ignored,
    "store: not there yet": _not_found,
    "store: lists without the newest": _left_out,
    "store: 503 SlowDown": _refused(503, "SlowDown", _ANY),
    "store: 500 InternalError": _refused(500, "InternalError", _ANY),
    "store: 403 on writing": _refused(403, "AccessDenied", frozenset({"PUT"})),
    "store: an answer lost": _lost,
    "store: a request delivered twice": _twice,
    "store: a request delivered again later": _again_later,
    "store: a clock of its own": _clock,
}


@contextmanager
def lying_store(store: StoreSettings, liar: StoreLies) -> Iterator[StoreLiar]:
    """A running proxy before the S3 server of these settings, whose access key it signs with."""
    assert store.access_key_id is not None
    assert store.secret_access_key is not None
    signer = (store.access_key_id.get_secret_value(), store.secret_access_key.get_secret_value())
    with running(StoreLiar(store.endpoint_url or "", signer, liar)) as server:
        yield server


def kept_settings(server: Any) -> dict[str, object]:
    """What of `StoreSettings` changes so that clients go through the liar, and do not wait long between their tries."""
    return {"endpoint_url": server.endpoint, "retry_backoff_ms": 5, "max_retries": 2}
