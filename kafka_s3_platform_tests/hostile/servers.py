"""Servers on 127.0.0.1 that answer what no honest one does, and what it may cost."""

import socket
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

MIB = 1 << 20


@contextmanager
def serving(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """A server on a free port, which answers each connection in a thread."""

    def serve(peer: socket.socket) -> None:
        with closing(peer):
            try:
                peer.recv(MIB)
                answer(peer)
            except OSError:
                pass

    def accept() -> None:
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=[peer], daemon=True).start()

    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        threading.Thread(target=accept, daemon=True).start()
        try:
            yield listener.getsockname()[1]
        finally:
            # to close it does not wake the thread
            listener.shutdown(socket.SHUT_RDWR)


def sends(data: bytes) -> Callable[[socket.socket], None]:
    def answer(peer: socket.socket) -> None:
        peer.sendall(data)
        peer.recv(1)

    return answer


def drips(head: bytes) -> Callable[[socket.socket], None]:
    """The beginning of an answer, and then a byte now and then without an end."""

    def answer(peer: socket.socket) -> None:
        peer.sendall(head)
        while True:
            peer.sendall(b"0")
            time.sleep(0.2)

    return answer


@contextmanager
def costing(mib: int, seconds: float) -> Iterator[None]:
    tracemalloc.start()
    # A busy machine gives a process a part of a core only.
    started, worked = time.monotonic(), time.process_time()
    try:
        yield
        assert time.process_time() - worked < seconds
        assert time.monotonic() - started < 6 * seconds
        assert tracemalloc.get_traced_memory()[1] < mib * MIB
    finally:
        tracemalloc.stop()
