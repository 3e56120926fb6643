"""Limits of what a Schema Registry answers: it may be another server, or a hostile one."""

import threading
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, final

from confluent_kafka.schema_registry.common._httpx_compat import httpx  # the one of two that the client uses

MOST_BYTES = 8 << 20
"""An answer is a schema or a list. Kafka takes a schema of 1 MB, unless it was told otherwise. Of 8 MiB of the smallest
things in JSON, Python makes 200 MB."""


@final
class LimitedSession:
    """Has what the Registry's client uses of `httpx.Client`. Each answer has `seconds` and MOST_BYTES as a whole.

    httpx's own time is for one read: a server that sends a byte now and then is never given up.
    """

    def __init__(self, session: httpx.Client, seconds: float) -> None:
        self._session = session
        self._seconds = seconds

    def request(self, method: str, url: str, headers: Any, **more: Any) -> httpx.Response:
        """Get an answer. Raise httpx.ReadTimeout if it takes too long, ValueError if it is too large or compressed."""
        # A few compressed bytes become any size. Schemas are small without.
        asked = {**headers, "Accept-Encoding": "identity"}
        answer: Future[httpx.Response] = Future()

        def ask() -> None:
            try:
                answer.set_result(self._read(method, url, asked, more))
            except BaseException as err:  # noqa: BLE001 - raised where the answer is waited for
                answer.set_exception(err)

        # A daemon: no process waits at its end for a server that does not end.
        threading.Thread(target=ask, daemon=True).start()
        try:
            return answer.result(self._seconds)
        except FutureTimeoutError as err:
            raise httpx.ReadTimeout(f"no whole answer after {self._seconds:g} s") from err

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def _read(self, method: str, url: str, headers: Any, more: Any) -> httpx.Response:
        with self._session.stream(method, url, headers=headers, **more) as response:
            if response.headers.get("Content-Encoding", "identity") != "identity":
                raise ValueError("the answer is compressed, which was not asked for")
            body = bytearray()
            for part in response.iter_raw():
                body += part
                if len(body) > MOST_BYTES:
                    raise ValueError(f"the answer has more than {MOST_BYTES:,} bytes")
            return httpx.Response(response.status_code, headers=response.headers, content=bytes(body))
