"""Writes the index of a connector as it is after months or years, with files as the code leaves them."""

import json
from dataclasses import replace
from datetime import datetime, timedelta

from deltalake import DeltaTable, write_deltalake

from kafka_s3_platform.config.settings import ConnectorConfig
from kafka_s3_platform.model.frontier import Frontier
from kafka_s3_platform.model.segment import HourRange, Scan, Segment
from kafka_s3_platform.store.index import FILTERED_COLUMNS, ConnectorIndex
from kafka_s3_platform.store.index_commit import Change
from kafka_s3_platform.store.index_rows import PERIOD
from kafka_s3_platform.store.index_table import describe_index
from kafka_s3_platform_tests.aged.rows import HOUR, LEADER_EPOCH_HOURS, RECORDS, Age, make_rows

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
