"""Compression of line and byte formats: none, gzip, bzip2 or zstd, as one stream a sink; lz4, snappy, xz are read too.

Measured on 100,000 records of 231 B JSON, CPU microseconds a record and size: gzip by isal level 0 0.53 (13.8 MB), 1
0.51 (10.6 MB), 2 0.60 (10.6 MB), 3 0.80 (10.5 MB); zlib level 6 6.57 (10.2 MB); zlib-ng level 1 1.52 (14.7 MB), 3 2.54
(10.3 MB), 6 3.69 (10.0 MB), 9 6.78 (10.3 MB); zstd level 1 0.69 (9.7 MB), 3 1.56 (10.0 MB); bzip2 18.7 (8.1 MB).
So gzip without a level is isal's level 1, 13 times cheaper than zlib's 6 for 4% more bytes (4 to 12% on other records);
an explicit level is zlib-ng's, and zstd's default is level 1.
"""

import bz2
import io
import lzma
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import IO, Protocol

import cramjam
import pyarrow as pa
import zstandard
from isal import igzip_lib, isal_zlib
from zlib_ng import zlib_ng

from kafka_s3_platform.errors import HEAL_OBJECT, ConfigError, IntegrityError
from kafka_s3_platform.formats.blocks import HADOOP, MOST_EMPTY_STREAMS, hadoop_blocks, snappy_blocks
from kafka_s3_platform.formats.content import HEAD_BYTES, SKIPPED_FRAME, codec_of, told_of
from kafka_s3_platform.formats.envelope import Sink
from kafka_s3_platform.model.limits import NO_KEYS, ReadLimits

CHUNK_BYTES = 1_048_576
READ_BYTES = 262_144

FIRST_BYTES = 128
"""How much a stream that may be one of a million is given first; the next piece is twice as large."""

SUFFIXES = {
    "none": "",
    "gzip": ".gz",
    "bzip2": ".bz2",
    "zstd": ".zst",
    "lz4": ".lz4",
    "snappy": ".snappy",
    "xz": ".xz",
}
"""What a codec adds to an extension; `.gz` is Connect's. The last three are read and not written."""

# Its stub says instance where it is the class.
_IsalError: type[Exception] = igzip_lib.IsalError  # type: ignore[assignment]
_FAULTS: tuple[type[Exception], ...] = (OSError, ValueError, _IsalError, lzma.LZMAError, cramjam.DecompressionError)
_GZIP_WBITS = 31
_GZIP_LEVEL = 1
_ZSTD_LEVEL = 1
_BZIP2_LEVEL = 9
_XZ_BYTES = 134_217_728


class Compressor(Protocol):
    """One compressed stream."""

    def compress(self, data: memoryview, /) -> bytes: ...

    def flush(self) -> bytes: ...


class CompressedSink:
    """A sink that compresses into another. The same bytes give the same bytes, however they are written.

    The compressor is given pieces of `CHUNK_BYTES`, because what it makes of them depends on where they are cut. gzip
    has no name and no time.
    """

    def __init__(self, sink: Sink, codec: str, level: int | None = None) -> None:
        self._sink, self._compressor = sink, _new_compressor(codec, level)
        self._pending = bytearray()

    @property
    def buffered_bytes(self) -> int:
        """Bytes that wait to be compressed."""
        return len(self._pending)

    def write(self, data: bytes | memoryview) -> None:
        """Append bytes."""
        view = memoryview(data)
        if self._pending:
            taken = view[: CHUNK_BYTES - len(self._pending)]
            self._pending += taken
            view = view[len(taken) :]
            if len(self._pending) == CHUNK_BYTES:
                self._compress(memoryview(bytes(self._pending)))
                self._pending.clear()
        whole = len(view) - len(view) % CHUNK_BYTES
        for start in range(0, whole, CHUNK_BYTES):
            self._compress(view[start : start + CHUNK_BYTES])
        self._pending += view[whole:]

    def close(self) -> None:
        """Write what is held and the end of the stream. The sink below stays open."""
        self._compress(memoryview(bytes(self._pending)))
        self._pending.clear()
        self._send(self._compressor.flush())

    def _compress(self, data: memoryview) -> None:
        self._send(self._compressor.compress(data))

    def _send(self, data: bytes) -> None:
        if data:
            self._sink.write(data)


class _Stored:
    """No compression."""

    def compress(self, data: memoryview, /) -> bytes:
        return bytes(data)

    def flush(self) -> bytes:
        return b""


def _new_compressor(codec: str, level: int | None) -> Compressor:
    match codec:
        case "none":
            return _Stored()
        case "gzip" if level:
            return zlib_ng.compressobj(level, zlib_ng.DEFLATED, _GZIP_WBITS)
        case "gzip":
            return isal_zlib.compressobj(_GZIP_LEVEL, isal_zlib.DEFLATED, _GZIP_WBITS)
        case "bzip2":
            return bz2.BZ2Compressor(level or _BZIP2_LEVEL)
        case "zstd":
            return zstandard.ZstdCompressor(level=level or _ZSTD_LEVEL, write_checksum=True).compressobj()
    raise ConfigError(f"no codec '{codec}' for lines and bytes; there are none, gzip, bzip2 and zstd")


def decompressed(
    source: IO[bytes], key: str, limits: ReadLimits = NO_KEYS, named: str = "", *, as_named: bool = False
) -> Iterator[bytes]:
    """What a stream of lines or values holds, in pieces of at most `CHUNK_BYTES`, however much the next bytes hold.

    Its codec is told by its first bytes; `key` names the object in errors.

    Args:
        source: the object.
        key: its key.
        limits: of what is read.
        named: what its name or the file says that it is compressed with, `none` too; empty where neither says it.
        as_named: values may begin like anything, so that only what is named counts.

    Raises:
        IntegrityError: the stream is damaged, cut off, not compressed though that is said, or no lines at all.
    """
    start = source.read(READ_BYTES)
    codec = _codec(start, key, named, as_named=as_named)
    pieces = _told(_DECOMPRESSED[codec](_Behind(start, source), limits), key, codec)
    return pieces if as_named else _of_lines(pieces, key, "" if codec == "none" else f" inside of {codec}")


def _codec(start: bytes, key: str, named: str, *, as_named: bool) -> str:
    found = codec_of(start)
    if named == "lz4" and start[1:4] == SKIPPED_FRAME:
        found = named  # its frames to be skipped are those of zstd
    if as_named and found and not named:
        raise IntegrityError(
            f"object {key} begins as {found} does: whether it is compressed, or its first value is, nothing tells. Set "
            f"s3.compression.type={found}, or none"
        )
    if found and (named == found or not as_named):
        return found
    if named in {"", "none"}:
        return "none"
    if named in HADOOP and start[:1] == b"\0":
        return f"{named} of Hadoop"
    raise IntegrityError(
        f"object {key} does not begin as what ends in {SUFFIXES[named]} does: its name or s3.compression.type says "
        f"{named}, its content is {told_of(start) or 'not that'}. {_DAMAGED}"
    )


def _told(pieces: Iterator[bytes], key: str, codec: str) -> Iterator[bytes]:
    while True:
        try:
            piece = next(pieces, None)
        except EOFError as err:
            raise IntegrityError(f"object {key} ends in the middle of its {codec} stream. {_DAMAGED}") from err
        except _FAULTS as err:
            raise IntegrityError(f"object {key} cannot be read as {codec}: {err}. {_DAMAGED}") from err
        if piece is None:
            return
        yield piece


def _of_lines(pieces: Iterator[bytes], key: str, inside: str) -> Iterator[bytes]:
    """The pieces, after a look at how they begin."""
    head = b""
    for piece in pieces:
        head += piece
        if len(head) >= HEAD_BYTES:
            break
    if what := told_of(head):
        raise IntegrityError(f"object {key} is {what}{inside}, not lines or values. {_UNREAD}")
    if head:
        yield head
    yield from pieces


_DAMAGED = f"It is damaged or cut off; {HEAL_OBJECT}"
_UNREAD = (
    "If all objects are: name its format (format.class, format.output.type), or unpack archives and what is compressed "
    "twice under other keys, and restore those; if it alone is, it does not belong here"
)


class _Behind(io.RawIOBase):
    """A source whose first bytes were read already."""

    def __init__(self, start: bytes, source: IO[bytes]) -> None:
        self._start, self._source = start, source

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        found, self._start = self._start, b""
        if size >= len(found) or size < 0:
            return found or self._source.read(size)
        self._start = found[size:]
        return found[:size]


class _Decompressor(Protocol):
    """One compressed stream, as Python's bz2 has it."""

    @property
    def eof(self) -> bool: ...

    @property
    def needs_input(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes | memoryview, max_length: int) -> bytes: ...


def _members(new_decompressor: Callable[[], _Decompressor], source: _Behind) -> Iterator[bytes]:
    """EOFError where the last of the streams in a row has no end."""
    stream, size, come, empty = new_decompressor(), FIRST_BYTES, 0, 0
    data, at = memoryview(source.read(READ_BYTES)), 0
    while data:
        if stream.eof:
            empty += not come
            if empty > MOST_EMPTY_STREAMS:
                raise ValueError(f"more than {MOST_EMPTY_STREAMS:,} of its streams are empty")
            stream, size, come = new_decompressor(), FIRST_BYTES, 0
        # In growing pieces: what lies behind a stream is copied, and there may be a million of them.
        piece = data[at : at + size]
        found = stream.decompress(piece, CHUNK_BYTES)
        come += len(found)
        yield found
        while not (stream.needs_input or stream.eof):
            yield stream.decompress(b"", CHUNK_BYTES)
        at, size = at + len(piece) - (len(stream.unused_data) if stream.eof else 0), min(2 * size, READ_BYTES)
        if at == len(data):
            data, at = memoryview(source.read(READ_BYTES)), 0
    if not stream.eof:
        raise EOFError


def _frames(codec: str, source: _Behind) -> Iterator[bytes]:
    """By Arrow: python-zstandard either gives all that its input holds at once, or does not tell a cut-off stream."""
    with pa.CompressedInputStream(pa.PythonFile(source, "r"), codec) as stream:
        yield from iter(lambda: stream.read(CHUNK_BYTES), b"")


_DECOMPRESSED: Mapping[str, Callable[[_Behind, ReadLimits], Iterator[bytes]]] = {
    "none": lambda source, _: iter(lambda: source.read(READ_BYTES), b""),
    "gzip": lambda source, _: _members(lambda: igzip_lib.IgzipDecompressor(igzip_lib.DECOMP_GZIP), source),
    "bzip2": lambda source, _: _members(bz2.BZ2Decompressor, source),
    "xz": lambda source, _: _members(lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_BYTES), source),
    "zstd": lambda source, _: _frames("zstd", source),
    "lz4": lambda source, _: _frames("lz4", source),
    "snappy": snappy_blocks,
    "snappy of Hadoop": partial(hadoop_blocks, "snappy"),
    "lz4 of Hadoop": partial(hadoop_blocks, "lz4"),
}
