"""A user's own layout of object keys: the class that `archive.key.layout` names."""

from kafka_s3_platform.core.config.plugins import KEY_LAYOUT, load_class, name_fault
from kafka_s3_platform.core.config.settings import LayoutSettings
from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform.core.layouts.segment_key import KeyReader, ReadKey, Refusal, SegmentKey, SegmentLayout
from kafka_s3_platform.core.partitioners.folders import Window


class UsersLayout(SegmentLayout):
    """Wraps a user's layout, and refuses a key from which it does not read back the object's own facts.

    So no two objects get the same key.
    """

    def __init__(self, layout: LayoutSettings, topic: str = "") -> None:
        super().__init__(layout, topic)
        self.class_ = load_class(layout.key_layout, KEY_LAYOUT)
        if not issubclass(self.class_, KeyReader):
            raise ConfigError(
                f"{layout.key_layout} has to extend SegmentLayout of kafka_s3_platform.plugins, or KeyReader to read"
                " only"
            )
        with name_fault(self.class_, "made for archive.key.layout"):
            self._users: SegmentLayout = self.class_(layout, topic)
        self.root = self._users.root
        self.delimiter = self._users.delimiter

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes of the user's layout."""
        return self._users.notes

    def check_reading(self) -> None:
        """Have the user's class check whether it can read keys. If this fails, the error names the class."""
        with name_fault(self.class_, "asked by archive.key.layout whether keys can be read"):
            self._users.check_reading()

    def check_writing(self) -> None:
        """Have the user's class check whether it can write keys. Raise ValueError if it only reads them."""
        writes = issubclass(self.class_, SegmentLayout)
        if not writes:
            raise ValueError(f"{self._layout.key_layout} only reads keys: to write them, extend SegmentLayout")
        self._users.check_writing()

    def key(self, segment: SegmentKey) -> str:
        """Return the key made by the user's class. Raise ConfigError if the class does not read it back correctly."""
        with name_fault(self.class_, f"making the key of {segment}"):
            key = self._users.key(segment)
            parsed = self._users.parse(key)
        if parsed is None or _identify(parsed) != _identify(segment) or not key.startswith(self.root):
            raise ConfigError(
                f"{self._layout.key_layout}.key made {key!r} of {segment}, and its parse makes {parsed} of that: a key"
                f" has to begin with {self.root!r}, and to hold topic, kafka partition and first offset with"
                " ordinal and epoch, else two objects could get one key. Correct the class, and run again"
            )
        return key

    def parse(self, key: str) -> SegmentKey | None:
        """Parse a key that the user's class has written. If this fails, the error names the class."""
        with name_fault(self.class_, f"parsing the key {key!r}"):
            return self._users.parse(key)

    def read(self, key: str) -> ReadKey | Refusal:
        """Read the facts in any key by the user's class. If this fails, the error names the class."""
        with name_fault(self.class_, f"reading the key {key!r}"):
            return self._users.read(key)

    def find_span(self, folder: str) -> Window | None:
        """Return the time of a folder by the user's class. If this fails, the error names the class."""
        with name_fault(self.class_, f"reading the times of the folder {folder!r}"):
            return self._users.find_span(folder)


def _identify(segment: SegmentKey) -> tuple[object, ...]:
    """Return the facts that no two objects have in common."""
    return segment.topic, segment.kafka_partition, segment.first_offset, segment.ordinal, segment.epoch
