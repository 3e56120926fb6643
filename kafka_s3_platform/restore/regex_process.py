"""The process that matches keys with a regular expression of Python's, which some keys may keep busy for ever.

It is asked and answers as `sql_process` is and does.
"""

import json
import re
import resource
import sys
from typing import IO, Any

import pyarrow as pa

from kafka_s3_platform.restore.frames import as_stream, received, send


def serve(source: IO[bytes], sink: IO[bytes], memory_bytes: int) -> None:
    """Answer until the source ends. The first frame is the expression, each other one a batch of keys."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # macOS has the limit by name only
    resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
    pattern = re.compile(received(source).decode())
    while frame := received(source):
        keys = pa.ipc.open_stream(frame).read_next_batch().column("key").to_pylist()
        error: str | None = None
        passing: Any = b""
        try:
            found = [_matches(pattern, key) for key in keys]
            passing = as_stream(pa.record_batch({"passes": pa.array(found, pa.bool_())}))
        except (MemoryError, RecursionError) as err:
            error = f"it needs too much memory ({type(err).__name__})"
        send(sink, json.dumps({"error": error}).encode())
        send(sink, passing)


def _matches(pattern: re.Pattern[str], key: bytes) -> bool:
    """A key that is not UTF-8 matches nothing."""
    try:
        return pattern.fullmatch(key.decode()) is not None
    except UnicodeDecodeError:
        return False


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer, int(sys.argv[1]))
