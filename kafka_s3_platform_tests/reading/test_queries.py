"""Queries of frames and datasets that have answered others give what Python finds in all records."""

import json
import operator
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest

from kafka_s3_platform import read
from kafka_s3_platform.core.config.settings import KafkaSettings
from kafka_s3_platform.core.model.times import EPOCH, ONE_MS
from kafka_s3_platform_tests.kafka.topics import records_of
from kafka_s3_platform_tests.reading.conftest import JSON_CONVERTER, OURS, Declared, load
from kafka_s3_platform_tests.support import HOUR, NOON, Sent, archived, produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


Place = tuple[int, int]
Row = Mapping[str, Any]

NAMES = ("key", "value", "headers", "topic", "partition", "offset", "timestamp", "timestampType")
COMPARED: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
FAR = (EPOCH.replace(year=1), EPOCH.replace(year=9999))
YEAR_10000 = 253_402_300_800_000
"""The epoch ms where Python's calendar has ended."""


@dataclass(frozen=True)
class Condition:
    """One condition, as each engine is told it. Null is neither true nor false."""

    spark: str
    duckdb: str
    arrow: pc.Expression
    polars: pl.Expr
    holds: Callable[[Row], bool | None]


def draw_condition(dice: random.Random, depth: int = 2) -> Condition:
    shape = dice.choice(["leaf", "leaf", "and", "or", "not"]) if depth else "leaf"
    if shape == "leaf":
        return dice.choice([compare_number, compare_number, compare_time, compare_key, list_numbers, ask_for_null])(
            dice
        )
    one = draw_condition(dice, depth - 1)
    if shape == "not":
        return Condition(
            f"NOT ({one.spark})", f"NOT ({one.duckdb})", ~one.arrow, ~one.polars, lambda row: negate(one.holds(row))
        )
    two = draw_condition(dice, depth - 1)
    spark, duck = f"({one.spark}) {shape} ({two.spark})", f"({one.duckdb}) {shape} ({two.duckdb})"
    if shape == "and":
        return Condition(
            spark,
            duck,
            one.arrow & two.arrow,
            one.polars & two.polars,
            lambda row: negate(join([negate(one.holds(row)), negate(two.holds(row))])),
        )
    return Condition(
        spark,
        duck,
        one.arrow | two.arrow,
        one.polars | two.polars,
        lambda row: join([one.holds(row), two.holds(row)]),
    )


def negate(one: bool | None) -> bool | None:
    return None if one is None else not one


def join(them: Sequence[bool | None]) -> bool | None:
    return True if True in them else None if None in them else False


def name_column(dice: random.Random, name: str) -> pc.Expression:
    return pc.field(NAMES.index(name) if dice.random() < 0.3 else name)


def compare_number(dice: random.Random) -> Condition:
    name = dice.choice(["partition", "offset"])
    number = dice.choice([dice.randrange(-1, 4), dice.randrange(60), 2**31 - 1 if name == "partition" else 2**63 - 1])
    sign, compare = dice.choice([*COMPARED.items()])
    return Condition(
        f"`{name}` {sign} {number}",
        f'"{name}" {sign} {number}',
        compare(name_column(dice, name), number),
        compare(pl.col(name), number),
        lambda row: compare(row[name], number),
    )


def compare_time(dice: random.Random) -> Condition:
    near = NOON + dice.randrange(-2, 5) * HOUR + timedelta(milliseconds=dice.randrange(-2, 3))
    moment = dice.choice([near, near, near, near, *FAR])
    ms = (moment - EPOCH) // ONE_MS
    sign, compare = dice.choice([*COMPARED.items()])
    text = f"{moment:%m-%d %H:%M:%S}.{moment.microsecond:06}"
    spark, duck = f"TIMESTAMP '{moment.year:04}-{text} UTC'", f"TIMESTAMPTZ '{moment.year:04}-{text}+00'"
    arrow, polars = pa.scalar(ms, pa.timestamp("ms", "UTC")), pl.lit(moment, pl.Datetime("ms", "UTC"))
    if dice.random() < 0.1:
        ms = YEAR_10000
        spark, duck = "TIMESTAMP '+10000-01-01 00:00:00 UTC'", "TIMESTAMPTZ '10000-01-01 00:00:00+00'"
        arrow, polars = pa.scalar(ms, pa.timestamp("ms", "UTC")), pl.lit(ms).cast(pl.Datetime("ms", "UTC"))
    return Condition(
        f"timestamp {sign} {spark}",
        f"timestamp {sign} {duck}",
        compare(name_column(dice, "timestamp"), arrow),
        compare(pl.col("timestamp"), polars),
        lambda row: compare((row["timestamp"] - EPOCH) // ONE_MS, ms),
    )


def compare_key(dice: random.Random) -> Condition:
    key = dice.choice([b"", b"k0", b"k1", b"k2", b"offset"])
    sign, compare = dice.choice([*COMPARED.items()])
    return Condition(
        f"key {sign} X'{key.hex()}'",
        f"key {sign} '{key.decode()}'::BLOB",
        compare(name_column(dice, "key"), pa.scalar(key)),
        compare(pl.col("key"), pl.lit(key)),
        lambda row: None if row["key"] is None else compare(row["key"], key),
    )


def list_numbers(dice: random.Random) -> Condition:
    name = dice.choice(["partition", "offset"])
    numbers = [dice.randrange(40) if name == "offset" else dice.randrange(5) for _ in range(dice.randrange(1, 5))]
    kind = pa.int64() if name == "offset" else pa.int32()
    text = ", ".join(map(str, numbers))
    return Condition(
        f"`{name}` IN ({text})",
        f'"{name}" IN ({text})',
        name_column(dice, name).isin(pa.array(numbers, kind)),
        pl.col(name).is_in(numbers),
        lambda row: row[name] in numbers,
    )


def ask_for_null(dice: random.Random) -> Condition:
    name = dice.choice(["key", "value"])
    return Condition(
        f"{name} IS NULL",
        f"{name} IS NULL",
        name_column(dice, name).is_null(),
        pl.col(name).is_null(),
        lambda row: row[name] is None,
    )


def list_rows(table: pa.Table) -> list[Place]:
    return sorted(zip(*table.select(["partition", "offset"]).to_pydict().values(), strict=True))


def ask_spark(frame: Any, conditions: Sequence[Condition]) -> list[Place]:
    union, *others = [frame.where(each.spark).select("partition", "offset") for each in conditions]
    for other in others:
        union = union.union(other)
    return sorted((row.partition, row.offset) for row in union.collect())


def ask_duckdb(connection: duckdb.DuckDBPyConnection, conditions: Sequence[Condition]) -> list[Place]:
    scans = [f'FROM archive SELECT "partition", "offset", "value" WHERE {each.duckdb}' for each in conditions]
    return sorted((row[0], row[1]) for row in connection.execute(" UNION ALL ".join(scans)).fetchall())


def ask_arrow(dataset: ds.Dataset, conditions: Sequence[Condition]) -> list[Place]:
    tables = [dataset.to_table(filter=each.arrow) for each in conditions]
    assert [dataset.count_rows(filter=each.arrow) for each in conditions] == [table.num_rows for table in tables]
    few = [dataset.to_table(columns=["partition", "offset"], filter=each.arrow) for each in conditions]
    assert [table.num_rows for table in few] == [table.num_rows for table in tables]
    return list_rows(pa.concat_tables(tables))


def ask_polars(frame: pl.LazyFrame, conditions: Sequence[Condition]) -> list[Place]:
    scans = [frame.filter(each.polars).select("partition", "offset") for each in conditions]
    return sorted(pl.concat(scans).collect().rows())


@pytest.fixture
def rows(declared: Declared, kafka_settings: KafkaSettings) -> list[dict[str, Any]]:
    """All records of a topic as a consumer reads them. The archive has them as Parquet and as JSON, of three hours."""
    schema = {"type": "struct", "name": "N", "fields": [{"field": "n", "type": "int64", "optional": False}]}
    values = [None if n % 7 == 0 else json.dumps({"schema": schema, "payload": {"n": n}}).encode() for n in range(90)]
    keys = (None, b"", b"k0", b"k1", b"k2")
    times = [NOON + n // 15 % 3 * HOUR + timedelta(milliseconds=n % 3) for n in range(90)]
    sent = [Sent(values[n], keys[n % 5], times[n], (), n % 2) for n in range(90)]
    keeping = {"value.converter": JSON_CONVERTER, "value.converter.schemas.enable": "true"}
    produce(kafka_settings, declared.topic, sent[:45])
    archived(declared(keeping))
    produce(kafka_settings, declared.topic, sent[45:])
    archived(declared({**keeping, "format.class": f"{OURS}EnvelopeJsonFormat"}))
    found: list[dict[str, Any]] = pa.concat_tables(
        [records_of(kafka_settings, declared.topic, p) for p in (0, 1)]
    ).to_pylist()
    assert len(found) == 90
    return found


@pytest.mark.parametrize("queries", [60, pytest.param(2000, marks=[pytest.mark.long, pytest.mark.timeout(1800)])])
def test_queries_of_a_used_frame_find_what_is_there(
    rows: list[dict[str, Any]],
    session: "SparkSession",
    queries: int,
) -> None:
    seed = random.randrange(2**32)
    dice = random.Random(seed)
    engines: dict[str, Callable[[Sequence[Condition]], list[Place]]] = {}
    for how in (False, True):
        dataset = read("c", decode=how)
        connection = duckdb.connect().register("archive", dataset)
        polars, spark = pl.scan_pyarrow_dataset(dataset), load(session, decode=str(how).lower())
        engines |= {
            f"pyarrow, {how}": partial(ask_arrow, dataset),
            f"duckdb, {how}": partial(ask_duckdb, connection),
            f"polars, {how}": partial(ask_polars, polars),
            f"spark, {how}": partial(ask_spark, spark),
        }
    wrong = []
    for number in range(queries):
        [engine, ask] = [*engines.items()][number % len(engines)]
        conditions = [draw_condition(dice) for _ in range(dice.choice([1, 1, 2]))]
        wanted = sorted((row["partition"], row["offset"]) for each in conditions for row in rows if each.holds(row))
        if ask(conditions) != wanted:
            wrong.append((engine, [each.duckdb for each in conditions]))
    assert not wrong, f"seed {seed}: {wrong}"


def test_where_a_condition_leaves_nothing_of_an_object_decoded_values_have_their_type(
    rows: list[dict[str, Any]],
) -> None:
    archive = read("c", decode=True)
    connection = duckdb.connect().register("archive", archive)
    for condition in ("key = 'none'::BLOB", '"offset" < 0', "timestamp < '2000-01-01 00:00:00+00'::TIMESTAMPTZ"):
        assert connection.execute(f"FROM archive WHERE {condition}").fetchall() == [], condition
    wanted = sorted(row["partition"] for row in rows if row["offset"] == 10)
    assert sorted(archive.to_table(filter=pc.field("offset") == 10)["partition"].to_pylist()) == wanted
    assert archive.to_table(filter=pc.field("key") == b"none").schema.equals(archive.schema)
    assert archive.to_table(filter=pc.field("offset") < 0, columns=[]).num_rows == 0
    assert archive.head(0).schema.equals(archive.schema)


@pytest.mark.parametrize("how", [False, True])
def test_a_condition_may_give_a_column_by_its_number(rows: list[dict[str, Any]], how: bool) -> None:
    archive = read("c", decode=how)
    assert archive.to_table(columns=["value"], filter=pc.field(0) == b"k1").num_rows == sum(
        row["key"] == b"k1" for row in rows
    )
    assert archive.count_rows(filter=pc.field(1).is_null()) == sum(row["value"] is None for row in rows)
    numbers = archive.to_table(columns={"n": pc.field(5)}, filter=pc.field("partition") == 1)["n"].to_pylist()
    assert sorted(numbers) == sorted(row["offset"] for row in rows if row["partition"] == 1)
