"""Makes the layout named by `archive.key.layout`. The layout of Confluent's sink, the default, is defined here."""

import re
from dataclasses import replace
from functools import cached_property

from kafka_s3_platform.core.config.settings import ConnectorConfig, LayoutSettings
from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform.core.extensions import find_addition, load_extension
from kafka_s3_platform.core.formats.parts import ObjectPart
from kafka_s3_platform.core.layouts.segment_key import (
    OFFSET,
    PART_NAMES,
    KeyReader,
    ReadKey,
    Refusal,
    SegmentKey,
    SegmentLayout,
    build_segment_key,
    list_endings,
    list_parts,
    refuse_ending,
    refuse_index,
)
from kafka_s3_platform.core.model.object_key import TOPIC, check_delimiters
from kafka_s3_platform.core.partitioners.folders import Window

_OTHER_PART = re.compile(rf"\.({'|'.join(PART_NAMES)})\Z")


class ConnectLayout(SegmentLayout):
    """The layout of Confluent's sink.

    Keys are `<topics.dir>/<topic>/<encoded partition>/<topic>+<kafka partition>+<first offset>.<extension>`.
    `directory.delim` and `file.delim` may be set to something other than `/` and `+`. An empty `topics.dir` adds no
    folder.
    """

    def __init__(self, layout: LayoutSettings, topic: str = "") -> None:
        super().__init__(layout, topic)
        self.root = f"{layout.topics_dir}{layout.directory_delim}" if layout.topics_dir else ""
        self.delimiter = layout.directory_delim

    def check_writing(self) -> None:
        check_delimiters(self._layout.directory_delim, self._layout.file_delim)

    def check_reading(self) -> None:
        # Builds both now: a user's class that cannot be loaded has to fail before the first key is read.
        _ = self._folders, self._endings

    def key(self, segment: SegmentKey) -> str:
        layout = self._layout
        offset = segment.offset_text(layout.offset_pad_width)
        name = layout.file_delim.join((segment.topic, str(segment.kafka_partition), offset))
        folders = (segment.topic, segment.encoded_partition, segment.with_extension(name))
        return self.root + layout.directory_delim.join(folders)

    def parse(self, key: str) -> SegmentKey | None:
        """Parse a key this platform wrote, or return None for any other key."""
        topic, encoded, name = self._split_key(key)
        if not key.startswith(self.root) or not encoded or not re.fullmatch(TOPIC, topic, re.ASCII):
            return None
        pattern = rf"{self._make_name_pattern(re.escape(topic))}(?:\.(?P<extension>[^/+]+))?"
        match = re.fullmatch(pattern, name, re.ASCII)
        return match and build_segment_key(match.groupdict(), topic, encoded, match["extension"] or "")

    def read(self, key: str) -> ReadKey | Refusal:
        """Read a key of this layout, by the endings of its format and the partitioner's folders."""
        topic, encoded, name = self._split_key(key)
        # The longest ending first: a name that ends with `.keys.json` also ends with `.json`.
        ending = next((ending for ending in self._longest_first if name.endswith(ending)), None)
        # After `.keys` or `.headers`, the ending of values belongs to a part outside this layout.
        if ending is None or _OTHER_PART.search(name.removesuffix(ending)):
            return refuse_index(name) or refuse_ending(self._endings)
        match = re.fullmatch(self._make_name_pattern(rf"(?P<topic>{TOPIC})"), name.removesuffix(ending), re.ASCII)
        if match is None:
            form = self._layout.file_delim.join(("<topic>", "<kafka partition>", "<first offset>"))
            return refuse_index(name) or Refusal("unparsable", f"its name is not {form}{ending}")
        segment = build_segment_key(match.groupdict(), topic, encoded, ending.removeprefix("."))
        read_key = self._read_folder(ReadKey(segment, self._endings[ending]))
        if isinstance(read_key, ReadKey) and topic != segment.topic:
            return Refusal("topic", f"its name is of topic {segment.topic}, its folder of {topic}", read_key)
        return read_key

    def find_span(self, folder: str) -> Window | None:
        _, _, encoded = folder.partition(self.delimiter)
        return self._spans.find_span(encoded) if encoded else None

    def _split_key(self, key: str) -> tuple[str, str, str]:
        """Split a key into the topic's folder, the encoded partition and the file's name."""
        delim = self._layout.directory_delim
        topic, _, rest = key.removeprefix(self.root).partition(delim)
        encoded, _, name = rest.rpartition(delim)
        return topic, encoded, name

    def _make_name_pattern(self, topic: str) -> str:
        """Return the regular expression of a file's name without extension. `topic` is the expression for the topic."""
        delim = re.escape(self._layout.file_delim)
        return rf"{topic}{delim}(?P<partition>\d+){delim}{OFFSET}"

    @cached_property
    def _endings(self) -> dict[str, ObjectPart]:
        return {ending: part for part in list_parts(self._layout) for ending in list_endings(self._layout, part)}

    @cached_property
    def _longest_first(self) -> list[str]:
        return sorted(self._endings, key=len, reverse=True)

    def _read_folder(self, read_key: ReadKey) -> ReadKey | Refusal:
        """Add the facts in the folder's name, or refuse a folder of another partitioner."""
        encoded = read_key.segment.encoded_partition
        if encoded and encoded == self._layout.tombstone_partition:
            return replace(read_key, is_tombstone=True)
        folder = self._folders.folder(encoded) if encoded else None
        if folder is None:
            return Refusal("misplaced", f"its folder {encoded!r} is none of {self._layout.partitioner}'s")
        kafka_partition = read_key.segment.kafka_partition
        if folder.kafka_partition not in {None, kafka_partition}:
            return Refusal("misplaced", f"its name is of kafka partition {kafka_partition}, its folder is {encoded}")
        return replace(read_key, window=folder.window)


def _find_layout(name: str) -> type[KeyReader]:
    """Return the class of a layout. Raise ConfigError if no installed part has it."""
    layout_class: type[KeyReader] | None = ConnectLayout if name == "connect" else find_addition("key_layouts", name)
    if "." in name:
        layout_class = load_extension("users_key_layout")
    if layout_class is None:
        raise ConfigError(f"there is no layout {name} of object keys in this installation, only `connect`")
    return layout_class


def new_segment_layout(layout: LayoutSettings) -> SegmentLayout:
    """Make the layout of the settings, to write and parse keys.

    Raises ConfigError if two objects could get the same key with its delimiters or its template, or if it is only read.
    """
    keys = _find_layout(layout.key_layout)(layout)
    if not isinstance(keys, SegmentLayout):
        raise ConfigError(f"objects with keys of the layout {layout.key_layout} are only read, not written")
    try:
        keys.check_writing()
    except ValueError as error:
        raise ConfigError(f"the keys of objects: {error}") from error
    return keys


def new_key_reader(config: ConnectorConfig) -> KeyReader:
    """Make the reader of keys for a source's connector file. Raise ConfigError if its template or topic will not do."""
    reader = _find_layout(config.layout.key_layout)(config.layout, config.topics[0] if len(config.topics) == 1 else "")
    reader.check_reading()
    return reader
