"""Compresses lines and bytes: none, gzip, bzip2 or zstd, one stream for each sink. Also reads lz4, snappy and xz.

Measured on 100,000 records of 231 B JSON, CPU microseconds a record and size: gzip by isal level 0 0.53 (13.8 MB), 1
0.51 (10.6 MB), 2 0.60 (10.6 MB), 3 0.80 (10.5 MB); zlib level 6 6.57 (10.2 MB); zlib-ng level 1 1.52 (14.7 MB), 3 2.54
(10.3 MB), 6 3.69 (10.0 MB), 9 6.78 (10.3 MB); zstd level 1 0.69 (9.7 MB), 3 1.56 (10.0 MB); bzip2 18.7 (8.1 MB).
So gzip without a level uses isal's level 1, 13 times cheaper than zlib's 6 for 4% more bytes (4 to 12% for other
records). An explicit level is zlib-ng's. The default of zstd is level 1.

Our libraries cannot read snappy's framings, Hadoop's snappy and LZ4 piece by piece, so this does. Sources: snappy's
framing format, snappy-java's SnappyInputStream (xerial), Hadoop's BlockDecompressorStream.
"""

import bz2
import io
import lzma
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import IO, Protocol

import cramjam
import google_crc32c
import pyarrow as pa
import zstandard
from isal import igzip_lib, isal_zlib
from zlib_ng import zlib_ng

from kafka_s3_platform.config.codecs import LINE_CODECS, READ_CODECS, SKIPPED_FRAME, SNAPPY_FRAMES, XERIAL
from kafka_s3_platform.errors import HEAL_OBJECT, ConfigError, IntegrityError
from kafka_s3_platform.formats.magic_bytes import HEAD_BYTES, describe_head, find_codec
from kafka_s3_platform.model.limits import NO_KEYS, ReadLimits


class Sink(Protocol):
    """A writable file of bytes."""

    @property
    def closed(self) -> bool: ...

    def write(self, data: bytes, /) -> int: ...

    def flush(self) -> None: ...


MOST_EMPTY_STREAMS = 10_000
"""An object or a block may hold so many empty streams, or empty parts of one: each takes time and yields nothing."""

_READ_BYTES = 262_144
# By snappy's framing format: the bytes of a chunk at most, the types of chunks with data (compressed, plain), and the
# first of the types that a reader skips.
_SNAPPY_BYTES = 65_536
_SNAPPY_CHUNKS = (0, 1)
_SKIPPABLE = 0x80
# Above the most that a byte can become: in snappy, three bytes copy 64.
_SNAPPY_MOST = 32
_LZ4_MOST = 255
"""The most bytes that a compressed byte can become."""


class _Source(Protocol):
    def read(self, size: int, /) -> bytes: ...


def read_snappy(source: _Source, limits: ReadLimits) -> Iterator[bytes]:
    """Decompress a stream of snappy's own frames, or one of snappy-java. Raise EOFError if it is cut off."""
    head = _read_up_to(source, len(SNAPPY_FRAMES))
    if head == SNAPPY_FRAMES:
        yield from _read_frames(source)
    else:
        # The head of snappy-java: eight bytes of magic, then two versions of four bytes each.
        _read_exactly(source, 2 * len(XERIAL) - len(head))
        yield from _read_xerial_blocks(source, limits)


def _read_frames(source: _Source) -> Iterator[bytes]:
    """Read the chunks after the first one, and compare their checksums."""
    empty = 0
    while head := _read_up_to(source, 4):
        kind = _require_bytes(head, 4)[0]
        size = int.from_bytes(head[1:], "little")
        chunk = _read_exactly(source, size)
        if kind == SNAPPY_FRAMES[0]:
            if chunk != SNAPPY_FRAMES[4:]:
                raise ValueError("a stream of snappy does not begin as one")
        elif kind in _SNAPPY_CHUNKS:
            body = chunk[4:] if kind else _decompress_raw_snappy(chunk[4:], _SNAPPY_BYTES)
            if len(body) > _SNAPPY_BYTES or _mask_crc(body) != int.from_bytes(chunk[:4], "little"):
                raise ValueError("the checksum of a chunk is wrong, or the chunk too large")
            empty = _count_empty(empty, body)
            yield body
        elif kind < _SKIPPABLE:
            raise ValueError(f"a chunk of the unknown type {kind}")
        else:
            empty = _count_empty(empty, b"")


def _read_xerial_blocks(source: _Source, limits: ReadLimits) -> Iterator[bytes]:
    empty = 0
    while size := _read_up_to(source, 4):
        if _require_bytes(size, 4) == XERIAL[:4]:
            _read_exactly(source, 2 * len(XERIAL) - len(size))  # the head of another stream
            body = b""
        else:
            body = _decompress_raw_snappy(_read_block(source, int.from_bytes(size, "big"), limits), limits.block_bytes)
        empty = _count_empty(empty, body)
        yield body


def read_hadoop_blocks(codec: str, source: _Source, limits: ReadLimits) -> Iterator[bytes]:
    """Decompress the blocks of Hadoop. Raise EOFError if the stream is cut off.

    Each block follows its size, and consists of one or more pieces. Each piece follows its compressed size.
    """
    empty = 0
    while head := _read_up_to(source, 4):
        remaining = int.from_bytes(_require_bytes(head, 4), "big")
        if remaining > limits.block_bytes:
            raise ValueError(f"a block of {remaining:,} bytes, more than archive.read.max.block.bytes allows")
        empty = _count_empty(empty, head if remaining else b"")
        while remaining:
            piece = _read_block(source, int.from_bytes(_read_exactly(source, 4), "big"), limits)
            body = HADOOP[codec](piece, remaining)
            remaining -= len(body)
            empty = _count_empty(empty, body)
            yield body


def _read_block(source: _Source, size: int, limits: ReadLimits) -> bytes:
    if size > limits.block_bytes:
        raise ValueError(f"a block of {size:,} bytes, more than archive.read.max.block.bytes allows")
    return _read_exactly(source, size)


def _decompress_raw_snappy(data: bytes, most: int) -> bytes:
    size = cramjam.snappy.decompress_raw_len(data)
    # snappy takes as much memory as the data claim to become, so the claim is checked first.
    if size > min(most, _SNAPPY_MOST * len(data)):
        raise ValueError(f"{len(data):,} bytes that claim to become {size:,}")
    return bytes(cramjam.snappy.decompress_raw(data))


def _decompress_raw_lz4(data: bytes, most: int) -> bytes:
    output = bytearray(min(most, _LZ4_MOST * len(data)))
    return bytes(output[: cramjam.lz4.decompress_block_into(data, output)])


def _count_empty(before: int, body: bytes) -> int:
    """Return how many parts were empty so far, including this one."""
    if before + (not body) > MOST_EMPTY_STREAMS:
        raise ValueError(f"more than {MOST_EMPTY_STREAMS:,} of its parts are empty")
    return before + (not body)


def _mask_crc(body: bytes) -> int:
    # As the framing format masks its CRC-32C.
    crc: int = google_crc32c.value(body)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _read_up_to(source: _Source, size: int) -> bytes:
    """Return `size` bytes, or fewer at the end of the stream."""
    # In pieces: a damaged stream may claim a size that it does not have.
    parts = []
    remaining = size
    while remaining and (part := source.read(min(remaining, _READ_BYTES))):
        parts.append(part)
        remaining -= len(part)
    return b"".join(parts)


def _read_exactly(source: _Source, size: int) -> bytes:
    return _require_bytes(_read_up_to(source, size), size)


def _require_bytes(data: bytes, size: int) -> bytes:
    if len(data) < size:
        raise EOFError
    return data


HADOOP: Mapping[str, Callable[[bytes, int], bytes]] = {"snappy": _decompress_raw_snappy, "lz4": _decompress_raw_lz4}
"""Decompresses a piece. The number is how many bytes it may become."""


CHUNK_BYTES = 1_048_576
READ_BYTES = 262_144

FIRST_BYTES = 128
"""The size of the first piece that a stream gets, which may be one of a million. Each next piece is twice as large."""

# The stub declares an instance, but it is the class.
_IsalError: type[Exception] = igzip_lib.IsalError  # type: ignore[assignment]
_FAULTS: tuple[type[Exception], ...] = (OSError, ValueError, _IsalError, lzma.LZMAError, cramjam.DecompressionError)
# zlib's number for gzip's header and the largest window.
_GZIP_WBITS = 31
_GZIP_LEVEL = 1
_ZSTD_LEVEL = 1
# bzip2's own default.
_BZIP2_LEVEL = 9
# The most memory that xz may take to decompress. Its highest level needs 65 MB.
_XZ_BYTES = 134_217_728


class Compressor(Protocol):
    """One compressed stream."""

    def compress(self, data: memoryview, /) -> bytes: ...

    def flush(self) -> bytes: ...


class CompressedSink:
    """Compresses into another sink. The same bytes give the same bytes, however they are written.

    The compressor gets pieces of `CHUNK_BYTES`, because its output depends on the bounds of its input. gzip's header
    holds no file name and no time.
    """

    def __init__(self, sink: Sink, codec: str, level: int | None = None) -> None:
        self._sink = sink
        self._compressor = _new_compressor(codec, level)
        self._pending = bytearray()

    @property
    def buffered_bytes(self) -> int:
        """The bytes not yet compressed."""
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
        full_bytes = len(view) - len(view) % CHUNK_BYTES
        for start in range(0, full_bytes, CHUNK_BYTES):
            self._compress(view[start : start + CHUNK_BYTES])
        self._pending += view[full_bytes:]

    def close(self) -> None:
        """Write the buffered bytes, and end the stream. The sink below stays open."""
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
    line_codec = COMPRESSION.get(codec)
    if line_codec is None or line_codec.new_compressor is None:
        raise ConfigError(f"no codec '{codec}' for lines and bytes; there are {', '.join(LINE_CODECS)}")
    return line_codec.new_compressor(level)


def _new_gzip(level: int | None) -> Compressor:
    if level:
        return zlib_ng.compressobj(level, zlib_ng.DEFLATED, _GZIP_WBITS)
    return isal_zlib.compressobj(_GZIP_LEVEL, isal_zlib.DEFLATED, _GZIP_WBITS)


def _new_zstd(level: int | None) -> Compressor:
    return zstandard.ZstdCompressor(level=level or _ZSTD_LEVEL, write_checksum=True).compressobj()


def decompress_lines(
    source: IO[bytes], key: str, limits: ReadLimits = NO_KEYS, named: str = "", *, as_named: bool = False
) -> Iterator[bytes]:
    """Decompress a stream of lines or values, in pieces of at most `CHUNK_BYTES`, however far a few bytes expand.

    The first bytes of the stream show its codec.

    Args:
        source: the object.
        key: its key, for errors.
        limits: how much an object may ask for.
        named: the codec in the object's name or the connector file, or `none`. Empty: neither names one.
        as_named: values may begin with any bytes, so only `named` decides.

    Raises:
        IntegrityError: the stream is damaged or cut off, is not of the named codec, or holds no lines.
    """
    start = source.read(READ_BYTES)
    codec = _find_codec(start, key, named, as_named=as_named)
    pieces = _name_damage(COMPRESSION[codec].decompress(_PrefixedSource(start, source), limits), key, codec)
    if as_named:
        return pieces
    return _refuse_containers(pieces, key, "" if codec == "none" else f" inside of {codec}")


def _find_codec(start: bytes, key: str, named: str, *, as_named: bool) -> str:
    codec = find_codec(start)
    if named == "lz4" and start[1:4] == SKIPPED_FRAME:
        codec = named  # LZ4 and zstd begin the frames that readers skip alike
    if as_named and codec and not named:
        raise IntegrityError(
            f"object {key} begins as {codec} does: whether it is compressed, or its first value is, nothing tells. Set "
            f"s3.compression.type={codec}, or none"
        )
    if codec and (named == codec or not as_named):
        return codec
    if named in {"", "none"}:
        return "none"
    # Hadoop's blocks have no signature. They begin with a size in big-endian, whose first byte is 0 below 16 MB.
    if named in HADOOP and start[:1] == b"\0":
        return f"{named} of Hadoop"
    raise IntegrityError(
        f"object {key} does not begin as what ends in {READ_CODECS[named].suffix} does: its name or "
        f"s3.compression.type says {named}, its content is {describe_head(start) or 'not that'}. {_DAMAGED}"
    )


def _name_damage(pieces: Iterator[bytes], key: str, codec: str) -> Iterator[bytes]:
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


def _refuse_containers(pieces: Iterator[bytes], key: str, inside: str) -> Iterator[bytes]:
    """Pass the pieces on. Raise IntegrityError if their first bytes show a file of another kind."""
    head = b""
    for piece in pieces:
        head += piece
        if len(head) >= HEAD_BYTES:
            break
    if what := describe_head(head):
        raise IntegrityError(f"object {key} is {what}{inside}, not lines or values. {_UNREAD}")
    if head:
        yield head
    yield from pieces


_DAMAGED = f"It is damaged or cut off; {HEAL_OBJECT}"
_UNREAD = (
    "If all objects are: name its format (format.class, format.output.type), or unpack archives and what is compressed "
    "twice under other keys, and restore those; if it alone is, it does not belong here"
)


class _PrefixedSource(io.RawIOBase):
    """A source whose first bytes `start` have been read already."""

    def __init__(self, start: bytes, source: IO[bytes]) -> None:
        self._start = start
        self._source = source

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        data = self._start
        self._start = b""
        if size >= len(data) or size < 0:
            return data or self._source.read(size)
        self._start = data[size:]
        return data[:size]


class _Decompressor(Protocol):
    """Decompresses one stream, as Python's bz2 does."""

    @property
    def eof(self) -> bool: ...

    @property
    def needs_input(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes | memoryview, max_length: int) -> bytes: ...


def _decompress_members(new_decompressor: Callable[[], _Decompressor], source: _PrefixedSource) -> Iterator[bytes]:
    """Decompress streams in a row. Raise EOFError if the last one is cut off."""
    stream = new_decompressor()
    size = FIRST_BYTES
    come = 0
    empty = 0
    data = memoryview(source.read(READ_BYTES))
    at = 0
    while data:
        if stream.eof:
            empty += not come
            if empty > MOST_EMPTY_STREAMS:
                raise ValueError(f"more than {MOST_EMPTY_STREAMS:,} of its streams are empty")
            stream = new_decompressor()
            size = FIRST_BYTES
            come = 0
        # In growing pieces: the decompressor copies all bytes after its stream, and there may be a million streams.
        piece = data[at : at + size]
        output = stream.decompress(piece, CHUNK_BYTES)
        come += len(output)
        yield output
        # A few bytes may expand a lot, so the output comes in pieces too.
        while not (stream.needs_input or stream.eof):
            yield stream.decompress(b"", CHUNK_BYTES)
        at = at + len(piece) - (len(stream.unused_data) if stream.eof else 0)
        size = min(2 * size, READ_BYTES)
        if at == len(data):
            data = memoryview(source.read(READ_BYTES))
            at = 0
    if not stream.eof:
        raise EOFError


def decompress_frames(codec: str, source: pa.NativeFile) -> Iterator[bytes]:
    """Decompress with Arrow, and yield pieces of at most `CHUNK_BYTES`.

    python-zstandard either returns the whole content at once, or does not notice the lack of a stream's end.
    """
    with pa.CompressedInputStream(source, codec) as stream:
        # Not `read`: if that fails, it never frees the bytes that it has taken for the piece.
        while piece := stream.read_buffer(CHUNK_BYTES):
            yield piece.to_pybytes()


@dataclass(frozen=True)
class LineCodec:
    """Decompresses objects of lines and bytes, and compresses them if they are written with the codec."""

    decompress: Callable[[_PrefixedSource, ReadLimits], Iterator[bytes]]
    new_compressor: Callable[[int | None], Compressor] | None = None


COMPRESSION: Mapping[str, LineCodec] = {
    "none": LineCodec(lambda source, _: iter(lambda: source.read(READ_BYTES), b""), lambda _: _Stored()),
    "gzip": LineCodec(
        lambda source, _: _decompress_members(lambda: igzip_lib.IgzipDecompressor(igzip_lib.DECOMP_GZIP), source),
        _new_gzip,
    ),
    "bzip2": LineCodec(
        lambda source, _: _decompress_members(bz2.BZ2Decompressor, source),
        lambda level: bz2.BZ2Compressor(level or _BZIP2_LEVEL),
    ),
    "xz": LineCodec(
        lambda source, _: _decompress_members(lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_BYTES), source)
    ),
    "zstd": LineCodec(lambda source, _: decompress_frames("zstd", pa.PythonFile(source, "r")), _new_zstd),
    "lz4": LineCodec(lambda source, _: decompress_frames("lz4", pa.PythonFile(source, "r"))),
    "snappy": LineCodec(read_snappy),
    # Hadoop's blocks have no signature: only the object's name or the file shows them.
    "snappy of Hadoop": LineCodec(partial(read_hadoop_blocks, "snappy")),
    "lz4 of Hadoop": LineCodec(partial(read_hadoop_blocks, "lz4")),
}
"""Each codec, by the name of its row in `config/codecs.py`."""
