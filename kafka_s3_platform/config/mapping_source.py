"""How objects that others wrote are read, out of a source's file, or a sink's whose class was changed."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from kafka_s3_platform.config import values
from kafka_s3_platform.config.codecs import CODECS, READ_CODECS
from kafka_s3_platform.config.dialects import Dialect
from kafka_s3_platform.config.read_template import compile_read_template
from kafka_s3_platform.config.settings import (
    THAW_TIERS,
    ConverterSettings,
    LayoutSettings,
    SourceSettings,
    TransformSettings,
)
from kafka_s3_platform.config.sheet import Sheet
from kafka_s3_platform.config.transform_catalogue import keeps_content
from kafka_s3_platform.config.worker import Worker

Behavior = Literal["fail", "ignore", "log"]
AivenType = Literal["csv", "jsonl", "json", "avro", "parquet"]

_CLUSTER_ID = re.compile(r"[\w-]{1,255}", re.ASCII)

AIVEN_FIELDS = ("key", "value", "offset", "timestamp", "headers")

_BEHAVIORS: tuple[Behavior, ...] = ("fail", "ignore", "log")
_ENCODINGS: tuple[Literal["none", "base64"], ...] = ("none", "base64")
_VALUES: Mapping[str, str] = {"csv": "bytes", "jsonl": "json", "avro": "avro", "parquet": "parquet"}
_LENSES = ("lenses.json", "lenses.avro", "lenses.parquet")
_INPUTS: Mapping[str, str] = {
    "bytes": "bytes",
    "jsonl": "json",
    "avro": "avro",
    "parquet": "parquet",
    **{name: name for name in _LENSES},
}
_TYPES: tuple[AivenType, ...] = ("csv", "jsonl", "json", "avro", "parquet")
_OF_FIELDS = ("avro", "parquet")
_AIVEN_OF_FIELDS = ("aiven.avro", "aiven.parquet")
_LENSES_OF_FIELDS = ("lenses.avro", "lenses.parquet")
_WITHOUT_SCHEMA = ("json", "bytes", "block_gzip", "aiven.json", "aiven.jsonl", "aiven.csv", "lenses.json")
_NEEDING_SCHEMA = ("AVRO", "JSON_SR", "PROTOBUF")
CLOUD_FORMATS: Mapping[str, str] = {"key": "input.key.format", "value": "input.data.format"}
"""Cloud's words for what keys and values are."""
_OF_RECORDS = ("json", "avro", "parquet", "aiven.jsonl", "aiven.json", "aiven.avro", "aiven.parquet")
_EMPTY: tuple[Literal["refuse", "null", "empty"], ...] = ("refuse", "null", "empty")
_HEADER_WORDS: Mapping[str, str] = {"BYTES": "ByteArrayConverter", "STRING": "StringConverter"}
_OF_HEADERS = ("header.converter", "input.header.format")
_OWN = (
    "behavior.on.error",
    "s3.poll.interval.ms",
    "input.format",
    "topic",
    "archive.source.template",
    "archive.source.thaw.days",
    "archive.source.thaw.tier",
    "archive.source.cluster",
    "archive.source.csv.empty",
    "archive.source.offset.field",
    "archive.source.timestamp.field",
)
_OF_FOLDERS = ("partitioner.class", "time.interval", "partition.field.name", "path.format", "partition.duration.ms")
OF_WRITING = (
    "flush.size",
    "rotate.interval.ms",
    "rotate.schedule.interval.ms",
    "archive.segment.bytes",
    "schema.compatibility",
    "archive.start.hour",
    "archive.allowed.lateness.ms",
    "archive.task.size",
    "archive.daily.segment.bytes",
    "archive.allow.gaps",
    "archive.clock.tolerance.ms",
    "archive.publish.offsets",
    "compressed_block_size",
    "filename.offset.zero.pad.width",
    "s3.part.size",
    "s3.acl.canned",
    "s3.object.tagging",
    "s3.object.tagging.key.value.pairs",
    "s3.object.behavior.on.tagging.error",
)
"""Keys that say how objects are written, and so nothing to a source connector."""


def source_settings(sheet: Sheet, dialect: Dialect, layout: LayoutSettings, worker: Worker) -> SourceSettings | None:
    """How objects are read, None for a sink's file, to which the keys of sources mean nothing."""
    if not dialect.is_source:
        sheet.leave(_OF_HEADERS, "The value of a header is written as the bytes that it is.")
        sheet.leave(_OWN, "Belongs to source connectors: objects are read back by them.")
        return None
    sheet.leave(OF_WRITING, "Belongs to writing: a source connector reads objects as they are.")
    _judge_template(sheet, layout)
    return SourceSettings(
        behavior_on_error=sheet.read("behavior.on.error", values.choice(_BEHAVIORS), "fail"),
        poll_interval_ms=sheet.read("s3.poll.interval.ms", values.integer(1), 60_000),
        fields=_fields(sheet, layout.format),
        bare=_bare(sheet, layout),
        csv_empty=sheet.read("archive.source.csv.empty", values.choice(_EMPTY), None),
        base64=tuple(_of_bytes(sheet, worker)),
        header_converter=_header_converter(sheet, worker),
        offset_field=_field(sheet, layout, "archive.source.offset.field"),
        timestamp_field=_field(sheet, layout, "archive.source.timestamp.field"),
        value_encoding=sheet.read("format.output.fields.value.encoding", values.choice(_ENCODINGS), "base64"),
        thaw_days=sheet.read("archive.source.thaw.days", values.integer(1, 365), None),
        cluster=sheet.read("archive.source.cluster", _cluster, None),
        thaw_tier=sheet.read("archive.source.thaw.tier", values.choice(THAW_TIERS), "Standard"),
        separator_is_named="format.bytearray.separator" in sheet,
        codec_is_named="s3.compression.type" in sheet or "compression.codec" in sheet,
    )


def needs_a_topic(sheet: Sheet, layout: LayoutSettings) -> bool:
    """Whether keys do not tell their topic."""
    if layout.key_layout == "template" and not sheet.is_refused(_template_key(sheet)):
        return "topic" not in compile_read_template(layout.file_name_template or "").names
    return layout.key_layout == "zooz"


def source_format(sheet: Sheet) -> str:
    """What objects hold, in Aiven's words: values alone by the names of formats, else `aiven.` and its type."""
    if "input.format" in sheet:
        sheet.leave(("format.output.type",), "input.format says what objects hold.")
        return _INPUTS[sheet.read("input.format", values.choice(_INPUTS), "bytes")]
    kind = sheet.read("format.output.type", values.choice(_TYPES), "csv")
    if _aiven_fields(sheet) != ("value",):
        return f"aiven.{kind}"
    if kind == "csv":
        encoding = sheet.read("format.output.fields.value.encoding", values.choice(_ENCODINGS), "base64")
        return "bytes" if encoding == "none" else "aiven.csv"
    has_envelope = sheet.read("format.output.envelope", values.boolean, default=True)
    # An array of values is read as one of records is.
    return f"aiven.{kind}" if has_envelope or kind == "json" else _VALUES[kind]


def _bare(sheet: Sheet, layout: LayoutSettings) -> AivenType | None:
    """The output type of Aiven's sink where it wrote values alone."""
    is_aivens = "format.output.type" in sheet or "format.output.envelope" in sheet or layout.key_layout == "template"
    if not is_aivens or any(name in sheet for name in ("format.class", "output.data.format", "input.format")):
        return None
    kind: AivenType = sheet.read("format.output.type", values.choice(_TYPES), "csv")
    if kind == "csv":
        return "csv" if layout.format == "bytes" else None
    is_enveloped = sheet.read("format.output.envelope", values.boolean, default=True)
    return None if is_enveloped or _aiven_fields(sheet) != ("value",) else kind


def _header_converter(sheet: Sheet, worker: Worker) -> str:
    """The class, by its short name, that the sink understood headers by: the connector's, else the worker's."""
    word = sheet.text("input.header.format").strip().upper()
    own = sheet.text("header.converter") or _HEADER_WORDS.get(word, word)
    return (own or _named(worker, "header.converter") or "SimpleHeaderConverter").rpartition(".")[2]


def _of_bytes(sheet: Sheet, worker: Worker) -> Iterator[Literal["key", "value", "headers"]]:
    """The parts that ByteArrayConverter was named for, here or in worker.properties."""
    sides: tuple[Literal["key", "value"], ...] = ("key", "value")
    for side in sides:
        name = f"{side}.converter"
        own = sheet.text(name) or _HEADER_WORDS.get(sheet.text(CLOUD_FORMATS[side]).strip().upper(), "")
        if (own or _named(worker, name)).rpartition(".")[2] == "ByteArrayConverter":
            yield side
    if _header_converter(sheet, worker) == "ByteArrayConverter":
        yield "headers"


def _named(worker: Worker, name: str) -> str:
    return worker.converters[name].get_secret_value() if name in worker.converters else ""


def _field(sheet: Sheet, layout: LayoutSettings, name: str) -> str | None:
    if name in sheet and layout.format not in _OF_RECORDS:
        sheet.refuse(name, f"records of {layout.format} have no such fields: objects of JSON, Avro or Parquet have")
    return sheet.read(name, _path, None)


def _path(text: str) -> str:
    if not all(text.split(".")):
        raise ValueError(f"{text!r} is no names with dots between")
    return text


def source_codecs(sheet: Sheet, dialect: Dialect, format_name: str) -> dict[str, Any]:
    """How lines are compressed where their keys do not tell; other objects tell it themselves."""
    sheet.leave(("avro.codec", "parquet.codec", "s3.compression.level"), "Objects tell how they are compressed.")
    tells_codec = format_name in (*_OF_FIELDS, *_AIVEN_OF_FIELDS, *_LENSES_OF_FIELDS)
    if tells_codec or format_name.startswith("envelope."):
        sheet.leave(("s3.compression.type", "compression.codec"), "Objects tell how they are compressed.")
        return {"codec": "none"}
    default = "gzip" if dialect.name == "aiven" or format_name == "block_gzip" else "none"
    codec = sheet.read("s3.compression.type", values.choice(READ_CODECS), "")
    word = sheet.text("compression.codec").rpartition("-")[2].strip().casefold()
    return {"codec": codec or (word if word in CODECS["json"] else default)}


def judge_converters(
    sheet: Sheet,
    layout: LayoutSettings,
    key: ConverterSettings | None,
    value: ConverterSettings | None,
    transforms: Sequence[TransformSettings],
) -> None:
    """Refuse to send as bytes what objects hold as fields, or what a transform makes fields of."""
    changing = next((step for step in transforms if not keeps_content(step)), None)
    is_bytes = value is None or value.format == "BYTES"
    held = f"{layout.format.rpartition('.')[2]} objects hold"
    if layout.format in _OF_FIELDS and is_bytes:
        _require_converter(sheet, "value", f"{held} fields, not bytes", value)
    elif layout.format == "json" and changing is not None and is_bytes:
        _require_converter(sheet, "value", f"transforms.{changing.alias} makes fields of the values, not bytes", value)
    _judge_schemas(sheet, layout, {"key": key, "value": value})
    if layout.keys_format in _OF_FIELDS and key is None:
        _require_converter(sheet, "key", f"{layout.keys_format} objects hold keys by their type", None)
    if layout.format in (*_AIVEN_OF_FIELDS, *_LENSES_OF_FIELDS):
        for side, converter in (("key", key), ("value", value)):
            is_there = layout.format in _LENSES_OF_FIELDS or side in _aiven_fields(sheet)
            if is_there and converter is None:
                _require_converter(sheet, side, f"{held} each {side} by its type", None)


def _judge_schemas(sheet: Sheet, layout: LayoutSettings, converters: Mapping[str, ConverterSettings | None]) -> None:
    """Refuse converters that need a schema, where objects hold none: no record could be written."""
    is_aiven, is_lenses = (layout.format.startswith(whose) for whose in ("aiven.", "lenses."))
    has_keys = is_lenses or (is_aiven and "key" in _aiven_fields(sheet))
    held = {"key": layout.format if has_keys else layout.keys_format}
    held["value"] = layout.format
    for side, converter in converters.items():
        format_name = held[side]
        written = f"{side}.converter"
        if format_name not in _WITHOUT_SCHEMA or converter is None or converter.format not in _NEEDING_SCHEMA:
            continue
        name = next((key for key in (written, CLOUD_FORMATS[side]) if key in sheet), written)
        if not sheet.is_refused(name):
            sheet.refuse(
                name,
                f"objects of {format_name.rpartition('.')[2]} hold no schema, and {converter.format} needs one: no "
                f"{side} could be written. {_sent_as_it_is(written, 'json' in format_name)}",
            )


def _sent_as_it_is(written: str, is_json: bool) -> str:
    if is_json:
        return f"{written}=JsonConverter and {written}.schemas.enable=false send the JSON that is there"
    return f"{written}=ByteArrayConverter sends the bytes that are there"


def _require_converter(sheet: Sheet, side: str, why: str, named: ConverterSettings | None) -> None:
    given = [key for key in (f"{side}.converter", CLOUD_FORMATS[side]) if key in sheet]
    required = "" if named else "required, here or in worker.properties: "
    name = given[0] if given else f"{side}.converter"
    if not sheet.is_refused(name):
        sheet.refuse(name, f"{required}{why}; name the converter that writes them to Kafka")


def _cluster(text: str) -> str:
    if ":" in text or "," in text:
        return values.bootstrap_servers(text)
    if not _CLUSTER_ID.fullmatch(text):
        raise ValueError(
            f"{text!r} is neither a cluster's id, such as MkU3OEVBNTcwNTJENDM2Qg, nor host:port of a broker"
        )
    return text


def _fields(sheet: Sheet, format_name: str) -> tuple[str, ...]:
    """What the envelopes of others hold; of Lenses' only what their file promises."""
    if format_name in _LENSES:
        return _aiven_fields(sheet) if "format.output.fields" in sheet else ("offset", "timestamp")
    return _aiven_fields(sheet) if format_name.startswith("aiven.") else ()


def _aiven_fields(sheet: Sheet) -> tuple[str, ...]:
    def parse(text: str) -> tuple[str, ...]:
        fields = values.field_list(text)
        if unknown := [name for name in fields if name not in AIVEN_FIELDS]:
            raise ValueError(f"{', '.join(unknown)}: the fields are {', '.join(AIVEN_FIELDS)}")
        return fields

    return sheet.read("format.output.fields", parse, ("value",))


def _template_key(sheet: Sheet) -> str:
    return "archive.source.template" if "archive.source.template" in sheet else "file.name.template"


def _judge_template(sheet: Sheet, layout: LayoutSettings) -> None:
    if layout.key_layout != "template":
        return
    key = _template_key(sheet)
    if key == "archive.source.template":
        sheet.leave(_OF_FOLDERS, f"{key} says what folders and names tell.")
    try:
        names = compile_read_template(layout.file_name_template or "").names
    except ValueError as err:
        sheet.refuse(key, str(err))
        return
    for store in ("store.kafka.keys", "store.kafka.headers"):
        if sheet.text(store).casefold() == "true" and not names & {"start_offset", "end_offset"}:
            sheet.refuse(store, f"{key} tells no offset, by which they are told to belong to values")
    if "topic" in sheet and "topic" in names:
        sheet.refuse("topic", f"{key} tells the topic of each object; name the target in the restore")
