"""A digest over the content of records, to tell whether two places hold the same ones in the same order."""

import pyarrow as pa
import xxhash

from kafka_s3_platform.formats.columns import Int64s, Strings, headers, strings


class RecordDigest:
    """Streaming digest of key, value, headers and timestamp of records in their order.

    It does not depend on how records are cut into batches, nor on offset, topic and kafka partition, so that a
    restored topic gives the digest of its archive. Null, empty and absent differ. Not made against forgery: XXH3 with
    128 bits, one running hash per component, eight times quicker than SHA-256.
    """

    def __init__(self) -> None:
        self._count = 0
        self._hashes = {name: xxhash.xxh3_128() for name in _COMPONENTS}

    def update(self, batch: pa.RecordBatch) -> None:
        """Append a batch of `RECORD_SCHEMA`."""
        if not batch.num_rows:
            return
        self._count += batch.num_rows
        found = headers(batch.column("headers"))
        self._add("header_counts", _packed(found.counts))
        self._add_strings("header_key", found.keys)
        self._add_strings("header_value", found.values)
        self._add_strings("key", strings(batch.column("key")))
        self._add_strings("value", strings(batch.column("value")))
        self._add("timestamp", _packed(batch.column("timestamp").cast(pa.int64()).to_numpy()))

    def hexdigest(self) -> str:
        """32 hex digits over all records so far."""
        parts = [self._count.to_bytes(8, "little"), *(h.digest() for h in self._hashes.values())]
        return xxhash.xxh3_128(b"".join(parts)).hexdigest()

    def _add_strings(self, name: str, found: Strings) -> None:
        self._add(f"{name}_lengths", _packed(found.lengths))
        self._add(f"{name}_data", found.data)

    def _add(self, component: str, data: bytes | memoryview) -> None:
        self._hashes[component].update(data)


_STRINGS = ("key", "value", "header_key", "header_value")
# The order is part of the digest: never change it.
_COMPONENTS = (
    *(f"{name}_{part}" for name in _STRINGS for part in ("lengths", "data")),
    "header_counts",
    "timestamp",
)


def _packed(numbers: Int64s) -> bytes:
    return numbers.astype("<i8", copy=False).tobytes()
