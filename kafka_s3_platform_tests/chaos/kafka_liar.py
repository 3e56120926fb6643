"""A TCP proxy before one broker that rewrites chosen answers. The protocol's schemas are kafka-python's.

All traffic goes through it: wherever the broker names an address, the proxy's is put instead. ApiVersions answers are
trimmed to what is understood here; what is not rewritten passes byte for byte.
"""

import socket
import socketserver
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from kafka_s3_platform_tests.chaos.lies import (
    API_VERSIONS,
    DESCRIBE_CLUSTER,
    FETCH,
    FIND_COORDINATOR,
    MESSAGES,
    METADATA,
    OFFSET_FETCH,
    PRODUCE,
    Liar,
)
from kafka_s3_platform_tests.store.http_proxy import running

_LATEST = {key: response.max_version for key, (_, response) in MESSAGES.items()} | {
    PRODUCE: 12,  # later ones name topics by their ids
    FETCH: 12,  # likewise
    OFFSET_FETCH: 9,  # likewise
}
_ADDRESSING = frozenset({METADATA, FIND_COORDINATOR, DESCRIBE_CLUSTER, API_VERSIONS})
_LIMIT_SECONDS = 120.0


@dataclass(frozen=True)
class Asked:
    """A decoded request and its api key."""

    api: int
    request: Any


KafkaLies = Liar[Asked, Any]


class KafkaLiar(socketserver.ThreadingTCPServer):
    """Serves for the broker at `upstream` (host:port), and says what `liar` makes of its answers."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, upstream: str, liar: KafkaLies) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        host, _, port = upstream.rpartition(":")
        self.upstream = (host, int(port))
        self.liar = liar

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away in the middle is none of ours."""

    def rewritten(self, request: bytes, answer: bytes) -> bytes:
        """The answer as it is passed on, both without their frames' lengths."""
        api, version = struct.unpack_from(">hh", request)
        if api not in MESSAGES or (api not in _ADDRESSING and not self.liar.lies):
            return answer
        asking, answering = MESSAGES[api]
        said = answering[version].decode(answer, header=True)
        self._name_ourselves(api, said)
        if self.liar.lies and api != API_VERSIONS:
            said = self.liar.said(Asked(api, asking[version].decode(request, header=True)), said)
        return bytes(said.encode(header=True))

    def _name_ourselves(self, api: int, said: Any) -> None:
        host, port = "127.0.0.1", self.server_address[1]
        if api in {METADATA, DESCRIBE_CLUSTER}:
            for broker in said.brokers:
                broker.host, broker.port = host, port
        elif api == FIND_COORDINATOR:
            for named in said.coordinators or [said]:
                named.host, named.port = host, port
        elif api == API_VERSIONS:
            for known in said.api_keys:
                known.max_version = min(known.max_version, _LATEST.get(known.api_key, known.max_version))


class _Connection(socketserver.BaseRequestHandler):
    """One client, and a connection to the broker for it. Brokers answer in order, so requests are passed one by one."""

    server: KafkaLiar

    def handle(self) -> None:
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with socket.create_connection(self.server.upstream, _LIMIT_SECONDS) as broker, suppress(OSError):
            broker.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while (request := _received(self.request)) is not None:
                broker.sendall(_framed(request))
                answer = _received(broker)
                if answer is None:
                    return
                self.request.sendall(_framed(self.server.rewritten(request, answer)))


def _framed(message: bytes) -> bytes:
    return struct.pack(">i", len(message)) + message


def _received(connection: socket.socket) -> bytes | None:
    head = _read(connection, 4)
    return None if head is None else _read(connection, struct.unpack(">i", head)[0])


def _read(connection: socket.socket, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            return None
        data += part
    return bytes(data)


@contextmanager
def lying_broker(upstream: str, liar: KafkaLies) -> Iterator[KafkaLiar]:
    """A running proxy before the broker at `upstream`."""
    with running(KafkaLiar(upstream, liar)) as server:
        yield server
