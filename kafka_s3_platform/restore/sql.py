"""A condition in DuckDB's SQL over the columns of a record, checked to be that and nothing else."""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, final

import duckdb
import pyarrow as pa

from kafka_s3_platform.errors import ConfigError, PermanentError
from kafka_s3_platform.model.record import RECORD_SCHEMA

OPTION = "--sql (sql)"

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


@final
class SqlCondition:
    """A condition such as `text(key) LIKE 'eu-%' AND "offset" % 10 = 0`: each record by itself decides.

    Columns are those of RECORD_SCHEMA: key and value are BLOBs, `timestamp` is a TIMESTAMP in UTC, `offset` needs its
    double quotes. It sees no files, no other tables and no clock, so that the same record gives the same answer.

    Raises:
        ConfigError: it is no such condition, or does not fit the columns.
    """

    def __init__(self, condition: str) -> None:
        self._condition = condition
        self._connection = _connection()
        _check_shape(self._connection, condition)
        try:
            passing = self._evaluated(pa.RecordBatch.from_pylist([], schema=RECORD_SCHEMA))
        except duckdb.Error as err:
            raise _unusable(condition, str(err)) from err
        if passing.type != pa.bool_():
            raise _unusable(condition, f"its value is {passing.type}, not a boolean")
        if len(passing):
            raise _unusable(condition, "it needs all records at once; each record has to decide by itself")

    def passing(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Which records it is true for. PermanentError where it fails for one of them."""
        try:
            return self._evaluated(batch)
        except duckdb.Error as err:
            offsets = batch.column("offset")
            raise PermanentError(
                f"{OPTION} {self._condition!r} failed on a record of offsets {offsets[0]} to {offsets[-1]}: {err}. "
                f"`try(...)` makes a null of what fails, which does not pass"
            ) from err

    def _evaluated(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        records = self._connection.from_arrow(pa.Table.from_batches([_columns(batch)]))
        found = records.project(f"({self._condition}\n) AS passes").to_arrow_table()
        return found.column("passes").combine_chunks()


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
    return made


def _unusable(condition: str, why: str) -> ConfigError:
    quoted = ' Write the column offset as "offset", in double quotes.' if "offset" in why.lower() else ""
    return ConfigError(f"{OPTION} {condition!r} is no condition over {', '.join(RECORD_SCHEMA.names)}: {why}.{quoted}")


def _check_shape(connection: duckdb.DuckDBPyConnection, condition: str) -> None:
    for select in (f"SELECT ({condition}\n)", f"SELECT {condition}"):
        _check_select(condition, _parsed(connection, condition, select))


def _check_select(condition: str, tree: Mapping[str, Any]) -> None:
    node = tree["statements"][0]["node"]
    clauses = [
        name for name in ("where_clause", "having", "qualify", "group_expressions", "modifiers") if node.get(name)
    ]
    if len(tree["statements"]) > 1 or clauses or node["from_table"]["type"] != "EMPTY" or len(node["select_list"]) > 1:
        raise _unusable(condition, "it is more than one condition, without clauses of a statement")
    for each in _expressions(node["select_list"]):
        if reason := _reason(each):
            raise _unusable(condition, f"it holds {reason}")


def _parsed(connection: duckdb.DuckDBPyConnection, condition: str, select: str) -> dict[str, Any]:
    found = connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [select]).fetchall()
    tree: dict[str, Any] = json.loads(found[0][0])
    if tree["error"]:
        raise _unusable(condition, str(tree["error_message"]))
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
    if kind == "FUNCTION" and expression["function_name"].lower() in _unsteady():
        return f"{expression['function_name']}, which is not a function of one record alone"
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
