"""Parsers of single values. Each raises ValueError with a reason that reads on after the key's name."""

import re
from collections.abc import Callable, Collection, Mapping
from datetime import date, datetime, timedelta, timezone
from functools import cache
from typing import TypeVar, cast
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from kafka_s3_platform.config.folders import refusal
from kafka_s3_platform.config.java_regex import compile_java_regex
from kafka_s3_platform.config.path_format import compile_path_format
from kafka_s3_platform.config.plugins import Kind, load_class
from kafka_s3_platform.config.table import nearest
from kafka_s3_platform.errors import ConfigError

T = TypeVar("T")
Word = TypeVar("Word", bound=str)
Parser = Callable[[str], T]

NOT_HONOURED = "known, not honoured here"

JAVA_ZONES = {
    "ACT": "Australia/Darwin",
    "AET": "Australia/Sydney",
    "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo",
    "AST": "America/Anchorage",
    "BET": "America/Sao_Paulo",
    "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare",
    "CNT": "America/St_Johns",
    "CST": "America/Chicago",
    "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa",
    "ECT": "Europe/Paris",
    "EST": "Etc/GMT+5",
    "HST": "Etc/GMT+10",
    "IET": "America/Indiana/Indianapolis",
    "IST": "Asia/Kolkata",
    "JST": "Asia/Tokyo",
    "MIT": "Pacific/Apia",
    "MST": "Etc/GMT+7",
    "NET": "Asia/Yerevan",
    "NST": "Pacific/Auckland",
    "PLT": "Asia/Karachi",
    "PNT": "America/Phoenix",
    "PRT": "America/Puerto_Rico",
    "PST": "America/Los_Angeles",
    "SST": "Pacific/Guadalcanal",
    "VST": "Asia/Ho_Chi_Minh",
}
"""Java's short ids (`java.time.ZoneId.SHORT_IDS`); WET, CET, MET and EET are in the timezone database itself."""

_INTEGER = re.compile(r"[+-]?[0-9]+")
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_CONNECTOR = re.compile(r"[a-zA-Z0-9._-]{1,200}")
_BUCKET = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{1,253}[a-zA-Z0-9]")
_LOCALE = re.compile(r"[a-zA-Z]{2,8}([_-][a-zA-Z0-9]{1,8})*")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.?))", re.DOTALL)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "0": "\0", "\\": "\\"}


def integer(low: int, high: int = 2**63 - 1) -> Parser[int]:
    """A whole number between `low` and `high`, both allowed."""

    def parse(text: str) -> int:
        if not _INTEGER.fullmatch(text):
            raise ValueError(f"{text!r} is no whole number")
        if not low <= int(text) <= high:
            raise ValueError(f"{text} is not between {low} and {high}")
        return int(text)

    return parse


def rate(text: str) -> float:
    """A number above 0, per second."""
    try:
        number = float(text)
    except ValueError:
        raise ValueError(f"{text!r} is no number") from None
    if not 0 < number < float("inf"):
        raise ValueError(f"{text} is not above 0; leave the key out for no limit")
    return number


def boolean(text: str) -> bool:
    """`true` or `false`, in any case, as Kafka has it."""
    try:
        return {"true": True, "false": False}[text.casefold()]
    except KeyError:
        raise ValueError(f"{text!r} is neither true nor false") from None


def choice(known: Collection[Word]) -> Parser[Word]:
    """One of `known`, in any case; comes back as written there."""
    by_fold = {name.casefold(): name for name in known}

    def parse(text: str) -> Word:
        try:
            return by_fold[text.casefold()]
        except KeyError:
            raise ValueError(f"{text!r} is none of {', '.join(known)}") from None

    return parse


def java_class(honoured: Mapping[str, T], refused: Mapping[str, str] = {}, *, plugin: Kind | None = None) -> Parser[T]:
    """A class by its full or short name. `refused` gives, for known ones, what to do instead.

    With `plugin`, another dotted name is that of a plug-in of this kind, which must load, and comes back as it is.
    """
    names = _with_short_names(refused) | _with_short_names(honoured)

    def parse(text: str) -> T:
        full = names.get(text)
        if full is None and plugin is not None and "." in text:
            return cast("T", _plugin(text, plugin))
        if full is None:
            near = nearest(text, names)
            raise ValueError(f"{text!r} is unknown here" + (f"; did you mean {near}?" if near else ""))
        if full in honoured:
            return honoured[full]
        raise ValueError(f"{text} is {NOT_HONOURED}: {refused[full]}")

    return parse


def _plugin(dotted: str, kind: Kind) -> str:
    try:
        load_class(dotted, kind)
    except ConfigError as err:
        raise ValueError(f"{err} (Java classes cannot run here)") from err
    return dotted


def _with_short_names(classes: Mapping[str, object]) -> dict[str, str]:
    """Of two classes with one short name, it is the first one's."""
    short = {re.split(r"[.$]", full)[-1]: full for full in reversed(list(classes))}
    return short | {full: full for full in classes}


def is_topic_name(text: str) -> bool:
    """Whether Kafka takes it for a topic's name."""
    return text not in {".", ".."} and _TOPIC.fullmatch(text) is not None


def topic_list(text: str) -> tuple[str, ...]:
    """Topic names separated by commas: trimmed, each once, in the order given."""
    topics = dict.fromkeys(name.strip() for name in text.split(",") if name.strip())
    if not topics:
        raise ValueError("names no topic")
    for topic in topics:
        if not is_topic_name(topic):
            raise ValueError(
                f"{topic!r} is no legal topic name: 1 to 249 letters, digits, '.', '_' and '-', and not '.' or '..'"
            )
    return tuple(topics)


def group_list(text: str) -> tuple[str, ...]:
    """Names and patterns of consumer groups separated by commas, as MirrorMaker 2's `groups` has them."""
    patterns = tuple(dict.fromkeys(p.strip() for p in text.split(",") if p.strip()))
    for pattern in patterns:
        compile_java_regex(pattern)
    return patterns


def connector_name(text: str) -> str:
    """A name that can stand in object keys and asset keys as it is."""
    if text in {".", ".."} or not _CONNECTOR.fullmatch(text):
        raise ValueError(f"{text!r} is no usable name: 1 to 200 letters, digits, '.', '_' and '-', and not '.' or '..'")
    return text


def bucket_name(text: str) -> str:
    """Three or more characters that a bucket name may hold; the store judges the rest."""
    if not _BUCKET.fullmatch(text):
        raise ValueError(f"{text!r} is no bucket name: 3 to 255 letters, digits, '.', '_' and '-'")
    return text


def directory(text: str) -> str:
    """A folder of the bucket, without slashes at its ends."""
    folder = folder_or_root(text)
    if not folder:
        raise ValueError("the bucket's root is not usable; name a folder")
    return folder


def folder_or_root(text: str) -> str:
    """A folder of the bucket, without slashes at its ends; empty for the bucket's root."""
    folder = text.strip("/")
    if not folder:
        return ""
    if why := refusal(folder):
        raise ValueError(f"{text!r} is no folder: it {why}")
    return folder


def nested(one: str, other: str) -> bool:
    """Whether one folder is the other, or holds it."""
    return f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")


def url(text: str) -> str:
    """An endpoint: scheme and host, without a trailing slash."""
    # before it is parsed: a password may hold what ends a host
    if "@" in text:
        raise ValueError("holds credentials; set aws.access.key.id and aws.secret.access.key instead")
    parts = urlsplit(text)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.port == 0 or not _is_host(text):
        raise ValueError(f"{text!r} is no endpoint such as https://s3.example.com")
    if parts.path.strip("/") or parts.query or parts.fragment:
        raise ValueError(f"{text!r} names more than a host; an endpoint has no path")
    return text.rstrip("/")


def bootstrap_servers(text: str) -> str:
    """`host:port` pairs separated by commas; a listener's protocol in front of them is dropped."""
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
    """Whether it has no blanks, control characters or such as turn the direction of what follows."""
    return text.isprintable() and " " not in text


WEEK = timedelta(days=7)
YEARS_AHEAD = timedelta(days=3653)


def timezone_id(text: str) -> str:
    """A timezone that the machine knows, Java's short ids translated."""
    zone = JAVA_ZONES.get(text, text)
    try:
        ZoneInfo(zone)
    except (ValueError, OSError, KeyError):
        raise ValueError(f"{text!r} is no timezone; use an id such as UTC or Europe/Paris") from None
    return zone


def locale_id(text: str) -> str:
    """A well-formed locale id."""
    if not _LOCALE.fullmatch(text):
        raise ValueError(f"{text!r} is no locale id such as en or fr-FR")
    return text


def path_format(locale: str = "en", directory_delim: str = "/") -> Parser[str]:
    """A pattern that can be formatted in `locale` and is not empty, without delimiters at its end."""

    def parse(text: str) -> str:
        pattern = text.rstrip(directory_delim)
        if not pattern:
            raise ValueError("is empty; write a pattern such as 'year'=YYYY/'month'=MM/'day'=dd")
        compile_path_format(pattern, locale, directory_delim)
        return pattern

    return parse


def field_list(text: str) -> tuple[str, ...]:
    """Names of fields separated by commas, in the order given; none of them twice or empty."""
    fields = tuple(name.strip() for name in text.split(","))
    if not all(fields) or len(set(fields)) < len(fields):
        raise ValueError(f"{text!r} names a field twice, or an empty one")
    return fields


def unescaped(text: str) -> str:
    r"""Text whose `\n`, `\r`, `\t`, `\0`, `\\` and `\uXXXX` stand for characters, as in Java."""

    def character(match: re.Match[str]) -> str:
        code, name = match.groups()
        if code is None and name not in _ESCAPES:
            raise ValueError(f"'{match[0]}' is no escape; known are \\n, \\r, \\t, \\0, \\\\ and \\uXXXX")
        return chr(int(code, 16)) if code else _ESCAPES[name]

    return _ESCAPE.sub(character, text)


def extension(text: str) -> str:
    """The end of a file name, without its leading dot."""
    found = text.removeprefix(".")
    if _CONTROL.search(found) or "/" in found:
        raise ValueError(f"{text!r} is no extension such as .bin")
    return found


@cache
def broken_hour(zone: ZoneInfo, start: datetime) -> tuple[date, timedelta] | None:
    """The week in which the clocks first change by no whole hours after `start`, and by how much. None: they never do.

    Dagster names hours by the clock, and steps over that change to others than those that follow each other. It is
    looked for up to ten years ahead of now.
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


def hour(zone: ZoneInfo) -> Parser[datetime]:
    """An ISO 8601 hour, in `zone` unless it has an offset. Comes back in `zone`."""

    def parse(text: str) -> datetime:
        try:
            moment = datetime.fromisoformat(re.sub(r"[zZ]$", "+00:00", text))
        except ValueError:
            raise ValueError(f"{text!r} is no hour such as 2020-01-01T00:00") from None
        return _hour_in(zone, moment, text)

    return parse


def _hour_in(zone: ZoneInfo, moment: datetime, text: str) -> datetime:
    moment = moment.astimezone(zone) if moment.tzinfo else in_zone(moment, zone)
    if moment.minute or moment.second or moment.microsecond:
        raise ValueError(f"{text!r} is not on the hour")
    return moment


def in_zone(local: datetime, zone: ZoneInfo) -> datetime:
    """The moment when clocks of `zone` show `local`. ValueError where they never do, or do twice."""
    first, second = (local.replace(tzinfo=zone, fold=fold) for fold in (0, 1))
    if first.utcoffset() == second.utcoffset():
        return first
    # A wall time that a clock change skips comes back from UTC as another one.
    if first.astimezone(timezone.utc).astimezone(zone).replace(tzinfo=None) != local:
        raise ValueError(f"'{local.isoformat()}' does not exist in {zone.key}: the clocks go forward then")
    raise ValueError(
        f"'{local.isoformat()}' is twice in {zone.key}, where the clocks go back: write which one is meant, "
        f"{first.isoformat()} or {second.isoformat()}"
    )
