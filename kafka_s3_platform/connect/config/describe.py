"""Describes the keys of a connector class and their defaults, and reports the effect of each key of a file.

To report on a file, it is not necessary to load it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pydantic import SecretStr

from kafka_s3_platform.connect.config.dialects import (
    AIVEN,
    ARCHIVE,
    CLOUD,
    CONNECT,
    CONNECT_SOURCE,
    CONNECTOR_CLASS,
    DIALECTS,
    LENSES,
    LENSES_SOURCE,
    Dialect,
)
from kafka_s3_platform.connect.config.keys.clients import Scope
from kafka_s3_platform.connect.config.keys.config_file import KeyFinding
from kafka_s3_platform.connect.config.keys.table import REQUIRED, Key, Support
from kafka_s3_platform.connect.config.mapping import ALL_KEYS, CONNECTOR_KEYS, resolve_connector
from kafka_s3_platform.connect.config.worker import Worker, load_worker
from kafka_s3_platform.core.config.formats import find_format
from kafka_s3_platform.core.config.parse import ConnectorFile, read_connector_file
from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.errors import ConfigError


@dataclass(frozen=True)
class CheckReport:
    """The findings for every key of a connector file and of its worker.properties.

    `problems` are errors of a file as a whole, which then has no findings. `config` is None unless the connector loads.
    """

    path: Path
    worker: Path
    name: str | None
    findings: tuple[KeyFinding, ...]
    worker_findings: tuple[KeyFinding, ...]
    problems: tuple[str, ...]
    config: ConnectorConfig | None

    @property
    def ok(self) -> bool:
        """True if the connector loads."""
        return self.config is not None

    @property
    def connector_class(self) -> str:
        """The class as it is written in the file, or the default class if the file names none."""
        return next((f.value for f in self.findings if f.key == "connector.class"), CONNECT.short_name)


def check_report(path: Path, worker: Path, env: Mapping[str, str]) -> CheckReport:
    """Check a connector file together with a worker.properties. Their faults are reported, not raised."""
    try:
        cluster = load_worker(worker, env)
    except ConfigError as err:
        return CheckReport(path, worker, None, (), (), (str(err),), None)
    try:
        file = read_connector_file(path)
    except ConfigError as err:
        return CheckReport(path, worker, None, (), cluster.findings, (str(err),), None)
    resolution = resolve_connector(file, cluster)
    usable = all(finding.support is not Support.REFUSED for finding in cluster.findings)
    config = resolution.config if usable else None
    return CheckReport(path, worker, resolution.name, resolution.findings, cluster.findings, (), config)


_DEFAULTS: Mapping[str, Callable[[ConnectorConfig], object]] = {
    "topics.dir": lambda config: config.layout.topics_dir,
    "s3.prefix": lambda config: config.layout.topics_dir,
    "format.class": lambda config: find_format(config.layout.format).short_class_name or config.layout.format,
    "partitioner.class": lambda config: f"{config.layout.partitioner}Partitioner",
    "path.format": lambda config: config.layout.path_format,
    "timestamp.extractor": lambda config: config.layout.timestamp_extractor,
    "archive.key.layout": lambda config: config.layout.key_layout,
    "flush.size": lambda config: config.layout.flush_size,
    "file.max.records": lambda config: config.layout.flush_size,
    "rotate.interval.ms": lambda config: config.layout.rotate_interval_ms,
    "s3.compression.type": lambda config: config.layout.codec,
    "file.compression.type": lambda config: config.layout.codec,
    "errors.tolerance": lambda config: config.records.errors.tolerance,
    "errors.deadletterqueue.topic.name": lambda config: config.records.errors.dead_letter_topic,
    "errors.deadletterqueue.context.headers.enable": lambda config: config.records.errors.dead_letter_headers,
}
"""The keys whose default depends on the class, with the way to find it. Other defaults are the same for all classes."""

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
"""The keys that the smallest file of a class needs besides `_SMALLEST`, or "" for a key that it does not need."""


@dataclass(frozen=True)
class DescribedKey:
    """An honoured key. `default` is empty if the key has no default."""

    key: str
    default: str
    doc: str


@dataclass(frozen=True)
class Description:
    """A connector class. `required_there` are keys required by the original class, but optional here."""

    class_name: str
    title: str
    required: tuple[DescribedKey, ...]
    required_there: tuple[DescribedKey, ...]
    optional: tuple[DescribedKey, ...]


def describe_class(class_name: str) -> Description:
    """Return the keys of a class, by its full or short name.

    Raises:
        ValueError: the class is not known.
    """
    dialect = CONNECTOR_CLASS(class_name)
    keys = [key for key in ALL_KEYS if key.support is Support.HONOURED and _belongs_to(key.name, dialect)]
    described = {key.name: _describe_key(key, dialect) for key in keys}
    required = _list_required(dialect)
    docs = {key.name: key.doc for key in ALL_KEYS}
    there = [name for name in dialect.required_there if name not in required]
    rest = [name for name in described if name not in {*required, *there}]
    return Description(
        dialect.class_name,
        dialect.title,
        tuple(described[name] for name in required),
        tuple(described.get(name) or DescribedKey(name, "", docs[name]) for name in there),
        tuple(described[name] for name in rest),
    )


def _list_required(dialect: Dialect) -> tuple[str, ...]:
    """List the required keys, each under this class's own name for it."""
    needed = [key.name for key in ALL_KEYS if (key.default or "").startswith(REQUIRED) and key.alias_of is None]
    alias = {key.alias_of: key.name for key in ALL_KEYS if key.name in dialect.required_there and key.alias_of}
    # A source for which no `topics` are set reads every topic that it finds.
    without = {*dialect.implied, *(["topics"] if dialect.is_source else [])}
    return tuple(alias.get(name, name) for name in needed if name not in without and _belongs_to(name, dialect))


def _describe_key(key: Key, dialect: Dialect) -> DescribedKey:
    """Return a key with its default in files of this class. To find it, resolve the smallest such file."""
    general = key.default or ""
    is_general = dialect in (CONNECT, CONNECT_SOURCE, ARCHIVE) and CLOUD.class_name not in general
    if key.name not in _DEFAULTS or is_general:
        return DescribedKey(key.name, general, key.doc)
    config = _resolve_smallest(dialect)
    is_compressed = config.layout.format.partition(".")[0] in {"json", "bytes", "aiven"}
    if "compression" in key.name and not is_compressed:
        return DescribedKey(key.name, general, key.doc)
    default = _DEFAULTS[key.name](config)
    text = str(default).lower() if isinstance(default, bool) else str(default or "none")
    return DescribedKey(key.name, text.replace(config.name, "<name>"), key.doc)


@cache
def _resolve_smallest(dialect: Dialect) -> ConnectorConfig:
    """Resolve the smallest file of this class, with only the required keys."""
    texts = {"connector.class": dialect.class_name, **_SMALLEST, **_MORE.get(dialect, {})}
    entries = {name: SecretStr(value) for name, value in texts.items() if value}
    nothing: Mapping[Scope, Mapping[str, SecretStr]] = {"common": {}, "consumer": {}, "producer": {}, "admin": {}}
    worker = Worker(Path("worker.properties"), exists=False, bootstrap_servers="", properties=nothing, findings=())
    config = resolve_connector(ConnectorFile(Path("smallest.json"), "smallest", entries), worker).config
    assert config is not None  # noqa: S101 - a class whose smallest file is refused is a fault of these tables
    return config


def _belongs_to(name: str, dialect: Dialect) -> bool:
    """Return True if files of this class may use the key, because it belongs to this class or to no other one."""
    key = CONNECTOR_KEYS.find(name)
    if dialect.is_source and key is not None and key.for_sinks:
        return False
    others = (other for other in DIALECTS if other is not dialect and other is not ARCHIVE)
    return _is_listed(name, dialect.own_keys) or not any(_is_listed(name, other.own_keys) for other in others)


def _is_listed(name: str, keys: tuple[str, ...]) -> bool:
    """Return True if a key is in `keys`, or begins with one of them that ends in `.` or `_`."""
    return any(name == key or (key.endswith((".", "_")) and name.startswith(key)) for key in keys)
