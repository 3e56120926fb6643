"""Writes formats of records in a row, each ended by a separator: a buffer for each batch, compressed."""

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_s3_platform.core.codecs.compression import CompressedSink, Sink
from kafka_s3_platform.core.formats.columns import read_strings
from kafka_s3_platform.core.model.connect import ConnectBatch, Mask

LINE = b"\n"


class LinesWriter:
    """Writes the buffer that `framed` makes of each batch, compressed.

    Such a file has no place for facts. They become the object's metadata.
    """

    def __init__(
        self, sink: Sink, framed: Callable[[ConnectBatch], bytes | memoryview], codec: str, level: int | None
    ) -> None:
        self._sink = CompressedSink(sink, codec, level)
        self._framed = framed
        self.sidecars: Mapping[str, bytes] = {}

    @property
    def buffered_bytes(self) -> int:
        return self._sink.buffered_bytes

    def write(self, batch: ConnectBatch) -> None:
        """Append the records of a batch."""
        self._sink.write(self._framed(batch))

    def close(self, _: Mapping[str, str], /) -> None:
        """Write the buffered bytes. The sink stays open."""
        self._sink.close()


def end_values(values: pa.BinaryArray, separator: bytes = LINE) -> memoryview:
    """Join the values, each with `separator` after it. None may be null.

    Measured: 0.05 CPU microseconds a record of 231 B; joining Python's bytes takes 0.19.
    """
    return read_strings(pc.binary_join_element_wise(values, b"", separator)).data


def holds_separator(values: pa.BinaryArray, separator: bytes) -> Mask:
    """Return True for values in which the separator begins: they would be read back as something else.

    A null is False.
    """
    if _is_absent(separator[:1], values):
        return np.zeros(len(values), bool)
    # Searched with the separator after each value: a value may end with the first bytes of the separator.
    positions = pc.find_substring(pc.binary_join_element_wise(values, b"", separator), separator)
    return _to_mask(pc.less(positions, pc.binary_length(values)))


def holds_inner_line_break(values: pa.BinaryArray) -> Mask:
    """Return True for values of several lines. A break at the end of a value ends its line."""
    if _is_absent(LINE, values):
        return np.zeros(len(values), bool)
    positions = pc.find_substring(values, LINE)
    return _to_mask(pc.and_(pc.greater_equal(positions, 0), pc.less(pc.add(positions, 1), pc.binary_length(values))))


def _is_absent(sought: bytes, values: pa.BinaryArray) -> bool:
    # One search over all bytes takes 0.03 CPU microseconds for a record of 231 B, a search in each value 0.38.
    return sought not in bytes(read_strings(values).data)


def _to_mask(unsafe: pa.BooleanArray) -> Mask:
    mask: Mask = pc.fill_null(unsafe, False).to_numpy(zero_copy_only=False)  # noqa: FBT003
    return mask
