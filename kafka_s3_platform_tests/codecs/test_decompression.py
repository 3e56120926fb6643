"""What others compressed is read whole, or refused before it takes much memory or time."""

import io
import time
from collections.abc import Callable
from pathlib import Path

import cramjam
import psutil
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_s3_platform.core.codecs import decompression
from kafka_s3_platform.core.codecs.decompression import CHUNK_BYTES, TooLargeError, decompress_block, decompress_stream
from kafka_s3_platform.core.codecs.table import KAFKA_CODECS
from kafka_s3_platform.core.errors import IntegrityError, StoreUnavailableError
from kafka_s3_platform.core.model.limits import DEFAULT_LIMITS
from kafka_s3_platform_tests.codecs.doors import DOORS, MOST, TEXT, raw_snappy, sized, xerial
from kafka_s3_platform_tests.hostile.measure import kilobytes
from kafka_s3_platform_tests.kafka.wire import COMPRESS

MEBIBYTE = 1024 * 1024
BLOCKS = [name for name in DOORS if not name.startswith("lines")]
LINES = [name for name in DOORS if name.startswith("lines")]
ONE_STREAM = {"kafka snappy", "avro snappy", "avro deflate"}
"""What has no place for a second stream."""

NO_CHECKSUM = {
    "avro deflate",
    "kafka snappy",
    "kafka xerial",
    "lines xerial",
    "lines hadoop snappy",
    "lines hadoop lz4",
}
UNCOUNTED = {"kafka lz4", "lines lz4"}
"""Read by Arrow, which does not tell of frames, but is quick with them."""


def read(door: str, change: Callable[[Callable[[bytes], bytes]], bytes]) -> bytes:
    enter, codec, compress = DOORS[door]
    return enter(codec, change(compress))


@pytest.mark.parametrize("door", DOORS)
def test_streams_in_a_row_are_read_as_one(door: str) -> None:
    assert read(door, lambda compress: compress(TEXT)) == TEXT
    if door not in ONE_STREAM:
        assert read(door, lambda compress: compress(b"") + compress(TEXT[:99_000]) + compress(TEXT[99_000:])) == TEXT
        return
    with pytest.raises(ValueError, match=r"corrupt input|bytes after its stream"):
        read(door, lambda compress: compress(TEXT[:99_000]) + compress(TEXT[99_000:]))


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("end", [0, 20, 20_000, -1])
def test_a_stream_that_is_cut_off_is_refused(door: str, end: int) -> None:
    with pytest.raises((ValueError, IntegrityError)):
        read(door, lambda compress: compress(TEXT)[:end])


@pytest.mark.parametrize("door", DOORS)
def test_a_stream_with_bytes_after_it_is_refused(door: str) -> None:
    with pytest.raises((ValueError, IntegrityError)):
        read(door, lambda compress: compress(TEXT) + b"garbage!")


@pytest.mark.parametrize("door", sorted(set(DOORS) - NO_CHECKSUM))
@pytest.mark.parametrize("place", [0.5, 0.99])
def test_a_damaged_stream_is_refused(door: str, place: float) -> None:
    def damage(compress: Callable[[bytes], bytes]) -> bytes:
        body = bytearray(compress(TEXT))
        body[int(place * len(body))] ^= 0x10
        return bytes(body)

    with pytest.raises((ValueError, IntegrityError)):
        read(door, damage)


@pytest.mark.parametrize("door", BLOCKS)
def test_a_block_may_become_what_is_allowed_and_no_byte_more(door: str) -> None:
    compress = DOORS[door][2]
    codec = {"xerial": "snappy", "zstandard": "zstd"}.get(door.split()[1], door.split()[1])
    for size in (1_500, MOST):
        assert bytes(decompress_block(codec, compress(bytes(size)), size)) == bytes(size)
        for body in (compress(bytes(size)), compress(bytes(20 * size))):
            with pytest.raises(TooLargeError):
                decompress_block(codec, body, size - 1)
    if door not in ONE_STREAM:
        with pytest.raises(TooLargeError):
            decompress_block(codec, compress(bytes(MOST // 2)) * 3, MOST)


@pytest.mark.parametrize("door", LINES)
def test_a_bomb_in_an_object_comes_in_small_pieces(door: str) -> None:
    _, codec, compress = DOORS[door]
    name = f"{codec} of Hadoop" if "hadoop" in door else codec
    pieces = [*decompress_stream(name, io.BytesIO(compress(bytes(20 * MEBIBYTE))), DEFAULT_LIMITS)]
    assert sum(map(len, pieces)) == 20 * MEBIBYTE
    assert max(map(len, pieces)) <= CHUNK_BYTES


@pytest.mark.parametrize("door", sorted(set(DOORS) - ONE_STREAM - UNCOUNTED))
def test_very_many_empty_streams_are_refused(door: str) -> None:
    with pytest.raises((ValueError, IntegrityError), match="more than 10,000 of its parts"):
        read(door, lambda compress: compress(b"") * 10_001 + compress(TEXT))
    assert read(door, lambda compress: compress(b"") * 9_000 + compress(TEXT)) == TEXT


@pytest.mark.parametrize("door", sorted(set(BLOCKS) - ONE_STREAM - UNCOUNTED))
def test_a_block_of_very_many_small_streams_is_refused(door: str) -> None:
    with pytest.raises(ValueError, match="more than 10,000 of its parts have fewer than 1,024 bytes"):
        read(door, lambda compress: compress(b"{") * 10_001 + compress(TEXT))


def test_very_many_empty_frames_of_lz4_are_read_in_little_time() -> None:
    empty = COMPRESS[3](b"")
    start = time.process_time()
    body = empty * (8 * MEBIBYTE // len(empty)) + COMPRESS[3](b"at last")
    assert bytes(decompress_block("lz4", body, 64 * MEBIBYTE)) == b"at last"
    assert time.process_time() - start < 10


@pytest.mark.parametrize(
    "block", [b"\xff\xff\xff\xff\x07" + b"x" * 50, b"\xff\xff\xff\xff\x0f"], ids=["2 GiB", "4 GiB"]
)
def test_a_claim_that_cannot_be_true_is_refused_before_memory_is_taken(block: bytes) -> None:
    for body in (block, xerial(b"") + sized(block)):
        with pytest.raises(ValueError, match=r"\d+ bytes that claim to become \d+"):
            decompress_block("snappy", body, 2**31 - 1)


def test_a_block_of_an_object_is_held_to_the_limit_before_memory_is_taken() -> None:
    for stream in (xerial(bytes(MOST + 1), MOST + 1), xerial(b"") + b"\x7f\xff\xff\xff"):
        with pytest.raises(IntegrityError, match=r"has a block of snappy .* archive.read.max.block.bytes allows"):
            DOORS["lines xerial"][0]("snappy", stream)


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
def test_a_bomb_is_refused_before_it_is_held(codec: str) -> None:
    number = next(number for number, name in KAFKA_CODECS.items() if name == codec)
    bomb = COMPRESS[number](bytes(16 * MEBIBYTE)) * 20
    # What Arrow has kept for later would hide what it takes now.
    pa.default_memory_pool().release_unused()
    before = kilobytes("VmRSS")
    # This resets the peak. tracemalloc does not see what the libraries take.
    Path("/proc/self/clear_refs").write_text("5")
    with pytest.raises(TooLargeError):
        decompress_block(codec, bomb, 64 * MEBIBYTE)
    assert (kilobytes("VmHWM") - before) * 1024 < (64 + 16) * MEBIBYTE


@pytest.mark.parametrize("codec", KAFKA_CODECS.values())
def test_a_damaged_block_keeps_none_of_the_memory_that_it_was_allowed(
    codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory that is never freed is not touched either. But a process that has taken more than there is cannot fork."""
    monkeypatch.setattr(decompression, "_LZ4_MOST", 10**9)
    number = next(number for number, name in KAFKA_CODECS.items() if name == codec)
    # Arrow's allocator sets a gigabyte of addresses aside with the first large buffer of a process.
    pa.allocate_buffer(64 * MEBIBYTE)
    before = psutil.Process().memory_info().data
    for _ in range(20):
        with pytest.raises(ValueError):  # noqa: PT011 - each codec has words of its own
            decompress_block(codec, COMPRESS[number](b"x" * 50)[:20] + b"y" * 50, 64 * MEBIBYTE)
    assert psutil.Process().memory_info().data - before < 64 * MEBIBYTE


@pytest.mark.parametrize("door", LINES)
def test_an_object_that_is_cut_off_keeps_none_of_the_memory_that_its_pieces_took(door: str) -> None:
    enter, codec, compress = DOORS[door]
    body = compress(TEXT)
    before = psutil.Process().memory_info().data
    for _ in range(50):
        with pytest.raises(IntegrityError):
            enter(codec, body[: len(body) // 2])
    assert psutil.Process().memory_info().data - before < 10 * CHUNK_BYTES


@given(
    st.sampled_from(sorted(COMPRESS)),
    st.binary(max_size=300),
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(1, 255))),
    st.integers(0, 400),
)
def test_garbage_is_refused_or_within_what_is_allowed(
    number: int, data: bytes, flips: list[tuple[int, int]], length: int
) -> None:
    body = bytearray(COMPRESS[number](data or b"x"))[: length or None]
    for place, flip in flips:
        body[place % len(body)] ^= flip
    try:
        assert len(decompress_block(KAFKA_CODECS[number], memoryview(body), MOST)) <= MOST
    except ValueError:
        return


@pytest.mark.parametrize("codec", ["none", "gzip", "lz4"])
def test_what_the_source_raises_passes_through(codec: str) -> None:
    class Failing(io.BytesIO):
        def read(self, _: int | None = -1, /) -> bytes:
            raise StoreUnavailableError("the store went away")

    with pytest.raises(StoreUnavailableError, match="the store went away"):
        list(decompress_stream(codec, Failing(), DEFAULT_LIMITS))


def test_frames_of_zstd_that_readers_skip_are_skipped() -> None:
    skippable = b"\x50\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"size"
    assert decompress_block("zstd", skippable + COMPRESS[4](TEXT) + skippable, MOST) == TEXT


def test_a_block_of_snappy_is_no_stream_of_its_frames() -> None:
    assert bytes(decompress_block("snappy", raw_snappy(TEXT), MOST)) == TEXT
    with pytest.raises(ValueError, match=r"claim to become|corrupt input"):
        decompress_block("snappy", bytes(cramjam.snappy.compress(TEXT)), MOST)
