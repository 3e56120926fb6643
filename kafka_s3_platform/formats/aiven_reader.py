"""Reads what Aiven's S3 sink writes around values: key, offset, timestamp and headers, in csv, JSON, Avro or Parquet.

In csv, keys, header keys and header values are base64, the value too unless `format.output.fields.value.encoding` is
`none`; a field that is empty there may have been null or empty: it comes back as null. In Avro and Parquet, headers
are a map, in which two of one name cannot both be. Source: README of Aiven's S3 sink connector, "Data Format".
"""

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import IO, Any

import msgspec
import numpy as np
import pyarrow as pa

from kafka_s3_platform.formats.avro_reader import AvroReader
from kafka_s3_platform.formats.avro_schema import AvroSchema
from kafka_s3_platform.formats.damage import beyond, damaged
from kafka_s3_platform.formats.json_reader import fault_of, json_payload, lines_of
from kafka_s3_platform.formats.lines import LINE
from kafka_s3_platform.formats.parquet_reader import ParquetReader, datum_encoder
from kafka_s3_platform.formats.parts import VALUE_ERRORS
from kafka_s3_platform.formats.reading import (
    BatchReader,
    ReadBatch,
    batched,
    bytes_payload,
    datum_payload,
    plain_pieces,
)
from kafka_s3_platform.model.connect import Payload, Schema
from kafka_s3_platform.model.limits import NO_KEYS, ReadLimits
from kafka_s3_platform.model.record import NO_TIMESTAMP, RECORD_SCHEMA

UNKNOWN_OFFSET = -1
HEADERS = RECORD_SCHEMA.field("headers").type

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_ELEMENT_BYTES = 64
_INT64 = range(-(2**63), 2**63)
Row = Mapping[str, Any]


_ABSENT = msgspec.Raw()


class _Line(msgspec.Struct, gc=False):
    """A record as JSON. What has another name is passed over: names cost memory, and there may be millions."""

    key: msgspec.Raw = _ABSENT
    value: msgspec.Raw = _ABSENT
    offset: msgspec.Raw = _ABSENT
    timestamp: msgspec.Raw = _ABSENT
    headers: msgspec.Raw = _ABSENT


_line = msgspec.json.Decoder(_Line).decode


class AivenReader:
    """Reads an object of `kind` csv, jsonl, json, avro or parquet whose records have `fields`."""

    def __init__(
        self,
        source: IO[bytes],
        key: str,
        kind: str,
        fields: Sequence[str],
        encoding: str,
        codec: str = "none",
        limits: ReadLimits = NO_KEYS,
    ) -> None:
        self._source, self._key, self._kind = source, key, kind
        self._fields, self._is_base64, self._codec = tuple(fields), encoding == "base64", codec
        self._limits = limits

    def batches(self) -> Iterator[ReadBatch]:
        """Its records, those that are none as `bad`. Raises IntegrityError where it is damaged or cut off."""
        if self._kind in {"avro", "parquet"}:
            return self._of_objects()
        return self._of_texts()

    def _of_texts(self) -> Iterator[ReadBatch]:
        parse = self._csv if self._kind == "csv" else self._json_row
        as_payload = _bytes if self._kind == "csv" else json_payload
        for texts in batched(self._texts()):
            rows, bad = [], {}
            for at, text in enumerate(texts):
                try:
                    rows.append(_checked(parse(text or b"")))
                except (*VALUE_ERRORS, msgspec.MsgspecError) as err:
                    rows.append({})
                    bad[at] = f"is no record of {', '.join(self._fields)}: {err}"
            yield _batch(rows, as_payload, bad)

    def _texts(self) -> Iterator[bytes]:
        pieces = plain_pieces(self._source, self._key, self._codec, self._limits)
        if self._kind == "json":
            return self._array(pieces)
        return lines_of(pieces, LINE, self._key, self._limits, open_end=True)

    def _array(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        body, most = bytearray(), self._limits.block_bytes
        for piece in pieces:
            body += piece
            if len(body) > most:
                raise beyond(self._key, f"is an array of more than {most:,} bytes", "block.bytes")
        # No element is taken out before it is known how many there are at most: each takes 64 bytes of its own.
        if body.count(b",") > most // _ELEMENT_BYTES:
            raise beyond(self._key, f"may have more than {most // _ELEMENT_BYTES:,} elements", "block.bytes")
        try:
            found = msgspec.json.decode(body, type=list[msgspec.Raw])
        except (msgspec.MsgspecError, RecursionError) as err:
            raise damaged(self._key, f"is no array of JSON: {err}") from err
        return map(bytes, found)

    def _json_row(self, line: bytes) -> Row:
        if why := fault_of(line, self._limits.depth):
            raise ValueError(f"it {why}")
        found = _line(line)
        row: dict[str, Any] = {"key": _raw(found.key), "value": _raw(found.value)}
        for name in ("offset", "timestamp", "headers"):
            text = bytes(getattr(found, name))
            row[name] = msgspec.json.decode(self._small(name, text, b",")) if text else None
        return {**row, "timestamp": _milliseconds(row["timestamp"])}

    def _small(self, name: str, text: bytes, separator: bytes) -> bytes:
        """The text, if it is of no more items than are read: each of them takes some hundred bytes."""
        if text.count(separator) > self._limits.items:
            raise ValueError(f"its {name} have more than archive.read.max.items={self._limits.items:,} items")
        return text

    def _csv(self, line: bytes) -> Row:
        """A value that is not base64 may hold commas: what stands before it and behind it does not."""
        names, at = self._fields, self._fields.index("value") if "value" in self._fields else len(self._fields)
        before = line.split(b",", at)
        texts = [*before[:at], *(before[at].rsplit(b",", len(names) - at - 1) if at < len(names) else [])]
        if len(texts) != len(names):
            raise ValueError(f"{len(texts)} fields instead of {len(names)}")
        return {name: self._field(name, text) for name, text in zip(names, texts, strict=True)}

    def _field(self, name: str, text: bytes) -> Any:
        if name == "offset":
            return int(text)
        if name == "timestamp":
            return _milliseconds(text.decode() or None)
        if name == "headers":
            return [_csv_header(pair) for pair in self._small(name, text, b";").split(b";") if pair]
        if not text:
            return None
        return _decoded(text) if name == "key" or self._is_base64 else text

    def _of_objects(self) -> Iterator[ReadBatch]:
        if self._kind == "avro":
            reader: BatchReader = AvroReader(self._source, self._key, self._limits)
        else:
            reader = ParquetReader(self._source, self._key, limits=self._limits)
        for found in reader.batches():
            yield self._of_records(found.value)

    def _of_records(self, found: Payload) -> ReadBatch:
        schema = AvroSchema(found.schemas[0].avro)
        try:
            fields = schema.resolved(schema.root)["fields"]
            return _batch([_checked(row) for row in found.objects], None, {}, {f["name"]: f["type"] for f in fields})
        except VALUE_ERRORS as err:
            raise damaged(self._key, f"holds no records of {', '.join(self._fields)}: {err}") from err


def _batch(
    rows: Sequence[Row],
    as_payload: Callable[[Sequence[bytes | None]], Payload] | None,
    bad: Mapping[int, str],
    types: Mapping[str, Any] = {},
) -> ReadBatch:
    def payload(name: str) -> Payload:
        found = [row.get(name) for row in rows]
        if as_payload is not None:
            return as_payload(found)
        schema = Schema(json.dumps(types.get(name, "null")))
        return datum_payload(datum_encoder(schema)(found), schema)

    offsets = [UNKNOWN_OFFSET if row.get("offset") is None else row["offset"] for row in rows]
    times = [NO_TIMESTAMP if row.get("timestamp") is None else row["timestamp"] for row in rows]
    headers = [row.get("headers") for row in rows]
    return ReadBatch(
        payload("value"),
        bad,
        payload("key"),
        pa.array(headers, HEADERS),
        np.array(offsets, np.int64),
        np.array(times, np.int64),
    )


def _checked(row: Row) -> Row:
    """The row with what columns of numbers and headers can hold. Raises what values do that are something else."""
    numbers = {name: _int64(name, row.get(name)) for name in ("offset", "timestamp")}
    return {**row, **numbers, "headers": _headers(row.get("headers"))}


def _int64(name: str, value: Any) -> int | None:
    if value is not None and (type(value) is not int or value not in _INT64):
        raise ValueError(f"its {name} is {value!r:.40}")
    return value


def _bytes(values: Sequence[bytes | None]) -> Payload:
    return bytes_payload(pa.array(values, pa.binary()))


def _raw(text: msgspec.Raw) -> bytes | None:
    return None if bytes(text) in {b"", b"null"} else bytes(text)


def _milliseconds(value: Any) -> int | None:
    """Of ISO 8601, or of epoch milliseconds."""
    if value is None or isinstance(value, int):
        return value
    moment = msgspec.convert(value, datetime)
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def _headers(found: Any) -> list[dict[str, Any]] | None:
    if not found:
        return None
    pairs = found.items() if isinstance(found, Mapping) else ((h["key"], h["value"]) for h in found)
    return [{"key": _name(key), "value": _header_bytes(value)} for key, value in pairs]


def _name(key: Any) -> str:
    if not isinstance(key, str):
        raise TypeError(f"the name of a header is {key!r:.40}")
    return key


def _header_bytes(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else msgspec.json.encode(value)


def _csv_header(pair: bytes) -> Mapping[str, Any]:
    key, _, value = pair.partition(b":")
    return {"key": _decoded(key).decode(), "value": _decoded(value) if value else None}


def _decoded(text: bytes) -> bytes:
    return base64.b64decode(text, validate=True)
