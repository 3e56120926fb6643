"""Exact counts before anything is sent, and windows of picked hours, on a real archive."""

from dataclasses import replace
from typing import Any

import pytest

from kafka_s3_platform.config.settings import ConnectorConfig, TransformSettings
from kafka_s3_platform.restore.archive_source import ArchiveSource, SelectedCount, count_exactly
from kafka_s3_platform.restore.filters.stage import FilteredStream
from kafka_s3_platform.restore.request import Outgoing, RecordFilter, RestoreRequest
from kafka_s3_platform.restore.run import restore
from kafka_s3_platform.restore.source.archive_plan import make_plan
from kafka_s3_platform.restore.source.archive_stream import ArchivedStream, StreamTask
from kafka_s3_platform.store.objects import ObjectStore
from kafka_s3_platform_tests.restore.records import offsets_of
from kafka_s3_platform_tests.restore.targets import Archive
from kafka_s3_platform_tests.support import HOUR, NOON, InProcessRunner, Sent


@pytest.fixture
def config(shared_archive: Archive) -> ConnectorConfig:
    """Two kafka partitions with twelve records an hour, for five hours: keys k0 to k3 in turn."""
    sent = [
        Sent(b"%d" % n, b"k%d" % (n % 4), NOON + h * HOUR + n * HOUR / 12, kafka_partition=p)
        for p in range(2)
        for h in range(5)
        for n in range(12)
    ]
    return shared_archive(sent, 2)


def asked(config: ConnectorConfig, **changes: Any) -> RestoreRequest:
    return RestoreRequest(config, config.topics[0], to_topic="u", restore_id="r", run_id="x", **changes)


def counts(request: RestoreRequest) -> list[SelectedCount]:
    return count_exactly(request, make_plan(request), InProcessRunner())


def selected(request: RestoreRequest, start: int = 0) -> list[int]:
    plan, store = make_plan(request), ObjectStore(request.config.store)
    task = StreamTask(request.config.store, request.topic, 0, plan.selection, plan.objects_of(0))
    return offsets_of(FilteredStream(ArchivedStream(task, store, start), request.records))


def test_what_filters_let_pass_is_counted_exactly(config: ConnectorConfig) -> None:
    whole = asked(config)
    assert make_plan(whole).is_exact
    assert [c.record_count for c in counts(whole)] == [60, 60]

    keyed = asked(config, records=RecordFilter(keys=(b"k1",)))
    assert (make_plan(keyed).is_exact, make_plan(keyed).record_count) == (False, 120)
    assert counts(keyed)[0] == SelectedCount(0, 15, 15 * 3, 3)

    latest = asked(config, records=RecordFilter(latest_per_key=True))
    assert selected(latest) == [56, 57, 58, 59]
    assert selected(latest, 58) == [58, 59]


def test_what_transforms_may_drop_is_never_counted_as_exact(config: ConnectorConfig) -> None:
    everything = TransformSettings(alias="drop", type="Filter")
    dropping = asked(config, dry_run=True, create_topic=True, outgoing=Outgoing(transforms=(everything,)))
    for request in (dropping, replace(dropping, exact=True)):
        found = restore(ArchiveSource(request), InProcessRunner())
        assert (found.record_count, found.exact, found.before_transforms) == (120, False, True)
    plain = restore(ArchiveSource(asked(config, dry_run=True, create_topic=True, exact=True)), InProcessRunner())
    assert (plain.exact, plain.before_transforms) == (True, False)


def test_hours_picked_here_and_there_read_only_their_objects(config: ConnectorConfig) -> None:
    windows = tuple((NOON + h * HOUR, NOON + (h + 1) * HOUR) for h in (4, 1))
    picked = asked(config, windows=windows)

    plan = make_plan(picked)

    assert (plan.is_exact, plan.record_count, len(plan.objects)) == (True, 48, 4)
    assert selected(picked) == [*range(12, 24), *range(48, 60)]
    half = asked(config, windows=windows, from_time=NOON + 1.5 * HOUR)
    assert selected(half) == [*range(18, 24), *range(48, 60)]
