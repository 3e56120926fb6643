"""Schema ids in Confluent's wire format, replaced for all records of a batch in step."""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from kafka_s3_platform.converters.wire import NO_ID, PREFIX_BYTES, extents, schema_ids
from kafka_s3_platform.model.connect import Int64s, Positions


def with_mapped_ids(raw: pa.BinaryArray, ids: Mapping[int, int]) -> tuple[pa.BinaryArray, Positions, Int64s]:
    """The values with their ids replaced, old -> new; what is not in the wire format stays.

    Then the positions of values whose id is not in `ids`, which stay too, and those ids.
    """
    found = schema_ids(raw)
    olds = np.unique(found)
    news = np.array([ids.get(old, NO_ID) for old in olds.tolist()], np.int64)
    replaced = news[np.searchsorted(olds, found)]
    unknown = np.flatnonzero((found != NO_ID) & (replaced == NO_ID))
    if np.array_equal(olds[news != NO_ID], news[news != NO_ID]):
        return raw, unknown, found[unknown]
    return with_ids(raw, replaced), unknown, found[unknown]


def with_ids(raw: pa.BinaryArray, ids: Int64s) -> pa.BinaryArray:
    """The values, each with its id of `ids` in the wire format's place. NO_ID, and a null, stay as they are.

    Every value that gets an id has to have room for it.
    """
    if not len(raw):
        return raw
    starts, ends, data = extents(raw)
    first, valid = int(starts[0]), raw.is_valid().to_numpy(zero_copy_only=False)
    copied = data[first : int(ends[-1])].copy()
    rows = np.flatnonzero(valid & (ids != NO_ID))
    at, new = starts[rows] - first, ids[rows]
    for place in range(1, PREFIX_BYTES):
        copied[at + place] = new >> 8 * (PREFIX_BYTES - 1 - place) & 0xFF
    bounds = np.append(starts, ends[-1]) - first
    bitmap = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    buffers = [bitmap, pa.py_buffer(bounds.astype(np.int32)), pa.py_buffer(copied)]
    return pa.BinaryArray.from_buffers(pa.binary(), len(raw), buffers)
