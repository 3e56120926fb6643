"""The keys of DeviantArt's sink."""

from kafka_s3_platform.config.name_templates import TOPIC
from kafka_s3_platform.layouts.segment_key import OFFSET, SegmentKey
from kafka_s3_platform.layouts.time_folders import TimeFolderLayout


class BlockGzipLayout(TimeFolderLayout):
    """DeviantArt's: `<s3.prefix>/<YYYY-MM-DD>/<topic>-<5 digits>-<12 digits>.gz`; the date is the encoded partition."""

    # Numbers may be longer than their padding, but not shorter: a shorter one is in the name of another tool.
    name_pattern = rf"(?P<topic>{TOPIC})-(?P<partition>\d{{5,}})-(?=\d{{12}}){OFFSET}"

    def key(self, segment: SegmentKey) -> str:
        return self._key(segment, f"{segment.topic}-{segment.kafka_partition:05d}-{segment.offset_text(12)}")
