"""Bytes with their length before them: how a `DecidingProcess` is talked to."""

import struct
from typing import IO, Any

import pyarrow as pa

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
