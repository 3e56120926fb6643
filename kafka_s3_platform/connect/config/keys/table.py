"""Declares keys: the effect of each, its parser, and the field of the settings it fills.

A key is declared once, with its parser and its meaning. Its default is the default of its field. The check report,
`kafka-s3 describe` and `docs/connector-files.md` take them from here.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, TypeVar

from kafka_s3_platform.core.config.settings import Settings
from kafka_s3_platform.core.text import find_nearest

T = TypeVar("T")

NOT_YET = "known, not honoured by this version yet"


class Support(Enum):
    """The effect of a key in this version."""

    HONOURED = "honoured"
    WITHOUT_MEANING = "accepted without meaning here"
    NOT_YET = NOT_YET
    REFUSED = "refused"


@dataclass(frozen=True)
class Key:
    """A key, or a family of keys if `name` ends in `.*`.

    `neutral` are the values of an unsupported key that have no effect. They are accepted, so a file with Connect's
    defaults loads. `alias_of` is the key an alias stands for; the alias's value is read under this key's name. If
    `for_sinks`, the key concerns the writing of objects, and means nothing to a source connector. If `keeps_blanks`,
    the blanks around a value belong to it. An empty value means `blank`, which is empty for keys that are not set then.
    """

    name: str
    support: Support
    doc: str
    default: str | None = None
    neutral: tuple[str, ...] = ()
    alias_of: str | None = None
    for_sinks: bool = False
    keeps_blanks: bool = False
    blank: str = ""

    @property
    def is_family(self) -> bool:
        """True if it stands for all keys with its prefix."""
        return self.name.endswith(".*")

    def is_neutral(self, value: str) -> bool:
        """Return True if `value` has no effect."""
        return value.strip().casefold() in {text.casefold() for text in self.neutral}


@dataclass(frozen=True, kw_only=True)
class TypedKey(Key, Generic[T]):
    """A key with one value. `parse` reads its text, and `unset` is the value if a file does not set the key."""

    parse: Callable[[str], T]
    unset: T


_KEYS_OF: dict[type[Settings], dict[str, TypedKey[Any]]] = {}
"""The key of each field of settings, as it was declared by `declare_setting`."""


def keys_by_field(settings: type[Settings]) -> Mapping[str, TypedKey[Any]]:
    """Return the keys of these settings' fields, in the order of the fields."""
    declared = _KEYS_OF.get(settings, {})
    return {name: declared[name] for name in settings.model_fields if name in declared}


class KeyTable:
    """Finds a key by its exact name, else by the longest family the name belongs to."""

    def __init__(self, keys: Iterable[Key]) -> None:
        self._exact = {key.name: key for key in keys}
        self.for_sinks = tuple(key.name for key in self._exact.values() if key.for_sinks)
        self._families = sorted((key.name for key in self._exact.values() if key.is_family), key=len, reverse=True)

    def find(self, name: str) -> Key | None:
        """Return the key, or the longest family the name belongs to, or None if the name is not known."""
        if name in self._exact:
            return self._exact[name]
        family = next((family for family in self._families if name.startswith(family[:-1])), None)
        return None if family is None else self._exact[family]

    def nearest(self, name: str) -> str | None:
        """Return the known key nearest to `name`, or None if no key is close."""
        return find_nearest(name, (exact for exact in self._exact if not exact.endswith(".*")))

    def explain_unknown(self, name: str, what: str = "key") -> str:
        """Return the reason to refuse an unknown name. It suggests the nearest known one."""
        near = self.nearest(name)
        return f"unknown {what}" + (f"; did you mean {near}?" if near else "")


def declare_key(
    name: str,
    parse: Callable[[str], T],
    doc: str,
    *,
    default: T,
    shown: str | None = None,
    for_sinks: bool = False,
    keeps_blanks: bool = False,
    blank: str = "",
) -> TypedKey[T]:
    """Declare a key with its parser and its meaning. `shown` describes its default in the docs, in place of the value.

    The other arguments are those of `Key`.
    """
    text = _render_default(default) if shown is None else shown
    facts: dict[str, Any] = {"for_sinks": for_sinks, "keeps_blanks": keeps_blanks, "blank": blank}
    return TypedKey(name, Support.HONOURED, doc, text, parse=parse, unset=default, **facts)


def declare_setting(
    settings: type[Settings],
    field: str,
    name: str,
    parse: Callable[[str], T],
    doc: str,
    *,
    shown: str | None = None,
    for_sinks: bool = False,
    keeps_blanks: bool = False,
    blank: str = "",
) -> TypedKey[T]:
    """Declare the key of a field of settings. It has the field's default. `ConfigFile.fill` reads it."""
    default = settings.model_fields[field].default
    facts: dict[str, Any] = {"for_sinks": for_sinks, "keeps_blanks": keeps_blanks, "blank": blank}
    key = declare_key(name, parse, doc, default=default, shown=shown, **facts)
    _KEYS_OF.setdefault(settings, {})[field] = key
    return key


def _render_default(default: object) -> str | None:
    """Return a default as the docs show it, or None if there is nothing to show."""
    if isinstance(default, bool):
        return "true" if default else "false"
    if isinstance(default, tuple):
        return ",".join(default) or None
    return str(default) if default not in {None, ""} else None


def declare_honoured(name: str, doc: str, default: str | None = None) -> Key:
    """Declare a key that has an effect, but is read elsewhere. `default` describes its default in the docs."""
    return Key(name, Support.HONOURED, doc, default)


def declare_aliases(whose: str, names: str) -> tuple[Key, ...]:
    """Declare the names of keys in the tool `whose`. They are given as `name=key`, separated by blanks."""
    pairs = (pair.partition("=") for pair in names.split())
    return tuple(Key(name, Support.HONOURED, f"{whose} name for `{of}`.", alias_of=of) for name, _, of in pairs)


def declare_without_meaning(doc: str, names: str) -> tuple[Key, ...]:
    """Declare keys that are accepted without effect, for the reason `doc`. Blanks separate the `names`."""
    return tuple(Key(name, Support.WITHOUT_MEANING, doc) for name in names.split())


def declare_not_yet(name: str, doc: str, *neutral: str) -> Key:
    """Declare a key that later versions may honour. Any value but the `neutral` ones refuses the file."""
    return Key(name, Support.NOT_YET, doc, neutral=neutral)


def declare_refused(name: str, doc: str, *neutral: str) -> Key:
    """Declare an unsupported key. Any value but the `neutral` ones refuses the file."""
    return Key(name, Support.REFUSED, doc, neutral=neutral)


REQUIRED = "required"
"""The `default` of a key that every file has to set."""
