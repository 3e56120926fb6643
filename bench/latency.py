"""`python -m bench.latency PORT UPSTREAM MILLISECONDS`: a TCP proxy that delays what passes, half of it each way."""

import asyncio
import sys
from functools import partial

HOST = "127.0.0.1"
_CHUNK_BYTES = 262_144


def main() -> None:
    """Serve until killed."""
    port, upstream_port, milliseconds = map(int, sys.argv[1:])
    asyncio.run(_serve(port, upstream_port, milliseconds / 2000))


async def _serve(port: int, upstream_port: int, seconds: float) -> None:
    server = await asyncio.start_server(partial(_connect, upstream_port, seconds), HOST, port)
    await server.serve_forever()


async def _connect(
    upstream_port: int, seconds: float, client: asyncio.StreamReader, to_client: asyncio.StreamWriter
) -> None:
    upstream, to_upstream = await asyncio.open_connection(HOST, upstream_port)
    await asyncio.gather(_pass_on(client, to_upstream, seconds), _pass_on(upstream, to_client, seconds))


async def _pass_on(source: asyncio.StreamReader, sink: asyncio.StreamWriter, seconds: float) -> None:
    """Send each chunk `seconds` after it came: a chunk does not wait for those before it to be sent."""
    loop = asyncio.get_running_loop()
    while data := await source.read(_CHUNK_BYTES):
        loop.call_later(seconds, sink.write, data)
    loop.call_later(seconds, sink.close)


if __name__ == "__main__":
    main()
