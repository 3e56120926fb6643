"""The process that checks and decides a condition in DuckDB's SQL. Only this process pays for the condition's costs.

DuckDB's own limit of memory does not count texts and lists made by a function, and an interrupt waits for the end of a
function. So the operating system limits this process, and its parent ends it when its time is over.

An allowed function gives the same result for the same record, at any time, anywhere. The allowed ones are listed,
because DuckDB does not mark them: of its functions that depend on the clock, settings or random numbers, some are
macros, and some are marked as consistent. Functions that return several rows, read tables or files, or take the name of
an aggregate as text are left out too (`list_aggregate(l, 'reservoir_quantile', 0.5)` is random).
"""

import json
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import duckdb
import pyarrow as pa

from kafka_s3_platform.core.model.batches import RECORD_SCHEMA
from kafka_s3_platform.core.restore.filters.deciding import serve_decisions, write_stream

FUNCTIONS = {
    "operators": (
        "+ - * / // % ** ^ & | ~ << >> || @ @> <@ && ^@ ->> ~~ !~~ ~~* !~~* ~~~ like_escape not_like_escape "
        "ilike_escape not_ilike_escape"
    ),
    "of this project": "text header",
    "conditions": "if nullif greatest least typeof",
    "numbers": (
        "abs acos acosh add asin asinh atan atan2 atanh bit_count cbrt ceil ceiling cos cosh cot degrees divide even "
        "exp factorial fdiv floor fmod gamma gcd greatest_common_divisor isfinite isinf isnan lcm "
        "least_common_multiple lgamma ln log log10 log2 mod multiply nextafter pi pow power radians round round_even "
        "roundbankers sign signbit sin sinh sqrt subtract tan tanh trunc xor"
    ),
    "text": (
        "ascii bar bit_length char_length character_length chr concat concat_ws contains damerau_levenshtein ends_with "
        "format format_bytes formatReadableDecimalSize formatReadableSize hamming instr jaccard jaro_similarity "
        "jaro_winkler_similarity lcase left left_grapheme len length length_grapheme levenshtein lower lpad ltrim "
        "mismatches nfc_normalize ord overlay parse_dirname parse_dirpath parse_filename parse_path position prefix "
        "printf repeat replace reverse right right_grapheme rpad rtrim split split_part starts_with str_split "
        "string_split string_to_array strip_accents strlen strpos substr substring substring_grapheme suffix translate "
        "trim ucase unicode upper url_decode url_encode"
    ),
    "regular expressions": (
        "regexp_escape regexp_extract regexp_extract_all regexp_full_match regexp_matches regexp_replace "
        "regexp_split_to_array str_split_regex string_split_regex"
    ),
    "bytes": (
        "base64 bin bit_position bitstring decode encode from_base64 from_binary from_hex get_bit hex md5 md5_number "
        "md5_number_lower md5_number_upper octet_length set_bit sha1 sha256 to_base to_base64 to_binary to_hex unbin "
        "unhex"
    ),
    "times": (
        "century date_add date_diff date_part date_sub date_trunc datediff datepart datesub datetrunc day dayname "
        "dayofmonth dayofweek dayofyear days_in_month decade epoch epoch_ms epoch_ns epoch_us era hour isodow isoyear "
        "julian last_day make_date make_time make_timestamp make_timestamp_ms make_timestamp_ns make_timestamptz "
        "microsecond millennium millisecond minute month monthname nanosecond quarter second strftime strptime "
        "time_bucket timezone timezone_hour timezone_minute to_centuries to_days to_decades to_hours to_microseconds "
        "to_millennia to_milliseconds to_minutes to_months to_quarters to_seconds to_timestamp to_weeks to_years "
        "try_strptime week weekday weekofyear year yearweek"
    ),
    "JSON": (
        "array_to_json from_json from_json_strict json json_array json_array_length json_contains json_exists "
        "json_extract json_extract_path json_extract_path_text json_extract_string json_keys json_merge_patch "
        "json_object json_pretty json_quote json_structure json_transform json_transform_strict json_type json_valid "
        "json_value row_to_json to_json"
    ),
    "lists": (
        "apply array_append array_apply array_cat array_concat array_contains array_cosine_distance "
        "array_cosine_similarity array_cross_product array_distance array_distinct array_dot_product array_extract "
        "array_filter array_grade_up array_has array_has_all array_has_any array_indexof array_inner_product "
        "array_intersect array_length array_negative_dot_product array_negative_inner_product array_pop_back "
        "array_pop_front array_position array_prepend array_push_back array_push_front array_reduce array_resize "
        "array_reverse array_reverse_sort array_select array_slice array_sort array_to_string "
        "array_to_string_comma_default array_transform array_unique array_value array_where array_zip element_at "
        "filter flatten generate_series grade_up list_append list_apply list_avg list_bit_and list_bit_or list_bit_xor "
        "list_bool_and list_bool_or list_cat list_concat list_contains list_cosine_distance list_cosine_similarity "
        "list_count list_distance list_distinct list_dot_product list_element list_extract list_filter list_first "
        "list_grade_up list_has list_has_all list_has_any list_indexof list_inner_product list_intersect list_last "
        "list_max list_median list_min list_negative_dot_product list_negative_inner_product list_pack list_position "
        "list_prepend list_product list_reduce list_resize list_reverse list_reverse_sort list_select list_slice "
        "list_sort list_stddev_pop list_stddev_samp list_string_agg list_sum list_transform list_unique list_value "
        "list_var_pop list_var_samp list_where list_zip range reduce"
    ),
    "structs and maps": (
        "cardinality map map_concat map_contains map_contains_entry map_contains_value map_entries map_extract "
        "map_extract_value map_from_entries map_keys map_values row struct_concat struct_contains struct_extract "
        "struct_extract_at struct_has struct_indexof struct_insert struct_keys struct_pack struct_position "
        "struct_update struct_values union_extract union_tag union_value uuid_extract_timestamp uuid_extract_version"
    ),
}
"""The names of the allowed functions, by purpose. Operators are functions too. `docs/restore.md` lists them."""

ALLOWED = frozenset(name.lower() for names in FUNCTIONS.values() for name in names.split())


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
"""SQL writes these like columns, but they are functions of the moment or the user, even as names in a lambda."""

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
"""Functions of the clock that DuckDB does not report as such."""

TOO_MUCH_MEMORY = "it needs too much memory"

HELPERS = (
    "CREATE MACRO text(bytes) AS try(decode(bytes))",
    "CREATE MACRO header(headers, name) AS list_filter(headers, lambda each: each.key = name)[-1].value",
)
"""`text(value)`: bytes as UTF-8 text, or null if they are none. `header(headers, 'name')`: a header's last value."""

_OUT_OF_MEMORY = (MemoryError, duckdb.OutOfMemoryException, pa.ArrowMemoryError)


class UnusableError(Exception):
    """The text is no condition that can be decided for each record by itself."""


def check_shape(connection: duckdb.DuckDBPyConnection, condition: str) -> None:
    """Raise UnusableError unless the text is one condition, made of allowed parts."""
    # It is checked with and without parentheses, so that nothing can close them and go on.
    for select in (f"SELECT ({condition}\n)", f"SELECT {condition}"):
        _check_select(parse_select(connection, select))


def _check_select(tree: Mapping[str, Any]) -> None:
    """Raise UnusableError unless DuckDB's parse tree is of one condition alone, made of allowed parts."""
    node = tree["statements"][0]["node"]
    if node["type"] != "SELECT_NODE":
        raise UnusableError("it combines several statements, for example by UNION")
    clauses = [
        name for name in ("where_clause", "having", "qualify", "group_expressions", "modifiers") if node.get(name)
    ]
    if len(tree["statements"]) > 1 or clauses or node["from_table"]["type"] != "EMPTY" or len(node["select_list"]) > 1:
        raise UnusableError("it has to be a single condition, without the clauses of a statement")
    for reason in find_reasons(node["select_list"], _COLUMNS):
        raise UnusableError(f"it holds {reason}")


def parse_select(connection: duckdb.DuckDBPyConnection, select: str) -> dict[str, Any]:
    """Parse a statement with DuckDB."""
    rows = connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [select]).fetchall()
    tree: dict[str, Any] = json.loads(rows[0][0])
    if tree["error"]:
        raise UnusableError(str(tree["error_message"]))
    return tree


def find_reasons(node: Any, names: frozenset[str]) -> Iterator[str]:
    """Yield the reasons to refuse parts of a parsed expression, from the outside in. `names` are allowed in it."""
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
    """Find a lambda's parameters. DuckDB parses `value -> '$.a'` as a lambda too, whose parameter is the column."""
    is_row = lambda_head["class"] == "FUNCTION" and lambda_head["function_name"] == "row"
    several = [parameter["expression"] for parameter in lambda_head["arguments"]] if is_row else [lambda_head]
    return frozenset(
        parameter["column_names"][0].lower() for parameter in several if parameter["class"] == "COLUMN_REF"
    )


def _find_reason(expression: Mapping[str, Any], names: frozenset[str]) -> str | None:
    """Return the reason to refuse a part of an expression, or None if it is allowed. `names` are allowed in it."""
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
            return f"{name}, which is not a column of a record"
    return None


def _judge_function(name: str) -> str | None:
    """Return the reason to refuse a function, or None if it is allowed."""
    if name in ALLOWED:
        return None
    if name in _SEVERAL_ROWS:
        return f"{name}, which makes several rows from one record"
    if name in _CLOCKS or name in _list_unsteady():
        return _describe_unsteady(name)
    return f"{name}, which is not one of the functions that a condition may use (docs/restore.md lists them)"


def _describe_unsteady(name: str) -> str:
    return (
        f"{name}, whose result does not depend on the record alone: the same record must give the same result each time"
    )


@cache
def _list_unsteady() -> frozenset[str]:
    """List the functions that depend on more than their arguments, as far as DuckDB reports them."""
    with duckdb.connect(":memory:") as connection:
        rows = connection.execute(
            "SELECT DISTINCT lower(function_name) FROM duckdb_functions() WHERE function_type = 'aggregate' "
            "OR (function_type = 'scalar' AND stability <> 'CONSISTENT')"
        ).fetchall()
    return frozenset(name for (name,) in rows) | {"count_star"}


def _explain_failure(err: Exception) -> str:
    """Describe a failure of the condition itself. Raise any other failure, which ends the process."""
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

    def decide(self, batch: pa.RecordBatch) -> pa.Buffer:
        """Return the decision for each record, as an Arrow stream of one column."""
        records = self._connection.from_arrow(pa.Table.from_batches([_drop_timezone(batch)]))
        result = records.project(f"({self._condition}\n) AS passes").to_arrow_table().combine_chunks()
        passes = result.column("passes")
        if passes.type != pa.bool_():
            raise UnusableError(f"its value is {passes.type}, not a boolean")
        if len(passes) != batch.num_rows:
            raise UnusableError("it needs all records at once, but it must decide on each record by itself")
        return write_stream(result)


def _drop_timezone(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with times in UTC without a timezone. With one, DuckDB would need its extension ICU."""
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
    # Otherwise functions of a timezone would use the machine's, and two executors could decide differently.
    connection.execute("SET TimeZone = 'UTC'")
    # Last: from here on a condition cannot change a setting.
    connection.execute("SET lock_configuration = true")
    return connection


if __name__ == "__main__":
    serve_decisions(lambda text: Condition(text).decide, _explain_failure, int(sys.argv[1]))
