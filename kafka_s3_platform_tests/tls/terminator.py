"""Takes TLS off in front of a server that has none."""

import asyncio
import ssl
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager, suppress
from functools import partial

from kafka_s3_platform_tests.tls.authority import Identity

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
