"""Hashes of record keys as in Kafka's clients, without a Python object per key.

Source of murmur2: `org.apache.kafka.common.utils.Utils.murmur2` and `toPositive`, used by Java's producer.
Source of CRC-32: `rd_kafka_msg_partitioner_consistent` in librdkafka, the CRC of zlib.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba.core.dispatcher import Dispatcher

from kafka_s3_platform.compiled import compile_cached
from kafka_s3_platform.formats.columns import read_strings
from kafka_s3_platform.model.connect import Int64s

KeyBytes = npt.NDArray[np.uint8]

_MASK = 0xFFFF_FFFF
_SEED = 0x9747_B28C
_M = 0x5BD1_E995
"""Constants of Kafka's murmur2: other values would send a key to another kafka partition than Java's producer."""

_CRC_POLYNOMIAL = 0xEDB8_8320
"""The reversed polynomial of zlib's CRC-32."""


def hash_murmur2(keys: pa.BinaryArray) -> Int64s:
    """Compute Java's positive murmur2 of each key, -1 without a key."""
    return _hash_keys(_murmur2_all, keys)


def hash_crc32(keys: pa.BinaryArray) -> Int64s:
    """Compute the CRC-32 of each key, -1 without a key."""
    return _hash_keys(_crc32_all, keys)


def _hash_keys(kernel: Dispatcher, keys: pa.BinaryArray) -> Int64s:
    taken = read_strings(keys)
    hashes = np.empty(len(keys), np.int64)
    kernel(np.frombuffer(taken.data, np.uint8), taken.lengths, hashes)
    return hashes


@compile_cached()  # type: ignore[untyped-decorator, unused-ignore]
def _murmur2_all(data: KeyBytes, lengths: Int64s, out: Int64s) -> None:  # pragma: no cover - compiled
    pos = 0
    for i in range(len(lengths)):
        length = lengths[i]
        if length < 0:
            out[i] = -1
            continue
        h = (_SEED ^ length) & _MASK
        end = pos + length
        while end - pos >= 4:
            k = np.int64(0)
            for j in range(4):
                k |= np.int64(data[pos + j]) << (8 * j)
            pos += 4
            k = (k * _M) & _MASK
            k = ((k ^ (k >> 24)) * _M) & _MASK
            h = ((h * _M) & _MASK) ^ k
        if end > pos:
            for j in range(end - pos):
                h ^= np.int64(data[pos + j]) << (8 * j)
            h = (h * _M) & _MASK
            pos = end
        h = ((h ^ (h >> 13)) * _M) & _MASK
        out[i] = (h ^ (h >> 15)) & 0x7FFF_FFFF


@compile_cached()  # type: ignore[untyped-decorator, unused-ignore]
def _crc32_all(data: KeyBytes, lengths: Int64s, out: Int64s) -> None:  # pragma: no cover - compiled
    table = np.empty(256, np.int64)
    for byte in range(256):
        value = np.int64(byte)
        for _ in range(8):
            value = (value >> 1) ^ (_CRC_POLYNOMIAL if value & 1 else 0)
        table[byte] = value
    pos = 0
    for i in range(len(lengths)):
        if lengths[i] < 0:
            out[i] = -1
            continue
        crc = np.int64(_MASK)
        for _ in range(lengths[i]):
            crc = table[(crc ^ data[pos]) & 0xFF] ^ (crc >> 8)
            pos += 1
        out[i] = crc ^ _MASK
