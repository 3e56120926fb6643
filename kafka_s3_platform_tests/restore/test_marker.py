import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_s3_platform.errors import PreflightError
from kafka_s3_platform.kafka.groups import Committed
from kafka_s3_platform.restore.marker import Marker, marker_name


@given(st.text("0123456789abcdef", min_size=64, max_size=64), st.integers(0, 2**62), st.integers(0, 2**62))
def test_a_marker_comes_back_from_what_the_group_holds(digest: str, offset: int, count: int) -> None:
    marker = Marker(digest, offset, count)
    assert marker.committed.offset == offset
    assert Marker.of(marker.committed, digest, "here") == marker


def test_the_marker_of_another_plan_is_refused() -> None:
    with pytest.raises(PreflightError, match=r"here: the progress marker is that of another plan, aa; .* is bb"):
        Marker.of(Marker("aa", 5, 3).committed, "bb", "here")


@pytest.mark.parametrize("metadata", ["", "{", "5", "[]", '{"plan": "aa"}', '{"plan": "aa", "records": "many"}'])
def test_an_offset_that_something_else_has_committed_is_refused(metadata: str) -> None:
    with pytest.raises(PreflightError, match="is no progress marker"):
        Marker.of(Committed(5, metadata), "aa", "here")


def test_streams_have_names_of_their_own() -> None:
    assert marker_name("incident-7", 3) == "restore.incident-7.3"
