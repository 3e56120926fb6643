"""The process that decides a condition in DuckDB's SQL: what the condition costs, it costs nobody else.

DuckDB's own limit of memory does not count the texts and lists that a function makes, and an interrupt waits for the
end of a function. So the operating system limits this process, and whoever asks ends it when its time is over.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import duckdb
import pyarrow as pa

from kafka_s3_platform.restore.frames import Decide, as_stream, serve

TOO_MUCH_MEMORY = "it needs too much memory"

HELPERS = (
    "CREATE MACRO text(bytes) AS try(decode(bytes))",
    "CREATE MACRO header(headers, name) AS list_filter(headers, lambda each: each.key = name)[-1].value",
)
"""`text(value)`: bytes as UTF-8 text, null where they are none. `header(headers, 'name')`: a header's last value."""

_FORBIDDEN = {
    "SUBQUERY": "a subquery",
    "WINDOW": "a window function",
    "STAR": "a star",
    "PARAMETER": "a parameter",
    "DEFAULT": "DEFAULT",
}
_SPECIAL = frozenset(
    {
        "current_timestamp",
        "localtimestamp",
        "current_time",
        "localtime",
        "current_date",
        "current_user",
        "session_user",
        "user",
        "current_role",
        "current_catalog",
        "current_schema",
    }
)
"""What SQL writes like a column and is a function of the moment or of who asks."""


_SEVERAL_ROWS = frozenset({"unnest", "unlist"})
_OUT_OF_MEMORY = (MemoryError, duckdb.OutOfMemoryException, pa.ArrowMemoryError)


class UnusableError(Exception):
    """It is no condition that each record decides by itself."""


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
        self._connection = _connection()
        _check_shape(self._connection, condition)

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


def _connection() -> duckdb.DuckDBPyConnection:
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
    made.execute("SET lock_configuration = true")
    return made


def _check_shape(connection: duckdb.DuckDBPyConnection, condition: str) -> None:
    for select in (f"SELECT ({condition}\n)", f"SELECT {condition}"):
        _check_select(_parsed(connection, select))


def _check_select(tree: Mapping[str, Any]) -> None:
    node = tree["statements"][0]["node"]
    clauses = [
        name for name in ("where_clause", "having", "qualify", "group_expressions", "modifiers") if node.get(name)
    ]
    if len(tree["statements"]) > 1 or clauses or node["from_table"]["type"] != "EMPTY" or len(node["select_list"]) > 1:
        raise UnusableError("it is more than one condition, without clauses of a statement")
    for each in _expressions(node["select_list"]):
        if reason := _reason(each):
            raise UnusableError(f"it holds {reason}")


def _parsed(connection: duckdb.DuckDBPyConnection, select: str) -> dict[str, Any]:
    found = connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [select]).fetchall()
    tree: dict[str, Any] = json.loads(found[0][0])
    if tree["error"]:
        raise UnusableError(str(tree["error_message"]))
    return tree


def _expressions(node: Any) -> Iterator[Mapping[str, Any]]:
    """Every expression of a parsed statement, from the outside in."""
    if isinstance(node, list):
        for each in node:
            yield from _expressions(each)
    elif isinstance(node, dict):
        if "class" in node:
            yield node
        for each in node.values():
            yield from _expressions(each)


def _reason(expression: Mapping[str, Any]) -> str | None:
    kind = expression["class"]
    if kind in _FORBIDDEN:
        return _FORBIDDEN[kind]
    name = str(expression.get("function_name", "")).lower()
    if kind == "FUNCTION" and name in _SEVERAL_ROWS:
        return f"{name}, which makes several rows of one record"
    if kind == "FUNCTION" and name in _unsteady():
        return f"{name}, which is not a function of one record alone"
    names = [name.lower() for name in expression.get("column_names", ())]
    if kind == "COLUMN_REF" and names[0] in _SPECIAL:
        return f"{names[0]}, which is not a function of one record alone"
    return None


@cache
def _unsteady() -> frozenset[str]:
    """Functions of DuckDB that see more than their arguments."""
    with duckdb.connect(":memory:") as connection:
        rows = connection.execute(
            "SELECT DISTINCT lower(function_name) FROM duckdb_functions() WHERE function_type = 'aggregate' "
            "OR (function_type = 'scalar' AND stability <> 'CONSISTENT')"
        ).fetchall()
    # Aggregates that are scalar functions too, of lists.
    return frozenset(name for (name,) in rows) | {"count_star"}


if __name__ == "__main__":
    serve(_condition, _why, int(sys.argv[1]))
