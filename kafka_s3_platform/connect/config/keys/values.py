"""Parsers of single values. Each raises ValueError with a reason to follow the key's name in a message.

The parsers for names of Java classes, full or short, return the implementation here.
"""

import re
from collections.abc import Callable, Collection, Mapping
from datetime import date, datetime, timedelta, timezone
from functools import cache
from typing import TypeVar, cast
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from kafka_s3_platform.connect.config.formats_of_connect import WRITTEN_FORMATS
from kafka_s3_platform.core.config import plugins
from kafka_s3_platform.core.config.plugins import Kind, load_class
from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform.core.java.joda_format import compile_path_format
from kafka_s3_platform.core.java.regex import compile_java_regex
from kafka_s3_platform.core.model.object_key import explain_bad_folders
from kafka_s3_platform.core.model.times import move_to_zone
from kafka_s3_platform.core.text import find_nearest

T = TypeVar("T")
Word = TypeVar("Word", bound=str)
Parser = Callable[[str], T]

NOT_HONOURED = "known, not honoured here"

_ZONES = """
ACT=Australia/Darwin AET=Australia/Sydney AGT=America/Argentina/Buenos_Aires ART=Africa/Cairo
AST=America/Anchorage BET=America/Sao_Paulo BST=Asia/Dhaka CAT=Africa/Harare CNT=America/St_Johns
CST=America/Chicago CTT=Asia/Shanghai EAT=Africa/Addis_Ababa ECT=Europe/Paris EST=Etc/GMT+5 HST=Etc/GMT+10
IET=America/Indiana/Indianapolis IST=Asia/Kolkata JST=Asia/Tokyo MIT=Pacific/Apia MST=Etc/GMT+7 NET=Asia/Yerevan
NST=Pacific/Auckland PLT=Asia/Karachi PNT=America/Phoenix PRT=America/Puerto_Rico PST=America/Los_Angeles
SST=Pacific/Guadalcanal VST=Asia/Ho_Chi_Minh
"""
JAVA_ZONES = dict(pair.split("=") for pair in _ZONES.split())
"""Java's short ids (`java.time.ZoneId.SHORT_IDS`). WET, CET, MET and EET are in the timezone database itself."""

_INTEGER = re.compile(r"[+-]?[0-9]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.?))", re.DOTALL)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "0": "\0", "\\": "\\"}


def expect_integer(low: int, high: int = 2**63 - 1) -> Parser[int]:
    """Return a parser of whole numbers from `low` to `high`, both included."""

    def parse(text: str) -> int:
        if not _INTEGER.fullmatch(text):
            raise ValueError(f"{text!r} is no whole number")
        if not low <= int(text) <= high:
            raise ValueError(f"{text} is not between {low} and {high}")
        return int(text)

    return parse


def _parse_number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{text!r} is no number") from None


def expect_match(pattern: str, what: str) -> Parser[str]:
    """Return a parser of texts that match an ASCII pattern. The error for any other text is that it is no `what`."""

    def parse(text: str) -> str:
        if not re.fullmatch(pattern, text, re.ASCII):
            raise ValueError(f"{text!r} is no {what}")
        return text

    return parse


def parse_rate(text: str) -> float:
    """Parse a rate per second, a number above 0."""
    number = _parse_number(text)
    if not 0 < number < float("inf"):
        raise ValueError(f"{text} is not above 0; leave the key out for no limit")
    return number


def parse_share(text: str) -> float:
    """Parse a share of a whole, a number from 0 to 1."""
    number = _parse_number(text)
    if not 0 <= number <= 1:
        raise ValueError(f"{text} is not from 0 to 1; 0.5 is a half")
    return number


def parse_boolean(text: str) -> bool:
    """Parse `true` or `false`, in any case, as Kafka does."""
    try:
        return {"true": True, "false": False}[text.casefold()]
    except KeyError:
        raise ValueError(f"{text!r} is neither true nor false") from None


def expect_one_of(words: Collection[Word]) -> Parser[Word]:
    """Return a parser of `words`, in any case. It returns them in their own spelling."""
    by_fold = {name.casefold(): name for name in words}

    def parse(text: str) -> Word:
        try:
            return by_fold[text.casefold()]
        except KeyError:
            raise ValueError(f"{text!r} is none of {', '.join(words)}") from None

    return parse


def expect_class(
    honoured: Mapping[str, T], refused: Mapping[str, str] = {}, *, plugin: Kind | None = None
) -> Parser[T]:
    """Return a parser of class names, full or short.

    Args:
        honoured: the classes, each with the parser's result for it.
        refused: the refused classes, or packages such as `com.acme.*`, each with advice.
        plugin: any other dotted name is a plug-in of this kind. It must load, and the parser returns its name.
    """
    names = _add_short_names(refused) | _add_short_names(honoured)

    def parse(text: str) -> T:
        full = names.get(text) or next((p for p in refused if p[-2:] == ".*" and text.startswith(p[:-1])), None)
        if full is None and plugin is not None and "." in text:
            return cast("T", load_plugin(text, plugin))
        if full is None:
            near = find_nearest(text, names)
            raise ValueError(f"{text!r} is unknown here" + (f"; did you mean {near}?" if near else ""))
        if full in honoured:
            return honoured[full]
        raise ValueError(f"{text} is {NOT_HONOURED}: {refused[full]}")

    return parse


def load_plugin(dotted: str, kind: Kind) -> str:
    """Return the dotted name of a user's class. Raise ValueError if it is no plug-in of this kind."""
    try:
        load_class(dotted, kind)
    except ConfigError as err:
        raise ValueError(f"{err.text} (Java classes cannot run here)") from err
    return dotted


def _add_short_names(classes: Mapping[str, object]) -> dict[str, str]:
    """Return all names of the classes, full and short. A short name of two classes stands for the first one."""
    short = {re.split(r"[.$]", full)[-1]: full for full in reversed(list(classes))}
    return short | {full: full for full in classes}


def is_topic_name(text: str) -> bool:
    """Return True if Kafka allows the text as a topic's name."""
    return re.fullmatch(_TOPIC, text) is not None


def expect_names(parse: Callable[[str], object]) -> Parser[tuple[str, ...]]:
    """Return a parser of names separated by commas, all accepted by `parse`. It returns each once, in order."""

    def parse_names(text: str) -> tuple[str, ...]:
        names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
        for name in names:
            parse(name)
        return names

    return parse_names


# Kafka's own rule.
_TOPIC = r"(?!\.\.?\Z)[a-zA-Z0-9._-]{1,249}"
parse_topic = expect_match(_TOPIC, "legal topic name: 1 to 249 letters, digits, '.', '_' and '-', and not '.' or '..'")


def parse_topics(text: str) -> tuple[str, ...]:
    """Parse topic names separated by commas. Each is returned once, in the order of the text."""
    if topics := expect_names(parse_topic)(text):
        return topics
    raise ValueError("names no topic")


def parse_java_regex(text: str) -> str:
    """Return the text if it is a Java regular expression supported here. Raise ValueError if not."""
    compile_java_regex(text)
    return text


parse_groups = expect_names(compile_java_regex)
"""Parses names and patterns of consumer groups, as MirrorMaker 2 has them in `groups`."""

# Dagster's own rule.
parse_owners = expect_names(
    expect_match(
        r"team:.+|[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,7}",
        "owner: write an email address, or a team as in team:data",
    )
)

parse_connector_name = expect_match(
    r"(?!\.\.?\Z)[a-zA-Z0-9._-]{1,200}",
    "usable name: 1 to 200 letters, digits, '.', '_' and '-', and not '.' or '..'",
)
"""Parses a name that can be used unchanged in object keys and asset keys."""

parse_bucket = expect_match(
    r"[a-zA-Z0-9][a-zA-Z0-9._-]{1,253}[a-zA-Z0-9]", "bucket name: 3 to 255 letters, digits, '.', '_' and '-'"
)
"""Parses the name of a bucket. Only its length and its characters are checked, because stores have their own rules."""


def parse_folder(text: str) -> str:
    """Parse a folder of the bucket. Slashes at its ends are removed."""
    folder = parse_folder_or_root(text)
    if not folder:
        raise ValueError("the bucket's root is not usable; name a folder")
    return folder


def parse_folder_or_root(text: str) -> str:
    """Parse a folder of the bucket. Slashes at its ends are removed. Return "" for the bucket's root."""
    folder = text.strip("/")
    if not folder:
        return ""
    if why := explain_bad_folders(folder):
        raise ValueError(f"{text!r} is no folder: it {why}")
    return folder


def is_nested(one: str, other: str) -> bool:
    """Return True if the two folders are the same, or one of them holds the other."""
    return f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")


def parse_endpoint_url(text: str) -> str:
    """Parse an endpoint: scheme and host, without a slash at the end."""
    # before the URL is parsed: a password may hold a character that ends a host
    if "@" in text:
        raise ValueError("holds credentials; set aws.access.key.id and aws.secret.access.key instead")
    parts = urlsplit(text)
    # not quoted whole: what follows may be a secret
    shown = re.split(r"[?#]", text)[0]
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.port == 0 or not _is_host(text):
        raise ValueError(f"{shown!r} is no endpoint such as https://s3.example.com")
    if parts.path.strip("/") or parts.query or parts.fragment:
        raise ValueError(f"{shown!r} names more than a host; an endpoint has no path, and nothing behind ? or #")
    return text.rstrip("/")


def parse_bootstrap_servers(text: str) -> str:
    """Parse pairs `host:port` separated by commas. If a listener's protocol precedes a pair, it is removed."""
    servers = [server.strip().rpartition("://")[2] for server in text.split(",") if server.strip()]
    if "@" in text:
        raise ValueError("holds credentials; set sasl.username and sasl.password instead")
    for server in servers:
        host, _, port = server.rpartition(":")
        if not host or not _is_host(host) or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
            raise ValueError(f"{server!r} is no host:port")
    if not servers:
        raise ValueError("names no broker")
    return ",".join(servers)


def _is_host(text: str) -> bool:
    """Return True if the text has no blanks, control characters, or characters that change the direction of text."""
    return text.isprintable() and " " not in text


# `find_broken_hour` compares the clocks week by week, for ten years ahead.
WEEK = timedelta(days=7)
YEARS_AHEAD = timedelta(days=3653)


def parse_timezone(text: str) -> str:
    """Parse a timezone known to this machine. Java's short ids are translated."""
    zone = JAVA_ZONES.get(text, text)
    try:
        ZoneInfo(zone)
    except (ValueError, OSError, KeyError):
        raise ValueError(f"{text!r} is no timezone; use an id such as UTC or Europe/Paris") from None
    return zone


parse_locale = expect_match(r"[a-zA-Z]{2,8}([_-][a-zA-Z0-9]{1,8})*", "locale id such as en or fr-FR")


def expect_path_format(locale: str = "en", directory_delim: str = "/") -> Parser[str]:
    """Return a parser of patterns of time folders, in the language `locale`. It removes delimiters at their end."""

    def parse(text: str) -> str:
        pattern = text.rstrip(directory_delim)
        if not pattern:
            raise ValueError("is empty; write a pattern such as 'year'=YYYY/'month'=MM/'day'=dd")
        compile_path_format(pattern, locale, directory_delim)
        return pattern

    return parse


def parse_fields(text: str) -> tuple[str, ...]:
    """Parse names of fields separated by commas, in the order of the text. No name may be empty or occur twice."""
    fields = tuple(name.strip() for name in text.split(","))
    if not all(fields) or len(set(fields)) < len(fields):
        raise ValueError(f"{text!r} names a field twice, or an empty one")
    return fields


def unescape_java(text: str) -> str:
    r"""Replace the escapes `\n`, `\r`, `\t`, `\0`, `\\` and `\uXXXX` by their characters, as in Java."""

    def character(match: re.Match[str]) -> str:
        code, name = match.groups()
        if code is None and name not in _ESCAPES:
            raise ValueError(f"'{match[0]}' is no escape; known are \\n, \\r, \\t, \\0, \\\\ and \\uXXXX")
        return chr(int(code, 16)) if code else _ESCAPES[name]

    return _ESCAPE.sub(character, text)


def parse_extension(text: str) -> str:
    """Parse an extension of a file name. A dot at its start is removed."""
    extension = text.removeprefix(".")
    if _CONTROL.search(extension) or "/" in extension:
        raise ValueError(f"{text!r} is no extension such as .bin")
    return extension


@cache
def find_broken_hour(zone: ZoneInfo, start: datetime) -> tuple[date, timedelta] | None:
    """Return the end of the first week after `start` in which clocks change by other than whole hours, and the change.

    Return None if there is no such week within ten years. Dagster names hours by the clock. After such a change, the
    hours it names no longer follow each other.
    """
    moment, end = start.astimezone(timezone.utc), datetime.now(timezone.utc) + YEARS_AHEAD
    offset = moment.astimezone(zone).utcoffset() or timedelta()
    while moment < end:
        moment += WEEK
        change = (moment.astimezone(zone).utcoffset() or timedelta()) - offset
        if change % timedelta(hours=1):
            return moment.date(), change
        offset += change
    return None


def expect_hour(zone: ZoneInfo) -> Parser[datetime]:
    """Return a parser of ISO 8601 hours, in `zone` unless they have an offset. It returns them in `zone`."""

    def parse(text: str) -> datetime:
        try:
            moment = datetime.fromisoformat(re.sub(r"[zZ]$", "+00:00", text))
        except ValueError:
            raise ValueError(f"{text!r} is no hour such as 2020-01-01T00:00") from None
        moment = move_to_zone(moment, zone)
        if moment.minute or moment.second or moment.microsecond:
            raise ValueError(f"{text!r} is not on the hour")
        return moment

    return parse


_PARTITIONERS = "io.confluent.connect.storage.partitioner."
_EXTRACTORS = _PARTITIONERS + "TimeBasedPartitioner$"
_PRIMITIVES = ("Boolean", "Short", "Integer", "Long", "Float", "Double")

FORMATS: Mapping[str, str] = {row.class_name: row.name for row in WRITTEN_FORMATS.values()}
FORMAT_CLASS: Parser[str] = expect_class(FORMATS, plugin=plugins.FORMAT)

PART_FORMAT_CLASS: Parser[str] = expect_class(
    {row.class_name: row.name for row in WRITTEN_FORMATS.values() if "key" in row.parts}
)
"""Parses the class name of the format for objects that hold keys or headers."""

PARTITIONER_CLASS: Parser[str] = expect_class(
    {_PARTITIONERS + f"{name}Partitioner": name for name in ("Default", "Field", "Hourly", "Daily", "TimeBased")},
    plugin=plugins.FOLDERS,
)

TIMESTAMP_EXTRACTOR: Parser[str] = expect_class(
    {
        "Record": "Record",
        "Wallclock": "Wallclock",
        "RecordField": "RecordField",
        _EXTRACTORS + "RecordTimestampExtractor": "Record",
        _EXTRACTORS + "WallclockTimestampExtractor": "Wallclock",
        _EXTRACTORS + "RecordFieldTimestampExtractor": "RecordField",
    },
    plugin=plugins.TIMESTAMP_EXTRACTOR,
)

CONVERTER_NAMES: Mapping[str, str] = {
    "BYTES": "org.apache.kafka.connect.converters.ByteArrayConverter",
    "STRING": "org.apache.kafka.connect.storage.StringConverter",
    "JSON": "org.apache.kafka.connect.json.JsonConverter",
    "JSON_SR": "io.confluent.connect.json.JsonSchemaConverter",
    "AVRO": "io.confluent.connect.avro.AvroConverter",
    "PROTOBUF": "io.confluent.connect.protobuf.ProtobufConverter",
}

CONVERTER_CLASS: Parser[str] = expect_class(
    {name: format_name for format_name, name in CONVERTER_NAMES.items()},
    {
        **{
            f"org.apache.kafka.connect.converters.{name}Converter": "say ByteArrayConverter to keep the bytes"
            for name in _PRIMITIVES
        },
        "com.amazonaws.services.schemaregistry.*": "Glue's schema registry and its 18 bytes before each value are not"
        " read. Without format.class, whole records are archived, and every byte comes back",
    },
    plugin=plugins.CONVERTER,
)
