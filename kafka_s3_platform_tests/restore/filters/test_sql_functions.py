"""What a condition may use, held against what DuckDB has."""

import re
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from kafka_s3_platform.restore.filters.sql_process import (
    ALLOWED,
    FUNCTIONS,
    SPECIAL,
    UnusableError,
    check_shape,
    find_reasons,
    open_duckdb,
    parse_select,
)

DOCS = Path(__file__).parents[3] / "docs" / "restore.md"
OURS = {"text", "header"}


@pytest.fixture(scope="module")
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(":memory:") as connection:
        yield connection


def names(duck: duckdb.DuckDBPyConnection) -> set[str]:
    found = duck.execute("SELECT DISTINCT lower(function_name) FROM duckdb_functions()").fetchall()
    return {name for (name,) in found}


def refused(duck: duckdb.DuckDBPyConnection, condition: str) -> bool:
    try:
        check_shape(duck, condition)
    except UnusableError:
        return True
    return False


def test_every_function_of_duckdb_that_is_not_allowed_is_refused(duck: duckdb.DuckDBPyConnection) -> None:
    others = names(duck) - ALLOWED
    assert len(others) > 500
    taken = [name for name in others if not refused(duck, f'"{name}"() IS NULL')]
    as_method = [name for name in others if not refused(duck, f'key."{name}"() IS NULL')]
    assert (taken, as_method) == ([], [])
    assert not refused(duck, "upper(key) IS NULL")


def test_nothing_that_is_allowed_is_volatile_an_aggregate_or_unknown(duck: duckdb.DuckDBPyConnection) -> None:
    found = duck.execute("SELECT lower(function_name), function_type, stability FROM duckdb_functions()").fetchall()
    steady = {name for name, kind, how in found if kind == "macro" or (kind, how) == ("scalar", "CONSISTENT")}
    unsteady = {name for name, kind, how in found if kind in {"aggregate", "window"} or how not in {None, "CONSISTENT"}}
    assert ALLOWED - OURS - steady == set()
    assert ALLOWED & unsteady == set()


def test_macros_that_are_allowed_are_made_of_what_is_allowed(duck: duckdb.DuckDBPyConnection) -> None:
    """`list_aggr` apart, of aggregates that they name, which are not of chance."""
    made = duck.execute(
        "SELECT function_name, parameters, macro_definition FROM duckdb_functions() WHERE function_type = 'macro'"
    ).fetchall()
    checked = 0
    for name, parameters, definition in made:
        if name not in ALLOWED:
            continue
        known = re.sub(r"list_aggr\((.*), '(?!reservoir|approx)[a-z_]+'", r"list_concat(\1", definition)
        arguments = frozenset(p.lower() for p in parameters)
        tree = parse_select(duck, f"SELECT {known}")
        found = list(find_reasons(tree["statements"][0]["node"]["select_list"], arguments))
        assert (name, found) == (name, [])
        checked += 1
    assert checked > 30


def test_what_is_written_like_a_column_and_is_none_is_refused(duck: duckdb.DuckDBPyConnection) -> None:
    words = names(duck) | {word for (word,) in duck.execute("SELECT keyword_name FROM duckdb_keywords()").fetchall()}
    words |= SPECIAL
    special = {word for word in words if word.isidentifier() and is_value(duck, word)}
    assert special - {"true", "false", "null"} <= SPECIAL
    as_own = [word for word in SPECIAL if not refused(duck, f"list_filter([1], lambda {word}: {word} = 1) = []")]
    assert as_own == []


def is_value(duck: duckdb.DuckDBPyConnection, word: str) -> bool:
    """Whether a word alone has a value, where no table gives it one."""
    try:
        duck.execute(f"SELECT {word}")
    except duckdb.Error:
        return False
    return True


def test_conditions_are_decided_in_utc_wherever_they_are_decided() -> None:
    assert open_duckdb().execute("SELECT current_setting('TimeZone')").fetchall() == [("UTC",)]


def test_the_docs_list_what_is_allowed() -> None:
    section = DOCS.read_text().split("### By a condition")[1].split("\n### ")[0]
    told = set(re.findall(r"[a-z0-9_]+", section.lower()))
    words = {name for kind, listed in FUNCTIONS.items() if kind != "operators" for name in listed.lower().split()}
    assert words - told == set()
