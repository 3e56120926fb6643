"""Parquet of other writers: what their columns say is read as it is, or refused."""

import io
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kafka_s3_platform.connect.avro.values import decode_decimal
from kafka_s3_platform.connect.formats.parquet.format import ParquetReader


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
