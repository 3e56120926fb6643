"""What the keys of a connector's class are: the required ones, and the others with their defaults."""

from dataclasses import dataclass

from kafka_s3_platform.config.dialects import ARCHIVE, CONNECTOR_CLASS, DIALECTS, Dialect
from kafka_s3_platform.config.keys import ALL_KEYS
from kafka_s3_platform.config.mapping_source import OF_WRITING
from kafka_s3_platform.config.table import REQUIRED, Key, Support

_DEFAULTS = {
    "topics.dir": "topics_dir",
    "s3.prefix": "topics_dir",
    "format.class": "format",
    "partitioner.class": "partitioner",
    "archive.key.layout": "key_layout",
    "flush.size": "flush_size",
    "file.max.records": "flush_size",
}


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
    return tuple(alias.get(name, name) for name in needed if name not in without)


def _described(key: Key, dialect: Dialect) -> DescribedKey:
    own = getattr(dialect, _DEFAULTS[key.name]) if key.name in _DEFAULTS else None
    return DescribedKey(key.name, key.default or "" if own is None else str(own) or "none", key.doc)


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
