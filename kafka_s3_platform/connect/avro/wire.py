"""Reads and writes the ids of schemas before values and in headers.

Confluent's wire format has a magic byte 0, the schema's id in four bytes (big-endian), then the data. Source: Confluent
Schema Registry's documentation, "Formats, Serializers, and Deserializers", section "Wire format".

If a header names the schema instead, keys and values hold bare data. Confluent's HeaderSchemaIdSerializer (Confluent
Platform 8.1) writes a magic byte 1 and the 16 bytes of the schema's GUID. All readers of such headers also accept a
magic byte 0 and an id of four bytes. For Protobuf, the message indexes follow. Source:
`confluent_kafka.schema_registry.serde.SchemaId`.
"""

import uuid
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafka_s3_platform.core.model.connect import Int64s, Positions, Side

PREFIX_BYTES = 5
NO_ID = -1
"""Stands for the id of a null, or of a value that is not in the wire format."""


def read_schema_ids(raw: pa.BinaryArray) -> Int64s:
    """Return the schema id of each value, or NO_ID for a null or a value that is not in the wire format."""
    starts, ends, data = read_extents(raw)
    ids = np.full(len(raw), NO_ID, np.int64)
    rows = np.flatnonzero(raw.is_valid().to_numpy(zero_copy_only=False) & (ends - starts >= PREFIX_BYTES))
    if not len(rows):
        return ids
    value_starts = starts[rows]
    # The bytes of a value lie far from the value before it. So they are fetched in two steps, not in five.
    words = np.ndarray((len(data) - 3,), ">u4", data, strides=(1,))[value_starts].astype(np.int64)
    numbers = (words & 0xFFFFFF) << 8 | data[value_starts + PREFIX_BYTES - 1]
    # The highest byte of `words` is the magic byte, which has to be 0.
    ids[rows] = np.where(words >> 24, NO_ID, numbers)
    return ids


def read_extents(raw: pa.BinaryArray) -> tuple[Int64s, Int64s, npt.NDArray[np.uint8]]:
    """Return the start and end of each value, and the bytes they refer to. For nulls, start and end mean nothing."""
    _, offsets, data = raw.buffers()
    bounds = (
        np.frombuffer(offsets, np.int32, len(raw) + 1, raw.offset * 4).astype(np.int64)
        if len(raw)
        else np.zeros(1, np.int64)
    )
    return bounds[:-1], bounds[1:], np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)


def map_schema_ids(
    raw: pa.BinaryArray, ids: Mapping[int, int], bare: pa.BooleanArray | None = None
) -> tuple[pa.BinaryArray, Positions, Int64s]:
    """Replace the schema ids of values. `ids` maps old ids to new ones. Values that are not in the wire format stay.

    So do `bare` values, which contain no id, and values whose id is not in `ids`. The latter's positions and ids are
    returned too.
    """
    old_ids = read_schema_ids(raw)
    if bare is not None:
        old_ids[bare.to_numpy(zero_copy_only=False)] = NO_ID
    distinct_old = np.unique(old_ids)
    distinct_new = np.array([ids.get(schema_id, NO_ID) for schema_id in distinct_old.tolist()], np.int64)
    replaced = distinct_new[np.searchsorted(distinct_old, old_ids)]
    unknown = np.flatnonzero((old_ids != NO_ID) & (replaced == NO_ID))
    if np.array_equal(distinct_old[distinct_new != NO_ID], distinct_new[distinct_new != NO_ID]):
        return raw, unknown, old_ids[unknown]
    return write_schema_ids(raw, replaced), unknown, old_ids[unknown]


def write_schema_ids(raw: pa.BinaryArray, ids: Int64s) -> pa.BinaryArray:
    """Write each id into its value, which has at least PREFIX_BYTES. Nulls and values with NO_ID stay."""
    if not len(raw):
        return raw
    starts, ends, data = read_extents(raw)
    first = int(starts[0])
    valid = raw.is_valid().to_numpy(zero_copy_only=False)
    copied = data[first : int(ends[-1])].copy()
    rows = np.flatnonzero(valid & (ids != NO_ID))
    value_starts = starts[rows] - first
    new_ids = ids[rows]
    for place in range(1, PREFIX_BYTES):
        copied[value_starts + place] = new_ids >> 8 * (PREFIX_BYTES - 1 - place) & 0xFF
    bounds = np.append(starts, ends[-1]) - first
    bitmap = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    buffers = [bitmap, pa.py_buffer(bounds.astype(np.int32)), pa.py_buffer(copied)]
    return pa.BinaryArray.from_buffers(pa.binary(), len(raw), buffers)


def explain_unframed(row: bytes) -> str:
    """Explain why a value has no schema id."""
    if len(row) < PREFIX_BYTES:
        return f"has {len(row)} bytes; a magic byte and a schema id are {PREFIX_BYTES} already"
    return f"begins with the byte {row[0]:#04x}, not with the magic byte 0 before a schema id"


SCHEMA_HEADERS: Mapping[Side, str] = {"key": "__key_schema_id", "value": "__value_schema_id"}


def read_schema_names(headers: pa.ListArray, side: Side) -> pa.BinaryArray | None:
    """Read the header that names this side's schema in each record, null if there is none. Return None if all are null.

    It is empty if the header is null, or if the first and last such headers differ. Some readers take the first, some
    the last.
    """
    flat = pc.list_flatten(headers)
    keys, values = flat.flatten()
    mask = pc.equal(keys, SCHEMA_HEADERS[side])
    if not pc.any(mask).as_py():
        return None
    values = pc.fill_null(values.filter(mask), b"")
    rows, firsts = np.unique(pc.list_parent_indices(headers).filter(mask).to_numpy(), return_index=True)
    first, last = (values.take(pa.array(at)) for at in (firsts, np.append(firsts[1:], len(values)) - 1))
    places = np.full(len(headers), -1)
    places[rows] = np.arange(len(rows))
    return pc.if_else(pc.equal(first, last), first, b"").take(pa.array(places, mask=places < 0))


def parse_schema_name(text: bytes) -> tuple[str | int, bytes]:
    """Return the GUID or the id in such a header, and the bytes after it. Raise ValueError if it has neither."""
    if text[:1] == b"\1" and len(text) >= 17:
        return str(uuid.UUID(bytes=text[1:17])), text[17:]
    if text[:1] == b"\0" and len(text) >= PREFIX_BYTES:
        return int.from_bytes(text[1:PREFIX_BYTES], "big"), text[PREFIX_BYTES:]
    raise ValueError(f"has {len(text)} bytes, neither 1 and a GUID of 16 bytes nor 0 and an id of 4 bytes")


def encode_schema_name(name: str | int, rest: bytes) -> bytes:
    """Return the header's bytes. If `name` is an id, they are also the prefix of the wire format."""
    if isinstance(name, int):
        return b"\0" + name.to_bytes(PREFIX_BYTES - 1, "big") + rest
    return b"\1" + uuid.UUID(name).bytes + rest
