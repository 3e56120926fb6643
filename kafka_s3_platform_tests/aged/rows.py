"""The rows of an index of some age, as hourly runs and merges of days have left them. Made column by column.

Writes the index of a connector as it is after months or years, with files as the code leaves them.
"""

import json
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake

from kafka_s3_platform.core.config.settings import ConnectorConfig, LayoutSettings
from kafka_s3_platform.core.model.frontier import Frontier
from kafka_s3_platform.core.model.segment import HourRange, Scan, Segment, TopicGeneration
from kafka_s3_platform.core.model.times import to_epoch_ms
from kafka_s3_platform.core.store.index import FILTERED_COLUMNS, ConnectorIndex
from kafka_s3_platform.core.store.index_commit import Change
from kafka_s3_platform.core.store.index_rows import (
    NO_DAY,
    PERIOD,
    RETIRED,
    SEGMENT_KINDS,
    STATE_PERIOD,
    TABLE_SCHEMA,
    TIME,
    TopicRows,
    encode_rows,
)
from kafka_s3_platform.core.store.index_table import describe_index

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
RECORDS = 1000
"""Records of a kafka partition in an hour. They take as many offsets."""

LEADER_EPOCH_HOURS = 24 * 30
"""A kafka partition gets another leader about once a month."""

_US = 1_000_000
_HOUR_US = 3600 * _US


@dataclass(frozen=True)
class Age:
    """An index of `hours` that end at `end`, an hour's beginning. The last two days are not merged yet.

    Run n archives hour n, a few minutes after its end. It commits twice: versions 2n + 1 and 2n + 2.
    """

    topics: tuple[str, ...]
    kafka_partitions: int
    hours: int
    end: datetime
    layout: LayoutSettings

    @property
    def start(self) -> datetime:
        return self.end - self.hours * HOUR

    @property
    def version(self) -> int:
        """The version of the last run's second commit, and of the commit that writes these rows."""
        return 2 * self.hours

    @property
    def merged_hours(self) -> int:
        """How many of the hours lie in days that are merged."""
        last = (self.end - DAY).replace(hour=0, minute=0, second=0, microsecond=0)
        return max(0, int((last - self.start) / HOUR))


def make_rows(age: Age) -> pa.Table:
    """Return all rows of the topics, each in its period."""
    found: list[pa.Table] = []
    for topic in age.topics:
        found += [_complete(part, topic) for part in _make_parts(age)]
        found.append(_make_generation(age, topic))
    return pa.concat_tables(found)


def _make_parts(age: Age) -> list[dict[str, pa.Array]]:
    numbers, kafka_partitions = _cross(np.arange(age.hours), age.kafka_partitions)
    merged = numbers < age.merged_hours
    return [
        _make_looks(age, numbers, kafka_partitions),
        _make_hours(age, numbers, kafka_partitions),
        _make_scans(age, numbers, kafka_partitions),
        _make_segments(age, "retired", numbers[merged], kafka_partitions[merged]),
        _make_segments(age, "segment", numbers[~merged], kafka_partitions[~merged]),
        _make_days(age),
    ]


def _cross(values: np.ndarray, kafka_partitions: int) -> tuple[np.ndarray, np.ndarray]:
    return np.repeat(values, kafka_partitions), np.tile(np.arange(kafka_partitions), len(values))


def _common(age: Age, kind: str, numbers: np.ndarray, commit: int) -> dict[str, pa.Array]:
    """Return the columns that all rows of the n-th runs' first or second commits have."""
    at = _to_us(age.start) + (numbers + 1) * _HOUR_US + (6 + commit) * 60 * _US
    ids = pc.binary_join_element_wise(pa.array(numbers).cast(pa.string()), f"-{commit}", "")
    return {
        "kind": pa.repeat(kind, len(numbers)),
        "version": pa.array(2 * numbers + commit),
        "commit_id": ids,
        "committed_at": _times(at),
        "run_id": pc.binary_join_element_wise("run", pa.array(numbers).cast(pa.string()), "-"),
    }


def _make_looks(age: Age, numbers: np.ndarray, kafka_partitions: np.ndarray) -> dict[str, pa.Array]:
    seen = (numbers + 1) * RECORDS
    return {
        **_common(age, "frontier", numbers, 1),
        "kafka_partition": pa.array(kafka_partitions),
        "log_start_offset": pa.array(np.maximum(0, numbers - 24 * 7) * RECORDS),
        "last_stable_offset": pa.array(seen),
        "high_watermark": pa.array(seen),
        "leader_epoch": pa.array(numbers // LEADER_EPOCH_HOURS),
        "observed_at": _times(_to_us(age.start) + (numbers + 1) * _HOUR_US + 6 * 60 * _US),
        "kafka_partition_count": pa.repeat(age.kafka_partitions, len(numbers)),
    }


def _make_hours(age: Age, numbers: np.ndarray, kafka_partitions: np.ndarray) -> dict[str, pa.Array]:
    return {
        **_common(age, "hour", numbers, 1),
        "kafka_partition": pa.array(kafka_partitions),
        "start_offset": pa.array(numbers * RECORDS),
        "end_offset": pa.array((numbers + 1) * RECORDS),
        "hour": _times(_to_us(age.start) + numbers * _HOUR_US),
        "log_start_offset": pa.array(np.maximum(0, numbers - 24 * 7) * RECORDS),
    }


def _make_scans(age: Age, numbers: np.ndarray, kafka_partitions: np.ndarray) -> dict[str, pa.Array]:
    return {
        **_common(age, "scan", numbers, 2),
        "kafka_partition": pa.array(kafka_partitions),
        "start_offset": pa.array(numbers * RECORDS),
        "end_offset": pa.array((numbers + 1) * RECORDS),
        "record_count": pa.repeat(RECORDS, len(numbers)),
        "output_count": pa.repeat(RECORDS, len(numbers)),
        "filtered_count": pa.repeat(0, len(numbers)),
        "dead_letter_count": pa.repeat(0, len(numbers)),
        "leader_epoch": pa.array(numbers // LEADER_EPOCH_HOURS),
        "epoch": pa.array(2 * numbers + 1),
    }


def _make_segments(age: Age, kind: str, numbers: np.ndarray, kafka_partitions: np.ndarray) -> dict[str, pa.Array]:
    starts = _times(_to_us(age.start) + numbers * _HOUR_US)
    folders = pc.strftime(starts, format="year=%Y/month=%m/day=%d/hour=%H")
    return {
        **_common(age, kind, numbers, 2),
        **_describe_objects(age, folders, kafka_partitions, numbers * RECORDS, RECORDS),
        "chunk": pa.repeat("hourly", len(numbers)),
        "chunk_start": starts,
        "min_timestamp": pa.array(to_epoch_ms(age.start) + numbers * 3_600_000),
        "max_timestamp": pa.array(to_epoch_ms(age.start) + (numbers + 1) * 3_600_000 - 1),
        "epoch": pa.array(2 * numbers + 1),
    }


def _make_days(age: Age) -> dict[str, pa.Array]:
    """Return the daily segments of the merged hours. The first day has fewer hours if the index begins within it."""
    every = np.arange(age.merged_hours)
    of_day = (_to_us(age.start) + every * _HOUR_US) // (24 * _HOUR_US)
    days, first, counts = np.unique(of_day, return_index=True, return_counts=True)
    at, kafka_partitions = _cross(np.arange(len(days)), age.kafka_partitions)
    starts = _times(days[at] * 24 * _HOUR_US)
    folders = pc.strftime(starts, format="year=%Y/month=%m/day=%d")
    begin = _to_us(age.start) // 1000 + first[at] * 3_600_000
    return {
        **_common(age, "segment", first[at] + counts[at], 2),
        **_describe_objects(age, folders, kafka_partitions, first[at] * RECORDS, counts[at] * RECORDS),
        "chunk": pa.repeat("daily", len(at)),
        "chunk_start": starts,
        "min_timestamp": pa.array(begin),
        "max_timestamp": pa.array(begin + counts[at] * 3_600_000 - 1),
        "epoch": pa.array(2 * (first[at] + counts[at]) + 2),
    }


def _describe_objects(
    age: Age, folders: pa.Array, kafka_partitions: np.ndarray, starts: np.ndarray, counts: np.ndarray | int
) -> dict[str, pa.Array]:
    """Return what the rows of segments say of their objects. Sums differ from object to object, as real ones do."""
    size = len(starts)
    counted = np.broadcast_to(np.asarray(counts), size)
    random = np.random.default_rng(size)
    offset = pc.utf8_lpad(pa.array(starts).cast(pa.string()), 10, "0")
    number = pa.array(kafka_partitions).cast(pa.string())
    return {
        "key": pc.binary_join_element_wise(age.layout.topics_dir, folders, number, offset, "/"),
        "encoded_partition": folders,
        "kafka_partition": pa.array(kafka_partitions),
        "start_offset": pa.array(starts),
        "end_offset": pa.array(starts + counted),
        "record_count": pa.array(counted),
        "late_count": pa.repeat(0, size),
        "record_bytes": pa.array(counted * 100),
        "size": pa.array(counted * 30),
        "etag": _make_sums(random, size, 16),
        "sha256": _make_sums(random, size, 32),
        "digest": _make_sums(random, size, 32),
        "settings": pa.repeat(age.layout.model_dump_json(), size),
        "siblings": pa.repeat("[]", size),
        "schema_ids": pa.repeat("[]", size),
    }


def _make_sums(random: np.random.Generator, size: int, length: int) -> pa.Array:
    text = random.bytes(size * length).hex()
    offsets = pa.py_buffer(np.arange(0, size + 1, dtype=np.int32) * (2 * length))
    return pa.StringArray.from_buffers(size, offsets, pa.py_buffer(text.encode()))


def _make_generation(age: Age, topic: str) -> pa.Table:
    row = TopicGeneration(topic, "an-id", tuple(range(age.kafka_partitions)), (("retention.ms", "604800000"),))
    common = {"version": 1, "commit_id": "0-1", "committed_at": age.start + HOUR}
    return encode_rows([TopicRows(topic, [row], {}, "run-0")], common)


def _complete(columns: dict[str, pa.Array], topic: str) -> pa.Table:
    size = len(columns["kind"])
    given = {**columns, "topic": pa.repeat(topic, size)}
    arrays = [given[f.name].cast(f.type) if f.name in given else pa.nulls(size, f.type) for f in TABLE_SCHEMA]
    rows = pa.table(arrays, schema=TABLE_SCHEMA)
    return rows.set_column(rows.schema.get_field_index(PERIOD), TABLE_SCHEMA.field(PERIOD), _list_periods(rows))


def _list_periods(rows: pa.Table) -> pa.Array:
    """Return the period of each row, as `find_period` says."""
    day = pc.strftime(rows.column("chunk_start"), format="%Y-%m-%d")
    day = pc.fill_null(day, NO_DAY)
    retired = pc.binary_join_element_wise(RETIRED, day, "-")
    is_segment = pc.is_in(rows.column("kind"), value_set=pa.array(SEGMENT_KINDS))
    period = pc.if_else(pc.equal(rows.column("kind"), RETIRED), retired, day)
    return pc.if_else(is_segment, period, STATE_PERIOD)


def _times(microseconds: np.ndarray) -> pa.Array:
    return pa.array(microseconds, pa.int64()).cast(TIME)


def _to_us(moment: datetime) -> int:
    return to_epoch_ms(moment) * 1000


RECENT_HOURS = 6
"""The last hours are archived by commits, which leave small files; the files of those before were merged."""


def write_aged_index(config: ConnectorConfig, kafka_partitions: int, hours: int, end: datetime) -> Age:
    """Create the connector's index of its topics, of which the last hour of `hours` ends at `end`.

    The topics and their objects are not made.
    """
    age = Age(config.topics, kafka_partitions, hours - RECENT_HOURS, end - RECENT_HOURS * HOUR, config.layout)
    _create(config, age)
    for number in range(age.hours, hours):
        _archive_hour(config, age, number)
    return replace(age, hours=hours, end=end)


def _create(config: ConnectorConfig, age: Age) -> None:
    """Write the rows as the version that the last run would have left, without the log before it."""
    table = ConnectorIndex.of(config).table
    write_deltalake(
        table.uri,
        make_rows(age),
        mode="error",
        partition_by=[PERIOD],
        description=describe_index(config.name),
        configuration={"delta.dataSkippingStatsColumns": FILTERED_COLUMNS},
        storage_options=table.options,
    )
    DeltaTable(table.uri, storage_options=table.options).create_checkpoint()
    for info in list(table.objects.list(f"{table.folder}/_delta_log/")):
        body = table.objects.get(info.key)
        if info.key.endswith("_last_checkpoint"):
            hint = json.loads(body) | {"version": age.version}
            table.objects.replace(info.key, json.dumps(hint).encode(), info.etag)
        else:
            table.objects.put_new(info.key.replace(f"{0:020d}", f"{age.version:020d}"), body)
            table.objects.delete(info.key, info.etag)


def _archive_hour(config: ConnectorConfig, age: Age, number: int) -> None:
    """Commit what a run of all topics commits for an hour."""
    hour = age.start + number * HOUR
    observed_at = hour + HOUR + timedelta(minutes=6)
    leader_epoch = number // LEADER_EPOCH_HOURS
    span = (number * RECORDS, (number + 1) * RECORDS)
    epoch = ConnectorIndex.of(config).open().version + 1
    looks: list[HourRange | Frontier] = []
    results: list[Scan | Segment] = []
    for p in range(age.kafka_partitions):
        begin = max(0, number - 24 * 7) * RECORDS
        looks.append(HourRange(hour, p, *span))
        looks.append(Frontier(p, begin, span[1], span[1], leader_epoch, observed_at, age.kafka_partitions))
        results.append(Scan(p, *span, RECORDS, leader_epoch, epoch, output_count=RECORDS))
        results.append(_make_segment(age, p, number, epoch))
    for rows in (looks, results):
        change = Change(tuple(rows), run_id=f"run-{number}")
        ConnectorIndex.of(config).open().commit(dict.fromkeys(config.topics, change))


def _make_segment(age: Age, kafka_partition: int, number: int, epoch: int) -> Segment:
    hour = age.start + number * HOUR
    folder = f"{hour:year=%Y/month=%m/day=%d/hour=%H}"
    key = f"{age.layout.topics_dir}/{folder}/{kafka_partition}/{number * RECORDS:010d}"
    first = int(hour.timestamp() * 1000)
    sums = (f"{number:032x}", f"{number:064x}", f"{kafka_partition:064x}")
    return Segment(
        key, "hourly", hour, folder, kafka_partition, number * RECORDS, (number + 1) * RECORDS, RECORDS, 0,
        RECORDS * 100, RECORDS * 30, *sums, first, first + 3_599_999, age.layout.model_dump_json(), epoch,
    )  # fmt: skip
