"""Converters of bytes and strings."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from kafka_s3_platform.converters.base import SERIALIZATION_EXCEPTION, ConvertedPayload, Origin
from kafka_s3_platform.model.connect import NO_SCHEMA, Int32s, Int64s, Payload, Schema

BYTES_SCHEMA = Schema('"bytes"')
STRING_SCHEMA = Schema('"string"')


class BytesConverter:
    """Connect's ByteArrayConverter. It accepts all bytes."""

    def __init__(self, topic: str, is_key: bool) -> None:
        self._origin = Origin(topic, is_key, "org.apache.kafka.connect.converters.ByteArrayConverter")

    def convert(self, raw: pa.BinaryArray, offsets: Int64s) -> ConvertedPayload:
        return self._origin.converted(Payload(raw, make_codes(raw), (BYTES_SCHEMA,)), {}, offsets)


class StringPayload(Payload):
    """Values of UTF-8."""

    def _decode(self) -> Sequence[Any]:
        strings: list[Any] = pa.array(self.raw).cast(pa.string()).to_pylist()
        return strings


class StringConverter:
    """Connect's StringConverter, but bytes other than UTF-8 fail. Connect replaces them by question marks."""

    def __init__(self, topic: str, is_key: bool) -> None:
        name = "org.apache.kafka.connect.storage.StringConverter"
        self._origin = Origin(topic, is_key, name, SERIALIZATION_EXCEPTION)

    def convert(self, raw: pa.BinaryArray, offsets: Int64s) -> ConvertedPayload:
        payload = StringPayload(raw, make_codes(raw), (STRING_SCHEMA,))
        return self._origin.converted(payload, find_invalid_utf8(raw), offsets)


def make_codes(raw: pa.BinaryArray) -> Int32s:
    """Return the code 0 for each value, and NO_SCHEMA for nulls."""
    return np.where(raw.is_null().to_numpy(zero_copy_only=False), NO_SCHEMA, 0).astype(np.int32)


def is_utf8(raw: pa.BinaryArray) -> bool:
    """Return True if every value is UTF-8."""
    try:
        raw.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True


def find_invalid_utf8(raw: pa.BinaryArray) -> dict[int, str]:
    """Find the values other than UTF-8. Return the reason for each position."""
    if is_utf8(raw):
        return {}
    bad = {}
    for position, row in enumerate(raw.to_numpy(zero_copy_only=False)):
        try:
            row is None or row.decode()
        except UnicodeDecodeError as err:
            bad[position] = f"is not UTF-8: {err}"
    return bad
