"""Reads the records of Aiven's S3 sink: value, key, offset, timestamp, headers in csv, JSON, Avro or Parquet.

In csv, keys, header keys and header values are base64, and so is the value unless
`format.output.fields.value.encoding` is `none`; timestamps are epoch ms; an empty key or value may have been null or
empty. In JSON, timestamps are ISO 8601, and bytes are base64. In Avro and Parquet, headers are a map: no two of a
record have one name. Each record has exactly the fields of `format.output.fields`. Source: the writers of Aiven's
cloud-storage-connectors-for-apache-kafka, `commons`, package `output`.
"""

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import IO, Any

import msgspec
import numpy as np
import pyarrow as pa

from kafka_s3_platform.connect.avro.json_values import read_number
from kafka_s3_platform.connect.formats.avro import AvroFields, AvroReader, decode_column
from kafka_s3_platform.connect.formats.avro_records import build_datum_payload
from kafka_s3_platform.connect.formats.field_reader import convert_to_ms, find_time_unit
from kafka_s3_platform.connect.formats.json import build_json_payload, find_fault
from kafka_s3_platform.connect.formats.parquet.format import ParquetReader
from kafka_s3_platform.connect.formats.sink_lines import decode_text_bytes, encode_header_value
from kafka_s3_platform.core.config.formats import find_format
from kafka_s3_platform.core.config.settings import SourceSettings
from kafka_s3_platform.core.errors import IntegrityError
from kafka_s3_platform.core.formats.format_io import FormatIO, ReadRequest
from kafka_s3_platform.core.formats.lines import LINE, split_lines
from kafka_s3_platform.core.formats.reading import (
    BatchReader,
    ReadBatch,
    batch_values,
    build_bytes_payload,
    build_damage_error,
    build_limit_error,
    read_pieces,
)
from kafka_s3_platform.core.model.batches import NO_TIMESTAMP, RECORD_SCHEMA
from kafka_s3_platform.core.model.connect import VALUE_ERRORS, Payload, Schema
from kafka_s3_platform.core.model.limits import NO_KEYS, ReadLimits

UNKNOWN_OFFSET = -1
HEADERS = RECORD_SCHEMA.field("headers").type

_decode = msgspec.json.Decoder(float_hook=read_number).decode

# What msgspec takes for an element of an array, besides its bytes.
_ELEMENT_BYTES = 64
_INT64 = range(-(2**63), 2**63)
_HINT = "set format.output.fields and format.output.envelope as the sink had them"
_BARE_RECORD = "connector_records"
AivenRow = Mapping[str, Any]


_ABSENT = msgspec.Raw()


@lru_cache
def _new_line_decoder(names: tuple[str, ...], takes_others: bool) -> msgspec.json.Decoder[Any]:
    """Return a decoder of records with these members. It makes no objects of others: there may be millions."""
    members = {f"f{at}": name for at, name in enumerate(names)}
    fields = [(member, msgspec.Raw, _ABSENT) for member in members]
    line = msgspec.defstruct("Line", fields, rename=members, forbid_unknown_fields=not takes_others, gc=False)
    return msgspec.json.Decoder(line)


class AivenReader:
    """Reads an object of `kind` csv, jsonl, json, avro or parquet. `settings` describe how the sink wrote it."""

    def __init__(
        self,
        source: IO[bytes],
        key: str,
        kind: str,
        settings: SourceSettings,
        codec: str = "none",
        limits: ReadLimits = NO_KEYS,
    ) -> None:
        self._source = source
        self._key = key
        self._kind = kind
        self._codec = codec
        self._settings = settings
        self._limits = limits
        self._fields = settings.fields or ("value",)
        self._is_bare = bool(settings.bare) and kind != "csv"
        paths = {"offset": settings.offset_field, "timestamp": settings.timestamp_field}
        self._paths = {name: path.split(".") for name, path in paths.items() if path}
        plain_fields = (name for name in self._fields if name not in self._paths)
        self._members = tuple(dict.fromkeys([*plain_fields, *(path[0] for path in self._paths.values())]))

    def batches(self) -> Iterator[ReadBatch]:
        """Return the records in batches; unreadable ones are `bad`. IntegrityError if the object is damaged."""
        if self._kind in {"avro", "parquet"}:
            return self._of_objects()
        return self._of_texts()

    def _of_texts(self) -> Iterator[ReadBatch]:
        """Yield batches of csv or JSON. A text that is no record is `bad`."""
        parse = self._csv if self._kind == "csv" else self._bare_row if self._is_bare else self._json_row
        for texts in batch_values(self._texts()):
            rows = []
            bad = {}
            for at, text in enumerate(texts):
                try:
                    rows.append(_check_row(parse(text or b"")))
                except (*VALUE_ERRORS, msgspec.MsgspecError) as err:
                    rows.append({})
                    bad[at] = f"is no record of {', '.join(self._fields)}: {err}"
            yield _build_batch(rows, self._payload_of(rows), bad)

    def _payload_of(self, rows: Sequence[AivenRow]) -> Callable[[str], Payload]:
        """Return a function from the name of a field, key or value, to its payload in rows of texts."""

        def payload(name: str) -> Payload:
            values = [row.get(name) for row in rows]
            is_bytes = self._kind == "csv" or name in self._settings.base64
            if is_bytes:
                return build_bytes_payload(pa.array(values, pa.binary()))
            return build_json_payload(values)

        return payload

    def _texts(self) -> Iterator[bytes]:
        """Yield the text of each record: a line, or an element of an array."""
        pieces = read_pieces(self._source, self._key, self._codec, self._limits)
        if self._kind == "json":
            return self._array(pieces)
        if self._kind == "csv" and len(self._fields) == 1:
            # Line breaks separate records and do not end them. So an empty text after the last one is a record too.
            pieces = chain(pieces, [LINE])
        return split_lines(pieces, LINE, self._key, self._limits, open_end=True)

    def _array(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """Return the elements of one array of JSON, which is read as a whole, within the limits."""
        body = bytearray()
        most = self._limits.block_bytes
        for piece in pieces:
            body += piece
            if len(body) > most:
                raise build_limit_error(self._key, f"is an array of more than {most:,} bytes", "block.bytes")
        # Commas are counted before any element is decoded: each element takes memory of its own.
        if body.count(b",") > most // _ELEMENT_BYTES:
            raise build_limit_error(self._key, f"may have more than {most // _ELEMENT_BYTES:,} elements", "block.bytes")
        try:
            elements = msgspec.json.decode(body, type=list[msgspec.Raw])
        except (msgspec.MsgspecError, RecursionError) as err:
            raise build_damage_error(self._key, f"is no array of JSON: {err}") from err
        return map(bytes, elements)

    def _bare_row(self, line: bytes) -> AivenRow:
        if why := find_fault(line, self._limits.depth):
            raise ValueError(f"it {why}")
        return {"value": self._part("value", line)}

    def _json_row(self, line: bytes) -> AivenRow:
        """Read a record of JSON with exactly the fields that the connector's file names."""
        if why := find_fault(line, self._limits.depth):
            raise ValueError(f"it {why}")
        try:
            record = _new_line_decoder(self._members, bool(self._paths)).decode(line)
        except msgspec.ValidationError as err:
            raise ValueError(f"{err}; {_HINT}") from err
        texts = {name: bytes(getattr(record, f"f{at}")) for at, name in enumerate(self._members)}
        if missing := [name for name, text in texts.items() if not text]:
            raise ValueError(f"it has no {', '.join(missing)}; {_HINT}")
        row: dict[str, Any] = {name: self._part(name, texts[name]) for name in ("key", "value") if name in texts}
        for name in ("offset", "timestamp", "headers"):
            root = self._paths[name][0] if name in self._paths else name
            if root in texts:
                row[name] = self._at(name, _decode(self._small(name, texts[root], b",")))
        return {**row, "timestamp": convert_to_ms(row.get("timestamp")), "headers": self._headers(row.get("headers"))}

    def _part(self, name: str, text: bytes) -> bytes | None:
        if text == b"null":
            return None
        if name in self._settings.base64:
            return decode_text_bytes(text)
        return text

    def _at(self, name: str, value: Any) -> Any:
        """Follow a field's path from `value`, the first step's value, to its end."""
        for step in self._paths.get(name, ())[1:]:
            if not isinstance(value, Mapping) or step not in value:
                raise ValueError(f"it has no {'.'.join(self._paths[name])}, which archive.source.{name}.field names")
            value = value[step]
        return value

    def _headers(self, headers: Any) -> Any:
        """Return headers of JSON. If their values were bytes, these are base64 and are decoded."""
        if not headers or "headers" not in self._settings.base64:
            return headers
        pairs = headers.items() if isinstance(headers, Mapping) else ((h["key"], h["value"]) for h in headers)
        return [
            {"key": key, "value": None if value is None else _decode_base64(value.encode())} for key, value in pairs
        ]

    def _small(self, name: str, text: bytes, separator: bytes) -> bytes:
        """Return the text. Raise ValueError if it has more items than the limit: each takes some hundred bytes."""
        if text.count(separator) > self._limits.items:
            raise ValueError(f"its {name} have more than archive.read.max.items={self._limits.items:,} items")
        return text

    def _csv(self, line: bytes) -> AivenRow:
        """Read a line. A value that is not base64 may hold commas. The fields before and after it hold none."""
        names = self._fields
        at = self._fields.index("value") if "value" in self._fields else len(self._fields)
        before = line.split(b",", at)
        behind = [field for rest in before[at:] for field in rest.rsplit(b",", len(names) - at - 1)]
        texts = [*before[:at], *behind] if at < len(names) else before
        if len(texts) != len(names):
            raise ValueError(f"{len(texts)} fields instead of {len(names)}")
        return {name: self._field(name, text) for name, text in zip(names, texts, strict=True)}

    def _field(self, name: str, text: bytes) -> Any:
        """Read the text of one field of csv."""
        if name == "offset":
            return int(text)
        if name == "timestamp":
            return convert_to_ms(text.decode() or None)
        if name == "headers":
            return [_read_csv_header(pair) for pair in self._small(name, text, b";").split(b";") if pair]
        if not text:
            return self._empty(name)
        if name == "key" or self._settings.value_encoding == "base64":
            return _decode_base64(text)
        return text

    def _empty(self, name: str) -> bytes | None:
        """Read an empty key or value by `archive.source.csv.empty`.

        Raises ValueError if the setting refuses it, or an empty value has none: a tombstone would delete the key.
        """
        meant = self._settings.csv_empty
        if meant == "refuse" or (meant is None and name == "value"):
            raise ValueError(
                f"its {name} is empty, and may have been null or empty: set archive.source.csv.empty=null or =empty"
            )
        return b"" if meant == "empty" else None

    def _of_objects(self) -> Iterator[ReadBatch]:
        if self._kind == "avro":
            reader: BatchReader = AvroReader(self._source, self._key, self._limits)
        else:
            reader = ParquetReader(self._source, self._key, limits=self._limits)
        for batch in reader.batches():
            yield self._of_records(batch)

    def _of_records(self, batch: ReadBatch) -> ReadBatch:
        """Take the records of Avro or Parquet apart: key and value keep their data, the rest is decoded."""
        fields = AvroFields(batch.value.schemas[0], self._limits)
        if self._is_bare and not (list(fields.schemas) == ["value"] and fields.name == _BARE_RECORD):
            return batch
        self._check_fields(fields.schemas)
        try:
            columns = fields.columns(pa.array(batch.value.raw))
            around = {name: decode_column(columns[name], fields.schemas[name]) for name in self._around}
            rows = self._rows(around, self._unit(fields.schemas))
        except VALUE_ERRORS as err:
            raise build_damage_error(self._key, f"holds no records of {', '.join(self._fields)}: {err}") from err

        def payload(name: str) -> Payload:
            if name not in columns:
                return build_bytes_payload(pa.nulls(len(batch), pa.binary()))
            return build_datum_payload(columns[name], fields.schemas[name])

        return _build_batch(rows or [{}] * len(batch), payload, {})

    @property
    def _around(self) -> Sequence[str]:
        """The fields besides key and value, such as offset and timestamp."""
        return [name for name in self._members if name not in {"key", "value"}]

    def _unit(self, schemas: Mapping[str, Schema]) -> int:
        """Return how many units of the field of timestamps are a millisecond."""
        root, *path = self._paths.get("timestamp", ["timestamp"])
        if root in schemas:
            return find_time_unit(schemas[root], path)
        return 1

    def _rows(self, columns: Mapping[str, Sequence[Any]], unit: int) -> list[AivenRow]:
        rows = (dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True))
        return [_check_row({**row, **self._paths_of(row, unit)}) for row in rows]

    def _check_fields(self, names: Mapping[str, Any]) -> None:
        """Raise IntegrityError unless the object has exactly the fields that the connector's file names."""
        missing = [name for name in self._members if name not in names]
        others = [name for name in names if name not in self._members and not self._paths]
        if missing or others:
            what = f"no {', '.join(missing)}" if missing else f"fields that are not named, {', '.join(others[:10])}"
            raise IntegrityError(
                f"object {self._key} has {what}, but its connector's file names records of {', '.join(self._fields)}:"
                f" {_HINT}"
            )

    def _paths_of(self, row: AivenRow, unit: int) -> AivenRow:
        values = {name: self._at(name, row[path[0]]) for name, path in self._paths.items()}
        return {name: convert_to_ms(value, unit) if name == "timestamp" else value for name, value in values.items()}


def _build_batch(rows: Sequence[AivenRow], payload: Callable[[str], Payload], bad: Mapping[int, str]) -> ReadBatch:
    """Build a batch of rows. `payload` makes the payload of keys or values."""
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


def _check_row(row: AivenRow) -> AivenRow:
    """Check that the columns can hold the row's values. Raise one of `VALUE_ERRORS` if not."""
    numbers = {name: _check_int64(name, row.get(name)) for name in ("offset", "timestamp")}
    return {**row, **numbers, "headers": _read_headers(row.get("headers"))}


def _check_int64(name: str, value: Any) -> int | None:
    if value is not None and (type(value) is not int or value not in _INT64):
        raise ValueError(f"its {name} is {value!r:.40}")
    return value


def _read_headers(headers: Any) -> list[dict[str, Any]] | None:
    if not headers:
        return None
    pairs = headers.items() if isinstance(headers, Mapping) else ((h["key"], h["value"]) for h in headers)
    return [{"key": _read_name(key), "value": encode_header_value(value)} for key, value in pairs]


def _read_name(key: Any) -> str:
    if not isinstance(key, str):
        raise TypeError(f"the name of a header is {key!r:.40}")
    return key


def _read_csv_header(pair: bytes) -> Mapping[str, Any]:
    key, _, value = pair.partition(b":")
    return {"key": _decode_base64(key).decode(), "value": _decode_base64(value)}


def _decode_base64(text: bytes) -> bytes:
    return base64.b64decode(text, validate=True)


def _new_reader(request: ReadRequest) -> AivenReader:
    kind = find_format(request.format_name).aiven_word
    return AivenReader(request.source, request.key, kind, request.settings, request.layout.codec, request.limits)


FORMAT_IO = FormatIO(new_reader=_new_reader)
