"""Retention on a real Kafka and a real S3: what goes, what stays, and what the archive says of it."""

import os
import signal
from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from kafka_s3_platform.core.config.settings import ConnectorConfig, RetentionSettings
from kafka_s3_platform.core.errors import AuthorizationError, IntegrityError, PreflightError
from kafka_s3_platform.core.store.index import ConnectorSnapshot
from kafka_s3_platform.core.store.index_rows import MERGED_KINDS
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform.core.store.row_filter import EVERY_SEGMENT
from kafka_s3_platform.core.upkeep.compact.days import CompactRequest, list_due_days
from kafka_s3_platform.core.upkeep.erase import ErasureRequest, erase_records
from kafka_s3_platform.core.upkeep.hour_states import describe_hours, find_empty_hours, find_hour_states
from kafka_s3_platform.core.upkeep.retain import (
    DELETE_CHECK,
    RetentionPlan,
    RetentionReport,
    plan_retention,
    retain_topic,
)
from kafka_s3_platform.core.upkeep.vacuum import vacuum_topic
from kafka_s3_platform.core.upkeep.verify import hash_inventory, verify_archive
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.faults.proxy import faulty_proxy
from kafka_s3_platform_tests.forked import end_apart
from kafka_s3_platform_tests.restore.own import Between, restored
from kafka_s3_platform_tests.support import (
    HOUR,
    NOON,
    InProcessRunner,
    Sent,
    archived,
    compact_day,
    offsets_by_kafka_partition,
    produce,
    snapshot,
    stored,
)

UTC = ZoneInfo("UTC")
DAY = date(2026, 1, 1)
ONE_DAY = timedelta(days=1)
DAY_MS = 86_400_000
ALICE = b"alice"
HOURS = [NOON, NOON + HOUR]


def ruled(config: ConnectorConfig, **rules: Any) -> ConnectorConfig:
    archive = config.archive.model_copy(update={"retention": RetentionSettings(**rules)})
    return config.model_copy(update={"archive": archive})


def merged(config: ConnectorConfig, day: date = DAY) -> None:
    compact_day(CompactRequest(config, config.topics[0], day, "r"), InProcessRunner())


def retained(config: ConnectorConfig, now: datetime | None = None, **rules: Any) -> RetentionReport:
    return retain_topic(ruled(config, **rules), config.topics[0], "retain-run", now)


def planned(config: ConnectorConfig, now: datetime | None = None, **rules: Any) -> RetentionPlan:
    return plan_retention(ruled(config, **rules), config.topics[0], now or datetime.now(UTC))


def objects(config: ConnectorConfig) -> set[str]:
    store = ObjectStore(config.store)
    return {o.key for root in ("topics", "topics_daily") for o in store.list(f"{root}/{config.topics[0]}/")}


def live_keys(config: ConnectorConfig) -> set[str]:
    return {s.key for s in snapshot(config).segments}


def states(config: ConnectorConfig, hours: Sequence[datetime] = HOURS) -> list[str]:
    now = datetime.now(UTC)
    return [*find_hour_states(snapshot(config), hours, timedelta(0), now, None)]


def offsets(config: ConnectorConfig) -> dict[int, list[int]]:
    return offsets_by_kafka_partition(stored(config))


def is_whole(config: ConnectorConfig) -> bool:
    return verify_archive(config, config.topics[0], True, InProcessRunner()).ok


@pytest.fixture
def config(lab: Lab) -> ConnectorConfig:
    """A connector that has archived two hours of its topic, in two kafka partitions."""
    sent = [Sent(b"a"), Sent(b"b", None, NOON + HOUR), Sent(b"c", None, NOON, (), 1)]
    return lab.archive(sent, kafka_partitions=2)


@pytest.fixture
def merged_config(config: ConnectorConfig) -> ConnectorConfig:
    merged(config)
    return config


def test_without_a_rule_nothing_goes(merged_config: ConnectorConfig) -> None:
    before = objects(merged_config)
    assert retained(merged_config).removals == ()
    assert objects(merged_config) == before


def test_hours_go_when_their_day_holds_them_and_the_day_stays(merged_config: ConnectorConfig) -> None:
    counts = snapshot(merged_config).count_hours(NOON)
    plan = planned(merged_config, merged_ms=(("", 0),))
    assert len(objects(merged_config)) == 5, "a plan removes nothing"
    report = retained(merged_config, merged_ms=(("", 0),))
    assert [r.hour_count for r in report.removals] == [r.hour_count for r in plan.removals] == [2]
    assert objects(merged_config) == live_keys(merged_config)
    assert len(objects(merged_config)) == 2
    assert offsets(merged_config) == {0: [0, 1], 1: [0]}
    assert snapshot(merged_config).count_hours(NOON) == counts, "an hour keeps its numbers"
    assert states(merged_config) == ["complete", "complete"]
    assert is_whole(merged_config)
    assert retained(merged_config, merged_ms=(("", 0),)).removals == ()


def test_an_archive_is_restored_from_its_days_alone(merged_config: ConnectorConfig) -> None:
    retained(merged_config, merged_ms=(("", 0),))
    report = restored(merged_config)
    assert (report.record_count, report.gaps) == (3, ())


def test_a_restore_whose_objects_went_says_so_and_is_planned_anew(config: ConnectorConfig) -> None:
    def remove() -> None:
        merged(config)
        retained(config, merged_ms=(("", 0),))

    with pytest.raises(IntegrityError):
        restored(config, Between(before_replay=remove))
    with pytest.raises(PreflightError, match=r"the index does not list 3 objects of the plan, such as ") as refused:
        restored(config)
    assert "undamaged" not in str(refused.value)
    assert restored(config, restore_id="r2", to_topic=f"{config.topics[0]}-2").record_count == 3


@pytest.mark.parametrize("topics_dir", ["topics", "elsewhere"], ids=["its folders", "folders of before"])
def test_without_the_right_to_delete_nothing_is_committed(merged_config: ConnectorConfig, topics_dir: str) -> None:
    before = (objects(merged_config), snapshot(merged_config).version)
    with faulty_proxy(merged_config.store.endpoint_url or "") as proxy:
        proxy.refuse("DELETE", "topics_daily/", 403, "AccessDenied")
        store = merged_config.store.model_copy(update={"endpoint_url": proxy.endpoint, "max_retries": 0})
        layout = merged_config.layout.model_copy(update={"topics_dir": topics_dir})
        with pytest.raises(AuthorizationError, match="DeleteObject"):
            retained(merged_config.model_copy(update={"store": store, "layout": layout}), ms=(("", 0),))
    assert (objects(merged_config), snapshot(merged_config).version) == before


def test_a_kafka_partition_with_late_records_is_not_called_expired_for_another(config: ConnectorConfig) -> None:
    retained(config, ms=(("", 0),))
    [_, described] = describe_hours(snapshot(config), HOURS, timedelta(0), datetime.now(UTC), by_kafka_partition=True)
    assert described.state == "expired"
    assert described.kafka_partitions == {0: "expired", 1: "empty"}


class LateRunner(InProcessRunner):
    """Reads the objects when something else was done first, once."""

    def __init__(self, first: Callable[[], object]) -> None:
        self._todo = [first]

    def run(self, function: Any, tasks: Sequence[Any], max_concurrent: int) -> Any:
        if self._todo:
            self._todo.pop()()
        yield from super().run(function, tasks, max_concurrent)


def test_a_deep_verification_reads_what_takes_the_place_of_objects_that_go_meanwhile(config: ConnectorConfig) -> None:
    def remove() -> None:
        merged(config)
        retained(config, merged_ms=(("", 0),))

    report = verify_archive(config, config.topics[0], True, LateRunner(remove))
    assert (report.damages, report.segment_count, report.record_count) == ((), 2, 3)
    assert report.inventory == hash_inventory(snapshot(config).segments)


def test_the_bytes_of_an_archive_are_told_by_what_they_are_for(merged_config: ConnectorConfig) -> None:
    sums = snapshot(merged_config).connector_snapshot.segment_sums[merged_config.topics[0]]
    assert sums.merged_bytes == sum(s.size for s in snapshot(merged_config).retired) > 0
    assert sums.day_bytes == sums.segment_bytes == sum(s.size for s in snapshot(merged_config).segments)
    retained(merged_config, merged_ms=(("", 0),))
    sums = snapshot(merged_config).connector_snapshot.segment_sums[merged_config.topics[0]]
    assert (sums.merged_bytes, sums.records, sums.expired_records) == (0, 3, 0)
    retained(merged_config, ms=(("", 0),))
    sums = snapshot(merged_config).connector_snapshot.segment_sums[merged_config.topics[0]]
    assert (sums.segment_bytes, sums.day_bytes, sums.records, sums.expired_records) == (0, 0, 3, 3)


def test_hours_stay_while_their_merge_is_young(merged_config: ConnectorConfig) -> None:
    rules: dict[str, Any] = {"merged_ms": (("", DAY_MS),)}
    assert planned(merged_config, **rules).removals == ()
    later = datetime.now(UTC) + ONE_DAY
    assert [r.span for r in planned(merged_config, later, **rules).removals] == [DAY]


def test_hours_that_were_not_merged_do_not_go_for_their_day(config: ConnectorConfig) -> None:
    assert retained(config, merged_ms=(("", 0),)).removals == ()


def test_hours_stay_where_an_object_of_their_day_is_damaged(merged_config: ConnectorConfig, lab: Lab) -> None:
    before = objects(merged_config)
    lab.put_object(snapshot(merged_config).segments[0].key, b"other bytes")
    report = retained(merged_config, merged_ms=(("", 0),))
    assert report.removals == ()
    assert "stay, since objects that hold them are not as in the index" in report.refused[0]
    assert objects(merged_config) == before


def test_a_late_record_of_a_day_without_hours_is_merged_into_it(merged_config: ConnectorConfig) -> None:
    retained(merged_config, merged_ms=(("", 0),))
    produce(merged_config.kafka, merged_config.topics[0], [Sent(b"late")])
    archived(merged_config)
    assert list_due_days(snapshot(merged_config), UTC, timedelta(0), datetime.now(UTC)) == [DAY]
    merged(merged_config)
    assert offsets(merged_config) == {0: [0, 1, 2], 1: [0]}
    assert is_whole(merged_config)
    retained(merged_config, merged_ms=(("", 0),))
    assert offsets(merged_config) == {0: [0, 1, 2], 1: [0]}
    assert objects(merged_config) == live_keys(merged_config)
    assert is_whole(merged_config)


@pytest.mark.parametrize("fill", ["config", "merged_config"])
def test_an_old_day_expires_and_nobody_calls_it_lost(fill: str, request: pytest.FixtureRequest) -> None:
    config = request.getfixturevalue(fill)
    report = retained(config, ms=(("", 30 * DAY_MS),))
    assert [(r.span, r.rule, r.record_count) for r in report.removals] == [(DAY, "archive.retention.ms", 3)]
    assert objects(config) == live_keys(config) == set()
    assert states(config) == ["expired", "expired"]
    now = snapshot(config)
    assert [s.chunk for s in now.expired] == ["hourly"] * 3
    assert find_empty_hours(now, HOURS, timedelta(0)) == []
    assert now.state.judge.list_complete(HOURS, timedelta(0)) == set(HOURS), "no sensor archives it again"
    assert now.state.judge.left_out == ()
    assert list_due_days(now, UTC, timedelta(0), datetime.now(UTC)) == []
    assert is_whole(config)
    assert archived(config).record_count == 0


def test_a_day_whose_hours_went_before_expires(merged_config: ConnectorConfig) -> None:
    retained(merged_config, merged_ms=(("", 0),))
    report = retained(merged_config, ms=(("", 0),))
    assert [r.record_count for r in report.removals] == [3]
    assert objects(merged_config) == set()
    assert states(merged_config) == ["expired", "expired"]
    assert snapshot(merged_config).select_segments(EVERY_SEGMENT, MERGED_KINDS) == ()
    assert is_whole(merged_config)


def test_a_restore_over_expired_hours_says_how_many_records_went(config: ConnectorConfig) -> None:
    produce(config.kafka, config.topics[0], [Sent(b"young", None, NOON + ONE_DAY)])
    archived(config)
    retained(config, first_day=date(2026, 1, 2))
    report = restored(config)
    assert report.record_count == 1
    assert [gap.text.split(" of hours")[0] for gap in report.gaps] == [
        f"{config.topics[0]}-0: 2 records",
        f"{config.topics[0]}-1: 1 record",
    ]
    assert "2026-01-01T12:00+0000 to 2026-01-01T13:00+0000 expired: a rule of retention" in report.gaps[0].text


def test_a_late_record_of_an_expired_day_is_archived_and_goes_with_the_next_run(config: ConnectorConfig) -> None:
    retained(config, ms=(("", 0),))
    produce(config.kafka, config.topics[0], [Sent(b"late")])
    archived(config)
    assert offsets(config) == {0: [2]}
    merged(config)
    assert offsets(config) == {0: [2]}
    assert is_whole(config)
    assert [r.record_count for r in retained(config, ms=(("", 0),)).removals] == [1]
    assert sum(s.record_count for s in snapshot(config).expired) == 4
    assert objects(config) == set()
    assert is_whole(config)


def test_the_oldest_days_go_until_the_rest_fits(config: ConnectorConfig) -> None:
    produce(config.kafka, config.topics[0], [Sent(b"d", None, NOON + n * ONE_DAY) for n in (1, 2)])
    archived(config)
    size = planned(config).object_bytes
    assert planned(config, max_bytes=(("", size),)).removals == ()
    plan = planned(config, max_bytes=(("", size - 1),))
    assert [(r.span, r.rule) for r in plan.removals] == [(DAY, "archive.retention.bytes")]
    assert len(planned(config, max_bytes=(("", 0),)).removals) == 3


def test_merged_hours_of_a_day_that_goes_make_room_too(config: ConnectorConfig) -> None:
    produce(config.kafka, config.topics[0], [Sent(b"d", None, NOON + n * ONE_DAY) for n in (1, 2)])
    archived(config)
    for n in range(3):
        merged(config, DAY + n * ONE_DAY)
    size = planned(config).object_bytes
    assert [r.span for r in planned(config, max_bytes=(("", size - 1),)).removals] == [DAY]
    held = ("*", DAY, DAY + ONE_DAY)
    assert planned(config, max_bytes=(("", size - 1),), holds=(held,)).removals == (), "what is on hold does not count"


def test_an_object_that_was_copied_elsewhere_goes_too(merged_config: ConnectorConfig, lab: Lab) -> None:
    for key in objects(merged_config):
        # as a multipart copy does: the same bytes under another ETag
        upload = lab.s3.create_multipart_upload(Bucket=lab.store.bucket, Key=key)["UploadId"]
        body = lab.s3.get_object(Bucket=lab.store.bucket, Key=key)["Body"].read()
        place = {"Bucket": lab.store.bucket, "Key": key, "UploadId": upload}
        etag = lab.s3.upload_part(**place, PartNumber=1, Body=body)["ETag"]
        lab.s3.complete_multipart_upload(**place, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": etag}]})
    assert retained(merged_config, ms=(("", 0),)).replaced == ()
    assert objects(merged_config) == set()


def test_a_day_that_is_not_over_stays(config: ConnectorConfig) -> None:
    rules: dict[str, Any] = {"ms": (("", 0),), "max_bytes": (("", 0),), "first_day": date(2027, 1, 1)}
    assert planned(config, datetime(2026, 1, 1, 23, tzinfo=UTC), **rules).removals == ()


def test_the_number_of_a_topic_counts_before_that_of_all(config: ConnectorConfig) -> None:
    assert planned(config, ms=(("", 0), (config.topics[0], -1))).removals == ()
    assert len(planned(config, ms=(("", -1), (config.topics[0], 0))).removals) == 1


@pytest.mark.parametrize(
    ("hold", "is_on_hold"),
    [
        (("*", date.min, date.max), True),
        (("*", DAY, DAY + ONE_DAY), True),
        (("*", DAY + ONE_DAY, date.max), False),
        (("other", date.min, date.max), False),
    ],
)
def test_no_rule_passes_a_hold(merged_config: ConnectorConfig, hold: tuple[str, date, date], is_on_hold: bool) -> None:
    for rules in ({"ms": (("", 0),)}, {"max_bytes": (("", 0),)}, {"first_day": date.max}, {"merged_ms": (("", 0),)}):
        plan = planned(merged_config, holds=(hold,), **rules)
        assert (plan.days_on_hold == (DAY,), plan.removals == ()) == (is_on_hold, is_on_hold)


def test_a_hold_keeps_days_of_another_timezone_that_reach_into_its_own(lab: Lab) -> None:
    config = lab.archive([Sent(b"early in Berlin", ALICE, NOON + timedelta(hours=11, minutes=30))])
    layout = config.layout.model_copy(update={"timezone": "Europe/Berlin"})
    config = config.model_copy(update={"layout": layout})
    held = (("*", DAY + ONE_DAY, DAY + 2 * ONE_DAY),)
    for rules in ({"ms": (("", 0),), "holds": held}, {"first_day": DAY + ONE_DAY}):
        assert planned(config, **rules).removals == ()
    assert len(planned(config, first_day=DAY + 2 * ONE_DAY).removals) == 1
    request = ErasureRequest(ruled(config, holds=held), config.topics[0], (ALICE,), "erase-run")
    assert erase_records(request, InProcessRunner(), applies=False).erased == ()


def test_records_out_of_range_stay_and_are_told(lab: Lab) -> None:
    config = lab.archive([Sent(b"a"), Sent(b"old", None, NOON - timedelta(days=900))])
    plan = planned(config, ms=(("", 0),))
    assert plan.undated_records == 1
    retained(config, ms=(("", 0),))
    assert offsets(config) == {0: [1]}


def _die(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _retain_until_the_commit(config: ConnectorConfig, after: bool) -> None:
    commit = ConnectorSnapshot.commit

    def dying(snapshot: ConnectorSnapshot, *args: Any) -> int:
        if after:
            commit(snapshot, *args)
        _die()
        raise AssertionError

    ConnectorSnapshot.commit = dying  # type: ignore[method-assign, assignment]
    retained(config, ms=(("", 0),))


def _retain_until_a_deletion(config: ConnectorConfig) -> None:
    delete = ObjectStore.delete

    def dying(store: ObjectStore, key: str, if_match: str) -> None:
        delete(store, key, if_match)
        if not key.endswith(DELETE_CHECK):
            _die()

    ObjectStore.delete = dying  # type: ignore[method-assign, assignment]
    retained(config, ms=(("", 0),))


@pytest.mark.parametrize(
    ("kill", "arguments", "is_committed"),
    [
        (_retain_until_the_commit, (False,), False),
        (_retain_until_the_commit, (True,), True),
        (_retain_until_a_deletion, (), True),
    ],
    ids=["before the commit", "after the commit", "after a deletion"],
)
def test_a_killed_run_leaves_orphans_and_never_a_row_without_its_object(
    merged_config: ConnectorConfig, kill: Callable[..., None], arguments: tuple[Any, ...], is_committed: bool
) -> None:
    assert end_apart(kill, merged_config, *arguments) == -signal.SIGKILL
    assert live_keys(merged_config) <= objects(merged_config)
    assert is_whole(merged_config)
    assert bool(live_keys(merged_config)) != is_committed
    retained(merged_config, ms=(("", 0),))
    vacuum_topic(merged_config, merged_config.topics[0], "v", timedelta(0), dry_run=False)
    assert objects(merged_config) == set()
    assert states(merged_config) == ["expired", "expired"]
    assert is_whole(merged_config)


def test_a_lost_answer_to_the_commit_removes_the_objects_once(
    merged_config: ConnectorConfig, lose_answer: Callable[[int], None]
) -> None:
    lose_answer(1)
    assert len(retained(merged_config, ms=(("", 0),)).removals) == 1
    assert objects(merged_config) == set()
