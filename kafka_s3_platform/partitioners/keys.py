"""Object keys in Kafka Connect's layout.

`<topics.dir>/<topic>/<encoded partition>/<topic>+<kafka partition>+<first offset, zero-padded>.<extension>`.
An object that begins inside of what a mapper made of one record adds `@<ordinal>` after the offset, and one that was
rewritten adds `+<epoch>`, so that no key is ever used twice.
"""

import re
from dataclasses import dataclass

MAX_KEY_BYTES = 1024
"""S3's limit."""

TOPIC = r"[a-zA-Z0-9._-]+"
OFFSET = r"(?P<offset>\d+)(?:@(?P<ordinal>\d+))?(?:\+(?P<epoch>\d+))?"
"""A first offset and what may follow it, in every layout."""

_OFFSETS = ".offsets"


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
    ordinal: int = 0


def segment_key(
    topics_dir: str,
    topic: str,
    encoded_partition: str,
    kafka_partition: int,
    first_offset: int,
    pad_width: int,
    extension: str,
    epoch: int | None = None,
    *,
    ordinal: int = 0,
    directory_delim: str = "/",
    file_delim: str = "+",
) -> str:
    """The key of the segment that begins at `first_offset`. An empty `topics_dir` adds no folder, as in Connect."""
    offset = f"{first_offset:0{pad_width}d}{after_offset(ordinal, epoch)}"
    name = with_extension(file_delim.join([topic, str(kafka_partition), offset]), extension)
    return directory_delim.join([*([topics_dir] if topics_dir else []), topic, encoded_partition, name])


def parse_segment_key(
    key: str, topics_dir: str, *, directory_delim: str = "/", file_delim: str = "+"
) -> SegmentKey | None:
    """The inverse of `segment_key`, None for a key that is not of this layout."""
    root = f"{topics_dir}{directory_delim}" if topics_dir else ""
    topic, _, rest = key.removeprefix(root).partition(directory_delim)
    encoded_partition, _, name = rest.rpartition(directory_delim)
    if not key.startswith(root) or not encoded_partition or not re.fullmatch(TOPIC, topic, re.ASCII):
        return None
    delim = re.escape(file_delim)
    pattern = rf"{re.escape(topic)}{delim}(?P<partition>\d+){delim}{OFFSET}(?:\.(?P<extension>[^/+]+))?"
    match = re.fullmatch(pattern, name, re.ASCII)
    return match and found_key(match, topic, encoded_partition)


def offsets_key(key: str, directory_delim: str) -> str:
    """The key of the object that keeps the offsets of another one's records; engines pass over such names."""
    folder, delim, name = key.rpartition(directory_delim)
    return f"{folder}{delim}_{name}{_OFFSETS}"


def is_offsets_key(key: str, directory_delim: str) -> bool:
    """Whether the key is one that `offsets_key` gives."""
    return key.endswith(_OFFSETS) and key.rpartition(directory_delim)[2].startswith("_")


def beside_offsets(key: str, directory_delim: str) -> str:
    """The key of the object whose offsets are kept at this key; of any other, itself."""
    if not is_offsets_key(key, directory_delim):
        return key
    folder, delim, name = key.removesuffix(_OFFSETS).rpartition(directory_delim)
    return f"{folder}{delim}{name[1:]}"


def after_offset(ordinal: int, epoch: int | None) -> str:
    """What follows an object's first offset in its name; see OFFSET."""
    return (f"@{ordinal}" if ordinal else "") + ("" if epoch is None else f"+{epoch}")


def with_extension(name: str, extension: str) -> str:
    """A file's name with its extension, where it has one."""
    return f"{name}.{extension}" if extension else name


def found_key(match: re.Match[str], topic: str, encoded_partition: str) -> SegmentKey:
    """What a name says, with groups `partition`, those of OFFSET, and `extension`."""
    return SegmentKey(
        topic=topic,
        encoded_partition=encoded_partition,
        kafka_partition=int(match["partition"]),
        first_offset=int(match["offset"]),
        pad_width=len(match["offset"]),
        extension=match["extension"] or "",
        epoch=None if match["epoch"] is None else int(match["epoch"]),
        ordinal=int(match["ordinal"] or 0),
    )
