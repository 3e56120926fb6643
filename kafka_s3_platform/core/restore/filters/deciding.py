"""Decides about records in a separate process. If the process exceeds its memory or time, it ends, but not the task.

Questions and answers are frames: bytes after their length.
"""

import json
import resource
import struct
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import IO, Any

import pyarrow as pa

from kafka_s3_platform.core import interpreter
from kafka_s3_platform.core.model.connect import cut_reason

Decide = Callable[[pa.RecordBatch], pa.Buffer]
"""Decides about the records of a batch. The result is an Arrow stream that has one column, `passes`."""

_LENGTH = struct.Struct(">Q")

MEMORY_BYTES = 1 << 30
"""The memory of the process. A condition that needs more ends the process, not the task."""

CHECK_SECONDS = 20.0
"""The longest check of a condition, without any record. It includes the start of the process."""

ROWS_AT_ONCE = 10_000

ROWS_SECONDS = 60.0
"""The longest time for deciding about `ROWS_AT_ONCE` records."""


def send_frame(sink: IO[bytes], frame: Any) -> None:
    """Send a frame (bytes, or an Arrow buffer). Raises OSError if nobody reads it."""
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
    """Read the next frame, or an empty one at the end. Raises EOFError if the source ends within a frame."""
    head = source.read(_LENGTH.size)
    if not head:
        return b""
    size = _LENGTH.unpack(head)[0] if len(head) == _LENGTH.size else -1
    frame = source.read(size) if size >= 0 else b""
    if len(frame) != size:
        raise EOFError
    return frame


def serve_decisions(condition: Callable[[str], Decide], why: Callable[[Exception], str], memory_bytes: int) -> None:
    """Decide for the parent process, which sends Arrow IPC streams of one batch each, until they end.

    The first frame is the text of a `condition`, compiled when the first batch comes. The answer to a batch is two
    frames: JSON with an error or null, and the decisions. `why` describes a failure, or raises it to end the process.
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
        passes: Any = b""
        try:
            decide = decide or condition(text)
            passes = decide(pa.ipc.open_stream(frame).read_next_batch())
        except Exception as err:  # noqa: BLE001 - `why` raises what it does not know
            error = cut_reason(why(err))
        send_frame(sink, json.dumps({"error": error}).encode())
        send_frame(sink, passes)


class FailedError(Exception):
    """The process gives no answer. The message has the reason."""


class DecidingProcess:
    """Runs `module` in a process, for one `condition`. The process ends with this object, or with its parent."""

    def __init__(self, module: str, condition: str) -> None:
        command = [sys.executable, "-m", module, str(MEMORY_BYTES)]
        self._child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=interpreter.FOLDER,
            env=interpreter.build_environment(),
        )
        self._close = weakref.finalize(self, _end_child, self._child)
        send_frame(_require_pipe(self._child.stdin), condition.encode(errors="backslashreplace"))

    def decide(self, batch: pa.RecordBatch, seconds: float) -> pa.BooleanArray:
        """Return the process's decisions on a batch. Raises FailedError if it fails or takes longer than `seconds`."""
        is_late = threading.Event()
        timer = threading.Timer(seconds, _kill_late, (self._child, is_late))
        timer.start()
        try:
            return self._exchange(batch)
        except (OSError, EOFError, json.JSONDecodeError) as err:
            self._close()
            died = f"the process that evaluates it ended with exit status {self._child.returncode}"
            raise FailedError(f"it was not evaluated within {seconds:g} s" if is_late.is_set() else died) from err
        finally:
            timer.cancel()

    def _exchange(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Send a batch, and read the answer. Raises FailedError if the process answers with a reason."""
        send_frame(_require_pipe(self._child.stdin), write_stream(batch))
        answers = _require_pipe(self._child.stdout)
        error = json.loads(read_frame(answers))["error"]
        stream = read_frame(answers)
        if error is not None:
            raise FailedError(error)
        return pa.ipc.open_stream(stream).read_all().column("passes").combine_chunks()


def _require_pipe(end: IO[bytes] | None) -> IO[bytes]:
    """Return the end of a pipe, which `Popen` leaves out only for a process without pipes."""
    if end is None:
        raise ValueError("the process was started without pipes")
    return end


def _kill_late(child: "subprocess.Popen[bytes]", is_late: threading.Event) -> None:
    """End a late process, and note this."""
    is_late.set()
    child.kill()


def _end_child(child: "subprocess.Popen[bytes]") -> None:
    """End a process, close its pipes, and wait for its end."""
    child.kill()
    for pipe in (child.stdin, child.stdout):
        with suppress(OSError):
            _require_pipe(pipe).close()
    child.wait()
