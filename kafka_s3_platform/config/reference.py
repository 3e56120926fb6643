"""Writes tables of the docs from the tables that the code reads: keys, formats, environment variables."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from kafka_s3_platform.config.dialects import DIALECTS
from kafka_s3_platform.config.format_tables import FORMAT_TABLES
from kafka_s3_platform.config.keys.all import ALL_KEYS, OWN_KEYS
from kafka_s3_platform.config.keys.clients.properties import (
    ALL_SCOPES,
    CLIENT_PROPERTIES,
    PAIRED_PROPERTIES,
    REFUSED_PROPERTIES,
    WITHOUT_MEANING_PROPERTIES,
    ClientProperty,
)
from kafka_s3_platform.config.keys.converters import OPTION_KEYS
from kafka_s3_platform.config.keys.environment import VARIABLES
from kafka_s3_platform.config.keys.general import GENERAL_KEYS
from kafka_s3_platform.config.keys.layout import PATH_KEYS, ROTATION_KEYS
from kafka_s3_platform.config.keys.lenses import LENSES_KEYS
from kafka_s3_platform.config.keys.output import FORMAT_KEYS
from kafka_s3_platform.config.keys.records import RECORD_KEYS
from kafka_s3_platform.config.keys.source import SOURCE_KEYS
from kafka_s3_platform.config.keys.store import STORE_KEYS
from kafka_s3_platform.config.keys.table import Key, Support
from kafka_s3_platform.config.worker import WORKER_HONOURED_KEYS, WORKER_WITHOUT_MEANING_KEYS

DOCUMENTS = (Path("docs/connector-files.md"), Path("docs/formats.md"), Path("docs/deploying.md"))
"""Paths below the folder of the repository."""

_SECTION = re.compile(r"(<!-- table: ([a-z ]+) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def render_tables(document: str) -> str:
    """Return the document with the text between its `<!-- table: ... -->` markers replaced by the tables.

    Raises:
        KeyError: a marker names no table.
    """
    return _SECTION.sub(lambda match: f"{match[1]}\n{_TABLES[match[2]]}\n{match[3]}", document)


def _render_table(columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [columns, tuple("---" for _ in columns), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _render_honoured(keys: Iterable[Key]) -> str:
    rows = ((f"`{key.name}`", key.default or "", key.doc) for key in keys if key.support is Support.HONOURED)
    return _render_table(("Key", "Default", "What it does"), rows)


def _render_unsupported(keys: Iterable[Key], support: Support = Support.REFUSED) -> str:
    rows = ((key.name, _list_values(key.neutral), key.doc) for key in keys if key.support is support)
    return _render_grouped(("Keys", "Accepted all the same", "Here"), rows)


def _list_values(neutral: tuple[str, ...]) -> str:
    return ", ".join(f"`{value}`" if value else "empty" for value in neutral)


def _render_by_reason(keys: Iterable[Key]) -> str:
    rows = ((key.name, key.doc) for key in keys if key.support is Support.WITHOUT_MEANING)
    return _render_grouped(("Keys", "Why"), rows)


def _render_passed_on() -> str:
    rows = (
        (key.name, "the same" if key.target == key.name else f"`{key.target}`", _list_clients(key))
        for key in CLIENT_PROPERTIES
    )
    return _render_grouped(("Properties", "In librdkafka", "Clients"), rows)


def _list_clients(key: ClientProperty) -> str:
    if key.scopes == ALL_SCOPES:
        return "all"
    return ", ".join(sorted(key.scopes))


def _render_grouped(columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Render one row for all keys whose other cells are equal."""
    names: dict[tuple[str, ...], list[str]] = {}
    for name, *rest in rows:
        names.setdefault(tuple(rest), []).append(f"`{name}`")
    return _render_table(columns, ((", ".join(group), *rest) for rest, group in names.items()))


def _render_dialects() -> str:
    rows = (
        (f"`{d.class_name}`", d.title, f"`{d.format}`" if d.format else "", d.partitioner or "", d.key_layout)
        for d in DIALECTS
    )
    return _render_table(("Class", "Whose", "Format", "Partitioner", "Keys"), rows)


def _render_variables() -> str:
    rows = ((f"`{v.name}`", v.where, v.default, v.doc) for v in VARIABLES)
    return _render_table(("Variable", "Read by", "Default", "What it says"), rows)


_TABLES: Mapping[str, str] = {
    **{name: _render_table(*table) for name, table in FORMAT_TABLES.items()},
    "dialects": _render_dialects(),
    "environment": _render_variables(),
    "general": _render_honoured(GENERAL_KEYS),
    "records": _render_honoured(RECORD_KEYS),
    "converter options": _render_honoured(OPTION_KEYS),
    "converter options without meaning": _render_by_reason(OPTION_KEYS),
    "formats": _render_honoured(FORMAT_KEYS),
    "paths": _render_honoured(PATH_KEYS),
    "rotation": _render_honoured(ROTATION_KEYS),
    "store": _render_honoured(STORE_KEYS),
    "sources": _render_honoured(SOURCE_KEYS),
    "lenses": _render_honoured(LENSES_KEYS),
    "own": _render_honoured(OWN_KEYS),
    "not yet": _render_unsupported(ALL_KEYS, Support.NOT_YET),
    "refused": _render_unsupported(ALL_KEYS),
    "without meaning": _render_by_reason(ALL_KEYS),
    "worker honoured": _render_honoured(WORKER_HONOURED_KEYS),
    "worker without meaning": _render_by_reason(WORKER_WITHOUT_MEANING_KEYS),
    "client passed on": _render_passed_on(),
    "client paired": _render_honoured(PAIRED_PROPERTIES),
    "client refused": _render_unsupported(REFUSED_PROPERTIES),
    "client without meaning": _render_by_reason(WITHOUT_MEANING_PROPERTIES),
}


if __name__ == "__main__":
    for _document in DOCUMENTS:
        _document.write_text(render_tables(_document.read_text()))
