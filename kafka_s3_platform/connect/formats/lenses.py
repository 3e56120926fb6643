"""Reads the envelopes of Lenses' S3 sink: key, value, headers and metadata of a record, in JSON, Avro or Parquet.

In JSON, keys and values of bytes are base64, and the member `keyIsArray` or `valueIsArray` is then true. In Avro and
Parquet, the schema of an object has no field for a value (or key, or headers) if its records lack it. Headers are a
map. Source: Lenses' stream-reactor, `SchemalessEnvelopeTransformer` and `EnvelopeWithSchemaTransformer`.
"""

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from kafka_s3_platform.connect.formats.avro import AvroFields, decode_column
from kafka_s3_platform.connect.formats.avro_records import build_datum_payload
from kafka_s3_platform.connect.formats.json import build_json_payload
from kafka_s3_platform.connect.formats.sink_lines import (
    UNKNOWN_OFFSET,
    EnvelopeRow,
    build_envelope_batch,
    check_json,
    encode_header_value,
    open_envelope_columns,
    refuse_many_items,
)
from kafka_s3_platform.core.formats.format_io import FormatIO, ReadRequest
from kafka_s3_platform.core.formats.lines import LINE, split_lines
from kafka_s3_platform.core.formats.reading import (
    ReadBatch,
    batch_values,
    build_bytes_payload,
    build_damage_error,
    read_pieces,
)
from kafka_s3_platform.core.model.connect import VALUE_ERRORS, Payload, Schema

_BRANCH_BYTES = 1
"""The number of bytes before a value that name its branch in a union of two types."""
_ABSENT = msgspec.Raw()


class _Metadata(msgspec.Struct, frozen=True, gc=False):
    """A record's place in Kafka, and its timestamp."""

    offset: int = UNKNOWN_OFFSET
    timestamp: int | None = None
    topic: str | None = None
    partition: int | None = None


class _Line(msgspec.Struct, gc=False):
    """A record as JSON. Members with other names are ignored."""

    key: msgspec.Raw = _ABSENT
    value: msgspec.Raw = _ABSENT
    headers: msgspec.Raw = _ABSENT
    metadata: _Metadata = _Metadata()
    keyIsArray: bool = False  # noqa: N815 - Lenses' names
    valueIsArray: bool = False  # noqa: N815


_line = msgspec.json.Decoder(_Line).decode
_header_map = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class LensesReader:
    """Reads an object of JSON lines, Avro or Parquet. Its format is `lenses.` followed by json, avro or parquet.

    If the settings' `fields` include the value, the sink stored values. Then an Avro or Parquet record without a value
    is a tombstone.
    """

    def __init__(self, request: ReadRequest) -> None:
        self._request = request
        self._kind = request.format_name.removeprefix("lenses.")

    def batches(self) -> Iterator[ReadBatch]:
        """Return the records in batches; unreadable ones are `bad`. Raise IntegrityError if the object is damaged."""
        if self._kind == "json":
            return self._read_json_lines()
        return (self._read_columns(batch.value) for batch in open_envelope_columns(self._request, self._kind).batches())

    def _read_json_lines(self) -> Iterator[ReadBatch]:
        """Yield batches of JSON lines. A line that is not an envelope is `bad`."""
        request = self._request
        pieces = read_pieces(request.source, request.key, request.codec, request.limits)
        for lines in batch_values(split_lines(pieces, LINE, request.key, request.limits, open_end=True)):
            rows = list[EnvelopeRow]()
            bad = dict[int, str]()
            for at, line in enumerate(lines):
                try:
                    rows.append(self._parse_line(line))
                except (*VALUE_ERRORS, msgspec.MsgspecError) as err:
                    rows.append(EnvelopeRow())
                    bad[at] = f"is no record in Lenses' envelope: {err}"
            value, key = (_build_json_payload([getattr(row, part) for row in rows], bad) for part in ("value", "key"))
            yield build_envelope_batch(rows, value, key, bad)

    def _parse_line(self, line: bytes) -> EnvelopeRow:
        """Parse one JSON envelope. Raise one of VALUE_ERRORS, or MsgspecError, if the line is not an envelope."""
        check_json(line, self._request.limits)
        record = _line(line)
        if not bytes(record.value):
            raise ValueError("it has no member value")
        headers = self._parse_headers(bytes(record.headers))
        key = _read_json_part(record.key, record.keyIsArray)
        value = _read_json_part(record.value, record.valueIsArray)
        return self._make_row(record.metadata, headers, key, value)

    def _parse_headers(self, text: bytes) -> list[dict[str, Any]] | None:
        """Return the headers in a JSON map, or None if there are none."""
        if text in {b"", b"null", b"{}"}:
            return None
        refuse_many_items("headers", text, b",", self._request.limits)
        return [{"key": name, "value": self._decode_header(bytes(raw))} for name, raw in _header_map(text).items()]

    def _decode_header(self, text: bytes) -> bytes | None:
        """Return the bytes of a header. A text is UTF-8 or decoded from base64, and any other value stays JSON."""
        if text == b"null":
            return None
        if not text.startswith(b'"'):
            return text
        string = msgspec.json.decode(text, type=str)
        if "headers" in self._request.settings.base64:
            return base64.b64decode(string, validate=True)
        return string.encode()

    def _make_row(
        self, metadata: _Metadata, headers: list[dict[str, Any]] | None, key: Any = None, value: Any = None
    ) -> EnvelopeRow:
        """Make a record. Raise ValueError if its metadata contradict the object's name, or hold impossible numbers."""
        origin = metadata.topic, metadata.partition
        named = self._request.topic, self._request.kafka_partition
        if any(mine is not None and mine != other for mine, other in zip(origin, named, strict=True)):
            raise ValueError(f"it is of {origin[0]}-{origin[1]}, but its object's name is of {named[0]}-{named[1]}")
        return EnvelopeRow(key, value, metadata.offset, metadata.timestamp, headers)

    def _read_columns(self, payload: Payload) -> ReadBatch:
        """Split Avro or Parquet records into their parts. Key and value stay encoded, and the rest is decoded."""
        object_key = self._request.key
        fields = AvroFields(payload.schemas[0], self._request.limits)
        schemas = fields.schemas
        if not schemas.keys() & {"key", "value", "headers", "metadata"}:
            raise build_damage_error(object_key, "holds no records in Lenses' envelope")
        if "value" not in schemas and "value" not in self._request.settings.fields:
            raise build_damage_error(
                object_key,
                "has no field `value`: its records had none, or values were not kept. Where they were, say so with"
                " 'store.envelope.fields.value'=true in the PROPERTIES of the KCQL (format.output.fields=value)",
            )
        try:
            columns = fields.split_records(pa.array(payload.raw))
            decoded = {
                name: decode_column(columns[name], schemas[name]) for name in ("headers", "metadata") if name in schemas
            }
            rows = [self._decode_row({name: decoded[name][at] for name in decoded}) for at in range(len(payload))]
        except VALUE_ERRORS as err:
            raise build_damage_error(object_key, f"holds no records in Lenses' envelope: {err}") from err
        value, key = (_decode_avro(columns.get(p), schemas.get(p), len(rows)) for p in ("value", "key"))
        return build_envelope_batch(rows, value, key, {})

    def _decode_row(self, fields: Mapping[str, Any]) -> EnvelopeRow:
        """Make a record of its decoded fields `metadata` and `headers`. Either may be missing."""
        metadata = msgspec.convert(fields.get("metadata") or {}, _Metadata)
        header_map = fields.get("headers") or {}
        headers = [{"key": name, "value": encode_header_value(value)} for name, value in header_map.items()]
        return self._make_row(metadata, headers or None)


def _read_json_part(raw: msgspec.Raw, is_array: bool) -> Any:
    """Return a member's JSON as bytes. If it is an array, return its decoded bytes as a bytearray instead."""
    text = bytes(raw)
    if text in {b"", b"null"}:
        return None
    if is_array:
        return bytearray(base64.b64decode(msgspec.json.decode(text, type=str), validate=True))
    return text


def _build_json_payload(parts: Sequence[Any], bad: dict[int, str]) -> Payload:
    """Build a payload of bytes if any part is bytes, else of JSON. JSON among bytes is `bad`."""
    are_bytes = any(isinstance(part, bytearray) for part in parts)
    if not are_bytes:
        return build_json_payload(parts)
    for at, part in enumerate(parts):
        if part is not None and not isinstance(part, bytearray):
            bad[at] = "is JSON among records of bytes"
    return build_bytes_payload(pa.array([None if part is None else bytes(part) for part in parts], pa.binary()))


def _decode_avro(column: pa.BinaryArray | None, schema: Schema | None, count: int) -> Payload:
    """Return a payload with the schema of the data in Kafka, without the union with null that Lenses adds."""
    if column is None or schema is None:
        return build_bytes_payload(pa.nulls(count, pa.binary()))
    branches = schema.avro
    if isinstance(branches, list) and len(branches) == 2 and "null" in branches:
        definition = next(branch for branch in branches if branch != "null")
        # Arrow's kernel that slices bytes fails for nulls.
        data = [None if one is None else one[_BRANCH_BYTES:] for one in column.to_pylist()]
        return build_datum_payload(pa.array(data, pa.binary()), Schema(json.dumps(definition)))
    return build_datum_payload(column, schema)


FORMAT_IO = FormatIO(new_reader=LensesReader)
