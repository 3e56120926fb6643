"""One consistent look at a topic: which kafka partitions it has, where their logs begin and end, and when that was."""

import dataclasses
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TypeVar

from kafka_s3_platform.errors import BrokerUnavailableError
from kafka_s3_platform.kafka.admin import ClusterAdmin, TopicDescription
from kafka_s3_platform.model.frontier import Frontier

MAX_LOOKS = 5

T = TypeVar("T")


def look_until_unchanged(
    admin: ClusterAdmin, description: TopicDescription, look: Callable[[TopicDescription], T]
) -> tuple[TopicDescription, T]:
    """Return what `look` finds, and the topic. Looks again if the topic changed meanwhile.

    A kafka partition that is added, or a topic that is created again, between the description and the frontiers would
    else be in one of them only. Fewer kafka partitions afterwards are no change: a topic never loses one, so that
    answer came from a broker that is behind. Raises BrokerUnavailableError when the topic changes with every look.
    """
    for _ in range(MAX_LOOKS):
        found = look(description)
        after = admin.describe_topic(description.topic)
        if after.topic_id == description.topic_id and {*after.kafka_partitions} <= {*description.kafka_partitions}:
            return description, found
        description = after
    raise BrokerUnavailableError(
        f"topic {description.topic}: its id or its kafka partitions changed during each of {MAX_LOOKS} looks at it; "
        f"nothing was committed. Run again when nobody changes it"
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
