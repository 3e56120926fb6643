"""Bytes with their length before them: how a `DecidingProcess` is talked to, and how it answers."""

import json
import resource
import struct
import sys
from collections.abc import Callable
from typing import IO, Any

import pyarrow as pa

Decide = Callable[[pa.RecordBatch], pa.Buffer]
"""Which records of a batch pass: a stream of one column, `passes`."""

_LENGTH = struct.Struct(">Q")


def send(sink: IO[bytes], frame: Any) -> None:
    """`frame` is bytes, or Arrow's buffer of them. Raises OSError where nobody reads."""
    sink.write(_LENGTH.pack(memoryview(frame).nbytes))
    sink.write(memoryview(frame))
    sink.flush()


def as_stream(found: pa.RecordBatch | pa.Table) -> pa.Buffer:
    """A frame of Arrow's: an IPC stream of these records."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, found.schema) as stream:
        stream.write(found)
    return sink.getvalue()


def received(source: IO[bytes]) -> bytes:
    """The next frame; empty at the end. Raises EOFError where it ends within a frame."""
    head = source.read(_LENGTH.size)
    if not head:
        return b""
    size = _LENGTH.unpack(head)[0] if len(head) == _LENGTH.size else -1
    frame = source.read(size) if size >= 0 else b""
    if len(frame) != size:
        raise EOFError
    return frame


def serve(condition: Callable[[str], Decide], why: Callable[[Exception], str], memory_bytes: int) -> None:
    """Decide for whoever started this process, by Arrow IPC streams of one batch each, until they end.

    The first frame is the text of a `condition`, which is made when the first batch comes. The answer to a batch is two
    frames: JSON with an error or null, and what passes. `why` tells of a failure, or raises it, which ends the process.
    """
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # macOS has the limit by name only
    resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
    text = received(source).decode()
    decide: Decide | None = None
    while frame := received(source):
        error: str | None = None
        passing: Any = b""
        try:
            decide = decide or condition(text)
            passing = decide(pa.ipc.open_stream(frame).read_next_batch())
        except Exception as err:  # noqa: BLE001 - `why` raises what it does not know
            error = why(err)
        send(sink, json.dumps({"error": error}).encode())
        send(sink, passing)
