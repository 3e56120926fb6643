"""What restores of a source connector have sent, which the one after them leaves out."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.parquet as pq

from kafka_s3_platform.restore.documents import table
from kafka_s3_platform.sources.objects import MAX_LINES, ForeignObject, by_name

KNOWN_SCHEMA = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("etag", pa.string(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("kafka_partition", pa.int32(), nullable=False),
        pa.field("first_offset", pa.int64()),
    ]
)


@dataclass(frozen=True)
class Unsent:
    """The objects of a listing that no restore has sent; `notes` are sentences about them and the others."""

    objects: tuple[ForeignObject, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Known:
    """Objects that were sent, a row of KNOWN_SCHEMA each, by key. `notes` are sentences about those that sent them."""

    table: pa.Table
    notes: tuple[str, ...] = ()

    @staticmethod
    def of(objects: Iterable[ForeignObject]) -> "Known":
        """Of the objects of a plan."""
        rows = [{name: getattr(o, name) for name in KNOWN_SCHEMA.names} for o in objects]
        return Known(pa.Table.from_pylist(rows, KNOWN_SCHEMA).sort_by("key"))

    def __or__(self, other: "Known") -> "Known":
        both = pa.concat_tables([self.table, other.table]).sort_by("key").combine_chunks()
        return Known(both, (*self.notes, *other.notes))

    @cached_property
    def etags(self) -> dict[str, str]:
        """By key."""
        return dict(zip(self.table["key"].to_pylist(), self.table["etag"].to_pylist(), strict=True))

    @cached_property
    def streams(self) -> frozenset[tuple[str, int]]:
        """The topics and kafka partitions of which anything was sent."""
        topics, numbers = (self.table[name].to_pylist() for name in ("topic", "kafka_partition"))
        return frozenset(zip(topics, numbers, strict=True))

    def unsent(self, found: Sequence[ForeignObject]) -> Unsent:
        """Those of `found` that are new; what is new beside, before or in place of what was sent is told.

        Keys and headers of values that were sent are left out: alone, they would be read as records without a value.
        """
        sent = {_records(o) for o in found if o.key in self.etags}
        others = [o for o in found if o.key not in self.etags]
        beside = [o for o in others if o.first_offset is not None and _records(o) in sent]
        left_out = {o.key for o in beside}
        new = tuple(o for o in others if o.key not in left_out)
        told = {
            "was replaced after it was sent: it is not sent again": [
                o for o in found if self.etags.get(o.key, o.etag) != o.etag
            ],
            "came after the other objects of its records were sent: it is left out": beside,
            "lies before what was sent of its kafka partition: its records come after that": list(self._earlier(new)),
        }
        lines = (line for what, objects in told.items() for line in _lines(objects, what))
        return Unsent(new, (*self.notes, *lines))

    def _earlier(self, new: Iterable[ForeignObject]) -> Iterator[ForeignObject]:
        for item in new:
            last = self._last.get((item.topic, item.kafka_partition))
            if last is not None and (item.first_offset or 0, by_name(item.key, item.first_offset)) < last:
                yield item

    @cached_property
    def _last(self) -> dict[tuple[str, int], tuple[int, tuple[str | int, ...]]]:
        """First offset and key of what is read last, by topic and kafka partition."""
        last: dict[tuple[str, int], tuple[int, tuple[str | int, ...]]] = {}
        columns = (self.table[name].to_pylist() for name in ("topic", "kafka_partition", "first_offset", "key"))
        for topic, kafka_partition, first_offset, key in zip(*columns, strict=True):
            at, place = (topic, kafka_partition), (first_offset or 0, by_name(key, first_offset))
            last[at] = max(last.get(at, place), place)
        return last

    def to_parquet(self) -> bytes:
        """The same objects, the same bytes."""
        sink = pa.BufferOutputStream()
        pq.write_table(self.table, sink, compression="zstd", write_page_checksum=True)
        return bytes(sink.getvalue())

    @staticmethod
    def from_parquet(content: bytes, key: str) -> "Known":
        """What `to_parquet` wrote. IntegrityError if it is damaged."""
        return Known(table(content, KNOWN_SCHEMA, key))


def _records(item: ForeignObject) -> tuple[str, int, str, int | None]:
    """What an object shares with those that hold other parts of the same records."""
    return item.topic, item.kafka_partition, item.encoded_partition, item.first_offset


def _lines(objects: Sequence[ForeignObject], what: str) -> Iterator[str]:
    yield from (f"object {o.key} {what}" for o in objects[:MAX_LINES])
    if len(objects) > MAX_LINES:
        yield f"{len(objects) - MAX_LINES:,} more objects: each {what}"
