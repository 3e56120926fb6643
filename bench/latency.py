"""`python -m bench.latency PORT UPSTREAM MILLISECONDS`: a TCP proxy that delays what passes, half of it each way."""

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial

HOST = "127.0.0.1"
_CHUNK_BYTES = 262_144


@contextmanager
def delayed(port: int, milliseconds: int) -> Iterator[int]:
    """Run the proxy of a server's port in a process of its own. Yield the port that it listens on."""
    with closing(socket.socket()) as free:
        free.bind((HOST, 0))
        own: int = free.getsockname()[1]
    run = ["setpriv", "--pdeathsig", "KILL", sys.executable, "-m", "bench.latency"]
    command = [*run, str(own), str(port), str(milliseconds)]
    with subprocess.Popen(command) as proxy:
        try:
            _await_port(own)
            yield own
        finally:
            proxy.terminate()


def _await_port(port: int) -> None:
    for _ in range(100):
        with closing(socket.socket()) as probe:
            if probe.connect_ex((HOST, port)) == 0:
                return
        time.sleep(0.1)
    raise RuntimeError(f"the proxy does not listen on port {port}")


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
