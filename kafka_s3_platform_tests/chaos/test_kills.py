"""Some seeds of `make chaos KILLS=1`, and what its judge finds of what is planted."""

from collections.abc import Iterator
from typing import Any

import pytest

from kafka_s3_platform.core.config.settings import KafkaSettings, StoreSettings
from kafka_s3_platform_tests.chaos.kills import Archive, Target, compare, made_archive, run
from kafka_s3_platform_tests.chaos.world import Servers

PLACE = (0, b"1")


@pytest.fixture(scope="module")
def archive(kafka_settings: KafkaSettings, module_store: StoreSettings, s3_client: Any) -> Iterator[Archive]:
    with made_archive(Servers(kafka_settings, module_store, s3_client)) as made:
        yield made


@pytest.mark.parametrize(
    ("spark", "seed"),
    [
        pytest.param("no Spark", "1", id="no Spark"),
        pytest.param("warm Spark", "4", id="warm Spark"),
        pytest.param("local Spark", "2", id="local Spark", marks=pytest.mark.long),
        *(pytest.param("no Spark", str(seed), marks=pytest.mark.long) for seed in range(10, 14)),
        *(pytest.param("warm Spark", str(seed), marks=pytest.mark.long) for seed in range(20, 24)),
        *(pytest.param("local Spark", str(seed), marks=pytest.mark.long) for seed in range(30, 34)),
    ],
)
def test_a_restore_that_is_killed_and_stopped_leaves_what_an_undisturbed_one_does(
    archive: Archive, spark: str, seed: str
) -> None:
    outcome = run(archive, seed, (spark,))
    assert outcome.verdicts == [], "\n".join(outcome.log)
    assert outcome.told


def rows(*values: bytes) -> list[dict[str, Any]]:
    return [{"value": value} for value in values]


@pytest.mark.parametrize(
    ("found", "kinds"),
    [
        ({PLACE: rows(b"a", b"a", b"b")}, []),
        ({PLACE: rows(b"a", b"b")}, ["lost"]),
        ({}, ["lost"]),
        ({PLACE: rows(b"a", b"a", b"b", b"b")}, ["twice"]),
        ({PLACE: rows(b"a", b"b", b"a")}, ["altered"]),
        ({PLACE: rows(b"a", b"a", b"c")}, ["altered"]),
        ({(1, b"1"): rows(b"a", b"a", b"b")}, ["lost", "twice"]),
    ],
)
def test_what_is_lost_twice_altered_or_elsewhere_is_seen(found: Target, kinds: list[str]) -> None:
    assert [verdict.kind for verdict in compare({PLACE: rows(b"a", b"a", b"b")}, found)] == kinds
