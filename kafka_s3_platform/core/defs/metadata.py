"""Converts reports and index rows to Dagster metadata. Numbers stay numbers, so that Dagster can plot them."""

import logging
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import dagster as dg

from kafka_s3_platform.core.archive.request import ArchiveReport, HourReport
from kafka_s3_platform.core.config.environment import read_dagster_url
from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform.core.model.gaps import Gap
from kafka_s3_platform.core.model.segment import Segment
from kafka_s3_platform.core.text import count_noun, format_size

logger = logging.getLogger(__name__)

Metadata = dict[str, Any]
"""Metadata of an event. Dagster makes a number, a text or JSON of plain values."""


def find_dagster_path() -> str:
    """Return the path of Dagster's UI, with which links begin. Log a wrong address: a link is no reason to fail."""
    try:
        return urlsplit(read_dagster_url() or "").path
    except ConfigError as err:
        logger.warning("links are made as if it were not set: %s", err)
        return ""


NOT_COMPLETE = (
    "archived, not complete before the topic is archived up to where its log ends once the hour and the allowed "
    "lateness are over: run `kafka-s3 archive` without hours then"
)


def make_hour_metadata(hour: HourReport, report: ArchiveReport, bucket: str, *, can_drop: bool) -> Metadata:
    """Make the metadata of one hour. Only `run_records_per_second` is about the whole run."""
    rate = report.record_count / report.seconds if report.seconds else 0.0
    verdict = hour.verdict
    is_hindered = verdict.open or verdict.out_of_range_count
    is_ahead = hour.scanned and not hour.complete and not verdict.out_of_range_count
    return {
        # the hour's page begins with this
        **({"verdict": str(verdict)} if verdict.lacking or is_hindered else {}),
        "complete": hour.complete,
        **({"not_complete": NOT_COMPLETE} if is_ahead else {}),
        **make_segments_metadata(hour.segments, bucket, hour.removed_keys),
        **_make_dropped_counts(hour, can_drop=can_drop),
        **({"taken_over_offsets": n} if (n := verdict.taken_over_count) else {}),
        "gaps": len(verdict.lacking),
        "unresolved_offsets": verdict.open_counts["unresolved"],
        **({"out_of_range_records": n} if (n := verdict.out_of_range_count) else {}),
        "scanned": hour.scanned,
        "run_records_per_second": rate,
        "index_version": report.version,
        "kafka_partitions": make_kafka_partitions_table(hour.segments, verdict.lacking),
        **({"waiting_for_transactions": _make_waiting(report.waiting)} if report.waiting else {}),
    }


def make_segments_metadata(segments: Sequence[Segment], bucket: str, removed_keys: Collection[str] = ()) -> Metadata:
    """Make counts, bytes and addresses of the objects of an hour or a day. Objects in `removed_keys` are gone."""
    present = [s for s in segments if s.key not in removed_keys]
    record_count = sum(s.record_count for s in segments)
    late_count = sum(s.late_count for s in segments)
    object_count = sum(len(s.objects) for s in present)
    object_bytes = sum(o.size for s in present for o in s.objects)
    return {
        "dagster/partition_row_count": record_count,
        "size": f"{format_size(object_bytes)} in {count_noun(object_count, 'object')}",
        "late_records": late_count,
        "record_bytes": sum(s.record_bytes for s in segments),
        "objects": object_count,
        "object_bytes": object_bytes,
        **({"removed_objects": n} if (n := len(segments) - len(present)) else {}),
        "uris": [f"s3://{bucket}/{s.key}" for s in present],
    }


def _make_dropped_counts(report: HourReport | ArchiveReport, *, can_drop: bool) -> Metadata:
    """Count the records read but written to no object. Also show 0 if the connector can drop records."""
    counts = {"filtered_records": report.filtered_count, "dead_letters": report.dead_letter_count}
    return {name: count for name, count in counts.items() if count or can_drop}


def make_totals_metadata(report: ArchiveReport, *, can_drop: bool) -> Metadata:
    """Make the totals of a run over everything up to now."""
    return {
        "records": report.record_count,
        "record_bytes": report.record_bytes,
        "objects": report.object_count,
        "out_of_range_records": report.out_of_range_count,
        **_make_dropped_counts(report, can_drop=can_drop),
        "gaps": len(report.gaps),
        "hours": len(report.hours),
        "seconds": report.seconds,
        "index_version": report.version,
        **({"waiting_for_transactions": _make_waiting(report.waiting)} if report.waiting else {}),
    }


def make_kafka_partitions_table(segments: Iterable[Segment], gaps: Iterable[Gap] = ()) -> dg.TableMetadataValue:
    """Make a row for each kafka partition: records, bytes, offsets, objects and gaps."""
    segments_by_number: defaultdict[int, list[Segment]] = defaultdict(list)
    for segment in segments:
        segments_by_number[segment.kafka_partition].append(segment)
    gap_counts = Counter(gap.kafka_partition for gap in gaps)
    numbers = sorted({*segments_by_number, *gap_counts})
    rows = [_make_row(number, segments_by_number[number], gap_counts[number]) for number in numbers]
    return make_metadata_table(
        rows, ["kafka_partition", "records", "record_bytes", "objects", "start_offset", "end_offset", "gaps"]
    )


def make_metadata_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> dg.TableMetadataValue:
    """Make a table that has its columns even without rows."""
    schema = dg.TableSchema([dg.TableColumn(name) for name in columns])
    return dg.MetadataValue.table([dg.TableRecord(dict(row)) for row in rows], schema)


def _make_row(kafka_partition: int, segments: Sequence[Segment], gap_count: int) -> dict[str, int | None]:
    """Make the table's row of one kafka partition."""
    return {
        "kafka_partition": kafka_partition,
        "records": sum(s.record_count for s in segments),
        "record_bytes": sum(s.record_bytes for s in segments),
        "objects": len(segments),
        "start_offset": min((s.start_offset for s in segments), default=None),
        "end_offset": max((s.end_offset for s in segments), default=None),
        "gaps": gap_count,
    }


def _make_waiting(waiting: Mapping[int, int]) -> dg.TableMetadataValue:
    """Make a table of the kafka partitions in which an open transaction holds back records, from the offset on."""
    rows = [{"kafka_partition": p, "last_stable_offset": offset} for p, offset in sorted(waiting.items())]
    return make_metadata_table(rows, ["kafka_partition", "last_stable_offset"])
