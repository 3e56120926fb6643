"""How long Kafka keeps what could not be archived."""

import pytest

from kafka_s3_platform.model.gaps import parse_retention_ms


@pytest.mark.parametrize(
    ("configs", "kept"),
    [
        ({}, -1),
        ({"retention.ms": "-1"}, -1),
        ({"retention.ms": "60000"}, 60_000),
        ({"retention.ms": "60000", "cleanup.policy": "compact"}, -1),
        ({"retention.ms": "60000", "cleanup.policy": "compact,delete"}, 60_000),
    ],
)
def test_retention_counts_where_age_deletes(configs: dict[str, str], kept: int) -> None:
    assert parse_retention_ms(configs) == kept
