"""The vacuum on a real S3: it removes what runs that never committed left behind, and nothing else."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta, timezone
from typing import TypeVar

import pytest

from kafka_s3_platform.archive.request import ArchiveRequest
from kafka_s3_platform.archive.run import archive
from kafka_s3_platform.archive.vacuum import VacuumReport, vacuum
from kafka_s3_platform.compact.request import CompactRequest
from kafka_s3_platform.compact.run import compact
from kafka_s3_platform.config.settings import ConnectorConfig, KafkaSettings, StoreSettings
from kafka_s3_platform.errors import BusyError, StoreUnavailableError, SupersededError
from kafka_s3_platform.model.segment import MAINTENANCE_LEASE, Compaction, Maintenance
from kafka_s3_platform.spark.runner import Attempt
from kafka_s3_platform.store.index import Change
from kafka_s3_platform.store.objects import ObjectStore
from kafka_s3_platform.store.upload import Provenance
from kafka_s3_platform_tests.conftest import CreateTopic
from kafka_s3_platform_tests.support import (
    HOUR,
    NOON,
    InProcessRunner,
    Sent,
    archived,
    connector,
    offsets_by_kafka_partition,
    produce,
    snapshot,
    stored,
)

pytestmark = pytest.mark.integration

T = TypeVar("T")
R = TypeVar("R")

NOW = timedelta(0)
HOUR_FOLDER = "year=2026/month=01/day=01/hour=12"


class FailingRunner(InProcessRunner):
    """Does every task, then ends the run before it can commit."""

    def __init__(self, then: Callable[[], object] = lambda: None) -> None:
        self._then = then

    def run(self, function: Callable[[T, Attempt], R], tasks: Sequence[T], max_concurrent: int) -> Iterator[R]:
        yield from list(super().run(function, tasks, max_concurrent))
        self._then()
        raise StoreUnavailableError("the store went away")


@pytest.fixture
def config(
    kafka_settings: KafkaSettings, store_settings: StoreSettings, topic_name: str, create_topic: CreateTopic
) -> ConnectorConfig:
    """A connector that has archived two hours of its topic."""
    create_topic(topic_name)
    produce(kafka_settings, topic_name, [Sent(b"a"), Sent(b"b", None, NOON + HOUR)])
    found = connector(kafka_settings, store_settings, topic_name)
    archived(found)
    return found


def vacuumed(config: ConnectorConfig, older_than: timedelta = NOW, dry_run: bool = False) -> VacuumReport:
    return vacuum(config, config.topics[0], "vacuum-run", older_than, dry_run)


def archive_then_fail(config: ConnectorConfig, then: Callable[[], object] = lambda: None) -> None:
    """Leaves an orphan: a new record's object, that no commit names."""
    produce(config.kafka, config.topics[0], [Sent(b"orphan", None, NOON + 2 * HOUR)])
    with pytest.raises(StoreUnavailableError):
        archive(ArchiveRequest(config, config.topics[0], "failed", None), FailingRunner(then))


def objects(config: ConnectorConfig) -> set[str]:
    return {o.key for o in ObjectStore(config.store).list(f"topics/{config.topics[0]}/")}


def known(config: ConnectorConfig) -> set[str]:
    now = snapshot(config)
    return {s.key for s in (*now.segments, *now.retired)}


def put(config: ConnectorConfig, name: str, **changed: str | int) -> str:
    """An object below the topic's folder, as if written by a run long closed."""
    index = snapshot(config)
    topic = index.state.topic
    assert topic is not None
    provenance = replace(Provenance("c", topic.topic, topic.topic_id, index.index_id, "closed", 0, 1), **changed)  # type: ignore[arg-type]
    key = f"topics/{config.topics[0]}/{name}"
    ObjectStore(config.store).put_new(key, b"data", provenance.metadata())
    return key


def orphan_name(config: ConnectorConfig, offset: int = 99) -> str:
    return f"{HOUR_FOLDER}/{config.topics[0]}+0+{offset:010d}.parquet"


def test_orphans_of_a_failed_run_are_removed_and_what_is_committed_stays(config: ConnectorConfig) -> None:
    archive_then_fail(config)
    orphans = objects(config) - known(config)
    assert len(orphans) == 1
    report = vacuumed(config)
    assert set(report.removed) == orphans
    assert report.removed_bytes > 0
    assert report.finished
    assert objects(config) == known(config)
    archived(config)
    assert offsets_by_kafka_partition(stored(config)) == {0: [0, 1, 2]}


def test_retired_segments_stay(config: ConnectorConfig) -> None:
    compact(CompactRequest(config, config.topics[0], date(2026, 1, 1), "r"), InProcessRunner())
    before = objects(config)
    assert len(before) == 3
    assert vacuumed(config).removed == ()
    assert objects(config) == before


def test_a_dry_run_only_tells(config: ConnectorConfig) -> None:
    archive_then_fail(config)
    before, version = objects(config), snapshot(config).version
    report = vacuumed(config, dry_run=True)
    assert set(report.removed) == before - known(config)
    assert report.dry_run
    assert (objects(config), snapshot(config).version) == (before, version)


def test_young_orphans_are_kept(config: ConnectorConfig) -> None:
    archive_then_fail(config)
    report = vacuumed(config, HOUR)
    assert (report.removed, report.kept) == ((), 1)


def test_foreign_objects_are_named_and_never_touched(config: ConnectorConfig) -> None:
    store = ObjectStore(config.store)
    nobodys = f"topics/{config.topics[0]}/{orphan_name(config, 77)}"
    store.put_new(nobodys, b"data", {"epoch": "0"})
    foreign = {
        nobodys,
        put(config, orphan_name(config, 80), connector="another"),
        put(config, orphan_name(config, 81), topic="another"),
        put(config, orphan_name(config, 82), topic_id="another"),
        put(config, "notes/readme.txt"),
    }
    ours = put(config, orphan_name(config))
    report = vacuumed(config)
    assert set(report.foreign) == foreign
    assert report.removed == (ours,)
    assert objects(config) == known(config) | foreign


def test_an_epoch_that_is_not_closed_is_left_alone(config: ConnectorConfig) -> None:
    put(config, orphan_name(config), epoch=1_000_000)
    report = vacuumed(config)
    assert (report.removed, report.kept) == ((), 1)


def test_objects_older_than_the_index_belong_to_another_index(config: ConnectorConfig) -> None:
    """After `archive.index.dir` was changed, or the index was lost, nothing may go."""
    archive_then_fail(config)
    before = objects(config)
    moved = config.model_copy(update={"archive": config.archive.model_copy(update={"index_dir": "_new"})})
    time.sleep(1.1)  # stores tell times in whole seconds
    assert vacuumed(moved) == VacuumReport()
    now = snapshot(moved)
    now.commit(Change(added=(*snapshot(config).state.generations,)))
    report = vacuumed(moved)
    assert report.removed == ()
    assert objects(config) == before


def test_folders_that_the_connector_wrote_to_before_are_searched_too(config: ConnectorConfig) -> None:
    archive_then_fail(config)
    moved = config.model_copy(update={"layout": config.layout.model_copy(update={"topics_dir": "elsewhere"})})
    assert len(vacuumed(moved).removed) == 1
    assert objects(config) == known(config)


def test_unfinished_uploads_of_segments_are_aborted_and_others_are_left(config: ConnectorConfig) -> None:
    store, topic = ObjectStore(config.store), config.topics[0]
    ours = f"topics/{topic}/{orphan_name(config)}"
    rewrite = ours.replace(".parquet", "+1.parquet")
    open_rewrite = ours.replace(".parquet", "+1000000.parquet")
    others = {
        open_rewrite,
        ours.replace(".parquet", ".avro"),
        f"topics/{topic}/{HOUR_FOLDER}/video.parquet",
        "else/x.bin",
    }
    for key in (ours, rewrite, *others):
        store.create_upload(key, {})
    assert vacuumed(config, HOUR).aborted_uploads == ()
    assert set(vacuumed(config).aborted_uploads) == {ours, rewrite}
    assert {u.key for u in store.list_uploads("")} == others


def test_a_young_run_at_work_is_not_disturbed(config: ConnectorConfig) -> None:
    def meanwhile() -> None:
        with pytest.raises(BusyError, match="run failed is at work"):
            vacuumed(config, HOUR)
        assert len(vacuumed(config, dry_run=True).removed) == 0

    archive_then_fail(config, meanwhile)


def test_a_young_compaction_at_work_is_not_disturbed(config: ConnectorConfig) -> None:
    now = snapshot(config)
    now.commit(Change(added=(Compaction(NOON, "compaction", now.version + 1, datetime.now(timezone.utc)),)))
    with pytest.raises(BusyError, match="run compaction is at work"):
        vacuumed(config, HOUR)
    vacuumed(config)
    assert snapshot(config).state.compactions == ()


def test_a_run_older_than_the_age_is_superseded_and_can_never_commit(config: ConnectorConfig) -> None:
    class Stalled(InProcessRunner):
        def run(self, function: Callable[[T, Attempt], R], tasks: Sequence[T], max_concurrent: int) -> Iterator[R]:
            yield from super().run(function, tasks, max_concurrent)
            assert len(vacuumed(config).removed) == 1

    produce(config.kafka, config.topics[0], [Sent(b"c", None, NOON + 2 * HOUR)])
    with pytest.raises(SupersededError):
        archive(ArchiveRequest(config, config.topics[0], "stalled", None), Stalled())
    archived(config)
    assert offsets_by_kafka_partition(stored(config)) == {0: [0, 1, 2]}


def test_no_run_is_reserved_while_a_vacuum_is_at_work(config: ConnectorConfig) -> None:
    now = snapshot(config)
    now.commit(Change(added=(Maintenance("other", now.version + 1, datetime.now(timezone.utc)),)))
    for run in (archived, vacuumed):
        with pytest.raises(BusyError, match="run other is"):
            run(config)


@pytest.mark.parametrize("run", [archived, vacuumed])
def test_a_vacuum_that_was_killed_holds_off_others_for_its_lease_only(
    config: ConnectorConfig, run: Callable[[ConnectorConfig], object]
) -> None:
    now = snapshot(config)
    killed = Maintenance("killed", now.version + 1, datetime.now(timezone.utc) - MAINTENANCE_LEASE)
    now.commit(Change(added=(killed,)))
    run(config)
    assert snapshot(config).state.maintenance == ()


def test_a_vacuum_whose_row_was_put_aside_deletes_nothing_more(
    config: ConnectorConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive_then_fail(config)
    listing = ObjectStore.list_uploads

    def put_aside(self: ObjectStore, prefix: str) -> object:
        snapshot(config).commit(Change(removed=("(kind = 'maintenance')",)))
        return listing(self, prefix)

    monkeypatch.setattr(ObjectStore, "list_uploads", put_aside)
    before = objects(config)
    report = vacuumed(config)
    assert (report.removed, report.finished) == ((), False)
    assert objects(config) == before


def test_the_row_goes_when_the_vacuum_fails(config: ConnectorConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    def unavailable(self: ObjectStore, prefix: str) -> object:
        raise StoreUnavailableError("no answer")

    monkeypatch.setattr(ObjectStore, "list_uploads", unavailable)
    with pytest.raises(StoreUnavailableError):
        vacuumed(config)
    assert snapshot(config).state.maintenance == ()


def test_a_topic_that_was_never_archived_has_no_orphans(
    kafka_settings: KafkaSettings, store_settings: StoreSettings, topic_name: str
) -> None:
    config = connector(kafka_settings, store_settings, topic_name)
    assert vacuumed(config) == VacuumReport()
