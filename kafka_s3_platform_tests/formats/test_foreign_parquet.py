"""Parquet of other writers: what their columns say is read as it is, or refused."""

import io
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kafka_s3_platform.connect.avro.values import decode_decimal
from kafka_s3_platform.connect.formats.parquet.format import ParquetReader
from kafka_s3_platform.core.errors import IntegrityError


def read(values: list[Any], kind: pa.DataType, **options: Any) -> tuple[Any, list[Any]]:
    """Write values as a column, and read it back: the Avro type of its field, and its values."""
    return read_column(pa.array(values, kind), **options)


def read_column(column: pa.Array, **options: Any) -> tuple[Any, list[Any]]:
    body = io.BytesIO()
    pq.write_table(pa.table({"a": column}), body, **options)
    batches = [batch.value for batch in ParquetReader(body, "k").batches()]
    [field] = batches[0].schemas[0].avro["fields"]
    return field["type"][-1], [row["a"] for batch in batches for row in batch.objects]


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        ("12345678901234567890123456789012345.678", pa.decimal128(38, 3)),
        ("-99999999999999999999999999999999999.999", pa.decimal128(38, 3)),
        ("1234567890.123456789012345678901", pa.decimal128(38, 21)),
        ("-1234567890123456789012345678901234567890.678", pa.decimal256(76, 3)),
    ],
)
def test_decimals_keep_all_digits(number: str, kind: pa.DataType) -> None:
    _, [found] = read([Decimal(number)], kind)
    assert decode_decimal(found, kind.scale) == Decimal(number)


def test_old_timestamps_are_read_in_all_years() -> None:
    times = [datetime(9999, 12, 31), datetime(1, 1, 1), datetime(2026, 1, 1, 12, 0, 0, 123_456)]  # noqa: DTZ001
    type_, found = read(times, pa.timestamp("us"), use_deprecated_int96_timestamps=True)
    assert type_ == {"type": "long", "logicalType": "local-timestamp-micros"}
    epoch = datetime(1970, 1, 1)  # noqa: DTZ001
    assert found == [(time - epoch) // (time.resolution) for time in times]


def test_a_key_that_a_map_has_twice_is_refused() -> None:
    assert read([[("a", 2), ("b", 3)]], pa.map_(pa.string(), pa.int32()))[1] == [{"a": 2, "b": 3}]
    with pytest.raises(IntegrityError, match="has the key 'a' more than once"):
        read([[("b", 1)], [("a", 2), ("a", 3)]], pa.map_(pa.string(), pa.int32()))


def test_two_members_of_a_union_are_refused() -> None:
    kind = pa.struct([("member0", pa.int32()), ("member1", pa.string())])
    rows = [{"member0": 1, "member1": None}, None, {"member0": None, "member1": "x"}]
    assert read(rows, kind)[1] == [("int", 1), None, ("string", "x")]
    with pytest.raises(IntegrityError, match="has values in member0 and member1"):
        read([{"member0": 1, "member1": "x"}], kind)


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array(["x", None, "x"]).dictionary_encode(), ("string", ["x", None, "x"])),
        (pa.array([b"0123456789abcdef"], pa.binary(16)).cast(pa.uuid()), ("bytes", [b"0123456789abcdef"])),
        (pa.array([date(1969, 12, 31)], pa.date64()), ({"type": "int", "logicalType": "date"}, [-1])),
    ],
)
def test_columns_as_pandas_and_arrow_write_them_are_read(column: pa.Array, expected: Any) -> None:
    assert read_column(column) == expected
