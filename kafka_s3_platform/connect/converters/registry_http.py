"""Limits the answers of a Schema Registry and its token server, because a wrong or hostile server may answer."""

import threading
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, final

from confluent_kafka.schema_registry.common._httpx_compat import httpx  # the one of two that the client uses

MOST_BYTES = 8 << 20
"""The largest answer, which is a schema or a list. Kafka accepts a schema of 1 MB, unless it is configured otherwise.
From 8 MiB of the smallest JSON values, Python makes objects of 200 MB."""


def limit_session(session: httpx.Client, seconds: float) -> None:
    """Limit each whole answer to `seconds` and MOST_BYTES."""
    # httpx takes transports only when its client is made, and the Registry's client makes that itself.
    of: Any = session
    of._transport = _LimitedTransport(of._transport, seconds)  # noqa: SLF001
    for pattern, transport in of._mounts.items():  # noqa: SLF001
        if transport is not None:
            of._mounts[pattern] = _LimitedTransport(transport, seconds)  # noqa: SLF001


@final
class _LimitedTransport(httpx.BaseTransport):
    """Reads each answer whole, in a bounded time. httpx limits each read, and a slow server never exceeds that."""

    def __init__(self, transport: httpx.BaseTransport, seconds: float) -> None:
        self._transport = transport
        self._seconds = seconds

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Get an answer. Raise httpx.ReadTimeout if it takes too long, ValueError if it is too large or compressed."""
        # A few compressed bytes can decompress to any size. Schemas are small enough uncompressed.
        request.headers["Accept-Encoding"] = "identity"
        answer: Future[httpx.Response] = Future()

        def ask() -> None:
            try:
                answer.set_result(self._read(request))
            except BaseException as err:  # noqa: BLE001 - raised where the answer is waited for
                answer.set_exception(err)

        # A daemon thread, so that no process waits at its end for a server that never finishes.
        threading.Thread(target=ask, daemon=True).start()
        try:
            return answer.result(self._seconds)
        except FutureTimeoutError as err:
            raise httpx.ReadTimeout(f"no whole answer after {self._seconds:g} s") from err

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()

    def _read(self, request: httpx.Request) -> httpx.Response:
        """Read an answer of at most MOST_BYTES, uncompressed."""
        response = self._transport.handle_request(request)
        try:
            if response.headers.get("Content-Encoding", "identity") != "identity":
                raise ValueError("the answer is compressed, which was not asked for")
            body = bytearray()
            for part in response.iter_raw():
                body += part
                if len(body) > MOST_BYTES:
                    raise ValueError(f"the answer has more than {MOST_BYTES:,} bytes")
            return httpx.Response(response.status_code, headers=response.headers, content=bytes(body))
        finally:
            response.close()
