"""One consistent look at topics: which kafka partitions each has, where their logs begin and end, and when that was."""

import dataclasses
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TypeVar

from kafka_s3_platform.errors import BrokerUnavailableError, PlatformError
from kafka_s3_platform.kafka.admin import ClusterAdmin, TopicDescription
from kafka_s3_platform.kafka.answers import Answers
from kafka_s3_platform.kafka.offset_admin import FoundTopic
from kafka_s3_platform.model.frontier import Frontier

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
