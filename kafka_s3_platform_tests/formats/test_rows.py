"""Every row of the tables of formats and codecs has what writes it, what reads it, and a line in the documents."""

import io
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from kafka_s3_platform.config.codecs import AVRO_CODECS, CODECS, PARQUET_CODECS, READ_CODECS, Codec
from kafka_s3_platform.config.formats import FORMATS, WRITTEN_FORMATS, Format, find_format
from kafka_s3_platform.config.settings import LayoutSettings
from kafka_s3_platform.formats.avro_container import AVRO_COMPRESSION
from kafka_s3_platform.formats.compression import COMPRESSION
from kafka_s3_platform.formats.format_io import load_format_io
from kafka_s3_platform.model.connect import Schema
from kafka_s3_platform_tests.formats.connect import came, decoded, written

DOCUMENT = (Path(__file__).parents[2] / "docs" / "formats.md").read_text()
RECORD = Schema('{"type":"record","name":"R","fields":[{"name":"n","type":"int"}]}')


@pytest.mark.parametrize("row", FORMATS.values(), ids=lambda row: row.name)
def test_every_format_is_read_and_written_by_its_module_and_named_in_the_documents(row: Format) -> None:
    found = load_format_io(row)
    assert (found.new_writer is not None) == row.is_written
    assert (found.new_record_reader is not None) == row.is_envelope
    assert (found.new_reader is not None) == (not row.is_envelope)
    assert f"| `{row.name}` |" in DOCUMENT
    assert row.holds


@pytest.mark.parametrize("row", WRITTEN_FORMATS.values(), ids=lambda row: row.name)
def test_every_written_format_has_its_codecs_their_names_and_a_kind(row: Format) -> None:
    row.check_codec(row.default_codec, None)
    assert row.codecs.keys() <= row.extensions.keys()
    assert all(row.extension(codec, "bin") in row.readable_extensions("bin") for codec in row.codecs)
    assert row.kind


@pytest.mark.parametrize("row", WRITTEN_FORMATS.values(), ids=lambda row: row.name)
def test_every_format_is_written_with_each_of_its_codecs(row: Format) -> None:
    batch = decoded([{"n": 1}], RECORD) if row.needs_schema else came([b"1"])
    for codec in row.codecs:
        assert written(LayoutSettings(format=row.name, codec=codec), batch, schema=RECORD if row.needs_schema else None)


@pytest.mark.parametrize("codec", CODECS.values(), ids=lambda codec: codec.name)
def test_every_codec_compresses_and_decompresses_where_its_row_says_so(codec: Codec) -> None:
    lines = COMPRESSION.get(codec.name)
    assert (lines is not None) == (codec.lines is not None)
    assert (lines is not None and lines.new_compressor is not None) == (codec.lines == "written")
    blocks = AVRO_COMPRESSION.get(codec.name)
    assert (blocks is not None) == (codec.avro is not None)
    assert (blocks is not None and blocks.new_compress is not None) == (codec.avro == "written")
    assert re.search(rf"^\| {codec.name} \| \w", DOCUMENT, re.MULTILINE)


def test_every_codec_of_a_table_belongs_to_some_format() -> None:
    used = {name for row in WRITTEN_FORMATS.values() for name in row.codecs}
    assert {*AVRO_CODECS, *PARQUET_CODECS} <= used
    assert {*READ_CODECS} | used == {*CODECS}


@pytest.mark.parametrize("codec", AVRO_COMPRESSION)
def test_blocks_of_avro_come_back(codec: str) -> None:
    compress = AVRO_COMPRESSION[codec].new_compress
    if compress is not None:
        for level in (None, *CODECS[codec].levels[:1]):
            body = bytes(compress(level)(memoryview(b"abc" * 1_000)))
            assert AVRO_COMPRESSION[codec].decompress(body, 3_000) == b"abc" * 1_000


@pytest.mark.parametrize("codec", PARQUET_CODECS)
def test_parquet_comes_back(codec: str) -> None:
    body = written(LayoutSettings(format="parquet", codec=codec), decoded([{"n": 1}], RECORD), schema=RECORD)
    assert pq.read_table(io.BytesIO(body)).to_pylist() == [{"n": 1}]


def test_of_a_users_own_class_nothing_is_known() -> None:
    row = find_format("my_package.CsvFormat")
    assert (row.is_plugin, row.module) == (True, "own_class")
    assert (row.is_envelope, row.needs_schema, row.kinds("gzip"), row.codecs) == (False, False, set(), {})
