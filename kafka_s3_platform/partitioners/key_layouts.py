"""Object keys in the layouts of the sinks that people come from, and back."""

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Protocol
from zoneinfo import ZoneInfo

from kafka_s3_platform.config.delimiters import check_delimiters
from kafka_s3_platform.config.file_name_template import FileNameTemplate, Variable, compile_template
from kafka_s3_platform.config.settings import LayoutSettings
from kafka_s3_platform.errors import ConfigError
from kafka_s3_platform.partitioners.keys import (
    OFFSET,
    TOPIC,
    SegmentKey,
    after_offset,
    found_key,
    parse_segment_key,
    segment_key,
    with_extension,
)
from kafka_s3_platform.partitioners.zones import EPOCH, ONE_MS

_EXTENSION = r"(?:\.(?P<extension>[a-zA-Z0-9_.-]+))?"


class KeyLayout(Protocol):
    """Object keys: a pure function of a segment's first record and of where it belongs."""

    def key(
        self,
        topic: str,
        encoded_partition: str,
        kafka_partition: int,
        first_offset: int,
        extension: str,
        epoch: int | None = None,
        timestamp_ms: int | None = None,
        ordinal: int = 0,
    ) -> str:
        """The key of the object whose first record is at `first_offset`.

        Args:
            topic: the one in the path, which a transform may have renamed.
            encoded_partition: as the partitioner encoded it.
            kafka_partition: of the source topic.
            first_offset: of the source topic.
            extension: without its dot; empty for none.
            epoch: of a segment that replaces others; None for others.
            timestamp_ms: start of the records' hour (epoch ms), None out of range; for the template layout.
            ordinal: of the first record among those that a mapper made of its offset.
        """
        ...

    def parse(self, key: str) -> SegmentKey | None:
        """What a key says of its object, None for a key that is not of this layout."""
        ...


def new_key_layout(layout: LayoutSettings) -> KeyLayout:
    """The layout that the settings name.

    Raises:
        ConfigError: its delimiters, or its template, do not tell objects apart.
    """
    layouts: Mapping[str, Callable[[LayoutSettings], KeyLayout]] = {
        "connect": ConnectKeys,
        "block_gzip": BlockGzipKeys,
        "zooz": ZoozKeys,
        "template": TemplateKeys,
    }
    try:
        return layouts[layout.key_layout](layout)
    except ValueError as error:
        raise ConfigError(f"the keys of objects: {error}") from error


class ConnectKeys:
    """Confluent's: `<topics.dir>/<topic>/<encoded partition>/<topic>+<kafka partition>+<first offset>.<extension>`."""

    def __init__(self, layout: LayoutSettings) -> None:
        check_delimiters(layout.directory_delim, layout.file_delim)
        self._layout = layout

    def key(
        self,
        topic: str,
        encoded_partition: str,
        kafka_partition: int,
        first_offset: int,
        extension: str,
        epoch: int | None = None,
        timestamp_ms: int | None = None,  # noqa: ARG002  the protocol's
        ordinal: int = 0,
    ) -> str:
        layout = self._layout
        return segment_key(
            layout.topics_dir,
            topic,
            encoded_partition,
            kafka_partition,
            first_offset,
            layout.offset_pad_width,
            extension,
            epoch,
            ordinal=ordinal,
            directory_delim=layout.directory_delim,
            file_delim=layout.file_delim,
        )

    def parse(self, key: str) -> SegmentKey | None:
        layout = self._layout
        delims = {"directory_delim": layout.directory_delim, "file_delim": layout.file_delim}
        return parse_segment_key(key, layout.topics_dir, **delims)


class _Folders:
    """`<topics.dir>/<encoded partition>/<name>`, without a folder for the topic."""

    name_pattern: str

    def __init__(self, layout: LayoutSettings) -> None:
        self._root = f"{layout.topics_dir}/" if layout.topics_dir else ""
        self._name = re.compile(self.name_pattern, re.ASCII)

    def _key(self, encoded_partition: str, name: str, extension: str) -> str:
        return f"{self._root}{encoded_partition}/{with_extension(name, extension)}"

    def parse(self, key: str) -> SegmentKey | None:
        encoded_partition, _, name = key.removeprefix(self._root).rpartition("/")
        match = self._name.fullmatch(name)
        if not key.startswith(self._root) or not encoded_partition or match is None:
            return None
        return found_key(match, match.groupdict().get("topic", ""), encoded_partition)


class BlockGzipKeys(_Folders):
    """DeviantArt's: `<s3.prefix>/<YYYY-MM-DD>/<topic>-<5 digits>-<12 digits>.gz`; the date is the encoded partition."""

    name_pattern = rf"(?P<topic>{TOPIC})-(?P<partition>\d{{5,}})-(?=\d{{12}}){OFFSET}{_EXTENSION}"

    def key(
        self,
        topic: str,
        encoded_partition: str,
        kafka_partition: int,
        first_offset: int,
        extension: str,
        epoch: int | None = None,
        timestamp_ms: int | None = None,  # noqa: ARG002  the protocol's
        ordinal: int = 0,
    ) -> str:
        name = f"{topic}-{kafka_partition:05d}-{first_offset:012d}{after_offset(ordinal, epoch)}"
        return self._key(encoded_partition, name, extension)


class ZoozKeys(_Folders):
    """Zooz's: `<root>/date=<date>/hour=<hour>/<kafka partition>_<first offset>.<extension>`.

    The folders are the encoded partition. No key holds its topic: `parse` gives an empty one.
    """

    name_pattern = rf"(?P<partition>\d+)_{OFFSET}{_EXTENSION}"

    def key(
        self,
        topic: str,  # noqa: ARG002  the protocol's
        encoded_partition: str,
        kafka_partition: int,
        first_offset: int,
        extension: str,
        epoch: int | None = None,
        timestamp_ms: int | None = None,  # noqa: ARG002  the protocol's
        ordinal: int = 0,
    ) -> str:
        name = f"{kafka_partition}_{first_offset}{after_offset(ordinal, epoch)}"
        return self._key(encoded_partition, name, extension)


class TemplateKeys:
    """Aiven's: `<topics.dir>/<file.name.template>.<extension>`; without folder or extension where those are empty.

    `{{timestamp}}` is the start of the records' hour in the layout's timezone, zeros where it is out of range, and
    `{{start_offset}}` the offset of the object's first record; the encoded partition is in no key.
    """

    def __init__(self, layout: LayoutSettings) -> None:
        self._root = f"{layout.topics_dir}/" if layout.topics_dir else ""
        self._template = compile_template(layout.file_name_template or "")
        self._zone = ZoneInfo(layout.timezone)
        self._pattern = re.compile("".join([re.escape(self._root), *_patterns(self._template), _EXTENSION]), re.ASCII)

    def key(
        self,
        topic: str,
        encoded_partition: str,  # noqa: ARG002  the protocol's
        kafka_partition: int,
        first_offset: int,
        extension: str,
        epoch: int | None = None,
        timestamp_ms: int | None = None,
        ordinal: int = 0,
    ) -> str:
        local = None if timestamp_ms is None else (EPOCH + timestamp_ms * ONE_MS).astimezone(self._zone)
        parts = list(self._template.parts)
        parts.insert(self._template.last_offset + 1, after_offset(ordinal, epoch))
        values: dict[str, str | int] = {"topic": topic, "partition": kafka_partition, "start_offset": first_offset}
        texts = (part if isinstance(part, str) else _text(part, values, local) for part in parts)
        return with_extension(self._root + "".join(texts), extension)

    def parse(self, key: str) -> SegmentKey | None:
        match = self._pattern.fullmatch(key)
        return match and found_key(match, match["topic"], "")


def _text(variable: Variable, values: Mapping[str, str | int], local: datetime | None) -> str:
    if variable.name == "timestamp":
        return _time(variable.form, local)
    width = _WIDTHS.get(variable.name, 0) if variable.has_fixed_width else 0
    return f"{values[variable.name]}".rjust(width, "0")


def _time(unit: str, local: datetime | None) -> str:
    if local is None:
        return "0" * len(unit)
    number = {"yyyy": local.year, "MM": local.month, "dd": local.day, "HH": local.hour}[unit]
    return f"{number:0{len(unit)}d}"


_WIDTHS = {"partition": 10, "start_offset": 20}
"""Of padded numbers, as in Aiven's."""


def _patterns(template: FileNameTemplate) -> Iterator[str]:
    """Regular expressions of the parts. Of a number that is named twice, either tells it."""
    named: set[str] = set()
    for i, part in enumerate(template.parts):
        if isinstance(part, str):
            yield re.escape(part)
        elif part.name == "timestamp":
            yield rf"\d{{{len(part.form)}}}"
        elif part.name == "start_offset":
            digits = r"\d{20}" if part.form else r"\d+"
            yield OFFSET if i == template.last_offset else digits
        else:
            yield _named(part, named)
            named.add(part.name)


def _named(part: Variable, named: set[str]) -> str:
    text = TOPIC if part.name == "topic" else r"\d{10}" if part.form else r"\d+"
    if part.name in named:
        return r"(?P=topic)" if part.name == "topic" else text
    return f"(?P<{part.name}>{text})"
