"""The table of Connect's single message transforms and predicates: their names, options and defaults.

The texts of options are parsed as Kafka parses them. Source: the `ConfigDef` of each class of Apache Kafka 4.3's
`org.apache.kafka.connect.transforms`, and for ExtractTopic Confluent's page "ExtractTopic SMT Usage Reference".
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kafka_s3_platform.connect.config.keys.values import expect_integer, expect_match, expect_one_of, parse_boolean
from kafka_s3_platform.connect.java.simple_date_format import SimpleDateFormat
from kafka_s3_platform.core.java.regex import compile_java_regex, compile_java_replacement

CAST_TYPES = ("int8", "int16", "int32", "int64", "float32", "float64", "boolean", "string")


@dataclass(frozen=True)
class Inserted:
    """A field added by InsertField."""

    name: str
    required: bool


def _expect_exactly(*allowed: str) -> Callable[[str], str]:
    """Return a parser that takes the `allowed` words only, in exactly their spelling, as Kafka does."""

    def parse(text: str) -> str:
        if text not in allowed:
            raise ValueError(f"'{text}' is none of {', '.join(allowed)}")
        return text

    return parse


def parse_filled(text: str) -> str:
    """Return the text. Raise ValueError if it is empty."""
    if not text:
        raise ValueError("must not be empty")
    return text


def parse_list(text: str) -> tuple[str, ...]:
    """Parse names separated by commas. Return () if the text is empty."""
    if text.strip():
        return tuple(re.split(r"\s*,\s*", text.strip()))
    return ()


def parse_names(text: str) -> tuple[str, ...]:
    """Parse one or more names separated by commas."""
    names = parse_list(text)
    if not all(names) or not names:
        raise ValueError("needs one name or more, separated by commas")
    return names


def parse_renames(text: str) -> dict[str, str]:
    """Parse pairs `old:new` of names, separated by commas."""
    pairs = [pair.split(":") for pair in parse_list(text)]
    if any(len(pair) != 2 or not all(pair) for pair in pairs):
        raise ValueError(f"'{text}' is no list of old:new pairs, such as foo:bar,abc:xyz")
    return {pair[0]: pair[1] for pair in pairs}


def parse_casts(text: str) -> dict[str | None, str]:
    """Parse Cast's `spec`: pairs of a field and its type. A single type is for the field None, the whole value."""
    pairs = [[part.strip() for part in spec.split(":")] for spec in parse_names(text)]
    casts: dict[str | None, str] = {(pair[0] if pair[1:] else None): pair[-1].lower() for pair in pairs}
    if any(len(pair) > 2 for pair in pairs) or not set(casts.values()) <= set(CAST_TYPES):
        raise ValueError(f"'{text}' is no type and no list of field:type pairs; types: {', '.join(CAST_TYPES)}")
    if None in casts and len(pairs) > 1:
        raise ValueError(f"'{text}': a type for the whole value stands alone")
    return casts


def parse_inserted(text: str) -> Inserted:
    """Parse a field to add. `!` after its name makes it required. With `?`, or neither of the two, it is optional."""
    name = text.removesuffix("!") if text.endswith("!") else text.removesuffix("?")
    return Inserted(parse_filled(name), text.endswith("!"))


def split_field_path(text: str, syntax: str) -> tuple[str, ...]:
    """Split a field's path into names, outermost first. V2 splits at dots outside of backticks, as in Kafka's KIP-821.

    Raises:
        ValueError: a backtick is never closed.
    """
    if syntax == "V1":
        return (text,)
    steps: list[str] = []
    at = 0
    while at < len(text):
        if text[at] == "`":
            step, at = _split_quoted_step(text, at)
        else:
            step = text[at:].split(".", 1)[0]
            at += len(step) + 1
        steps.append(step)
    return (*steps, "") if text.endswith(".") else tuple(steps)


def _split_quoted_step(text: str, at: int) -> tuple[str, int]:
    r"""Return the name between backticks. A backtick closes before a dot or the end, unless a backslash precedes it."""
    for closing in re.finditer(r"`(?=\.|$)", text[at + 1 :]):
        end = at + 1 + closing.start()
        if text[end - 1] != "\\":
            return re.sub(r"\\`(?=\.)", "`", text[at + 1 : end]), end + 2
    raise ValueError(f"'{text}': the backtick at position {at} is not closed; a backslash before it escapes it")


_JSON_PATH_STEP = re.compile(r"""\.(\w+)|\[(\d+)\]|\['([^']*)'\]|\["([^"]*)"\]""")


def split_json_path(text: str) -> tuple[str | int, ...]:
    """Split a JSON path to one place, such as `$["f1"]["f3"]` or `$.f1[0]`, into names and indices.

    Raises:
        ValueError: the text is no such path.
    """
    steps = list(_JSON_PATH_STEP.finditer(text, 1))
    if not text.startswith("$") or sum(len(step[0]) for step in steps) != len(text) - 1:
        raise ValueError(f'\'{text}\' is no JSON path of names and indices, such as $["f1"]["f3"] or $.f1[0]')
    return tuple(int(step[2]) if step[2] else next(g for g in step.group(1, 3, 4) if g is not None) for step in steps)


PACKAGE = "org.apache.kafka.connect.transforms."
PREDICATE_PACKAGE = PACKAGE + "predicates."
CONFLUENT_PACKAGE = "io.confluent.connect.transforms."

_AVRO_NAME = expect_match(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", "name of an Avro schema, such as com.example.Order")
TIMESTAMP_TYPES = ("string", "unix", "Date", "Time", "Timestamp")
UNIX_PRECISIONS = ("nanoseconds", "microseconds", "milliseconds", "seconds")


@dataclass(frozen=True)
class Option:
    """An option of a class. `parse` turns its text into a value, or raises ValueError with the allowed values.

    If `is_secret`, the option holds content of records, and is not shown.
    """

    name: str
    doc: str
    parse: Callable[[str], Any] = str
    default: Any = None
    required: bool = False
    is_secret: bool = False


@dataclass(frozen=True)
class Declared:
    """A transform or a predicate. If `sided`, it exists as `$Key` and as `$Value`; if `headed`, as `$Header` too.

    `check` raises ValueError if the values of all options, by name, do not fit together.
    """

    name: str
    doc: str
    options: tuple[Option, ...] = ()
    sided: bool = False
    keeps_content: bool = False
    removed: Mapping[str, str] | None = None
    check: Callable[[Mapping[str, Any]], object] = lambda _: None
    headed: bool = False
    package: str = PACKAGE

    def types(self) -> tuple[str, ...]:
        """Return the short names of its classes. A `sided` one has one for each side, such as `Cast$Key`."""
        if not self.sided:
            return (self.name,)
        sides = ("Key", "Value", "Header") if self.headed else ("Key", "Value")
        return tuple(f"{self.name}${side}" for side in sides)


def _check_insert(values: Mapping[str, Any]) -> None:
    """Raise ValueError if InsertField has no field to insert, or a fixed field without a value."""
    if not any(isinstance(value, Inserted) for value in values.values()):
        raise ValueError(
            "no field to insert: set topic.field, partition.field, offset.field, timestamp.field or static.field"
        )
    if values["static.field"] and values["static.value"] is None:
        raise ValueError("static.field needs static.value")


def _check_extract_topic(values: Mapping[str, Any]) -> None:
    if values["field.format"] == "JSON_PATH":
        split_json_path(values["field"])


def _check_timestamp(values: Mapping[str, Any]) -> None:
    if values["target.type"] == "string" and values["format"] is None:
        raise ValueError("target.type=string needs format")


def _check_metadata(values: Mapping[str, Any]) -> None:
    if values["schema.name"] is None and values["schema.version"] is None:
        raise ValueError("set schema.name, schema.version or both")


def _check_header_from(values: Mapping[str, Any]) -> None:
    if len(values["fields"]) != len(values["headers"]):
        raise ValueError("fields and headers must have the same number of names")


_DEFAULTS = Option(
    "replace.null.with.default",
    "Whether a null becomes the default of its field, if the field has one. Connect's own default is `true`.",
    parse_boolean,
    default=False,
)
_REMOVED = {"blacklist": "exclude", "whitelist": "include"}

TRANSFORMS = (
    Declared(
        "Cast",
        "Casts fields, or the whole key or value, to a type.",
        (
            Option(
                "spec", f"`field:type` pairs, or one type. Types: {', '.join(CAST_TYPES)}.", parse_casts, required=True
            ),
            _DEFAULTS,
        ),
        sided=True,
    ),
    Declared(
        "DropHeaders",
        "Removes headers by name.",
        (Option("headers", "Names of the headers.", parse_names, required=True),),
    ),
    Declared(
        "ExtractField",
        "Replaces the key or value by one of its fields.",
        (
            Option("field", "The field.", parse_filled, required=True),
            _DEFAULTS,
            Option(
                "field.syntax.version",
                "`V1`: a top-level name; `V2`: dots reach into nested fields.",
                expect_one_of(("V1", "V2")),
                "V1",
            ),
        ),
        sided=True,
        check=lambda values: split_field_path(values["field"], values["field.syntax.version"]),
    ),
    Declared(
        "ExtractTopic",
        "Sets the topic to the key, the value, one of their fields, or a header.",
        (
            Option("field", "The field, or the header; empty: the whole key or value.", str, ""),
            Option(
                "field.format",
                "`PLAIN`: a name; `JSON_PATH`: a path of names.",
                expect_one_of(("PLAIN", "JSON_PATH")),
                "PLAIN",
            ),
            Option(
                "skip.missing.or.null",
                "`true`: a record without it keeps its topic; `false`: it fails.",
                parse_boolean,
                default=False,
            ),
        ),
        sided=True,
        headed=True,
        keeps_content=True,
        check=_check_extract_topic,
        package=CONFLUENT_PACKAGE,
    ),
    Declared("Filter", "Drops the records that its predicate is true for.", keeps_content=True),
    Declared(
        "Flatten",
        "Turns nested fields into top-level fields, with their names joined by the delimiter.",
        (Option("delimiter", "Text between the names.", str, "."),),
        sided=True,
    ),
    Declared(
        "HeaderFrom",
        "Moves or copies fields into headers.",
        (
            Option("fields", "Names of the fields.", parse_names, required=True),
            Option("headers", "Names of the headers, in the order of the fields.", parse_names, required=True),
            Option("operation", "`move` or `copy`.", _expect_exactly("move", "copy"), required=True),
            _DEFAULTS,
        ),
        sided=True,
        check=_check_header_from,
    ),
    Declared(
        "HoistField",
        "Makes the key or value the only field of a record.",
        (Option("field", "Name of the field.", parse_filled, required=True),),
        sided=True,
    ),
    Declared(
        "InsertField",
        "Adds fields with the record's metadata or a fixed value. A `!` after a name makes the field required.",
        (
            Option("topic.field", "Field for the topic.", parse_inserted),
            Option("partition.field", "Field for the kafka partition.", parse_inserted),
            Option("offset.field", "Field for the offset.", parse_inserted),
            Option("timestamp.field", "Field for the record's timestamp.", parse_inserted),
            Option("static.field", "Field for `static.value`.", parse_inserted),
            Option("static.value", "The fixed value.", is_secret=True),
            _DEFAULTS,
        ),
        sided=True,
        check=_check_insert,
    ),
    Declared(
        "InsertHeader",
        "Adds a header to each record.",
        (
            Option("header", "Name of the header.", required=True),
            Option("value.literal", "Its value; `null` is a null.", required=True, is_secret=True),
        ),
    ),
    Declared(
        "MaskField",
        "Replaces fields by the empty value of their type, or by a replacement.",
        (
            Option("fields", "Names of the fields.", parse_names, required=True),
            Option("replacement", "Replacement of numbers and strings.", parse_filled),
            _DEFAULTS,
        ),
        sided=True,
    ),
    Declared(
        "RegexRouter",
        "Renames topics whose whole name the regex matches.",
        (
            Option("regex", "A Java regular expression.", compile_java_regex, required=True),
            Option("replacement", "The new name; `$1` and `${name}` are groups.", required=True),
        ),
        keeps_content=True,
        check=lambda values: compile_java_replacement(values["replacement"], values["regex"]),
    ),
    Declared(
        "ReplaceField",
        "Drops, keeps or renames fields.",
        (
            Option("exclude", "Fields to drop. Overrides `include`.", parse_list, ()),
            Option("include", "The only fields to keep.", parse_list, ()),
            Option("renames", "`old:new` pairs.", parse_renames, {}),
            _DEFAULTS,
        ),
        sided=True,
        removed=_REMOVED,
    ),
    Declared(
        "SetSchemaMetadata",
        "Sets the name or the version of the schema.",
        (
            Option("schema.name", "The name.", _AVRO_NAME),
            Option("schema.version", "The version.", expect_integer(-(2**31), 2**31 - 1)),
            _DEFAULTS,
        ),
        sided=True,
        check=_check_metadata,
    ),
    Declared(
        "TimestampConverter",
        "Converts times between text, Unix time, and the types Date, Time and Timestamp.",
        (
            Option("field", "The field; empty: the whole key or value.", str, ""),
            Option(
                "target.type", f"One of {', '.join(TIMESTAMP_TYPES)}.", _expect_exactly(*TIMESTAMP_TYPES), required=True
            ),
            Option(
                "format",
                "A `SimpleDateFormat` pattern, in UTC.",
                lambda text: SimpleDateFormat(text) if text.strip() else None,
            ),
            Option(
                "unix.precision",
                f"One of {', '.join(UNIX_PRECISIONS)}.",
                _expect_exactly(*UNIX_PRECISIONS),
                "milliseconds",
            ),
            _DEFAULTS,
        ),
        sided=True,
        check=_check_timestamp,
    ),
    Declared(
        "TimestampRouter",
        "Renames topics by the record's timestamp.",
        (
            Option("topic.format", "Holds `${topic}` and `${timestamp}`.", str, "${topic}-${timestamp}"),
            Option(
                "timestamp.format",
                "A `SimpleDateFormat` pattern, in UTC.",
                SimpleDateFormat,
                SimpleDateFormat("yyyyMMdd"),
            ),
        ),
        keeps_content=True,
    ),
    Declared(
        "ValueToKey",
        "Replaces the key by a record of fields of the value.",
        (Option("fields", "Names of the fields.", parse_names, required=True), _DEFAULTS),
    ),
)

PREDICATES = (
    Declared(
        "HasHeaderKey",
        "True for records that have this header.",
        (Option("name", "Name of the header.", parse_filled, required=True),),
    ),
    Declared("RecordIsTombstone", "True for records without a value."),
    Declared(
        "TopicNameMatches",
        "True for records whose whole topic name the pattern matches.",
        (
            Option(
                "pattern",
                "A Java regular expression.",
                lambda text: compile_java_regex(parse_filled(text)),
                required=True,
            ),
        ),
    ),
)

TRANSFORM_TYPES = {name: declared for declared in TRANSFORMS for name in declared.types()}
PREDICATE_TYPES = {declared.name: declared for declared in PREDICATES}
