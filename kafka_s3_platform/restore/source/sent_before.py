"""The objects sent by earlier restores of a source connector, left out by the next one."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kafka_s3_platform.model.notes import DoubtNote
from kafka_s3_platform.restore.documents import parse_table
from kafka_s3_platform.sources.objects import MAX_LINES, ForeignObject, order_by_name

SENT_SCHEMA = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("etag", pa.string(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("kafka_partition", pa.int32(), nullable=False),
        pa.field("first_offset", pa.int64()),
        pa.field("to_topic", pa.string()),
        pa.field("topic_id", pa.string()),
    ]
)

TargetTopic = tuple[str, str]
"""A target topic and its id."""


_REPLACED = "was replaced after it was sent: it is not sent again, and records that came with the change are missing"
_AGAIN = "A restore to another topic, under another restore id and not after this one, sends it as it is now"


@dataclass(frozen=True)
class Unsent:
    """The objects of a listing not sent by any restore. `notes`, some of them doubts, are about these and others.

    `skipped` are sentences about unsent objects with records possibly missing in the target.
    """

    objects: tuple[ForeignObject, ...]
    notes: tuple[str, ...]
    skipped: tuple[str, ...] = ()


_PLACE = ("to_topic", "topic_id")


@dataclass(frozen=True)
class SentObjects:
    """Sent objects, by key: a row of SENT_SCHEMA each."""

    table: pa.Table

    @staticmethod
    def of(objects: Iterable[ForeignObject], targets: Mapping[str, TargetTopic] = {}) -> "SentObjects":
        """Return these objects of a plan as sent. `targets` is source topic -> target of its records."""
        columns = SENT_SCHEMA.names[:-2]
        rows = [
            {name: getattr(o, name) for name in columns} | dict(zip(_PLACE, targets.get(o.topic, ()), strict=False))
            for o in objects
        ]
        return SentObjects(pa.Table.from_pylist(rows, SENT_SCHEMA).sort_by("key"))

    def __or__(self, other: "SentObjects") -> "SentObjects":
        return SentObjects(pa.concat_tables([self.table, other.table]).sort_by("key").combine_chunks())

    @cached_property
    def etags(self) -> dict[str, str]:
        """The ETags of the objects, by key."""
        return dict(zip(self.table["key"].to_pylist(), self.table["etag"].to_pylist(), strict=True))

    def count_elsewhere(self, topic: str, target: TargetTopic) -> dict[TargetTopic, int]:
        """Return how many objects of a source topic were sent to other targets than this one, by target."""
        of_topic = self.table.filter(pc.equal(self.table["topic"], topic))
        counts = Counter(zip(*(of_topic[name].to_pylist() for name in _PLACE), strict=True))
        return {place: count for place, count in counts.items() if place != target}

    @cached_property
    def streams(self) -> frozenset[tuple[str, int]]:
        """The topics and kafka partitions with sent objects."""
        topics, numbers = (self.table[name].to_pylist() for name in ("topic", "kafka_partition"))
        return frozenset(zip(topics, numbers, strict=True))

    def unsent(self, listed: Sequence[ForeignObject]) -> Unsent:
        """Return the new objects of `listed`, with notes on those beside, before or in place of sent ones.

        Keys and headers are left out if their values were sent: alone, they would be read as records without a value.
        """
        sent = {_identify_records(o) for o in listed if o.key in self.etags}
        others = [o for o in listed if o.key not in self.etags]
        beside = [o for o in others if o.first_offset is not None and _identify_records(o) in sent]
        left_out = {o.key for o in beside}
        new = tuple(o for o in others if o.key not in left_out)
        replaced = [o for o in listed if self.etags.get(o.key, o.etag) != o.etag]
        skipped = (
            *_describe_objects(replaced, f"{_REPLACED}. {_AGAIN}"),
            *_describe_objects(
                beside, f"came after the other objects of its records were sent: it is left out. {_AGAIN}"
            ),
        )
        late = "lies before what was sent of its kafka partition: its records come after that"
        return Unsent(new, tuple(map(DoubtNote, _describe_objects(list(self._earlier(new)), late))), skipped)

    def _earlier(self, new: Iterable[ForeignObject]) -> Iterator[ForeignObject]:
        for item in new:
            last = self._last.get((item.topic, item.kafka_partition))
            if last is not None and (item.first_offset or 0, order_by_name(item.key, item.first_offset)) < last:
                yield item

    @cached_property
    def _last(self) -> dict[tuple[str, int], tuple[int, tuple[str | int, ...]]]:
        """First offset and key of the last object, by topic and kafka partition."""
        last: dict[tuple[str, int], tuple[int, tuple[str | int, ...]]] = {}
        columns = (self.table[name].to_pylist() for name in ("topic", "kafka_partition", "first_offset", "key"))
        for topic, kafka_partition, first_offset, key in zip(*columns, strict=True):
            at = (topic, kafka_partition)
            place = (first_offset or 0, order_by_name(key, first_offset))
            last[at] = max(last.get(at, place), place)
        return last

    def to_parquet(self) -> bytes:
        """Write the objects. Equal objects give equal bytes."""
        sink = pa.BufferOutputStream()
        # Checksums, so that damage is found when the document is read.
        pq.write_table(self.table, sink, compression="zstd", write_page_checksum=True)
        return bytes(sink.getvalue())

    @staticmethod
    def from_parquet(content: bytes, key: str) -> "SentObjects":
        """Read a document of `to_parquet`. IntegrityError if it is damaged."""
        return SentObjects(parse_table(content, SENT_SCHEMA, key))


def _identify_records(item: ForeignObject) -> tuple[str, int, str, int | None]:
    """Return the common part of all objects with parts (key, value, headers) of the same records."""
    return item.topic, item.kafka_partition, item.encoded_partition, item.first_offset


def _describe_objects(objects: Sequence[ForeignObject], what: str) -> Iterator[str]:
    yield from (f"object {o.key} {what}" for o in objects[:MAX_LINES])
    if len(objects) > MAX_LINES:
        yield f"{len(objects) - MAX_LINES:,} more objects: each {what}"
