"""Checks the parts of a condition in DuckDB's SQL, as parsed by DuckDB."""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import duckdb

from kafka_s3_platform.model.record import RECORD_SCHEMA
from kafka_s3_platform.restore.filters.sql_functions import ALLOWED

_EXPRESSIONS = frozenset(
    {
        "BETWEEN",
        "CASE",
        "CAST",
        "COLLATE",
        "COLUMN_REF",
        "COMPARISON",
        "CONJUNCTION",
        "CONSTANT",
        "FUNCTION",
        "LAMBDA",
        "OPERATOR",
        "TYPE",
    }
)
_REFUSED = {
    "SUBQUERY": "a subquery",
    "WINDOW": "a window function",
    "STAR": "a star",
    "PARAMETER": "a parameter",
    "DEFAULT": "DEFAULT",
}
_COLUMNS = frozenset(name.lower() for name in RECORD_SCHEMA.names)
SPECIAL = frozenset(
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
"""SQL writes these like columns, but they are functions of the moment or the user, even if a lambda has such a name."""

_SEVERAL_ROWS = frozenset({"unnest", "unlist", "generate_subscripts", "regexp_split_to_table"})
_CLOCKS = frozenset(
    {
        "age",
        "ago",
        "current_localtime",
        "current_localtimestamp",
        "pg_conf_load_time",
        "pg_postmaster_start_time",
    }
)
"""Functions of the clock not reported as such by DuckDB."""


class UnusableError(Exception):
    """It is no condition on each record by itself."""


def check_shape(connection: duckdb.DuckDBPyConnection, condition: str) -> None:
    """Raise UnusableError if it is anything but one condition, or uses anything else than allowed parts."""
    # Both ways: with and without parentheses, so that nothing can close them and go on.
    for select in (f"SELECT ({condition}\n)", f"SELECT {condition}"):
        _check_select(parse_select(connection, select))


def _check_select(tree: Mapping[str, Any]) -> None:
    node = tree["statements"][0]["node"]
    if node["type"] != "SELECT_NODE":
        raise UnusableError("it is several statements in one, such as by UNION")
    clauses = [
        name for name in ("where_clause", "having", "qualify", "group_expressions", "modifiers") if node.get(name)
    ]
    if len(tree["statements"]) > 1 or clauses or node["from_table"]["type"] != "EMPTY" or len(node["select_list"]) > 1:
        raise UnusableError("it is more than one condition, without clauses of a statement")
    for reason in find_reasons(node["select_list"], _COLUMNS):
        raise UnusableError(f"it holds {reason}")


def parse_select(connection: duckdb.DuckDBPyConnection, select: str) -> dict[str, Any]:
    """Parse a statement by DuckDB."""
    rows = connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [select]).fetchall()
    tree: dict[str, Any] = json.loads(rows[0][0])
    if tree["error"]:
        raise UnusableError(str(tree["error_message"]))
    return tree


def find_reasons(node: Any, names: frozenset[str]) -> Iterator[str]:
    """Yield the reasons to refuse parts of a parsed expression, from the outside in. It may refer to `names`."""
    if isinstance(node, list):
        for child in node:
            yield from find_reasons(child, names)
    elif isinstance(node, dict):
        if node.get("class") == "LAMBDA":
            names |= _find_parameters(node["lhs"])
        if "class" in node and (reason := _find_reason(node, names)):
            yield reason
        for child in node.values():
            yield from find_reasons(child, names)


def _find_parameters(lambda_head: Mapping[str, Any]) -> frozenset[str]:
    """Find the parameters of a lambda. DuckDB parses `value -> '$.a'` as a lambda too: there it is the column."""
    is_row = lambda_head["class"] == "FUNCTION" and lambda_head["function_name"] == "row"
    several = [parameter["expression"] for parameter in lambda_head["arguments"]] if is_row else [lambda_head]
    return frozenset(
        parameter["column_names"][0].lower() for parameter in several if parameter["class"] == "COLUMN_REF"
    )


def _find_reason(expression: Mapping[str, Any], names: frozenset[str]) -> str | None:
    kind: str = expression["class"]
    if kind not in _EXPRESSIONS:
        return _REFUSED.get(kind, kind)
    if kind == "FUNCTION":
        return _judge_function(str(expression["function_name"]).lower())
    if kind == "COLUMN_REF":
        name = str(expression["column_names"][0]).lower()
        if name in SPECIAL:
            return _describe_unsteady(name)
        if name not in names:
            return f"{name}, which is no column of a record"
    return None


def _judge_function(name: str) -> str | None:
    if name in ALLOWED:
        return None
    if name in _SEVERAL_ROWS:
        return f"{name}, which makes several rows of one record"
    if name in _CLOCKS or name in _list_unsteady():
        return _describe_unsteady(name)
    return f"{name}, which is none of the functions that a condition may use (docs/restore.md lists them)"


def _describe_unsteady(name: str) -> str:
    return f"{name}, which is not a function of one record alone: the same record has to give the same each time"


@cache
def _list_unsteady() -> frozenset[str]:
    """List the functions that see more than their arguments, as far as DuckDB reports them."""
    with duckdb.connect(":memory:") as connection:
        rows = connection.execute(
            "SELECT DISTINCT lower(function_name) FROM duckdb_functions() WHERE function_type = 'aggregate' "
            "OR (function_type = 'scalar' AND stability <> 'CONSISTENT')"
        ).fetchall()
    return frozenset(name for (name,) in rows) | {"count_star"}
