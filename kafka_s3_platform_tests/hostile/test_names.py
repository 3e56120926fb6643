"""Names of others in the index: each is one value of one column, whatever it says."""

import pytest

from kafka_s3_platform.instance.names import make_op_name
from kafka_s3_platform.kafka.admin import ClusterAdmin
from kafka_s3_platform.kafka.groups import publish_offsets
from kafka_s3_platform.model.segment import CommittedOffset, Segment
from kafka_s3_platform.store.index import ConnectorIndex, TopicIndex
from kafka_s3_platform.store.index_commit import Change
from kafka_s3_platform.store.row_filter import match_group
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.hostile.names import ODD
from kafka_s3_platform_tests.support import NOON, SETTINGS, Sent, archived, snapshot

pytestmark = pytest.mark.integration


def segment(key: str) -> Segment:
    return Segment(key, "hourly", NOON, "hour=12", 0, 0, 10, 10, 2, 99, 55, "etag", "sha", "digest", 1, 2, SETTINGS, 1)


def test_groups_of_any_name_replace_their_own_offsets_only(lab: Lab) -> None:
    """A group's name is any text; it becomes a part of the predicate by which its earlier offsets are removed."""
    config = lab.fill([Sent() for _ in range(5)], consumer_groups=(f"(?s).*{lab.topic}",))
    groups = [f"{name}{lab.topic}" for name in ODD]

    def commit(offset: int, names: list[str]) -> None:
        with ClusterAdmin(lab.kafka) as admin:
            for name in names:
                publish_offsets(admin, name, lab.topic, {0: offset}, {0: name})
        archived(config)

    commit(1, groups)
    for turn, name in enumerate(groups[:3]):
        commit(2 + turn, [name])
    commit(5, groups[3:])
    found = {row.group_id: (row.committed_offset, row.metadata) for row in snapshot(config).state.groups}
    assert found == {name: (2 + at if at < 3 else 5, name) for at, name in enumerate(groups)}
    assert sum(s.record_count for s in snapshot(config).segments) == 5


@pytest.mark.parametrize("name", ODD)
def test_a_predicate_holds_for_the_row_of_that_very_name(lab: Lab, name: str) -> None:
    index = TopicIndex(ConnectorIndex(lab.store, "_index", "c"), "t")
    key = name.replace("../", "..-")  # a key that leads out of its folder is damage
    rows = [CommittedOffset(group, 0, 5, "", None, "EMPTY", NOON) for group in (name, "other", name + "'")]
    index.open().commit(Change((*rows, segment(key), segment("other"))))
    index.open().commit(Change(removed=(match_group(name),), retired=(segment(key),)))
    left = index.open()
    assert [s.key for s in left.segments] == ["other"]
    assert [s.key for s in left.retired] == [key]
    assert {row.group_id for row in left.state.groups} == {"other", name + "'"}


def test_names_of_dagster_stay_apart_and_hold_no_more_than_dagster_takes() -> None:
    made = {make_op_name("topic", name) for name in ODD}
    assert len(made) == len(ODD)
    assert all(name.isascii() and name.replace("_", "a").isalnum() for name in made)
