"""Facts of reports and index rows as Dagster metadata: numbers as numbers, so that they plot."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import dagster as dg

from kafka_s3_platform.archive.request import ArchiveReport, HourReport
from kafka_s3_platform.model.gap import Gap
from kafka_s3_platform.model.segment import Segment

T = TypeVar("T")
Metadata = dict[str, dg.MetadataValue]


def hour_metadata(hour: HourReport, report: ArchiveReport, bucket: str, *, can_drop: bool) -> Metadata:
    """One hour's own page. `run_records_per_second` is the whole run's; all else is the hour's."""
    rate = report.record_count / report.seconds if report.seconds else 0.0
    return {
        **segments_metadata(hour.segments, bucket),
        **_dropped(hour, can_drop=can_drop),
        **({"taken_over_offsets": dg.MetadataValue.int(hour.taken_over_count)} if hour.taken_over_count else {}),
        "gaps": dg.MetadataValue.int(len(hour.gaps)),
        "unresolved_offsets": dg.MetadataValue.int(hour.unresolved_count),
        "scanned": dg.MetadataValue.bool(hour.scanned),
        "complete": dg.MetadataValue.bool(hour.complete),
        "run_records_per_second": dg.MetadataValue.float(rate),
        "index_version": dg.MetadataValue.int(report.version),
        "kafka_partitions": kafka_partitions_table(hour.segments, hour.gaps),
        **({"waiting_for_transactions": _waiting(report.waiting)} if report.waiting else {}),
    }


def segments_metadata(segments: Sequence[Segment], bucket: str) -> Metadata:
    """Counts, bytes and addresses of the objects of an hour or a day."""
    record_count, late_count = sum(s.record_count for s in segments), sum(s.late_count for s in segments)
    return {
        "dagster/partition_row_count": dg.MetadataValue.int(record_count),
        "late_records": dg.MetadataValue.int(late_count),
        "record_bytes": dg.MetadataValue.int(sum(s.record_bytes for s in segments)),
        "objects": dg.MetadataValue.int(sum(len(s.objects) for s in segments)),
        "object_bytes": dg.MetadataValue.int(sum(o.size for s in segments for o in s.objects)),
        "uris": dg.MetadataValue.json([uri(bucket, s) for s in segments]),
    }


def _dropped(counted: HourReport | ArchiveReport, *, can_drop: bool) -> Metadata:
    """Records that were read and that no object holds: always for a connector that can leave some out."""
    counts = {"filtered_records": counted.filtered_count, "dead_letters": counted.dead_letter_count}
    return {name: dg.MetadataValue.int(count) for name, count in counts.items() if count or can_drop}


def totals_metadata(report: ArchiveReport, *, can_drop: bool) -> Metadata:
    """What a run over everything up to now did."""
    return {
        "records": dg.MetadataValue.int(report.record_count),
        "record_bytes": dg.MetadataValue.int(report.record_bytes),
        "objects": dg.MetadataValue.int(report.object_count),
        "out_of_range_records": dg.MetadataValue.int(report.out_of_range_count),
        **_dropped(report, can_drop=can_drop),
        "gaps": dg.MetadataValue.int(len(report.gaps)),
        "hours": dg.MetadataValue.int(len(report.hours)),
        "seconds": dg.MetadataValue.float(report.seconds),
        "index_version": dg.MetadataValue.int(report.version),
        **({"waiting_for_transactions": _waiting(report.waiting)} if report.waiting else {}),
    }


def kafka_partitions_table(segments: Iterable[Segment], gaps: Iterable[Gap] = ()) -> dg.TableMetadataValue:
    """A row for each kafka partition: records, bytes, offsets, objects and gaps."""
    by_kafka_partition, lost = (
        grouped(segments, lambda s: s.kafka_partition),
        grouped(gaps, lambda g: g.kafka_partition),
    )
    rows = [_table_row(p, by_kafka_partition.get(p, []), lost.get(p, [])) for p in sorted({*by_kafka_partition, *lost})]
    return table(rows, ["kafka_partition", "records", "record_bytes", "objects", "start_offset", "end_offset", "gaps"])


def table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> dg.TableMetadataValue:
    """A table whose columns are known also when it has no rows."""
    schema = dg.TableSchema([dg.TableColumn(name) for name in columns])
    return dg.MetadataValue.table([dg.TableRecord(dict(row)) for row in rows], schema)


def grouped(items: Iterable[T], key: Callable[[T], int]) -> dict[int, list[T]]:
    """Items by an integer of theirs."""
    found: dict[int, list[T]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found


def uri(bucket: str, segment: Segment) -> str:
    """Where a segment's object is."""
    return f"s3://{bucket}/{segment.key}"


def _table_row(kafka_partition: int, segments: Sequence[Segment], gaps: Sequence[Gap]) -> dict[str, int | None]:
    return {
        "kafka_partition": kafka_partition,
        "records": sum(s.record_count for s in segments),
        "record_bytes": sum(s.record_bytes for s in segments),
        "objects": len(segments),
        "start_offset": min((s.start_offset for s in segments), default=None),
        "end_offset": max((s.end_offset for s in segments), default=None),
        "gaps": len(gaps),
    }


def _waiting(waiting: Mapping[int, int]) -> dg.TableMetadataValue:
    rows = [{"kafka_partition": p, "last_stable_offset": offset} for p, offset in sorted(waiting.items())]
    return table(rows, ["kafka_partition", "last_stable_offset"])
