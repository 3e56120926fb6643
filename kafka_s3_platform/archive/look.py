"""One consistent look at topics: which kafka partitions each has, where their logs begin and end, and when that was.

And whether the log holds what a look-up by time tells.
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

MAX_LOOKS = 5

T = TypeVar("T")


def look_until_unchanged(
    admin: ClusterAdmin,
    descriptions: Mapping[str, TopicDescription],
    look: Callable[[Mapping[str, TopicDescription]], Answers[str, T]],
) -> Answers[str, tuple[TopicDescription, T]]:
    """Return what `look` finds of each topic, and the topic. Looks again at topics that changed meanwhile.

    A kafka partition that is added, or a topic that is created again, between the description and the frontiers would
    else be in one of them only. Fewer kafka partitions afterwards are no change: a topic never loses one, so that
    answer came from a broker that is behind. A topic that changes with every look fails with BrokerUnavailableError.
    """
    found: dict[str, tuple[TopicDescription, T]] = {}
    failures: dict[str, PlatformError] = {}
    left = descriptions
    for _ in range(MAX_LOOKS):
        looked = look(left)
        after = admin.find_topics(looked.found)
        failures |= {**looked.failures, **after.failures}
        changed = [topic for topic, now in after.found.items() if _has_changed(left[topic], now)]
        found |= {topic: (left[topic], looked.found[topic]) for topic in after.found if topic not in changed}
        if not changed:
            return Answers(found, failures)
        described = admin.describe_topics(changed)
        failures |= described.failures
        left = described.found
    failures |= {topic: _build_unsettled_error(topic) for topic in left}
    return Answers(found, failures)


def _has_changed(before: TopicDescription, after: FoundTopic) -> bool:
    is_same = after.topic_id == before.topic_id
    return not is_same or not {*after.kafka_partitions} <= {*before.kafka_partitions}


def _build_unsettled_error(topic: str) -> BrokerUnavailableError:
    return BrokerUnavailableError(
        f"topic {topic}: its id or its kafka partitions changed during each of {MAX_LOOKS} looks at it; nothing was "
        f"committed. Run again when nobody changes it"
    )


def complete_frontiers(
    description: TopicDescription, observed_at: datetime, frontiers: Mapping[int, Frontier]
) -> dict[int, Frontier]:
    """Add to the frontiers what the index keeps too: how many kafka partitions there were, and when that was seen.

    `observed_at` is `StoreClock.earlier_now()` before the broker was asked: that an hour is over is never one machine's
    word.
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
    found: Mapping[int, OffsetAtTime],
) -> Answers[int, bool]:
    """Return whether `found`, the start of `hour`, is what the log holds, of kafka partitions where that decides.

    A broker answers with the offset that a record claims in its batch. It does not check the offsets of a batch that a
    writer made up: such a record may claim a place far behind it. The answer also has the record's timestamp. If what
    is read at that offset has another one, if the record before it is of the hour too, or if either cannot be read, the
    answer tells nothing of where the hour begins.

    It decides nothing where the archive reaches up to it, or reading begins before it. So nothing is asked in a run of
    an hour that follows an archived one.
    """
    relied = {f.kafka_partition: o for f in frontiers if (o := _find_relied(state, f, hour, found)) is not None}
    if not relied:
        return Answers({}, {})
    told: dict[int, bool] = {}
    failures: dict[int, PlatformError] = {}
    with new_reader(config.kafka, topic, allow_gaps=True, skip_unreadable=True) as reader:
        for kafka_partition, offset in relied.items():
            try:
                before = reader.find_timestamp(kafka_partition, offset - 1)
                told[kafka_partition] = (before is None or before < to_epoch_ms(hour)) and (
                    reader.find_timestamp(kafka_partition, offset) == offset.timestamp_ms
                )
            except IntegrityError:
                told[kafka_partition] = False
            except PlatformError as err:
                failures[kafka_partition] = err
    return Answers(told, failures)


def _find_relied(
    state: IndexState, frontier: Frontier, hour: datetime, found: Mapping[int, OffsetAtTime]
) -> RecordOffset | None:
    kafka_partition = frontier.kafka_partition
    offset = found.get(kafka_partition)
    if not isinstance(offset, RecordOffset):
        return None
    start = find_hour_start(state, frontier, offset)
    # where the hour before was planned, it was made sure then that nothing of this one lies below that
    previous = state.hour_start(kafka_partition, hour - HOUR)
    floor = frontier.log_start_offset if previous is None else previous
    is_first = state.coverage(kafka_partition).covers(floor, start)
    return None if is_first or find_read_start(state, kafka_partition, hour, start) < start else offset
