"""The envelope holds records exactly, in bounded memory, in bytes that depend on nothing but them."""

import io
import random
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_s3_platform.core.errors import IntegrityError, StoreUnavailableError
from kafka_s3_platform.core.formats.envelope import parquet as envelope
from kafka_s3_platform.core.formats.envelope.parquet import EnvelopeReader, EnvelopeWriter
from kafka_s3_platform.core.formats.parquet import write
from kafka_s3_platform.core.model.connect import ConnectBatch
from kafka_s3_platform.core.model.offsets import OffsetRange
from kafka_s3_platform_tests.formats.records import (
    GOLDEN_RECORDS,
    Record,
    batch_of,
    cut,
    rows_of,
)

GOLDEN = Path(__file__).parents[1] / "golden" / "envelope-1.parquet"


@pytest.fixture
def small_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write, "ROW_GROUP_RECORDS", 100)
    monkeypatch.setattr(envelope, "BATCH_RECORDS", 30)


def written(*batches: pa.RecordBatch, **metadata: str) -> bytes:
    sink = io.BytesIO()
    writer = EnvelopeWriter(sink)
    for batch in batches:
        writer.write(ConnectBatch.of(batch))
    writer.close(metadata)
    return sink.getvalue()


def read(body: bytes, **windows: Any) -> list[dict[str, Any]]:
    return rows_of(EnvelopeReader(io.BytesIO(body), "key").batches(**windows))


def row_groups(body: bytes) -> list[int]:
    found = pq.ParquetFile(io.BytesIO(body)).metadata
    return [found.row_group(i).num_rows for i in range(found.num_row_groups)]


def test_metadata_is_kept_in_the_footer() -> None:
    reader = EnvelopeReader(io.BytesIO(written(batch_of(GOLDEN_RECORDS), digest="00ff", topic="ü")), "key")
    assert reader.metadata == {"kafka-s3-platform.format": "envelope/1", "digest": "00ff", "topic": "ü"}
    assert reader.num_records == len(GOLDEN_RECORDS)


def test_row_groups_end_at_the_same_record_however_batches_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write, "ROW_GROUP_BYTES", 1_000)
    monkeypatch.setattr(write, "ROW_GROUP_RECORDS", 100)
    sizes = [*[9] * 250, *[400] * 7, 5_000, 1, *[99] * 20]
    whole = batch_of([{"key": None, "value": b"x" * n, "headers": None, "timestamp": 0} for n in sizes])
    body = written(whole)
    assert row_groups(body) == [100, 100, 52, 3, 3, 12, 9]
    for seed in range(20):
        bounds = random.Random(seed).choices(range(len(sizes)), k=12)
        assert written(*cut(whole, bounds)) == body
    assert written(*cut(whole, range(len(sizes)))) == body


def test_memory_held_is_that_of_one_row_group() -> None:
    writer, sink = EnvelopeWriter(io.BytesIO()), 0
    for i in range(100):
        value = random.Random(i).randbytes(1_048_576)
        writer.write(ConnectBatch.of(batch_of([{"key": None, "value": value, "headers": None, "timestamp": 0}], 2 * i)))
        sink = max(sink, writer.buffered_bytes)
    writer.close({})
    assert write.ROW_GROUP_BYTES - 1_048_576 <= sink < write.ROW_GROUP_BYTES


def test_a_few_records_of_a_large_batch_do_not_keep_it_in_memory() -> None:
    writer, before = EnvelopeWriter(io.BytesIO()), pa.total_allocated_bytes()
    for i in range(30):
        value = b"x" * 1_000_000
        many = batch_of([{"key": None, "value": value, "headers": None, "timestamp": 0}] * 10, 100 * i)
        writer.write(ConnectBatch.of(many.slice(5, 1)))
        del many
    assert pa.total_allocated_bytes() - before < 60_000_000
    writer.close({})


@pytest.mark.usefixtures("small_row_groups")
@given(
    offsets=st.none() | st.tuples(st.integers(0, 1_100), st.integers(1, 600)),
    times=st.none() | st.tuples(st.integers(-5, 3_000), st.integers(0, 3_000)),
)
def test_a_window_gives_the_records_inside_it(offsets: tuple[int, int] | None, times: tuple[int, int] | None) -> None:
    spread = random.Random(1)
    found: list[Record] = [
        {"key": b"%d" % i, "value": None, "headers": None, "timestamp": 5 * i + spread.randint(-300, 300)}
        for i in range(500)
    ]
    whole = batch_of(found)
    window = OffsetRange(offsets[0], sum(offsets)) if offsets else None
    expected = [
        (row, r)
        for row, r in zip(rows_of(whole), found, strict=True)
        if (window is None or row["offset"] in window) and (times is None or times[0] <= r["timestamp"] < times[1])
    ]
    assert read(written(whole), offsets=window, timestamps=times) == [row for row, _ in expected]


@pytest.mark.usefixtures("small_row_groups")
def test_row_groups_outside_the_window_are_not_read() -> None:
    body = written(
        batch_of([{"key": None, "value": b"x", "headers": None, "timestamp": 1_000 * i} for i in range(1_000)])
    )
    offset_of_group_2 = OffsetRange(400, 402)
    damaged = bytearray(body)
    found = pq.ParquetFile(io.BytesIO(body)).metadata
    for group in (0, 1, 3, 9):
        start = found.row_group(group).column(1).data_page_offset
        damaged[start : start + 10] = b"\xff" * 10
    assert len(read(bytes(damaged), offsets=offset_of_group_2)) == 1
    assert len(read(bytes(damaged), timestamps=(200_000, 300_000))) == 100
    with pytest.raises(IntegrityError):
        read(bytes(damaged), timestamps=(199_000, 300_000))


# Damage


BODY = written(batch_of(GOLDEN_RECORDS * 50))


@pytest.mark.parametrize("length", [0, 3, 8, 100, len(BODY) // 2, len(BODY) - 1])
def test_a_file_cut_off_is_refused_by_name(length: int) -> None:
    with pytest.raises(IntegrityError, match=r"object topics/k cannot be read as Parquet: .* damaged or cut off"):
        EnvelopeReader(io.BytesIO(BODY[:length]), "topics/k")


def test_damaged_values_are_never_returned() -> None:
    values = pq.ParquetFile(io.BytesIO(BODY)).metadata.row_group(0).column(1)
    end = values.data_page_offset + values.total_compressed_size
    for position in (end - 1, end - 7):
        damaged = bytearray(BODY)
        damaged[position] ^= 1
        with pytest.raises(IntegrityError, match=r"CRC checksum verification failed"):
            read(bytes(damaged))


def test_parquet_of_another_tool_is_refused() -> None:
    other = io.BytesIO()
    pq.write_table(pa.table({"n": [1]}), other)
    with pytest.raises(IntegrityError, match=r"object topics/k is Parquet but not an envelope/1: columns \['n'\]"):
        EnvelopeReader(other, "topics/k")


def test_what_the_source_raises_passes_through() -> None:
    class Failing(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            if self.tell() < 100:
                raise StoreUnavailableError("the store went away")
            return super().read(size)

    with pytest.raises(StoreUnavailableError, match="the store went away"):
        list(EnvelopeReader(Failing(BODY), "topics/k").batches())


# Others read it, for ever


def test_the_golden_file_reads_as_the_day_it_was_written() -> None:
    body = GOLDEN.read_bytes()
    assert read(body) == rows_of(batch_of(GOLDEN_RECORDS))
    assert EnvelopeReader(io.BytesIO(body), "golden").metadata["record-count"] == "5"


def test_duckdb_reads_the_golden_file() -> None:
    columns = 'key, value, headers, topic, partition, "offset", epoch_ms(timestamp), timestampType'
    rows = duckdb.read_parquet(str(GOLDEN)).project(columns).fetchall()
    expected = [
        (r["key"], r["value"], r["headers"], "t", 3, 2 * i, r["timestamp"], 0) for i, r in enumerate(GOLDEN_RECORDS)
    ]
    assert rows == expected


def test_columns_are_encoded_as_measured() -> None:
    whole = batch_of([{"key": b"k", "value": b"v", "headers": None, "timestamp": i} for i in np.arange(1_000).tolist()])
    found = pq.ParquetFile(io.BytesIO(written(whole))).metadata.row_group(0)
    columns = {found.column(i).path_in_schema: found.column(i) for i in range(found.num_columns)}
    assert {c.compression for c in columns.values()} == {"ZSTD"}
    assert {n for n, c in columns.items() if "DELTA_BINARY_PACKED" in c.encodings} == {"offset", "timestamp"}
    assert {n for n, c in columns.items() if c.is_stats_set} == {"offset", "timestamp"}
