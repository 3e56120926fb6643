"""The layouts of DeviantArt's and Zooz's sinks: folders of times, and no folder of the topic.

It also lists the layouts of all sinks other than Confluent's.
"""

import re
from collections.abc import Mapping

from kafka_s3_platform.connect.layouts.lenses import LensesLayout
from kafka_s3_platform.connect.layouts.template import TemplateLayout
from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform.core.layouts.segment_key import (
    EXTENSION,
    OFFSET,
    KeyReader,
    SegmentKey,
    SegmentLayout,
    build_segment_key,
)
from kafka_s3_platform.core.model.object_key import TOPIC
from kafka_s3_platform.core.partitioners.folders import Window


class TimeFolderLayout(SegmentLayout):
    """`<topics.dir>/<encoded partition>/<name>`. Each subclass sets the pattern of the name without its extension."""

    name_pattern: str

    def check_reading(self) -> None:
        # Builds both now: a user's class that cannot be loaded has to fail before the first key is read.
        _ = self._folders, self._value_endings

    def parse(self, key: str) -> SegmentKey | None:
        encoded, _, name = key.removeprefix(self.root).rpartition("/")
        match = re.fullmatch(self.name_pattern + EXTENSION, name, re.ASCII)
        if not key.startswith(self.root) or not encoded or match is None:
            return None
        return build_segment_key(match.groupdict(), self._topic, encoded, match["extension"] or "")

    def find_span(self, folder: str) -> Window | None:
        return self._spans.find_span(folder)

    def _join_key(self, segment: SegmentKey, name: str) -> str:
        """Return the key of an object with this name, given without the extension."""
        return f"{self.root}{segment.encoded_partition}/{segment.with_extension(name)}"


class BlockGzipLayout(TimeFolderLayout):
    """DeviantArt's `<s3.prefix>/<YYYY-MM-DD>/<topic>-<5 digits>-<12 digits>.gz`. The date is the encoded partition."""

    # Numbers may be longer than their padding, but not shorter: a shorter one is in the name of another tool.
    name_pattern = rf"(?P<topic>{TOPIC})-(?P<partition>\d{{5,}})-(?=\d{{12}}){OFFSET}"

    def key(self, segment: SegmentKey) -> str:
        return self._join_key(segment, f"{segment.topic}-{segment.kafka_partition:05d}-{segment.offset_text(12)}")


class ZoozLayout(TimeFolderLayout):
    """Zooz's layout, `<root>/date=<date>/hour=<hour>/<kafka partition>_<first offset>.<extension>`.

    The folders are the encoded partition. Keys do not hold the topic, so all objects belong to one topic.
    """

    name_pattern = rf"(?P<partition>\d+)_{OFFSET}"

    def check_reading(self) -> None:
        if not self._topic:
            raise ConfigError("keys of the layout zooz have no topic: name their topic in `topics`")
        super().check_reading()

    def key(self, segment: SegmentKey) -> str:
        return self._join_key(segment, f"{segment.kafka_partition}_{segment.offset_text(0)}")


KEY_LAYOUTS: Mapping[str, type[KeyReader]] = {
    "block_gzip": BlockGzipLayout,
    "lenses": LensesLayout,
    "template": TemplateLayout,
    "zooz": ZoozLayout,
}
"""The layouts of sinks other than Confluent's, by their names in `archive.key.layout`."""
