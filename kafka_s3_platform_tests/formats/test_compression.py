"""Compressed streams: the same bytes whatever the writes were, read by everybody, damage told."""

import bz2
import gzip
import io
import lzma
import random
import subprocess
import sys
import tarfile
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

import cramjam
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_s3_platform.config.codecs import CODECS
from kafka_s3_platform.config.formats import WRITTEN_FORMATS, find_format
from kafka_s3_platform.errors import ConfigError, IntegrityError, StoreUnavailableError
from kafka_s3_platform.formats import compression
from kafka_s3_platform.formats.compression import CompressedSink, decompress_lines

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
    # How a stream begins tells its codec, and a codec inside of another is refused: lines begin with none of these.
    # (Hypothesis draws the magic bytes of codecs too, since they are constants of the package.)
    body = compressed(codec, None, b"{", *pieces)
    assert b"".join(decompress_lines(io.BytesIO(body), "key")) == b"{" + b"".join(pieces)


@pytest.mark.parametrize("codec", ["gzip", "bzip2", "zstd"])
def test_a_stream_cut_off_or_damaged_is_refused_by_name(codec: str) -> None:
    body = compressed(codec, None, TEXT)
    for end in (5, len(body) // 2, len(body) - 1):
        with pytest.raises(IntegrityError, match="object k "):
            list(decompress_lines(io.BytesIO(body[:end]), "k"))
    for at in (len(body) // 2, len(body) - 6):
        damaged = bytearray(body)
        damaged[at] ^= 0x10
        with pytest.raises(IntegrityError, match=r"object k .* damaged or cut off"):
            list(decompress_lines(io.BytesIO(bytes(damaged)), "k"))


@pytest.mark.parametrize("codec", ["gzip", "bzip2", "zstd"])
def test_several_streams_in_a_row_are_read_as_one(codec: str) -> None:
    body = compressed(codec, None, b"a") + compressed(codec, None, b"b")
    assert b"".join(decompress_lines(io.BytesIO(body), "k")) == b"ab"


def test_what_the_source_raises_passes_through() -> None:
    class Failing(io.BytesIO):
        def read(self, _: int | None = -1, /) -> bytes:
            raise StoreUnavailableError("the store went away")

    with pytest.raises(StoreUnavailableError, match="the store went away"):
        list(decompress_lines(Failing(), "k"))


def test_another_process_makes_the_same_bytes() -> None:
    program = (
        "import io, sys; from kafka_s3_platform.formats.compression import CompressedSink as C\n"
        "for codec in ('gzip', 'zstd', 'bzip2'):\n"
        "    c = C(sys.stdout.buffer, codec); c.write(b'abc' * 100_000); c.close()"
    )
    found = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True).stdout
    assert found == b"".join(compressed(codec, None, b"abc" * 100_000) for codec in ("gzip", "zstd", "bzip2"))


# What others wrote


def xerial(text: bytes, size: int = 32_768) -> bytes:
    """As snappy-java's SnappyOutputStream writes it, and so Aiven's sink."""
    blocks = [bytes(cramjam.snappy.compress_raw(text[at : at + size])) for at in range(0, len(text), size)]
    head = b"\x82SNAPPY\0" + (1).to_bytes(4, "big") * 2
    return head + b"".join(len(b).to_bytes(4, "big") + b for b in blocks)


def hadoop(compress: Callable[[bytes], Any], text: bytes, block: int = 200_000, size: int = 65_536) -> bytes:
    """As Hadoop's BlockCompressorStream writes it, and so Spark."""
    found = b""
    for start in range(0, len(text), block):
        whole = text[start : start + block]
        pieces = [bytes(compress(whole[at : at + size])) for at in range(0, len(whole), size)]
        found += len(whole).to_bytes(4, "big") + b"".join(len(p).to_bytes(4, "big") + p for p in pieces)
    return found


OTHERS: dict[str, tuple[str, Callable[[bytes], Any]]] = {
    "lz4": ("", cramjam.lz4.compress),
    "snappy": ("", cramjam.snappy.compress),
    "xerial": ("", xerial),
    "xz": ("", lzma.compress),
    "hadoop-snappy": ("snappy", partial(hadoop, cramjam.snappy.compress_raw)),
    "hadoop-lz4": ("lz4", partial(hadoop, partial(cramjam.lz4.compress_block, store_size=False))),
}
"""By name how an object's name ends, and what compresses."""


@pytest.mark.parametrize("name", OTHERS)
def test_codecs_of_others_are_read_whole_and_told_where_they_are_cut_off_or_damaged(name: str) -> None:
    named, compress = OTHERS[name]
    body = bytes(compress(TEXT))

    def read(data: bytes) -> bytes:
        return b"".join(decompress_lines(io.BytesIO(data), "k", named=named))

    assert read(body) == TEXT
    assert read(body + body) == TEXT + TEXT
    for end in (20, len(body) // 2, len(body) - 1):
        with pytest.raises(IntegrityError, match=r"object k (ends in the middle|cannot be read)"):
            read(body[:end])
    if name not in {"xerial", "hadoop-snappy", "hadoop-lz4"}:  # these have no checksum
        for at in (len(body) // 2, len(body) - 6):
            damaged = bytearray(body)
            damaged[at] ^= 0x10
            with pytest.raises(IntegrityError, match=r"object k .* damaged or cut off"):
                read(bytes(damaged))


@pytest.mark.parametrize("codec", ["gzip", "bzip2", "zstd", "lz4", "snappy", "xz"])
def test_a_stream_cut_off_keeps_none_of_the_memory_that_its_pieces_took(codec: str) -> None:
    body = bytes(OTHERS[codec][1](TEXT)) if codec in OTHERS else compressed(codec, None, TEXT)
    before = psutil.Process().memory_info().data
    for _ in range(50):
        with pytest.raises(IntegrityError):
            list(decompress_lines(io.BytesIO(body[: len(body) // 2]), "k"))
    assert psutil.Process().memory_info().data - before < 10 * compression.CHUNK_BYTES


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (b"BZhang\n", ""),
        (b"BZh1 is a line\n", ""),
        (b"PK\n", ""),
        (b"PAR1 is a word\n" * 50, ""),
        (b"ORC and elf\n" * 50, ""),
        (b"x" * 257 + b"ustar" + b"y" * 600, ""),
        (b"\x1f", ""),
        (b"", ""),
        (b"", "none"),
    ],
)
def test_lines_that_begin_like_a_magic_are_lines(text: bytes, named: str) -> None:
    assert b"".join(decompress_lines(io.BytesIO(text), "k", named=named)) == text


@pytest.mark.parametrize("named", ["gzip", "bzip2", "zstd", "lz4", "snappy", "xz"])
def test_what_its_name_says_of_an_object_has_to_be_true_but_another_codec_is_read(named: str) -> None:
    for body in (b"plain\n", b"", b"\x1f", b"\x04\x22", b"\xff" * 600):
        with pytest.raises(IntegrityError, match=r"object k does not begin as what ends in \.\w+ does"):
            list(decompress_lines(io.BytesIO(body), "k", named=named))
    for other in ("gzip", "bzip2", "zstd"):
        assert b"".join(decompress_lines(io.BytesIO(compressed(other, None, TEXT)), "k", named=named)) == TEXT


def archived_as_tar(text: bytes) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        found = tarfile.TarInfo("a.json")
        found.size = len(text)
        archive.addfile(found, io.BytesIO(text))
    return packed.getvalue()


def parquet() -> bytes:
    packed = io.BytesIO()
    pq.write_table(pa.table({"a": [1]}), packed)
    return packed.getvalue()


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (archived_as_tar(TEXT), "a tar archive"),
        (b"PK\x03\x04\x14\0", "a zip archive"),
        (b"Obj\x01\x04", "an Avro file"),
        (parquet(), "a Parquet file"),
        (b"ORC" + bytes(600), "an ORC file"),
        (b"SEQ\x06\x19org.apache.hadoop.io.LongWritable", "a Hadoop SequenceFile"),
        (b"\x02\x21\x4c\x18" + bytes(20), "LZ4 of the legacy frame"),
        (gzip.compress(TEXT), "compressed with gzip"),
    ],
)
def test_what_is_no_lines_is_refused_by_name_also_inside_of_a_codec(body: bytes, what: str) -> None:
    for codec in ("none", "gzip", "zstd"):
        if codec == "none" and what.startswith("compressed"):
            continue
        inside = "" if codec == "none" else f" inside of {codec}"
        with pytest.raises(IntegrityError, match=f"object k is {what}{inside}, not lines or values"):
            list(decompress_lines(io.BytesIO(compressed(codec, None, body)), "k"))


# Codecs by format


@pytest.mark.parametrize("format_name", WRITTEN_FORMATS)
def test_every_format_has_its_default(format_name: str) -> None:
    WRITTEN_FORMATS[format_name].check_codec(WRITTEN_FORMATS[format_name].default_codec, None)


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
        find_format(format_name).check_codec(codec, level)


def test_a_users_own_format_decides_for_itself() -> None:
    find_format("my_package.CsvFormat").check_codec("anything", 99)
