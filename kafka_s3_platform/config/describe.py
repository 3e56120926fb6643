"""What the keys of a connector's class are: the required ones, and the others with their defaults."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pydantic import SecretStr

from kafka_s3_platform.config.clients import Scope
from kafka_s3_platform.config.dialects import (
    AIVEN,
    ARCHIVE,
    CONNECT,
    CONNECT_SOURCE,
    CONNECTOR_CLASS,
    DIALECTS,
    LENSES,
    LENSES_SOURCE,
    Dialect,
)
from kafka_s3_platform.config.keys import ALL_KEYS
from kafka_s3_platform.config.mapping import resolve
from kafka_s3_platform.config.mapping_source import OF_WRITING
from kafka_s3_platform.config.parse import ConnectorFile
from kafka_s3_platform.config.settings import LayoutSettings
from kafka_s3_platform.config.table import REQUIRED, Key, Support
from kafka_s3_platform.config.worker import Worker

_DEFAULTS: Mapping[str, Callable[[LayoutSettings], object]] = {
    "topics.dir": lambda layout: layout.topics_dir,
    "s3.prefix": lambda layout: layout.topics_dir,
    "format.class": lambda layout: layout.format,
    "partitioner.class": lambda layout: layout.partitioner,
    "path.format": lambda layout: layout.path_format,
    "timestamp.extractor": lambda layout: layout.timestamp_extractor,
    "archive.key.layout": lambda layout: layout.key_layout,
    "flush.size": lambda layout: layout.flush_size,
    "file.max.records": lambda layout: layout.flush_size,
    "rotate.interval.ms": lambda layout: layout.rotate_interval_ms,
    "s3.compression.type": lambda layout: layout.codec,
    "file.compression.type": lambda layout: layout.codec,
}
"""What a file of a class comes to that does not name the key. Other keys are the same for all classes."""

_SMALLEST = {
    "topics": "t",
    "s3.bucket.name": "bucket",
    "kafka.endpoint": "broker:9092",
    "value.converter": "ByteArrayConverter",
}
_OF_LENSES = {"s3.bucket.name": "", "value.converter": "StringConverter"}
_MORE: Mapping[Dialect, Mapping[str, str]] = {
    AIVEN: {"format.output.fields.value.encoding": "none"},
    LENSES: {**_OF_LENSES, "connect.s3.kcql": "INSERT INTO bucket SELECT * FROM t"},
    LENSES_SOURCE: {**_OF_LENSES, "connect.s3.kcql": "INSERT INTO t SELECT * FROM bucket"},
}
"""Without which a file of the class does not load."""


@dataclass(frozen=True)
class DescribedKey:
    """A key that is honoured. `default` is empty where there is none."""

    key: str
    default: str
    doc: str


@dataclass(frozen=True)
class Description:
    """A class of connectors. `required_there` are the keys that the original requires and that have a default here."""

    class_name: str
    title: str
    required: tuple[DescribedKey, ...]
    required_there: tuple[DescribedKey, ...]
    optional: tuple[DescribedKey, ...]


def describe(class_name: str) -> Description:
    """The keys of a class, by its full or short name.

    Raises:
        ValueError: the class is not known, or is not a sink.
    """
    dialect = CONNECTOR_CLASS(class_name)
    keys = [key for key in ALL_KEYS if key.support is Support.HONOURED and _is_of(key.name, dialect)]
    described = {key.name: _described(key, dialect) for key in keys}
    required = _required(dialect)
    there = [name for name in dialect.required_there if name not in required]
    rest = [name for name in described if name not in {*required, *there}]
    return Description(
        dialect.class_name,
        dialect.title,
        tuple(described[name] for name in required),
        tuple(described.get(name) or DescribedKey(name, "", _unhonoured(name)) for name in there),
        tuple(described[name] for name in rest),
    )


def _required(dialect: Dialect) -> tuple[str, ...]:
    """In the class's own words where it has some."""
    needed = [key.name for key in ALL_KEYS if (key.default or "").startswith(REQUIRED) and key.alias_of is None]
    alias = {key.alias_of: key.name for key in ALL_KEYS if key.name in dialect.required_there and key.alias_of}
    # A source without topics reads every one that it finds.
    without = {*dialect.implied, *(["topics"] if dialect.is_source else [])}
    return tuple(alias.get(name, name) for name in needed if name not in without and _is_of(name, dialect))


def _described(key: Key, dialect: Dialect) -> DescribedKey:
    general = key.default or ""
    if key.name not in _DEFAULTS or dialect in (CONNECT, CONNECT_SOURCE, ARCHIVE):
        return DescribedKey(key.name, general, key.doc)
    layout = _smallest(dialect)
    is_compressed = layout.format.partition(".")[0] in {"json", "bytes", "aiven"}
    if "compression" in key.name and not is_compressed:
        return DescribedKey(key.name, general, key.doc)
    own = _DEFAULTS[key.name](layout)
    return DescribedKey(key.name, "none" if own in (None, "") else str(own), key.doc)


@cache
def _smallest(dialect: Dialect) -> LayoutSettings:
    """What a file of this class comes to that names no more than it must."""
    own = {"connector.class": dialect.class_name, **_SMALLEST, **_MORE.get(dialect, {})}
    entries = {name: SecretStr(value) for name, value in own.items() if value}
    nothing: Mapping[Scope, Mapping[str, SecretStr]] = {"common": {}, "consumer": {}, "producer": {}, "admin": {}}
    worker = Worker(Path("worker.properties"), exists=False, bootstrap_servers="", properties=nothing, findings=())
    found = resolve(ConnectorFile(Path("smallest.json"), "smallest", entries), worker, {}).config
    assert found is not None  # noqa: S101 - a class whose smallest file is refused is a fault of these tables
    return found.layout


def _unhonoured(name: str) -> str:
    return next(key.doc for key in ALL_KEYS if key.name == name)


def _is_of(name: str, dialect: Dialect) -> bool:
    """Whether the key belongs to the words of this class: it is its own, or no other's."""
    if dialect.is_source and name in OF_WRITING:
        return False
    others = (other for other in DIALECTS if other is not dialect and other is not ARCHIVE)
    return _is_one_of(name, dialect.own_keys) or not any(_is_one_of(name, other.own_keys) for other in others)


def _is_one_of(name: str, keys: tuple[str, ...]) -> bool:
    return any(name == key or (key.endswith((".", "_")) and name.startswith(key)) for key in keys)
