"""A process of its own that decides which records pass: its limits of memory and time end it, and nothing else."""

import json
import os
import subprocess
import sys
import threading
import weakref
from contextlib import suppress
from pathlib import Path
from typing import IO

import pyarrow as pa

from kafka_s3_platform.restore.frames import as_stream, received, send

MEMORY_BYTES = 1 << 30
ROWS_AT_ONCE = 10_000
CHECK_SECONDS, ROWS_SECONDS = 20.0, 60.0
"""How long it may take without a record, and for `ROWS_AT_ONCE` of them."""


class FailedError(Exception):
    """Why there is no answer."""


class DecidingProcess:
    """A process that runs `module` for one `condition`. It ends with this object, with this process at the latest."""

    def __init__(self, module: str, condition: str) -> None:
        command = [sys.executable, "-m", module, str(MEMORY_BYTES)]
        # of this process's environment, which may hold credentials, only where modules are
        env = {"PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path)}
        self._child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env
        )
        self._close = weakref.finalize(self, _end, self._child)
        send(_pipe(self._child.stdin), condition.encode(errors="backslashreplace"))

    def passing(self, batch: pa.RecordBatch, seconds: float) -> pa.BooleanArray:
        """Which records pass. Raises FailedError."""
        is_late = threading.Event()
        timer = threading.Timer(seconds, _give_up, (self._child, is_late))
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
        send(_pipe(self._child.stdin), as_stream(batch))
        answers = _pipe(self._child.stdout)
        error = json.loads(received(answers))["error"]
        found = received(answers)
        if error is not None:
            raise FailedError(error)
        return pa.ipc.open_stream(found).read_all().column("passes").combine_chunks()


def _pipe(end: IO[bytes] | None) -> IO[bytes]:
    if end is None:
        raise ValueError("the process was started without pipes")
    return end


def _give_up(child: "subprocess.Popen[bytes]", is_late: threading.Event) -> None:
    is_late.set()
    child.kill()


def _end(child: "subprocess.Popen[bytes]") -> None:
    child.kill()
    for pipe in (child.stdin, child.stdout):
        with suppress(OSError):
            _pipe(pipe).close()
    child.wait()
