"""Each codec compresses and decompresses where its row says so, and formats take those of their rows."""

import io

import pytest

from kafka_s3_platform.connect.config.formats_of_connect import WRITTEN_FORMATS
from kafka_s3_platform.core.codecs.compression import CompressedSink, compress_block
from kafka_s3_platform.core.codecs.decompression import decompress_block, decompress_stream
from kafka_s3_platform.core.codecs.table import CODECS, KAFKA_CODECS, Codec
from kafka_s3_platform.core.config.formats import find_format
from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform.core.model.limits import DEFAULT_LIMITS
from kafka_s3_platform_tests.codecs.doors import TEXT


@pytest.mark.parametrize("codec", CODECS.values(), ids=lambda codec: codec.name)
def test_objects_of_lines_are_written_and_read_with_the_codecs_whose_rows_say_so(codec: Codec) -> None:
    if codec.lines != "written":
        with pytest.raises(KeyError):
            CompressedSink(io.BytesIO(), codec.name)
    if codec.lines is None:
        with pytest.raises(KeyError):
            [*decompress_stream(codec.name, io.BytesIO(), DEFAULT_LIMITS)]
    for level in (None, *codec.levels[:1]) if codec.lines == "written" else ():
        body = io.BytesIO()
        sink = CompressedSink(body, codec.name, level)
        sink.write(TEXT)
        sink.close()
        body.seek(0)
        assert b"".join(decompress_stream(codec.name, body, DEFAULT_LIMITS)) == TEXT


@pytest.mark.parametrize("codec", CODECS.values(), ids=lambda codec: codec.name)
def test_blocks_of_avro_are_written_with_the_codecs_whose_rows_say_so(codec: Codec) -> None:
    if codec.avro != "written":
        with pytest.raises(KeyError):
            compress_block(codec.name, None, memoryview(TEXT))
        return
    for level in (None, *codec.levels[:1]):
        body = compress_block(codec.name, level, memoryview(TEXT))
        assert decompress_block(codec.name, body, len(TEXT)) == TEXT


def test_kafka_has_the_codecs_that_its_documentation_numbers() -> None:
    assert dict(sorted(KAFKA_CODECS.items())) == {1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}


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
