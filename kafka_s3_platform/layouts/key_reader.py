"""The interfaces of layouts: one class for each layout reads its keys, and writes them if we write that layout."""

from abc import ABC, abstractmethod
from functools import cached_property

from kafka_s3_platform.config.settings import LayoutSettings
from kafka_s3_platform.layouts.segment_key import ReadKey, Refusal, SegmentKey
from kafka_s3_platform.partitioners.folders import Folders, TimeSpans, Window, new_folders


class KeyReader(ABC):
    """Reads the keys below `root`. `topic` is the topic of all objects if their keys do not tell it.

    What only reading needs is built when the first key is read. So a user's class is not loaded by a process that only
    writes or parses keys.
    """

    def __init__(self, layout: LayoutSettings, topic: str = "") -> None:
        self._layout = layout
        self._topic = topic
        self.root = f"{layout.topics_dir}/" if layout.topics_dir else ""
        self.delimiter = "/"

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about what the keys do not tell."""
        return ()

    def check_reading(self) -> None:  # noqa: B027  most layouts ask nothing
        """Raise ConfigError if keys cannot be read with these settings."""

    @abstractmethod
    def read(self, key: str) -> ReadKey | Refusal:
        """Read a key below `root`. Refuse extensions of other formats, and folders that the partitioner never makes."""

    def find_span(self, folder: str) -> Window | None:  # noqa: ARG002  most layouts have no such folders
        """Return the span of the times of all objects below a folder. None if its name does not tell it.

        `folder` lies below `root`, and ends without a delimiter.
        """
        return None

    @cached_property
    def _folders(self) -> Folders:
        return new_folders(self._layout)

    @cached_property
    def _spans(self) -> TimeSpans:
        return TimeSpans(self._layout)


class SegmentLayout(KeyReader):
    """Also writes keys. A key is a pure function of a segment's first record and of the folder that it belongs to."""

    def check_writing(self) -> None:
        """Raise ValueError if two objects could get the same key with these delimiters or this template."""

    @abstractmethod
    def key(self, segment: SegmentKey) -> str:
        """Write the key of the object."""

    @abstractmethod
    def parse(self, key: str) -> SegmentKey | None:
        """Parse a key with any folder and extension. Return None for a key of another layout."""
