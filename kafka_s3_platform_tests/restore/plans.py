"""Requests and plans of restores that nobody runs."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from kafka_s3_platform.core.config.formats import NATIVE_FORMAT
from kafka_s3_platform.core.config.settings import (
    ArchiveSettings,
    ConnectorConfig,
    KafkaSettings,
    LayoutSettings,
    StoreSettings,
)
from kafka_s3_platform.core.model.segment import TopicGeneration
from kafka_s3_platform.core.restore.request import KafkaPartitionReport, RestoreReport, RestoreRequest
from kafka_s3_platform.core.restore.source.archive_plan import ArchivePlan, PlannedObject, make_archive_target
from kafka_s3_platform.core.restore.source.base import TargetPlan
from kafka_s3_platform.core.restore.source.selection import round_up_to_ms, select_records
from kafka_s3_platform_tests.support import NOON

CONFIG = ConnectorConfig(
    name="c",
    topics=("t",),
    kafka=KafkaSettings(bootstrap_servers="127.0.0.1:1"),
    store=StoreSettings(bucket="bucket"),
    layout=LayoutSettings(),
    archive=ArchiveSettings(start_hour=NOON),
)


def request(**changes: Any) -> RestoreRequest:
    given: dict[str, Any] = {"topic": "t", "to_topic": "u", "restore_id": "r", "run_id": "x"}
    return RestoreRequest(CONFIG, **given | changes)


def planned(kafka_partition: int, offsets: tuple[int, int], times: tuple[int, int]) -> PlannedObject:
    return PlannedObject(
        "k", "e", 1, "", "", kafka_partition, *offsets, 5, 50, *times, out_of_range=False, format=NATIVE_FORMAT
    )


def hours(*numbers: int) -> tuple[tuple[datetime, datetime], ...]:
    return tuple((NOON + timedelta(hours=n), NOON + timedelta(hours=n + 1)) for n in numbers)


def plan(archived: dict[str, str] | None = None, newest: datetime = NOON) -> ArchivePlan:
    return ArchivePlan(
        restore_id="r",
        terms={"to_topic": "u"},
        source=TopicGeneration("t", "id", (0,), tuple((archived or {}).items())),
        index_version=1,
        selection=select_records(request(), [0]),
        objects=(planned(0, (0, 5), (round_up_to_ms(NOON), round_up_to_ms(newest))),),
        gaps=(),
        allow_unsendable_timestamps=False,
        created_at="",
        place="0123abcd",
    )


def going(of: ArchivePlan, **changes: Any) -> TargetPlan:
    return make_archive_target(request(**changes), of)


def part(kafka_partition: int, count: int, first: int = 0, **changes: Any) -> KafkaPartitionReport:
    whole = KafkaPartitionReport(
        kafka_partition=kafka_partition,
        record_count=count,
        record_bytes=count * 228,
        out_of_range_count=0,
        first_source_offset=first,
        last_source_offset=first + count - 1,
        first_target_offset=0,
        last_target_offset=count - 1,
        foreign_count=0,
        altered_timestamps=0,
        digest="0123456789abcdef0123456789abcdef",
        mapping_key=f"_restore/r1/{kafka_partition}.mapping.parquet",
    )
    return replace(whole, **changes)


def report(**changes: Any) -> RestoreReport:
    parts = (part(0, 120_000, 1000), part(1, 80_500), part(2, 3, 119_000))
    whole = RestoreReport(
        restore_id="incident-7",
        topic="flights",
        to_topic="flights-again",
        kafka_partitions=parts,
        record_count=sum(p.record_count for p in parts),
        record_bytes=sum(p.record_bytes for p in parts),
        exact=True,
        out_of_range_count=0,
        object_count=31,
        object_bytes=12_345_678,
        sent_count=200_503,
        gaps=(),
        notes=(),
        refusals=(),
        plan_key="_restore/incident-7.json",
        plan_digest="ab" * 32,
        estimated_seconds=12.0,
        seconds=69.5,
        verified=True,
        dry_run=False,
        terms={
            "from_time": "2013-01-31T15:00:00+00:00",
            "to_time": None,
            "from_offset": {"0": 1000},
            "to_offset": None,
        },
        finished_at="2026-11-21T18:00:00+00:00",
    )
    return replace(whole, **changes)
