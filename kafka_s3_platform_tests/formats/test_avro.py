"""An Avro container holds what it was given, in bytes that depend on nothing else, and others read it."""

import io
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import avro.datafile
import avro.io
import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_s3_platform.connect.formats.avro import AvroWriter
from kafka_s3_platform.core.errors import IntegrityError
from kafka_s3_platform.core.formats.avro_container import BLOCK_BYTES, AvroBlocks
from kafka_s3_platform.core.formats.parts import UnwritableRecordsError
from kafka_s3_platform.core.model.connect import NO_SCHEMA, ConnectBatch, Payload, Schema
from kafka_s3_platform_tests.formats.connect import came

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GOLDEN = Path(__file__).parents[1] / "golden"
CODECS = ["null", "deflate", "snappy", "bzip2", "zstd"]
# The text is kept as it is: with its spaces, documentation, aliases and logical types.
ORDER = Schema(
    """{"type": "record", "name": "Order", "namespace": "shop", "doc": "What was bought: \\u00fc", "fields": [
  {"name": "id", "type": "long"},
  {"name": "customer", "type": ["null", "string"], "default": null, "aliases": ["buyer"]},
  {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
  {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
  {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
  {"name": "tags", "type": {"type": "array", "items": "string"}}
]}""",
    schema_id=7,
    subject="orders-value",
    version=1,
)
Y = {"name": "y", "type": "int"}
MY_RECORD = Schema('{"type":"record","name":"myrecord","fields":[{"name":"f1","type":"string"}]}', schema_id=1)

orders = st.fixed_dictionaries(
    {
        "id": st.integers(-(2**63), 2**63 - 1),
        "customer": st.none() | st.text(max_size=5),
        "at": st.integers(0, 2**45),
        "price": st.binary(max_size=4),
        "state": st.sampled_from(["NEW", "PAID"]),
        "tags": st.lists(st.text(max_size=3), max_size=3),
    }
)


def order(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "customer": None if number % 3 == 0 else f"käufer {number % 17}",
        "at": 1_356_998_400_000 + 37 * number,
        "price": (number % 9_999).to_bytes(2, "big"),
        "state": "NEW" if number % 5 else "PAID",
        "tags": ["a", "b"][: number % 3],
    }


def decoded(objects: Sequence[Any], schema: Schema = ORDER) -> Payload:
    return Payload(None, np.zeros(len(objects), np.int32), [schema], objects)


def from_registry(objects: Sequence[Any], schema: Schema = ORDER) -> Payload:
    """As they lie in Kafka, in the wire format of Confluent's Registry."""
    parsed, values = fastavro.parse_schema(schema.avro), []
    for value in objects:
        body = io.BytesIO(b"\0" + (schema.schema_id or 0).to_bytes(4, "big"))
        body.seek(5)
        fastavro.schemaless_writer(body, parsed, value)
        values.append(body.getvalue())
    payload = Payload(pa.array(values, pa.binary()), np.zeros(len(values), np.int32), [schema])
    payload.avro_start = 5
    return payload


def connected(value: Payload) -> ConnectBatch:
    """A batch of these values."""
    batch = came([b""] * len(value))
    return ConnectBatch(batch.records, batch.key, value)


def container(*payloads: Payload, schema: Schema = ORDER, codec: str = "null", level: int | None = None) -> bytes:
    sink = io.BytesIO()
    writer = AvroWriter(sink, schema, codec, level)
    for payload in payloads:
        writer.write(connected(payload))
        assert writer.buffered_bytes < BLOCK_BYTES
    writer.close({"first-offset": "0"})
    return sink.getvalue()


def cut(payload: Payload, bounds: Sequence[int]) -> list[Payload]:
    ends = [*sorted(min(b, len(payload)) for b in bounds), len(payload)]
    return [payload.take(np.arange(a, b)) for a, b in zip([0, *ends], ends, strict=False)]


def read(body: bytes) -> list[Any]:
    """The values in Avro's physical form."""
    reader = fastavro.block_reader(io.BytesIO(body))
    plain = fastavro.parse_schema(without_logical_types(reader.writer_schema))
    values = []
    block: Any
    for block in reader:
        data = io.BytesIO(block.bytes_.getvalue())
        values += [fastavro.schemaless_reader(data, plain, None) for _ in range(block.num_records)]
        assert not data.read()
    return values


def without_logical_types(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {k: without_logical_types(v) for k, v in schema.items() if k != "logicalType"}
    return [without_logical_types(s) for s in schema] if isinstance(schema, list) else schema


def blocks(body: bytes) -> list[tuple[int, int]]:
    """Records and bytes of each block."""
    found: Any = fastavro.block_reader(io.BytesIO(body))
    return [(b.num_records, len(b.bytes_.getvalue())) for b in found]


@pytest.mark.parametrize("codec", CODECS)
@settings(deadline=None)
@given(found=st.lists(orders, max_size=20), bounds=st.lists(st.integers(0, 20), max_size=3))
def test_bytes_moved_and_objects_encoded_are_the_same_however_they_come(
    codec: str, found: list[Any], bounds: list[int]
) -> None:
    body = container(decoded(found), codec=codec)
    assert container(*cut(from_registry(found), bounds), codec=codec) == body
    assert container(*cut(decoded(found), bounds), codec=codec) == body
    assert read(body) == found


def test_the_header_keeps_the_schema_as_it_was_registered() -> None:
    metadata = fastavro.reader(io.BytesIO(container(from_registry([order(1)]), codec="zstd"))).metadata
    assert metadata == {"avro.schema": ORDER.text, "avro.codec": "zstandard"}


def test_no_records_are_a_header_alone() -> None:
    body = container()
    assert read(body) == []
    assert container(from_registry([]), decoded([])) == body


def test_blocks_end_at_the_same_record_however_batches_come() -> None:
    schema = Schema('"string"', schema_id=2)
    sizes = [*[100] * 5_000, 3 * BLOCK_BYTES, *[100] * 10, BLOCK_BYTES // 2, BLOCK_BYTES // 2, 1]
    whole = from_registry(["x" * n for n in sizes], schema)
    body = container(whole, schema=schema)
    assert [n for n, _ in blocks(body)] == [2_571, 2_430, 12, 1]
    for seed in range(5):
        bounds = random.Random(seed).choices(range(len(sizes)), k=12)
        assert container(*cut(whole, bounds), schema=schema) == body
    one_by_one = cut(whole, range(len(sizes)))
    assert container(*one_by_one, schema=schema) == body


def test_slices_of_a_column_move_their_own_bodies() -> None:
    payload = from_registry([order(i) for i in range(10)])
    assert payload.raw is not None
    payload.raw, payload.codes = payload.raw.slice(3, 4), payload.codes[3:7]
    assert read(container(payload)) == [order(i) for i in range(3, 7)]


def test_bodies_are_moved_without_being_understood() -> None:
    # An array in two blocks with their sizes, which fastavro never writes.
    schema = Schema('{"type": "array", "items": "int"}', schema_id=3)
    body = b"\x01\x02\x02" + b"\x01\x02\x04" + b"\x00"
    payload = Payload(pa.array([b"\0\0\0\0\x03" + body]), np.zeros(1, np.int32), [schema])
    payload.avro_start = 5
    found = container(payload, schema=schema)
    assert body in found
    assert read(found) == [[1, 2]]


def test_bytes_of_another_encoding_with_the_same_schema_id_are_not_moved() -> None:
    payload = decoded([order(1)])
    payload.raw = pa.array([b"\0\0\0\0\x07" + b"protobuf"])
    assert read(container(payload)) == [order(1)]


def test_data_of_another_version_are_encoded_with_the_containers_schema() -> None:
    older = Schema(ORDER.text, schema_id=6, subject="orders-value", version=0)
    payload = from_registry([order(1)], older)
    payload.objects = [order(2)]
    assert read(container(payload)) == [order(2)]


@pytest.mark.parametrize(("text", "values"), [('"string"', ["ä", ""]), ('"bytes"', [b"\0\xff", b""])])
def test_values_without_a_schema_are_strings_or_bytes(text: str, values: list[Any]) -> None:
    payload = Payload(None, np.full(2, NO_SCHEMA, np.int32), [], values)
    assert read(container(payload, schema=Schema(text))) == values
    if text == '"bytes"':
        raw = Payload(pa.array(values), np.full(2, NO_SCHEMA, np.int32), [])
        assert read(container(raw, schema=Schema(text))) == values


# Codecs


@pytest.mark.parametrize(("codec", "low", "high"), [("deflate", 1, 9), ("bzip2", 1, 9), ("zstd", 1, 19)])
def test_a_level_is_honoured(codec: str, low: int, high: int) -> None:
    payload = from_registry([order(i * i) for i in range(30_000)])
    sizes = [len(container(payload, codec=codec, level=level)) for level in (low, high)]
    assert sizes[1] < sizes[0]
    assert read(container(payload, codec=codec, level=high))[-1] == order(29_999**2)


def test_containers_of_two_schemas_or_codecs_have_other_sync_markers() -> None:
    bodies = [container(), container(codec="zstd"), container(schema=MY_RECORD)]
    assert len({body[-16:] for body in bodies}) == 3


def test_encoded_data_of_others_are_added_with_their_lengths() -> None:
    sink = io.BytesIO()
    written = AvroBlocks(sink, '"string"', "snappy")
    written.add(b"\x02a\x04bc", np.array([2, 3]))
    written.add(b"", np.empty(0, np.int64))
    assert written.buffered_bytes == 5
    written.close({})
    assert read(sink.getvalue()) == ["a", "bc"]


# Bad input


@pytest.mark.parametrize("payload", [decoded([order(1), None]), from_registry([order(1)])])
def test_a_null_record_is_refused(payload: Payload) -> None:
    if payload.raw is not None:
        payload.raw = pa.concat_arrays([payload.raw, pa.nulls(1, pa.binary())])
        payload.codes = np.zeros(2, np.int32)
    with pytest.raises(IntegrityError, match=r"the record at offset \d+ of t-3 is null where its format has no null"):
        container(payload)


def test_objects_that_do_not_fit_are_named_and_nothing_of_their_batch_is_written() -> None:
    sink = io.BytesIO()
    writer = AvroWriter(sink, ORDER, "null")
    wrong = [order(1), {**order(2), "id": "two"}, {"id": 3}, {**order(4), "state": "LOST"}, {**order(5), "id": 2**70}]
    batch = connected(decoded(wrong))
    with pytest.raises(UnwritableRecordsError, match="cannot be written as avro: TypeError") as raised:
        writer.write(batch)
    assert [failure.offset for failure in raised.value.failures] == batch.offsets[1:].tolist()
    writer.write(connected(decoded([order(9)])))
    writer.close({})
    assert read(sink.getvalue()) == [order(9)]


@pytest.mark.parametrize(
    "inner",
    [
        '"int"',
        '{"type": "int"}',
        '["null", "int"]',
        '{"type": "array", "items": {"type": "map", "values": "int"}}',
        '{"type": "record", "name": "I", "fields": [{"name": "i", "type": "int"}]}',
    ],
)
def test_an_int_of_more_than_32_bits_never_reaches_a_container(inner: str) -> None:
    def value(number: int) -> Any:
        return {"f": [{"k": number}] if "array" in inner else {"i": number} if "record" in inner else number}

    schema = Schema(f'{{"type": "record", "name": "R", "fields": [{{"name": "f", "type": {inner}}}]}}')
    limits = [value(-(2**31)), value(2**31 - 1)]
    assert read(container(decoded(limits, schema), schema=schema)) == limits
    for number in (2**31, -(2**31) - 1):
        with pytest.raises(UnwritableRecordsError, match=str(number)):
            container(decoded([value(number)], schema), schema=schema)


def test_a_value_shorter_than_its_prefix_is_refused() -> None:
    payload = from_registry([order(1)])
    payload.raw = pa.array([b"\0\0\0"])
    with pytest.raises(IntegrityError, match="a value has less than the 5 bytes before its Avro datum"):
        container(payload)


# Others read it, for ever


EXPECTED = [order(i) for i in range(40)]


@pytest.mark.parametrize("codec", CODECS)
def test_the_golden_file_is_what_is_written(codec: str) -> None:
    assert container(from_registry(EXPECTED), codec=codec) == (GOLDEN / f"orders.{codec}.avro").read_bytes()


def test_the_documents_example_is_what_is_written() -> None:
    values = [{"f1": f"value{i}"} for i in (1, 2, 3)]
    body = container(from_registry(values, MY_RECORD), schema=MY_RECORD)
    assert body == (GOLDEN / "s3_topic+0+0000000000.avro").read_bytes()
    assert list(fastavro.reader(io.BytesIO(body))) == values


@pytest.mark.parametrize("codec", CODECS)
def test_fastavro_reads_the_golden_file(codec: str) -> None:
    found: list[Any] = list(fastavro.reader(io.BytesIO((GOLDEN / f"orders.{codec}.avro").read_bytes())))
    assert [v["id"] for v in found] == list(range(40))
    assert found[1]["at"].isoformat() == "2013-01-01T00:00:00.037000+00:00"
    assert str(found[1]["price"]) == "0.01"


# Its snappy needs a library of its own.
@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "zstd"])
def test_avros_own_python_library_reads_the_golden_file(codec: str) -> None:
    with (GOLDEN / f"orders.{codec}.avro").open("rb") as source:
        found: list[Any] = list(avro.datafile.DataFileReader(source, avro.io.DatumReader()))
    assert [(v["id"], v["customer"], v["tags"]) for v in found] == [
        (v["id"], v["customer"], v["tags"]) for v in EXPECTED
    ]


def test_avros_reference_implementation_reads_the_golden_files(spark: "SparkSession") -> None:
    java = spark.sparkContext._jvm  # noqa: SLF001 - Spark brings Avro's Java library along
    assert java is not None
    for codec in CODECS:
        source = java.java.io.File(str(GOLDEN / f"orders.{codec}.avro"))
        reader = java.org.apache.avro.file.DataFileReader(source, java.org.apache.avro.generic.GenericDatumReader())
        found = []
        while reader.hasNext():
            found.append(reader.next())
        reader.close()
        assert [(v.get("id"), str(v.get("state"))) for v in found] == [(v["id"], v["state"]) for v in EXPECTED]
        assert json.loads(reader.getSchema().toString())["doc"] == "What was bought: ü"


def test_a_record_of_a_union_is_not_written_as_one_whose_further_fields_have_defaults() -> None:
    wider = {"type": "record", "name": "Wider", "fields": [{"name": "x", "type": "int", "default": 1}, Y]}
    narrow = {"type": "record", "name": "Narrow", "fields": [Y]}
    schema = Schema(json.dumps({"type": "array", "items": [wider, narrow]}))
    sink = io.BytesIO()
    writer = AvroWriter(sink, schema, "null")
    value = Payload(None, np.zeros(1, np.int32), [schema], [[("Narrow", {"y": 5}), ("Wider", {"x": 1, "y": 5})]])
    writer.write(connected(value))
    writer.close({})
    found = list(fastavro.reader(io.BytesIO(sink.getvalue()), return_record_name=True))
    assert found == [[("Narrow", {"y": 5}), ("Wider", {"x": 1, "y": 5})]]
