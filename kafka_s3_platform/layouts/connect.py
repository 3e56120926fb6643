"""Reads and writes the keys of Confluent's S3 sink."""

import re
from dataclasses import replace
from functools import cached_property

from kafka_s3_platform.config.name_templates import TOPIC, check_delimiters
from kafka_s3_platform.config.settings import LayoutSettings
from kafka_s3_platform.formats.parts import ObjectPart
from kafka_s3_platform.layouts.endings import PART_NAMES, list_endings, list_parts, refuse_ending, refuse_index
from kafka_s3_platform.layouts.key_reader import SegmentLayout
from kafka_s3_platform.layouts.segment_key import OFFSET, ReadKey, Refusal, SegmentKey, build_segment_key
from kafka_s3_platform.partitioners.folders import Window

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
        topic, encoded, name = self._split(key)
        if not key.startswith(self.root) or not encoded or not re.fullmatch(TOPIC, topic, re.ASCII):
            return None
        pattern = rf"{self._pattern(re.escape(topic))}(?:\.(?P<extension>[^/+]+))?"
        match = re.fullmatch(pattern, name, re.ASCII)
        return match and build_segment_key(match.groupdict(), topic, encoded, match["extension"] or "")

    def read(self, key: str) -> ReadKey | Refusal:
        topic, encoded, name = self._split(key)
        # The longest ending first: a name that ends with `.keys.json` also ends with `.json`.
        ending = next((ending for ending in self._longest_first if name.endswith(ending)), None)
        # Behind `.keys` or `.headers`, the ending of values belongs to a part outside of this layout.
        if ending is None or _OTHER_PART.search(name.removesuffix(ending)):
            return refuse_index(name) or refuse_ending(self._endings)
        match = re.fullmatch(self._pattern(rf"(?P<topic>{TOPIC})"), name.removesuffix(ending), re.ASCII)
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

    def _split(self, key: str) -> tuple[str, str, str]:
        """Split a key into the topic's folder, the encoded partition and the file's name."""
        delim = self._layout.directory_delim
        topic, _, rest = key.removeprefix(self.root).partition(delim)
        encoded, _, name = rest.rpartition(delim)
        return topic, encoded, name

    def _pattern(self, topic: str) -> str:
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
        named = read_key.segment.kafka_partition
        if folder.kafka_partition not in {None, named}:
            return Refusal("misplaced", f"its name is of kafka partition {named}, its folder is {encoded}")
        return replace(read_key, window=folder.window)
