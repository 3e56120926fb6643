import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_s3_platform.errors import PreflightError
from kafka_s3_platform.kafka.groups import Committed
from kafka_s3_platform.restore.replay.transactions import METADATA_BYTES, Marker, make_marker_name

OFFSETS = st.integers(0, 2**62)


@given(
    st.text("0123456789abcdef", min_size=64, max_size=64),
    OFFSETS,
    OFFSETS,
    st.dictionaries(st.integers(0, 10_000), OFFSETS, max_size=100),
)
def test_a_marker_comes_back_from_what_the_group_holds(
    digest: str, offset: int, count: int, ends: dict[int, int]
) -> None:
    marker = Marker(digest, offset, count, ends)
    assert marker.committed.offset == offset
    assert Marker.of(marker.committed, digest, "here") == marker


@pytest.mark.parametrize(("kafka_partitions", "fit"), [(200, True), (2000, False)])
def test_ends_are_left_out_where_a_group_s_metadata_cannot_hold_them(kafka_partitions: int, fit: bool) -> None:
    marker = Marker("aa", 5, 3, dict.fromkeys(range(kafka_partitions), 1_000_000))
    assert len(marker.committed.metadata) <= METADATA_BYTES
    assert Marker.of(marker.committed, "aa", "here").target_ends == (marker.target_ends if fit else {})


def test_the_marker_of_another_plan_is_refused() -> None:
    with pytest.raises(PreflightError, match=r"here: the progress marker is that of another plan, aa; .* is bb"):
        Marker.of(Marker("aa", 5, 3).committed, "bb", "here")


@pytest.mark.parametrize(
    "metadata",
    [
        "",
        "[" * 4000,
        '{"plan": "aa", "records": 1e999}',
        '{"plan": "aa", "records": -1}',
        '{"plan": "aa", "records": 3, "ends": {"0": -1}}',
        '{"plan": "aa", "records": 3, "ends": {"-1": 5}}',
        "x" * 4096,
        "{",
        "5",
        "[]",
        '{"plan": "aa"}',
        '{"plan": "aa", "records": "many"}',
        '{"plan": "aa", "records": 3, "ends": 5}',
        '{"plan": "aa", "records": 3, "ends": {"0": null}}',
    ],
)
def test_an_offset_that_something_else_has_committed_is_refused(metadata: str) -> None:
    with pytest.raises(PreflightError, match="is no progress marker"):
        Marker.of(Committed(5, metadata), "aa", "here")


def test_streams_have_names_of_their_own() -> None:
    assert make_marker_name("incident-7", 3, place="0123abcd") == "restore.incident-7@0123abcd.3"
    assert make_marker_name("incident-7", 3, place="0123abcd", topic="a") == "restore.incident-7@0123abcd/a.3"
