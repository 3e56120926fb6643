"""Connect's single message transforms and predicates: names, options, defaults, and how a connector file sets them.

Source: the `ConfigDef` of each class of Apache Kafka 4.3's `org.apache.kafka.connect.transforms`, and for ExtractTopic
Confluent's page "ExtractTopic SMT Usage Reference".
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import SecretStr

from kafka_s3_platform.config.java_regex import compile_java_regex, compile_java_replacement
from kafka_s3_platform.config.plugins import MAPPER, load_class
from kafka_s3_platform.config.settings import PredicateSettings, TransformSettings
from kafka_s3_platform.config.simple_date_format import SimpleDateFormat
from kafka_s3_platform.config.table import nearest
from kafka_s3_platform.errors import ConfigError

PACKAGE = "org.apache.kafka.connect.transforms."
PREDICATE_PACKAGE = PACKAGE + "predicates."
CONFLUENT_PACKAGE = "io.confluent.connect.transforms."

CAST_TYPES = ("int8", "int16", "int32", "int64", "float32", "float64", "boolean", "string")
TIMESTAMP_TYPES = ("string", "unix", "Date", "Time", "Timestamp")
UNIX_PRECISIONS = ("nanoseconds", "microseconds", "milliseconds", "seconds")

_AVRO_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)


@dataclass(frozen=True)
class Option:
    """One option of a class. `parse` turns its text into a value, or raises ValueError with what is allowed.

    One that `is_secret` holds content, which is not shown.
    """

    name: str
    doc: str
    parse: Callable[[str], Any] = str
    default: Any = None
    required: bool = False
    is_secret: bool = False


@dataclass(frozen=True)
class Declared:
    """A transform or a predicate. `sided`: it comes as `$Key` and `$Value`, `headed`: as `$Header` too.

    `check` sees all values together.
    """

    name: str
    doc: str
    options: tuple[Option, ...] = ()
    sided: bool = False
    keeps_content: bool = False
    removed: Mapping[str, str] | None = None
    check: Callable[[Mapping[str, Any]], None] = lambda _: None
    headed: bool = False
    package: str = PACKAGE

    def types(self) -> tuple[str, ...]:
        if not self.sided:
            return (self.name,)
        sides = ("Key", "Value", "Header") if self.headed else ("Key", "Value")
        return tuple(f"{self.name}${side}" for side in sides)


@dataclass(frozen=True)
class Inserted:
    """A field that InsertField adds."""

    name: str
    required: bool


def _one_of(*allowed: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in allowed:
            raise ValueError(f"'{text}' is none of {', '.join(allowed)}")
        return text

    return parse


def _bool(text: str) -> bool:
    return _one_of("true", "false")(text.strip().lower()) == "true"


def _int(text: str) -> int:
    if not re.fullmatch(r"[+-]?\d+", text.strip()):
        raise ValueError(f"'{text}' is no whole number")
    return int(text)


def _filled(text: str) -> str:
    if not text:
        raise ValueError("must not be empty")
    return text


def _list(text: str) -> tuple[str, ...]:
    return tuple(re.split(r"\s*,\s*", text.strip())) if text.strip() else ()


def _names(text: str) -> tuple[str, ...]:
    names = _list(text)
    if not all(names) or not names:
        raise ValueError("needs one name or more, separated by commas")
    return names


def _renames(text: str) -> dict[str, str]:
    pairs = [pair.split(":") for pair in _list(text)]
    if any(len(pair) != 2 or not all(pair) for pair in pairs):
        raise ValueError(f"'{text}' is no list of old:new pairs, such as foo:bar,abc:xyz")
    return {pair[0]: pair[1] for pair in pairs}


def _casts(text: str) -> dict[str | None, str]:
    """Field to type. The whole value is the field None."""
    pairs = [[part.strip() for part in spec.split(":")] for spec in _names(text)]
    casts: dict[str | None, str] = {(pair[0] if pair[1:] else None): pair[-1].lower() for pair in pairs}
    if any(len(pair) > 2 for pair in pairs) or not set(casts.values()) <= set(CAST_TYPES):
        raise ValueError(f"'{text}' is no type and no list of field:type pairs; types: {', '.join(CAST_TYPES)}")
    if None in casts and len(pairs) > 1:
        raise ValueError(f"'{text}': a type for the whole value stands alone")
    return casts


def _inserted(text: str) -> Inserted:
    name = text.removesuffix("!") if text.endswith("!") else text.removesuffix("?")
    return Inserted(_filled(name), text.endswith("!"))


def _avro_name(text: str) -> str:
    if not _AVRO_NAME.fullmatch(text):
        raise ValueError(f"'{text}' is no name of an Avro schema, such as com.example.Order")
    return text


def _pattern(text: str) -> re.Pattern[str]:
    return compile_java_regex(_filled(text))


def _date_format(text: str) -> SimpleDateFormat | None:
    return SimpleDateFormat(text) if text.strip() else None


def _required_date_format(text: str) -> SimpleDateFormat:
    return SimpleDateFormat(text)


def _syntax(text: str) -> str:
    return _one_of("V1", "V2")(text.upper())


def field_path(text: str, syntax: str) -> tuple[str, ...]:
    """The names from the outside in of a field. V2 splits at dots, but not inside backticks, as Kafka's KIP-821 says.

    Raises:
        ValueError: a backtick that is never closed.
    """
    if syntax == "V1":
        return (text,)
    steps, at = [], 0
    while at < len(text):
        step, at = _quoted_step(text, at) if text[at] == "`" else _plain_step(text, at)
        steps.append(step)
    return (*steps, "") if text.endswith(".") else tuple(steps)


def _plain_step(text: str, at: int) -> tuple[str, int]:
    step = text[at:].split(".", 1)[0]
    return step, at + len(step) + 1


def _quoted_step(text: str, at: int) -> tuple[str, int]:
    r"""A backtick closes only before a dot or the end, and not behind a backslash."""
    for closing in re.finditer(r"`(?=\.|$)", text[at + 1 :]):
        end = at + 1 + closing.start()
        if text[end - 1] != "\\":
            return re.sub(r"\\`(?=\.)", "`", text[at + 1 : end]), end + 2
    raise ValueError(f"'{text}': the backtick at position {at} is not closed; a backslash before it escapes it")


def _field_format(text: str) -> str:
    return _one_of("PLAIN", "JSON_PATH")(text.strip().upper() or "PLAIN")


def _check_router(values: Mapping[str, Any]) -> None:
    compile_java_replacement(values["replacement"], values["regex"])


def _check_insert(values: Mapping[str, Any]) -> None:
    if not any(isinstance(value, Inserted) for value in values.values()):
        raise ValueError(
            "no field to insert: set topic.field, partition.field, offset.field, timestamp.field or static.field"
        )
    if values["static.field"] and values["static.value"] is None:
        raise ValueError("static.field needs static.value")


def _check_extract(values: Mapping[str, Any]) -> None:
    field_path(values["field"], values["field.syntax.version"])


def _check_extract_topic(values: Mapping[str, Any]) -> None:
    if values["field.format"] == "JSON_PATH":
        json_path(values["field"])


_JSON_PATH_STEP = re.compile(r"""\.(\w+)|\[(\d+)\]|\['([^']*)'\]|\["([^"]*)"\]""")


def json_path(text: str) -> tuple[str | int, ...]:
    """The names and indices of a JSON path that leads to one place, such as `$["f1"]["f3"]` or `$.f1[0]`.

    Raises:
        ValueError: it is none.
    """
    steps = list(_JSON_PATH_STEP.finditer(text, 1))
    if not text.startswith("$") or sum(len(step[0]) for step in steps) != len(text) - 1:
        raise ValueError(f'\'{text}\' is no JSON path of names and indices, such as $["f1"]["f3"] or $.f1[0]')
    return tuple(int(step[2]) if step[2] else next(g for g in step.group(1, 3, 4) if g is not None) for step in steps)


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
    "Whether a null becomes the default of its field, where it has one.",
    _bool,
    default=True,
)
_REMOVED = {"blacklist": "exclude", "whitelist": "include"}

TRANSFORMS = (
    Declared(
        "Cast",
        "Casts fields, or the whole key or value, to a type.",
        (
            Option("spec", f"`field:type` pairs, or one type. Types: {', '.join(CAST_TYPES)}.", _casts, required=True),
            _DEFAULTS,
        ),
        sided=True,
    ),
    Declared(
        "DropHeaders",
        "Removes headers by name.",
        (Option("headers", "Names of the headers.", _names, required=True),),
    ),
    Declared(
        "ExtractField",
        "The key or value becomes one of its fields.",
        (
            Option("field", "The field.", _filled, required=True),
            _DEFAULTS,
            Option(
                "field.syntax.version", "`V1`: a top-level name; `V2`: dots reach into nested fields.", _syntax, "V1"
            ),
        ),
        sided=True,
        check=_check_extract,
    ),
    Declared(
        "ExtractTopic",
        "The topic becomes what the key, the value, a field of them or a header says.",
        (
            Option("field", "The field, or the header; empty: the whole key or value.", str, ""),
            Option("field.format", "`PLAIN`: a name; `JSON_PATH`: a path of names.", _field_format, "PLAIN"),
            Option(
                "skip.missing.or.null", "Whether a record without it keeps its topic, or fails.", _bool, default=False
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
        "Nested fields become top-level fields, their names joined by the delimiter.",
        (Option("delimiter", "Between the names.", str, "."),),
        sided=True,
    ),
    Declared(
        "HeaderFrom",
        "Moves or copies fields into headers.",
        (
            Option("fields", "Names of the fields.", _names, required=True),
            Option("headers", "Names of the headers, in the order of the fields.", _names, required=True),
            Option("operation", "`move` or `copy`.", _one_of("move", "copy"), required=True),
            _DEFAULTS,
        ),
        sided=True,
        check=_check_header_from,
    ),
    Declared(
        "HoistField",
        "The key or value becomes the only field of a record.",
        (Option("field", "Name of the field.", _filled, required=True),),
        sided=True,
    ),
    Declared(
        "InsertField",
        "Adds fields from the record's metadata, or a fixed one. A `!` behind a name makes it required.",
        (
            Option("topic.field", "Field for the topic.", _inserted),
            Option("partition.field", "Field for the kafka partition.", _inserted),
            Option("offset.field", "Field for the offset.", _inserted),
            Option("timestamp.field", "Field for the record's timestamp.", _inserted),
            Option("static.field", "Field for `static.value`.", _inserted),
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
            Option("fields", "Names of the fields.", _names, required=True),
            Option("replacement", "What numbers and strings become.", _filled),
            _DEFAULTS,
        ),
        sided=True,
    ),
    Declared(
        "RegexRouter",
        "Renames topics that the regex matches as a whole.",
        (
            Option("regex", "A Java regular expression.", compile_java_regex, required=True),
            Option("replacement", "The new name; `$1` and `${name}` are groups.", required=True),
        ),
        keeps_content=True,
        check=_check_router,
    ),
    Declared(
        "ReplaceField",
        "Drops, keeps or renames fields.",
        (
            Option("exclude", "Fields to drop; goes before `include`.", _list, ()),
            Option("include", "The only fields to keep.", _list, ()),
            Option("renames", "`old:new` pairs.", _renames, {}),
            _DEFAULTS,
        ),
        sided=True,
        removed=_REMOVED,
    ),
    Declared(
        "SetSchemaMetadata",
        "Sets the name or the version of the schema.",
        (
            Option("schema.name", "The name.", _avro_name),
            Option("schema.version", "The version.", _int),
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
            Option("target.type", f"One of {', '.join(TIMESTAMP_TYPES)}.", _one_of(*TIMESTAMP_TYPES), required=True),
            Option("format", "A `SimpleDateFormat` pattern, in UTC.", _date_format),
            Option(
                "unix.precision", f"One of {', '.join(UNIX_PRECISIONS)}.", _one_of(*UNIX_PRECISIONS), "milliseconds"
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
                _required_date_format,
                SimpleDateFormat("yyyyMMdd"),
            ),
        ),
        keeps_content=True,
    ),
    Declared(
        "ValueToKey",
        "The key becomes a record of fields of the value.",
        (Option("fields", "Names of the fields.", _names, required=True), _DEFAULTS),
    ),
)

PREDICATES = (
    Declared(
        "HasHeaderKey",
        "True for records with such a header.",
        (Option("name", "Name of the header.", _filled, required=True),),
    ),
    Declared("RecordIsTombstone", "True for records without a value."),
    Declared(
        "TopicNameMatches",
        "True for records whose topic the pattern matches as a whole.",
        (Option("pattern", "A Java regular expression.", _pattern, required=True),),
    ),
)

_TRANSFORM_TYPES = {name: declared for declared in TRANSFORMS for name in declared.types()}
_PREDICATE_TYPES = {declared.name: declared for declared in PREDICATES}


def parse_transforms(entries: Mapping[str, str]) -> tuple[TransformSettings, ...]:
    """The steps that `transforms`, `transforms.<alias>.*`, `predicates` and `predicates.<alias>.*` describe, in order.

    Other keys are not looked at.

    Raises:
        ValueError: an alias, class or option that is not known, or a value that is not allowed; names the key.
    """
    predicates = {p.alias: p for p in _parsed_predicates(entries)}
    return tuple(_transform(alias, options, predicates) for alias, options in _sections(entries, "transforms").items())


def check(settings: TransformSettings) -> None:
    """Whether a step can be built: ValueError says what is wrong with it, and what is allowed."""
    key = f"transforms.{settings.alias}"
    if is_python_class(settings):
        try:
            load_class(settings.type, MAPPER)
        except ConfigError as error:
            raise ValueError(f"{key}.type: {error}{_meant(settings.type, _TRANSFORM_TYPES)}") from error
    else:
        option_values(settings)
    if settings.type == "Filter" and settings.predicate is None:
        raise ValueError(f"{key}: Filter without a predicate would drop every record; set {key}.predicate")


def is_python_class(settings: TransformSettings) -> bool:
    """Whether the step is a user's own class."""
    return "." in settings.type


def public_options(type_: str) -> frozenset[str]:
    """The options of a transform or predicate that may be shown: those that its class says so of. No other may."""
    if "." in type_:
        try:
            declared = getattr(load_class(type_, MAPPER), "public_options", ())
        except ConfigError:
            return frozenset()
        return frozenset(declared if isinstance(declared, frozenset | set | tuple | list) else ())
    found = _TRANSFORM_TYPES.get(type_) or _PREDICATE_TYPES.get(type_)
    return frozenset(option.name for option in found.options if not option.is_secret) if found else frozenset()


def public_keys(entries: Mapping[str, str]) -> Iterator[str]:
    """The keys of those that `parse_transforms` reads whose values may be shown, also where it refuses them."""
    for prefix, package, types in (
        ("transforms", PACKAGE, _TRANSFORM_TYPES),
        ("predicates", PREDICATE_PACKAGE, _PREDICATE_TYPES),
    ):
        for name in entries:
            if name.startswith(f"{prefix}.") and name.endswith(".type"):
                section = name.removesuffix("type")
                type_ = _type(section, {"type": entries[name]}, package, types)
                options = (*public_options(type_), "type", "predicate", "negate")
                yield from (f"{section}{option}" for option in options)


def keeps_content(settings: TransformSettings) -> bool:
    """Whether keys, values and headers stay as they came, so that the native envelope can hold the records."""
    declared = _TRANSFORM_TYPES.get(settings.type)
    return declared is not None and declared.keeps_content


def java_class(type_: str) -> str:
    """The full Java class name of a transform or predicate; a user's dotted Python name stays as it is."""
    if "." in type_:
        return type_
    declared = _TRANSFORM_TYPES.get(type_)
    package = declared.package if declared else PREDICATE_PACKAGE if type_ in _PREDICATE_TYPES else PACKAGE
    return package + type_


def option_values(settings: TransformSettings | PredicateSettings) -> dict[str, Any]:
    """Each option's value, its default where it is not set.

    Raises:
        ValueError: an unknown option, a missing one, or a value that is not allowed; names the key.
    """
    is_transform = isinstance(settings, TransformSettings)
    key = f"{'transforms' if is_transform else 'predicates'}.{settings.alias}"
    declared = (_TRANSFORM_TYPES if is_transform else _PREDICATE_TYPES)[settings.type]
    _refuse_unknown(key, declared, settings.options)
    values = {option.name: _value(key, settings.type, option, settings.options) for option in declared.options}
    if settings.type.endswith("$Header") and (not values["field"] or values["field.format"] != "PLAIN"):
        raise ValueError(f"{key} ({settings.type}): needs a header's name as field, and field.format PLAIN")
    try:
        declared.check(values)
    except ValueError as error:
        raise ValueError(f"{key} ({settings.type}): {error}") from error
    return values


def _refuse_unknown(key: str, declared: Declared, options: Iterable[str]) -> None:
    known = [option.name for option in declared.options]
    for name in options:
        if name not in known:
            removed = (declared.removed or {}).get(name)
            hint = f"; Kafka 4.0 calls it {removed}" if removed else _meant(name, known)
            allowed = f"its options: {', '.join(known)}" if known else "it has none"
            raise ValueError(f"{key}.{name}: {declared.name} has no such option{hint}; {allowed}")


def _value(key: str, type_: str, option: Option, options: Mapping[str, SecretStr]) -> Any:
    if option.name not in options:
        if option.required:
            raise ValueError(f"{key}.{option.name}: {type_} needs it. {option.doc}")
        return option.default
    try:
        return option.parse(options[option.name].get_secret_value())
    except ValueError as error:
        raise ValueError(f"{key}.{option.name}: {error}") from error


def _parsed_predicates(entries: Mapping[str, str]) -> Iterator[PredicateSettings]:
    for alias, options in _sections(entries, "predicates").items():
        type_ = _type(f"predicates.{alias}", options, PREDICATE_PACKAGE, _PREDICATE_TYPES)
        if type_ not in _PREDICATE_TYPES:
            raise _unknown_type(f"predicates.{alias}", type_, "predicate", _PREDICATE_TYPES)
        settings = PredicateSettings(alias=alias, type=type_, options=_secrets(options))
        option_values(settings)
        yield settings


def _transform(alias: str, options: dict[str, str], predicates: Mapping[str, PredicateSettings]) -> TransformSettings:
    key = f"transforms.{alias}"
    type_ = _type(key, options, PACKAGE, _TRANSFORM_TYPES)
    if type_ not in _TRANSFORM_TYPES and not _may_be_python(type_):
        raise _unknown_type(key, type_, "transform", _TRANSFORM_TYPES)
    predicate = _predicate(key, options, predicates)
    negate = _negate(key, options, predicate)
    settings = TransformSettings(alias=alias, type=type_, options=_secrets(options), predicate=predicate, negate=negate)
    check(settings)
    return settings


def _secrets(options: Mapping[str, str]) -> dict[str, SecretStr]:
    return {name: SecretStr(value) for name, value in options.items()}


def _may_be_python(type_: str) -> bool:
    return "." in type_ and "$" not in type_ and not type_.startswith("org.apache.kafka.")


def _type(key: str, options: dict[str, str], package: str, types: Iterable[str]) -> str:
    """The short class name. Takes it out of `options`."""
    if "type" not in options:
        raise ValueError(f"{key}.type is missing: one of {', '.join(types)}, by full or short name")
    given = options.pop("type").strip()
    confluent = given.removeprefix(CONFLUENT_PACKAGE)
    short = confluent if confluent in types else given.removeprefix(package)
    return short if "." not in short else given


def _unknown_type(key: str, type_: str, what: str, types: Iterable[str]) -> ValueError:
    python = " or your own Python class by its dotted name" if what == "transform" else ""
    return ValueError(f"{key}.type: unknown {what} '{type_}'{_meant(type_, types)}; known: {', '.join(types)}{python}")


def _predicate(
    key: str, options: dict[str, str], predicates: Mapping[str, PredicateSettings]
) -> PredicateSettings | None:
    alias = options.pop("predicate", "").strip()
    if alias and alias not in predicates:
        listed = f"predicates lists {', '.join(predicates)}" if predicates else "predicates lists none"
        raise ValueError(f"{key}.predicate: unknown predicate alias '{alias}'{_meant(alias, predicates)}; {listed}")
    return predicates.get(alias)


def _negate(key: str, options: dict[str, str], predicate: PredicateSettings | None) -> bool:
    if "negate" not in options:
        return False
    if predicate is None:
        raise ValueError(f"{key}.negate: there is no {key}.predicate to negate")
    try:
        return _bool(options.pop("negate"))
    except ValueError as error:
        raise ValueError(f"{key}.negate: {error}") from error


def _sections(entries: Mapping[str, str], prefix: str) -> dict[str, dict[str, str]]:
    """The options of each alias that `prefix` lists, in its order."""
    aliases = _list(entries.get(prefix, ""))
    if len(set(aliases)) < len(aliases) or not all(aliases):
        raise ValueError(f"{prefix}: '{entries[prefix]}' holds an alias twice, or an empty one")
    sections: dict[str, dict[str, str]] = {alias: {} for alias in aliases}
    for key, value in entries.items():
        if key.startswith(f"{prefix}."):
            alias = _alias(key, prefix, aliases)
            sections[alias][key.removeprefix(f"{prefix}.{alias}.")] = value
    return sections


def _alias(key: str, prefix: str, aliases: tuple[str, ...]) -> str:
    rest = key.removeprefix(f"{prefix}.")
    fitting = [alias for alias in aliases if rest.startswith(f"{alias}.")]
    if not fitting:
        near = _meant(rest.split(".")[0], aliases)
        raise ValueError(f"{key}: {prefix} does not list this alias{near}")
    return max(fitting, key=len)


def _meant(word: str, known: Iterable[str]) -> str:
    """What `word` was perhaps meant to be. A class without its side is near to both."""
    names = list(known)
    sides = [name for name in names if name.startswith(f"{word.removeprefix(PACKAGE)}$")]
    near = " or ".join(sides) or nearest(word.rpartition(".")[2] or word, names)
    return f"; did you mean {near}?" if near else ""
