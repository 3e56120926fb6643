"""The tables of formats and codecs that the docs show, as columns and rows."""

from collections.abc import Iterator, Mapping

from kafka_s3_platform.config.codecs import CODECS, Codec
from kafka_s3_platform.config.formats import FORMATS, INPUTS, REFUSALS, WRITTEN_FORMATS

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
