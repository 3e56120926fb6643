"""The Confluent wire format: a magic byte 0, the schema's id in four bytes (big endian), then the data.

Confluent Schema Registry's documentation, "Formats, Serializers, and Deserializers", section "Wire format".
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafka_s3_platform.model.connect import Int64s

PREFIX_BYTES = 5
NO_ID = -1


def schema_ids(raw: pa.BinaryArray) -> Int64s:
    """The id that each value begins with, NO_ID where it is null or does not begin as it should."""
    starts, ends, data = extents(raw)
    ids = np.full(len(raw), NO_ID, np.int64)
    rows = np.flatnonzero(raw.is_valid().to_numpy(zero_copy_only=False) & (ends - starts >= PREFIX_BYTES))
    if not len(rows):
        return ids
    at = starts[rows]
    # each value's bytes are far from the last one's, so they are fetched in two goes, not in five
    words = np.ndarray((len(data) - 3,), ">u4", data, strides=(1,))[at].astype(np.int64)
    numbers = (words & 0xFFFFFF) << 8 | data[at + PREFIX_BYTES - 1]
    ids[rows] = np.where(words >> 24, NO_ID, numbers)
    return ids


def extents(raw: pa.BinaryArray) -> tuple[Int64s, Int64s, npt.NDArray[np.uint8]]:
    """Start and end of each value in the bytes that follow; those of nulls mean nothing."""
    _, offsets, data = raw.buffers()
    bounds = (
        np.frombuffer(offsets, np.int32, len(raw) + 1, raw.offset * 4).astype(np.int64)
        if len(raw)
        else np.zeros(1, np.int64)
    )
    return bounds[:-1], bounds[1:], np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)


def unframed(row: bytes) -> str:
    """Why a value has no schema id."""
    if len(row) < PREFIX_BYTES:
        return f"has {len(row)} bytes; a magic byte and a schema id are {PREFIX_BYTES} already"
    return f"begins with the byte {row[0]:#04x}, not with the magic byte 0 before a schema id"
