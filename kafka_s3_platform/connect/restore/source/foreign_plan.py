"""The plan of a restore from another sink's objects: the objects, without those sent before, and their topics.

The plan stays in the bucket, and so does the list of the objects sent by each restore of a source connector.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import cached_property
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kafka_s3_platform.connect.sources.objects import (
    MAX_LINES,
    ForeignObject,
    ObjectGroup,
    ScanReport,
    group_objects,
    has_record_times,
    names_bound_times,
    order_by_name,
    select_objects,
)
from kafka_s3_platform.connect.sources.scan import SourceListing, read_places
from kafka_s3_platform.core.config.settings import ConnectorConfig, SourceSettings
from kafka_s3_platform.core.errors import PreflightError
from kafka_s3_platform.core.model.notes import DoubtNote
from kafka_s3_platform.core.restore.documents import parse_table
from kafka_s3_platform.core.restore.request import RestoreRequest
from kafka_s3_platform.core.restore.source.base import ObjectFacts, RestorePlan, TargetPlan
from kafka_s3_platform.core.restore.source.selection import FOREVER, find_offset_bound, list_time_windows
from kafka_s3_platform.core.restore.source.terms import check_plan_field, collect_request_terms, hash_place
from kafka_s3_platform.core.restore.target_topic import (
    Rename,
    Template,
    apply_routers,
    match_names,
    name_target_topic,
    names_targets,
    routes_by_topic,
)
from kafka_s3_platform.core.store.objects import ObjectStore

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

_PLACE = ("to_topic", "topic_id")

_COUNTED = {
    "outside": "objects outside of topics.dir were ignored",
    "extension": "objects were ignored for the ends of their names",
    "index": "indexes of the blocks of others were ignored",
    "marker": "markers of Spark, Hadoop and the like were ignored",
    "other_topic": "objects of other topics were ignored",
}

_CORRECT = (
    "Correct the topic's name, or the settings in the connector's file for the folder (topics.dir, s3.prefix, "
    "aws.s3.prefix), the names (archive.key.layout, archive.source.template, partitioner.class, path.format) and "
    "the format (format.class). If it is the file of another tool's sink, set connector.class to the class of that "
    "tool's source"
)

_NOT_READ_BY = {"behavior_on_error", "poll_interval_ms", "look_back_ms", "thaw_days", "thaw_tier", "cluster"}

_NOT_READ_IN = {
    *("topics_dir", "format", "codec_level", "block_size", "flush_size", "rotate_interval_ms"),
    *("rotate_schedule_interval_ms", "segment_bytes", "schema_compatibility", "null_values"),
}
"""Settings of a source connector's file and layout that have no effect on records, or have a term of their own."""


@dataclass(frozen=True)
class Unsent:
    """The objects of a listing that no restore has sent. `notes`, some of them doubts, are about these and others.

    `skipped` are sentences about unsent objects whose records may be missing in the target.
    """

    objects: tuple[ForeignObject, ...]
    notes: tuple[str, ...]
    skipped: tuple[str, ...] = ()


@dataclass(frozen=True)
class SentObjects:
    """Sent objects, ordered by key, with a row of SENT_SCHEMA for each of an object's targets."""

    table: pa.Table

    @staticmethod
    def of(objects: Iterable[ForeignObject], targets: Mapping[str, Sequence[TargetTopic]] = {}) -> "SentObjects":
        """Return these objects of a plan as sent. `targets` maps source topics to the targets of their records."""
        columns = SENT_SCHEMA.names[:-2]
        rows: list[dict[str, Any]] = []
        for o in objects:
            row = {name: getattr(o, name) for name in columns}
            places = targets.get(o.topic)
            rows += [row | dict(zip(_PLACE, place, strict=True)) for place in places] if places else [row]
        return SentObjects(pa.Table.from_pylist(rows, SENT_SCHEMA).sort_by("key"))

    def __or__(self, other: "SentObjects") -> "SentObjects":
        return SentObjects(pa.concat_tables([self.table, other.table]).sort_by("key").combine_chunks())

    @cached_property
    def etags(self) -> dict[str, str]:
        """The ETags of the objects, by key."""
        return dict(zip(self.table["key"].to_pylist(), self.table["etag"].to_pylist(), strict=True))

    def count_elsewhere(self, topic: str, target: TargetTopic, *, routes: bool) -> dict[TargetTopic, int]:
        """Return how many objects of a source topic were sent to targets other than this one, by target.

        If records decide the target (`routes`), only targets with the same name count, since each object has records
        for some of the targets only.
        """
        of_topic = self.table.filter(pc.equal(self.table["topic"], topic))
        counts = Counter(zip(*(of_topic[name].to_pylist() for name in _PLACE), strict=True))
        places = {place: count for place, count in counts.items() if place != target}
        return {place: count for place, count in places.items() if not routes or place[0] == target[0]}

    @cached_property
    def streams(self) -> frozenset[tuple[str, int]]:
        """The topics and kafka partitions of the sent objects."""
        topics, numbers = (self.table[name].to_pylist() for name in ("topic", "kafka_partition"))
        return frozenset(zip(topics, numbers, strict=True))

    def find_unsent(self, listed: Sequence[ForeignObject]) -> Unsent:
        """Return the objects in `listed` that were not sent, with notes on objects replaced, left out or late.

        Keys and headers are left out if their values were sent before, because alone they would be read as records
        without a value.
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
        return Unsent(new, tuple(map(DoubtNote, _describe_objects(list(self._find_late(new)), late))), skipped)

    def _find_late(self, new: Iterable[ForeignObject]) -> Iterator[ForeignObject]:
        """Yield new objects that lie before a sent object of their kafka partition."""
        for item in new:
            last = self._last_places.get((item.topic, item.kafka_partition))
            if last is not None and (item.first_offset or 0, order_by_name(item.key, item.first_offset)) < last:
                yield item

    @cached_property
    def _last_places(self) -> dict[tuple[str, int], tuple[int, tuple[str | int, ...]]]:
        """The first offset and the key of the last object, by topic and kafka partition."""
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
        """Read a document written by `to_parquet`. Raise IntegrityError if it is damaged."""
        return SentObjects(parse_table(content, SENT_SCHEMA, key))


def _identify_records(item: ForeignObject) -> tuple[str, int, str, int | None]:
    """Return what all objects with parts (keys, values, headers) of the same records have in common."""
    return item.topic, item.kafka_partition, item.encoded_partition, item.first_offset


def _describe_objects(objects: Sequence[ForeignObject], what: str) -> Iterator[str]:
    """Yield the sentence `what` for each of the first objects, then one with the number of the others."""
    yield from (f"object {o.key} {what}" for o in objects[:MAX_LINES])
    if len(objects) > MAX_LINES:
        yield f"{len(objects) - MAX_LINES:,} more objects: each {what}"


@dataclass(frozen=True, kw_only=True)
class ForeignPlan(RestorePlan):
    """The objects to restore. `targets` maps source topics to targets: one, or several if transforms route records.

    `times` are half-open windows (epoch ms). `notes` and `doubts` are sentences from the listing. Gaps are found when
    objects are read.
    """

    kind = "objects of other sinks"

    objects: tuple[ForeignObject, ...]
    targets: Mapping[str, tuple[str, ...]]
    times: tuple[tuple[int, int], ...]
    notes: tuple[str, ...]
    doubts: tuple[str, ...] = ()

    @cached_property
    def groups(self) -> tuple[ObjectGroup, ...]:
        """The groups of objects. Each group is one stream."""
        return tuple(group_objects(self.objects))


def make_foreign_plan(
    request: RestoreRequest,
    topics: Sequence[str],
    rename: Rename | None,
    store: ObjectStore,
    after: str | None = None,
    sent: SentObjects | None = None,
) -> ForeignPlan:
    """Choose from the objects now in the bucket: of `topics`, else of the file's topics, else of every topic found.

    Objects in `sent` are left out, because the restore `after` or an earlier one has sent them. The plan has no targets
    if these are known only from the records.

    Raises:
        IntegrityError: the key of an object does not show its content, and `behavior.on.error` is `fail`.
        PreflightError: there is no object at all, or none of a topic or kafka partition in the request.
        ConfigError: the rename rule makes an illegal name of a topic.
    """
    listing = SourceListing(request.config, topics, store, sent.etags if sent else ())
    times = list_time_windows(request)
    listed = list(listing)
    matching = set(match_names(request.topics_regex, {o.topic for o in listed}))
    listed = [o for o in listed if o.topic in matching]
    # This check comes first, because it names a topic or a kafka partition, so its error is more exact.
    check_listing(listing, listed, sent, request.kafka_partitions)
    if sent is None and not listed:
        raise PreflightError(f"there is no object to restore: {listing.describe_search()}. {_CORRECT}")
    unsent = Unsent(tuple(listed), ()) if sent is None else sent.find_unsent(listed)
    chosen, notes = _choose_objects(request.config, unsent.objects, times)
    numbers = None if request.kafka_partitions is None else set(request.kafka_partitions)
    objects = tuple(o for o in chosen if numbers is None or o.kafka_partition in numbers)
    objects = tuple(o for o in objects if not _is_past(o, find_offset_bound(request.to_offset, o.kafka_partition)))
    topics_found = sorted({o.topic for o in objects})
    sentences = (*_describe_listing(listing.report), *unsent.notes, *notes)
    return ForeignPlan(
        restore_id=request.restore_id,
        terms=collect_foreign_terms(request, topics, rename, after),
        objects=objects,
        targets=name_targets(request, rename, topics_found) or {},
        times=times,
        notes=tuple(note for note in sentences if not isinstance(note, DoubtNote)),
        doubts=tuple(note for note in sentences if isinstance(note, DoubtNote)),
        skipped=(*listing.report.list_bad(), *unsent.skipped),
        skipped_count=listing.report.bad_count + len(unsent.skipped),
        created_at=datetime.now(timezone.utc).isoformat(),
        place=hash_place(request.config),
    )


def check_listing(
    scanned: SourceListing,
    objects: Sequence[ForeignObject],
    sent: SentObjects | None,
    kafka_partitions: Iterable[int] | None = None,
) -> None:
    """Check that each named topic and kafka partition has an object, or had one sent before.

    Raises:
        PreflightError: one of them has none. The message names the searched places.
    """
    streams = {(o.topic, o.kafka_partition) for o in objects} | (sent.streams if sent else set())
    topics = {topic for topic, _ in streams}
    numbers = {number for _, number in streams}
    if missing := [topic for topic in scanned.named_topics if topic not in topics]:
        raise PreflightError(
            f"no object of topic {', '.join(missing)} was found: {scanned.describe_search()}. {_CORRECT}"
        )
    if missing_numbers := sorted(set(kafka_partitions or ()) - numbers):
        raise PreflightError(
            f"no object of kafka partition {', '.join(map(str, missing_numbers))} was found: "
            f"{scanned.describe_search()}. There are objects of {', '.join(map(str, sorted(numbers))) or 'none'}"
        )


def collect_foreign_terms(
    request: RestoreRequest, topics: Sequence[str], rename: Rename | None, after: str | None
) -> dict[str, Any]:
    """Return the terms that identify a restore, as JSON."""
    layout = request.config.layout
    return collect_request_terms(request) | {
        "topic": ", ".join(topics or request.config.topics) or "every topic found",
        "to_topic": None if rename is None else rename.terms,
        "topics_dir": layout.topics_dir,
        "format": layout.format,
        "after": after,
        "read_as": _collect_read_terms(request.config),
    }


def _collect_read_terms(config: ConnectorConfig) -> dict[str, Any]:
    """Return the file's settings that decide how objects are found and read, except those at their defaults."""
    layout = config.layout.model_dump(mode="json", exclude_defaults=True, exclude=_NOT_READ_IN)
    source = (config.source or SourceSettings()).model_dump(mode="json", exclude_defaults=True, exclude=_NOT_READ_BY)
    records = {side: getattr(config.records, side) for side in ("key", "value")}
    converters = {f"{side}_converter": converter.format for side, converter in records.items()}
    return layout | source | converters


def make_foreign_targets(request: RestoreRequest, plan: ForeignPlan) -> tuple[TargetPlan, ...]:
    """Return the part of the plan for each target topic, in the form for the checks of a target."""
    objects: dict[str, list[ForeignObject]] = {
        to_topic: [] for to_topic in sorted(chain.from_iterable(plan.targets.values()))
    }
    for item in plan.objects:
        for to_topic in plan.targets[item.topic]:
            objects[to_topic].append(item)
    return tuple(_make_target(request, plan, to_topic, items) for to_topic, items in objects.items())


def _make_target(
    request: RestoreRequest, plan: ForeignPlan, to_topic: str, objects: Sequence[ForeignObject]
) -> TargetPlan:
    """Make the plan of one target topic from the objects that have records for it."""
    topics = tuple(sorted(topic for topic, targets in plan.targets.items() if to_topic in targets))
    config = request.config
    # A topic that goes to a target of its own name is named alone: that is a loop.
    topic = to_topic if to_topic in topics else ", ".join(topics)
    return TargetPlan(
        request=replace(request, topic=topic, to_topic=to_topic),
        topics=topics,
        facts=plan.facts,
        objects=tuple(_collect_facts(config, plan, o) for o in objects),
        is_exact=False,
        start=(plan.starts or {}).get(to_topic),
        source_kafka_partitions=tuple(sorted({o.kafka_partition for o in objects})),
        has_timestamps=has_record_times(config),
    )


def _collect_facts(config: ConnectorConfig, plan: ForeignPlan, item: ForeignObject) -> ObjectFacts:
    """Collect the known facts about an object's wanted records. If these have times, the plan's windows bound them."""
    oldest, newest = item.window if item.window and names_bound_times(config) else (-FOREVER, FOREVER)
    if plan.times:
        oldest = max(oldest, plan.times[0][0])
        newest = min(newest, max(end for _, end in plan.times))
    return ObjectFacts(
        key=item.key,
        kafka_partition=item.kafka_partition,
        size=item.size,
        oldest=None if oldest == -FOREVER else oldest,
        newest=None if newest == FOREVER else newest - 1,
    )


def _is_past(item: ForeignObject, end_offset: int | None) -> bool:
    """Return True if an object begins at the end of the selected offsets, or after it."""
    return end_offset is not None and item.first_offset is not None and item.first_offset >= end_offset


def name_targets(
    request: RestoreRequest, rename: Rename | None, topics: Iterable[str]
) -> dict[str, tuple[str, ...]] | None:
    """Return the target of each topic, or None if targets are known only from the records."""
    transforms = request.outgoing.transforms
    if rename is None and names_targets(transforms):
        return None
    targets: dict[str, tuple[str, ...]] = {}
    for topic in topics:
        rule = rename or Template(apply_routers(transforms, topic) if routes_by_topic(transforms) else topic)
        targets[topic] = (name_target_topic(rule, topic),)
    return targets


def _choose_objects(
    config: ConnectorConfig, objects: Sequence[ForeignObject], times: Sequence[tuple[int, int]]
) -> tuple[list[ForeignObject], tuple[str, ...]]:
    """Return the objects that may hold records in any of the windows.

    If records have times of their own, objects are chosen by their names only if the names give these times.
    """
    if not times or (has_record_times(config) and not names_bound_times(config)):
        return list(objects), ()
    if has_record_times(config):
        return select_objects(objects, times), ()
    inside = [o for o in objects if o.encoded_partition not in config.layout.out_of_range_folders]
    left_out = len(objects) - len(inside)
    notes = (f"{left_out:,} objects of records out of range are left out: they are of no hour",) * bool(left_out)
    return select_objects(inside, times), notes


def _describe_listing(report: ScanReport) -> Iterable[str]:
    """Yield sentences about the objects that the listing has counted and left out."""
    bad = set(report.bad)
    yield from (f"{report.counts[kind]:,} {what}" for kind, what in _COUNTED.items() if kind in report.counts)
    # Bad objects are in the plan's `skipped`.
    yield from (line for line in report.lines if line not in bad)


def check_foreign_plan(
    request: RestoreRequest, topics: Sequence[str], rename: Rename | None, after: str | None, plan: ForeignPlan
) -> None:
    """Check that a stored plan belongs to this request, and lists the connector's objects.

    It raises the same errors as `RestorePlan.check_same`.
    """
    named = sorted({o.topic for o in plan.objects})
    # A target in the plan is not enough to send a record there: the transforms have to send it, too.
    targets = name_targets(request, rename, named) or plan.targets
    terms = collect_foreign_terms(request, topics, rename, after)
    to_topics = {*chain.from_iterable(targets.values())}
    plan.check_same(request, terms, to_topics, targets=targets, times=list_time_windows(request))
    for item, place in zip(plan.objects, read_places(request.config, topics, plan.objects), strict=True):
        check_plan_field(
            request, f"object {item.key}", place and (item.topic, item.kafka_partition, item.first_offset), place
        )
