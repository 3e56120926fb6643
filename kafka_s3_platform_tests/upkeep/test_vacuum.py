"""The vacuum on a real S3: it removes what runs that never committed left behind, and nothing else."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta, timezone
from typing import Any, TypeVar

import pytest

from kafka_s3_platform.core.archive.request import ArchiveRequest
from kafka_s3_platform.core.archive.run import archive_topic
from kafka_s3_platform.core.config.settings import ConnectorConfig, RetentionSettings
from kafka_s3_platform.core.errors import ForeignObjectError, StoreUnavailableError, SupersededError
from kafka_s3_platform.core.model.segment import Compaction
from kafka_s3_platform.core.spark.runner import Attempt
from kafka_s3_platform.core.store.index import IndexSnapshot
from kafka_s3_platform.core.store.index_commit import Change
from kafka_s3_platform.core.store.objects import ObjectInfo, ObjectStore
from kafka_s3_platform.core.store.upload import Provenance
from kafka_s3_platform.core.upkeep.compact.days import CompactRequest
from kafka_s3_platform.core.upkeep.retain import retain_topic
from kafka_s3_platform.core.upkeep.vacuum import VacuumReport, set_aside_unknown, vacuum_topic
from kafka_s3_platform.core.upkeep.verify import verify_archive
from kafka_s3_platform_tests.conftest import Lab, present
from kafka_s3_platform_tests.kafka.topics import values
from kafka_s3_platform_tests.restore.own import restored
from kafka_s3_platform_tests.support import (
    HOUR,
    NOON,
    FailingRunner,
    InProcessRunner,
    InterleavedRunner,
    Sent,
    archived,
    compact_day,
    offsets_by_kafka_partition,
    produce,
    snapshot,
    stored,
)

T = TypeVar("T")
R = TypeVar("R")

NOW = timedelta(0)
HOUR_FOLDER = "year=2026/month=01/day=01/hour=12"


@pytest.fixture
def config(lab: Lab) -> ConnectorConfig:
    """A connector that has archived two hours of its topic."""
    return lab.archive([Sent(b"a"), Sent(b"b", None, NOON + HOUR)])


def vacuumed(config: ConnectorConfig, older_than: timedelta = NOW, dry_run: bool = False) -> VacuumReport:
    return vacuum_topic(config, config.topics[0], "vacuum-run", older_than, dry_run)


def archive_then_fail(config: ConnectorConfig, then: Callable[[], object] = lambda: None) -> None:
    """Leaves an orphan: a new record's object, that no commit names."""
    produce(config.kafka, config.topics[0], [Sent(b"orphan", None, NOON + 2 * HOUR)])
    with pytest.raises(StoreUnavailableError):
        archive_topic(ArchiveRequest(config, config.topics[0], "failed", None), FailingRunner(then))


def later() -> datetime:
    """A moment that all which is stored is older than, and all which begins from now on is younger than."""
    time.sleep(1.1)  # stores tell times in whole seconds
    moment = datetime.now(timezone.utc)
    # a run takes the earlier of its own time and the store's, which is too early by as long as an answer took to come
    time.sleep(2.5)
    return moment


def objects(config: ConnectorConfig) -> set[str]:
    store = ObjectStore(config.store)
    return {o.key for root in ("topics", "topics_daily") for o in store.list(f"{root}/{config.topics[0]}/")}


def known(config: ConnectorConfig) -> set[str]:
    now = snapshot(config)
    return {s.key for s in (*now.segments, *now.retired)}


def put(config: ConnectorConfig, name: str, **changed: str | int) -> str:
    """An object below the topic's folder, as if written by a run long closed."""
    index = snapshot(config)
    topic = present(index.state.topic)
    who = Provenance("c", topic.topic, topic.topic_id, index.index_id, "closed", 0, 1, config.archive.index_dir)
    key = f"topics/{config.topics[0]}/{name}"
    ObjectStore(config.store).put_new(key, b"data", replace(who, **changed).metadata(key))  # type: ignore[arg-type]
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
    compact_day(CompactRequest(config, config.topics[0], date(2026, 1, 1), "r"), InProcessRunner())
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
    assert (report.removed, report.retained) == ((), 1)


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
    assert (report.removed, report.retained) == ((), 1)


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


def test_nothing_is_lost_where_the_folder_of_records_out_of_range_gets_another_name(config: ConnectorConfig) -> None:
    long_ago = NOON - timedelta(days=400)
    produce(config.kafka, config.topics[0], [Sent(b"old", None, long_ago)])
    archived(config)
    renamed = config.model_copy(update={"layout": config.layout.model_copy(update={"out_of_range_folder": "odd"})})
    produce(config.kafka, config.topics[0], [Sent(b"older", None, long_ago - HOUR)])
    archived(renamed)
    folders = {segment.encoded_partition for segment in snapshot(renamed).segments if segment.chunk_start is None}
    assert folders == {"__out_of_range__", "odd"}
    assert (vacuumed(renamed).removed, vacuumed(renamed).foreign) == ((), ())
    compact_day(CompactRequest(renamed, config.topics[0], date(2026, 1, 1), "r"), InProcessRunner())
    assert verify_archive(renamed, config.topics[0], True, InProcessRunner()).ok
    report = restored(renamed)
    assert (report.verified, report.out_of_range_count) == (True, 2)
    assert values(config.kafka, report.to_topic) == [b"a", b"b", b"old", b"older"]


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


def test_unfinished_uploads_of_keys_and_headers_are_aborted_too(config: ConnectorConfig) -> None:
    layout = {"format": "json", "codec": "none", "keys_format": "json", "headers_format": "avro"}
    config = config.model_copy(update={"layout": config.layout.model_copy(update=layout)})
    store, topic = ObjectStore(config.store), config.topics[0]
    place = f"topics/{topic}/{HOUR_FOLDER}/{topic}+0+0000000099"
    uploads = {f"{place}.{ending}" for ending in ("json", "keys.json", "headers.avro")}
    for key in (*uploads, f"{place}.keys.avro"):
        store.create_upload(key, {})
    assert set(vacuumed(config).aborted_uploads) == uploads


def test_a_young_run_at_work_is_not_disturbed_and_disturbs_no_vacuum(config: ConnectorConfig) -> None:
    def vacuum() -> None:
        report = vacuumed(config, datetime.now(timezone.utc) - before)
        assert (report.removed, report.retained) == ((another,), 1)

    another = put(config, orphan_name(config))
    produce(config.kafka, config.topics[0], [Sent(b"c", None, NOON + 2 * HOUR)])
    before = later()
    archive_topic(ArchiveRequest(config, config.topics[0], "at work", None), InterleavedRunner(vacuum))
    assert offsets_by_kafka_partition(stored(config)) == {0: [0, 1, 2]}


def test_what_begins_in_the_ranges_of_a_run_at_work_is_kept(config: ConnectorConfig) -> None:
    """The run may write that very key at any moment."""

    class AtWork(InProcessRunner):
        def run(self, function: Callable[[T, Attempt], R], tasks: Sequence[T], max_concurrent: int) -> Iterator[R]:
            report = vacuumed(config, datetime.now(timezone.utc) - before)
            assert (report.removed, report.retained) == ((), 1)
            yield from super().run(function, tasks, max_concurrent)

    archive_then_fail(config)
    before = later()
    archive_topic(ArchiveRequest(config, config.topics[0], "at work", None), AtWork())
    assert offsets_by_kafka_partition(stored(config)) == {0: [0, 1, 2]}


def test_a_young_compaction_at_work_is_not_disturbed(config: ConnectorConfig) -> None:
    now = snapshot(config)
    now.commit(Change(added=(Compaction(NOON, "compaction", now.version + 1, datetime.now(timezone.utc)),)))
    vacuumed(config, HOUR)
    assert len(snapshot(config).state.compactions) == 1
    vacuumed(config)
    assert snapshot(config).state.compactions == ()


def test_a_run_older_than_the_age_is_superseded_and_can_never_commit(config: ConnectorConfig) -> None:
    class Stalled(InProcessRunner):
        def run(self, function: Callable[[T, Attempt], R], tasks: Sequence[T], max_concurrent: int) -> Iterator[R]:
            yield from super().run(function, tasks, max_concurrent)
            assert len(vacuumed(config).removed) == 1

    produce(config.kafka, config.topics[0], [Sent(b"c", None, NOON + 2 * HOUR)])
    with pytest.raises(SupersededError):
        archive_topic(ArchiveRequest(config, config.topics[0], "stalled", None), Stalled())
    archived(config)
    assert offsets_by_kafka_partition(stored(config)) == {0: [0, 1, 2]}


def test_a_key_that_was_condemned_is_never_written_again(config: ConnectorConfig) -> None:
    archive_then_fail(config)
    [orphan] = vacuumed(config).removed
    assert [c.key for c in snapshot(config).state.condemned] == [orphan]
    archived(config)
    assert orphan not in objects(config)
    assert offsets_by_kafka_partition(stored(config)) == {0: [0, 1, 2]}
    epoch = max(s.epoch for s in snapshot(config).segments)
    assert orphan.replace(".parquet", f"+{epoch}.parquet") in known(config)
    compact_day(CompactRequest(config, config.topics[0], date(2026, 1, 1), "r"), InProcessRunner())
    assert offsets_by_kafka_partition(stored(config)) == {0: [0, 1, 2]}
    assert verify_archive(config, config.topics[0], True, InProcessRunner()).ok


def test_runs_that_fail_one_after_the_other_leave_nothing_behind(config: ConnectorConfig) -> None:
    for _ in range(3):
        archive_then_fail(config)
        vacuumed(config)
    assert objects(config) == known(config)
    archived(config)
    assert vacuumed(config).removed == ()
    assert offsets_by_kafka_partition(stored(config)) == {0: [0, 1, 2, 3, 4]}


def test_a_delete_that_comes_late_finds_nothing_live(config: ConnectorConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last moment at which anything can be checked: whatever a run does then, it is not at that key."""
    archive_then_fail(config)
    delete = ObjectStore.delete

    def late(self: ObjectStore, key: str, if_match: str) -> None:
        archived(config)
        delete(self, key, if_match)

    monkeypatch.setattr(ObjectStore, "delete", late)
    vacuumed(config)
    assert objects(config) == known(config)
    assert offsets_by_kafka_partition(stored(config)) == {0: [0, 1, 2]}


def test_an_object_replaced_after_it_was_looked_at_is_kept(
    config: ConnectorConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive_then_fail(config)
    [orphan] = objects(config) - known(config)
    commit = IndexSnapshot.commit

    def replaced(self: IndexSnapshot, change: Change) -> int:
        store = ObjectStore(config.store)
        store.replace(orphan, b"a user's", store.head(orphan).etag)  # type: ignore[union-attr]
        return commit(self, change)

    monkeypatch.setattr(IndexSnapshot, "commit", replaced)
    report = vacuumed(config)
    assert (report.removed, report.finished) == ((), False)
    assert ObjectStore(config.store).get(orphan) == b"a user's"


def test_what_a_run_committed_between_looking_and_condemning_is_kept(
    config: ConnectorConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive_then_fail(config)
    commit = IndexSnapshot.commit
    done: list[bool] = []

    def overtaken(self: IndexSnapshot, change: Change, *args: Any, **kwargs: Any) -> int:
        if not done:
            done.append(True)
            archived(config)
        return commit(self, change, *args, **kwargs)

    monkeypatch.setattr(IndexSnapshot, "commit", overtaken)
    assert vacuumed(config).removed == ()
    assert objects(config) == known(config)
    assert offsets_by_kafka_partition(stored(config)) == {0: [0, 1, 2]}


def test_copies_and_renamed_objects_of_a_user_are_kept(config: ConnectorConfig, s3_client: Any) -> None:
    archive_then_fail(config)
    [orphan] = objects(config) - known(config)
    live = next(iter(known(config)))
    folder = f"topics/{config.topics[0]}"
    name = live.rpartition("/")[2]
    copies = {
        f"{folder}/backup/{name}": live,
        f"{folder}/year=2026/month=01/day=01/hour=23/{name}": live,
        live.replace("+0+", "+7+"): live,
        live.replace(".parquet", "+1.parquet"): live,
        f"{folder}/backup/orphan/{orphan.rpartition('/')[2]}": orphan,
    }
    bucket = config.store.bucket
    for to, source in copies.items():
        s3_client.copy_object(Bucket=bucket, Key=to, CopySource={"Bucket": bucket, "Key": source})
    report = vacuumed(config)
    assert report.removed == (orphan,)
    assert set(report.foreign) == set(copies)
    assert objects(config) == known(config) | set(copies)


def test_an_archive_whose_index_was_copied_in_its_bucket_loses_nothing(config: ConnectorConfig, s3_client: Any) -> None:
    bucket, topic = config.store.bucket, config.topics[0]
    for item in list(ObjectStore(config.store).list("_index/connector=c/")):
        to = item.key.replace("_index/", "_copied/", 1)
        s3_client.copy_object(Bucket=bucket, Key=to, CopySource={"Bucket": bucket, "Key": item.key})
    copied = config.model_copy(update={"archive": config.archive.model_copy(update={"index_dir": "_copied"})})
    produce(config.kafka, topic, [Sent(b"c", None, NOON + 2 * HOUR)])
    archived(config)
    for _ in range(9):
        snapshot(copied).commit(Change())
    new = next(s.key for s in snapshot(config).segments if s.start_offset == 2)
    report = vacuumed(copied)
    assert (report.removed, report.foreign) == ((), (new,))
    with pytest.raises(ForeignObjectError, match="it is a copy"):
        archived(copied)
    assert offsets_by_kafka_partition(stored(config)) == {0: [0, 1, 2]}


def test_a_copy_moved_to_another_bucket_with_its_index_is_vacuumed_there(
    config: ConnectorConfig, s3_client: Any
) -> None:
    archive_then_fail(config)
    [orphan] = objects(config) - known(config)
    bucket, other = config.store.bucket, f"{config.store.bucket}-copy"
    s3_client.create_bucket(Bucket=other)
    for item in list(ObjectStore(config.store).list("")):
        s3_client.copy_object(Bucket=other, Key=item.key, CopySource={"Bucket": bucket, "Key": item.key})
    copied = config.model_copy(update={"store": config.store.model_copy(update={"bucket": other})})
    assert vacuumed(copied).removed == (orphan,)
    assert orphan in objects(config)
    archived(copied)
    assert offsets_by_kafka_partition(stored(copied)) == {0: [0, 1, 2]}
    s3_client.delete_bucket(Bucket=other)


def test_a_topic_that_was_never_archived_has_no_orphans(lab: Lab) -> None:
    config = lab.connector()
    assert vacuumed(config) == VacuumReport()


def list_index(config: ConnectorConfig) -> list[ObjectInfo]:
    return list(ObjectStore(config.store).list(f"{config.archive.index_dir}/connector={config.name}/"))


def put_index_back(config: ConnectorConfig, copy: Mapping[str, bytes]) -> None:
    store = ObjectStore(config.store)
    for found in list_index(config):
        store.delete(found.key, found.etag)
    for key, content in copy.items():
        store.put_new(key, content)


def test_after_an_index_was_put_back_runs_write_beside_what_it_does_not_know(config: ConnectorConfig) -> None:
    store = ObjectStore(config.store)
    copy = {found.key: store.get(found.key) for found in list_index(config)}
    for hour in range(2, 5):
        produce(config.kafka, config.topics[0], [Sent(b"later", None, NOON + hour * HOUR)])
        archived(config)
    lost = {o.key: o.etag for o in map(store.head, objects(config)) if o}
    put_index_back(config, copy)
    lost = {key: etag for key, etag in lost.items() if key not in known(config)}
    assert len(lost) == 3
    with pytest.raises(SupersededError, match="kafka-s3 vacuum c --index-put-back"):
        archived(config)

    assert set(set_aside_unknown(config, config.topics[0], "aside")) == lost.keys()
    archived(config)

    assert offsets_by_kafka_partition(stored(config)) == {0: [0, 1, 2, 3, 4]}
    assert {key: found.etag for key in lost if (found := store.head(key))} == lost, "none is replaced or deleted"
    assert verify_archive(config, config.topics[0], False, InProcessRunner()).ok


def test_the_day_of_hours_that_went_stays_where_an_older_index_is_put_back(config: ConnectorConfig) -> None:
    """The day has the only copy of their records, and that index names no day."""
    store = ObjectStore(config.store)
    copy = {found.key: store.get(found.key) for found in list_index(config)}
    compact_day(CompactRequest(config, config.topics[0], date(2026, 1, 1), "day"), InProcessRunner())
    rules = config.archive.model_copy(update={"retention": RetentionSettings(merged_ms=(("", 0),))})
    retain_topic(config.model_copy(update={"archive": rules}), config.topics[0], "retain")
    put_index_back(config, copy)
    set_aside_unknown(config, config.topics[0], "aside")

    days = objects(config)
    report = vacuumed(config)
    assert (report.removed, report.retained) == ((), len(days))
    assert set(report.missing) == known(config)
    assert objects(config) == days


@pytest.mark.parametrize("then", [set_aside_unknown, lambda config, *_: archived(config)], ids=["command", "run"])
def test_a_run_that_slept_while_its_index_was_put_back_is_superseded(
    config: ConnectorConfig, then: Callable[[ConnectorConfig, str, str], object]
) -> None:
    """Also where the first commit after it has the epoch of the sleeper's reservation: that is another run's."""
    store = ObjectStore(config.store)
    copy = {found.key: store.get(found.key) for found in list_index(config)}
    produce(config.kafka, config.topics[0], [Sent(b"later", None, NOON + 2 * HOUR)])

    def sleep() -> None:
        put_index_back(config, copy)
        then(config, config.topics[0], "meanwhile")

    with pytest.raises(SupersededError, match="commits nothing"):
        archive_topic(ArchiveRequest(config, config.topics[0], "sleeper", None), InterleavedRunner(sleep))
    archived(config)
    assert offsets_by_kafka_partition(stored(config)) == {0: [0, 1, 2]}
    assert verify_archive(config, config.topics[0], True, InProcessRunner()).ok
