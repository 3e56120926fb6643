"""The process that decides a condition in DuckDB's SQL: what the condition costs, it costs nobody else.

DuckDB's own limit of memory does not count the texts and lists that a function makes, and an interrupt waits for the
end of a function. So the operating system limits this process, and whoever asks ends it when its time is over.
"""

import sys

import duckdb
import pyarrow as pa

from kafka_s3_platform.restore.frames import Decide, as_stream, serve
from kafka_s3_platform.restore.sql_shape import UnusableError, check_shape

TOO_MUCH_MEMORY = "it needs too much memory"

HELPERS = (
    "CREATE MACRO text(bytes) AS try(decode(bytes))",
    "CREATE MACRO header(headers, name) AS list_filter(headers, lambda each: each.key = name)[-1].value",
)
"""`text(value)`: bytes as UTF-8 text, null where they are none. `header(headers, 'name')`: a header's last value."""

_OUT_OF_MEMORY = (MemoryError, duckdb.OutOfMemoryException, pa.ArrowMemoryError)


def _condition(text: str) -> Decide:
    return _Condition(text).passing


def _why(err: Exception) -> str:
    if isinstance(err, _OUT_OF_MEMORY):
        return TOO_MUCH_MEMORY
    if isinstance(err, (UnusableError, duckdb.Error, RecursionError)):
        return str(err)
    raise err


class _Condition:
    def __init__(self, condition: str) -> None:
        self._condition = condition
        self._connection = connection()
        check_shape(self._connection, condition)

    def passing(self, batch: pa.RecordBatch) -> pa.Buffer:
        """Which records it is true for, as a stream of one column."""
        records = self._connection.from_arrow(pa.Table.from_batches([_columns(batch)]))
        found = records.project(f"({self._condition}\n) AS passes").to_arrow_table().combine_chunks()
        passes = found.column("passes")
        if passes.type != pa.bool_():
            raise UnusableError(f"its value is {passes.type}, not a boolean")
        if len(passes) != batch.num_rows:
            raise UnusableError("it needs all records at once; each record has to decide by itself")
        return as_stream(found)


def _columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Times without a timezone, which need neither DuckDB's ICU nor its setting."""
    at = batch.schema.get_field_index("timestamp")
    times = batch.column(at).cast(pa.timestamp("ms"))
    return batch.set_column(at, pa.field("timestamp", times.type), times)


def connection() -> duckdb.DuckDBPyConnection:
    """DuckDB as it decides: nothing from outside, and nothing of the machine."""
    made = duckdb.connect(
        ":memory:",
        config={
            "threads": "1",
            "enable_external_access": "false",
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
        },
    )
    for helper in HELPERS:
        made.execute(helper)
    # Else what takes a timezone is of the machine that decides.
    made.execute("SET TimeZone = 'UTC'")
    made.execute("SET lock_configuration = true")
    return made


if __name__ == "__main__":
    serve(_condition, _why, int(sys.argv[1]))
