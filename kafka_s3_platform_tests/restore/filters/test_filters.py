"""Which records pass: the same as in plain Python, and nothing starts with a filter that cannot be used.

What a condition may use, held against what DuckDB has.
"""

import gc
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_s3_platform.core.errors import ConfigError, IntegrityError, PermanentError
from kafka_s3_platform.core.restore.filters.regex_process import compile_expression
from kafka_s3_platform.core.restore.filters.sql_process import (
    ALLOWED,
    FUNCTIONS,
    SPECIAL,
    Condition,
    UnusableError,
    check_shape,
    find_reasons,
    open_duckdb,
    parse_select,
)
from kafka_s3_platform.core.restore.filters.stage import (
    FilteredStream,
    SqlCondition,
    check_filter,
    is_filtered,
)
from kafka_s3_platform.core.restore.request import RecordFilter
from kafka_s3_platform_tests.restore.records import SOME_KEY, STREAMS, batch_of, offsets_of, rows_of, stream_of

OWN = "kafka_s3_platform_tests"
THIS = f"{OWN}.restore.filters.test_filters"
SOME_KEYS = st.lists(SOME_KEY, max_size=3).map(tuple)
not_a_function = 7


def even_offsets(batch: pa.RecordBatch) -> pa.BooleanArray:
    return pc.equal(pc.bit_wise_and(batch.column("offset"), 1), 0)


def as_a_list(batch: pa.RecordBatch) -> list[bool]:
    return [True] * batch.num_rows


def one_too_few(batch: pa.RecordBatch) -> pa.BooleanArray:
    return pa.array([True] * max(batch.num_rows - 1, 0), pa.bool_())


def fails_on_records(batch: pa.RecordBatch) -> pa.BooleanArray:
    if batch.num_rows:
        raise ValueError("no such field")
    return pa.array([], pa.bool_())


def fails_always(batch: pa.RecordBatch) -> pa.BooleanArray:
    raise ValueError(f"{batch.num_rows} records")


@settings(deadline=None, max_examples=30)
@given(STREAMS, SOME_KEYS, SOME_KEYS)
def test_keys_pass_that_are_named_or_begin_so(
    batches: Any, keys: tuple[bytes, ...], prefixes: tuple[bytes, ...]
) -> None:
    check_keys(batches, keys, prefixes, None)


@settings(deadline=None, max_examples=8)  # each starts a process
@given(STREAMS, SOME_KEYS, SOME_KEYS, st.sampled_from(["eu-.*", "a", "é", "(?i)A"]))
def test_keys_pass_that_match_as_a_whole_too(
    batches: Any, keys: tuple[bytes, ...], prefixes: tuple[bytes, ...], regex: str
) -> None:
    check_keys(batches, keys, prefixes, regex)


def check_keys(batches: Any, keys: tuple[bytes, ...], prefixes: tuple[bytes, ...], regex: str | None) -> None:
    def passes(key: bytes | None) -> bool:
        if not keys and not prefixes and regex is None:
            return True
        if key is None:
            return False
        text = key.decode(errors="ignore") if key != b"\xff" else None
        matches = regex is not None and text is not None and re.fullmatch(regex, text) is not None
        return key in keys or any(map(key.startswith, prefixes)) or matches

    stream = stream_of(batches)
    wanted = RecordFilter(keys=keys, key_prefixes=prefixes, key_regex=regex)

    assert rows_of(FilteredStream(stream, wanted)) == [row for row in rows_of(stream) if passes(row["key"])]


@settings(deadline=None, max_examples=4)  # each starts a process, which decides some streams
@given(st.lists(STREAMS, min_size=5, max_size=5).map(lambda streams: [batch for stream in streams for batch in stream]))
def test_everything_that_is_set_has_to_hold(batches: Any) -> None:
    stream = stream_of(batches)
    wanted = RecordFilter(key_prefixes=(b"e", b"a"), sql="value IS NOT NULL", predicate=f"{THIS}.even_offsets")

    expected = [
        row["offset"]
        for row in rows_of(stream)
        if (row["key"] or b"").startswith((b"e", b"a")) and row["value"] is not None and row["offset"] % 2 == 0
    ]
    assert offsets_of(FilteredStream(stream, wanted)) == expected


@settings(deadline=None, max_examples=20)
@given(STREAMS)
def test_the_latest_record_of_each_key_is_kept_tombstones_included(batches: Any) -> None:
    check_latest(batches, RecordFilter())


@settings(deadline=None, max_examples=6)  # each starts a process
@given(STREAMS)
def test_the_latest_record_of_each_key_is_the_latest_that_passes_the_condition(batches: Any) -> None:
    check_latest(batches, RecordFilter(sql="value IS NOT NULL"))


def check_latest(batches: Any, wanted: RecordFilter) -> None:
    stream = stream_of(batches)
    passing = [row for row in rows_of(stream) if wanted.sql is None or row["value"] is not None]
    last = {row["key"]: row["offset"] for row in passing if row["key"] is not None}

    found = FilteredStream(stream, RecordFilter(sql=wanted.sql, latest_per_key=True))

    assert offsets_of(found) == sorted(last.values())
    assert found.without_key_count == sum(row["key"] is None for row in passing)
    assert (found.read_count, found.passed_count) == (len(rows_of(stream)), len(last))


@settings(deadline=None, max_examples=30)
@given(STREAMS, st.integers(0, 60))
def test_the_latest_of_what_is_left_of_a_stream_is_what_is_left_of_the_latest(batches: Any, start: int) -> None:
    stream = stream_of(batches)
    rest = [batch.filter(pc.greater_equal(batch.column("offset"), start)) for batch in stream]
    latest = RecordFilter(latest_per_key=True)

    assert offsets_of(FilteredStream(rest, latest)) == [
        o for o in offsets_of(FilteredStream(stream, latest)) if o >= start
    ]


def test_more_keys_than_memory_holds_are_grouped_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafka_s3_platform.core.restore.spill.MEMORY_LIMIT", "64MB")
    monkeypatch.setattr("kafka_s3_platform.core.restore.filters.stage.LATEST_ROWS_AT_ONCE", 1000)
    size, count = 10_000, 60
    keys = [pa.array([b"%0200d" % (n * 7919 % 400_000) for n in range(b * size, (b + 1) * size)]) for b in range(count)]
    plain = batch_of([{}] * size)
    at = [plain.schema.get_field_index(name) for name in ("key", "offset")]
    stream = [
        plain.set_column(at[0], plain.schema.field(at[0]), key).set_column(
            at[1], plain.schema.field(at[1]), pa.array(range(b * size, (b + 1) * size), pa.int64())
        )
        for b, key in enumerate(keys)
    ]

    found = offsets_of(FilteredStream(stream, RecordFilter(latest_per_key=True)))

    assert found == list(range(200_000, 600_000))


def test_several_records_that_a_transform_made_of_one_offset_are_told_apart() -> None:
    rows = [(7, b"a"), (7, b"b"), (8, b"a"), (8, b"c"), (9, b"c")]
    stream = [batch_of([{"offset": offset, "key": key} for offset, key in rows])]

    found = rows_of(FilteredStream(stream, RecordFilter(latest_per_key=True)))

    assert [(row["offset"], row["key"]) for row in found] == [(7, b"b"), (8, b"a"), (9, b"c")]


def test_what_goes_wrong_when_the_stream_is_read_is_told_as_what_it_is() -> None:
    def damaged() -> Iterator[pa.RecordBatch]:
        yield batch_of([{"key": b"a"}])
        raise IntegrityError("object o is damaged")

    with pytest.raises(IntegrityError, match=r"^\[KS-ARCHIVE-DATA\] object o is damaged$"):
        list(FilteredStream([], RecordFilter(latest_per_key=True), damaged()))


def test_a_stream_that_can_be_read_once_only_needs_another_for_the_first_pass() -> None:
    stream = stream_of([[(b"a", b"1"), (b"a", b"2")]])
    with pytest.raises(ValueError, match="reads the stream twice"):
        FilteredStream(iter(stream), RecordFilter(latest_per_key=True))

    assert offsets_of(FilteredStream(iter(stream), RecordFilter(latest_per_key=True), iter(stream))) == [7]


@pytest.mark.parametrize(
    ("condition", "passing"),
    [
        ("text(key) = 'é'", [1]),
        ("key::VARCHAR = '\\xFF'", [2]),
        ("key = '\\xFF'::BLOB", [2]),
        ('"offset" % 2 = 0 AND partition = 3', [0, 2]),
        ("timestamp >= TIMESTAMP '1970-01-01 00:00:01.001'", [1, 2, 3]),
        ("json_extract_string(text(value), '$.site') = 'eu'", [0]),
        ("text(value)->>'$.site' = 'eu'", [0]),
        ("text(header(headers, 'trace')) = 'b'", [3]),
        ("value IS NULL", [1]),
        ("NULL::BOOLEAN", []),
        ("true -- a note", [0, 1, 2, 3]),
        ("len(list_filter(headers, lambda h: h.value IS NULL)) = 1", [3]),
        ("[h.key for h in headers if h.key <> 'x'] = ['trace', 'trace']", [3]),
        ("len(list_filter(headers, lambda h, n: n = 2 AND h.key = 'x')) = 1", [3]),
        ("(text(value) -> '$.site')::VARCHAR = '\"eu\"'", [0]),
        ("list_sum([1, 2]) = 3 AND text(key).upper() = 'A' AND KEY IS NOT NULL", [0]),
        ("timestamp::TIMESTAMPTZ = TIMESTAMPTZ '1970-01-01 00:00:01+00'", [0]),
        ("timestamp AT TIME ZONE 'Europe/Berlin' = TIMESTAMPTZ '1970-01-01 00:00:00+00'", []),
        ("topic IN ('t') AND timestampType = 0 AND hour(timestamp) = 0", [0, 1, 2, 3]),
    ],
)
def test_a_condition_sees_the_columns_of_the_record(condition: str, passing: list[int]) -> None:
    rows: list[dict[str, Any]] = [
        {"key": b"a", "value": b'{"site": "eu"}'},
        {"key": "é".encode(), "value": None},
        {"key": b"\xff", "value": b"{}"},
        {"key": None, "value": b'""', "headers": [("trace", b"a"), ("x", None), ("trace", b"b")]},
    ]

    batch = batch_of(rows)
    passes = pa.ipc.open_stream(Condition(condition).decide(batch)).read_all().column("passes")
    assert offsets_of([batch.filter(passes.combine_chunks())]) == passing


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("true; DROP TABLE x", "syntax error at or near"),
        ("true) FROM (SELECT 1", "it has to be a single condition"),
        ("true), (false", "it has to be a single condition"),
        ("true, false", "it has to be a single condition"),
        ("true ORDER BY 1", "syntax error"),
        ("true FROM x WHERE true", "syntax error"),
        ("key IN (SELECT key FROM x)", "a subquery"),
        ("count(*) > 1", "does not depend on the record alone"),
        ("max(partition) > 1", "does not depend on the record alone"),
        ("row_number() OVER () = 1", "a window function"),
        ("random() < 0.5", "random, whose result does not depend on the record alone"),
        ("timestamp > now()::TIMESTAMP", "now, whose"),
        ("timestamp > current_timestamp", "current_timestamp, whose"),
        ("current_date > DATE '2020-01-01'", "current_date, whose"),
        ("timestamp > current_localtimestamp() - INTERVAL 1 HOUR", "current_localtimestamp, whose result does not"),
        ("current_localtime() > TIME '12:00:00'", "current_localtime, whose result does not"),
        ("age(timestamp) < INTERVAL 1 HOUR", "age, whose result does not depend on the record alone"),
        ("timestamp.age() < INTERVAL 1 HOUR", "age, whose result does not"),
        ("timestamp > pg_postmaster_start_time()", "pg_postmaster_start_time, whose result does not"),
        ("main.pg_conf_load_time() > timestamp", "pg_conf_load_time, whose result does not"),
        ("len(list_filter(headers, lambda current_date: current_date > DATE '2020-01-01')) > 0", "current_date, whose"),
        ("(current_date -> '$') = 'x'", "current_date, whose"),
        ("list_filter(headers, lambda h: h.key = 'a' AND random() > 0.5) <> []", "random, whose result does not"),
        ("list_aggregate([1, 2], 'reservoir_quantile', 0.5) > 1", "list_aggregate, which is not one of the functions"),
        ("list_filter(headers, lambda h: true) = [] AND h = 1", "h, which is not a column of a record"),
        ("len(generate_subscripts([1, 2], 1)) > 1", "generate_subscripts, which makes several rows from one record"),
        ("#1 IS NULL", "POSITIONAL_REFERENCE"),
        ("COLUMNS(*) IS NULL", "a star"),
        ("key = ?", "a parameter"),
        ("sit = 'eu'", "sit"),
        ("partition", "not a boolean"),
        ("headers", "not a boolean"),
        ("getenv('HOME') = ''", "getenv"),
    ],
)
def test_what_is_no_condition_over_one_record_is_refused_before_the_first_one(condition: str, said: str) -> None:
    """By the process, which is asked about no records first."""
    with pytest.raises((UnusableError, duckdb.Error), match=re.escape(said)):
        Condition(condition).decide(batch_of([]))


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("offset > 5", "in double quotes"),
        ("", "is not a condition"),
        ("true; DROP TABLE x", "syntax error at or near"),
        ("partition", "not a boolean"),
        ("getenv('HOME') = ''", "getenv"),
    ],
)
def test_what_the_process_refuses_is_told_by_its_option(condition: str, said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)) as raised:
        check_filter(RecordFilter(sql=condition))
    assert "--sql (what.sql)" in str(raised.value)


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("unnest([true, false])", "unnest, which makes several rows from one record"),
        ("(" * 50_000 + "true" + ")" * 50_000, "--sql (what.sql)"),
        ("[" * 50_000 + "]" * 50_000 + " = []", "--sql (what.sql)"),
        ("1 = " + "+".join(["1"] * 100_000), "--sql (what.sql)"),
        ("read_text('/etc/passwd') = ''", "--sql (what.sql)"),
        ("current_setting('memory_limit') = ''", "current_setting, whose"),
        ("\ud800 = key", "--sql (what.sql)"),
        ("true) UNION ALL SELECT (true", "UNION"),
        ("true UNION ALL SELECT true", "--sql (what.sql)"),
        ("error(repeat('x', 50000000)) = ''", "--sql (what.sql)"),
    ],
)
def test_a_hostile_condition_is_refused_quickly_in_little_memory(condition: str, said: str) -> None:
    before, started = psutil.Process().memory_info().rss, time.monotonic()
    with pytest.raises(ConfigError, match=re.escape(said)) as refused:
        check_filter(RecordFilter(sql=condition))
    assert len(str(refused.value)) < 5_000
    assert "the process that evaluates it ended" not in str(refused.value)
    assert time.monotonic() - started < 60
    assert psutil.Process().memory_info().rss - before < 50_000_000


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("len(repeat('a', 2000000000)) > 3", "it needs too much memory"),
        ("len(repeat('a', 2000000000 - \"offset\")) > 3", "it needs too much memory"),
        ("len(range(1000000000)) > 3", "it needs too much memory"),
        ("len(lpad(text(key), 2000000000, 'b')) > 1", "(it needs too much memory|it was not evaluated within 1 s)"),
        ("levenshtein(repeat('a', 200000 + partition), repeat('b', 200000)) > 1", "it was not evaluated within 1 s"),
    ],
)
def test_a_condition_that_costs_too_much_for_a_record_is_told_by_its_offsets(
    condition: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "1 s" in said:
        monkeypatch.setattr("kafka_s3_platform.core.restore.filters.deciding.ROWS_SECONDS", 1.0)
    before = psutil.Process().memory_info().rss
    stream = FilteredStream([batch_of([{"key": b"a", "offset": 100_000}])], RecordFilter(sql=condition))
    with pytest.raises(PermanentError, match=rf"(?s)--sql .* offsets 100000 to 100000: .*{said}"):
        list(stream)
    assert psutil.Process().memory_info().rss - before < 50_000_000


def test_a_key_that_keeps_an_expression_busy_ends_the_restore_by_its_offset(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever writes records chooses their keys; this one would take longer than the sun."""
    innocent = RecordFilter(key_regex="([a-z]+-?)+:[0-9]+")
    rows = [{"key": b"eu-west:17", "offset": 6}, {"key": b"a" * 60, "offset": 7}]
    assert offsets_of(FilteredStream([batch_of(rows[:1])], innocent)) == [6]
    # its process starts within this time too
    monkeypatch.setattr("kafka_s3_platform.core.restore.filters.deciding.ROWS_SECONDS", 3.0)
    started = time.monotonic()
    with pytest.raises(
        PermanentError, match=r"--key-regex .* failed on a key of offsets 6 to 7: it was not evaluated within"
    ):
        list(FilteredStream([batch_of(rows)], innocent))
    assert time.monotonic() - started < 60


def test_the_regular_expression_of_keys_is_still_python_s() -> None:
    """Those that a faster engine does not know, or takes for something else, among them."""
    keys = [b"aa", b"ab", "é".encode(), "٣".encode(), b"\xff"]
    column = pa.record_batch({"key": pa.array(keys, pa.binary())})
    for regex, passing in (
        (r"(.)\1", [0]), (r"(?=a).*(?<!a)", [1]), (r"\w", [2, 3]), (r"\d", [3]),
        (r"a{,2}", [0]), (r".*\Z", [0, 1, 2, 3]),
    ):  # fmt: skip
        found = pa.ipc.open_stream(compile_expression(regex)(column)).read_all().column("passes")
        assert pc.indices_nonzero(found).to_pylist() == passing
    records = batch_of([{"key": key} for key in [*keys, None]])
    assert offsets_of(FilteredStream([records], RecordFilter(key_regex=r"(?=a).*(?<!a)|\d"))) == [1, 3]


def test_more_records_than_are_asked_of_a_condition_at_once_are_decided_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafka_s3_platform.core.restore.filters.deciding.ROWS_AT_ONCE", 7)
    rows = [{"offset": n} for n in range(100)]
    found = offsets_of(FilteredStream([batch_of(rows)], RecordFilter(sql='"offset" % 3 = 0')))
    assert found == list(range(0, 100, 3))


def test_the_process_of_a_condition_ends_with_it_and_knows_no_secret_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SECRET", "marked-secret")
    others = set(psutil.Process().children())
    condition = SqlCondition("true")
    [child] = [c for c in psutil.Process().children() if c not in others]
    assert "MY_SECRET" not in child.environ()
    del condition
    gc.collect()
    assert not child.is_running()


@pytest.mark.parametrize("is_searched", [False, True], ids=["command", "python -m"])
def test_the_process_that_decides_imports_nothing_from_the_working_directory(
    is_searched: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where Python searches it for this process, as it does for Dagster's and Spark's."""
    for module in ("resource", "duckdb", "pyarrow", "json"):
        (tmp_path / f"{module}.py").write_text("raise SystemExit('a module of the working directory was run')")
    monkeypatch.chdir(tmp_path)
    if is_searched:
        monkeypatch.setattr(sys, "path", ["", str(tmp_path), *sys.path])
    assert offsets_of(FilteredStream([batch_of([{"offset": 7}])], RecordFilter(sql='"offset" = 7'))) == [7]
    assert offsets_of(FilteredStream([batch_of([{"key": b"a"}])], RecordFilter(key_regex="a"))) == [0]


def test_a_condition_that_fails_on_a_record_names_the_offsets() -> None:
    with pytest.raises(PermanentError, match=r"--sql .* offsets 0 to 0: .*Malformed JSON"):
        offsets_of(FilteredStream([batch_of([{"value": b"no json"}])], RecordFilter(sql="text(value)->>'$.a' = '1'")))


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (RecordFilter(key_regex="("), "--key-regex"),
        (RecordFilter(predicate="os.system"), "'os.system', named by --predicate .*no plug-in"),
        (RecordFilter(predicate=f"{OWN}.no_such_module.f"), "--predicate .*cannot import"),
        (RecordFilter(predicate=f"{THIS}.no_such"), "--predicate .*has no attribute no_such"),
        (RecordFilter(predicate=f"{THIS}.not_a_function"), "has int, not a function"),
        (RecordFilter(predicate=f"{THIS}.as_a_list"), "returned list, not a boolean"),
        (RecordFilter(predicate=f"{THIS}.fails_always"), "failed on an empty batch: ValueError: 0 records"),
    ],
)
def test_a_filter_that_cannot_be_used_is_refused_by_its_option(wanted: RecordFilter, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        check_filter(wanted)


@pytest.mark.parametrize(
    ("name", "said"),
    [("fails_on_records", "from offset 0 on failed: ValueError: no such field"), ("one_too_few", "1 values for 2")],
)
def test_a_predicate_that_fails_later_names_where(name: str, said: str) -> None:
    with pytest.raises(PermanentError, match=said):
        offsets_of(FilteredStream([batch_of([{}, {}])], RecordFilter(predicate=f"{THIS}.{name}")))


def test_a_filter_without_anything_set_is_none() -> None:
    assert not is_filtered(RecordFilter())
    assert is_filtered(RecordFilter(latest_per_key=True))


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
    """DuckDB 2.0.1 says of the session's timezone that it may change between queries. Here it is UTC, and locked."""
    found = duck.execute(
        "SELECT lower(function_name), function_type, CASE WHEN stability = 'CONSISTENT_WITHIN_QUERY' AND "
        "concat(parameter_types::text, return_type) SIMILAR TO '.*(TIME ZONE|TIMESTAMPTZ).*' "
        "AND len(parameter_types) > 0 THEN 'CONSISTENT' ELSE stability END FROM duckdb_functions()"
    ).fetchall()
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
