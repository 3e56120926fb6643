"""Recognizes the format of an object by its first bytes, whatever its name is.

First bytes count only if control characters are among them: lines that begin with `BZh` or `PAR1` are still lines.
Sources: RFC 1952 (gzip), RFC 8878 (zstd), LZ4's and snappy's frame formats, snappy-java's SnappyOutputStream, the
formats of bzip2, xz, zip and tar (POSIX ustar), Avro, Parquet, ORC and Hadoop's SequenceFile.
"""

import re

from kafka_s3_platform.core.codecs.table import READ_CODECS
from kafka_s3_platform.core.config.formats import ENVELOPES, PARQUET_MAGIC

HEAD_BYTES = 512
"""The number of bytes needed to recognize an object: a tar header takes as many."""

# A SequenceFile has its version after `SEQ`.
_FOREIGN = {
    "an ORC file": re.compile(rb"ORC"),
    "a zip archive": re.compile(rb"PK(?:\x03\x04|\x05\x06)"),
    "a Hadoop SequenceFile": re.compile(rb"SEQ[\x00-\x06]"),
    "LZ4 of the legacy frame": re.compile(rb"\x02\x21\x4c\x18"),
}
_CONTAINERS = dict(row.container for row in ENVELOPES.values() if row.container) | _FOREIGN
_NO_TEXT = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
# Where POSIX ustar has the checksum of a header.
_TAR_SUM = slice(148, 156)


def find_codec(head: bytes) -> str:
    """Return an object's codec by its first bytes, or "" if it is not compressed or its codec has no magic bytes."""
    return next((name for name, codec in READ_CODECS.items() if codec.magic and codec.magic.match(head)), "")


def find_container(head: bytes) -> str:
    """Describe an object that is not made of lines, such as `a tar archive`. Return "" if its format is unknown."""
    if _is_tar(head):
        return "a tar archive"
    if not holds_no_text(head[:HEAD_BYTES]):
        return ""
    return next((name for name, magic in _CONTAINERS.items() if magic.match(head)), "")


def describe_head(head: bytes) -> str:
    """Describe an object by its first bytes, for messages. Return "" if its format is unknown."""
    codec = find_codec(head)
    return f"compressed with {codec}" if codec else find_container(head)


def describe_foreign_to_parquet(head: bytes) -> str:
    """Describe an object that should be Parquet but is not. Return "" if it is Parquet, or unknown."""
    return "" if head.startswith(PARQUET_MAGIC) else describe_head(head)


def holds_no_text(data: bytes | memoryview) -> bool:
    """Return True if the data hold a control character other than tabs, ends of lines, form feeds and escapes."""
    return _NO_TEXT.search(data) is not None


def _is_tar(head: bytes) -> bool:
    """Return True if it begins with a tar header that has the right checksum.

    The checksum is the sum of the header's bytes, with spaces in place of the checksum itself.
    """
    if head[257:262] != b"ustar" or len(head) < HEAD_BYTES:
        return False
    checksum_text = head[_TAR_SUM].split(b"\0")[0].strip()
    checksum = sum(head[:HEAD_BYTES]) - sum(head[_TAR_SUM]) + 8 * ord(" ")
    return re.fullmatch(rb"[0-7]+", checksum_text) is not None and int(checksum_text, 8) == checksum
