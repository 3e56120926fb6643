"""Defines the results of reading an object: payloads, batch by batch, or an error for a damaged or too large one."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import IO, Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from kafka_s3_platform.core.codecs.decompression import READ_BYTES, TooLargeError, decompress_stream
from kafka_s3_platform.core.codecs.table import READ_CODECS, SKIPPED_FRAME
from kafka_s3_platform.core.errors import HEAL_OBJECT, IntegrityError
from kafka_s3_platform.core.formats.magic_bytes import HEAD_BYTES, describe_head, find_codec
from kafka_s3_platform.core.model.connect import NO_SCHEMA, Int64s, Payload, Positions
from kafka_s3_platform.core.model.limits import DEFAULT_LIMITS, ReadLimits


def build_damage_error(key: str, what: str) -> IntegrityError:
    """Return the error for a damaged object. `what` follows the object's key in it, such as `ends too early`."""
    return IntegrityError(f"object {key} {what}. It is damaged or cut off, or something else wrote it")


def build_limit_error(key: str, what: str, limit: str) -> IntegrityError:
    """Return the error for an object beyond `archive.read.max.<limit>`. `what` follows the object's key in it."""
    return IntegrityError(
        f"object {key} {what}, which is more than archive.read.max.{limit} allows. It is damaged, or made to use up "
        f"memory or time; if it is what it should be, set that key higher"
    )


def refuse_many_empty(count: int, key: str, limits: ReadLimits) -> None:
    """Raise IntegrityError if the object `key` has more records without a byte than it may have."""
    if count > limits.empty_records:
        raise build_limit_error(key, f"has more than {limits.empty_records:,} records without a byte", "empty.records")


def add_remedy(error: IntegrityError) -> IntegrityError:
    """Return the error with the remedy for an object of this platform, unless it already has it."""
    text = str(error)
    return IntegrityError(text if HEAL_OBJECT in text else f"{text}; {HEAL_OBJECT}")


BATCH_RECORDS = 8_192
BATCH_BYTES = 8_388_608

_Value = TypeVar("_Value", bytes, bytes | None, tuple[Any, ...])


@dataclass(frozen=True)
class ReadBatch:
    """Records of an object in their order. A part is None if the object does not hold it.

    Attributes:
        value: the values.
        bad: the unreadable rows, each with its reason. Their payloads mean nothing.
        key: the keys.
        headers: a column of `RECORD_SCHEMA`.
        offsets: the offsets in Kafka, -1 if unknown.
        timestamps: epoch ms, -1 if there is none.
        timestamp_types: a column of `RECORD_SCHEMA`.
    """

    value: Payload
    bad: Mapping[int, str] = field(default_factory=dict)
    key: Payload | None = None
    headers: pa.Array | None = None
    offsets: Int64s | None = None
    timestamps: Int64s | None = None
    timestamp_types: pa.Int32Array | None = None

    def __len__(self) -> int:
        return len(self.value)

    @property
    def nbytes(self) -> int:
        """About how many bytes the keys, values and headers take."""
        columns = (self.value.raw, None if self.key is None else self.key.raw, self.headers)
        return sum(column.nbytes for column in columns if column is not None)

    def take(self, positions: Positions) -> "ReadBatch":
        """Return the records at ascending `positions`."""
        rows = {row: i for i, row in enumerate(positions.tolist())} if self.bad else {}
        return ReadBatch(
            self.value.take(positions),
            {rows[row]: why for row, why in self.bad.items() if row in rows},
            None if self.key is None else self.key.take(positions),
            None if self.headers is None else self.headers.take(pa.array(positions)),
            None if self.offsets is None else self.offsets[positions],
            None if self.timestamps is None else self.timestamps[positions],
            None if self.timestamp_types is None else self.timestamp_types.take(pa.array(positions)),
        )


class BatchReader(Protocol):
    """Reads the records of one object."""

    def batches(self) -> Iterator[ReadBatch]:
        """Return the records in batches, unreadable ones as `bad`. Raises IntegrityError if the object is damaged."""
        ...


def build_bytes_payload(values: pa.BinaryArray) -> Payload:
    """Build a payload of bytes without a schema."""
    return Payload(values, np.full(len(values), NO_SCHEMA, np.int32), ())


def read_pieces(
    source: IO[bytes], key: str, codec: str, limits: ReadLimits = DEFAULT_LIMITS, *, as_named: bool = False
) -> Iterator[bytes]:
    """Read an object of lines or bytes, piece by piece. Its content shows how it is compressed.

    If its key ends in the suffix of a codec, the content must have that codec. Otherwise it must have `codec`, if the
    connector file names one. If `as_named`, its values may begin with any bytes; see `decompress_lines`. Raises
    IntegrityError if the stream is damaged or cut off, is not of the named codec, or holds no lines.
    """
    suffixes = ((name, row.suffix) for name, row in READ_CODECS.items())
    named = next((name for name, suffix in suffixes if suffix and key.endswith(suffix)), codec)
    return decompress_lines(source, key, limits, named, as_named=as_named)


def decompress_lines(
    source: IO[bytes], key: str, limits: ReadLimits = DEFAULT_LIMITS, named: str = "", *, as_named: bool = False
) -> Iterator[bytes]:
    """Decompress a stream of lines or values, in pieces of at most `CHUNK_BYTES`, however far a few bytes expand.

    The first bytes of the stream show its codec.

    Args:
        source: the object.
        key: its key, for errors.
        limits: how much an object may ask for.
        named: the codec in the object's name or the connector file, or `none`; empty if neither names one.
        as_named: True if values may begin with any bytes, so only `named` decides.

    Raises:
        IntegrityError: the stream is damaged or cut off, is not of the named codec, or holds no lines.
    """
    start = source.read(READ_BYTES)
    codec = _find_codec(start, key, named, as_named=as_named)
    pieces = _name_damage(decompress_stream(codec, source, limits, start), key, codec, limits)
    if as_named:
        return pieces
    return _refuse_containers(pieces, key, "" if codec == "none" else f" inside of {codec}")


def _find_codec(start: bytes, key: str, named: str, *, as_named: bool) -> str:
    """Return the codec by first bytes, object name and settings. Raises IntegrityError if these disagree."""
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
    if named in {"snappy", "lz4"} and start[:1] == b"\0":
        return f"{named} of Hadoop"
    raise IntegrityError(
        f"object {key} does not begin as what ends in {READ_CODECS[named].suffix} does: its name or "
        f"s3.compression.type says {named}, its content is {describe_head(start) or 'not that'}. {_DAMAGED}"
    )


def _name_damage(pieces: Iterator[bytes], key: str, codec: str, limits: ReadLimits) -> Iterator[bytes]:
    """Pass the pieces on. Errors of the decompressor become IntegrityError with the object's key."""
    try:
        yield from pieces
    except TooLargeError as err:
        what = f"has a block of {codec} of more than {limits.block_bytes:,} bytes"
        raise build_limit_error(key, what, "block.bytes") from err
    except ValueError as err:
        raise IntegrityError(f"object {key} cannot be read as {codec}: {err}. {_DAMAGED}") from err


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


def batch_values(
    values: Iterable[_Value], size_of: Callable[[Any], int] = lambda value: 0 if value is None else len(value)
) -> Iterator[list[_Value]]:
    """Yield lists of at most BATCH_RECORDS values. A list also ends when it has BATCH_BYTES, counted with `size_of`."""
    batch: list[_Value] = []
    size = 0
    for value in values:
        batch.append(value)
        size += size_of(value)
        if len(batch) == BATCH_RECORDS or size >= BATCH_BYTES:
            yield batch
            batch = []
            size = 0
    if batch:
        yield batch
