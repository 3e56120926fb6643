"""Schemas named in headers: then keys and values hold bare data, and no byte of them is a schema's id.

Confluent's HeaderSchemaIdSerializer (Confluent Platform 8.1) writes a magic byte 1 and the 16 bytes of the schema's
GUID. All of its readers also take a magic byte 0 and an id of four bytes. For Protobuf, the message indexes follow.
Source: `confluent_kafka.schema_registry.serde.SchemaId`.
"""

import uuid
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_s3_platform.avro.wire import PREFIX_BYTES
from kafka_s3_platform.model.connect import Side

SCHEMA_HEADERS: Mapping[Side, str] = {"key": "__key_schema_id", "value": "__value_schema_id"}


def read_schema_names(headers: pa.ListArray, side: Side) -> pa.BinaryArray | None:
    """Read each record's header of this side's schema, null if there is none. None if all are.

    It is empty if the header is null, or if its first and its last one differ: some readers take one, some the other.
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
    """Return the GUID or the id in such a header, and the bytes behind. ValueError: it names neither."""
    if text[:1] == b"\1" and len(text) >= 17:
        return str(uuid.UUID(bytes=text[1:17])), text[17:]
    if text[:1] == b"\0" and len(text) >= PREFIX_BYTES:
        return int.from_bytes(text[1:PREFIX_BYTES], "big"), text[PREFIX_BYTES:]
    raise ValueError(f"has {len(text)} bytes, neither 1 and a GUID of 16 bytes nor 0 and an id of 4 bytes")


def encode_schema_name(name: str | int, rest: bytes) -> bytes:
    """Return the header's bytes. With an id, they are also the prefix of the wire format."""
    if isinstance(name, int):
        return b"\0" + name.to_bytes(PREFIX_BYTES - 1, "big") + rest
    return b"\1" + uuid.UUID(name).bytes + rest
