"""What an object is by how it begins, whatever its name says.

A head counts only if bytes that no text has are part of it: lines that begin with `BZh`, `PK` or `PAR1` are lines.
Sources: RFC 1952 (gzip), RFC 8878 (zstd), LZ4's and snappy's frame formats, snappy-java's SnappyOutputStream, the
formats of bzip2, xz, zip and tar (POSIX ustar), Avro, Parquet, ORC and Hadoop's SequenceFile.
"""

import re

HEAD_BYTES = 512
"""As much of an object as its kind is told by."""

XERIAL = b"\x82SNAPPY\x00"
SKIPPED_FRAME = b"\x2a\x4d\x18"
"""Behind its first byte: a frame that readers of zstd and LZ4 skip."""

SNAPPY_FRAMES = b"\xff\x06\x00\x00sNaPpY"

_CODECS = {
    "gzip": re.compile(rb"\x1f\x8b\x08[\x00-\x1f]"),
    # Behind its level stand the digits of pi, or of its square root where it is empty; also where it was cut off there.
    "bzip2": re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90|1?A?Y?&?S?\Z)"),
    # pzstd begins with frames to be skipped.
    "zstd": re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]" + re.escape(SKIPPED_FRAME)),
    "lz4": re.compile(rb"\x04\x22\x4d\x18"),
    "snappy": re.compile(re.escape(SNAPPY_FRAMES) + b"|" + re.escape(XERIAL)),
    "xz": re.compile(rb"\xfd7zXZ\x00"),
}
_CONTAINERS = {
    "a zip archive": re.compile(rb"PK(?:\x03\x04|\x05\x06)"),
    "an Avro file": re.compile(rb"Obj\x01"),
    "a Hadoop SequenceFile": re.compile(rb"SEQ[\x00-\x06]"),
    "LZ4 of the legacy frame": re.compile(rb"\x02\x21\x4c\x18"),
}
_COLUMNS = {"a Parquet file": b"PAR1", "an ORC file": b"ORC"}
_NO_TEXT = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
_TAR_SUM = slice(148, 156)


def codec_of(head: bytes) -> str:
    """What it is compressed with, empty where that is not told, or it is not compressed."""
    return next((name for name, magic in _CODECS.items() if magic.match(head)), "")


def container_of(head: bytes) -> str:
    """What else than lines it is: `a tar archive`; empty where it is nothing that is known."""
    if _is_tar(head):
        return "a tar archive"
    if holds_no_text(head[:HEAD_BYTES]):
        for name, magic in _COLUMNS.items():
            if head.startswith(magic):
                return name
    return next((name for name, magic in _CONTAINERS.items() if magic.match(head)), "")


def told_of(head: bytes) -> str:
    """What the first bytes say, for messages; empty where they say nothing."""
    codec = codec_of(head)
    return f"compressed with {codec}" if codec else container_of(head)


def foreign_to_parquet(head: bytes) -> str:
    """What an object is that is to be Parquet and is something else; empty where it is Parquet, or nothing known."""
    return "" if head.startswith(_COLUMNS["a Parquet file"]) else told_of(head)


def holds_no_text(data: bytes | memoryview) -> bool:
    """Whether there is a control character that no text has: all but tabs, ends of lines, form feeds and escapes."""
    return _NO_TEXT.search(data) is not None


def _is_tar(head: bytes) -> bool:
    """Its first header has a sum of its bytes, in which the sum itself counts as spaces."""
    if head[257:262] != b"ustar" or len(head) < HEAD_BYTES:
        return False
    told = head[_TAR_SUM].split(b"\0")[0].strip()
    found = sum(head[:HEAD_BYTES]) - sum(head[_TAR_SUM]) + 8 * ord(" ")
    return re.fullmatch(rb"[0-7]+", told) is not None and int(told, 8) == found
