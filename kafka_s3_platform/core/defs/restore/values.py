"""Converts values of a restore's config to the values of its request, and limits the files a config may name."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime, timezone
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform.core.model.times import move_to_zone

if TYPE_CHECKING:
    from kafka_s3_platform.core.restore.request import Offsets

_takes_paths: ContextVar[bool] = ContextVar("takes_paths", default=False)


@contextmanager
def allow_paths() -> Iterator[None]:
    """Let runs in this block name any file, as a person started them here. Other runs name files of one folder."""
    token = _takes_paths.set(True)
    try:
        yield
    finally:
        _takes_paths.reset(token)


def takes_paths() -> bool:
    """Return True if the config of this run may name any file of this machine."""
    return _takes_paths.get()


HEX = "hex:"


def read_record_keys(name: str, texts: Sequence[str]) -> tuple[bytes, ...]:
    """Return the bytes of the keys in option `name`: UTF-8 text, or `hex:ff00`. Raises ConfigError for other digits."""
    keys = []
    for text in texts:
        try:
            keys.append(bytes.fromhex(text.removeprefix(HEX)) if text.startswith(HEX) else text.encode())
        except ValueError as err:
            raise ConfigError(f"{name} {text!r}: {err}") from err
    return tuple(keys)


def read_key_prefixes(name: str, texts: Sequence[str]) -> tuple[bytes, ...]:
    """Return the bytes of key prefixes, as `read_record_keys` does. Raises ConfigError for an empty one."""
    prefixes = read_record_keys(name, texts)
    if b"" in prefixes:
        raise ConfigError(f"{name} has an empty text, with which every key begins: leave it out")
    return prefixes


def read_numbers(_: str, numbers: Sequence[int]) -> tuple[int, ...] | None:
    """Return the chosen kafka partitions, or None for all of them."""
    return tuple(numbers) or None


def read_first_topics(_: str, names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of topics."""
    return tuple(names)


def read_offsets(name: str, offsets: Mapping[str, int]) -> "Offsets":
    """Return one offset for all kafka partitions, one for each of some, or None.

    Raises ConfigError for other names.
    """
    if not offsets:
        return None
    if set(offsets) == {"all"}:
        return offsets["all"]
    if not all(text.isdecimal() for text in offsets):
        raise ConfigError(f"{name} {dict(offsets)}: name kafka partitions by number, or all of them by `all` alone")
    by_kafka_partition = {int(text): offset for text, offset in offsets.items()}
    if len(by_kafka_partition) < len(offsets):
        raise ConfigError(f"{name} {dict(offsets)}: names a kafka partition twice")
    return by_kafka_partition


def read_time(name: str, text: str, zone: ZoneInfo) -> datetime:
    """Return an ISO 8601 time, in UTC.

    A time without a UTC offset is a time of `zone`. Raises ConfigError for other texts.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as err:
        raise ConfigError(f"{name} {text!r} is no ISO 8601 time, such as 2013-01-31T15:00; correct it") from err
    try:
        # Python compares times of one zone by their clocks, which show an hour twice when they go back.
        return move_to_zone(moment, zone).astimezone(timezone.utc)
    except ValueError as err:
        raise ConfigError(f"{name} {text!r}: {err}") from err
