"""Keys with time folders but no folder for the topic: those of the Block-GZIP sink and of Zooz's sink."""

import re
from functools import cached_property

from kafka_s3_platform.layouts.endings import list_endings, refuse_ending, refuse_index
from kafka_s3_platform.layouts.key_reader import SegmentLayout
from kafka_s3_platform.layouts.segment_key import EXTENSION, ReadKey, Refusal, SegmentKey, build_segment_key
from kafka_s3_platform.partitioners.folders import Window


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
            return refuse_index(name) or Refusal("unparsable", "its name tells no kafka partition and first offset")
        folder = self._folders.folder(encoded)
        if folder is None:
            return Refusal("misplaced", f"its folder {encoded!r} is no time folder")
        segment = build_segment_key(match.groupdict(), self._topic, encoded, ending.removeprefix("."))
        return ReadKey(segment, window=folder.window)

    def find_span(self, folder: str) -> Window | None:
        return self._spans.find_span(folder)

    def _key(self, segment: SegmentKey, name: str) -> str:
        return f"{self.root}{segment.encoded_partition}/{segment.with_extension(name)}"

    @cached_property
    def _endings(self) -> tuple[str, ...]:
        return list_endings(self._layout, "value")
