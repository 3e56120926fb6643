"""Reads the records of Aiven's S3 sink: value, key, offset, timestamp and headers, in csv, JSON, Avro or Parquet.

In csv, keys, header keys and header values are base64, and so is the value unless `format.output.fields.value.encoding`
is `none`; timestamps are epoch ms; an empty key or value may have been null or empty. In JSON, timestamps are ISO 8601,
and bytes are base64. In Avro and Parquet, headers are a map, so no two headers of a record have the same name. Each
record has exactly the fields of `format.output.fields`. Source: the writers of Aiven's
cloud-storage-connectors-for-apache-kafka, `commons`, package `output`.
"""

import base64
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

import msgspec
import pyarrow as pa

from kafka_s3_platform.connect.avro.json_values import read_number
from kafka_s3_platform.connect.formats.avro import AvroFields, decode_column
from kafka_s3_platform.connect.formats.avro_records import build_datum_payload
from kafka_s3_platform.connect.formats.field_reader import ReadTime, compile_time_reader, convert_to_ms
from kafka_s3_platform.connect.formats.json import build_json_payload
from kafka_s3_platform.connect.formats.sink_lines import (
    EnvelopeRow,
    build_envelope_batch,
    check_json,
    decode_text_bytes,
    encode_header_value,
    open_envelope_columns,
    refuse_many_items,
)
from kafka_s3_platform.core.config.formats import find_format
from kafka_s3_platform.core.errors import IntegrityError
from kafka_s3_platform.core.formats.format_io import FormatIO, ReadRequest
from kafka_s3_platform.core.formats.lines import LINE, split_lines
from kafka_s3_platform.core.formats.reading import (
    ReadBatch,
    batch_values,
    build_bytes_payload,
    build_damage_error,
    build_limit_error,
    read_pieces,
)
from kafka_s3_platform.core.model.connect import VALUE_ERRORS, Payload

_decode = msgspec.json.Decoder(float_hook=read_number).decode

# The memory that msgspec takes for an element of an array, besides its bytes.
_ELEMENT_BYTES = 64
_HINT = "set format.output.fields and format.output.envelope as the sink had them"
_BARE_RECORD = "connector_records"
_ABSENT = msgspec.Raw()


@lru_cache
def _new_line_decoder(names: tuple[str, ...], takes_others: bool) -> msgspec.json.Decoder[Any]:
    """Return a decoder of records with these members, as attributes f0, f1 and so on.

    Other members are refused or, if `takes_others`, skipped. No objects are made of them, since there may be millions.
    """
    members = {f"f{at}": name for at, name in enumerate(names)}
    fields = [(member, msgspec.Raw, _ABSENT) for member in members]
    line = msgspec.defstruct("Line", fields, rename=members, forbid_unknown_fields=not takes_others, gc=False)
    return msgspec.json.Decoder(line)


class AivenReader:
    """Reads an object of csv, JSON, Avro or Parquet. The settings describe how the sink wrote it.

    The field of an offset or a timestamp may be named by a path (`archive.source.offset.field`), if it lies inside
    other fields.
    """

    def __init__(self, request: ReadRequest) -> None:
        self._request = request
        self._settings = request.settings
        self._limits = request.limits
        self._kind = find_format(request.format_name).aiven_word
        self._fields = self._settings.fields or ("value",)
        self._has_values_alone = bool(self._settings.bare) and self._kind != "csv"
        paths = {"offset": self._settings.offset_field, "timestamp": self._settings.timestamp_field}
        self._paths = {name: path.split(".") for name, path in paths.items() if path}
        plain_fields = (name for name in self._fields if name not in self._paths)
        self._members = tuple(dict.fromkeys([*plain_fields, *(path[0] for path in self._paths.values())]))

    def batches(self) -> Iterator[ReadBatch]:
        """Return the records in batches; unreadable ones are `bad`. Raise IntegrityError if the object is damaged."""
        if self._kind in {"avro", "parquet"}:
            return map(self._read_columns, open_envelope_columns(self._request, self._kind).batches())
        return self._read_texts()

    def _read_texts(self) -> Iterator[ReadBatch]:
        """Yield batches of csv or JSON. A text that is not a record is `bad`."""
        for texts in batch_values(self._split_texts()):
            rows = list[EnvelopeRow]()
            bad = dict[int, str]()
            for at, text in enumerate(texts):
                try:
                    rows.append(self._parse_text(text))
                except (*VALUE_ERRORS, msgspec.MsgspecError) as err:
                    rows.append(EnvelopeRow())
                    bad[at] = f"is no record of {', '.join(self._fields)}: {err}"
            value, key = (self._build_payload(name, [getattr(r, name) for r in rows]) for name in ("value", "key"))
            yield build_envelope_batch(rows, value, key, bad)

    def _build_payload(self, name: str, texts: Sequence[bytes | None]) -> Payload:
        """Build the payload of the values or keys (`name`) of csv or JSON. It holds bytes if the sink wrote bytes."""
        if self._kind == "csv" or name in self._settings.base64:
            return build_bytes_payload(pa.array(texts, pa.binary()))
        return build_json_payload(texts)

    def _split_texts(self) -> Iterator[bytes]:
        """Yield the text of each record: a line, or an element of an array."""
        request = self._request
        pieces = read_pieces(request.source, request.key, request.layout.codec, self._limits)
        if self._kind == "json":
            return self._split_array(pieces)
        if self._kind == "csv" and len(self._fields) == 1:
            # Line breaks separate records, but do not end them. So an empty text after the last one is a record, too.
            pieces = chain(pieces, [LINE])
        return split_lines(pieces, LINE, request.key, self._limits, open_end=True)

    def _split_array(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """Return the elements of one JSON array, which is read as a whole, within the limits."""
        key = self._request.key
        body = bytearray()
        most = self._limits.block_bytes
        for piece in pieces:
            body += piece
            if len(body) > most:
                raise build_limit_error(key, f"is an array of more than {most:,} bytes", "block.bytes")
        # Commas are counted before any element is decoded: each element takes memory of its own.
        if body.count(b",") > most // _ELEMENT_BYTES:
            raise build_limit_error(key, f"may have more than {most // _ELEMENT_BYTES:,} elements", "block.bytes")
        try:
            elements = msgspec.json.decode(body, type=list[msgspec.Raw])
        except (msgspec.MsgspecError, RecursionError) as err:
            raise build_damage_error(key, f"is no array of JSON: {err}") from err
        return map(bytes, elements)

    def _parse_text(self, text: bytes) -> EnvelopeRow:
        """Parse the text of one record. Raise one of VALUE_ERRORS, or MsgspecError, if it is not a record."""
        if self._kind == "csv":
            return _make_row(self._parse_csv(text))
        check_json(text, self._limits)
        return EnvelopeRow(value=self._decode_part("value", text)) if self._has_values_alone else self._parse_json(text)

    def _parse_json(self, line: bytes) -> EnvelopeRow:
        """Parse a JSON record, which must have exactly the fields the connector's file names."""
        try:
            record = _new_line_decoder(self._members, bool(self._paths)).decode(line)
        except msgspec.ValidationError as err:
            raise ValueError(f"{err}; {_HINT}") from err
        texts = {name: bytes(getattr(record, f"f{at}")) for at, name in enumerate(self._members)}
        if missing := [name for name, text in texts.items() if not text]:
            raise ValueError(f"it has no {', '.join(missing)}; {_HINT}")
        fields: dict[str, Any] = {
            name: self._decode_part(name, texts[name]) for name in ("key", "value") if name in texts
        }
        for name in ("offset", "timestamp", "headers"):
            root = self._paths[name][0] if name in self._paths else name
            if root in texts:
                refuse_many_items(name, texts[root], b",", self._limits)
                fields[name] = self._follow_path(name, _decode(texts[root]))
        fields["timestamp"] = convert_to_ms(fields.get("timestamp"))
        return _make_row(fields, are_base64="headers" in self._settings.base64)

    def _decode_part(self, name: str, text: bytes) -> bytes | None:
        """Return a key or value (`name`) of JSON as it goes to Kafka: decoded from base64 if the sink wrote bytes."""
        if text == b"null":
            return None
        if name in self._settings.base64:
            if not text.lstrip().startswith(b'"'):
                raise ValueError(f"its {name} is no text of base64: name the {name}.converter that the sink had")
            return decode_text_bytes(text)
        return text

    def _follow_path(self, name: str, value: Any) -> Any:
        """Return the offset or timestamp (`name`) that lies in `value`, the field of the first step of its path."""
        for step in self._paths.get(name, ())[1:]:
            if not isinstance(value, Mapping) or step not in value:
                raise ValueError(f"it has no {'.'.join(self._paths[name])}, which archive.source.{name}.field names")
            value = value[step]
        return value

    def _parse_csv(self, line: bytes) -> Mapping[str, Any]:
        """Parse a line. A value that is not base64 may contain commas, but the fields before and after it must not."""
        names = self._fields
        at = names.index("value") if "value" in names else len(names)
        front = line.split(b",", at)
        behind = [field for rest in front[at:] for field in rest.rsplit(b",", len(names) - at - 1)]
        texts = [*front[:at], *behind] if at < len(names) else front
        if len(texts) != len(names):
            raise ValueError(f"{len(texts)} fields instead of {len(names)}")
        return {name: self._parse_csv_field(name, text) for name, text in zip(names, texts, strict=True)}

    def _parse_csv_field(self, name: str, text: bytes) -> Any:
        """Return the value of one csv field, decoded by the field's name. Raise ValueError if it has another form."""
        if name == "offset":
            return int(text)
        if name == "timestamp":
            return convert_to_ms(text.decode() or None)
        if name == "headers":
            refuse_many_items(name, text, b";", self._limits)
            pairs = (pair.partition(b":") for pair in text.split(b";") if pair)
            return [{"key": _decode_base64(key).decode(), "value": _decode_base64(value)} for key, _, value in pairs]
        if not text:
            return self._read_empty(name)
        if name == "key" or self._settings.value_encoding == "base64":
            return _decode_base64(text)
        return text

    def _read_empty(self, name: str) -> bytes | None:
        """Return what an empty key or value (`name`) of csv was, null or empty, by `archive.source.csv.empty`.

        Raise ValueError if the setting refuses it. An empty value is also refused if there is no setting, because a
        tombstone would delete the key.
        """
        meant = self._settings.csv_empty
        if meant == "refuse" or (meant is None and name == "value"):
            raise ValueError(
                f"its {name} is empty, and may have been null or empty: set archive.source.csv.empty=null or =empty"
            )
        return b"" if meant == "empty" else None

    def _read_columns(self, batch: ReadBatch) -> ReadBatch:
        """Split Avro or Parquet records into their parts. Key and value stay encoded, and the rest is decoded."""
        fields = AvroFields(batch.value.schemas[0], self._limits)
        schemas = fields.schemas
        if self._has_values_alone and not (list(schemas) == ["value"] and fields.name == _BARE_RECORD):
            return batch
        self._check_fields(schemas)
        try:
            columns = fields.split_records(pa.array(batch.value.raw))
            names = [name for name in self._members if name not in {"key", "value"}]
            decoded = [decode_column(columns[name], schemas[name]) for name in names]
            read_time: ReadTime = convert_to_ms
            if "timestamp" in self._paths:
                root, *path = self._paths["timestamp"]
                times = [self._follow_path("timestamp", value) for value in decoded[names.index(root)]]
                read_time = compile_time_reader(schemas[root], path, self._request.layout.timezone, times)
            rows = [
                self._decode_row(dict(zip(names, row, strict=True)), read_time) for row in zip(*decoded, strict=True)
            ]
        except VALUE_ERRORS as err:
            raise build_damage_error(
                self._request.key, f"holds no records of {', '.join(self._fields)}: {err}"
            ) from err
        value, key = (
            build_datum_payload(columns[name], schemas[name])
            if name in columns
            else build_bytes_payload(pa.nulls(len(batch), pa.binary()))
            for name in ("value", "key")
        )
        return build_envelope_batch(rows or [EnvelopeRow()] * len(batch), value, key, {})

    def _decode_row(self, fields: dict[str, Any], read_time: ReadTime) -> EnvelopeRow:
        """Make a record of its decoded fields. `read_time` returns the epoch ms of a timestamp in a path."""
        values = {name: self._follow_path(name, fields[path[0]]) for name, path in self._paths.items()}
        if "timestamp" in values:
            values["timestamp"] = read_time(values["timestamp"])
        return _make_row({**fields, **values})

    def _check_fields(self, names: Mapping[str, Any]) -> None:
        """Raise IntegrityError unless the object has exactly the fields that the connector's file names."""
        missing = [name for name in self._members if name not in names]
        others = [name for name in names if name not in self._members and not self._paths]
        if missing or others:
            what = f"no {', '.join(missing)}" if missing else f"fields that are not named, {', '.join(others[:10])}"
            raise IntegrityError(
                f"object {self._request.key} has {what}, but its connector's file names records of"
                f" {', '.join(self._fields)}: {_HINT}"
            )


def _make_row(fields: Mapping[str, Any], *, are_base64: bool = False) -> EnvelopeRow:
    """Make a record of its fields by name. If `are_base64`, the values of its headers are base64 texts.

    Raise one of `VALUE_ERRORS` if a field cannot be part of a record.
    """
    headers = fields.get("headers") or ()
    pairs = headers.items() if isinstance(headers, Mapping) else ((h["key"], h["value"]) for h in headers)
    encoded = []
    for name, value in pairs:
        if not isinstance(name, str):
            raise TypeError(f"the name of a header is {name!r:.40}")
        is_encoded = are_base64 and value is not None
        data = _decode_base64(value.encode()) if is_encoded else encode_header_value(value)
        encoded.append({"key": name, "value": data})
    return EnvelopeRow(
        fields.get("key"), fields.get("value"), fields.get("offset"), fields.get("timestamp"), encoded or None
    )


def _decode_base64(text: bytes) -> bytes:
    return base64.b64decode(text, validate=True)


FORMAT_IO = FormatIO(new_reader=AivenReader)
