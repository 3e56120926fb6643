"""A lost cluster comes back by one command, also if that is killed again and again; and what its checker sees."""

from dataclasses import replace

import pytest

from kafka_s3_platform_tests.disaster.checker import Known, Record, check_registry, compare
from kafka_s3_platform_tests.disaster.play import GROUPS, TOPICS, play

A_RECORD = Record(b"k", b"v", (("h", None),), 1_700_000_000_000)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("kills", "seed"), [(0, 1), (10, 2)])
def test_a_lost_cluster_comes_back_by_one_command(kills: int, seed: int) -> None:
    outcome = play(2_000, seed, kills)
    assert outcome.verdicts == []
    rows = {row["topic"]: row for row in outcome.report["topics"]}
    assert rows.keys() == {topic.name for topic in TOPICS}
    assert all(row["verified"] and row["complete"] for row in rows.values())
    assert outcome.report["records"] == outcome.known.record_count
    assert outcome.report["failures"] == {}
    applied = {group["group_id"] for topic in outcome.report["groups"]["topics"] for group in topic["offsets"]}
    assert applied == GROUPS.keys() or kills


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"key": b""}, "record 1 is"),
        ({"value": None}, "record 1 is"),
        ({"headers": ()}, "record 1 is"),
        ({"timestamp": 0}, "record 1 is"),
        ({}, None),
    ],
)
def test_the_checker_sees_each_part_of_a_record(change: dict[str, object], told: str | None) -> None:
    later = replace(A_RECORD, value=b"later")
    found = list(compare("t-0", [A_RECORD, later], [A_RECORD, replace(later, **change)]))  # type: ignore[arg-type]
    assert [told in line for line in found] == [True] if told else found == []


@pytest.mark.parametrize(
    ("found", "count"), [([], 1), ([A_RECORD], 0), ([A_RECORD, A_RECORD], 1)], ids=["missing", "equal", "twice"]
)
def test_the_checker_counts(found: list[Record], count: int) -> None:
    assert len(list(compare("t-0", [A_RECORD], found))) == count


def test_the_checker_knows_what_follows_a_committed_offset() -> None:
    known = Known()
    # Offsets are not dense: ends of transactions, and aborted records, lie between.
    known.records["t", 0] = {0: A_RECORD, 3: replace(A_RECORD, key=b"3"), 7: replace(A_RECORD, key=b"7")}
    assert [record.key for record in known.list_records(("t", 0), 1)] == [b"3", b"7"]
    assert known.list_records(("t", 0), 8) == known.list_records(("t", 1)) == []


@pytest.fixture
def known() -> Known:
    return Known(schemas={("a", 1): (7, "text")})


@pytest.mark.parametrize(
    ("now", "count"),
    [
        ({("a", 1): {"id": 7, "schema": "text"}}, 0),
        ({("a", 1): {"id": 8, "schema": "text"}}, 1),
        ({("a", 1): {"id": 7, "schema": "other"}}, 1),
        ({}, 1),
        ({("a", 1): {"id": 7, "schema": "text"}, ("b", 1): {"id": 9, "schema": "text"}}, 1),
    ],
)
def test_the_checker_compares_versions_of_the_registry(
    known: Known, now: dict[tuple[str, int], dict[str, object]], count: int
) -> None:
    assert len(list(check_registry(known, now))) == count
