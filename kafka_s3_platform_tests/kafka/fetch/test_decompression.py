import time
from pathlib import Path

import cramjam
import psutil
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_s3_platform.kafka.fetch import decompression as compression
from kafka_s3_platform.kafka.fetch.decompression import decompress_batch
from kafka_s3_platform_tests.hostile.measure import kilobytes
from kafka_s3_platform_tests.hostile.servers import costing
from kafka_s3_platform_tests.kafka.wire import COMPRESS, GZIP, LZ4, SNAPPY, ZSTD

MEBIBYTE = 1024 * 1024
MOST = 64 * MEBIBYTE


def undone(codec: int, body: bytes, most: int = MOST) -> bytes:
    return bytes(decompress_batch(codec, memoryview(body), most))


@pytest.mark.parametrize("codec", COMPRESS)
@given(parts=st.lists(st.binary(min_size=1, max_size=500), min_size=1, max_size=4))
def test_streams_that_follow_one_another_are_one(codec: int, parts: list[bytes]) -> None:
    assert undone(codec, b"".join(map(COMPRESS[codec], parts))) == b"".join(parts)


def test_raw_snappy_is_read_too() -> None:
    assert undone(SNAPPY, bytes(cramjam.snappy.compress_raw(b"abc" * 100))) == b"abc" * 100


@pytest.mark.parametrize("codec", COMPRESS)
def test_what_may_be_too_large_is_read_up_to_what_is_allowed(codec: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression, "_MOST", {GZIP: 10**9, LZ4: 10**9})
    body = COMPRESS[codec](bytes(1000)) + COMPRESS[codec](bytes(500))
    assert undone(codec, body, 1500) == bytes(1500)
    with pytest.raises(ValueError, match="more than 1,499 bytes"):
        undone(codec, body, 1499)


@pytest.mark.parametrize("codec", [GZIP, LZ4, ZSTD])
def test_a_bomb_is_refused_before_it_is_held(codec: int) -> None:
    bomb = COMPRESS[codec](bytes(16 * MEBIBYTE)) * 20
    # What Arrow has kept for later would hide what it takes now.
    pa.default_memory_pool().release_unused()
    before = kilobytes("VmRSS")
    # This resets the peak. tracemalloc does not see what the libraries take.
    Path("/proc/self/clear_refs").write_text("5")
    with pytest.raises(ValueError, match="more than 67,108,864 bytes"):
        undone(codec, bomb)
    assert (kilobytes("VmHWM") - before) * 1024 < MOST + 16 * MEBIBYTE


def frame_zstd_07(blocks: bytes) -> bytes:
    """Frame blocks as zstd 0.7 did: magic number, descriptor, a window of 128 KiB, and a last block without bytes."""
    return b"\x27\xb5\x2f\xfd\x00\x38" + blocks + b"\xc0\x00\x00"


def test_a_bomb_of_an_older_zstd_is_refused() -> None:
    block = b"\x00\x00\x05" + b"\xf2\x00\x00A\x00"  # five bytes: one literal, 131,072 times
    assert undone(ZSTD, frame_zstd_07(block)) == b"A" * 131_072
    assert undone(ZSTD, frame_zstd_07(b"\x40\x00\x05hello")) == b"hello"
    for before in (b"", COMPRESS[ZSTD](b"x")):
        with pytest.raises(ValueError, match="more than 67,108,864 bytes"):
            undone(ZSTD, before + frame_zstd_07(block * 513))


@pytest.mark.parametrize("codec", COMPRESS)
def test_a_damaged_body_keeps_none_of_the_memory_that_it_was_allowed(
    codec: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory that is never freed is not touched either. But a process that has taken more than there is cannot fork."""
    monkeypatch.setattr(compression, "_MOST", {GZIP: 10**9, LZ4: 10**9})
    # Arrow's allocator sets a gigabyte of addresses aside with the first large buffer of a process.
    pa.allocate_buffer(MOST)
    before = psutil.Process().memory_info().data
    for _ in range(20):
        with pytest.raises(ValueError):  # noqa: PT011 - each codec has words of its own
            undone(codec, COMPRESS[codec](b"x" * 50)[:20] + b"y" * 50)
    assert psutil.Process().memory_info().data - before < MOST


@pytest.mark.parametrize("body", [b"\xff\xff\xff\xff\x07" + b"x" * 50, b"\xff\xff\xff\xff\x0f"])
def test_snappy_data_that_lies_about_its_size_is_refused_before_memory_is_taken(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"snappy block of \d+ bytes says it is \d+"):
        undone(SNAPPY, body, 2**31 - 1)


def test_a_codec_that_kafka_does_not_have_is_refused() -> None:
    with pytest.raises(KeyError):
        undone(5, b"x")


@given(
    st.sampled_from(sorted(COMPRESS)),
    st.binary(max_size=300),
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(1, 255))),
    st.integers(0, 400),
)
def test_garbage_is_refused_or_within_what_is_allowed(
    codec: int, data: bytes, flips: list[tuple[int, int]], length: int
) -> None:
    body = bytearray(COMPRESS[codec](data or b"x"))[: length or None]
    for place, flip in flips:
        body[place % len(body)] ^= flip
    try:
        assert len(undone(codec, bytes(body), MOST)) <= MOST
    except ValueError:
        return


XERIAL = b"\x82SNAPPY\x00\0\0\0\1\0\0\0\1"


@pytest.mark.parametrize(
    ("codec", "head", "part"),
    [
        (SNAPPY, XERIAL, b"\0\0\0\1\0"),
        (SNAPPY, XERIAL, b"\0\0\0\3\1\0x"),
        (SNAPPY, XERIAL, b"\0\0\0\0"),
        (SNAPPY, b"", XERIAL),
    ],
    ids=["empty blocks", "blocks of one byte", "blocks of no bytes", "streams of no blocks"],
)
def test_a_batch_of_very_many_small_parts_is_refused_at_once(codec: int, head: bytes, part: bytes) -> None:
    with costing(20, 5), pytest.raises(ValueError, match=r"parts have fewer than 1,024 bytes|corrupt input"):
        undone(codec, head + part * (8 * MEBIBYTE // len(part)))


@pytest.mark.parametrize("codec", [GZIP, LZ4, ZSTD])
def test_very_many_empty_streams_are_read_in_little_time(codec: int) -> None:
    empty = COMPRESS[codec](b"")
    start = time.process_time()
    assert undone(codec, empty * (8 * MEBIBYTE // len(empty)) + COMPRESS[codec](b"at last")) == b"at last"
    assert time.process_time() - start < 10
