"""The process for a condition in DuckDB's SQL. Only this process pays for the costs of the condition.

DuckDB's own limit of memory does not count texts and lists made by a function, and an interrupt waits for the end of a
function. So the operating system limits this process, and its parent ends it when its time is over.
"""

import sys

import duckdb
import pyarrow as pa

from kafka_s3_platform.restore.filters.frames import serve_decisions, write_stream
from kafka_s3_platform.restore.filters.sql_shape import UnusableError, check_shape

TOO_MUCH_MEMORY = "it needs too much memory"

HELPERS = (
    "CREATE MACRO text(bytes) AS try(decode(bytes))",
    "CREATE MACRO header(headers, name) AS list_filter(headers, lambda each: each.key = name)[-1].value",
)
"""`text(value)`: bytes as UTF-8 text, null if they are none. `header(headers, 'name')`: a header's last value."""

_OUT_OF_MEMORY = (MemoryError, duckdb.OutOfMemoryException, pa.ArrowMemoryError)


def _explain_failure(err: Exception) -> str:
    if isinstance(err, _OUT_OF_MEMORY):
        return TOO_MUCH_MEMORY
    if isinstance(err, (UnusableError, duckdb.Error, RecursionError)):
        return str(err)
    raise err


class Condition:
    """Decides a condition in this process. Raises UnusableError or DuckDB's errors."""

    def __init__(self, condition: str) -> None:
        self._condition = condition
        self._connection = open_duckdb()
        check_shape(self._connection, condition)

    def passing(self, batch: pa.RecordBatch) -> pa.Buffer:
        """Decide for each record, as a stream of one column."""
        records = self._connection.from_arrow(pa.Table.from_batches([_drop_timezone(batch)]))
        result = records.project(f"({self._condition}\n) AS passes").to_arrow_table().combine_chunks()
        passes = result.column("passes")
        if passes.type != pa.bool_():
            raise UnusableError(f"its value is {passes.type}, not a boolean")
        if len(passes) != batch.num_rows:
            raise UnusableError("it needs all records at once; each record has to decide by itself")
        return write_stream(result)


def _drop_timezone(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Remove the timezone from times. They then need neither DuckDB's ICU nor its setting."""
    at = batch.schema.get_field_index("timestamp")
    times = batch.column(at).cast(pa.timestamp("ms"))
    return batch.set_column(at, pa.field("timestamp", times.type), times)


def open_duckdb() -> duckdb.DuckDBPyConnection:
    """Open DuckDB without access to anything outside of it."""
    connection = duckdb.connect(
        ":memory:",
        config={
            "threads": "1",
            "enable_external_access": "false",
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
        },
    )
    for helper in HELPERS:
        connection.execute(helper)
    # Otherwise functions of a timezone would use the machine's: two executors could decide differently.
    connection.execute("SET TimeZone = 'UTC'")
    # Last: from here on a condition cannot change a setting.
    connection.execute("SET lock_configuration = true")
    return connection


if __name__ == "__main__":
    serve_decisions(lambda text: Condition(text).passing, _explain_failure, int(sys.argv[1]))
