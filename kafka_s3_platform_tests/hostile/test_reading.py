"""What Arrow reads for `kafka_s3_platform.read` and Spark's source has limits: whoever writes the index chooses it."""

import io
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from kafka_s3_platform.core.errors import IntegrityError
from kafka_s3_platform.core.formats.envelope.parquet import FORMAT, FORMAT_KEY, EnvelopeWriter
from kafka_s3_platform.core.model.batches import RECORD_SCHEMA
from kafka_s3_platform.core.model.connect import ConnectBatch
from kafka_s3_platform.operate.reading.dataset import CheckedDataset
from kafka_s3_platform.operate.reading.parts import describe_segment
from kafka_s3_platform_tests.hostile.measure import measured
from kafka_s3_platform_tests.hostile.readers import open_for_arrow
from kafka_s3_platform_tests.hostile.test_attacks import MEGABYTES, SECONDS
from kafka_s3_platform_tests.store.rows import SEGMENT

_MANY = 3000
_PLAIN = {"use_dictionary": False}


def _same(size: int, rows: int = _MANY) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array([bytes(size)], pa.binary()))


def _headers(value: pa.Array) -> pa.Array:
    """One header in each record."""
    pair = RECORD_SCHEMA.field("headers").type.value_field
    fields = [pair.type.field("key"), pair.type.field("value").with_type(value.type)]
    pairs = pa.StructArray.from_arrays([pa.array(["k"] * len(value)), value], fields=fields)
    ends = pa.array(range(len(value) + 1), pa.int32())
    return pa.ListArray.from_arrays(ends, pairs, type=pa.list_(pair.with_type(pairs.type)))


def _records(rows: int = _MANY, **columns: pa.Array) -> pa.Table:
    """Records with these columns, and little in the others."""
    little = {"topic": ["t"] * rows, **dict.fromkeys(("key", "value", "headers"), [None] * rows)}
    arrays = [
        columns[column.name] if column.name in columns else pa.array(little.get(column.name, [0] * rows), column.type)
        for column in RECORD_SCHEMA
    ]
    kinds = [column.with_type(array.type) for column, array in zip(RECORD_SCHEMA, arrays, strict=True)]
    return pa.Table.from_arrays(arrays, schema=pa.schema(kinds))


def _object(table: pa.Table, **options: Any) -> bytes:
    """An object with the columns of ours, as another program makes it."""
    sink = io.BytesIO()
    settings = {"compression": "zstd", "store_schema": False, "write_statistics": False, **options}
    with pq.ParquetWriter(sink, table.schema, **settings) as writer:
        writer.write_table(table, row_group_size=len(table))
        writer.add_key_value_metadata({FORMAT_KEY: FORMAT})
    return sink.getvalue()


def _prefixed() -> bytes:
    """Each value begins as the one before it, and so takes a byte."""
    value = pa.array([bytes(10**6)] * 400, pa.binary())
    encoding = {"column_encoding": {"value": "DELTA_BYTE_ARRAY"}, "use_dictionary": False}
    return _object(_records(400, value=value), **encoding)


ATTACKS: Mapping[str, Callable[[], bytes]] = {
    "a value in a dictionary": lambda: _object(_records(value=_same(10**6))),
    "a key in a dictionary": lambda: _object(_records(key=_same(300_000))),
    "the value of a header in a dictionary": lambda: _object(_records(headers=_headers(_same(10**6)))),
    "three columns with a third each": lambda: _object(
        _records(key=_same(25_000), value=_same(25_000), headers=_headers(_same(25_000)))
    ),
    "values with a prefix": _prefixed,
    "a page of 256 MiB": lambda: _object(_records(1, value=pa.array([bytes(2**28)], pa.binary())), **_PLAIN),
    "many records of nothing": lambda: _object(_records(10**6)),
}


@pytest.mark.parametrize("how", ["read", "read.buffered"])
@pytest.mark.parametrize("attack", ATTACKS)
def test_an_object_that_comes_to_too_much_is_refused_before_it_is_decoded(attack: str, how: str) -> None:
    found = measured(how, ATTACKS[attack]())
    assert "object k" in found.fault, found
    assert "max.block.bytes" in found.fault or attack == "many records of nothing"
    assert found.seconds < SECONDS, found
    assert found.megabytes < MEGABYTES + 150, "how much Arrow reads ahead meanwhile differs from run to run"


def test_a_column_that_is_read_alone_is_checked() -> None:
    assert "max.block.bytes" in measured("read.value", ATTACKS["a value in a dictionary"]()).fault


def test_one_row_group_is_decoded_at_a_time() -> None:
    """Records that compress well take a thousandth of their bytes in an object."""
    sink = io.BytesIO()
    writer = EnvelopeWriter(sink)
    for _ in range(80):
        writer.write(ConnectBatch.of(_records(20, value=pa.array([bytes(10**6)] * 20, pa.binary())).to_batches()[0]))
    writer.close({})
    found = measured("read", sink.getvalue())
    assert (found.records, found.fault) == (1600, "")
    assert found.megabytes < 2 * MEGABYTES, found


def test_an_object_that_was_refused_is_refused_when_it_is_read_again() -> None:
    body = ATTACKS["many records of nothing"]()
    opened = open_for_arrow(body)
    for _ in range(2):
        with pytest.raises(IntegrityError, match="a row group of more than 131,072 records"):
            opened.read(8)


def test_records_have_the_kafka_partition_of_their_object_whatever_the_index_says() -> None:
    body = _object(_records(20, partition=pa.array([3] * 20, pa.int32())))
    row = replace(SEGMENT, kafka_partition=7, start_offset=0, end_offset=20)
    file_format = ds.ParquetFileFormat()
    fragment = file_format.make_fragment(open_for_arrow(body), partition_expression=describe_segment(row))
    dataset = CheckedDataset([fragment], RECORD_SCHEMA, file_format)
    assert dataset.to_table(["partition"]).column("partition").to_pylist() == [3] * 20
    assert [*dataset.get_fragments(pc.field("partition") == 3)] == []
