"""Days of many topics in one run: one reservation, one commit, and none stops another.

What an archive holds, day by day, on a real index.
"""

from collections.abc import Iterator
from datetime import date, datetime, timedelta, timezone
from typing import Any
from uuid import uuid4
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from kafka_s3_platform.core.config.settings import ConnectorConfig, KafkaSettings, StoreSettings
from kafka_s3_platform.core.errors import IntegrityError, PlatformError, StoreUnavailableError, SupersededError
from kafka_s3_platform.core.spark import runner
from kafka_s3_platform.core.store.index import ConnectorIndex
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform.core.upkeep.compact import merge
from kafka_s3_platform.core.upkeep.compact.days import CompactReport, CompactRequest, find_day, summarize_days
from kafka_s3_platform.core.upkeep.compact.run import TopicDay, compact_days
from kafka_s3_platform_tests.conftest import CreateTopic, Lab, present
from kafka_s3_platform_tests.restore.conftest import copy_objects
from kafka_s3_platform_tests.support import (
    HOUR,
    NOON,
    InProcessRunner,
    InterleavedRunner,
    Sent,
    archived,
    compact_day,
    connector,
    produce,
    snapshot,
    stored,
)

DAYS = [date(2026, 1, 1), date(2026, 1, 2)]

BERLIN = ZoneInfo("Europe/Berlin")
SPRING = datetime(2026, 3, 29, 12, tzinfo=timezone.utc)
"""A day of 23 hours in Berlin."""


@pytest.fixture(scope="module")
def archive(kafka_settings: KafkaSettings, module_store: StoreSettings, create_topic: CreateTopic) -> ConnectorConfig:
    """A connector of three topics, of which two days are archived: each of two hours with a record."""
    topics = tuple(f"topic-{uuid4().hex[:12]}-{n}" for n in range(3))
    made = connector(kafka_settings, module_store, topics[0]).model_copy(update={"topics": topics})
    for topic in topics:
        create_topic(topic)
        times = [NOON + timedelta(days=d, hours=h) for d in range(2) for h in range(2)]
        produce(kafka_settings, topic, [Sent(topic.encode(), timestamp=t) for t in times])
        archived(of(made, topic))
    return made


@pytest.fixture
def config(archive: ConnectorConfig, lab: Lab) -> ConnectorConfig:
    """A copy of that archive."""
    copy_objects(lab.s3, archive, lab.store)
    return archive.model_copy(update={"store": lab.store})


def of(config: ConnectorConfig, topic: str) -> ConnectorConfig:
    """The same connector; helpers look at its first topic."""
    return config.model_copy(update={"topics": (topic,)})


def requests(config: ConnectorConfig) -> list[CompactRequest]:
    return [CompactRequest(config, topic, day, "run") for topic in config.topics for day in DAYS]


def records(config: ConnectorConfig) -> list[pa.Table]:
    """Live records of each topic; their objects do not matter."""
    return [stored(of(config, topic)).drop_columns("object") for topic in config.topics]


def chunks(config: ConnectorConfig) -> dict[TopicDay, set[str]]:
    """Of which chunks each topic's day is made."""
    found: dict[TopicDay, set[str]] = {}
    for topic in config.topics:
        for segment in snapshot(of(config, topic)).segments:
            day = present(find_day(segment))
            found.setdefault((topic, day), set()).add(segment.chunk)
    return found


def open_compactions(config: ConnectorConfig) -> int:
    return sum(len(snapshot(of(config, topic)).state.compactions) for topic in config.topics)


def damage(config: ConnectorConfig, topic: str, day: date) -> str:
    """Delete an object of the day. Return its key."""
    segment = next(s for s in snapshot(of(config, topic)).segments if find_day(s) == day)
    store = ObjectStore(config.store)
    store.delete(segment.key, present(store.head(segment.key)).etag)
    return segment.key


def errors_of(found: Any) -> dict[TopicDay, PlatformError]:
    return {key: err for key, err in found.items() if isinstance(err, PlatformError)}


@pytest.mark.parametrize("count", [1, 3])
def test_days_of_topics_are_merged_by_two_commits(config: ConnectorConfig, count: int) -> None:
    before = records(config)
    first = ConnectorIndex.of(config).open().version
    found = compact_days(requests(config)[: 2 * count], InProcessRunner())
    assert ConnectorIndex.of(config).open().version == first + 2
    assert [found[key].day.record_count for key in found] == [2] * 2 * count  # type: ignore[union-attr]
    assert {r.run_record_count for r in found.values() if isinstance(r, CompactReport)} == {4 * count}
    whole = chunks(config)
    assert [key for key, made in whole.items() if made == {"daily"}] == list(found)
    assert records(config) == before
    assert open_compactions(config) == 0


def test_what_is_merged_is_left_as_it_is_and_shown_again(config: ConnectorConfig) -> None:
    compact_days(requests(config), InProcessRunner())
    first = ConnectorIndex.of(config).open().version
    found = compact_days(requests(config), InProcessRunner())
    assert ConnectorIndex.of(config).open().version == first
    assert {(len(r.merged), len(r.day.segments)) for r in found.values() if isinstance(r, CompactReport)} == {(0, 1)}
    assert len(found) == 6


def test_a_day_that_cannot_be_merged_leaves_the_others_merged(config: ConnectorConfig) -> None:
    bad = (config.topics[1], DAYS[0])
    key = damage(config, *bad)
    found = compact_days(requests(config), InProcessRunner())
    [(where, err)] = errors_of(found).items()
    assert where == bad
    assert isinstance(err, IntegrityError)
    assert key in str(err)
    assert {where for where, made in chunks(config).items() if made != {"daily"}} == {bad}
    assert open_compactions(config) == 0


def test_a_topic_whose_days_another_run_merged_meanwhile_leaves_the_others_merged(config: ConnectorConfig) -> None:
    before = records(config)
    other = CompactRequest(config, config.topics[1], DAYS[1], "other")
    found = compact_days(requests(config), InterleavedRunner(lambda: compact_day(other, InProcessRunner())))
    failed = errors_of(found)
    assert set(failed) == {(config.topics[1], day) for day in DAYS}
    assert all(isinstance(err, SupersededError) for err in failed.values())
    assert chunks(config)[config.topics[1], DAYS[0]] == {"hourly"}
    assert records(config) == before
    assert open_compactions(config) == 0
    assert not errors_of(compact_days(requests(config), InProcessRunner()))
    assert set(map(frozenset, chunks(config).values())) == {frozenset({"daily"})}


def test_a_merge_that_fails_in_a_group_for_a_while_is_tried_again_alone(
    config: ConnectorConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[TopicDay] = []
    do = merge.merge_segments

    def fail_once(task: merge.MergeTask, attempt: Any) -> merge.Outcome:
        tried.append(task.topic_day)
        if len(tried) == 1:
            raise StoreUnavailableError("no answer")
        return do(task, attempt)

    monkeypatch.setattr(merge, "merge_segments", fail_once)
    monkeypatch.setattr(runner, "GROUP_COST", 10**9)
    one_place = config.model_copy(update={"tasks_max": 1})
    assert not errors_of(compact_days(requests(one_place), InProcessRunner()))
    assert tried.count(tried[0]) == 2
    assert len(tried) == 7


def test_a_store_that_does_not_answer_ends_the_run_and_gives_the_days_back(
    config: ConnectorConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(task: merge.MergeTask, attempt: Any) -> Iterator[Any]:
        raise StoreUnavailableError("no answer")

    monkeypatch.setattr(merge, "merge_segments", fail)
    with pytest.raises(StoreUnavailableError, match="no answer"):
        compact_days(requests(config), InProcessRunner())
    assert set(map(frozenset, chunks(config).values())) == {frozenset({"hourly"})}
    assert open_compactions(config) == 0


def test_days_are_those_of_the_timezone_and_count_their_own_hours(lab: Lab) -> None:
    lab.create_topic(2)
    late_in_the_evening = SPRING.replace(hour=23)
    sent = [Sent(timestamp=SPRING), Sent(timestamp=SPRING, kafka_partition=1), Sent(timestamp=late_in_the_evening)]
    lab.produce([*sent, Sent(timestamp=datetime(1999, 1, 1, tzinfo=timezone.utc))])
    config = lab.connector(layout={"timezone": "Europe/Berlin"})
    archived(config)
    found = summarize_days(snapshot(config), BERLIN, timedelta())
    assert [(d.span, d.record_count, len(d.objects), d.hour_count) for d in found] == [
        (None, 1, 1, 0),
        (date(2026, 3, 29), 2, 2, 23),
        (date(2026, 3, 30), 1, 1, 24),
    ]
    assert not any(d.is_merged for d in found)


def test_an_hour_without_records_that_was_asked_for_shows_its_day(lab: Lab) -> None:
    lab.create_topic()
    config = lab.connector()
    archived(config, [NOON, NOON + HOUR])
    [day] = summarize_days(snapshot(config), ZoneInfo("UTC"), timedelta())
    assert (day.span, day.record_count, day.hour_count, day.complete_count) == (NOON.date(), 0, 24, 24)
    assert not day.is_merged
