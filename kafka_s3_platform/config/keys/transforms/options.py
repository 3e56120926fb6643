"""Parsers for the options of transforms and predicates. They read texts as Kafka does."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from kafka_s3_platform.java.regex import compile_java_regex
from kafka_s3_platform.java.simple_date_format import SimpleDateFormat

CAST_TYPES = ("int8", "int16", "int32", "int64", "float32", "float64", "boolean", "string")

_AVRO_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)


@dataclass(frozen=True)
class Inserted:
    """A field added by InsertField."""

    name: str
    required: bool


def parse_one_of(*allowed: str) -> Callable[[str], str]:
    """Return a parser of the `allowed` words."""

    def parse(text: str) -> str:
        if text not in allowed:
            raise ValueError(f"'{text}' is none of {', '.join(allowed)}")
        return text

    return parse


def parse_bool(text: str) -> bool:
    """Parse `true` or `false`, in any case."""
    return parse_one_of("true", "false")(text.strip().lower()) == "true"


def parse_int(text: str) -> int:
    """Parse a whole number."""
    if not re.fullmatch(r"[+-]?\d+", text.strip()):
        raise ValueError(f"'{text}' is no whole number")
    return int(text)


def parse_filled(text: str) -> str:
    """Return the text. It must not be empty."""
    if not text:
        raise ValueError("must not be empty")
    return text


def parse_list(text: str) -> tuple[str, ...]:
    """Parse names separated by commas. An empty text has none."""
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
    """Parse pairs of an old name and a new name."""
    pairs = [pair.split(":") for pair in parse_list(text)]
    if any(len(pair) != 2 or not all(pair) for pair in pairs):
        raise ValueError(f"'{text}' is no list of old:new pairs, such as foo:bar,abc:xyz")
    return {pair[0]: pair[1] for pair in pairs}


def parse_casts(text: str) -> dict[str | None, str]:
    """Parse pairs of a field and its type. The field None is the whole value."""
    pairs = [[part.strip() for part in spec.split(":")] for spec in parse_names(text)]
    casts: dict[str | None, str] = {(pair[0] if pair[1:] else None): pair[-1].lower() for pair in pairs}
    if any(len(pair) > 2 for pair in pairs) or not set(casts.values()) <= set(CAST_TYPES):
        raise ValueError(f"'{text}' is no type and no list of field:type pairs; types: {', '.join(CAST_TYPES)}")
    if None in casts and len(pairs) > 1:
        raise ValueError(f"'{text}': a type for the whole value stands alone")
    return casts


def parse_inserted(text: str) -> Inserted:
    """Parse a field to add. `!` after its name makes it required. With `?`, or without both, it is optional."""
    name = text.removesuffix("!") if text.endswith("!") else text.removesuffix("?")
    return Inserted(parse_filled(name), text.endswith("!"))


def parse_avro_name(text: str) -> str:
    """Parse the full name of an Avro schema."""
    if not _AVRO_NAME.fullmatch(text):
        raise ValueError(f"'{text}' is no name of an Avro schema, such as com.example.Order")
    return text


def parse_pattern(text: str) -> re.Pattern[str]:
    """Parse a Java regular expression."""
    return compile_java_regex(parse_filled(text))


def parse_date_format(text: str) -> SimpleDateFormat | None:
    """Parse a pattern of Java's SimpleDateFormat. An empty text is None."""
    return SimpleDateFormat(text) if text.strip() else None


def parse_required_date_format(text: str) -> SimpleDateFormat:
    """Parse a pattern of Java's SimpleDateFormat."""
    return SimpleDateFormat(text)


def parse_syntax(text: str) -> str:
    """Parse the syntax of field names. V1 has no nested fields."""
    return parse_one_of("V1", "V2")(text.upper())


def split_field_path(text: str, syntax: str) -> tuple[str, ...]:
    """Split a field's path into names, outermost first. V2 splits at dots outside of backticks, as in Kafka's KIP-821.

    Raises:
        ValueError: a backtick is never closed.
    """
    if syntax == "V1":
        return (text,)
    steps, at = [], 0
    while at < len(text):
        step, at = _split_quoted_step(text, at) if text[at] == "`" else _split_plain_step(text, at)
        steps.append(step)
    return (*steps, "") if text.endswith(".") else tuple(steps)


def _split_plain_step(text: str, at: int) -> tuple[str, int]:
    step = text[at:].split(".", 1)[0]
    return step, at + len(step) + 1


def _split_quoted_step(text: str, at: int) -> tuple[str, int]:
    r"""Return the name between backticks. A backtick closes before a dot or the end, if no backslash precedes it."""
    for closing in re.finditer(r"`(?=\.|$)", text[at + 1 :]):
        end = at + 1 + closing.start()
        if text[end - 1] != "\\":
            return re.sub(r"\\`(?=\.)", "`", text[at + 1 : end]), end + 2
    raise ValueError(f"'{text}': the backtick at position {at} is not closed; a backslash before it escapes it")


def parse_field_format(text: str) -> str:
    """Parse the format of a field: a plain name or a JSON path."""
    return parse_one_of("PLAIN", "JSON_PATH")(text.strip().upper() or "PLAIN")


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
