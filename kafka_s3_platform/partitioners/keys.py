"""Object keys in Kafka Connect's layout.

`<topics.dir>/<topic>/<encoded partition>/<topic>+<kafka partition>+<first offset, zero-padded>.<extension>`.
A rewritten segment adds `+<epoch>` after the offset, so that no key is ever used twice.
"""

import re
from dataclasses import dataclass

_FILE_NAME = re.compile(r"(?P<topic>[a-zA-Z0-9._-]+)\+(\d+)\+(\d+)(?:\+(\d+))?\.([^/+]+)", re.ASCII)


@dataclass(frozen=True, slots=True)
class SegmentKey:
    """What a key says of its object. `pad_width` is the number of digits of the offset as written."""

    topic: str
    encoded_partition: str
    kafka_partition: int
    first_offset: int
    pad_width: int
    extension: str
    epoch: int | None = None


def segment_key(
    topics_dir: str,
    topic: str,
    encoded_partition: str,
    kafka_partition: int,
    first_offset: int,
    pad_width: int,
    extension: str,
    epoch: int | None = None,
) -> str:
    """The key of the segment that begins at `first_offset`. An empty `topics_dir` adds no folder, as in Connect."""
    rewrite = "" if epoch is None else f"+{epoch}"
    name = f"{topic}+{kafka_partition}+{first_offset:0{pad_width}d}{rewrite}.{extension}"
    return "/".join([*([topics_dir] if topics_dir else []), topic, encoded_partition, name])


def parse_segment_key(key: str, topics_dir: str) -> SegmentKey | None:
    """The inverse of `segment_key`, None for a key that is not of this layout."""
    root = f"{topics_dir}/" if topics_dir else ""
    folders = key.removeprefix(root).split("/")
    name = _FILE_NAME.fullmatch(folders[-1])
    if not key.startswith(root) or len(folders) < 3 or name is None or name["topic"] != folders[0]:
        return None
    _, kafka_partition, offset, epoch, extension = name.groups()
    return SegmentKey(
        topic=folders[0],
        encoded_partition="/".join(folders[1:-1]),
        kafka_partition=int(kafka_partition),
        first_offset=int(offset),
        pad_width=len(offset),
        extension=extension,
        epoch=None if epoch is None else int(epoch),
    )
