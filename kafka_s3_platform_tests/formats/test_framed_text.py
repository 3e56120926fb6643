"""Text behind a schema's id, through the archive's own stages: what is written is what is looked at before."""

import gzip
import io
import json
import struct
from collections.abc import Sequence
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest

from kafka_s3_platform.connect.converters.avro import AvroPayload
from kafka_s3_platform.connect.converters.base import DecodedPayload
from kafka_s3_platform.core.config.settings import LayoutSettings
from kafka_s3_platform.core.formats.format_io import find_unsafe_values, new_writer
from kafka_s3_platform.core.formats.parts import UnwritableRecordsError
from kafka_s3_platform.core.model.connect import ConnectBatch, Payload, Schema
from kafka_s3_platform_tests.formats.connect import came

BLOCKS = LayoutSettings(format="block_gzip", codec="gzip")
LINES = LayoutSettings(format="bytes", codec="none")
LENGTHS = LayoutSettings(format="bytes", codec="none", bytes_separator="length")
TEN = 0x0A
"""A schema's id whose last byte is a line break."""


def framed(schema: Any, values: Sequence[Any], schema_id: int = TEN) -> AvroPayload:
    rows = []
    for value in values:
        body = io.BytesIO()
        fastavro.schemaless_writer(body, fastavro.parse_schema(schema), value)
        rows.append(b"\0" + struct.pack(">i", schema_id) + body.getvalue())
    found = Schema(json.dumps(schema), schema_id, "s", 1)
    return AvroPayload(pa.array(rows, pa.binary()), np.zeros(len(rows), np.int32), [found])


def of(value: Payload) -> ConnectBatch:
    batch = came([b"raw"] * len(value))
    return ConnectBatch(batch.records, batch.key, value)


def written(layout: LayoutSettings, value: Payload) -> bytes:
    sink = io.BytesIO()
    writer = new_writer(sink, layout, "value", value.schemas[0])
    writer.write(of(value))
    writer.close({})
    return gzip.decompress(sink.getvalue()) if layout.format == "block_gzip" else sink.getvalue()


@pytest.mark.parametrize("schema", ["string", ["null", "string"], {"type": "string"}, ["string", "bytes"]])
@pytest.mark.parametrize(
    ("values", "broken"),
    [
        ([], []),
        (["one"], [False]),
        (["a\nb"], [True]),
        (["three", "one\n", "a\nb", "n" * 5], [False, False, True, False]),
    ],
)
def test_of_framed_text_the_text_is_looked_at_and_written(schema: Any, values: list[str], broken: list[bool]) -> None:
    value = framed(schema, values)
    assert find_unsafe_values(of(value), BLOCKS).tolist() == broken
    whole = [text for text, is_broken in zip(values, broken, strict=True) if not is_broken]
    assert written(BLOCKS, framed(schema, whole)) == b"".join(t.removesuffix("\n").encode() + b"\n" for t in whole)


def test_a_frame_is_never_looked_at_in_records_either() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "f", "type": "string"}]}
    value = framed(schema, [{"f": "a\nb"}])
    assert not find_unsafe_values(of(value), BLOCKS).any()
    assert written(BLOCKS, value) == b'{"f":"a\\nb"}\n'


def test_byte_objects_hold_text_without_its_frame() -> None:
    value = framed("string", ["one", "a\nb"])
    assert find_unsafe_values(of(value), LINES).tolist() == [False, True]
    assert written(LINES, framed("string", ["one", "two"])) == b"one\ntwo\n"
    assert written(LENGTHS, value) == b"\0\0\0\x03one\0\0\0\x03a\nb"


def test_text_decoded_beside_its_frame_is_what_is_written() -> None:
    raw = pa.array([b'\0\0\0\0\n"one"', b'\0\0\0\0\n"a\\nb"'], pa.binary())
    value = DecodedPayload(raw, np.zeros(2, np.int32), [Schema('"string"')], ["one", "a\nb"])
    assert find_unsafe_values(of(value), BLOCKS).tolist() == [False, True]
    assert written(BLOCKS, value.take(np.array([0]))) == b"one\n"


def test_a_null_among_text_is_no_text_null() -> None:
    with pytest.raises(UnwritableRecordsError, match=r"offset 2 of t-3 .* would read back as the text null"):
        written(BLOCKS, framed(["null", "string"], ["null", None]))
    assert written(BLOCKS, framed(["null", "long"], [None, 5])) == b"null\n5\n"
