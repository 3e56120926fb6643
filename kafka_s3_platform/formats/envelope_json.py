"""The envelope as JSON lines: whole records, one a line, nothing converted.

A line is an object with the members of `RECORD_SCHEMA` in its order: `key`, `value` and the `value` of each header are
base64 (RFC 4648, with padding) or null, `headers` is an array of `{"key": ..., "value": ...}` or null, `timestamp` is
epoch milliseconds, the rest are numbers and text as in that schema. Null is null, empty is "" or [], absent headers are
null.
"""

from collections.abc import Iterator, Mapping
from typing import IO, Any, TypedDict

import msgspec
import pyarrow as pa

from kafka_s3_platform.errors import HEAL_OBJECT, IntegrityError
from kafka_s3_platform.formats.compression import CompressedSink, decompressed
from kafka_s3_platform.formats.damage import beyond
from kafka_s3_platform.formats.envelope import Sink
from kafka_s3_platform.formats.json_reader import lines_of
from kafka_s3_platform.formats.lines import LINE
from kafka_s3_platform.formats.reading import batched
from kafka_s3_platform.formats.rows import batch_of, rows_of
from kafka_s3_platform.model.limits import NO_KEYS, ReadLimits


class Header(TypedDict):
    """A header of a record."""

    key: str
    value: bytes | None


class Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line. Its members are those of `RECORD_SCHEMA`, in its order."""

    key: bytes | None
    value: bytes | None
    headers: list[Header] | None
    topic: str
    partition: int
    offset: int
    timestamp: int
    timestampType: int  # noqa: N815 - Spark's name


_encode = msgspec.json.Encoder().encode_lines
_decode = msgspec.json.Decoder(Row).decode


class EnvelopeJsonWriter:
    """Writes record batches as lines. The same records give the same bytes, however they are batched."""

    def __init__(self, sink: Sink, codec: str, level: int | None = None) -> None:
        self._sink = CompressedSink(sink, codec, level)

    @property
    def buffered_bytes(self) -> int:
        return self._sink.buffered_bytes

    def write(self, batch: pa.RecordBatch) -> None:
        """Append a batch of `RECORD_SCHEMA`."""
        self._sink.write(_encode([Row(*row) for row in rows_of(batch)]))

    def close(self, metadata: Mapping[str, str]) -> None:  # noqa: ARG002 - a line for it would be no record
        """Write what is held. The sink stays open."""
        self._sink.close()


class EnvelopeJsonReader:
    """Reads what `EnvelopeJsonWriter` wrote, of whatever codec. `key` names the object in errors."""

    def __init__(self, source: IO[bytes], key: str, limits: ReadLimits = NO_KEYS) -> None:
        self._source, self._key, self._limits = source, key, limits

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Record batches in offset order, each of some megabytes.

        Raises:
            IntegrityError: the object is damaged, cut off, or not an envelope. What the source raises passes through.
        """
        for lines in batched(self._lines()):
            yield self._batch(lines)

    def _batch(self, lines: list[bytes]) -> pa.RecordBatch:
        try:
            return batch_of([self._row(line) for line in lines])
        except (msgspec.MsgspecError, UnicodeDecodeError, pa.ArrowException, OverflowError, RecursionError) as err:
            raise IntegrityError(
                f"object {self._key} holds a line that is no record of an envelope: {err}. It is damaged, or another "
                f"tool wrote it; {HEAL_OBJECT}"
            ) from err

    def _row(self, line: bytes) -> tuple[Any, ...]:
        # A header has one comma and another behind it. Base64 has none; text may have some, in fewer headers.
        if line.count(b",") > 2 * self._limits.items:
            raise beyond(self._key, f"has a record of more than {self._limits.items:,} headers", "items")
        return msgspec.structs.astuple(_decode(line))

    def _lines(self) -> Iterator[bytes]:
        try:
            pieces = decompressed(self._source, self._key, self._limits)
            yield from lines_of(pieces, LINE, self._key, self._limits, open_end=False)
        except IntegrityError as err:
            raise IntegrityError(str(err) if HEAL_OBJECT in str(err) else f"{err}; {HEAL_OBJECT}") from err
