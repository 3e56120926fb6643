"""The keys for the way from Kafka to objects: converters, transforms and the handling of errors.

Inputs are matched with outputs, as in Connect, when a file is loaded.
"""

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, get_args

from kafka_s3_platform.connect.config.dialects import Dialect
from kafka_s3_platform.connect.config.formats_of_connect import INPUTS, JSON_WITH_SCHEMA
from kafka_s3_platform.connect.config.keys import values
from kafka_s3_platform.connect.config.keys.config_file import ConfigFile
from kafka_s3_platform.connect.config.keys.converters import REGISTERING, WITH_REGISTRY, is_known_option, read_converter
from kafka_s3_platform.connect.config.keys.general import TOPICS
from kafka_s3_platform.connect.config.keys.layout import PARTITION_FIELDS, TIMESTAMP_FIELD
from kafka_s3_platform.connect.config.keys.source import CLOUD_FORMATS, judge_converters
from kafka_s3_platform.connect.config.keys.table import (
    Key,
    TypedKey,
    declare_honoured,
    declare_key,
    declare_not_yet,
    declare_refused,
    declare_setting,
    declare_without_meaning,
    keys_by_field,
)
from kafka_s3_platform.connect.config.keys.transforms import (
    find_public_keys,
    keeps_content,
    parse_transforms,
    route_topic,
)
from kafka_s3_platform.connect.config.keys.values import CONVERTER_CLASS
from kafka_s3_platform.connect.config.worker import Worker
from kafka_s3_platform.core.config.formats import find_format
from kafka_s3_platform.core.config.settings import (
    ConverterSettings,
    ErrorSettings,
    ErrorsTolerance,
    LayoutSettings,
    RecordSettings,
    TransformSettings,
)

if TYPE_CHECKING:
    # It imports pyarrow, which reading connector files does not need.
    from kafka_s3_platform.core.model.connect import Side

FIELDLESS = ("BYTES", "STRING")
"""Inputs that have no fields."""


def find_input(converter: ConverterSettings) -> str:
    """Return the input that a converter reads, by its name in the tables of inputs and formats."""
    if converter.format == "JSON" and converter.schemas_enable:
        return JSON_WITH_SCHEMA
    return converter.format


def explain_refusal(converter: ConverterSettings, output: str) -> str | None:
    """Return the reason why the format `output` cannot hold the values of a converter, or None if it can."""
    row = find_input(converter)
    reason = find_format(output).refused_inputs.get(row)
    return reason and f"{row} cannot be written as {output}: {reason}"


_WORDS = tuple(word for word in INPUTS if word != JSON_WITH_SCHEMA)
_UNREAD = "No object holds keys, and nothing reads keys."
_AVRO_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TRANSFORM_KEY = re.compile(r"((?:transforms|predicates)(?:\.[^\s:]+)?)(?:: )?(.*)", re.DOTALL)


TOLERANCE: TypedKey[ErrorsTolerance] = declare_setting(
    ErrorSettings,
    "tolerance",
    "errors.tolerance",
    values.expect_one_of(get_args(ErrorsTolerance)),
    "`none`: a record that cannot be converted or written fails the run, and the error names the record. `all`:"
    " the record is left out and counted.",
    shown="none; all for `S3_SINK`",
)
declare_setting(
    ErrorSettings,
    "log_enable",
    "errors.log.enable",
    values.parse_boolean,
    "Log each record that is left out, with the reason.",
)
declare_setting(
    ErrorSettings,
    "log_include_messages",
    "errors.log.include.messages",
    values.parse_boolean,
    "Include the key and the value in that log.",
)
DEAD_LETTERS = declare_setting(
    ErrorSettings,
    "dead_letter_topic",
    "errors.deadletterqueue.topic.name",
    values.parse_topic,
    "Dead letter topic: a record is written to it before it is left out. The topic is created if it does not exist.",
    shown="none; `dlq-<name>` for `S3_SINK` with `errors.tolerance=all`",
)
declare_setting(
    ErrorSettings,
    "dead_letter_replication_factor",
    "errors.deadletterqueue.topic.replication.factor",
    values.expect_integer(1, 32_767),
    "Replication factor of a dead letter topic that is created.",
)
DEAD_LETTER_HEADERS = declare_setting(
    ErrorSettings,
    "dead_letter_headers",
    "errors.deadletterqueue.context.headers.enable",
    values.parse_boolean,
    "Add `__connect.errors.*` headers to dead letters.",
    shown="false; true for `S3_SINK` with `errors.tolerance=all`",
)
NULLS_TO_DEAD_LETTERS = declare_key(
    "report.null.values.to.dlq",
    values.parse_boolean,
    "`true` is refused if both `behavior.on.null.values=ignore` and a dead letter topic are set: records without"
    " a value that are left out are counted, and never sent to that topic.",
    default=False,
)
_CONVERTERS = (
    "`ByteArrayConverter`, `StringConverter`, `JsonConverter`, `JsonSchemaConverter`, `AvroConverter` or"
    " `ProtobufConverter`, by full or short name"
)
_INPUT_WORDS = "`BYTES`, `STRING`, `JSON` (without a schema), `JSON_SR`, `AVRO` or `PROTOBUF`"

RECORD_KEYS: tuple[Key, ...] = (
    declare_honoured(
        "value.converter",
        f"How to decode values: {_CONVERTERS}. `ByteArrayFormat` and `BlockGzipFormat` work without it. An envelope"
        " needs it only if something looks at values, or a restore changes records.",
        "that of worker.properties",
    ),
    declare_honoured("key.converter", "How to decode keys, by the same names.", "that of worker.properties"),
    declare_honoured("value.converter.*", "An option of the value converter; see below."),
    declare_honoured("key.converter.*", "An option of the key converter."),
    declare_honoured("input.data.format", f"Confluent Cloud's key for the value converter: {_INPUT_WORDS}."),
    declare_honoured("input.key.format", "Confluent Cloud's key for the key converter, with the same values."),
    declare_honoured(
        "schema.registry.*",
        "Confluent Cloud's keys for the registry of both converters. `value.converter.schema.registry.*` overrides"
        " them.",
    ),
    declare_honoured("transforms", "Aliases of the transforms, separated by commas, in the order in which they run."),
    declare_honoured(
        "transforms.*",
        "`transforms.<alias>.type`, the options of that type, and `predicate` and `negate`. The dotted name of an"
        " allowed Python class as a type runs as code.",
    ),
    declare_honoured("predicates", "Aliases of the predicates, separated by commas."),
    declare_honoured("predicates.*", "`predicates.<alias>.type` and the options of that type."),
    *keys_by_field(ErrorSettings).values(),
    NULLS_TO_DEAD_LETTERS,
    *declare_without_meaning(
        "A run that failed for a temporary reason is run again.", "errors.retry.timeout errors.retry.delay.max.ms"
    ),
    declare_honoured(
        "header.converter",
        "Source connectors: the converter that the sink used for headers. Headers of `ByteArrayConverter` are base64"
        " in formats that have no bytes. A sink here has none for headers: each comes back with its bytes.",
        "SimpleHeaderConverter",
    ),
    declare_honoured(
        "input.header.format", "Confluent Cloud's key for `header.converter`: `BYTES`, `STRING`, `JSON` and so on."
    ),
    *declare_without_meaning("No converter reads header values: each comes back with its bytes.", "header.converter.*"),
    *declare_without_meaning(
        REGISTERING, "subject.name.strategy key.subject.name.strategy value.subject.name.strategy"
    ),
    declare_refused(
        "schema.context.name",
        "ids belong to a context: name it in the URL of the registry, as in `https://registry:8081/contexts/.NAME`",
        "",
        ".",
        "default",
    ),
    declare_not_yet("csfle.*", "values are archived as they are, encrypted fields included"),
)


def read_records(
    file: ConfigFile, worker: Worker, layout: LayoutSettings, dialect: Dialect, connector: str
) -> RecordSettings:
    """Read the converters, transforms and error settings of a connector file. A refused key gets its default."""
    is_source = dialect.is_source
    transforms = _read_transforms(file, layout, is_source=is_source)
    envelope = find_format(layout.format).envelope
    reads_values = not layout.is_envelope or bool(transforms) or (not is_source and _looks_at_values(layout))
    reads_keys = layout.keys_format is not None or bool(transforms) or envelope in {"aiven", "lenses"}
    value = _read_converter(file, worker, "value", layout, needed=reads_values)
    key = _read_converter(file, worker, "key", layout, needed=reads_keys)
    _ignore_shared_registry(file, (key, value))
    if is_source:
        judge_converters(file, layout, key, value, transforms)
    else:
        _judge_pairs(file, layout, key, value)
    return RecordSettings(
        key=key or ConverterSettings(),
        value=value or ConverterSettings(),
        transforms=transforms,
        errors=_read_errors(file, layout, f"dlq-{connector}" if dialect.has_dead_letters else None),
    )


def _looks_at_values(layout: LayoutSettings) -> bool:
    """Return True if the folders of records depend on their values, so these have to be decoded."""
    has_clock = layout.timestamp_extractor in {"Record", "Wallclock"}
    return layout.partitioner == "Field" or "." in layout.partitioner or not has_clock


def _read_converter(
    file: ConfigFile, worker: Worker, side: "Side", layout: LayoutSettings, *, needed: bool
) -> ConverterSettings | None:
    """Read the converter of one side. If it is not `needed` to archive, it is for restores that change records.

    Such restores decode an envelope's content, and the schemas in a converter's registry are to be archived. So the
    converter is read too, but its errors do not refuse the file.
    """
    if needed:
        return _read_named_converter(file, worker, side)
    if not layout.is_envelope and not _names_a_registry(file, side):
        _ignore_converter(file, side, _UNREAD)
        return None
    converter, refused = file.try_reading(lambda: _read_named_converter(file, worker, side))
    if not refused:
        return converter
    _ignore_converter(file, side, f"The envelope keeps the bytes of {side}s unchanged.", refused)
    return ConverterSettings(unread=", ".join(refused))


def _names_a_registry(file: ConfigFile, side: "Side") -> bool:
    """Return True if the file names a converter and its registry. If so, schemas are archived with any objects."""
    named = f"{side}.converter" in file or CLOUD_FORMATS[side] in file
    return named and f"{side}.converter.schema.registry.url" in file


def _read_named_converter(file: ConfigFile, worker: Worker, side: "Side") -> ConverterSettings | None:
    """Read the file's own converter. If it names none, read the worker's with the worker's options, as in Connect."""
    name, word = f"{side}.converter", CLOUD_FORMATS[side]
    if name in file and word in file:
        file.refuse(word, f"{name} says the same; keep one")
    # JsonConverter expects a schema with each value by default. Cloud's word JSON means JSON without one.
    if name in file:
        return _read_own_converter(file, side, file.read(name, CONVERTER_CLASS, ""), schemas_enable=True)
    if word in file:
        return _read_own_converter(file, side, file.read(word, values.expect_one_of(_WORDS), ""), schemas_enable=False)
    _ignore_converter(file, side, "This file names no converter.")
    return _read_worker_converter(file, worker, side)


def _read_own_converter(
    file: ConfigFile, side: "Side", format_name: str, *, schemas_enable: bool
) -> ConverterSettings | None:
    """Read the converter named in the file itself, with its options."""
    if not format_name:
        return None
    prefix = f"{side}.converter."
    shared = _read_shared(file) if format_name in WITH_REGISTRY else {}
    options = file.read_prefix(prefix)
    converter, outcome = read_converter(format_name, {**shared, **options}, schemas_enable=schemas_enable)
    file.add_outcome(prefix, outcome, bare=shared.keys() - options.keys())
    return converter


def _read_worker_converter(file: ConfigFile, worker: Worker, side: "Side") -> ConverterSettings | None:
    """Read the default converter of worker.properties. Return None if it names none."""
    prefix = f"{side}.converter."
    entries = {name: secret.get_secret_value() for name, secret in worker.converters.items()}
    if not (class_name := entries.get(f"{side}.converter")):
        return None
    options = {name.removeprefix(prefix): value for name, value in entries.items() if name.startswith(prefix)}
    try:
        converter, outcome = read_converter(CONVERTER_CLASS(class_name), options, schemas_enable=True)
    except ValueError as err:
        file.refuse(f"{side}.converter", f"that of {worker.path}: {err}")
        return None
    for name, reason in outcome.refused.items():
        file.refuse(f"{side}.converter", f"{prefix}{name} of {worker.path}: {reason}")
    return converter


def _read_shared(file: ConfigFile) -> dict[str, str]:
    """Read the registry's keys for both converters."""
    return {name: value for name, value in file.read_prefix("").items() if name.startswith("schema.registry.")}


def _ignore_shared_registry(file: ConfigFile, converters: Iterable[ConverterSettings | None]) -> None:
    """Report that the shared keys of a registry have no effect, if no converter of the file asks a registry."""
    shared = _read_shared(file)
    file.mark_known(name for name in shared if is_known_option(name))
    if not any(converter and converter.registry for converter in converters):
        unused = [name for name in shared if not file.is_refused(name)]
        file.ignore_if_set(unused, "No converter of this file needs a registry.")


def _ignore_converter(file: ConfigFile, side: "Side", why: str, refused: Mapping[str, str] = {}) -> None:
    """Report that the converter of this side has no effect. `refused` maps keys to the reasons, for restores."""
    names = [
        name for name in file.read_prefix("") if name.startswith(f"{side}.converter") or name == CLOUD_FORMATS[side]
    ]
    absent = "".join(f"; {name}: {reason}" for name, reason in refused.items() if name not in file)
    for name in names:
        reason = refused.get(name, "") + (absent if name in {f"{side}.converter", CLOUD_FORMATS[side]} else "")
        file.ignore_if_set([name], f"{why} No restore can change them: {reason.removeprefix('; ')}" if reason else why)
    file.mark_known(name for name in names if is_known_option(name.removeprefix(f"{side}.converter.")))


def _judge_pairs(
    file: ConfigFile, layout: LayoutSettings, key: ConverterSettings | None, value: ConverterSettings | None
) -> None:
    """Refuse settings that fail for every record: an input unfit for the output, or fields of plain values."""
    _judge_part(file, "value", layout.format, value)
    if layout.keys_format is not None:
        _judge_part(file, "key", layout.keys_format, key)
    readers = {
        PARTITION_FIELDS.name: layout.partitioner == "Field",
        TIMESTAMP_FIELD.name: layout.timestamp_extractor == "RecordField",
    }
    for name, reads in readers.items():
        if reads and (value is None or value.format in FIELDLESS) and not file.is_refused(name):
            file.refuse(name, "values have no fields: set value.converter or input.data.format to what they hold")


def _judge_part(file: ConfigFile, side: "Side", output: str, converter: ConverterSettings | None) -> None:
    """Refuse a converter whose values the format `output` cannot hold, or a file without a converter it needs."""
    name = f"{side}.converter"
    if converter is not None:
        if reason := explain_refusal(converter, output):
            written = file.find_first_set(name, CLOUD_FORMATS[side])
            file.refuse(written, reason if written in file else f"that of worker.properties: {reason}")
    elif find_format(output).needs_converter and not file.is_refused(name) and not file.is_refused(CLOUD_FORMATS[side]):
        what = "values" if side == "value" else "keys"
        file.refuse(
            name,
            f"required, here or in worker.properties, or {CLOUD_FORMATS[side]}: what {what} are before they become"
            f" {output}; without a format, records are archived as they are in the native Parquet envelope",
        )


def _read_transforms(file: ConfigFile, layout: LayoutSettings, *, is_source: bool) -> tuple[TransformSettings, ...]:
    """Read the transforms in their order. Refuse those a sink cannot run."""
    entries = {
        name: value for name, value in file.read_prefix("").items() if name.startswith(("transforms", "predicates"))
    }
    file.mark_known(find_public_keys(entries))
    try:
        steps = parse_transforms({name: value for name, value in entries.items() if value})
    except ValueError as err:
        match = _TRANSFORM_KEY.fullmatch(str(err))
        file.refuse(match[1] if match else "transforms", match[2].strip() if match else str(err))
        return ()
    for step in steps:
        if not is_source:
            _judge_step(file, layout, step)
    if not is_source:
        _judge_routes(file, steps)
    return steps


def _judge_routes(file: ConfigFile, steps: tuple[TransformSettings, ...]) -> None:
    """Refuse routers that give two topics the same name, because their objects would get the same keys."""
    topics: dict[str, list[str]] = {}
    for topic in file.value(TOPICS):
        topics.setdefault(route_topic(steps, topic), []).append(topic)
    for routed, names in topics.items():
        if len(names) > 1:
            file.refuse(
                "transforms",
                f"{', '.join(names)} all become {routed}, and their objects would have the same keys. Keep the names"
                f" apart, or archive each topic by a connector with its own topics.dir",
            )


def _judge_step(file: ConfigFile, layout: LayoutSettings, step: TransformSettings) -> None:
    """Refuse a transform whose results the sink's format cannot hold."""
    if layout.is_envelope and not keeps_content(step):
        file.refuse(
            f"transforms.{step.alias}.type",
            f"{step.type} changes records, and an envelope holds them as they are; name another format.class",
        )
    option = step.options.get("delimiter")
    delimiter = "." if option is None else option.get_secret_value()
    if step.type.startswith("Flatten") and layout.format == "avro" and not _AVRO_NAME.fullmatch(f"a{delimiter}"):
        file.refuse(
            f"transforms.{step.alias}.delimiter",
            f"{delimiter!r} cannot be in the names of Avro's fields; set a letter, a digit or `_`",
        )


def _read_errors(file: ConfigFile, layout: LayoutSettings, letters: str | None) -> ErrorSettings:
    """Read the error settings. `letters` is the dead letter topic of a connector whose file names none."""
    tolerance: ErrorsTolerance = file.value_or(TOLERANCE, "all" if letters else "none")
    is_by_itself = letters is not None and tolerance == "all"
    settings = file.fill(
        ErrorSettings,
        tolerance=tolerance,
        dead_letter_topic=file.value_or(DEAD_LETTERS, letters if is_by_itself else None),
        dead_letter_headers=file.value_or(DEAD_LETTER_HEADERS, is_by_itself),
    )
    topic = settings.dead_letter_topic
    name = NULLS_TO_DEAD_LETTERS.name
    if file.value(NULLS_TO_DEAD_LETTERS) and topic is not None and layout.null_values == "ignore":
        file.refuse(
            name,
            "records that behavior.on.null.values=ignore leaves out are counted, and none is sent to the dead letter"
            " topic; say false, or behavior.on.null.values=fail, which sends them there with errors.tolerance=all",
        )
    elif name in file:
        file.ignore_if_set((name,), "No record without a value is left out beside a dead letter topic.")
    if topic in file.value(TOPICS):
        file.refuse(DEAD_LETTERS.name, f"{topic} is archived itself; name another topic")
    return settings
