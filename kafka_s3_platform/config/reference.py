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
from kafka_s3_platform.config.codecs import CODECS, DEFAULT_CODECS
from kafka_s3_platform.config.converter_options import OPTION_KEYS
from kafka_s3_platform.config.dialects import DIALECTS
from kafka_s3_platform.config.keys import (
    ALL_KEYS,
    GENERAL_KEYS,
    OWN_KEYS,
    WORKER_HONOURED_KEYS,
    WORKER_WITHOUT_MEANING_KEYS,
)
from kafka_s3_platform.config.layout_keys import FORMAT_KEYS, PATH_KEYS, ROTATION_KEYS
from kafka_s3_platform.config.lenses_keys import LENSES_KEYS
from kafka_s3_platform.config.matrix import INPUTS, OUTPUTS, REFUSALS
from kafka_s3_platform.config.record_keys import RECORD_KEYS
from kafka_s3_platform.config.source_keys import SOURCE_KEYS
from kafka_s3_platform.config.store_keys import STORE_KEYS
from kafka_s3_platform.config.table import Key, Support

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
    rows = ((f"`{key.name}`", key.default or "", key.doc) for key in keys if key.support is Support.HONOURED)
    return _table(("Key", "Default", "What it does"), rows)


def _unsupported(keys: Iterable[Key], support: Support = Support.REFUSED) -> str:
    rows = ((key.name, _values(key.neutral), key.doc) for key in keys if key.support is support)
    return _grouped(("Keys", "Accepted all the same", "Here"), rows)


def _values(neutral: tuple[str, ...]) -> str:
    return ", ".join(f"`{value}`" if value else "empty" for value in neutral)


def _by_reason(keys: Iterable[Key]) -> str:
    rows = ((key.name, key.doc) for key in keys if key.support is Support.WITHOUT_MEANING)
    return _grouped(("Keys", "Why"), rows)


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


def _dialects() -> str:
    rows = (
        (f"`{d.class_name}`", d.title, f"`{d.format}`" if d.format else "", d.partitioner or "", d.key_layout)
        for d in DIALECTS
    )
    return _table(("Class", "Whose", "Format", "Partitioner", "Keys"), rows)


def _matrix() -> str:
    rows = ((row, *("refused" if (row, output) in REFUSALS else "written" for output in OUTPUTS)) for row in INPUTS)
    return _table(("Input", *(f"`{output}`" for output in OUTPUTS)), rows)


def _matrix_reasons() -> str:
    pairs: dict[str, list[str]] = {}
    for (row, output), reason in REFUSALS.items():
        pairs.setdefault(reason, []).append(f"{row} as `{output}`")
    return _table(("Refused", "Why"), ((", ".join(names), reason) for reason, names in pairs.items()))


def _codecs() -> str:
    rows = (
        (f"`{name}`", ", ".join(map(_codec, codecs.items())), DEFAULT_CODECS[name]) for name, codecs in CODECS.items()
    )
    return _table(("Format", "Codecs, with their levels", "Default"), rows)


def _codec(codec: tuple[str, range]) -> str:
    name, levels = codec
    return f"{name} {levels.start}-{levels.stop - 1}" if levels else name


_TABLES: Mapping[str, str] = {
    "dialects": _dialects(),
    "general": _honoured(GENERAL_KEYS),
    "records": _honoured(RECORD_KEYS),
    "converter options": _honoured(OPTION_KEYS),
    "converter options without meaning": _by_reason(OPTION_KEYS),
    "formats": _honoured(FORMAT_KEYS),
    "codecs": _codecs(),
    "matrix": _matrix(),
    "matrix reasons": _matrix_reasons(),
    "paths": _honoured(PATH_KEYS),
    "rotation": _honoured(ROTATION_KEYS),
    "store": _honoured(STORE_KEYS),
    "sources": _honoured(SOURCE_KEYS),
    "lenses": _honoured(LENSES_KEYS),
    "own": _honoured(OWN_KEYS),
    "not yet": _unsupported(ALL_KEYS, Support.NOT_YET),
    "refused": _unsupported(ALL_KEYS),
    "without meaning": _by_reason(ALL_KEYS),
    "worker honoured": _honoured(WORKER_HONOURED_KEYS),
    "worker without meaning": _by_reason(WORKER_WITHOUT_MEANING_KEYS),
    "client passed on": _passed_on(),
    "client paired": _honoured(PAIRED_PROPERTIES),
    "client refused": _unsupported(REFUSED_PROPERTIES),
    "client without meaning": _by_reason(WITHOUT_MEANING_PROPERTIES),
}
