"""How an object begins tells what it is, whatever its name says."""

import bz2
import gzip
import io
import tarfile
from collections.abc import Callable, Mapping

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kafka_s3_platform.core.errors import IntegrityError
from kafka_s3_platform.core.formats.reading import decompress_lines
from kafka_s3_platform_tests.codecs.doors import TEXT, zstd

COMPRESS: Mapping[str, Callable[[bytes], bytes]] = {
    "none": bytes,
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "zstd": zstd,
}


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
        assert b"".join(decompress_lines(io.BytesIO(COMPRESS[other](TEXT)), "k", named=named)) == TEXT


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
            list(decompress_lines(io.BytesIO(COMPRESS[codec](body)), "k"))
