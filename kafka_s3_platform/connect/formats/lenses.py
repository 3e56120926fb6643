"""Reads the envelopes of Lenses' S3 sink: key, value, headers and metadata of a record, in JSON, Avro or Parquet.

In JSON, keys and values of bytes are base64, and the member `keyIsArray` or `valueIsArray` is true then. In Avro and
Parquet, the schema of an object has no field for a value (a key, headers) if its records lack it. Headers are a map.
Source: Lenses' stream-reactor, `SchemalessEnvelopeTransformer` and `EnvelopeWithSchemaTransformer`.
"""

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any

import msgspec
import numpy as np
import pyarrow as pa

from kafka_s3_platform.connect.formats.avro import AvroFields, AvroReader, decode_column
from kafka_s3_platform.connect.formats.avro_records import build_datum_payload
from kafka_s3_platform.connect.formats.json import build_json_payload, find_fault
from kafka_s3_platform.connect.formats.parquet.format import ParquetReader
from kafka_s3_platform.connect.formats.sink_lines import encode_header_value
from kafka_s3_platform.core.config.settings import SourceSettings
from kafka_s3_platform.core.formats.format_io import FormatIO, ReadRequest
from kafka_s3_platform.core.formats.lines import LINE, split_lines
from kafka_s3_platform.core.formats.reading import (
    BatchReader,
    ReadBatch,
    batch_values,
    build_bytes_payload,
    build_damage_error,
    read_pieces,
)
from kafka_s3_platform.core.model.batches import NO_TIMESTAMP, RECORD_SCHEMA
from kafka_s3_platform.core.model.connect import VALUE_ERRORS, Payload, Schema
from kafka_s3_platform.core.model.limits import NO_KEYS, ReadLimits

_HEADERS = RECORD_SCHEMA.field("headers").type
_UNKNOWN_OFFSET = -1
_BRANCH_BYTES = 1
"""The bytes before a value that name its branch in a union of two."""
_ABSENT = msgspec.Raw()


class _Metadata(msgspec.Struct, frozen=True, gc=False):
    """A record's place in Kafka, and its timestamp."""

    offset: int = _UNKNOWN_OFFSET
    timestamp: int | None = None
    topic: str | None = None
    partition: int | None = None


class _Line(msgspec.Struct, gc=False):
    """A record as JSON. Members of other names are ignored."""

    key: msgspec.Raw = _ABSENT
    value: msgspec.Raw = _ABSENT
    headers: msgspec.Raw = _ABSENT
    metadata: _Metadata = _Metadata()
    keyIsArray: bool = False  # noqa: N815 - Lenses' names
    valueIsArray: bool = False  # noqa: N815


_line = msgspec.json.Decoder(_Line).decode
_header_map = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


@dataclass(frozen=True, slots=True)
class NamedPlace:
    """The topic and kafka partition in the name of an object."""

    topic: str
    kafka_partition: int


@dataclass(frozen=True, slots=True)
class _Row:
    key: Any = None
    value: Any = None
    headers: list[dict[str, Any]] | None = None
    metadata: _Metadata = field(default_factory=_Metadata)


class LensesReader:
    """Reads an object of `kind` json, avro or parquet. Its records were at `place`.

    If `settings.fields` names the value, the sink kept values. Then a record of Avro or Parquet without a value is a
    tombstone.
    """

    def __init__(
        self,
        source: IO[bytes],
        key: str,
        kind: str,
        place: NamedPlace,
        settings: SourceSettings,
        codec: str = "",
        limits: ReadLimits = NO_KEYS,
    ) -> None:
        self._source = source
        self._key = key
        self._kind = kind
        self._place = place
        self._has_values = "value" in settings.fields
        self._are_base64 = "headers" in settings.base64
        self._codec = codec
        self._limits = limits

    def batches(self) -> Iterator[ReadBatch]:
        """Return the records in batches; unreadable ones are `bad`. IntegrityError if the object is damaged."""
        if self._kind == "json":
            return self._of_lines()
        return self._of_objects()

    def _of_lines(self) -> Iterator[ReadBatch]:
        """Yield batches of JSON lines. A line that is no envelope is `bad`."""
        pieces = read_pieces(self._source, self._key, self._codec, self._limits)
        for lines in batch_values(split_lines(pieces, LINE, self._key, self._limits, open_end=True)):
            rows = list[_Row]()
            bad = dict[int, str]()
            for at, line in enumerate(lines):
                try:
                    rows.append(self._json_row(line))
                except (*VALUE_ERRORS, msgspec.MsgspecError) as err:
                    rows.append(_Row())
                    bad[at] = f"is no record in Lenses' envelope: {err}"
            value, key = (_build_json_payload([getattr(row, part) for row in rows], bad) for part in ("value", "key"))
            yield _build_batch(rows, value, key, bad)

    def _json_row(self, line: bytes) -> _Row:
        """Read one line. Raises one of VALUE_ERRORS or MsgspecError if it is no envelope."""
        if why := find_fault(line, self._limits.depth):
            raise ValueError(f"it {why}")
        record = _line(line)
        if not bytes(record.value):
            raise ValueError("it has no member value")
        headers = self._headers(bytes(record.headers))
        key = _read_json_part(record.key, record.keyIsArray)
        value = _read_json_part(record.value, record.valueIsArray)
        return _Row(key, value, headers, self._checked(record.metadata))

    def _headers(self, text: bytes) -> list[dict[str, Any]] | None:
        if text in {b"", b"null", b"{}"}:
            return None
        if text.count(b",") > self._limits.items:
            raise ValueError(f"its headers have more than archive.read.max.items={self._limits.items:,} items")
        return [{"key": name, "value": self._header(bytes(raw))} for name, raw in _header_map(text).items()]

    def _header(self, text: bytes) -> bytes | None:
        """Return the bytes of a header: a text as UTF-8 or decoded from base64, and any other value as JSON."""
        if text == b"null":
            return None
        if not text.startswith(b'"'):
            return text
        string = msgspec.json.decode(text, type=str)
        if self._are_base64:
            return base64.b64decode(string, validate=True)
        return string.encode()

    def _checked(self, metadata: _Metadata) -> _Metadata:
        """Return the metadata, unless they contradict the object's name or hold numbers that Kafka cannot have."""
        origin = metadata.topic, metadata.partition
        place = self._place.topic, self._place.kafka_partition
        if any(mine is not None and mine != other for mine, other in zip(origin, place, strict=True)):
            raise ValueError(f"it is of {origin[0]}-{origin[1]}, but its object's name is of {place[0]}-{place[1]}")
        for number in (metadata.offset, metadata.timestamp or 0):
            if not -(2**63) <= number < 2**63:
                raise ValueError(f"{number!r:.40} is no offset or timestamp")
        return metadata

    def _of_objects(self) -> Iterator[ReadBatch]:
        if self._kind == "avro":
            reader: BatchReader = AvroReader(self._source, self._key, self._limits)
        else:
            reader = ParquetReader(self._source, self._key, limits=self._limits)
        for batch in reader.batches():
            yield self._of_records(batch.value)

    def _of_records(self, payload: Payload) -> ReadBatch:
        """Take the records of Avro or Parquet apart: key and value keep their data, the rest is decoded."""
        fields = AvroFields(payload.schemas[0], self._limits)
        schemas = fields.schemas
        if not schemas.keys() & {"key", "value", "headers", "metadata"}:
            raise build_damage_error(self._key, "holds no records in Lenses' envelope")
        if "value" not in schemas and not self._has_values:
            raise build_damage_error(
                self._key,
                "has no field `value`: its records had none, or values were not kept. Where they were, say so with"
                " 'store.envelope.fields.value'=true in the PROPERTIES of the KCQL (format.output.fields=value)",
            )
        try:
            columns = fields.columns(pa.array(payload.raw))
            around = {
                name: decode_column(columns[name], schemas[name]) for name in ("headers", "metadata") if name in schemas
            }
            rows = [self._row({name: around[name][at] for name in around}) for at in range(len(payload))]
        except VALUE_ERRORS as err:
            raise build_damage_error(self._key, f"holds no records in Lenses' envelope: {err}") from err
        value, key = (_decode_avro(columns.get(p), schemas.get(p), len(rows)) for p in ("value", "key"))
        return _build_batch(rows, value, key, {})

    def _row(self, row: Mapping[str, Any]) -> _Row:
        metadata = msgspec.convert(row.get("metadata") or {}, _Metadata)
        header_map = row.get("headers") or {}
        headers = [{"key": name, "value": encode_header_value(value)} for name, value in header_map.items()]
        return _Row(None, None, headers or None, self._checked(metadata))


def _read_json_part(raw: msgspec.Raw, is_array: bool) -> Any:
    """Return the JSON of a member as bytes, or its decoded bytes as a bytearray, so the two differ."""
    text = bytes(raw)
    if text in {b"", b"null"}:
        return None
    if is_array:
        return bytearray(base64.b64decode(msgspec.json.decode(text, type=str), validate=True))
    return text


def _build_json_payload(parts: Sequence[Any], bad: dict[int, str]) -> Payload:
    """Build a payload of bytes, or of JSON if there are no bytes. JSON among bytes is `bad`."""
    are_bytes = any(isinstance(part, bytearray) for part in parts)
    if not are_bytes:
        return build_json_payload(parts)
    for at, part in enumerate(parts):
        if part is not None and not isinstance(part, bytearray):
            bad[at] = "is JSON among records of bytes"
    return build_bytes_payload(pa.array([None if part is None else bytes(part) for part in parts], pa.binary()))


def _decode_avro(column: pa.BinaryArray | None, schema: Schema | None, count: int) -> Payload:
    """Return a payload of the schema of the data in Kafka. Lenses makes each schema a union with null."""
    if column is None or schema is None:
        return build_bytes_payload(pa.nulls(count, pa.binary()))
    branches = schema.avro
    if isinstance(branches, list) and len(branches) == 2 and "null" in branches:
        definition = next(branch for branch in branches if branch != "null")
        # Arrow's kernel that slices bytes fails for nulls.
        data = [None if one is None else one[_BRANCH_BYTES:] for one in column.to_pylist()]
        return build_datum_payload(pa.array(data, pa.binary()), Schema(json.dumps(definition)))
    return build_datum_payload(column, schema)


def _build_batch(rows: Sequence[_Row], value: Payload, key: Payload, bad: Mapping[int, str]) -> ReadBatch:
    times = [NO_TIMESTAMP if row.metadata.timestamp is None else row.metadata.timestamp for row in rows]
    return ReadBatch(
        value,
        bad,
        key,
        pa.array([row.headers for row in rows], _HEADERS),
        np.array([row.metadata.offset for row in rows], np.int64),
        np.array(times, np.int64),
    )


def _new_reader(request: ReadRequest) -> LensesReader:
    place = NamedPlace(request.topic, request.kafka_partition)
    kind = request.format_name.removeprefix("lenses.")
    return LensesReader(request.source, request.key, kind, place, request.settings, request.codec, request.limits)


FORMAT_IO = FormatIO(new_reader=_new_reader)
