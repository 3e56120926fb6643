"""Frames: bytes after their length. A `DecidingProcess` gets its questions and gives its answers in them."""

import json
import resource
import struct
import sys
from collections.abc import Callable
from typing import IO, Any

import pyarrow as pa

from kafka_s3_platform.model.connect import cut_reason

Decide = Callable[[pa.RecordBatch], pa.Buffer]
"""Decides about the records of a batch. The result is a stream of one column, `passes`."""

_LENGTH = struct.Struct(">Q")


def send_frame(sink: IO[bytes], frame: Any) -> None:
    """Send a frame: bytes, or Arrow's buffer of them. Raises OSError if nobody reads."""
    sink.write(_LENGTH.pack(memoryview(frame).nbytes))
    sink.write(memoryview(frame))
    sink.flush()


def write_stream(records: pa.RecordBatch | pa.Table) -> pa.Buffer:
    """Write these records as an IPC stream of Arrow."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, records.schema) as stream:
        stream.write(records)
    return sink.getvalue()


def read_frame(source: IO[bytes]) -> bytes:
    """Read the next frame, empty at the end. Raises EOFError if the source ends within a frame."""
    head = source.read(_LENGTH.size)
    if not head:
        return b""
    size = _LENGTH.unpack(head)[0] if len(head) == _LENGTH.size else -1
    frame = source.read(size) if size >= 0 else b""
    if len(frame) != size:
        raise EOFError
    return frame


def serve_decisions(condition: Callable[[str], Decide], why: Callable[[Exception], str], memory_bytes: int) -> None:
    """Decide for the parent process, by Arrow IPC streams of one batch each, until they end.

    The first frame is the text of a `condition`, compiled when the first batch comes. The answer to a batch is two
    frames: JSON with an error or null, and the decisions. `why` describes a failure, or raises it, which ends the
    process.
    """
    source = sys.stdin.buffer
    sink = sys.stdout.buffer
    # No core dump: it would write the records of the process to the disk.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # On macOS this limit has a name but no effect.
    resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
    text = read_frame(source).decode()
    decide: Decide | None = None
    while frame := read_frame(source):
        error: str | None = None
        passing: Any = b""
        try:
            decide = decide or condition(text)
            passing = decide(pa.ipc.open_stream(frame).read_next_batch())
        except Exception as err:  # noqa: BLE001 - `why` raises what it does not know
            error = cut_reason(why(err))
        send_frame(sink, json.dumps({"error": error}).encode())
        send_frame(sink, passing)
