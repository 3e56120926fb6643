"""A topic whose connector file was edited between its runs: every object is judged by the settings that wrote it.

An archive copied to another bucket with its index: ETags are others there, the bytes are the same.
"""

from collections.abc import Sequence
from datetime import date, datetime, timedelta, timezone
from typing import Any
from uuid import uuid4
from zoneinfo import ZoneInfo

import pytest

from kafka_s3_platform.core.config.settings import ConnectorConfig, KafkaSettings, StoreSettings
from kafka_s3_platform.core.errors import ConfigError, IntegrityError, PreflightError
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform.core.upkeep.compact.days import CompactReport, CompactRequest, list_due_days, summarize_days
from kafka_s3_platform.core.upkeep.vacuum import vacuum_topic
from kafka_s3_platform.core.upkeep.verify import verify_archive, verify_hours
from kafka_s3_platform_tests.conftest import CreateTopic, Lab
from kafka_s3_platform_tests.kafka.topics import values
from kafka_s3_platform_tests.restore.own import Archive, once, put_in_parts, restored, target_of
from kafka_s3_platform_tests.support import (
    HOUR,
    NOON,
    InProcessRunner,
    Sent,
    archived,
    compact_day,
    connector,
    produce,
    snapshot,
)

NEW_YORK = "America/New_York"
JSON: dict[str, Any] = {"format": "json", "codec": "gzip", "null_values": "fail"}
EDITS: Sequence[dict[str, Any]] = (
    {},
    JSON,
    {"format": "envelope.avro"},
    {"topics_dir": "elsewhere"},
    {"topics_dir": "elsewhere", "timezone": NEW_YORK},
    {"topics_dir": "elsewhere", "timezone": NEW_YORK, "codec": "none"},
    {"topics_dir": "elsewhere", "timezone": NEW_YORK, "codec": "gzip", "path_format": "YYYY/MM/dd/HH"},
)
EACH = 5
KEPT = EACH * (len(EDITS) - 1)
"""Records in envelopes."""
VALUES = [b'{"edit":%d,"n":%d}' % (edit, n) for edit in range(len(EDITS)) for n in range(EACH)]


def edited(kafka: KafkaSettings, store: StoreSettings, topic: str, edit: int) -> ConnectorConfig:
    layout = EDITS[edit]
    records = {"value": {"format": "JSON"}} if layout.get("format") == "json" else {}
    return connector(kafka, store, topic, layout=layout, records=records)


@pytest.fixture(scope="module")
def archive_once(kafka_settings: KafkaSettings, module_store: StoreSettings, create_topic: CreateTopic) -> Archive:
    """As the file is after the last edit. The records of each edit are of the same two hours, late in UTC's day."""

    def archive() -> ConnectorConfig:
        topic = create_topic(f"topic-{uuid4().hex[:12]}")
        for edit in range(len(EDITS)):
            values = VALUES[EACH * edit : EACH * (edit + 1)]
            start = NOON + timedelta(hours=10, minutes=30 + edit)
            produce(kafka_settings, topic, [Sent(v, b"k", start + n * HOUR / 4) for n, v in enumerate(values)])
            archived(edited(kafka_settings, module_store, topic, edit))
        return edited(kafka_settings, module_store, topic, len(EDITS) - 1)

    return once(archive)


@pytest.fixture
def config(copied_archive: Archive) -> ConnectorConfig:
    return copied_archive()


def due(config: ConnectorConfig) -> list[date]:
    zone = ZoneInfo(config.layout.timezone)
    return list_due_days(snapshot(config), zone, timedelta(), datetime.now(timezone.utc))


def merged(config: ConnectorConfig) -> list[CompactReport]:
    topic = config.topics[0]
    return [compact_day(CompactRequest(config, topic, day, "merge"), InProcessRunner()) for day in due(config)]


IN_ENVELOPES = [v for v in VALUES if b'"edit":1,' not in v]


def test_days_are_merged_by_the_timezones_that_wrote_them_values_alone_stay(
    config: ConnectorConfig,
) -> None:
    reports = merged(config)
    live = snapshot(config).segments
    daily = [s for s in live if s.chunk == "daily"]
    assert sum(s.record_count for s in daily) == KEPT
    assert {s.zone.key for s in daily} == {"UTC", NEW_YORK}
    starts = {s.chunk_start for s in daily if s.zone.key == NEW_YORK}
    assert starts == {datetime(2026, 1, 1, 5, tzinfo=timezone.utc)}
    assert {(s.chunk, s.format) for s in live if s not in daily} == {("hourly", "json")}
    assert due(config) == []
    assert sum(len(r.day.unmergeable) for r in reports) == len(live) - len(daily)
    assert all(r.day.hourly_count == 0 for r in reports)


def test_a_merged_mixed_archive_is_verified_shown_and_left_alone_by_the_vacuum(config: ConnectorConfig) -> None:
    topic = config.topics[0]
    assert verify_archive(config, topic, True, InProcessRunner()).ok
    merged(config)
    assert verify_archive(config, topic, True, InProcessRunner()).ok
    found = snapshot(config)
    hours = [NOON + n * HOUR for n in range(10, 14)]
    assert verify_hours(found, ObjectStore(config.store), hours, deep=True) == ()
    days = summarize_days(found, ZoneInfo(NEW_YORK), timedelta())
    assert sum(d.record_count for d in days) == len(VALUES)
    assert [d.is_merged for d in days if d.segments] == [True] * sum(bool(d.segments) for d in days)
    assert sum(d.unmergeable_count for d in days) == sum(s.format == "json" for s in found.segments)
    swept = vacuum_topic(config, topic, "vacuum", timedelta(), dry_run=False)
    assert (swept.removed, swept.foreign, swept.finished) == ((), (), True)


def test_the_hours_of_any_timezone_find_the_objects_that_hold_them(config: ConnectorConfig, lab: Lab) -> None:
    victim = next(s for s in snapshot(config).segments if s.zone.key == "UTC" and s.chunk_start == NOON + 10 * HOUR)
    lab.s3.delete_object(Bucket=config.store.bucket, Key=victim.key)
    half_past = NOON + 9 * HOUR + timedelta(minutes=30)
    store = ObjectStore(config.store)
    for hours, is_found in (([half_past], True), ([NOON + 10 * HOUR], True), ([NOON + 11 * HOUR], False)):
        damages = verify_hours(snapshot(config), store, hours)
        assert any(d.key == victim.key for d in damages) is is_found


@pytest.mark.parametrize("is_merged", [False, True])
def test_a_restore_and_its_dry_run_say_first_what_cannot_be_made(config: ConnectorConfig, is_merged: bool) -> None:
    if is_merged:
        merged(config)
    dry = restored(config, dry_run=True)
    [refusal] = dry.refusals
    assert f"{config.topics[0]}-0: " in refusal
    assert "within offsets [5, 10)) are of format json" in refusal
    assert dry.record_count == KEPT
    with pytest.raises(PreflightError, match="of format json, which their connector wrote then"):
        restored(config)


@pytest.mark.parametrize("is_merged", [False, True])
def test_what_it_advises_brings_all_else_back(config: ConnectorConfig, is_merged: bool) -> None:
    if is_merged:
        merged(config)
    report = restored(config, behavior_on_error="log")
    assert (report.sent_count, report.verified, report.record_count) == (KEPT, True, KEPT)
    assert any("of format json" in doubt and "they are left out" in doubt for doubt in report.doubts)
    assert values(config.kafka, target_of(config)) == IN_ENVELOPES


def test_windows_of_offsets_around_them_are_no_matter_of_other_formats(config: ConnectorConfig) -> None:
    assert restored(config, to_offset=EACH).sent_count == EACH
    assert values(config.kafka, target_of(config)) == VALUES[:EACH]


def test_a_window_of_time_takes_a_part_of_an_avro_envelope(config: ConnectorConfig) -> None:
    start = NOON + timedelta(hours=10, minutes=45)
    report = restored(config, from_offset=2 * EACH, to_offset=3 * EACH, from_time=start)
    assert report.sent_count == EACH - 1
    assert values(config.kafka, target_of(config)) == VALUES[2 * EACH + 1 : 3 * EACH]


def test_a_file_of_another_format_compacts_nothing_and_says_why(config: ConnectorConfig) -> None:
    of_json = edited(config.kafka, config.store, config.topics[0], 1)
    with pytest.raises(ConfigError, match="writes objects of format json, which holds values only"):
        compact_day(CompactRequest(of_json, config.topics[0], NOON.date(), "merge"), InProcessRunner())
    assert verify_archive(of_json, config.topics[0], True, InProcessRunner()).ok


DAY = date(2026, 1, 1)


@pytest.fixture
def copied(module_store: StoreSettings, lab: Lab) -> ConnectorConfig:
    """Two hours, archived, and copied object by object."""
    original = connector(lab.kafka, module_store, lab.create_topic(), index_dir=f"_index-{lab.topic}")
    lab.produce([Sent(b"%d" % n, None, NOON + n % 2 * HOUR) for n in range(20)])
    archived(original)
    for item in list(ObjectStore(original.store).list("")):
        found = lab.s3.get_object(Bucket=original.store.bucket, Key=item.key)
        if item.key.startswith("topics/"):
            put_in_parts(lab.s3, lab.store.bucket, item.key, found["Body"].read(), found["Metadata"])
        else:
            lab.s3.put_object(Bucket=lab.store.bucket, Key=item.key, Body=found["Body"].read())
    return original.model_copy(update={"store": lab.store})


def tamper(config: ConnectorConfig, client: Any) -> str:
    """Other bytes, as many as before."""
    key = snapshot(config).segments[0].key
    found = client.get_object(Bucket=config.store.bucket, Key=key)
    body = bytearray(found["Body"].read())
    body[len(body) // 2] ^= 1
    put_in_parts(client, config.store.bucket, key, bytes(body), found["Metadata"])
    return key


@pytest.mark.parametrize("deep", [False, True])
def test_it_is_verified_and_a_tampered_copy_is_found(copied: ConnectorConfig, lab: Lab, deep: bool) -> None:
    store = ObjectStore(copied.store)
    assert all(store.head(s.key).etag != s.etag for s in snapshot(copied).segments)  # type: ignore[union-attr]
    assert verify_archive(copied, copied.topics[0], deep, InProcessRunner()).ok
    key = tamper(copied, lab.s3)
    [damage] = verify_archive(copied, copied.topics[0], deep, InProcessRunner()).damages
    assert damage.key == key
    assert "and other bytes: it was replaced" in damage.message


def test_it_is_merged_and_restored(copied: ConnectorConfig) -> None:
    assert restored(copied).record_count == 20
    compact_day(CompactRequest(copied, copied.topics[0], DAY, "merge"), InProcessRunner())
    assert verify_archive(copied, copied.topics[0], True, InProcessRunner()).ok


def test_a_tampered_copy_is_neither_merged_nor_restored(copied: ConnectorConfig, lab: Lab) -> None:
    tamper(copied, lab.s3)
    with pytest.raises(PreflightError, match="was replaced"):
        restored(copied)
    with pytest.raises(IntegrityError, match="and other bytes"):
        compact_day(CompactRequest(copied, copied.topics[0], DAY, "merge"), InProcessRunner())
