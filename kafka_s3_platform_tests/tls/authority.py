"""A private certificate authority, and what it issues for the tests' servers and clients.

At the token endpoint of OAuth 2 whoever asks gets an unsigned token of that name, as Kafka's test handler wants.

Takes TLS off in front of a server that has none.
"""

import asyncio
import base64
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

import trustme
from cryptography.hazmat.primitives import serialization

from kafka_s3_platform_tests.store.http_proxy import HttpAnswer, HttpRequest, HttpServer

_LONG_AGO, _AGO = (datetime(year, 1, 1, tzinfo=timezone.utc) for year in (2020, 2021))


@dataclass(frozen=True)
class Identity:
    """PEM files: the certificate with its chain, its private key (PKCS 8), and both in one."""

    certificate: Path
    key: Path
    both: Path


@dataclass(frozen=True)
class Authority:
    """`ca` is its own certificate. The server is 127.0.0.1; the clients' common names are `alice` and `bob`.

    `expired` was that server's; `elsewhere` is another server's.
    """

    ca: Path
    server: Identity
    client: Identity
    bob: Identity
    expired: Identity
    elsewhere: Identity


def new_authority(folder: Path) -> Authority:
    """An authority nobody else trusts, with its files in `folder`."""
    made = trustme.CA()
    ca = folder / "ca.pem"
    made.cert_pem.write_to_path(str(ca))
    server = made.issue_cert("127.0.0.1")
    return Authority(
        ca,
        _written(folder, "server", server),
        _written(folder, "client", made.issue_cert("alice@example.com", common_name="alice")),
        _written(folder, "bob", made.issue_cert("bob@example.com", common_name="bob")),
        _written(folder, "expired", made.issue_cert("127.0.0.1", not_before=_LONG_AGO, not_after=_AGO)),
        _written(folder, "elsewhere", made.issue_cert("elsewhere.example.com")),
    )


def _written(folder: Path, name: str, issued: trustme.LeafCert) -> Identity:
    found = Identity(folder / f"{name}.crt", folder / f"{name}.key", folder / f"{name}.pem")
    chain = b"".join(part.bytes() for part in issued.cert_chain_pems)
    # Kafka's brokers read no other form of private keys.
    key = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    found.certificate.write_bytes(chain)
    found.key.write_bytes(key)
    found.both.write_bytes(key + chain)
    return found


class TokenEndpoint(HttpServer):
    def answer(self, request: HttpRequest) -> HttpAnswer:
        user = base64.b64decode(request.headers["authorization"].removeprefix("Basic ")).decode().partition(":")[0]
        token = {"access_token": unsigned(user), "token_type": "Bearer", "expires_in": 300}
        return HttpAnswer(200, (("Content-Type", "application/json"),), json.dumps(token).encode())


def unsigned(user: str) -> str:
    """A JSON web token of RFC 7519 without a signature."""
    now = int(time.time())
    claims = {"sub": user, "iat": now, "exp": now + 300, "scope": ["any"]}
    return ".".join([_encoded({"alg": "none", "typ": "JWT"}), _encoded(claims), ""])


def _encoded(part: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()


_CHUNK = 65_536


@contextmanager
def tls_before(port: int, identity: Identity) -> Iterator[int]:
    """A port of 127.0.0.1 that hands all it gets over TLS to `port`, and back."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(identity.certificate, identity.key)
    started: Future[tuple[int, Callable[[], object]]] = Future()
    thread = threading.Thread(target=lambda: asyncio.run(_serve(port, context, started)), daemon=True)
    thread.start()
    own, stop = started.result()
    try:
        yield own
    finally:
        stop()
        thread.join()


async def _serve(port: int, context: ssl.SSLContext, started: "Future[tuple[int, Callable[[], object]]]") -> None:
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    async with await asyncio.start_server(partial(_joined, port), "127.0.0.1", 0, ssl=context) as server:
        started.set_result((server.sockets[0].getsockname()[1], lambda: loop.call_soon_threadsafe(ended.set)))
        await ended.wait()


async def _joined(port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    there_reader, there_writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        await asyncio.gather(_pumped(reader, there_writer), _pumped(there_reader, writer))
    except asyncio.CancelledError:
        # The test is over, and its client has not closed the connection.
        writer.transport.abort()
        there_writer.transport.abort()


async def _pumped(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """Until one side ends, or breaks off."""
    with suppress(ConnectionError, ssl.SSLError), closing(sink):
        while chunk := await source.read(_CHUNK):
            sink.write(chunk)
            await sink.drain()
