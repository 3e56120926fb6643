"""The process that matches keys with a Python regular expression, since some keys may keep it busy for ever."""

import re
import sys

import pyarrow as pa

from kafka_s3_platform.core.restore.filters.deciding import Decide, serve_decisions, write_stream


def compile_expression(text: str) -> Decide:
    """Compile a regular expression to decide about a column of keys, none of them null, in this process."""
    pattern = re.compile(text)

    def decide(batch: pa.RecordBatch) -> pa.Buffer:
        matches = [_matches(pattern, key) for key in batch.column("key").to_pylist()]
        return write_stream(pa.record_batch({"passes": pa.array(matches, pa.bool_())}))

    return decide


def _matches(pattern: re.Pattern[str], key: bytes) -> bool:
    """Match a key completely. A key that is not UTF-8 does not match."""
    try:
        return pattern.fullmatch(key.decode()) is not None
    except UnicodeDecodeError:
        return False


def _explain_failure(err: Exception) -> str:
    """Describe a failure of the expression itself. Raise any other failure, which ends the process."""
    if isinstance(err, (MemoryError, RecursionError)):
        return f"it needs too much memory ({type(err).__name__})"
    raise err


if __name__ == "__main__":
    serve_decisions(compile_expression, _explain_failure, int(sys.argv[1]))
