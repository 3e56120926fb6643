"""Each format under its name, with the extension that Connect's sinks give its objects."""

import gzip
import io
import json
from collections.abc import Mapping
from typing import Any

import fastavro
import pyarrow.parquet as pq
import pytest

from kafka_s3_platform.connect.config.formats_of_connect import WRITTEN_FORMATS
from kafka_s3_platform.core.codecs.compression import Sink
from kafka_s3_platform.core.codecs.table import PARQUET_CODECS
from kafka_s3_platform.core.config.settings import LayoutSettings
from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform.core.formats.envelope.parquet import EnvelopeReader
from kafka_s3_platform.core.formats.format_io import find_extension, find_part_codec, new_writer
from kafka_s3_platform.core.formats.parts import ObjectPart, UnwritableRecordsError, UnwritableSchemaError
from kafka_s3_platform.core.model.connect import ConnectBatch, Schema
from kafka_s3_platform_tests.formats.connect import came, decoded, written

RECORD = Schema('{"type":"record","name":"R","fields":[{"name":"n","type":"int"}]}')
TEXT = Schema('"string"')


class CsvFormat:
    """A user's own format."""

    extension = "csv"

    def __init__(self, sink: Sink, layout: LayoutSettings, schema: Schema | None) -> None:
        self._sink, self._delim = sink, layout.file_delim
        self._names = [field["name"] for field in schema.avro["fields"]] if schema else ["value"]
        self.buffered_bytes = 0
        self.sidecars: Mapping[str, bytes] = {}
        self._sink.write((self._delim.join(["offset", *self._names]) + "\n").encode())

    def write(self, batch: ConnectBatch) -> None:
        for offset, value in zip(batch.offsets.tolist(), batch.value.objects, strict=True):
            self._sink.write(
                self._delim.join(map(str, [offset, *(value[name] for name in self._names)])).encode() + b"\n"
            )

    def close(self, facts: Mapping[str, str]) -> None:
        self.sidecars = {"facts.json": json.dumps(dict(facts)).encode()}


OWN = f"{__name__}.CsvFormat"


@pytest.mark.parametrize(
    ("settings", "part", "expected"),
    [
        ({"format": "avro", "codec": "snappy"}, "value", "avro"),
        ({"format": "json", "codec": "none"}, "value", "json"),
        ({"format": "json", "codec": "gzip"}, "value", "json.gz"),
        ({"format": "json", "codec": "bzip2"}, "value", "json.bz2"),
        ({"format": "json", "codec": "zstd"}, "value", "json.zst"),
        ({"format": "bytes", "codec": "none"}, "value", "bin"),
        ({"format": "bytes", "codec": "gzip", "bytes_extension": ".log"}, "value", "log.gz"),
        ({"format": "parquet", "codec": "none"}, "value", "parquet"),
        ({"format": "parquet", "codec": "snappy"}, "value", "snappy.parquet"),
        ({"format": "parquet", "codec": "gzip"}, "value", "gz.parquet"),
        ({"format": "parquet", "codec": "zstd"}, "value", "zstd.parquet"),
        ({"format": "parquet", "codec": "lz4"}, "value", "lz4raw.parquet"),
        ({"format": "block_gzip", "codec": "gzip"}, "value", "gz"),
        ({"format": "envelope.parquet"}, "value", "parquet"),
        ({"format": "envelope.avro", "codec": "zstd"}, "value", "avro"),
        ({"format": "envelope.json", "codec": "gzip"}, "value", "json.gz"),
        ({"format": OWN}, "value", "csv"),
        ({"format": "json", "codec": "gzip", "extension": ".log.gz"}, "value", "log.gz"),
        ({"format": "avro", "codec": "null", "keys_format": "avro"}, "key", "keys.avro"),
        ({"format": "json", "codec": "gzip", "keys_format": "json"}, "key", "keys.json.gz"),
        ({"format": "json", "codec": "gzip", "keys_format": "bytes", "extension": "log"}, "key", "keys.bin.gz"),
        ({"format": "avro", "codec": "null", "headers_format": "json"}, "headers", "headers.json"),
        ({"format": "parquet", "codec": "gzip", "headers_format": "parquet"}, "headers", "headers.gz.parquet"),
        ({"format": "avro", "codec": "null", "headers_format": "parquet"}, "headers", "headers.snappy.parquet"),
    ],
)
def test_objects_are_named_as_connect_names_them(settings: dict[str, Any], part: ObjectPart, expected: str) -> None:
    assert find_extension(LayoutSettings(**settings), part) == expected


def test_keys_and_headers_have_the_codec_of_their_kind_of_format() -> None:
    layout = LayoutSettings(format="json", codec="gzip", codec_level=9, keys_format="bytes", headers_format="avro")
    assert find_part_codec(layout, "key") == ("gzip", 9)
    assert find_part_codec(layout, "headers") == ("null", None)
    layout = layout.model_copy(update={"keys_codec": "zstd", "headers_codec": "deflate"})
    assert find_part_codec(layout, "key") == ("zstd", None)
    assert find_part_codec(layout, "headers") == ("deflate", None)
    assert find_extension(layout, "key") == "keys.bin.zst"


# The envelopes, and formats of others, are tested where they are: here is that the factory knows them.


def test_an_avro_container_holds_values_keys_and_headers() -> None:
    layout = LayoutSettings(format="avro", codec="deflate", keys_format="avro", headers_format="avro")

    def read(body: bytes) -> list[Any]:
        return list(fastavro.reader(io.BytesIO(body)))

    assert read(written(layout, decoded([{"n": 1}, {"n": 2}], RECORD), schema=RECORD)) == [{"n": 1}, {"n": 2}]
    assert read(written(layout, decoded(["a"], TEXT, keys=True), part="key", schema=TEXT)) == ["a"]
    batch = came([b"1", b"2"], headers=[[{"key": "h", "value": b"v"}, {"key": "g", "value": None}], None])
    assert read(written(layout, batch, part="headers")) == [
        [{"key": "h", "value": "v"}, {"key": "g", "value": None}],
        [],
    ]


def test_values_that_do_not_fit_an_avro_schema_are_named() -> None:
    layout = LayoutSettings(format="avro", codec="null")
    with pytest.raises(UnwritableRecordsError, match="record at offset 2 of t-3") as caught:
        written(layout, decoded([{"n": 1}, {"n": "x"}], RECORD), schema=RECORD)
    assert [f.offset for f in caught.value.failures] == [2]


@pytest.mark.parametrize("codec", PARQUET_CODECS)
def test_the_native_envelope_has_the_codecs_of_parquet(codec: str) -> None:
    body = written(LayoutSettings(codec=codec), came([b"a"] * 100))
    assert EnvelopeReader(io.BytesIO(body), "k").num_records == 100
    used = {"none": "UNCOMPRESSED"}.get(codec, codec.upper())
    assert pq.ParquetFile(io.BytesIO(body)).metadata.row_group(0).column(1).compression == used


def test_a_users_own_format_is_called_by_its_dotted_name() -> None:
    sink = io.BytesIO()
    writer = new_writer(sink, LayoutSettings(format=OWN, file_delim=","), "value", RECORD)
    writer.write(decoded([{"n": 5}, {"n": 6}], RECORD))
    writer.close({"topic": "t"})
    assert sink.getvalue() == b"offset,n\n0,5\n2,6\n"
    assert (writer.sidecars, writer.buffered_bytes) == ({"facts.json": b'{"topic": "t"}'}, 0)


@pytest.mark.parametrize("format_name", ["avro", "parquet"])
def test_values_without_a_schema_are_refused_where_the_format_needs_one(format_name: str) -> None:
    with pytest.raises(
        UnwritableSchemaError, match=f"the value of these records has no schema, which {format_name} needs"
    ):
        new_writer(io.BytesIO(), LayoutSettings(format=format_name, codec="snappy"), "value", None)


@pytest.mark.parametrize(
    ("settings", "part", "message"),
    [
        ({"format": "xml"}, "value", "there is no format xml for the value: there are envelope.parquet, "),
        ({"format": "json", "keys_format": "block_gzip"}, "key", "no format block_gzip for the key: there are bytes"),
        ({"format": "json", "headers_format": "bytes"}, "headers", "there is no format bytes for the headers"),
        ({"format": "json"}, "key", "there is no format None for the key"),
        ({"format": "no.such.Format"}, "value", r"no\.such\.Format"),
        ({"format": "json", "codec": "snappy"}, "value", "the format json has no codec 'snappy'"),
        ({"format": "json", "codec": "gzip", "codec_level": 11}, "value", "cannot have the level 11"),
    ],
)  # fmt: skip
def test_what_does_not_exist_is_refused(settings: dict[str, Any], part: ObjectPart, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        new_writer(io.BytesIO(), LayoutSettings(**settings), part, None)


def test_nothing_but_block_gzip_has_a_sidecar() -> None:
    for format_name, row in WRITTEN_FORMATS.items():
        layout = LayoutSettings(format=format_name, codec=next(iter(row.codecs)))
        writer = new_writer(io.BytesIO(), layout, "value", RECORD)
        writer.close({})
        assert set(writer.sidecars) == ({"index.json"} if format_name == "block_gzip" else set())


def test_bytes_of_any_kind_are_gzip_when_asked() -> None:
    assert gzip.decompress(written(LayoutSettings(format="bytes", codec="gzip", codec_level=9), came([b"a"]))) == b"a\n"
