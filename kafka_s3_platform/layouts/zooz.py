"""The keys of Zooz's sink."""

from kafka_s3_platform.errors import ConfigError
from kafka_s3_platform.layouts.segment_key import OFFSET, SegmentKey
from kafka_s3_platform.layouts.time_folders import TimeFolderLayout


class ZoozLayout(TimeFolderLayout):
    """Zooz's: `<root>/date=<date>/hour=<hour>/<kafka partition>_<first offset>.<extension>`.

    The folders are the encoded partition. Keys do not hold the topic, so all objects belong to one topic.
    """

    name_pattern = rf"(?P<partition>\d+)_{OFFSET}"

    def check_reading(self) -> None:
        if not self._topic:
            raise ConfigError("keys of the layout zooz tell no topic: name the one that they are of in `topics`")
        super().check_reading()

    def key(self, segment: SegmentKey) -> str:
        return self._key(segment, f"{segment.kafka_partition}_{segment.offset_text(0)}")
