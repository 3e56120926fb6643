"""Compressed streams: the same bytes whatever the writes were, read by everybody, damage told."""

import bz2
import gzip
import io
import random
import subprocess
import sys
import zlib
from collections.abc import Callable

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_s3_platform.config.codecs import CODECS, DEFAULT_CODECS, check_codec
from kafka_s3_platform.errors import ConfigError, IntegrityError, StoreUnavailableError
from kafka_s3_platform.formats import compression
from kafka_s3_platform.formats.compression import CompressedSink, decompressed

TEXT = b"".join(b'{"id":%d,"name":"user %d"}\n' % (i, i * i % 97) for i in range(20_000))
READERS: dict[str, Callable[[bytes], bytes]] = {
    "none": bytes,
    "gzip": gzip.decompress,
    "bzip2": bz2.decompress,
    "zstd": lambda body: zstandard.ZstdDecompressor().decompressobj().decompress(body),
}


def compressed(codec: str, level: int | None, *pieces: bytes) -> bytes:
    sink = io.BytesIO()
    compressor = CompressedSink(sink, codec, level)
    for piece in pieces:
        compressor.write(piece)
    compressor.close()
    return sink.getvalue()


@pytest.mark.parametrize("codec", READERS)
@pytest.mark.parametrize("text", [b"", b"x", TEXT])
def test_others_read_what_was_written(codec: str, text: bytes) -> None:
    body = compressed(codec, None, text)
    assert READERS[codec](body) == text
    assert b"".join(decompressed(io.BytesIO(body), "key")) == text


@pytest.mark.parametrize("codec", READERS)
def test_how_bytes_are_written_does_not_change_what_becomes_of_them(
    codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compression, "CHUNK_BYTES", 10_000)
    for level in (None, *CODECS["json"][codec])[:10:4]:
        body = compressed(codec, level, TEXT)
        for seed in range(5):
            ends = sorted(random.Random(seed).choices(range(len(TEXT)), k=30))
            pieces = [TEXT[a:b] for a, b in zip([0, *ends], [*ends, len(TEXT)], strict=True)]
            assert compressed(codec, level, *pieces) == body


def test_no_more_than_a_chunk_waits() -> None:
    sink = CompressedSink(io.BytesIO(), "gzip")
    for _ in range(50):
        sink.write(TEXT)
        assert sink.buffered_bytes < compression.CHUNK_BYTES


@pytest.mark.parametrize("level", [None, *range(1, 10)])
def test_gzip_names_no_file_and_no_time(level: int | None) -> None:
    magic, flags, mtime = (body := compressed("gzip", level, TEXT))[:3], body[3], body[4:8]
    assert (magic, flags, mtime) == (b"\x1f\x8b\x08", 0, bytes(4))


def test_an_explicit_gzip_level_is_honoured() -> None:
    bodies = {compressed("gzip", level, TEXT) for level in (None, *range(1, 10))}
    assert len(bodies) == 10
    for level in (3, 6, 9):
        assert len(compressed("gzip", level, TEXT)) < 1.15 * len(zlib.compress(TEXT, level))


@pytest.mark.parametrize("codec", ["bzip2", "zstd"])
def test_levels_of_other_codecs_are_honoured(codec: str) -> None:
    assert compressed(codec, 1, TEXT) != compressed(codec, 9, TEXT)


@settings(deadline=None)
@given(st.lists(st.binary(max_size=40), max_size=5), st.sampled_from([*READERS]))
def test_any_bytes_come_back(pieces: list[bytes], codec: str) -> None:
    # A stream without compression is told from the others by how it begins: lines begin with none of these.
    start = b"{" if codec == "none" else b""
    body = compressed(codec, None, start, *pieces)
    assert b"".join(decompressed(io.BytesIO(body), "key")) == start + b"".join(pieces)


@pytest.mark.parametrize("codec", ["gzip", "bzip2", "zstd"])
def test_a_stream_cut_off_or_damaged_is_refused_by_name(codec: str) -> None:
    body = compressed(codec, None, TEXT)
    for end in (5, len(body) // 2, len(body) - 1):
        with pytest.raises(IntegrityError, match="object k "):
            list(decompressed(io.BytesIO(body[:end]), "k"))
    for at in (len(body) // 2, len(body) - 6):
        damaged = bytearray(body)
        damaged[at] ^= 0x10
        with pytest.raises(IntegrityError, match=r"object k .* damaged or cut off"):
            list(decompressed(io.BytesIO(bytes(damaged)), "k"))


@pytest.mark.parametrize("codec", ["gzip", "bzip2", "zstd"])
def test_several_streams_in_a_row_are_read_as_one(codec: str) -> None:
    body = compressed(codec, None, b"a") + compressed(codec, None, b"b")
    assert b"".join(decompressed(io.BytesIO(body), "k")) == b"ab"


def test_what_the_source_raises_passes_through() -> None:
    class Failing(io.BytesIO):
        def read(self, _: int | None = -1, /) -> bytes:
            raise StoreUnavailableError("the store went away")

    with pytest.raises(StoreUnavailableError, match="the store went away"):
        list(decompressed(Failing(), "k"))


def test_another_process_makes_the_same_bytes() -> None:
    program = (
        "import io, sys; from kafka_s3_platform.formats.compression import CompressedSink as C\n"
        "for codec in ('gzip', 'zstd', 'bzip2'):\n"
        "    c = C(sys.stdout.buffer, codec); c.write(b'abc' * 100_000); c.close()"
    )
    found = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True).stdout
    assert found == b"".join(compressed(codec, None, b"abc" * 100_000) for codec in ("gzip", "zstd", "bzip2"))


# Codecs by format


@pytest.mark.parametrize("format_name", CODECS)
def test_every_format_has_its_default(format_name: str) -> None:
    check_codec(format_name, DEFAULT_CODECS[format_name], None)


@pytest.mark.parametrize(
    ("format_name", "codec", "level", "message"),
    [
        ("json", "snappy", None, "the format json has no codec 'snappy'; it has none, gzip, bzip2, zstd"),
        ("avro", "gzip", None, "the format avro has no codec 'gzip'; it has null, deflate, snappy, bzip2, zstd"),
        ("parquet", "deflate", None, "the format parquet has no codec 'deflate'; it has none, snappy, gzip"),
        ("block_gzip", "zstd", None, "the format block_gzip has no codec 'zstd'; it has gzip"),
        ("json", "gzip", 10, "the codec gzip of the format json cannot have the level 10: its levels are 1 to 9"),
        ("json", "gzip", 0, "cannot have the level 0: its levels are 1 to 9"),
        ("bytes", "none", 3, "the codec none of the format bytes cannot have the level 3: it has no levels"),
        ("parquet", "lz4", 1, "the codec lz4 of the format parquet cannot have the level 1: it has no levels"),
    ],
)
def test_a_codec_or_level_that_a_format_does_not_have_is_refused(
    format_name: str, codec: str, level: int | None, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        check_codec(format_name, codec, level)


def test_a_users_own_format_decides_for_itself() -> None:
    check_codec("my_package.CsvFormat", "anything", 99)
