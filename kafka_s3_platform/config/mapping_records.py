"""What happens to records between Kafka and their objects, out of a connector file and the worker's defaults."""

import re
from collections.abc import Mapping
from typing import Literal

from kafka_s3_platform.config import values
from kafka_s3_platform.config.classes import CONVERTER_CLASS
from kafka_s3_platform.config.converter_options import converter_settings, is_known
from kafka_s3_platform.config.mapping_source import CLOUD_FORMATS, judge_converters
from kafka_s3_platform.config.matrix import FIELDLESS, INPUTS, WITH_SCHEMA, refusal
from kafka_s3_platform.config.settings import (
    ConverterSettings,
    ErrorSettings,
    LayoutSettings,
    RecordSettings,
    TransformSettings,
)
from kafka_s3_platform.config.sheet import Sheet
from kafka_s3_platform.config.transform_catalogue import keeps_content, parse_transforms, public_keys
from kafka_s3_platform.config.worker import Worker

Side = Literal["key", "value"]

_WORDS = tuple(word for word in INPUTS if word != WITH_SCHEMA)
_UNREAD: Mapping[Side, str] = {
    "key": "No object holds keys, and nothing reads them.",
    "value": "The envelope keeps values as the bytes that they are.",
}
_AVRO_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TRANSFORM_KEY = re.compile(r"((?:transforms|predicates)(?:\.[^\s:]+)?)(?:: )?(.*)", re.DOTALL)


def record_settings(sheet: Sheet, worker: Worker, layout: LayoutSettings, *, is_source: bool = False) -> RecordSettings:
    """The converters, the transforms and the errors of a connector file. What is refused stands at its default."""
    transforms = _transforms(sheet, layout, is_source=is_source)
    reads_values = not layout.is_envelope or bool(transforms) or (not is_source and _looks_at_values(layout))
    reads_keys = layout.keys_format is not None or bool(transforms) or layout.format.startswith("aiven.")
    value = _converter(sheet, worker, "value", needed=reads_values or _names_a_registry(sheet, "value"))
    key = _converter(sheet, worker, "key", needed=reads_keys or _names_a_registry(sheet, "key"))
    if is_source:
        judge_converters(sheet, layout, key, value, transforms)
    else:
        _judge_pairs(sheet, layout, key, value)
    return RecordSettings(
        key=key or ConverterSettings(),
        value=value or ConverterSettings(),
        transforms=transforms,
        errors=_errors(sheet, layout),
    )


def _names_a_registry(sheet: Sheet, side: Side) -> bool:
    """Whether the file says whose schemas the bytes name: they are archived then, whatever the objects hold."""
    named = f"{side}.converter" in sheet or CLOUD_FORMATS[side] in sheet
    return named and f"{side}.converter.schema.registry.url" in sheet


def _looks_at_values(layout: LayoutSettings) -> bool:
    return layout.partitioner == "Field" or "." in layout.partitioner or not _is_clock(layout)


def _is_clock(layout: LayoutSettings) -> bool:
    return layout.timestamp_extractor in {"Record", "Wallclock"}


def _converter(sheet: Sheet, worker: Worker, side: Side, *, needed: bool) -> ConverterSettings | None:
    """The converter of one side: the file's own, else the worker's with the worker's options, as in Connect."""
    name, word = f"{side}.converter", CLOUD_FORMATS[side]
    if not needed:
        _leave(sheet, side)
        return None
    if name in sheet and word in sheet:
        sheet.refuse(word, f"{name} says the same; keep one")
    if name in sheet:
        return _own(sheet, side, sheet.read(name, CONVERTER_CLASS, ""), schemas_enable=True)
    if word in sheet:
        return _own(sheet, side, sheet.read(word, values.choice(_WORDS), ""), schemas_enable=False)
    return _workers(sheet, worker, side)


def _own(sheet: Sheet, side: Side, format_name: str, *, schemas_enable: bool) -> ConverterSettings | None:
    if not format_name:
        return None
    prefix = f"{side}.converter."
    shared = {name: value for name, value in sheet.under("").items() if name.startswith("schema.registry.")}
    own = sheet.under(prefix)
    found, outcome = converter_settings(format_name, {**shared, **own}, schemas_enable=schemas_enable)
    sheet.take(prefix, outcome.only(own))
    sheet.take("", outcome.only(shared.keys() - own.keys()))
    sheet.take(prefix, outcome.missing(own.keys() | shared.keys()))
    return found


def _workers(sheet: Sheet, worker: Worker, side: Side) -> ConverterSettings | None:
    prefix = f"{side}.converter."
    entries = {name: secret.get_secret_value() for name, secret in worker.converters.items()}
    if not (class_name := entries.get(f"{side}.converter")):
        return None
    options = {name.removeprefix(prefix): value for name, value in entries.items() if name.startswith(prefix)}
    try:
        found, outcome = converter_settings(CONVERTER_CLASS(class_name), options, schemas_enable=True)
    except ValueError as err:
        sheet.refuse(f"{side}.converter", f"that of {worker.path}: {err}")
        return None
    for name, reason in outcome.refused.items():
        sheet.refuse(f"{side}.converter", f"{prefix}{name} of {worker.path}: {reason}")
    return found


def _leave(sheet: Sheet, side: Side) -> None:
    """Without a look at this side, its converter changes nothing."""
    own = [name for name in sheet.under("") if name.startswith(f"{side}.converter")]
    shared = [name for name in sheet.under("") if name.startswith("schema.registry.")] if side == "value" else []
    sheet.leave((*own, *shared, CLOUD_FORMATS[side]), _UNREAD[side])
    sheet.show(name for name in (*own, *shared) if is_known(name.removeprefix(f"{side}.converter.")))


def _judge_pairs(
    sheet: Sheet, layout: LayoutSettings, key: ConverterSettings | None, value: ConverterSettings | None
) -> None:
    """Refuses what no record could make good: an input that the output cannot hold, fields of what has none."""
    _judge_part(sheet, "value", layout.format, value)
    if layout.keys_format is not None:
        _judge_part(sheet, "key", layout.keys_format, key)
    readers = {
        "partition.field.name": layout.partitioner == "Field",
        "timestamp.field": layout.timestamp_extractor == "RecordField",
    }
    for name, reads in readers.items():
        if reads and (value is None or value.format in FIELDLESS) and not sheet.is_refused(name):
            sheet.refuse(name, "values have no fields: set value.converter or input.data.format to what they hold")


def _judge_part(sheet: Sheet, side: Side, output: str, converter: ConverterSettings | None) -> None:
    name = f"{side}.converter"
    if converter is not None:
        if reason := refusal(converter, output):
            given = [key for key in (name, CLOUD_FORMATS[side]) if key in sheet]
            sheet.refuse(given[0] if given else name, reason if given else f"that of worker.properties: {reason}")
    elif (
        output in {"avro", "json", "parquet"}
        and not sheet.is_refused(name)
        and not sheet.is_refused(CLOUD_FORMATS[side])
    ):
        what = "values" if side == "value" else "keys"
        sheet.refuse(
            name,
            f"required, here or in worker.properties, or {CLOUD_FORMATS[side]}: what {what} are before they become"
            f" {output}; without a format, records are archived as they are in the native Parquet envelope",
        )


def _transforms(sheet: Sheet, layout: LayoutSettings, *, is_source: bool) -> tuple[TransformSettings, ...]:
    entries = {name: value for name, value in sheet.under("").items() if name.startswith(("transforms", "predicates"))}
    sheet.show(public_keys(entries))
    try:
        found = parse_transforms({name: value for name, value in entries.items() if value})
    except ValueError as err:
        match = _TRANSFORM_KEY.fullmatch(str(err))
        sheet.refuse(match[1] if match else "transforms", match[2].strip() if match else str(err))
        return ()
    for step in found:
        if not is_source:
            _judge_step(sheet, layout, step)
    return found


def _judge_step(sheet: Sheet, layout: LayoutSettings, step: TransformSettings) -> None:
    if layout.is_envelope and not keeps_content(step):
        sheet.refuse(
            f"transforms.{step.alias}.type",
            f"{step.type} changes records, and an envelope holds them as they are; name another format.class",
        )
    given = step.options.get("delimiter")
    delimiter = "." if given is None else given.get_secret_value()
    if step.type.startswith("Flatten") and layout.format == "avro" and not _AVRO_NAME.fullmatch(f"a{delimiter}"):
        sheet.refuse(
            f"transforms.{step.alias}.delimiter",
            f"{delimiter!r} cannot be in the names of Avro's fields; set a letter, a digit or `_`",
        )


def _errors(sheet: Sheet, layout: LayoutSettings) -> ErrorSettings:
    prefix = "errors.deadletterqueue."
    topic = sheet.read(f"{prefix}topic.name", _topic, None)
    replicas = sheet.read(f"{prefix}topic.replication.factor", values.integer(1, 32_767), 3)
    archived: tuple[str, ...] = sheet.read("topics", values.topic_list, ())
    tolerance = sheet.read("errors.tolerance", values.choice(("none", "all")), "none")
    reports_nulls = sheet.read("report.null.values.to.dlq", values.boolean, default=False)
    if reports_nulls and topic is not None and layout.null_values == "ignore":
        sheet.refuse(
            "report.null.values.to.dlq",
            "records that behavior.on.null.values=ignore leaves out are counted, and none is sent to the dead letter"
            " topic; say false, or behavior.on.null.values=fail, which sends them there with errors.tolerance=all",
        )
    elif "report.null.values.to.dlq" in sheet:
        sheet.leave(("report.null.values.to.dlq",), "No record without a value is left out beside a dead letter topic.")
    if topic in archived:
        sheet.refuse(f"{prefix}topic.name", f"{topic} is archived itself; name another topic")
    return ErrorSettings.model_validate(
        {
            "tolerance": tolerance,
            "log_enable": sheet.read("errors.log.enable", values.boolean, default=False),
            "log_include_messages": sheet.read("errors.log.include.messages", values.boolean, default=False),
            "dead_letter_topic": topic,
            "dead_letter_replication_factor": replicas,
            "dead_letter_headers": sheet.read(f"{prefix}context.headers.enable", values.boolean, default=False),
        }
    )


def _topic(text: str) -> str:
    topics = values.topic_list(text)
    if len(topics) > 1:
        raise ValueError(f"{text!r} names more than one topic")
    return topics[0]
