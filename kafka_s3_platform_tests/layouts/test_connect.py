"""Object keys are Connect's, and say of an object what was put into them."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_s3_platform.config.settings import LayoutSettings
from kafka_s3_platform.layouts.new_layout import ConnectLayout
from kafka_s3_platform.layouts.segment_key import SegmentKey

TOPICS = st.text(string.ascii_letters + string.digits + "._-", min_size=1, max_size=249)
FOLDER = st.text(string.ascii_letters + string.digits + "._-=+' ", min_size=1, max_size=12)
ENCODED = st.lists(FOLDER, min_size=1, max_size=4).map("/".join)
EXTENSIONS = st.sampled_from(["parquet", "json", "json.gz", "snappy.parquet", "avro"])
SEGMENTS = st.builds(
    SegmentKey,
    topic=TOPICS,
    encoded_partition=ENCODED,
    kafka_partition=st.integers(0, 2**31 - 1),
    first_offset=st.integers(0, 2**63 - 1),
    extension=EXTENSIONS,
    epoch=st.none() | st.integers(0, 2**63 - 1),
)


def layout_of(topics_dir: str = "topics", pad_width: int = 10) -> ConnectLayout:
    return ConnectLayout(LayoutSettings(topics_dir=topics_dir, offset_pad_width=pad_width))


@given(topics_dir=st.sampled_from(["topics", "a/b+c", ""]), pad_width=st.integers(0, 20), segment=SEGMENTS)
def test_a_key_is_parsed_into_what_it_was_made_of(topics_dir: str, pad_width: int, segment: SegmentKey) -> None:
    layout = layout_of(topics_dir, pad_width)
    assert layout.parse(layout.key(segment)) == segment


def test_a_key_reads_as_connect_writes_it() -> None:
    key = layout_of().key(SegmentKey("a.b", "year=2013/month=01", 3, 42, "parquet"))
    assert key == "topics/a.b/year=2013/month=01/a.b+3+0000000042.parquet"


def test_a_rewritten_segment_adds_its_epoch() -> None:
    key = layout_of(pad_width=3).key(SegmentKey("t", "hour=01", 0, 7, "parquet", epoch=12))
    assert key == "topics/t/hour=01/t+0+007+12.parquet"


def test_without_a_topics_dir_a_key_begins_with_the_topic() -> None:
    key = layout_of("", 1).key(SegmentKey("t", "hour=01", 0, 7, "parquet"))
    assert key == "t/hour=01/t+0+7.parquet"


@pytest.mark.parametrize(
    "key",
    [
        "topics/t/hour=01/u+0+7.parquet",
        "topics/t/hour=01/t+x+7.parquet",
        "topics/t/hour=01/t+0.parquet",
        "topics/t/t+0+7.parquet",
        "elsewhere/t/hour=01/t+0+7.parquet",
        "topics/t/hour=01/_SUCCESS",
        "topics/.write-check",
        "topics/t/hour=01/t+٣+7.parquet",
        "topics",
        "",
    ],
)
def test_a_key_of_another_layout_is_none_of_ours(key: str) -> None:
    assert layout_of().parse(key) is None
