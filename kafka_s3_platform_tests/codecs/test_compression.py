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

from kafka_s3_platform.core.codecs import compression
from kafka_s3_platform.core.codecs.compression import CompressedSink
from kafka_s3_platform.core.codecs.decompression import CHUNK_BYTES
from kafka_s3_platform.core.codecs.table import CODECS
from kafka_s3_platform.core.formats.reading import decompress_lines

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
    assert b"".join(decompress_lines(io.BytesIO(body), "key")) == text


@pytest.mark.parametrize("codec", READERS)
def test_how_bytes_are_written_does_not_change_what_becomes_of_them(
    codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compression, "CHUNK_BYTES", 10_000)
    for level in (None, *CODECS[codec].levels)[:10:4]:
        body = compressed(codec, level, TEXT)
        for seed in range(5):
            ends = sorted(random.Random(seed).choices(range(len(TEXT)), k=30))
            pieces = [TEXT[a:b] for a, b in zip([0, *ends], [*ends, len(TEXT)], strict=True)]
            assert compressed(codec, level, *pieces) == body


def test_no_more_than_a_chunk_waits() -> None:
    sink = CompressedSink(io.BytesIO(), "gzip")
    for _ in range(50):
        sink.write(TEXT)
        assert sink.buffered_bytes < CHUNK_BYTES


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
    # How a stream begins tells its codec, and a codec inside of another is refused: lines begin with none of these.
    # (Hypothesis draws the magic bytes of codecs too, since they are constants of the package.)
    body = compressed(codec, None, b"{", *pieces)
    assert b"".join(decompress_lines(io.BytesIO(body), "key")) == b"{" + b"".join(pieces)


def test_another_process_makes_the_same_bytes() -> None:
    program = (
        "import io, sys; from kafka_s3_platform.core.codecs.compression import CompressedSink as C\n"
        "for codec in ('gzip', 'zstd', 'bzip2'):\n"
        "    c = C(sys.stdout.buffer, codec); c.write(b'abc' * 100_000); c.close()"
    )
    found = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True).stdout
    assert found == b"".join(compressed(codec, None, b"abc" * 100_000) for codec in ("gzip", "zstd", "bzip2"))
