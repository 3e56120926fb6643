"""The tables of `docs/connector-files.md`, written from the tables that the loader reads."""

import re
from collections.abc import Iterable, Mapping

from kafka_s3_platform.config.clients import (
    ALL_SCOPES,
    CLIENT_PROPERTIES,
    PAIRED_PROPERTIES,
    REFUSED_PROPERTIES,
    WITHOUT_MEANING_PROPERTIES,
    ClientProperty,
)
from kafka_s3_platform.config.keys import (
    HONOURED_KEYS,
    NOT_YET_KEYS,
    OWN_KEYS,
    REFUSED_KEYS,
    WITHOUT_MEANING_KEYS,
    WORKER_HONOURED_KEYS,
    WORKER_WITHOUT_MEANING_KEYS,
    Key,
)

_SECTION = re.compile(r"(<!-- table: ([a-z ]+) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def with_tables(document: str) -> str:
    """The document with what stands between its `<!-- table: ... -->` markers written anew.

    Raises:
        KeyError: a marker names no table.
    """
    return _SECTION.sub(lambda match: f"{match[1]}\n{_TABLES[match[2]]}\n{match[3]}", document)


def _table(columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [columns, tuple("---" for _ in columns), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _honoured(keys: Iterable[Key]) -> str:
    return _table(("Key", "Default", "What it does"), ((f"`{key.name}`", key.default or "", key.doc) for key in keys))


def _unsupported(keys: Iterable[Key]) -> str:
    return _grouped(
        ("Keys", "Accepted all the same", "Here"), ((key.name, _values(key.neutral), key.doc) for key in keys)
    )


def _values(neutral: tuple[str, ...]) -> str:
    return ", ".join(f"`{value}`" if value else "empty" for value in neutral)


def _by_reason(keys: Iterable[Key]) -> str:
    return _grouped(("Keys", "Why"), ((key.name, key.doc) for key in keys))


def _passed_on() -> str:
    rows = (
        (key.name, "the same" if key.target == key.name else f"`{key.target}`", _clients(key))
        for key in CLIENT_PROPERTIES
    )
    return _grouped(("Properties", "In librdkafka", "Clients"), rows)


def _clients(key: ClientProperty) -> str:
    return "all" if key.scopes == ALL_SCOPES else ", ".join(sorted(key.scopes))


def _grouped(columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """One row for all keys that say the same."""
    names: dict[tuple[str, ...], list[str]] = {}
    for name, *rest in rows:
        names.setdefault(tuple(rest), []).append(f"`{name}`")
    return _table(columns, ((", ".join(group), *rest) for rest, group in names.items()))


_TABLES: Mapping[str, str] = {
    "honoured": _honoured(HONOURED_KEYS),
    "own": _honoured(OWN_KEYS),
    "not yet": _unsupported(NOT_YET_KEYS),
    "refused": _unsupported(REFUSED_KEYS),
    "without meaning": _by_reason(WITHOUT_MEANING_KEYS),
    "worker honoured": _honoured(WORKER_HONOURED_KEYS),
    "worker without meaning": _by_reason(WORKER_WITHOUT_MEANING_KEYS),
    "client passed on": _passed_on(),
    "client paired": _honoured(PAIRED_PROPERTIES),
    "client refused": _unsupported(REFUSED_PROPERTIES),
    "client without meaning": _by_reason(WITHOUT_MEANING_PROPERTIES),
}
