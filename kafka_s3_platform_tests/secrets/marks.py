"""Texts that stand for secrets, and how they are found again, whatever they are wrapped in."""

import base64
import gzip
import re
import zlib
from collections.abc import Iterable, Iterator
from io import BytesIO

import pyarrow as pa
import pyarrow.parquet as pq

MARK = "mark-7f3a"


def mark(place: str) -> str:
    """The secret of one place. It needs no escape in URLs, JSON or properties."""
    return f"{MARK}-" + re.sub("[^a-z0-9]+", "-", place.casefold()).strip("-")


def found_in(name: str, content: str | bytes) -> list[str]:
    """Each mark in a text, or in what it is packed into, with what stands around it."""
    raw = content.encode(errors="surrogateescape") if isinstance(content, str) else content
    return [
        f"{name}: ...{layer[max(0, hit.start() - 200) : hit.end() + 60].decode(errors='replace')}..."
        for layer in _layers(raw)
        for hit in re.finditer(_ANY, layer)
    ]


def _encoded(text: bytes) -> Iterator[bytes]:
    """A text as it may stand in another: the inner part of its base64 is one of three."""
    yield re.escape(text)
    yield text.hex().encode()
    for shift in range(3):
        coded = base64.b64encode(b"\0" * shift + text).rstrip(b"=")
        yield re.escape(coded[(shift * 4 + 2) // 3 : -1])


_ANY = b"|".join(_encoded(MARK.encode()))


def _layers(content: bytes) -> Iterator[bytes]:
    yield content
    for unpack in (_gunzipped, _inflated, _zstd, _of_parquet, _of_base64):
        try:
            inner = unpack(content)
        except (ValueError, OSError, EOFError, zlib.error, pa.ArrowException):
            continue
        if inner:
            yield from _layers(inner)


def _gunzipped(content: bytes) -> bytes:
    return gzip.decompress(content) if content[:2] == b"\x1f\x8b" else b""


def _inflated(content: bytes) -> bytes:
    return zlib.decompress(content) if content[:1] == b"\x78" else b""


def _zstd(content: bytes) -> bytes:
    if content[:4] != b"\x28\xb5\x2f\xfd":
        return b""
    return bytes(pa.CompressedInputStream(pa.BufferReader(content), "zstd").read())


def _of_parquet(content: bytes) -> bytes:
    if content[:4] != b"PAR1":
        return b""
    table = pq.read_table(BytesIO(content))
    return repr((table.to_pylist(), table.schema.metadata)).encode()


def _of_base64(content: bytes) -> bytes:
    """What Dagster packs, such as the cursors of its own sensors: it may be deflated, too."""
    if len(content) < 16 or not re.fullmatch(rb"[A-Za-z0-9+/=\s]+", content):
        return b""
    return base64.b64decode(content, validate=False)


def all_found(texts: Iterable[tuple[str, str | bytes]]) -> list[str]:
    """`found_in` each of some named texts."""
    return [hit for name, content in texts for hit in found_in(name, content)]
