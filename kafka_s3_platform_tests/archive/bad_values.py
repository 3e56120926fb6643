"""Records with bad values, and what of them is unresolved."""

from collections.abc import Sequence
from typing import Any

from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform_tests.support import HOUR, NOON, Sent, snapshot

BAD = b"{not json"
JSON: dict[str, Any] = {
    "layout": {"format": "json", "codec": "none"},
    "records": {"value": {"format": "JSON"}},
}
BY_VALUE: dict[str, Any] = {
    "layout": {"partitioner": "Field", "partition_fields": ("n",)},
    "records": {"value": {"format": "JSON"}},
}
"""An envelope whose folders are named by the values: what is no JSON has none."""


def numbered(count: int, bad: Sequence[int] = (), hours: int = 1, kafka_partition: int = 0) -> list[Sent]:
    """Records of `count` each hour from noon on; those at the offsets `bad` are no JSON."""
    return [
        Sent(BAD if n in bad else b'{"n":1}', None, NOON + n // count * HOUR, (), kafka_partition)
        for n in range(count * hours)
    ]


def unresolved(config: ConnectorConfig) -> list[tuple[int, int, int]]:
    """(kafka partition, start, end) of what is unresolved."""
    found = snapshot(config).state.unresolved
    return [(u.kafka_partition, u.start_offset, u.end_offset) for u in found]
