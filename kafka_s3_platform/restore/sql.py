"""A condition in DuckDB's SQL over the columns of a record, checked to be that and nothing else."""

import json
import os
import subprocess
import sys
import threading
import weakref
from contextlib import suppress
from pathlib import Path
from typing import IO, final

import pyarrow as pa

from kafka_s3_platform.errors import ConfigError, PermanentError
from kafka_s3_platform.model.record import RECORD_SCHEMA
from kafka_s3_platform.restore.sql_frames import received, send

OPTION = "--sql (sql)"

MEMORY_BYTES = 1 << 30
ROWS_AT_ONCE = 10_000
CHECK_SECONDS, ROWS_SECONDS = 20.0, 60.0
"""How long a condition may take without a record, and for `ROWS_AT_ONCE` of them."""


@final
class SqlCondition:
    """A condition such as `text(key) LIKE 'eu-%' AND "offset" % 10 = 0`: each record by itself decides.

    Columns are those of RECORD_SCHEMA: key and value are BLOBs, `timestamp` is a TIMESTAMP in UTC, `offset` needs its
    double quotes. It sees no files, no other tables and no clock, so that the same record gives the same answer. It is
    decided in a process of its own, with limits of memory and time.

    Raises:
        ConfigError: it is no such condition, does not fit the columns, or costs too much without any record.
    """

    def __init__(self, condition: str) -> None:
        self._condition = condition
        self._process = _Process(condition)
        try:
            self._process.passing(pa.RecordBatch.from_pylist([], schema=RECORD_SCHEMA), CHECK_SECONDS)
        except _FailedError as err:
            raise _unusable(condition, str(err)) from err

    def passing(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Which records it is true for. PermanentError where it fails for one of them."""
        parts = [self._passing(batch.slice(at, ROWS_AT_ONCE)) for at in range(0, batch.num_rows, ROWS_AT_ONCE)]
        return pa.concat_arrays(parts) if parts else pa.array([], pa.bool_())

    def _passing(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        try:
            return self._process.passing(batch, ROWS_SECONDS)
        except _FailedError as err:
            offsets = batch.column("offset")
            raise PermanentError(
                f"{OPTION} {self._condition!r} failed on a record of offsets {offsets[0]} to {offsets[-1]}: {err}. "
                f"`try(...)` makes a null of what fails, which does not pass"
            ) from err


class _FailedError(Exception):
    """Why there is no answer."""


class _Process:
    """The process that decides one condition. It ends with this object, and with this process at the latest."""

    def __init__(self, condition: str) -> None:
        command = [sys.executable, "-m", "kafka_s3_platform.restore.sql_process", str(MEMORY_BYTES)]
        # of this process's environment, which may hold credentials, only where modules are
        env = {"PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path)}
        self._child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env
        )
        self._close = weakref.finalize(self, _end, self._child)
        send(_pipe(self._child.stdin), condition.encode(errors="backslashreplace"))

    def passing(self, batch: pa.RecordBatch, seconds: float) -> pa.BooleanArray:
        """Which records pass. Raises _FailedError."""
        is_late = threading.Event()
        timer = threading.Timer(seconds, _give_up, (self._child, is_late))
        timer.start()
        try:
            return self._answered(batch)
        except (OSError, EOFError, json.JSONDecodeError) as err:
            self._close()
            died = f"the process that decides it ended with {self._child.returncode}"
            raise _FailedError(f"it is not decided after {seconds:g} s" if is_late.is_set() else died) from err
        finally:
            timer.cancel()

    def _answered(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        asked = pa.BufferOutputStream()
        with pa.ipc.new_stream(asked, batch.schema) as stream:
            stream.write_batch(batch)
        send(_pipe(self._child.stdin), asked.getvalue())
        answers = _pipe(self._child.stdout)
        error = json.loads(received(answers))["error"]
        found = received(answers)
        if error is not None:
            raise _FailedError(error)
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


def _unusable(condition: str, why: str) -> ConfigError:
    quoted = ' Write the column offset as "offset", in double quotes.' if "offset" in why.lower() else ""
    return ConfigError(f"{OPTION} {condition!r} is no condition over {', '.join(RECORD_SCHEMA.names)}: {why}.{quoted}")
