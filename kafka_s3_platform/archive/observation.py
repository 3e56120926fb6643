"""Consistent observations of topics: their kafka partitions, the ends of their logs, and the time of both.

Also checks the log against a broker's look-up by time.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import TypeVar

from kafka_s3_platform.archive.plan import find_hour_start, find_read_start
from kafka_s3_platform.config.settings import ConnectorConfig
from kafka_s3_platform.errors import BrokerUnavailableError, IntegrityError, PlatformError
from kafka_s3_platform.kafka.admin import ClusterAdmin, TopicDescription
from kafka_s3_platform.kafka.answers import Answers, OffsetAtTime, RecordOffset
from kafka_s3_platform.kafka.new_reader import new_reader
from kafka_s3_platform.kafka.offset_admin import FoundTopic
from kafka_s3_platform.model.frontier import Frontier
from kafka_s3_platform.model.state import IndexState
from kafka_s3_platform.model.times import HOUR, to_epoch_ms

MAX_OBSERVATIONS = 5

T = TypeVar("T")


def observe_until_unchanged(
    admin: ClusterAdmin,
    descriptions: Mapping[str, TopicDescription],
    observe: Callable[[Mapping[str, TopicDescription]], Answers[str, T]],
) -> Answers[str, tuple[TopicDescription, T]]:
    """Return the answers of `observe` for each topic, with the topic. Topics that change meanwhile are observed again.

    Otherwise a kafka partition added, or a topic created again, between the description and the frontiers would be in
    one of them only. Fewer kafka partitions afterwards are no change: a topic never loses one, so the broker is behind.
    A topic that changes during every observation fails with BrokerUnavailableError.
    """
    observed: dict[str, tuple[TopicDescription, T]] = {}
    failures: dict[str, PlatformError] = {}
    pending = descriptions
    for _ in range(MAX_OBSERVATIONS):
        answers = observe(pending)
        after = admin.find_topics(answers.results)
        failures |= {**answers.failures, **after.failures}
        changed = [topic for topic, now in after.results.items() if _has_changed(pending[topic], now)]
        observed |= {topic: (pending[topic], answers.results[topic]) for topic in after.results if topic not in changed}
        if not changed:
            return Answers(observed, failures)
        described = admin.describe_topics(changed)
        failures |= described.failures
        pending = described.results
    failures |= {topic: _build_unsettled_error(topic) for topic in pending}
    return Answers(observed, failures)


def _has_changed(before: TopicDescription, after: FoundTopic) -> bool:
    is_same = after.topic_id == before.topic_id
    return not is_same or not {*after.kafka_partitions} <= {*before.kafka_partitions}


def _build_unsettled_error(topic: str) -> BrokerUnavailableError:
    return BrokerUnavailableError(
        f"topic {topic}: its id or its kafka partitions changed during each of {MAX_OBSERVATIONS} observations; "
        f"nothing was committed. Run again when nobody changes it"
    )


def complete_frontiers(
    description: TopicDescription, observed_at: datetime, frontiers: Mapping[int, Frontier]
) -> dict[int, Frontier]:
    """Add the number of kafka partitions and the time of the observation to the frontiers, for the index.

    `observed_at` is `StoreClock.earlier_now()` before the broker was asked: no machine decides alone that an hour is
    over.
    """
    count = len(description.kafka_partitions)
    return {
        p: dataclasses.replace(f, kafka_partition_count=count, observed_at=observed_at) for p, f in frontiers.items()
    }


def compare_starts(
    config: ConnectorConfig,
    topic: str,
    state: IndexState,
    frontiers: Iterable[Frontier],
    hour: datetime,
    starts: Mapping[int, OffsetAtTime],
) -> Answers[int, bool]:
    """Check that the log really holds a record with the reported timestamp at the start of `hour`.

    The answer has the kafka partitions that need this check. A broker does not check the offsets of a batch: a record
    may claim an offset far beyond its place. The start is wrong if the record at that offset has another timestamp than
    reported, if the record before it belongs to the hour too, or if either cannot be read.

    No check is needed if the archive reaches up to the start, or reading begins before it: so a run of an hour after an
    archived one asks nothing.
    """
    relied = {f.kafka_partition: o for f in frontiers if (o := _find_relied(state, f, hour, starts)) is not None}
    if not relied:
        return Answers({}, {})
    confirmed: dict[int, bool] = {}
    failures: dict[int, PlatformError] = {}
    with new_reader(config.kafka, topic, allow_gaps=True, skip_unreadable=True) as reader:
        for kafka_partition, offset in relied.items():
            try:
                before = reader.find_timestamp(kafka_partition, offset - 1)
                confirmed[kafka_partition] = (before is None or before < to_epoch_ms(hour)) and (
                    reader.find_timestamp(kafka_partition, offset) == offset.timestamp_ms
                )
            except IntegrityError:
                confirmed[kafka_partition] = False
            except PlatformError as err:
                failures[kafka_partition] = err
    return Answers(confirmed, failures)


def _find_relied(
    state: IndexState, frontier: Frontier, hour: datetime, starts: Mapping[int, OffsetAtTime]
) -> RecordOffset | None:
    kafka_partition = frontier.kafka_partition
    offset = starts.get(kafka_partition)
    if not isinstance(offset, RecordOffset):
        return None
    start = find_hour_start(state, frontier, offset)
    # when the hour before was planned, all records of this one were found to lie above its start
    previous = state.hour_start(kafka_partition, hour - HOUR)
    floor = frontier.log_start_offset if previous is None else previous
    is_first = state.coverage(kafka_partition).covers(floor, start)
    return None if is_first or find_read_start(state, kafka_partition, hour, start) < start else offset
