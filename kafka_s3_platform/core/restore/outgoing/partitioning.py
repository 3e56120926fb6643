"""Chooses the target's kafka partition for each restored record. Keys are hashed as Kafka's clients hash them.

No key becomes a Python object.
Source of murmur2: `org.apache.kafka.common.utils.Utils.murmur2` and `toPositive`, used by Java's producer.
Source of CRC-32: `rd_kafka_msg_partitioner_consistent` in librdkafka, the CRC of zlib.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba.core.dispatcher import Dispatcher

from kafka_s3_platform.core.compiled import compile_cached
from kafka_s3_platform.core.config.plugins import KAFKA_PARTITIONER, load_class
from kafka_s3_platform.core.errors import ConfigError, PermanentError, PlatformError
from kafka_s3_platform.core.formats.columns import read_strings
from kafka_s3_platform.core.model.batches import read_offset_column
from kafka_s3_platform.core.model.connect import Int64s

KeyBytes = npt.NDArray[np.uint8]

_MASK = 0xFFFF_FFFF
_SEED = 0x9747_B28C
_M = 0x5BD1_E995
"""Constants of Kafka's murmur2: other values would send a key to another kafka partition than Java's producer."""

_CRC_POLYNOMIAL = 0xEDB8_8320
"""The reversed polynomial of zlib's CRC-32."""

OPTION = KAFKA_PARTITIONER.key
SOURCE = "source"


def hash_murmur2(keys: pa.BinaryArray) -> Int64s:
    """Compute Java's positive murmur2 of each key, or -1 if a record has no key."""
    return _hash_keys(_murmur2_all, keys)


def hash_crc32(keys: pa.BinaryArray) -> Int64s:
    """Compute the CRC-32 of each key, or -1 if a record has no key."""
    return _hash_keys(_crc32_all, keys)


def _hash_keys(kernel: Dispatcher, keys: pa.BinaryArray) -> Int64s:
    """Compute the hash of each key. The compiled `kernel` gets the joined keys, their lengths and the result."""
    strings = read_strings(keys)
    hashes = np.empty(len(keys), np.int64)
    kernel(np.frombuffer(strings.data, np.uint8), strings.lengths, hashes)
    return hashes


@compile_cached()  # type: ignore[untyped-decorator, unused-ignore]
def _murmur2_all(data: KeyBytes, lengths: Int64s, out: Int64s) -> None:  # pragma: no cover - compiled
    """Write the positive murmur2 of each key to `out`. `data` are the joined keys; a length of -1 stands for no key."""
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
    """Write the CRC-32 of each key to `out`. `data` are the joined keys; a length of -1 stands for no key."""
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


class KafkaPartitioner(Protocol):
    """A user's class, by its dotted name in `partitioning`. It is called with the target's kafka partition count.

        class ByRegion:                       # my_package.my_module.ByRegion
            def __init__(self, kafka_partition_count):
                self.count = kafka_partition_count

            def kafka_partitions(self, batch):  # a pyarrow.RecordBatch of RECORD_SCHEMA, as it will be sent
                is_eu = pc.starts_with(batch.column("key"), "eu-")
                return pc.if_else(is_eu.fill_null(False), 0, self.count - 1).cast(pa.int32())

    The same record must always go to the same kafka partition, whatever other records are in the batch, because a
    resumed restore and the verification ask again.
    """

    def kafka_partitions(self, batch: pa.RecordBatch) -> pa.Int32Array:
        """Return the target's kafka partition of each record, in [0, kafka_partition_count)."""
        ...


def new_kafka_partitioner(partitioning: str, kafka_partition_count: int) -> KafkaPartitioner:
    """Return the partitioner for `partitioning`.

    Raises:
        ConfigError: there is no such partitioner, or the user's class cannot be made.
    """
    if partitioning in _OURS:
        return _OURS[partitioning](kafka_partition_count)
    if "." not in partitioning:
        names = ", ".join(_OURS)
        raise ConfigError(f"{OPTION} {partitioning!r} is neither one of {names} nor the dotted name of your own class")
    return _UserPartitioner(partitioning, kafka_partition_count)


class _SourcePartitioner:
    """Keeps the kafka partition number of every record."""

    def __init__(self, count: int) -> None:
        self._count = count

    def kafka_partitions(self, batch: pa.RecordBatch) -> pa.Int32Array:
        """Return the source's kafka partitions. Raises PermanentError if the target does not have so many."""
        numbers = batch.column("partition")
        if len(numbers) and int(np.max(numbers.to_numpy())) >= self._count:
            raise PermanentError(
                f"records of kafka partition {int(np.max(numbers.to_numpy()))} keep their number, but the target has "
                f"{self._count} kafka partitions. Add kafka partitions to the target, or choose another {OPTION}"
            )
        return numbers


class _HashPartitioner:
    """Chooses by `hash(key) % count`, as Kafka's clients do. If there is no hash (-1), the source offset decides.

    The clients spread such records at random. By offset, the result is the same each time.
    """

    def __init__(self, hash_keys: Callable[[pa.BinaryArray], Int64s], count: int) -> None:
        self._hash_keys = hash_keys
        self._count = count

    def kafka_partitions(self, batch: pa.RecordBatch) -> pa.Int32Array:
        """Return each key's hash (or if there is none, the source offset) modulo the target's kafka partition count."""
        hashes = self._hash_keys(batch.column("key"))
        numbers = np.where(hashes < 0, read_offset_column(batch), hashes) % self._count
        return pa.array(numbers.astype(np.int32))


def _hash_nonempty_keys(keys: pa.BinaryArray) -> Int64s:
    """Compute the hashes of librdkafka's default, `consistent_random`: the CRC-32, or -1 for no key or an empty one."""
    return np.where(read_strings(keys).lengths < 1, -1, hash_crc32(keys))


class _UserPartitioner:
    """Calls a user's class, and checks its answers."""

    def __init__(self, dotted: str, count: int) -> None:
        self._name = f"{OPTION} {dotted}"
        self._count = count
        class_ = load_class(dotted, KAFKA_PARTITIONER)
        try:
            self._partitioner: Any = class_(count)
        except Exception as err:
            raise ConfigError(f"{self._name} with {count} kafka partitions: {type(err).__name__}: {err}") from err

    def kafka_partitions(self, batch: pa.RecordBatch) -> pa.Int32Array:
        """Return the answer of the user's class. Raises PermanentError if it fails, or if its answer cannot be used."""
        where = f"{self._name} on {batch.num_rows} records from offset {batch.column('offset')[0]} on"
        try:
            numbers = self._partitioner.kafka_partitions(batch)
        except PlatformError:
            raise
        except Exception as err:
            raise PermanentError(f"{where}: {type(err).__name__}: {err}") from err
        if flaw := self._find_flaw(numbers, batch.num_rows):
            raise PermanentError(f"{where} returned {flaw}")
        return numbers

    def _find_flaw(self, answer: Any, count: int) -> str | None:
        """Describe why the class's answer for `count` records cannot be used. Return None if it can."""
        if not isinstance(answer, pa.Int32Array) or answer.null_count:
            return f"{type(answer).__name__}, not a pyarrow.Int32Array without nulls"
        if len(answer) != count:
            return f"{len(answer)} numbers for {count} records"
        numbers = answer.to_numpy()
        if count and not 0 <= numbers.min() <= numbers.max() < self._count:
            return f"kafka partition {numbers.max()} or {numbers.min()}, but the target has 0 to {self._count - 1}"
        return None


_OURS: Mapping[str, Callable[[int], KafkaPartitioner]] = {
    SOURCE: _SourcePartitioner,
    "murmur2": partial(_HashPartitioner, hash_murmur2),
    "crc32": partial(_HashPartitioner, _hash_nonempty_keys),
}
