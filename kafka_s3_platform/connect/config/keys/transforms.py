"""Reads the transforms of a connector file in their order, each with its options and its predicate."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import SecretStr

from kafka_s3_platform.connect.config.keys.transform_catalogue import (
    CONFLUENT_PACKAGE,
    PACKAGE,
    PREDICATE_PACKAGE,
    PREDICATE_TYPES,
    TRANSFORM_TYPES,
    Declared,
    Option,
    parse_list,
)
from kafka_s3_platform.connect.config.keys.values import parse_boolean
from kafka_s3_platform.core.config.plugins import MAPPER, load_class
from kafka_s3_platform.core.config.settings import PredicateSettings, TransformSettings, is_python_class
from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform.core.java.regex import replace_whole_match
from kafka_s3_platform.core.text import find_nearest


def parse_transforms(entries: Mapping[str, str]) -> tuple[TransformSettings, ...]:
    """Parse the keys `transforms`, `transforms.<alias>.*` and the keys of predicates into steps, in their order.

    Other keys are ignored.

    Raises:
        ValueError: an alias, class or option is not known, or a value is not allowed. The error names the key.
    """
    predicates = {p.alias: p for p in _parse_predicates(entries)}
    return tuple(
        _parse_transform(alias, options, predicates)
        for alias, options in _group_by_alias(entries, "transforms").items()
    )


def check_transform(settings: TransformSettings) -> None:
    """Build a step, as a trial. If this fails, raise ValueError with the fault and the allowed values."""
    key = f"transforms.{settings.alias}"
    if is_python_class(settings):
        try:
            load_class(settings.type, MAPPER)
        except ConfigError as error:
            raise ValueError(f"{key}.type: {error.text}{_suggest_name(settings.type, TRANSFORM_TYPES)}") from error
    else:
        parse_options(settings)
    if settings.type == "Filter" and settings.predicate is None:
        raise ValueError(f"{key}: Filter without a predicate would drop every record; set {key}.predicate")


def find_public_options(type_: str) -> frozenset[str]:
    """Return the options of a transform or predicate whose values may be shown, as its class declares them."""
    if "." in type_:
        try:
            declared = getattr(load_class(type_, MAPPER), "public_options", ())
        except ConfigError:
            return frozenset()
        return frozenset(declared if isinstance(declared, frozenset | set | tuple | list) else ())
    builtin = TRANSFORM_TYPES.get(type_) or PREDICATE_TYPES.get(type_)
    if builtin:
        return frozenset(option.name for option in builtin.options if not option.is_secret)
    return frozenset()


def find_public_keys(entries: Mapping[str, str]) -> Iterator[str]:
    """Yield the keys of transforms and predicates whose values may be shown, even if `parse_transforms` fails."""
    for prefix, package, types in (
        ("transforms", PACKAGE, TRANSFORM_TYPES),
        ("predicates", PREDICATE_PACKAGE, PREDICATE_TYPES),
    ):
        for name in entries:
            if name.startswith(f"{prefix}.") and name.endswith(".type"):
                section = name.removesuffix("type")
                type_ = _take_type(section, {"type": entries[name]}, package, types)
                options = (*find_public_options(type_), "type", "predicate", "negate")
                yield from (f"{section}{option}" for option in options)


def keeps_content(settings: TransformSettings) -> bool:
    """Return True if keys, values and headers stay unchanged, so the native envelope can hold the records."""
    declared = TRANSFORM_TYPES.get(settings.type)
    return declared is not None and declared.keeps_content


def route_topic(steps: Iterable[TransformSettings], topic: str) -> str:
    """Return a topic's name after the routers, with `${timestamp}` in it, or `topic` if it depends on each record."""
    routed = topic
    for step in steps:
        if is_python_class(step) or step.type.startswith("ExtractTopic"):
            return topic
        if _is_selected(step, routed) and step.type == "RegexRouter":
            values = parse_options(step)
            routed = replace_whole_match(routed, values["regex"], values["replacement"])
        elif _is_selected(step, routed) and step.type == "TimestampRouter":
            routed = parse_options(step)["topic.format"].replace("${topic}", routed)
    return routed


def _is_selected(step: TransformSettings, topic: str) -> bool:
    """Return True if a step changes all records of a topic."""
    if step.predicate is None or step.predicate.type != "TopicNameMatches":
        return step.predicate is None
    return (parse_options(step.predicate)["pattern"].fullmatch(topic) is not None) != step.negate


def find_java_class(type_: str) -> str:
    """Return the full Java class name of a transform or predicate. A user's dotted Python name stays unchanged."""
    if "." in type_:
        return type_
    declared = TRANSFORM_TYPES.get(type_)
    package = declared.package if declared else PREDICATE_PACKAGE if type_ in PREDICATE_TYPES else PACKAGE
    return package + type_


def parse_options(settings: TransformSettings | PredicateSettings) -> dict[str, Any]:
    """Return the value of each option, or its default.

    Raises:
        ValueError: an option is not known or missing, or a value is not allowed. The error names the key.
    """
    is_transform = isinstance(settings, TransformSettings)
    key = f"{'transforms' if is_transform else 'predicates'}.{settings.alias}"
    declared = (TRANSFORM_TYPES if is_transform else PREDICATE_TYPES)[settings.type]
    _refuse_unknown(key, declared, settings.options)
    values = {option.name: _parse_option(key, settings.type, option, settings.options) for option in declared.options}
    if settings.type.endswith("$Header") and (not values["field"] or values["field.format"] != "PLAIN"):
        raise ValueError(f"{key} ({settings.type}): needs a header's name as field, and field.format PLAIN")
    try:
        declared.check(values)
    except ValueError as error:
        raise ValueError(f"{key} ({settings.type}): {error}") from error
    return values


def _refuse_unknown(key: str, declared: Declared, options: Iterable[str]) -> None:
    """Raise ValueError if a transform or predicate has an option its class does not have."""
    allowed_names = [option.name for option in declared.options]
    for name in options:
        if name not in allowed_names:
            removed = (declared.removed or {}).get(name)
            hint = f"; Kafka 4.0 calls it {removed}" if removed else _suggest_name(name, allowed_names)
            allowed = f"its options: {', '.join(allowed_names)}" if allowed_names else "it has none"
            raise ValueError(f"{key}.{name}: {declared.name} has no such option{hint}; {allowed}")


def _parse_option(key: str, type_: str, option: Option, options: Mapping[str, SecretStr]) -> Any:
    """Return an option's value, or its default. Raise ValueError if it is required and missing, or not allowed."""
    if option.name not in options:
        if option.required:
            raise ValueError(f"{key}.{option.name}: {type_} needs it. {option.doc}")
        return option.default
    try:
        return option.parse(options[option.name].get_secret_value())
    except ValueError as error:
        raise ValueError(f"{key}.{option.name}: {error}") from error


def _parse_predicates(entries: Mapping[str, str]) -> Iterator[PredicateSettings]:
    """Yield the predicates of a file's entries."""
    for alias, options in _group_by_alias(entries, "predicates").items():
        type_ = _take_type(f"predicates.{alias}", options, PREDICATE_PACKAGE, PREDICATE_TYPES)
        if type_ not in PREDICATE_TYPES:
            raise _explain_unknown_type(f"predicates.{alias}", type_, "predicate", PREDICATE_TYPES)
        settings = PredicateSettings(alias=alias, type=type_, options=_hide_options(options))
        parse_options(settings)
        yield settings


def _parse_transform(
    alias: str, options: dict[str, str], predicates: Mapping[str, PredicateSettings]
) -> TransformSettings:
    """Return the transform of this alias. Keys that are no options of its class are removed from `options`."""
    key = f"transforms.{alias}"
    type_ = _take_type(key, options, PACKAGE, TRANSFORM_TYPES)
    if type_ not in TRANSFORM_TYPES and not _may_be_python(type_):
        raise _explain_unknown_type(key, type_, "transform", TRANSFORM_TYPES)
    predicate = _take_predicate(key, options, predicates)
    negate = _take_negate(key, options, predicate)
    settings = TransformSettings(
        alias=alias, type=type_, options=_hide_options(options), predicate=predicate, negate=negate
    )
    check_transform(settings)
    return settings


def _hide_options(options: Mapping[str, str]) -> dict[str, SecretStr]:
    return {name: SecretStr(value) for name, value in options.items()}


def _may_be_python(type_: str) -> bool:
    """Return True if a transform's class may be a user's Python class, judging by its name."""
    return "." in type_ and "$" not in type_ and not type_.startswith("org.apache.kafka.")


def _take_type(key: str, options: dict[str, str], package: str, types: Iterable[str]) -> str:
    """Remove the type from `options`, and return it as a short class name."""
    if "type" not in options:
        raise ValueError(f"{key}.type is missing: one of {', '.join(types)}, by full or short name")
    type_name = options.pop("type").strip()
    confluent = type_name.removeprefix(CONFLUENT_PACKAGE)
    short = confluent if confluent in types else type_name.removeprefix(package)
    return short if "." not in short else type_name


def _explain_unknown_type(key: str, type_: str, what: str, types: Iterable[str]) -> ValueError:
    """Return the error for an unknown class. `what` is `transform` or `predicate`."""
    python = " or your own Python class by its dotted name" if what == "transform" else ""
    return ValueError(
        f"{key}.type: unknown {what} '{type_}'{_suggest_name(type_, types)}; known: {', '.join(types)}{python}"
    )


def _take_predicate(
    key: str, options: dict[str, str], predicates: Mapping[str, PredicateSettings]
) -> PredicateSettings | None:
    """Remove the predicate's alias from a transform's options, and return the predicate, or None if there is none."""
    alias = options.pop("predicate", "").strip()
    if alias and alias not in predicates:
        listed = f"predicates lists {', '.join(predicates)}" if predicates else "predicates lists none"
        raise ValueError(
            f"{key}.predicate: unknown predicate alias '{alias}'{_suggest_name(alias, predicates)}; {listed}"
        )
    return predicates.get(alias)


def _take_negate(key: str, options: dict[str, str], predicate: PredicateSettings | None) -> bool:
    """Remove `negate` from a transform's options, and return its value. If True, the predicate is negated."""
    if "negate" not in options:
        return False
    if predicate is None:
        raise ValueError(f"{key}.negate: there is no {key}.predicate to negate")
    try:
        return parse_boolean(options.pop("negate"))
    except ValueError as error:
        raise ValueError(f"{key}.negate: {error}") from error


def _group_by_alias(entries: Mapping[str, str], prefix: str) -> dict[str, dict[str, str]]:
    """Return the options of each alias in the list under the key `prefix`, in its order."""
    aliases = parse_list(entries.get(prefix, ""))
    if len(set(aliases)) < len(aliases) or not all(aliases):
        raise ValueError(f"{prefix}: '{entries[prefix]}' holds an alias twice, or an empty one")
    sections: dict[str, dict[str, str]] = {alias: {} for alias in aliases}
    for key, value in entries.items():
        if key.startswith(f"{prefix}."):
            alias = _find_alias(key, prefix, aliases)
            sections[alias][key.removeprefix(f"{prefix}.{alias}.")] = value
    return sections


def _find_alias(key: str, prefix: str, aliases: tuple[str, ...]) -> str:
    """Return the alias that a key belongs to. An alias may have dots, so the longest match is chosen."""
    rest = key.removeprefix(f"{prefix}.")
    fitting = [alias for alias in aliases if rest.startswith(f"{alias}.")]
    if not fitting:
        near = _suggest_name(rest.split(".")[0], aliases)
        raise ValueError(f"{key}: {prefix} does not list this alias{near}")
    return max(fitting, key=len)


def _suggest_name(word: str, words: Iterable[str]) -> str:
    """Return the names nearest to `word`, as the end of a message. A class without its side may mean each side."""
    names = list(words)
    sides = [name for name in names if name.startswith(f"{word.removeprefix(PACKAGE)}$")]
    near = " or ".join(sides) or find_nearest(word.rpartition(".")[2] or word, names)
    return f"; did you mean {near}?" if near else ""
