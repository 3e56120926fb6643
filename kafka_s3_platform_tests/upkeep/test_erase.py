"""Erasure on a real Kafka and a real S3: what goes, what stays as it was, and what the archive says of it."""

import os
import random
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from itertools import count
from signal import SIGKILL
from threading import Timer
from time import monotonic
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kafka_s3_platform.core.config.formats import find_format
from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.errors import (
    AuthorizationError,
    IntegrityError,
    PreflightError,
    SupersededError,
)
from kafka_s3_platform.core.segments.writers import SegmentWriter
from kafka_s3_platform.core.spark.runner import TaskRunner
from kafka_s3_platform.core.store.index import ConnectorSnapshot, TopicIndex
from kafka_s3_platform.core.store.index_commit import Change
from kafka_s3_platform.core.store.index_rows import REMOVED
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform.core.store.row_filter import EVERY_SEGMENT
from kafka_s3_platform.core.upkeep.compact.days import CompactRequest, summarize_days
from kafka_s3_platform.core.upkeep.erase import ErasureReport, ErasureRequest, erase_records
from kafka_s3_platform.core.upkeep.vacuum import vacuum_topic
from kafka_s3_platform.core.upkeep.verify import read_checked
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.faults.children import signal_on_call
from kafka_s3_platform_tests.forked import end_apart
from kafka_s3_platform_tests.restore.own import Between, do_nothing, restored
from kafka_s3_platform_tests.support import (
    HOUR,
    NOON,
    InProcessRunner,
    InterleavedRunner,
    Sent,
    archived,
    compact_day,
    produce,
    snapshot,
    stored,
)
from kafka_s3_platform_tests.upkeep.test_retain import (
    DAY,
    HOURS,
    ONE_DAY,
    is_whole,
    live_keys,
    merged,
    objects,
    offsets,
    retained,
    ruled,
    states,
)

UTC = ZoneInfo("UTC")
ALICE = b"alice"
BOB = b"bob"
SENT = [
    Sent(b"a0", ALICE),
    Sent(
        b"b1",
        BOB,
        headers=(("h", None), ("h", b"")),
    ),
    Sent(None, ALICE),
    Sent(b"n3", None),
    Sent(b"b4", BOB, NOON + HOUR),
    Sent(b"a0", ALICE, NOON + HOUR, (), 1),
    Sent(b"", b"", NOON + HOUR, (), 1),
]
RIGHTS = 2
"""The first deletions ask for the right to delete, in the folders of hours and of days."""
OTHERS = {0: [1, 3, 4], 1: [1]}


def erased(
    config: ConnectorConfig,
    *keys: bytes,
    applies: bool = True,
    runner: TaskRunner | None = None,
    despite_hold: bool = False,
) -> ErasureReport:
    request = ErasureRequest(config, config.topics[0], keys or (ALICE,), "erase-run", despite_hold)
    return erase_records(request, runner or InProcessRunner(), applies=applies)


def records(config: ConnectorConfig) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = stored(config).drop_columns(["object"]).to_pylist()
    return rows


def holds_key(config: ConnectorConfig, key: bytes = ALICE) -> set[str]:
    """The objects of the bucket that hold these bytes, those of the index too."""
    return {o.key for o in ObjectStore(config.store).list("") if holds(config, o.key, key)}


def holds(config: ConnectorConfig, object_key: str, key: bytes) -> bool:
    return key in _unpack(object_key, ObjectStore(config.store).get(object_key))


def _unpack(name: str, body: bytes) -> bytes:
    return repr(pq.read_table(pa.BufferReader(body)).to_pydict()).encode() if name.endswith(".parquet") else body


@pytest.fixture
def config(lab: Lab) -> ConnectorConfig:
    """A connector that has archived two hours of its topic, in two kafka partitions."""
    return lab.archive(SENT, kafka_partitions=2)


@pytest.fixture
def merged_config(config: ConnectorConfig) -> ConnectorConfig:
    merged(config)
    return config


FILLS = pytest.mark.parametrize("fill", ["config", "merged_config"])


@pytest.mark.parametrize(("fill", "compared"), [("config", 3), ("merged_config", 4)])
def test_every_record_with_the_key_goes_and_all_others_stay_as_they_were(
    fill: str, compared: int, request: pytest.FixtureRequest
) -> None:
    config = request.getfixturevalue(fill)
    before = records(config)
    counts = snapshot(config).count_hours(NOON)
    plan = erased(config, applies=False)
    assert records(config) == before, "a plan erases nothing"
    report = erased(config)
    assert plan.record_count == report.record_count == 3
    assert plan.counts == report.counts == (3,)
    assert records(config) == [r for r in before if r["key"] != ALICE]
    assert offsets(config) == OTHERS
    assert sum(s.record_count for s in report.outputs) == compared, "of objects that held the key"
    assert holds_key(config) == set()
    assert objects(config) == live_keys(config) | {s.key for s in snapshot(config).retired}
    assert is_whole(config)
    assert states(config) == ["complete", "complete"]
    assert snapshot(config).count_hours(NOON) == counts, "an hour keeps its numbers"
    assert archived(config).record_count == 0, "nothing is archived again"
    assert erased(config).record_count == 0


@pytest.mark.parametrize("name", ["envelope.avro", "envelope.json"])
def test_every_envelope_is_erased_from(lab: Lab, name: str) -> None:
    config = lab.archive(SENT, kafka_partitions=2, layout={"format": name, "codec": find_format(name).default_codec})
    before = read_live(config)
    assert erased(config).record_count == 3
    assert read_live(config) == [row for row in before if row["key"] != ALICE]
    assert len(before) == 7
    assert is_whole(config)


def read_live(config: ConnectorConfig) -> list[dict[str, Any]]:
    """The records of the live segments of any envelope."""
    store = ObjectStore(config.store)
    return [row for s in snapshot(config).segments for batch in read_checked(store, s) for row in batch.to_pylist()]


def test_several_keys_are_counted_each(config: ConnectorConfig) -> None:
    report = erased(config, BOB, b"nobody", ALICE)
    assert report.counts == (2, 0, 3)
    assert offsets(config) == {0: [3], 1: [1]}


def test_a_key_that_begins_like_another_or_is_in_a_value_is_another(lab: Lab) -> None:
    config = lab.archive([Sent(ALICE, b"alic"), Sent(b"", b"alice2"), Sent(b"", None, NOON, (("alice", ALICE),))])
    assert erased(config, applies=True).counts == (0,)
    assert offsets(config) == {0: [0, 1, 2]}


def test_a_key_that_nobody_has_changes_nothing(config: ConnectorConfig) -> None:
    version = snapshot(config).version
    report = erased(config, b"nobody")
    assert (report.record_count, report.outputs, report.removed) == (0, (), ())
    assert snapshot(config).version == version


def test_of_a_topic_that_nothing_is_archived_of_nothing_is_searched(lab: Lab) -> None:
    lab.create_topic()
    assert erased(lab.connector()).searched == ()


def test_merged_hours_with_the_key_go_and_others_stay(lab: Lab) -> None:
    config = lab.archive([Sent(b"a", ALICE), Sent(b"b", BOB), Sent(b"b", BOB, NOON + HOUR)])
    merged(config)
    before = {s.chunk_start for s in snapshot(config).retired}
    report = erased(config)
    assert before == set(HOURS)
    assert [s.chunk_start for s in report.merged] == [NOON]
    assert [s.chunk_start for s in snapshot(config).retired] == [NOON + HOUR]
    assert [s.chunk_start for s in snapshot(config).select_segments(EVERY_SEGMENT, [REMOVED])] == [NOON]


@FILLS
def test_an_object_that_holds_nothing_else_goes_as_a_whole(fill: str, request: pytest.FixtureRequest) -> None:
    config = request.getfixturevalue(fill)
    report = erased(config, ALICE, BOB, b"")
    assert offsets(config) == {0: [3]}
    assert len(report.outputs) == 1
    assert states(config) == ["complete", "complete"], "an hour that had records is not an empty one"
    assert is_whole(config)
    assert archived(config).record_count == 0


def test_records_out_of_range_are_erased_from_too(lab: Lab) -> None:
    old = NOON - timedelta(days=900)
    config = lab.archive([Sent(b"a", ALICE, old), Sent(b"b", BOB, old), Sent(b"c", BOB)])
    erased(config)
    assert offsets(config) == {0: [1, 2]}
    assert [s.chunk_start for s in snapshot(config).segments] == [None, NOON]
    assert is_whole(config)


def test_what_is_archived_later_is_erased_by_the_next_run(config: ConnectorConfig) -> None:
    erased(config)
    produce(config.kafka, config.topics[0], [Sent(b"late", ALICE), Sent(b"late", BOB)])
    archived(config)
    assert offsets(config) == {0: [1, 3, 4, 5, 6], 1: [1]}
    assert erased(config).record_count == 1
    assert offsets(config) == {0: [1, 3, 4, 6], 1: [1]}
    assert is_whole(config)


def test_what_was_erased_stays_so_when_its_day_is_merged_merged_again_and_expires(config: ConnectorConfig) -> None:
    erased(config)
    merged(config)
    assert offsets(config) == OTHERS
    produce(config.kafka, config.topics[0], [Sent(b"late", BOB)])
    archived(config)
    erased(config, b"")
    merged(config)
    assert offsets(config) == {0: [1, 3, 4, 5]}
    assert retained(config, merged_ms=(("", 0),)).refused == ()
    assert retained(config, ms=(("", 0),)).refused == ()
    assert objects(config) == set()
    assert is_whole(config)


def test_a_day_that_was_erased_from_loses_its_hours_and_expires(merged_config: ConnectorConfig) -> None:
    erased(merged_config)
    assert retained(merged_config, merged_ms=(("", 0),)).refused == ()
    assert objects(merged_config) == live_keys(merged_config)
    assert is_whole(merged_config)
    assert retained(merged_config, ms=(("", 0),)).refused == ()
    assert objects(merged_config) == set()
    assert is_whole(merged_config)


def test_days_on_hold_stay_unless_they_are_named(merged_config: ConnectorConfig) -> None:
    config = ruled(merged_config, holds=(("*", DAY, DAY + ONE_DAY),))
    produce(config.kafka, config.topics[0], [Sent(b"a", ALICE, NOON + ONE_DAY)])
    archived(config)
    report = erased(config)
    assert (report.record_count, sum(s.record_count for s in report.on_hold)) == (1, 3)
    assert offsets(config) == {0: [0, 1, 2, 3, 4], 1: [0, 1]}
    report = erased(config, despite_hold=True)
    assert (report.record_count, report.on_hold) == (3, ())
    assert offsets(config) == OTHERS


def test_of_a_day_with_a_damaged_object_nothing_goes_and_it_is_told(config: ConnectorConfig, lab: Lab) -> None:
    damaged = next(s for s in snapshot(config).segments if (s.kafka_partition, s.chunk_start) == (0, NOON + HOUR))
    body = lab.s3.get_object(Bucket=lab.store.bucket, Key=damaged.key)["Body"].read()
    lab.put_object(damaged.key, b"other bytes")
    report = erased(config)
    assert report.record_count == 1, "that of the other kafka partition"
    assert len(report.faults) == 1
    assert "nothing of kafka partition 0, day 2026-01-01 goes while an object cannot be read" in report.faults[0]
    lab.put_object(damaged.key, body)
    assert erased(config).record_count == 2
    assert offsets(config) == OTHERS


def test_of_a_day_with_an_object_that_goes_before_it_is_written_anew_nothing_goes(
    config: ConnectorConfig, lab: Lab
) -> None:
    """Others go: one bad object ends no erasure."""
    damaged = next(s for s in snapshot(config).segments if s.kafka_partition == 0)
    body = lab.s3.get_object(Bucket=lab.store.bucket, Key=damaged.key)["Body"].read()
    store = ObjectStore(config.store)
    report = erased(config, runner=after_tasks(partial(store.delete, damaged.key, damaged.etag)))
    assert report.record_count == 1, "that of the other kafka partition"
    assert "nothing of kafka partition 0, day 2026-01-01 goes while an object cannot be read" in report.faults[0]
    lab.put_object(damaged.key, body)
    assert erased(config).record_count == 2
    assert offsets(config) == OTHERS


def test_of_a_day_that_lacks_records_of_its_hours_nothing_goes(merged_config: ConnectorConfig) -> None:
    """An hour may have the only copy of the records of others then."""
    config = merged_config
    index = TopicIndex.of(config, config.topics[0])
    lost = next(s for s in index.open().segments if s.kafka_partition == 1)
    index.open().commit(Change(dropped=(lost,)))
    report = erased(config)
    assert (report.record_count, report.merged) == (0, ())
    assert "nothing of day 2026-01-01 goes: its objects hold 5 records, and the hours" in report.faults[0]
    assert {s.key for s in snapshot(config).retired} <= objects(config)


def test_without_the_right_to_delete_it_is_told_that_old_objects_are_there_and_the_next_run_deletes_them(
    config: ConnectorConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AuthorizationError("no s3:DeleteObject")

    with monkeypatch.context() as patch:
        patch.setattr(ObjectStore, "delete", refuse)
        with pytest.raises(AuthorizationError):
            erased(config)
        assert offsets(config) != OTHERS, "it is asked before anything is committed"
        patch.setattr("kafka_s3_platform.core.upkeep.erase.refuse_without_right", lambda *_: None)
        report = erased(config)
    assert (report.record_count, report.removed) == (3, ())
    assert "old objects that hold some were not deleted: " in report.faults[0]
    assert "no s3:DeleteObject. Run it again" in report.faults[0]
    plan = erased(config, applies=False)
    assert (plan.record_count, len(plan.leftovers)) == (0, 2)
    assert holds_key(config) == {item.key for item in plan.leftovers}
    report = erased(config)
    assert {item.key for item in report.removed} == {item.key for item in plan.leftovers}
    assert holds_key(config) == set()


def test_objects_of_values_only_are_not_searched_and_it_is_told(lab: Lab) -> None:
    config = lab.archive(SENT[:2], layout={"format": "bytes", "codec": "none"})
    report = erased(config)
    assert report.searched == ()
    assert report.faults[0].startswith("1 object of format bytes were not searched")


def test_the_places_that_it_does_not_reach_are_told(config: ConnectorConfig, lab: Lab) -> None:
    lab.s3.put_bucket_versioning(Bucket=lab.store.bucket, VersioningConfiguration={"Status": "Enabled"})
    errors = {"tolerance": "all", "dead_letter_topic": "letters"}
    records_of = config.records.model_copy(update={"errors": config.records.errors.model_copy(update=errors)})
    texts = erased(config.model_copy(update={"records": records_of}), applies=False).unreached
    assert f"topic {config.topics[0]} in Kafka, and topics that were restored from it" in texts
    assert "the dead letter topic letters" in texts
    assert f"objects that the index does not name: `kafka-s3 vacuum {config.name} --dry-run` lists them" in texts
    assert any("(versioning of the bucket: Enabled)" in text for text in texts)


def test_a_restore_sends_none_of_them_and_says_how_many(merged_config: ConnectorConfig) -> None:
    erased(merged_config)
    report = restored(merged_config)
    topic = merged_config.topics[0]
    assert report.record_count == 4
    assert [gap.text for gap in report.gaps] == [
        f"{topic}-0: up to 2 records of these hours and offsets, within [0, 3), were erased by request",
        f"{topic}-1: up to 1 record of these hours and offsets, within [0, 1), were erased by request",
    ]


def test_a_restore_that_was_planned_before_is_to_be_planned_anew_also_while_the_objects_are_there(
    config: ConnectorConfig, lab: Lab
) -> None:
    key = snapshot(config).segments[0].key
    gone = (key, lab.s3.get_object(Bucket=lab.store.bucket, Key=key)["Body"].read())
    with pytest.raises(IntegrityError):
        restored(config, Between(before_replay=partial(erased, config)))
    lab.put_object(*gone)
    with pytest.raises(PreflightError, match=r"the index does not list .* retention or an erasure removed them"):
        restored(config)
    assert restored(config, restore_id="r2", to_topic=f"{config.topics[0]}-2").record_count == 4


def test_days_tell_how_many_of_their_records_were_erased(merged_config: ConnectorConfig) -> None:
    erased(merged_config)
    [day] = summarize_days(snapshot(merged_config), UTC, timedelta(0))
    assert (day.span, day.record_count, day.erased_count, day.complete_count) == (DAY, 4, 3, 24)


def after_tasks(*steps: Callable[[], object]) -> InProcessRunner:
    """Does one step after the search, the next one after the rewriting, and so on."""
    remaining = iter(steps)

    def take_step() -> None:
        next(remaining, do_nothing)()

    return InterleavedRunner(take_step)


def test_a_merge_between_search_and_commit_is_searched_too(config: ConnectorConfig) -> None:
    report = erased(config, runner=after_tasks(partial(merged, config)))
    assert report.counts == (3,)
    assert offsets(config) == OTHERS
    assert holds_key(config) == set()
    assert is_whole(config)


def test_a_merge_that_was_planned_before_an_erasure_commits_nothing(config: ConnectorConfig) -> None:
    with pytest.raises(SupersededError, match="of its inputs were replaced"):
        compact_day(CompactRequest(config, config.topics[0], DAY, "r"), after_tasks(partial(erased, config)))
    assert offsets(config) == OTHERS
    merged(config)
    assert offsets(config) == OTHERS
    assert is_whole(config)


def test_a_later_erasure_of_the_topic_ends_an_earlier_one(config: ConnectorConfig) -> None:
    with pytest.raises(SupersededError, match="was ended by a later erasure"):
        erased(config, runner=after_tasks(do_nothing, partial(erased, config, BOB)))
    assert offsets(config) == {0: [0, 2, 3], 1: [0, 1]}
    assert erased(config).record_count == 3
    assert offsets(config) == {0: [3], 1: [1]}


def test_a_lost_answer_to_the_commit_erases_once(config: ConnectorConfig, lose_answer: Callable[[int], None]) -> None:
    lose_answer(COMMIT_OF_RESULT)
    assert erased(config).record_count == 3
    assert len(snapshot(config).erased) == 2
    assert holds_key(config) == set()


COMMIT_OF_RESULT = 2
"""The first commit of an erasure is its reservation."""

LONGEST_COMMIT_SECONDS = 0.25
"""A kill comes so long after that commit has begun, at most."""


def _erase_until(config: ConnectorConfig, owner: type, method: str, nth: int, after: bool) -> None:
    signal_on_call(owner, method, nth, SIGKILL, after)
    erased(config)


@pytest.mark.parametrize(
    ("kill", "is_committed"),
    [
        ((ConnectorSnapshot, "commit", 1, True), False),
        ((SegmentWriter, "upload", 1, True), False),
        ((ConnectorSnapshot, "commit", 2, False), False),
        ((ConnectorSnapshot, "commit", 2, True), True),
        ((ObjectStore, "delete", RIGHTS + 1, False), True),
        ((ObjectStore, "delete", RIGHTS + 2, True), True),
    ],
    ids=["reserved", "written", "before the commit", "after the commit", "before a deletion", "after a deletion"],
)
def test_a_killed_run_is_completed_by_the_next(
    merged_config: ConnectorConfig, kill: tuple[type, str, int, bool], is_committed: bool
) -> None:
    config = merged_config
    before = records(config)
    others = [r for r in before if r["key"] != ALICE]
    assert end_apart(_erase_until, config, *kill) == -SIGKILL
    assert live_keys(config) <= objects(config)
    assert records(config) == (others if is_committed else before)
    assert is_whole(config)
    erased(config)
    assert records(config) == others
    assert holds_key(config) == set()
    assert is_whole(config)
    vacuum_topic(config, config.topics[0], "v", timedelta(0), dry_run=False)
    assert objects(config) == live_keys(config) | {s.key for s in snapshot(config).retired}
    assert records(config) == others


@pytest.mark.long
def test_killed_at_fifty_random_moments_no_reader_sees_a_record_twice_or_misses_one(lab: Lab) -> None:
    """Each run erases one of 50 keys of two days, one of them merged, and is killed; the next one completes it.

    Every other kill comes after the commit has begun: before it is done, before the deletions, or among them.
    """
    drawn = random.Random(51)
    keys = [b"key-%02d" % n for n in range(53)]
    times = [NOON + HOUR * n for n in (0, 1, 25)]
    sent = [Sent(b"%d" % n, keys[n % 53], times[n % 3], (), n % 2) for n in range(53 * 12)]
    config = lab.archive(sent, kafka_partitions=2)
    merged(config)
    rows = records(config)
    # the first process starts the server that forks the others
    for key in keys[50:52]:
        started = monotonic()
        assert end_apart(_erase_until_time, config, key, False, 300) == 0
        seconds = monotonic() - started
    rows = [r for r in rows if r["key"] not in keys[50:52]]
    outcomes: Counter[str] = Counter()
    for at, key in enumerate(keys[:50]):
        others = [r for r in rows if r["key"] != key]
        moment = drawn.uniform(0, LONGEST_COMMIT_SECONDS if at % 2 else seconds)
        status = end_apart(_erase_until_time, config, key, bool(at % 2), moment)
        assert status in {-SIGKILL, 0}
        now = records(config)
        assert now in (rows, others), key
        replaced = {item.key for row in snapshot(config).erased for item in row.siblings} - live_keys(config)
        outcomes[
            ("done" if not status else "among" if replaced & objects(config) else "after")
            if now == others
            else "before"
        ] += 1
        assert live_keys(config) <= objects(config)
        erased(config, key)
        assert records(config) == others, key
        of_index = {*live_keys(config), *(s.key for s in snapshot(config).retired)}
        assert not any(holds(config, name, key) for name in of_index)
        rows = others
    assert is_whole(config)
    # what a run wrote before it was killed holds the keys of later runs
    vacuum_topic(config, config.topics[0], "v", timedelta(0), dry_run=False)
    assert {key for key in keys[:52] if holds_key(config, key)} == set()
    assert records(config) == rows
    print(f"killed by commit and deletion: {dict(outcomes)}, within {seconds:.2f} s")  # noqa: T201
    assert outcomes["among"] >= 3


def _erase_until_time(config: ConnectorConfig, key: bytes, is_after_commit: bool, seconds: float) -> None:
    """Erase, and kill this process so long after it began, or after it began to commit what it has written."""
    timer = Timer(seconds, partial(os.kill, os.getpid(), SIGKILL))
    commit, calls = ConnectorSnapshot.commit, count(1)

    def start_timer(snapshot: ConnectorSnapshot, *args: Any) -> int:
        if next(calls) == COMMIT_OF_RESULT:
            timer.start()
        return commit(snapshot, *args)

    if is_after_commit:
        setattr(ConnectorSnapshot, "commit", start_timer)  # noqa: B010 (mypy refuses the assignment)
    else:
        timer.start()
    erased(config, key)
    os._exit(0)
