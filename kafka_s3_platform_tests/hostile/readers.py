"""Every reader of objects, by the name of its format."""

import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

from kafka_s3_platform.connect.config.formats_of_connect import AIVEN_ENVELOPES
from kafka_s3_platform.connect.converters import new_converter
from kafka_s3_platform.connect.formats.aiven import AivenReader
from kafka_s3_platform.connect.formats.avro import AvroReader
from kafka_s3_platform.connect.formats.block_gzip import BlockGzipReader, read_index
from kafka_s3_platform.connect.formats.byte_array import BytesReader
from kafka_s3_platform.connect.formats.json import JsonReader
from kafka_s3_platform.connect.formats.lenses import LensesReader
from kafka_s3_platform.connect.formats.parquet.format import ParquetReader
from kafka_s3_platform.core.config.settings import ConverterSettings, LayoutSettings, RegistrySettings, SourceSettings
from kafka_s3_platform.core.errors import IntegrityError
from kafka_s3_platform.core.formats.envelope.avro import EnvelopeAvroReader
from kafka_s3_platform.core.formats.envelope.json import EnvelopeJsonReader
from kafka_s3_platform.core.formats.envelope.parquet import EnvelopeReader
from kafka_s3_platform.core.formats.format_io import ReadRequest
from kafka_s3_platform.core.formats.reading import BatchReader
from kafka_s3_platform.core.model.batches import RECORD_SCHEMA
from kafka_s3_platform.core.model.limits import DEFAULT_LIMITS
from kafka_s3_platform.core.model.schema import ArchivedSchema, SubjectVersion
from kafka_s3_platform.core.model.segment import StoredObject
from kafka_s3_platform.core.model.times import EPOCH
from kafka_s3_platform.core.store.objects import ObjectFile, ObjectInfo, ObjectStore
from kafka_s3_platform.operate.reading.dataset import ArrowObject, CheckedDataset

_FIELDS = ("key", "value", "offset", "timestamp", "headers")
_SUFFIXES = ("", ".gz", ".bz2", ".zst", ".lz4", ".snappy", ".xz")


class _OneObject(ObjectStore):
    """The store, as far as an object's bytes are read from it."""

    def __init__(self, body: bytes) -> None:
        self._content = body

    def read_range(self, key: str, start: int, end: int, etag: str | None = None) -> bytes:  # noqa: ARG002
        return self._content[start:end]

    def open_stored(self, item: StoredObject) -> ObjectFile:
        return ObjectFile(self, ObjectInfo(item.key, item.size, item.etag, EPOCH, "STANDARD"))


def open_for_arrow(body: bytes) -> ArrowObject:
    return ArrowObject(_OneObject(body), StoredObject("k", len(body), "", ""), DEFAULT_LIMITS)


def read_by_arrow(body: bytes, columns: Sequence[str] | None = None, **options: Any) -> Iterator[pa.RecordBatch]:
    """Read as `kafka_s3_platform.read` and Spark's source do."""
    file_format = ds.ParquetFileFormat()
    fragment = file_format.make_fragment(open_for_arrow(body))
    dataset = CheckedDataset([fragment], RECORD_SCHEMA, file_format)
    return iter(dataset.to_batches(columns=columns, **options))


def _envelope(format_name: str, new_reader: Callable[[ReadRequest], BatchReader]) -> Callable[[bytes], Iterator[Any]]:
    request = ReadRequest(
        source=None,
        key="k",
        layout=LayoutSettings(codec="none"),
        settings=SourceSettings(fields=_FIELDS),
        part="value",
        format_name=format_name,
        codec="",
        topic="myTopic",
        kafka_partition=1,
        is_own=False,
        may_end_open=False,
        any_bytes=False,
        is_wrapped=False,
        limits=DEFAULT_LIMITS,
        ends_open=lambda _: None,
    )
    return lambda body: new_reader(replace(request, source=io.BytesIO(body))).batches()


def _lines(reader: Callable[[Any, str], Any], suffix: str) -> Callable[[bytes], Iterator[Any]]:
    return lambda body: reader(io.BytesIO(body), f"k{suffix}").batches()


def _block_gzip(body: bytes) -> Iterator[Any]:
    """An index, an end of line, and the object that it is of."""
    index, _, blocks = body.partition(b"\n")
    found = read_index(index, "k", len(blocks))
    return BlockGzipReader(lambda start, size: blocks[start : start + size], found, "k").batches()


READERS: Mapping[str, Callable[[bytes], Iterator[Any]]] = {
    "avro": lambda body: AvroReader(io.BytesIO(body), "k").batches(),
    "parquet": lambda body: ParquetReader(io.BytesIO(body), "k").batches(),
    "length": lambda body: BytesReader(io.BytesIO(body), "k", "length").batches(),
    "block_gzip": _block_gzip,
    "envelope.parquet": lambda body: EnvelopeReader(io.BytesIO(body), "k").batches(),
    "envelope.json": lambda body: EnvelopeJsonReader(io.BytesIO(body), "k").batches(),
    "envelope.avro": lambda body: EnvelopeAvroReader(io.BytesIO(body), "k").batches(),
    **{f"json{suffix}": _lines(JsonReader, suffix) for suffix in _SUFFIXES},
    **{f"bytes{suffix}": _lines(BytesReader, suffix) for suffix in _SUFFIXES},
    **{name: _envelope(name, LensesReader) for name in ("lenses.json", "lenses.avro", "lenses.parquet")},
    **{name: _envelope(name, AivenReader) for name in AIVEN_ENVELOPES.values()},
}


def _convert_value(body: bytes) -> Iterator[pa.RecordBatch]:
    """Convert a value by a schema of its own, as a restore does that has the registry's schemas archived."""
    case = json.loads(body)
    url = "http://127.0.0.1:9"
    row = ArchivedSchema(url, 7, case["type"], case["schema"], (SubjectVersion("s", 1, None),), ())
    registry = RegistrySettings(url=url, archived=(row,))
    settings = ConverterSettings.model_validate({"format": case["converter"], "registry": registry})
    value = b"\0\0\0\0\7" + bytes.fromhex(case["value"])
    done = new_converter(settings, "t", is_key=False).convert(pa.array([value], pa.binary()), np.arange(1))
    if done.failures:
        raise IntegrityError(done.failures[0].message)
    yield pa.record_batch({"value": pa.array([str(done.payload.objects[0])])})


CONVERTERS: Mapping[str, Callable[[bytes], Iterator[pa.RecordBatch]]] = {"schema": _convert_value}

BY_ARROW: Mapping[str, Callable[[bytes], Iterator[pa.RecordBatch]]] = {
    "read": read_by_arrow,
    "read.value": lambda body: read_by_arrow(body, ["value"]),
    "read.buffered": lambda body: read_by_arrow(
        body, fragment_scan_options=ds.ParquetFragmentScanOptions(use_buffered_stream=True, pre_buffer=False)
    ),
}
