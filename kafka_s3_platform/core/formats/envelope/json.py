"""The envelope as JSON lines: whole records, one in each line, with nothing converted.

A line is an object with the members of `RECORD_SCHEMA` in its order: `key`, `value` and the `value` of each header are
base64 (RFC 4648, with padding) or null, `headers` is an array of `{"key": ..., "value": ...}` or null, `timestamp` is
in epoch milliseconds, and the other members are numbers and text as in the schema. Null is null, empty is "" or [], and
absent headers are null.
"""

from collections.abc import Iterator
from typing import IO, Any, TypedDict

import msgspec
import pyarrow as pa

from kafka_s3_platform.core.codecs.compression import Sink
from kafka_s3_platform.core.errors import HEAL_OBJECT, IntegrityError
from kafka_s3_platform.core.formats.envelope.records import build_batch, list_rows
from kafka_s3_platform.core.formats.format_io import FormatIO
from kafka_s3_platform.core.formats.lines import LINE, LinesWriter, split_lines
from kafka_s3_platform.core.formats.reading import add_remedy, batch_values, build_limit_error, decompress_lines
from kafka_s3_platform.core.model.connect import ConnectBatch
from kafka_s3_platform.core.model.limits import DEFAULT_LIMITS, ReadLimits


class HeaderLine(TypedDict):
    """A header of a record."""

    key: str
    value: bytes | None


class EnvelopeLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line. Its members are the fields of `RECORD_SCHEMA`, in its order."""

    key: bytes | None
    value: bytes | None
    headers: list[HeaderLine] | None
    topic: str
    partition: int
    offset: int
    timestamp: int
    timestampType: int  # noqa: N815 - Spark's name


_encode = msgspec.json.Encoder().encode_lines
_decode = msgspec.json.Decoder(EnvelopeLine).decode


def new_json_writer(sink: Sink, codec: str, level: int | None = None) -> LinesWriter:
    """Return the writer of an object of whole records."""
    return LinesWriter(sink, _encode_lines, codec, level)


def _encode_lines(batch: ConnectBatch) -> bytes:
    return _encode([EnvelopeLine(*row) for row in list_rows(batch.records)])


class EnvelopeJsonReader:
    """Reads objects of `new_json_writer`, with any codec. `key` names the object in errors."""

    def __init__(self, source: IO[bytes], key: str, limits: ReadLimits = DEFAULT_LIMITS) -> None:
        self._source = source
        self._key = key
        self._limits = limits

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Return record batches in offset order, each of some megabytes.

        Raises IntegrityError if the object is damaged, cut off, or not an envelope. Errors of the source pass through.
        """
        for lines in batch_values(self._lines()):
            yield self._batch(lines)

    def _batch(self, lines: list[bytes]) -> pa.RecordBatch:
        """Decode lines to a batch. Raises IntegrityError if one is no record of an envelope."""
        try:
            return build_batch([self._row(line) for line in lines])
        except (msgspec.MsgspecError, UnicodeDecodeError, pa.ArrowException, OverflowError, RecursionError) as err:
            raise IntegrityError(
                f"object {self._key} holds a line that is no record of an envelope: {err}. It is damaged, or another "
                f"tool wrote it; {HEAL_OBJECT}"
            ) from err

    def _row(self, line: bytes) -> tuple[Any, ...]:
        """Decode a line to the columns of its record. Raises IntegrityError if it has more headers than the limit."""
        # Counted before the line is decoded. A header has a comma inside and one after it; base64 has none. The keys
        # of headers may have some, so a line with fewer headers may be refused too.
        if line.count(b",") > 2 * self._limits.items:
            raise build_limit_error(self._key, f"has a record of more than {self._limits.items:,} headers", "items")
        return msgspec.structs.astuple(_decode(line))

    def _lines(self) -> Iterator[bytes]:
        """Yield the lines of the object. Raises IntegrityError if it is damaged or cut off."""
        try:
            pieces = decompress_lines(self._source, self._key, self._limits)
            yield from split_lines(pieces, LINE, self._key, self._limits, open_end=False)
        except IntegrityError as err:
            raise add_remedy(err) from err


FORMAT_IO = FormatIO(
    new_writer=lambda request: new_json_writer(request.sink, request.codec, request.level),
    new_record_reader=EnvelopeJsonReader,
)
