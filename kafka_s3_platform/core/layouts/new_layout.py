"""Makes the layout of an `archive.key.layout`, with the layouts of Confluent's, DeviantArt's and Zooz's sinks."""

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property

from kafka_s3_platform.connect.layouts.lenses import LensesLayout
from kafka_s3_platform.connect.layouts.template import TemplateLayout
from kafka_s3_platform.core.config.settings import ConnectorConfig, LayoutSettings
from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform.core.formats.parts import ObjectPart
from kafka_s3_platform.core.layouts.segment_key import (
    EXTENSION,
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
    """Confluent's: `<topics.dir>/<topic>/<encoded partition>/<topic>+<kafka partition>+<first offset>.<extension>`.

    `directory.delim` and `file.delim` may be others than `/` and `+`. An empty `topics.dir` adds no folder.
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
        topic, encoded, name = self._split_key(key)
        if not key.startswith(self.root) or not encoded or not re.fullmatch(TOPIC, topic, re.ASCII):
            return None
        pattern = rf"{self._make_name_pattern(re.escape(topic))}(?:\.(?P<extension>[^/+]+))?"
        match = re.fullmatch(pattern, name, re.ASCII)
        return match and build_segment_key(match.groupdict(), topic, encoded, match["extension"] or "")

    def read(self, key: str) -> ReadKey | Refusal:
        topic, encoded, name = self._split_key(key)
        # The longest ending first: a name that ends with `.keys.json` also ends with `.json`.
        ending = next((ending for ending in self._longest_first if name.endswith(ending)), None)
        # Behind `.keys` or `.headers`, the ending of values belongs to a part outside of this layout.
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
        """Return the regular expression of a file's name without extension. `topic` is the expression of the topic."""
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


class TimeFolderLayout(SegmentLayout):
    """`<topics.dir>/<encoded partition>/<name>`. Each subclass sets the pattern of the name without its extension."""

    name_pattern: str

    def check_reading(self) -> None:
        # Builds both now: a user's class that cannot be loaded has to fail before the first key is read.
        _ = self._folders, self._endings

    def parse(self, key: str) -> SegmentKey | None:
        encoded, _, name = key.removeprefix(self.root).rpartition("/")
        match = re.fullmatch(self.name_pattern + EXTENSION, name, re.ASCII)
        if not key.startswith(self.root) or not encoded or match is None:
            return None
        return build_segment_key(match.groupdict(), self._topic, encoded, match["extension"] or "")

    def read(self, key: str) -> ReadKey | Refusal:
        encoded, _, name = key.removeprefix(self.root).rpartition("/")
        ending = next((ending for ending in self._endings if name.endswith(ending)), None)
        if ending is None:
            return refuse_index(name) or refuse_ending(self._endings)
        match = re.fullmatch(self.name_pattern, name.removesuffix(ending), re.ASCII)
        if match is None:
            return refuse_index(name) or Refusal("unparsable", "its name has no kafka partition and first offset")
        folder = self._folders.folder(encoded)
        if folder is None:
            return Refusal("misplaced", f"its folder {encoded!r} is no time folder")
        segment = build_segment_key(match.groupdict(), self._topic, encoded, ending.removeprefix("."))
        return ReadKey(segment, window=folder.window)

    def find_span(self, folder: str) -> Window | None:
        return self._spans.find_span(folder)

    def _join_key(self, segment: SegmentKey, name: str) -> str:
        return f"{self.root}{segment.encoded_partition}/{segment.with_extension(name)}"

    @cached_property
    def _endings(self) -> tuple[str, ...]:
        return list_endings(self._layout, "value")


class BlockGzipLayout(TimeFolderLayout):
    """DeviantArt's: `<s3.prefix>/<YYYY-MM-DD>/<topic>-<5 digits>-<12 digits>.gz`; the date is the encoded partition."""

    # Numbers may be longer than their padding, but not shorter: a shorter one is in the name of another tool.
    name_pattern = rf"(?P<topic>{TOPIC})-(?P<partition>\d{{5,}})-(?=\d{{12}}){OFFSET}"

    def key(self, segment: SegmentKey) -> str:
        return self._join_key(segment, f"{segment.topic}-{segment.kafka_partition:05d}-{segment.offset_text(12)}")


class ZoozLayout(TimeFolderLayout):
    """Zooz's: `<root>/date=<date>/hour=<hour>/<kafka partition>_<first offset>.<extension>`.

    The folders are the encoded partition. Keys do not hold the topic, so all objects belong to one topic.
    """

    name_pattern = rf"(?P<partition>\d+)_{OFFSET}"

    def check_reading(self) -> None:
        if not self._topic:
            raise ConfigError("keys of the layout zooz have no topic: name their topic in `topics`")
        super().check_reading()

    def key(self, segment: SegmentKey) -> str:
        return self._join_key(segment, f"{segment.kafka_partition}_{segment.offset_text(0)}")


_SEGMENT_LAYOUTS: Mapping[str, type[SegmentLayout]] = {
    "connect": ConnectLayout,
    "block_gzip": BlockGzipLayout,
    "zooz": ZoozLayout,
    "template": TemplateLayout,
}
_KEY_READERS: Mapping[str, type[KeyReader]] = {**_SEGMENT_LAYOUTS, "lenses": LensesLayout}


def new_segment_layout(layout: LayoutSettings) -> SegmentLayout:
    """Make the layout of the settings, to write and parse keys.

    Raises:
        ConfigError: two objects could get the same key with its delimiters or its template.
    """
    keys = _SEGMENT_LAYOUTS[layout.key_layout](layout)
    try:
        keys.check_writing()
    except ValueError as error:
        raise ConfigError(f"the keys of objects: {error}") from error
    return keys


def new_key_reader(config: ConnectorConfig) -> KeyReader:
    """Make the reader of the layout in a source's connector file.

    Raises:
        ConfigError: the layout needs a topic by name, or its template is wrong.
    """
    reader = _KEY_READERS[config.layout.key_layout](config.layout, config.topics[0] if len(config.topics) == 1 else "")
    reader.check_reading()
    return reader
