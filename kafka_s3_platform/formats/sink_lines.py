"""What sinks write for bytes where a format has texts: base64. And for nulls, where it has lines: `null`."""

import base64
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_s3_platform.formats.json_reader import JsonLinePayload
from kafka_s3_platform.formats.parts import HEADERS_SCHEMA
from kafka_s3_platform.formats.reading import BatchReader, ReadBatch, bytes_payload
from kafka_s3_platform.model.connect import Payload

_NULL = b"null"
_text = msgspec.json.Decoder(str).decode


def bytes_of_text(line: bytes) -> bytes | None:
    """The bytes that a text stands for; null for null; of JSON that is no text, which no sink made of bytes, itself.

    Raises:
        ValueError: the text is no base64.
    """
    if line == _NULL:
        return None
    if not line.lstrip().startswith(b'"'):
        return line
    try:
        return base64.b64decode(_text(line), validate=True)
    except ValueError as err:
        raise ValueError(
            f"a text that is no base64, as which sinks write the bytes of ByteArrayConverter: {err}"
        ) from err


class NullLines:
    """Reads lines that `reader` gives; where one is `null`, its record has none."""

    def __init__(self, reader: BatchReader) -> None:
        self._reader = reader

    def batches(self) -> Iterator[ReadBatch]:
        """Its records. Raises what `reader` raises."""
        for batch in self._reader.batches():
            raw = batch.value.raw
            nulls = pc.equal(raw, pa.scalar(_NULL, pa.binary()))
            lines = pc.if_else(nulls, pa.scalar(None, pa.binary()), raw)
            yield replace(batch, value=JsonLinePayload(lines, batch.value.codes, ()))


class Base64Lines:
    """Reads lines that `reader` gives as the bytes that they stand for."""

    def __init__(self, reader: BatchReader) -> None:
        self._reader = reader

    def batches(self) -> Iterator[ReadBatch]:
        """Its records, those that are no base64 as `bad`. Raises what `reader` raises."""
        at = 0
        for batch in self._reader.batches():
            values, bad = list[bytes | None](), dict(batch.bad)
            for row, line in enumerate(pa.array(batch.value.raw).to_pylist()):
                values.append(None)
                if row not in bad:
                    try:
                        values[row] = bytes_of_text(line)
                    except ValueError as err:
                        bad[row] = f"line {at + row + 1}: is {err}"
            yield replace(batch, value=bytes_payload(pa.array(values, pa.binary())), bad=bad)
            at += len(batch)


class Base64Headers:
    """Reads the headers that `reader` gives, with the bytes that their texts stand for."""

    def __init__(self, reader: BatchReader) -> None:
        self._reader = reader

    def batches(self) -> Iterator[ReadBatch]:
        """The headers of each record, those of no base64 as `bad`. Raises what `reader` raises."""
        for batch in self._reader.batches():
            found, bad = list[Any](), dict(batch.bad)
            for row, one in enumerate(batch.value.objects):
                found.append([])
                try:
                    found[row] = _headers_of(one)
                except (TypeError, ValueError, LookupError) as err:
                    bad[row] = f"headers of record {row + 1} are no base64, as which sinks write them: {err}"
            yield ReadBatch(Payload(None, np.zeros(len(batch), np.int32), [HEADERS_SCHEMA], found), bad)


def _headers_of(one: Any) -> list[dict[str, Any]]:
    headers = one["headers"] if isinstance(one, dict) else one
    return [
        {**h, "value": None if h["value"] is None else base64.b64decode(h["value"], validate=True)} for h in headers
    ]
