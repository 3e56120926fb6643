"""Bytes and strings."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from kafka_s3_platform.converters.base import SERIALIZATION_EXCEPTION, Converted, Origin
from kafka_s3_platform.model.connect import NO_SCHEMA, Int32s, Int64s, Payload, Schema

BYTES_SCHEMA = Schema('"bytes"')
STRING_SCHEMA = Schema('"string"')


class BytesConverter:
    """Connect's ByteArrayConverter: any bytes will do."""

    def __init__(self, topic: str, is_key: bool) -> None:
        self._origin = Origin(topic, is_key, "org.apache.kafka.connect.converters.ByteArrayConverter")

    def convert(self, raw: pa.BinaryArray, offsets: Int64s) -> Converted:
        return self._origin.converted(Payload(raw, codes_of_one(raw), (BYTES_SCHEMA,)), {}, offsets)


class StringPayload(Payload):
    """UTF-8."""

    def _decode(self) -> Sequence[Any]:
        strings: list[Any] = pa.array(self.raw).cast(pa.string()).to_pylist()
        return strings


class StringConverter:
    """Connect's StringConverter, except that bytes which are not UTF-8 are told, not replaced by question marks."""

    def __init__(self, topic: str, is_key: bool) -> None:
        name = "org.apache.kafka.connect.storage.StringConverter"
        self._origin = Origin(topic, is_key, name, SERIALIZATION_EXCEPTION)

    def convert(self, raw: pa.BinaryArray, offsets: Int64s) -> Converted:
        payload = StringPayload(raw, codes_of_one(raw), (STRING_SCHEMA,))
        return self._origin.converted(payload, not_utf8(raw), offsets)


def codes_of_one(raw: pa.BinaryArray) -> Int32s:
    """Code 0, and none for nulls."""
    return np.where(raw.is_null().to_numpy(zero_copy_only=False), NO_SCHEMA, 0).astype(np.int32)


def is_utf8(raw: pa.BinaryArray) -> bool:
    """Whether every value is."""
    try:
        raw.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True


def not_utf8(raw: pa.BinaryArray) -> dict[int, str]:
    """What is wrong with those values that are not UTF-8, by position."""
    if is_utf8(raw):
        return {}
    bad = {}
    for position, row in enumerate(raw.to_numpy(zero_copy_only=False)):
        try:
            row is None or row.decode()
        except UnicodeDecodeError as err:
            bad[position] = f"is not UTF-8: {err}"
    return bad
