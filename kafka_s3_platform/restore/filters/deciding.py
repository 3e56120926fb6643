"""A separate process decides about records. If it exceeds memory or time, only this process ends."""

import json
import subprocess
import sys
import threading
import weakref
from contextlib import suppress
from typing import IO

import pyarrow as pa

from kafka_s3_platform import interpreter
from kafka_s3_platform.restore.filters.frames import read_frame, send_frame, write_stream

MEMORY_BYTES = 1 << 30
"""The memory of the process. A condition with more needs ends the process, not the task."""

CHECK_SECONDS = 20.0
"""Longest check of a condition, without any record. It includes the start of the process."""

ROWS_AT_ONCE = 10_000
ROWS_SECONDS = 60.0
"""Longest time to decide `ROWS_AT_ONCE` records."""


class FailedError(Exception):
    """There is no answer. The message has the reason."""


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

    def passing(self, batch: pa.RecordBatch, seconds: float) -> pa.BooleanArray:
        """Ask for the passing records. Raises FailedError."""
        is_late = threading.Event()
        timer = threading.Timer(seconds, _kill_late, (self._child, is_late))
        timer.start()
        try:
            return self._answered(batch)
        except (OSError, EOFError, json.JSONDecodeError) as err:
            self._close()
            died = f"the process that decides it ended with {self._child.returncode}"
            raise FailedError(f"it is not decided after {seconds:g} s" if is_late.is_set() else died) from err
        finally:
            timer.cancel()

    def _answered(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        send_frame(_require_pipe(self._child.stdin), write_stream(batch))
        answers = _require_pipe(self._child.stdout)
        error = json.loads(read_frame(answers))["error"]
        stream = read_frame(answers)
        if error is not None:
            raise FailedError(error)
        return pa.ipc.open_stream(stream).read_all().column("passes").combine_chunks()


def _require_pipe(end: IO[bytes] | None) -> IO[bytes]:
    if end is None:
        raise ValueError("the process was started without pipes")
    return end


def _kill_late(child: "subprocess.Popen[bytes]", is_late: threading.Event) -> None:
    is_late.set()
    child.kill()


def _end_child(child: "subprocess.Popen[bytes]") -> None:
    child.kill()
    for pipe in (child.stdin, child.stdout):
        with suppress(OSError):
            _require_pipe(pipe).close()
    child.wait()
