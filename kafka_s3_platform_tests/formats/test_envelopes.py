"""Every row of the tables of formats and codecs has what writes it, what reads it, and a line in the documents.

The envelope of each format holds records exactly.
"""

import contextlib
import io
import json
import random
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_s3_platform.connect.config.formats_of_connect import FORMATS, WRITTEN_FORMATS
from kafka_s3_platform.core.codecs.table import AVRO_CODECS, CODECS, PARQUET_CODECS, READ_CODECS
from kafka_s3_platform.core.config.formats import Format, find_format
from kafka_s3_platform.core.config.settings import LayoutSettings
from kafka_s3_platform.core.errors import IntegrityError, StoreUnavailableError
from kafka_s3_platform.core.formats import reading
from kafka_s3_platform.core.formats.columns import RecordDigest
from kafka_s3_platform.core.formats.envelope import avro as envelope_avro
from kafka_s3_platform.core.formats.envelope.avro import EnvelopeAvroReader, encode_varints
from kafka_s3_platform.core.formats.envelope.json import EnvelopeJsonReader
from kafka_s3_platform.core.formats.envelope.parquet import EnvelopeReader
from kafka_s3_platform.core.formats.format_io import load_format_io
from kafka_s3_platform.core.model.batches import RECORD_SCHEMA
from kafka_s3_platform.core.model.connect import ConnectBatch, Schema
from kafka_s3_platform_tests.formats.connect import came, decoded, payload, written
from kafka_s3_platform_tests.formats.records import (
    GOLDEN_RECORDS,
    Record,
    batch_of,
    cut,
    describe_as_json,
    records,
    rows_of,
    with_bytes_under_nulls,
)
from kafka_s3_platform_tests.hostile.containers import avro

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


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_is_in_the_documents(codec: str) -> None:
    assert re.search(rf"^\| {codec} \| \w", DOCUMENT, re.MULTILINE)


def test_every_codec_of_a_table_belongs_to_some_format() -> None:
    used = {name for row in WRITTEN_FORMATS.values() for name in row.codecs}
    assert {*AVRO_CODECS, *PARQUET_CODECS} <= used
    assert {*READ_CODECS} | used == {*CODECS}


@pytest.mark.parametrize("codec", PARQUET_CODECS)
def test_parquet_comes_back(codec: str) -> None:
    body = written(LayoutSettings(format="parquet", codec=codec), decoded([{"n": 1}], RECORD), schema=RECORD)
    assert pq.read_table(io.BytesIO(body)).to_pylist() == [{"n": 1}]


def test_of_a_users_own_class_nothing_is_known() -> None:
    row = find_format("my_package.CsvFormat")
    assert (row.is_plugin, row.module.rpartition(".")[2]) == (True, "own_class")
    assert (row.is_envelope, row.needs_schema, row.kinds("gzip"), row.codecs) == (False, False, set(), {})


READERS: dict[str, Callable[[Any, str], Any]] = {
    "envelope.json": EnvelopeJsonReader,
    "envelope.avro": EnvelopeAvroReader,
    "envelope.parquet": EnvelopeReader,
}
LINES_AND_AVRO = ["envelope.json", "envelope.avro"]
ALL_CODECS = [(name, codec) for name in LINES_AND_AVRO for codec in WRITTEN_FORMATS[name].codecs]


def body_of(format_name: str, *batches: pa.RecordBatch, codec: str | None = None) -> bytes:
    own = {"envelope.json": "none", "envelope.avro": "null", "envelope.parquet": "zstd"}
    layout = LayoutSettings(format=format_name, codec=codec or own[format_name])
    empty = payload(pa.array([], pa.binary()), None)
    return written(layout, *(ConnectBatch(batch, empty, empty) for batch in batches))


def batches_of(format_name: str, body: bytes) -> Iterator[pa.RecordBatch]:
    found: Iterator[pa.RecordBatch] = READERS[format_name](io.BytesIO(body), "topics/k").batches()
    return found


def read(format_name: str, body: bytes) -> list[Record]:
    return rows_of(batches_of(format_name, body))


@pytest.mark.parametrize("format_name", READERS)
@settings(deadline=None)
@given(found=records, bounds=st.lists(st.integers(0, 30), max_size=4))
def test_records_come_back_exactly_however_they_were_batched(
    format_name: str, found: list[Record], bounds: list[int]
) -> None:
    whole = batch_of(found)
    body = body_of(format_name, *cut(whole, bounds))
    assert body == body_of(format_name, whole)
    assert read(format_name, body) == rows_of(whole)
    digests = RecordDigest(), RecordDigest()
    digests[0].update(whole)
    for batch in batches_of(format_name, body):
        assert batch.schema.equals(RECORD_SCHEMA)
        digests[1].update(batch)
    assert digests[0].hexdigest() == digests[1].hexdigest()


@pytest.mark.parametrize("format_name", READERS)
@settings(deadline=None)
@given(found=records)
def test_bytes_under_nulls_come_back_as_nulls(format_name: str, found: list[Record]) -> None:
    whole = batch_of(found)
    assert read(format_name, body_of(format_name, with_bytes_under_nulls(whole))) == rows_of(whole)


@settings(deadline=None)
@given(found=records)
def test_records_of_large_blocks_of_avro_come_back_too(found: list[Record]) -> None:
    """Their headers are counted before fastavro decodes them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(envelope_avro, "_LIGHT_BYTES", -1)
        assert read("envelope.avro", body_of("envelope.avro", batch_of(found))) == rows_of(batch_of(found))


def test_headers_of_large_blocks_may_be_counted_in_bytes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a negative count comes the size of its headers, by Avro's specification."""
    monkeypatch.setattr(envelope_avro, "_LIGHT_BYTES", -1)
    record = b"\0\0\2" + b"\1\6\2a\0\0" + b"\2t" + bytes(4)
    body = avro(envelope_avro.ENVELOPE_SCHEMA.encode(), [(1, record)])
    (batch,) = batches_of("envelope.avro", body)
    assert batch.column("headers").to_pylist() == [[{"key": "a", "value": None}]]


@pytest.mark.parametrize(("format_name", "codec"), ALL_CODECS)
def test_every_codec_comes_back(format_name: str, codec: str) -> None:
    whole = batch_of(GOLDEN_RECORDS * 50)
    body = body_of(format_name, whole, codec=codec)
    assert body == body_of(format_name, *cut(whole, [3, 100]), codec=codec)
    assert read(format_name, body) == rows_of(whole)


@pytest.mark.parametrize("format_name", READERS)
def test_no_records_are_an_object_of_none(format_name: str) -> None:
    assert read(format_name, body_of(format_name)) == []


@pytest.mark.parametrize("format_name", LINES_AND_AVRO)
def test_batches_are_bounded(format_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "BATCH_RECORDS", 100)
    body = body_of(format_name, batch_of(GOLDEN_RECORDS * 50))
    assert [batch.num_rows for batch in batches_of(format_name, body)] == [100, 100, 50]


# Others read it


def test_any_json_reader_reads_the_lines() -> None:
    whole = batch_of(GOLDEN_RECORDS)
    body = body_of("envelope.json", whole)
    assert [json.loads(line) for line in body.splitlines()] == [describe_as_json(row) for row in rows_of(whole)]


@settings(deadline=None)
@given(records)
def test_fastavro_reads_the_container(found: list[Record]) -> None:
    # Python has no dates after the year 9999.
    within = [{**record, "timestamp": record["timestamp"] % 10**14} for record in found]
    rows: Sequence[Any] = list(fastavro.reader(io.BytesIO(body_of("envelope.avro", batch_of(within)))))
    times = [{**row, "timestamp": round(row["timestamp"].timestamp() * 1000)} for row in rows]
    assert times == rows_of(batch_of(within))


def test_duckdb_reads_the_lines(tmp_path: Any) -> None:
    path = tmp_path / "e.json.gz"
    path.write_bytes(body_of("envelope.json", batch_of(GOLDEN_RECORDS), codec="gzip"))
    rows = duckdb.read_json(str(path)).project('from_base64(value), "offset"').fetchall()
    assert rows == [(r["value"], 2 * i) for i, r in enumerate(GOLDEN_RECORDS)]


@settings(deadline=None)
@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-200, 200), max_size=20), st.data())
def test_numbers_are_written_as_avro_has_them(numbers: list[int], data: st.DataObject) -> None:
    where = data.draw(st.lists(st.booleans(), min_size=len(numbers), max_size=len(numbers)))
    found = encode_varints(np.array(numbers, np.int64), np.array(where, bool)).to_pylist()
    expected = []
    for number, is_written in zip(numbers, where, strict=True):
        body = io.BytesIO()
        fastavro.schemaless_writer(body, "long", number)
        expected.append(body.getvalue() if is_written else b"")
    assert found == expected


# Damage


@pytest.mark.parametrize(("format_name", "codec"), ALL_CODECS)
def test_an_object_cut_off_is_refused_by_name(format_name: str, codec: str) -> None:
    body = body_of(format_name, batch_of(GOLDEN_RECORDS * 50), codec=codec)
    for end in (1, 100, len(body) // 2, len(body) - 1):
        with pytest.raises(IntegrityError, match="object topics/k"):
            read(format_name, body[:end])


@pytest.mark.parametrize(("format_name", "codec"), ALL_CODECS)
def test_damage_is_refused_or_changes_nothing_but_values(format_name: str, codec: str) -> None:
    found = batch_of([{**record, "value": b"v" * 50} for record in GOLDEN_RECORDS * 20])
    body = body_of(format_name, found, codec=codec)
    for seed in range(60):
        damaged = bytearray(body)
        damaged[random.Random(seed).randrange(len(body))] ^= 1 << random.Random(seed + 1_000).randrange(8)
        with contextlib.suppress(IntegrityError):
            rows = read(format_name, bytes(damaged))
            # Without a checksum in the format (snappy's is not looked at by fastavro) the index's digest is what tells.
            assert codec in {"none", "null", "deflate", "snappy"} or rows == rows_of(found)


LINE: Record = {
    "key": None, "value": None, "headers": None, "topic": "t",
    "partition": 0, "offset": 0, "timestamp": 0, "timestampType": 0,
}  # fmt: skip


def test_a_line_is_a_record() -> None:
    assert read("envelope.json", json.dumps(LINE).encode() + b"\n") == [LINE]


@pytest.mark.parametrize(
    "line",
    [
        "",
        "[]",
        "null",
        '{"key":null}',
        *(
            json.dumps({**LINE, **wrong})
            for wrong in (
                {"key": "not base64!"},
                {"partition": 2**31},
                {"offset": 2**63},
                {"topic": None},
                {"headers": [{"key": "k"}]},
                {"more": 1},
            )
        ),
    ],
)
def test_lines_that_are_no_records_are_refused(line: str) -> None:
    with pytest.raises(IntegrityError, match="object topics/k holds a line that is no record of an envelope"):
        read("envelope.json", line.encode() + b"\n")


def test_avro_of_another_tool_is_refused() -> None:
    other = io.BytesIO()
    fastavro.writer(other, {"type": "record", "name": "R", "fields": []}, [{}])
    with pytest.raises(IntegrityError, match="object topics/k is Avro but not an envelope"):
        read("envelope.avro", other.getvalue())


@pytest.mark.parametrize("format_name", LINES_AND_AVRO)
def test_what_the_source_raises_passes_through(format_name: str) -> None:
    class Failing(io.BytesIO):
        def read(self, _: int | None = -1, /) -> bytes:
            raise StoreUnavailableError("the store went away")

    with pytest.raises(StoreUnavailableError, match="the store went away"):
        list(READERS[format_name](Failing(), "k").batches())
