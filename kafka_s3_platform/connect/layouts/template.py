"""Reads and writes keys by a template, as Aiven's sink does. Keys of other tools may fit a template, too."""

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import cached_property
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from kafka_s3_platform.connect.config.keys.names import NameTemplate, Variable, compile_read_template, compile_template
from kafka_s3_platform.connect.layouts.lenses import note_envelope
from kafka_s3_platform.core.config.settings import LayoutSettings
from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform.core.formats.parts import ObjectPart
from kafka_s3_platform.core.layouts.segment_key import (
    EXTENSION,
    Groups,
    ReadKey,
    Refusal,
    SegmentKey,
    SegmentLayout,
    build_segment_key,
    list_endings,
    list_parts,
    refuse_ending,
)
from kafka_s3_platform.core.model.notes import DoubtNote
from kafka_s3_platform.core.model.times import EPOCH, ONE_MS
from kafka_s3_platform.core.partitioners.folders import Window, find_window

_UNITS = ("yyyy", "MM", "dd", "HH")


class TemplateLayout(SegmentLayout):
    """Aiven's layout, `<topics.dir>/<file.name.template>.<extension>`. An empty folder or extension is left out.

    `{{timestamp}}` is the start of the records' hour in the layout's timezone, or zeros if it is out of range.
    `{{start_offset}}` is the offset of the object's first record. A written key does not hold the encoded partition. In
    a read key, it is the folder. Facts without a variable in the template are unknown.
    """

    def check_writing(self) -> None:
        _ = self._written_template

    def check_reading(self) -> None:
        if "topic" not in self._read_template.names and not self._topic:
            template = self._layout.file_name_template
            raise ConfigError(f"the template {template!r} names no topic: name the topic of all objects")

    @property
    def notes(self) -> tuple[str, ...]:
        return (*_note_names(self._read_template.names, self._layout), *note_envelope(self._layout))

    def key(self, segment: SegmentKey) -> str:
        """Return the key of an object to be written, by filling in the template."""
        template = self._written_template
        zone = ZoneInfo(self._layout.timezone)
        local = None if segment.hour_ms is None else (EPOCH + segment.hour_ms * ONE_MS).astimezone(zone)
        parts = list(template.parts)
        # Ordinal and epoch follow the offset directly, where REWRITTEN reads them.
        parts.insert(template.last_offset + 1, segment.after_offset)
        texts = (part if isinstance(part, str) else _write_variable(part, segment, local) for part in parts)
        return self.root + segment.with_extension("".join(texts))

    def parse(self, key: str) -> SegmentKey | None:
        pattern = re.escape(self.root) + self._written_template.pattern(is_exact=True) + EXTENSION
        match = re.fullmatch(pattern, key, re.ASCII)
        return match and build_segment_key(match.groupdict(), self._topic, "", match["extension"] or "")

    def read(self, key: str) -> ReadKey | Refusal:
        """Return the facts in a key that the template matches, or the reason why it does not."""
        name = key.removeprefix(self.root)
        # Keys and headers first: the template of values may match their names too.
        for part, ending, pattern in self._patterns:
            groups = pattern.read(name)
            if groups is not None:
                segment = build_segment_key(groups, self._topic, name.rpartition("/")[0], ending.removeprefix("."))
                return self._read_groups(groups, segment, part)
        ending = _find_ending(complete_template(self._layout))
        if name.endswith(ending):
            return Refusal("unparsable", "its name is not of the template")
        return refuse_ending([ending])

    def find_span(self, folder: str) -> Window | None:
        """Return the time of a folder below the root, or None if the template shows none."""
        depth = folder.count("/") + 1
        pattern = self._folder_patterns[depth - 1] if depth <= len(self._folder_patterns) else None
        groups = None if pattern is None else pattern.read(folder)
        return None if groups is None else self._find_window(groups)

    def _find_window(self, groups: Groups) -> Window | None:
        fields = {unit: int(text) for unit in _UNITS if (text := groups.get(unit)) is not None}
        return find_window(fields, self._layout.timezone)

    def _read_groups(self, groups: Groups, segment: SegmentKey, part: ObjectPart) -> ReadKey | Refusal:
        """Combine the texts of a key's variables into its facts. Refuse offsets that contradict one another."""
        end_text = groups.get("end_offset")
        last_offset = None if end_text is None else int(end_text)
        if segment.first_offset is not None and last_offset is not None and last_offset < segment.first_offset:
            return Refusal(
                "unparsable",
                f"by its name it ends with offset {last_offset}, before it begins with {segment.first_offset}",
            )
        folder = segment.encoded_partition.rpartition("/")[2]
        return ReadKey(
            segment,
            part,
            self._find_window(groups),
            is_tombstone=part != "value" and folder == self._layout.tombstone_partition,
            last_offset=last_offset,
        )

    @property
    def _written_template(self) -> NameTemplate:
        return compile_template(self._layout.file_name_template or "")

    @property
    def _read_template(self) -> NameTemplate:
        return _compile_read_template(complete_template(self._layout))

    @cached_property
    def _patterns(self) -> "list[tuple[ObjectPart, str, _Pattern | _LinearPattern]]":
        """The part in an object, the ending of its name, and the pattern of the whole name, in order of trial."""
        patterns: list[tuple[ObjectPart, str, _Pattern | _LinearPattern]] = []
        for part, ending, template in _list_names(self._layout):
            patterns.append((part, ending, _new_pattern(template)))
        return patterns

    @cached_property
    def _folder_patterns(self) -> "list[_Pattern | _LinearPattern]":
        """The patterns of the folders by depth. The first is directly below the root."""
        folders = complete_template(self._layout).split("/")[:-1]
        # A key may hold slashes, so no folder is known behind it.
        count = next((n for n, folder in enumerate(folders) if "key" in folder), len(folders))
        return [_new_pattern("/".join(folders[: n + 1])) for n in range(count)]


class _Pattern:
    """Reads names by Python's regular expressions."""

    def __init__(self, template: NameTemplate) -> None:
        self._pattern = re.compile(template.pattern(is_exact=False), re.ASCII)

    def read(self, name: str) -> Groups | None:
        match = self._pattern.fullmatch(name)
        return None if match is None else match.groupdict()


class _LinearPattern:
    """Reads names by RE2, in a time that depends on the name's length alone.

    The template may have any number of variables of any length. Arrow has RE2. It takes 70 times as long as Python's
    expressions for a usual name, so it is used only for templates with many such texts. A repeated variable has the
    same text in both places.
    """

    def __init__(self, template: NameTemplate) -> None:
        self._template = template
        self._repeats = template.list_again()

    def read(self, name: str) -> Groups | None:
        """Return the texts of the variables in a name, or None if the name does not match."""
        groups = self._match(name, {})
        if groups is not None and any(groups[repeated] != groups[first] for repeated, first in self._repeats):
            groups = self._match(name, {first: groups[first] or "" for _, first in self._repeats})
        return groups

    def _match(self, name: str, values: Mapping[str, str]) -> Groups | None:
        """Match a name, with the given texts in place of variables. Return None if it does not match."""
        pattern = rf"\A{self._template.linear_pattern(values)}\z"
        groups: Groups | None = pc.extract_regex(pa.scalar(name), pattern).as_py()
        # RE2 gives an empty text for a number that is not there
        return None if groups is None else {group: text or None for group, text in groups.items()}


def _new_pattern(template: str) -> "_Pattern | _LinearPattern":
    """Return the pattern of a template, by RE2 if Python's expressions could take exponential time."""
    compiled = _compile_read_template(template)
    return _LinearPattern(compiled) if compiled.is_wide else _Pattern(compiled)


def _write_variable(variable: Variable, segment: SegmentKey, local: datetime | None) -> str:
    """Return the text of a variable in a key. `local` is the hour of the records, or None if it is out of range."""
    width = variable.width
    match variable.name:
        case "topic":
            return segment.topic
        case "partition":
            return f"{segment.kafka_partition:0{width}d}"
        case "start_offset":
            return f"{segment.first_offset:0{width}d}"
    if local is None:
        return "0" * width
    number = {"yyyy": local.year, "MM": local.month, "dd": local.day, "HH": local.hour}[variable.form]
    return f"{number:0{width}d}"


def _list_names(layout: LayoutSettings) -> Iterator[tuple[ObjectPart, str, str]]:
    """List the part, ending and template of names. Values come last, since their template may match the other names."""
    template = complete_template(layout)
    stem = template.removesuffix(_find_ending(template))
    for part in list_parts(layout):
        if part != "value":
            yield from ((part, ending, stem + ending) for ending in list_endings(layout, part))
    yield "value", layout.extension or "", template


def _note_names(names: frozenset[str], layout: LayoutSettings) -> Iterator[str]:
    """Explain the facts missing in keys if their template has these names."""
    if "key" in names:
        yield DoubtNote(
            "keys hold {{key}}: where a sink groups by the key, an object holds the last record of its key when it was"
            " written, and the earlier ones are in no object; the key in a name is not restored to its record"
        )
    if "partition" not in names:
        yield DoubtNote("keys have no kafka partition: all records count as those of kafka partition 0")
    if "yyyy" in names and layout.timestamp_extractor == "Wallclock":
        yield "the times in keys are those of archiving, not the records' own timestamps"


def complete_template(layout: LayoutSettings) -> str:
    """Return the template of the keys of values below `topics.dir`, with their extension."""
    template = layout.file_name_template or ""
    extension = f".{layout.extension}" if layout.extension else ""
    if template.endswith(extension):
        return template
    return template + extension


def _compile_read_template(template: str) -> NameTemplate:
    """Compile a template for reading keys. Raise ConfigError if it cannot be used."""
    try:
        return compile_read_template(template)
    except ValueError as err:
        raise ConfigError(f"the template of keys: {err}") from err


def _find_ending(template: str) -> str:
    """Return the ending of all keys of a template: its extension, or nothing."""
    tail = template.rpartition("}}")[2]
    return tail[tail.index(".") :] if "." in tail else ""
