"""Verification on a real S3: whatever was deleted, cut off, replaced or counted wrongly is found and named."""

from collections.abc import Callable
from dataclasses import replace
from datetime import date, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kafka_s3_platform.core.config.settings import ConnectorConfig, LayoutSettings
from kafka_s3_platform.core.errors import IntegrityError
from kafka_s3_platform.core.model.batches import RECORD_SCHEMA
from kafka_s3_platform.core.model.connect import ConnectBatch
from kafka_s3_platform.core.model.segment import Segment
from kafka_s3_platform.core.segments.target import Bucket, BucketPart, SegmentTarget
from kafka_s3_platform.core.segments.writers import ClosedSegments, SegmentUploads, SegmentWriters
from kafka_s3_platform.core.spark.runner import SparkRunner
from kafka_s3_platform.core.store.index_commit import Change
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform.core.store.row_filter import match_segments
from kafka_s3_platform.core.store.upload import Provenance
from kafka_s3_platform.core.upkeep.compact.days import CompactRequest
from kafka_s3_platform.core.upkeep.verify import Damage, VerifyReport, read_checked, verify_archive, verify_hours
from kafka_s3_platform_tests.conftest import Lab, present
from kafka_s3_platform_tests.support import HOUR, NOON, InProcessRunner, Sent, archived, compact_day, snapshot


@pytest.fixture
def config(copied_archive: Callable[..., ConnectorConfig]) -> ConnectorConfig:
    """Three hours of two kafka partitions, one hour with late records, all archived. The topic is other tests' too."""
    hours = [
        Sent(f"{h}-{n}".encode(), None, NOON + h * HOUR, (), p) for p in (0, 1) for h in range(3) for n in range(9)
    ]
    late = [Sent(b"late", None, NOON, (), p) for p in (0, 1)]
    return copied_archive(hours[:20] + late + hours[20:], kafka_partitions=2)


def verified(config: ConnectorConfig, deep: bool = True) -> VerifyReport:
    return verify_archive(config, config.topics[0], deep, InProcessRunner())


def segment(config: ConnectorConfig, hour: int = 1) -> Segment:
    return next(s for s in snapshot(config).segments if s.chunk_start == NOON + hour * HOUR)


def overwrite(config: ConnectorConfig, key: str, body: bytes) -> str:
    """Replace an object behind the platform's back; its new etag."""
    store = ObjectStore(config.store)
    store.replace(key, body, present(store.head(key)).etag)
    return present(store.head(key)).etag


def change_row(config: ConnectorConfig, row: Segment, **changed: Any) -> Segment:
    """Make the index say something else of an object."""
    wrong = replace(row, **changed)
    snapshot(config).commit(Change(added=(wrong,), removed=(match_segments([row.key]),)))
    return wrong


@pytest.mark.parametrize("deep", [False, True])
def test_an_archive_as_it_was_written_is_in_order(config: ConnectorConfig, deep: bool) -> None:
    report = verified(config, deep)
    assert report.ok
    assert (report.record_count, report.segment_count) == (56, len(snapshot(config).segments))
    assert (report.damages, report.holes, report.gaps) == ((), (), ())


def test_it_stays_in_order_when_days_are_merged(config: ConnectorConfig) -> None:
    compact_day(CompactRequest(config, config.topics[0], date(2026, 1, 1), "r"), InProcessRunner())
    report = verified(config)
    assert report.ok
    assert (report.record_count, report.segment_count) == (56, 2)


def test_nothing_archived_is_in_order(lab: Lab) -> None:
    assert verified(lab.connector()).ok


@pytest.mark.parametrize("deep", [False, True])
def test_a_deleted_object_is_named(config: ConnectorConfig, s3_client: Any, deep: bool) -> None:
    lost = segment(config)
    s3_client.delete_object(Bucket=config.store.bucket, Key=lost.key)
    (damage,) = verified(config, deep).damages
    assert (damage.key, damage.kafka_partition) == (lost.key, lost.kafka_partition)
    assert "missing" in damage.message


@pytest.mark.parametrize("deep", [False, True])
def test_a_truncated_object_is_named(config: ConnectorConfig, deep: bool) -> None:
    cut = segment(config)
    overwrite(config, cut.key, ObjectStore(config.store).get(cut.key)[:-1])
    (damage,) = verified(config, deep).damages
    assert damage.key == cut.key
    assert f"has {cut.size - 1} bytes, the index {cut.size}" in damage.message


def test_a_damaged_object_is_healed_by_the_copy_that_the_error_asks_for(config: ConnectorConfig) -> None:
    damaged, store = segment(config), ObjectStore(config.store)
    with pytest.raises(IntegrityError, match="put an undamaged copy back"):
        list(read_checked(store, replace(damaged, record_count=damaged.record_count + 1)))
    body = store.get(damaged.key)
    overwrite(config, damaged.key, body[:-1])
    assert not verified(config).ok
    overwrite(config, damaged.key, body)
    assert verified(config).ok


@pytest.mark.parametrize("deep", [False, True])
def test_a_replaced_object_of_the_same_size_is_named(config: ConnectorConfig, deep: bool) -> None:
    replaced = segment(config)
    body = bytearray(ObjectStore(config.store).get(replaced.key))
    body[100] ^= 1
    overwrite(config, replaced.key, bytes(body))
    (damage,) = verified(config, deep).damages
    assert damage.key == replaced.key
    assert "etag" in damage.message


def test_a_flipped_bit_that_the_etag_does_not_tell_is_found_when_read(config: ConnectorConfig) -> None:
    rotten = segment(config)
    body = bytearray(ObjectStore(config.store).get(rotten.key))
    body[100] ^= 1
    change_row(config, rotten, etag=overwrite(config, rotten.key, bytes(body)))
    assert verified(config, deep=False).ok
    (damage,) = verified(config).damages
    assert damage.key == rotten.key
    assert "SHA-256" in damage.message


@pytest.mark.parametrize(
    ("changed", "message"),
    [({"digest": "0" * 32}, "record digest"), ({"end_offset": 10}, "holds records of offsets"), ({}, "")],
    ids=["digest", "offsets", "nothing"],
)
def test_an_index_row_that_its_object_contradicts_is_found_when_read(
    config: ConnectorConfig, changed: dict[str, Any], message: str
) -> None:
    row = segment(config)
    change_row(config, row, **changed)
    found = [d.message for d in verified(config).damages]
    assert len(found) == bool(changed)
    assert all(message in m for m in found)


def test_records_that_are_scanned_but_not_live_are_counted(config: ConnectorConfig) -> None:
    row = segment(config)
    snapshot(config).commit(Change(removed=(match_segments([row.key]),)))
    scanned = sum(s.record_count for s in snapshot(config).state.scans if s.kafka_partition == row.kafka_partition)
    message = f"{scanned} records came of the scans, the live segments hold {scanned - row.record_count}"
    assert verified(config, deep=False).damages == (Damage(row.kafka_partition, None, message),)


def test_an_offset_that_two_live_segments_hold_is_named(config: ConnectorConfig) -> None:
    """The two interleave, as an hour and its late records may; only one offset is in both."""
    topic = config.topics[0]
    offsets = [o for o in range(1000, 1100) if o % 2] + [1050]
    for name, held in (("one", sorted(offsets)), ("two", [o for o in range(1000, 1100) if o % 2 == 0])):
        row = written(config, name, held)
        snapshot(config).commit(Change(added=(row,)))
    damages = [d for d in verified(config).damages if d.key]
    assert len(damages) == 1
    assert "offset 1050 is also held by" in damages[0].message
    assert f"{topic}+0+0000001000" in damages[0].message + str(damages[0].key)


def test_offsets_that_do_not_ascend_are_found_when_read(config: ConnectorConfig) -> None:
    row = replace(written(config, "one", [1002, 1001]), start_offset=1000, end_offset=1003)
    snapshot(config).commit(Change(added=(row,)))
    assert [d.message for d in verified(config).damages if d.key == row.key] == [
        "offsets 1001 to 1002 stand where ascending ones from 1000 on are due (offsets [1000, 1003))"
    ]


def written(config: ConnectorConfig, folder: str, offsets: list[int]) -> Segment:
    topic = config.topics[0]
    rows = [
        {"value": b"v", "topic": topic, "partition": 0, "offset": o, "timestamp": 0, "timestampType": 0}
        for o in offsets
    ]
    target = SegmentTarget(LayoutSettings(), topic, 0, Provenance("c", topic, "id", "index", "r", 1, 1))
    batch = ConnectBatch.of(pa.RecordBatch.from_pylist(rows, schema=RECORD_SCHEMA))
    with SegmentUploads() as uploads:
        closed = ClosedSegments(uploads)
        with SegmentWriters(target, ObjectStore(config.store), closed) as out:
            out.write(BucketPart(Bucket(None, folder), batch, batch.timestamps, 0))
            out.close()
        (segment,) = closed.collect()
    assert segment.record_count == len(np.unique(offsets))
    return segment


def test_hours_that_nobody_archived_between_others_are_holes_and_no_damage(lab: Lab) -> None:
    config = lab.fill([Sent(b"v", None, NOON + h * HOUR) for h in range(3) for _ in range(5)])
    for hour in (0, 2):
        archived(config, [NOON + hour * HOUR])
    report = verified(config)
    assert report.ok
    assert [(h.start_offset, h.end_offset) for h in report.holes] == [(5, 10)]


def test_an_hour_is_verified_by_itself_before_and_after_its_day_is_merged(
    config: ConnectorConfig, s3_client: Any
) -> None:
    def damaged(hour: int) -> set[str | None]:
        store = ObjectStore(config.store)
        return {d.key for d in verify_hours(snapshot(config), store, [NOON + hour * HOUR], deep=True)}

    lost = segment(config)
    s3_client.delete_object(Bucket=config.store.bucket, Key=lost.key)
    assert [damaged(h) for h in range(3)] == [set(), {lost.key}, set()]

    body = ObjectStore(config.store).get(segment(config, 2).key)
    snapshot(config).commit(Change(removed=(match_segments([lost.key]),)))
    compact_day(CompactRequest(config, config.topics[0], date(2026, 1, 1), "r"), InProcessRunner())
    daily = snapshot(config).segments[0]
    overwrite(config, daily.key, body)
    assert damaged(0) == damaged(2) == {daily.key}
    assert damaged(24) == set()


def test_objects_are_read_in_spark_tasks(config: ConnectorConfig, spark: Any) -> None:
    lost = segment(config)
    body = bytearray(ObjectStore(config.store).get(lost.key))
    body[100] ^= 1
    change_row(config, lost, etag=overwrite(config, lost.key, bytes(body)))
    report = verify_archive(config, config.topics[0], True, SparkRunner(lambda: spark))
    assert [d.key for d in report.damages] == [lost.key]


def test_an_open_hour_of_no_records_holds_nothing_to_damage(config: ConnectorConfig) -> None:
    assert verify_hours(snapshot(config), ObjectStore(config.store), [NOON - timedelta(days=3)], deep=True) == ()
