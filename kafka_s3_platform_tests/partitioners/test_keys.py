"""Object keys are Connect's, and say of an object what was put into them."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_s3_platform.partitioners.keys import SegmentKey, parse_segment_key, segment_key

TOPICS = st.text(string.ascii_letters + string.digits + "._-", min_size=1, max_size=249)
FOLDER = st.text(string.ascii_letters + string.digits + "._-=+' ", min_size=1, max_size=12)
ENCODED = st.lists(FOLDER, min_size=1, max_size=4).map("/".join)
EXTENSIONS = st.sampled_from(["parquet", "json", "json.gz", "snappy.parquet", "avro"])


@given(
    topics_dir=st.sampled_from(["topics", "a/b+c", ""]),
    topic=TOPICS,
    encoded=ENCODED,
    kafka_partition=st.integers(0, 2**31 - 1),
    offset=st.integers(0, 2**63 - 1),
    pad_width=st.integers(0, 20),
    extension=EXTENSIONS,
    epoch=st.none() | st.integers(0, 2**63 - 1),
)
def test_a_key_is_parsed_into_what_it_was_made_of(
    *,
    topics_dir: str,
    topic: str,
    encoded: str,
    kafka_partition: int,
    offset: int,
    pad_width: int,
    extension: str,
    epoch: int | None,
) -> None:
    key = segment_key(topics_dir, topic, encoded, kafka_partition, offset, pad_width, extension, epoch)
    digits = max(pad_width, len(str(offset)))
    assert parse_segment_key(key, topics_dir) == SegmentKey(
        topic, encoded, kafka_partition, offset, digits, extension, epoch
    )


def test_a_key_reads_as_connect_writes_it() -> None:
    key = segment_key("topics", "a.b", "year=2013/month=01", 3, 42, 10, "parquet")
    assert key == "topics/a.b/year=2013/month=01/a.b+3+0000000042.parquet"


def test_a_rewritten_segment_adds_its_epoch() -> None:
    assert segment_key("topics", "t", "hour=01", 0, 7, 3, "parquet", 12) == "topics/t/hour=01/t+0+007+12.parquet"


def test_without_a_topics_dir_a_key_begins_with_the_topic() -> None:
    assert segment_key("", "t", "hour=01", 0, 7, 1, "parquet") == "t/hour=01/t+0+7.parquet"


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
    assert parse_segment_key(key, "topics") is None
