"""Defines the interfaces of layouts: one class for each reads its keys, and for most also writes them."""

from abc import ABC, abstractmethod
from functools import cached_property

from kafka_s3_platform.config.settings import LayoutSettings
from kafka_s3_platform.layouts.segment_key import ReadKey, Refusal, SegmentKey
from kafka_s3_platform.partitioners.folders import Folders, TimeSpans, Window, new_folders


class KeyReader(ABC):
    """Reads the keys below `root`. `topic` is the topic of all objects if their keys do not hold it.

    Members for reading alone are built for the first key, so a process without reading loads no class of a user.
    """

    def __init__(self, layout: LayoutSettings, topic: str = "") -> None:
        self._layout = layout
        self._topic = topic
        self.root = f"{layout.topics_dir}/" if layout.topics_dir else ""
        self.delimiter = "/"

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about facts missing in the keys."""
        return ()

    def check_reading(self) -> None:  # noqa: B027  most layouts ask nothing
        """Raise ConfigError if keys cannot be read with these settings."""

    @abstractmethod
    def read(self, key: str) -> ReadKey | Refusal:
        """Read a key below `root`. Refuse extensions of other formats, and folders of other partitioners."""

    def find_span(self, folder: str) -> Window | None:  # noqa: ARG002  most layouts have no such folders
        """Return the span of the times of all objects below a folder. None if its name does not hold it.

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
    """Also writes keys. A key is a pure function of a segment's first record and its folder."""

    def check_writing(self) -> None:
        """Raise ValueError if two objects could get the same key with these delimiters or this template."""

    @abstractmethod
    def key(self, segment: SegmentKey) -> str:
        """Write the key of the object."""

    @abstractmethod
    def parse(self, key: str) -> SegmentKey | None:
        """Parse a key with any folder and extension. Return None for a key of another layout."""
