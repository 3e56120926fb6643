"""Some cases of `make chaos ELECTIONS=1`, and what its judge finds of what is planted."""

from collections.abc import Iterator
from typing import Any

import pytest

from kafka_s3_platform.config.settings import KafkaSettings, StoreSettings
from kafka_s3_platform.restore.request import Delivery
from kafka_s3_platform_tests.chaos.elections import CASES, ClusterArchive, count_missing, made_archive, run
from kafka_s3_platform_tests.chaos.world import Servers
from kafka_s3_platform_tests.cluster.brokers import Cluster


@pytest.fixture(scope="module")
def archive(
    cluster: Cluster, kafka_settings: KafkaSettings, module_store: StoreSettings, s3_client: Any
) -> Iterator[ClusterArchive]:
    with made_archive(Servers(kafka_settings, module_store, s3_client), cluster) as made:
        yield made


@pytest.mark.integration
@pytest.mark.parametrize(
    "case",
    [
        ("exactly_once", "after it was read back", "unclean, filled by others"),
        pytest.param(("exactly_once", "while it sends", "unclean, left short"), marks=pytest.mark.long),
        pytest.param(("exactly_once", "between two runs", "unclean, filled by others"), marks=pytest.mark.long),
        pytest.param(("at_least_once", "while it sends", "another in sync leads"), marks=pytest.mark.long),
        pytest.param(("at_least_once", "between two runs", "unclean, filled by others"), marks=pytest.mark.long),
    ],
    ids=", ".join,
)
def test_a_restore_whose_leader_dies_is_not_called_verified_if_it_lacks_records(
    archive: ClusterArchive, case: tuple[Delivery, str, str]
) -> None:
    outcome = run(archive, str(CASES.index(case)))
    assert outcome.verdicts == [], "\n".join(outcome.log)
    assert outcome.told


def rows(*values: bytes) -> list[dict[str, Any]]:
    return [{"value": value} for value in values]


@pytest.mark.parametrize(
    ("found", "missing"),
    [
        (rows(b"a", b"a", b"b"), 0),
        (rows(b"a", b"x", b"a", b"b", b"b"), 0),
        (rows(b"a", b"b"), 2),
        (rows(b"b", b"a", b"a"), 1),
        ([], 3),
    ],
)
def test_records_that_are_missing_or_out_of_order_are_seen(found: list[dict[str, Any]], missing: int) -> None:
    assert count_missing(rows(b"a", b"a", b"b"), found) == missing
