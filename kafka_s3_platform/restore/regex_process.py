"""The process that matches keys with a regular expression of Python's, which some keys may keep busy for ever."""

import re
import sys

import pyarrow as pa

from kafka_s3_platform.restore.frames import Decide, as_stream, serve


def _expression(text: str) -> Decide:
    pattern = re.compile(text)

    def passing(batch: pa.RecordBatch) -> pa.Buffer:
        found = [_matches(pattern, key) for key in batch.column("key").to_pylist()]
        return as_stream(pa.record_batch({"passes": pa.array(found, pa.bool_())}))

    return passing


def _matches(pattern: re.Pattern[str], key: bytes) -> bool:
    """A key that is not UTF-8 matches nothing."""
    try:
        return pattern.fullmatch(key.decode()) is not None
    except UnicodeDecodeError:
        return False


def _why(err: Exception) -> str:
    if isinstance(err, (MemoryError, RecursionError)):
        return f"it needs too much memory ({type(err).__name__})"
    raise err


if __name__ == "__main__":
    serve(_expression, _why, int(sys.argv[1]))
