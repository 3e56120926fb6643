"""`make tables`: write tables of the docs from those that the code reads: keys, formats, variables, commands."""

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import click

from bench.variables import VARIABLES
from kafka_s3_platform.cli import main
from kafka_s3_platform.connect.config.dialects import DIALECTS
from kafka_s3_platform.connect.config.formats_of_connect import FORMATS, INPUTS, REFUSALS, WRITTEN_FORMATS
from kafka_s3_platform.connect.config.keys.clients import (
    ALL_SCOPES,
    CLIENT_PROPERTIES,
    PAIRED_PROPERTIES,
    REFUSED_PROPERTIES,
    WITHOUT_MEANING_PROPERTIES,
    ClientProperty,
)
from kafka_s3_platform.connect.config.keys.converters import OPTION_KEYS
from kafka_s3_platform.connect.config.keys.general import GENERAL_KEYS
from kafka_s3_platform.connect.config.keys.layout import PATH_KEYS, ROTATION_KEYS
from kafka_s3_platform.connect.config.keys.output import FORMAT_KEYS
from kafka_s3_platform.connect.config.keys.records import RECORD_KEYS
from kafka_s3_platform.connect.config.keys.source import SOURCE_KEYS
from kafka_s3_platform.connect.config.keys.store import STORE_KEYS
from kafka_s3_platform.connect.config.keys.table import Key, Support
from kafka_s3_platform.connect.config.lenses import LENSES_KEYS
from kafka_s3_platform.connect.config.mapping import ALL_KEYS, OWN_KEYS
from kafka_s3_platform.connect.config.worker import WORKER_HONOURED_KEYS, WORKER_WITHOUT_MEANING_KEYS
from kafka_s3_platform.core.codecs.table import CODECS, Codec
from kafka_s3_platform.core.defs.restore.config import ForeignRestoreConfig, RestoreConfig, find_options, list_fields

DOCUMENTS = tuple(Path("docs") / name for name in ("commands.md", "connector-files.md", "deploying.md", "formats.md"))
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


OPTIONS_OF_ALL = frozenset({"quiet", "verbose", "help"})
"""Options that each command has; docs/command-line.md has them once."""


def _list_commands(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None, f"{path} lists {name}, and has none"
        yield f"{path} {name}", command
        if isinstance(command, click.Group):
            yield from _list_commands(command, f"{path} {name}")


def _render_command(path: str, command: click.Command) -> str:
    context = click.Context(command)
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    params = (param for param in command.params if isinstance(param, click.Option) and param.name not in OPTIONS_OF_ALL)
    records = (param.get_help_record(context) for param in params)
    options = [(f"`{_escape(record[0])}`", _escape(record[1])) for record in records if record]
    table = _render_table(("Option", "What it does"), options) if options else ""
    text = inspect.cleandoc(command.help or "").replace("\b\n", "").replace("<", r"\<")
    return f"\n## {path.removeprefix('kafka-s3 ')}\n\n`{usage}`\n\n{text}\n\n{table}"


def _escape(text: str) -> str:
    """Escape what would end a cell of a table, or begin a tag."""
    return text.replace("|", r"\|").replace("<", r"\<")


def _render_restore_fields() -> str:
    options = find_options(ForeignRestoreConfig)
    names = {path: option.name or f"--{path.rpartition('.')[2].replace('_', '-')}" for path, option in options.items()}
    rows = (
        (f"`{path}`", f"`{names[path]}`" if path in names else "", _escape(field.description or ""))
        for path, field in list_fields(RestoreConfig).items()
    )
    return _render_table(("Field", "Option", "What it says"), rows)


TableRow = tuple[str, ...]
Table = tuple[TableRow, list[TableRow]]
"""The names of the columns, and the rows."""


def _list_outputs() -> Iterator[TableRow]:
    for row in WRITTEN_FORMATS.values():
        endings = dict.fromkeys(f"`.{row.extension(codec, 'bin')}`" for codec in row.codecs)
        beside = f"; its index `.{row.index_suffix}`" if row.index_suffix else ""
        yield f"`{row.short_class_name}`", f"`{row.name}`", row.holds, ", ".join(endings) + beside


def _list_words() -> Iterator[TableRow]:
    for row in WRITTEN_FORMATS.values():
        if row.cloud_word:
            words = (row.cloud_word, row.aiven_word, row.input_word, row.lenses_word)
            yield f"`{row.short_class_name}`", *(f"`{word}`" for word in words)


def _list_read_only() -> Iterator[TableRow]:
    for row in FORMATS.values():
        if not row.is_written:
            word = f"`input.format={row.input_word}`" if row.input_word else f"`format.output.type={row.aiven_word}`"
            yield f"`{row.name}`", word, row.holds


def _list_unkept() -> Iterator[TableRow]:
    for row in WRITTEN_FORMATS.values():
        if row.not_kept:
            yield f"`{row.short_class_name}`", row.not_kept


def _list_codecs() -> Iterator[TableRow]:
    for codec in CODECS.values():
        levels = f"{codec.levels.start} to {codec.levels.stop - 1}" if codec.levels else ""
        suffix = f"`{codec.suffix}`" if codec.suffix else ""
        yield codec.name, ", ".join(_list_places(codec)), suffix, levels, codec.unset_level


def _list_places(codec: Codec) -> Iterator[str]:
    if codec.lines == "written":
        yield "lines and bytes"
    if codec.lines == "read":
        yield "lines and bytes (only read)"
    if codec.avro == "written":
        yield "Avro"
    if codec.avro == "read":
        yield "Avro (only read)"
    if codec.parquet_ending is not None:
        yield "Parquet"


def _list_codecs_by_format() -> Iterator[TableRow]:
    for row in WRITTEN_FORMATS.values():
        yield f"`{row.name}`", ", ".join(map(_name_with_levels, row.codecs.values())), row.default_codec


def _name_with_levels(codec: Codec) -> str:
    if codec.levels:
        return f"{codec.name} {codec.levels.start}-{codec.levels.stop - 1}"
    return codec.name


def _list_pairs() -> Iterator[TableRow]:
    for source in INPUTS:
        refused = (source in row.refused_inputs for row in WRITTEN_FORMATS.values())
        yield source, *("refused" if is_refused else "written" for is_refused in refused)


def _list_reasons() -> Iterator[TableRow]:
    pairs: dict[str, list[str]] = {}
    for (source, output), reason in REFUSALS.items():
        pairs.setdefault(reason, []).append(f"{source} as `{output}`")
    for reason, names in pairs.items():
        yield ", ".join(names), reason


FORMAT_TABLES: Mapping[str, Table] = {
    "outputs": (("`format.class`", "In settings", "Object", "Name ends with"), list(_list_outputs())),
    "words of formats": (
        ("Connect", "Confluent Cloud", "Aiven `format.output.type`", "Aiven `input.format`", "Lenses `STOREAS`"),
        list(_list_words()),
    ),
    "formats that are read": (("Format", "A source's file names it by", "Object"), list(_list_read_only())),
    "not kept": (("Format", "Not in its objects"), list(_list_unkept())),
    "codecs and levels": (
        ("Codec", "In", "Adds to names of lines and bytes", "Levels", "Without a level"),
        list(_list_codecs()),
    ),
    "codecs": (("Format", "Codecs, with their levels", "Default"), list(_list_codecs_by_format())),
    "matrix": (("Input", *(f"`{name}`" for name in WRITTEN_FORMATS)), list(_list_pairs())),
    "matrix reasons": (("Refused", "Why"), list(_list_reasons())),
}

_TABLES: Mapping[str, str] = {
    **{name: _render_table(*table) for name, table in FORMAT_TABLES.items()},
    "commands": "".join(_render_command(*entry) for entry in _list_commands(main, "kafka-s3")),
    "restore": _render_restore_fields(),
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
