"""The plan of a restore from objects that others wrote: which objects go to which topics. Kept in the bucket."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from typing import Any

from kafka_s3_platform.config.settings import ConnectorConfig, SourceSettings
from kafka_s3_platform.errors import IntegrityError, PreflightError
from kafka_s3_platform.model.segment import TopicGeneration
from kafka_s3_platform.restore.documents import document
from kafka_s3_platform.restore.known import Known, Unsent
from kafka_s3_platform.restore.plan import (
    BYTES_PER_SECOND,
    PlannedObject,
    RestorePlan,
    Said,
    TargetStart,
    check_place,
    check_said,
    place_of,
    request_terms,
)
from kafka_s3_platform.restore.renaming import Rename, Template, routed_topic, routes, target_topic
from kafka_s3_platform.restore.request import Offsets, RestoreRequest
from kafka_s3_platform.restore.selection import FOREVER, MILLISECOND, Selection
from kafka_s3_platform.sources.objects import ForeignObject, ObjectGroup, ScanReport, groups, within
from kafka_s3_platform.sources.scan import Scan, as_told, scan
from kafka_s3_platform.store.objects import ObjectStore

KIND = "foreign"

_COUNTED = {
    "outside": "objects outside of topics.dir were ignored",
    "extension": "objects were ignored for the ends of their names",
    "index": "indexes of the blocks of others were ignored",
    "other_topic": "objects of other topics were ignored",
}


_CORRECT = (
    "Correct the topic's name, or what the connector's file says of the folder (topics.dir, s3.prefix, aws.s3.prefix), "
    "the names (archive.key.layout, archive.source.template, partitioner.class, path.format) and the format "
    "(format.class)"
)


@dataclass(frozen=True)
class ForeignPlan:
    """What is restored: `targets` is source topic -> target, `starts` the targets before the first record.

    `notes` and `skipped` are what the listing had to say. `times` are half-open windows (epoch ms).
    `place` is as `RestorePlan` has it.
    """

    restore_id: str
    terms: Mapping[str, Any]
    objects: tuple[ForeignObject, ...]
    targets: Mapping[str, str]
    times: tuple[tuple[int, int], ...]
    notes: tuple[str, ...]
    skipped: tuple[str, ...]
    created_at: str
    starts: Mapping[str, TargetStart] | None = None
    place: str = ""

    @property
    def groups(self) -> list[ObjectGroup]:
        """One stream each."""
        return groups(self.objects)

    @property
    def object_bytes(self) -> int:
        return sum(o.size for o in self.objects)

    @property
    def estimated_seconds(self) -> float:
        """Roughly, by the bytes of the objects."""
        return self.object_bytes / BYTES_PER_SECOND

    @property
    def digest(self) -> str:
        """SHA-256 of the plan: the same plan, the same digest."""
        return hashlib.sha256(json.dumps(self._document(), sort_keys=True).encode()).hexdigest()

    def to_json(self) -> bytes:
        return json.dumps(self._document() | {"kind": KIND, "digest": self.digest}, indent=1).encode()

    def _document(self) -> dict[str, Any]:
        """Without what plans of earlier versions do not have, where it is as it was there: their digests stay."""
        found = asdict(self)
        for item in found["objects"]:
            if item["last_offset"] is None:
                del item["last_offset"]
        if not self.place:
            del found["place"]
        return found

    @staticmethod
    def from_json(content: bytes, key: str) -> "ForeignPlan":
        """The plan that `to_json` wrote. IntegrityError if the object was changed since."""
        said = document(content, Said, key)
        if said.kind != KIND:
            raise PreflightError(f"restore plan {key} is that of a connector's own archive. Take another restore id")
        plan, digest = document(content, ForeignPlan, key), said.digest
        if plan.digest != digest:
            raise IntegrityError(
                f"restore plan {key}: its digest is {plan.digest}, it says {digest}: somebody changed it. Restore "
                f"to another topic, under another restore id"
            )
        return plan


def make_foreign_plan(
    request: RestoreRequest,
    topics: Sequence[str],
    rename: Rename | None,
    store: ObjectStore,
    after: str | None = None,
    known: Known | None = None,
) -> ForeignPlan:
    """Choose objects of the bucket as it is now: of `topics`, else of those of the file, else of every topic found.

    `known` was sent by the restore `after` and those before it, and is left out.

    Raises:
        IntegrityError: an object cannot be told by its key, and `behavior.on.error` is `fail`.
        PreflightError: no object is found: at all, of a topic that is named, or of a kafka partition that is.
        ConfigError: the rename rule makes no topic's name.
    """
    found = scan(request.config, topics, store, known.etags if known else ())
    times, listed = _times(request), list(found)
    check_found(found, listed, known, request.kafka_partitions)
    if known is None and not listed:
        raise PreflightError(f"there is no object to restore: {found.searched()}. {_CORRECT}")
    unsent = Unsent(tuple(listed), ()) if known is None else known.unsent(listed)
    chosen, notes = _chosen(unsent.objects, times)
    wanted = None if request.kafka_partitions is None else set(request.kafka_partitions)
    objects = tuple(o for o in chosen if wanted is None or o.kafka_partition in wanted)
    objects = tuple(o for o in objects if not _is_past(o, offset_of(request.to_offset, o.kafka_partition)))
    return ForeignPlan(
        restore_id=request.restore_id,
        terms=foreign_terms(request, topics, rename, after),
        objects=objects,
        targets={topic: _target(request, rename, topic) for topic in sorted({o.topic for o in objects})},
        times=times,
        notes=(*_listed(found.report), *unsent.notes, *notes),
        skipped=tuple(found.report.bad),
        created_at=datetime.now(timezone.utc).isoformat(),
        place=place_of(request.config),
    )


def check_found(
    scanned: Scan, objects: Sequence[ForeignObject], known: Known | None, kafka_partitions: Iterable[int] | None = None
) -> None:
    """That there is, or was and has been sent, an object of whatever is named.

    Raises:
        PreflightError: there is none. The message says where it was looked for.
    """
    streams = {(o.topic, o.kafka_partition) for o in objects} | (known.streams if known else set())
    topics, numbers = ({stream[at] for stream in streams} for at in (0, 1))
    if missing := [topic for topic in scanned.named if topic not in topics]:
        raise PreflightError(f"no object of topic {', '.join(missing)} is there: {scanned.searched()}. {_CORRECT}")
    if missing_numbers := sorted(set(kafka_partitions or ()) - numbers):
        raise PreflightError(
            f"no object of kafka partition {', '.join(map(str, missing_numbers))} is there: {scanned.searched()}. "
            f"There are objects of {', '.join(map(str, sorted(numbers))) or 'none'}"
        )


def foreign_terms(
    request: RestoreRequest, topics: Sequence[str], rename: Rename | None, after: str | None
) -> dict[str, Any]:
    """What makes two requests the same restore, as JSON."""
    layout = request.config.layout
    return request_terms(request) | {
        "topic": ", ".join(topics or request.config.topics) or "every topic found",
        "to_topic": None if rename is None else rename.terms,
        "topics_dir": layout.topics_dir,
        "format": layout.format,
        "after": after,
        "read_as": _read_as(request.config),
    }


def _read_as(config: ConnectorConfig) -> dict[str, Any]:
    """What the connector's file says of how objects are found and read, where it is not as by default."""
    layout = config.layout.model_dump(mode="json", exclude_defaults=True, exclude=_NOT_READ_IN)
    source = (config.source or SourceSettings()).model_dump(mode="json", exclude_defaults=True, exclude=_NOT_READ_BY)
    records = {side: getattr(config.records, side) for side in ("key", "value")}
    converters = {f"{side}_converter": given.format for side, given in records.items()}
    return layout | source | converters


_NOT_READ_BY = {"behavior_on_error", "poll_interval_ms", "thaw_days", "thaw_tier", "cluster"}
_NOT_READ_IN = {
    *("topics_dir", "format", "codec_level", "block_size", "flush_size", "rotate_interval_ms"),
    *("rotate_schedule_interval_ms", "segment_bytes", "schema_compatibility", "null_values"),
}
"""What a source connector's file, and its layout, say that changes no record that is read, or is a term of its own."""


def tells_times(config: ConnectorConfig) -> bool:
    """Whether objects tell the timestamps of their records."""
    source = config.source or SourceSettings()
    is_aivens = config.layout.format.startswith("aiven.") and "timestamp" in source.fields
    return config.layout.is_envelope or is_aivens or source.timestamp_field is not None


def as_restore_plan(request: RestoreRequest, plan: ForeignPlan) -> RestorePlan:
    """What goes to `request.to_topic`, as checks of a target look at it.

    Where timestamps are not known before objects are read, they count as those of now.
    """
    objects = [o for o in plan.objects if plan.targets[o.topic] == request.to_topic]
    now, told = round(datetime.now(timezone.utc).timestamp() * 1000), tells_times(request.config)
    numbers = tuple(sorted({o.kafka_partition for o in objects}))
    return RestorePlan(
        restore_id=plan.restore_id,
        terms={**plan.terms, "to_topic": request.to_topic},
        source=TopicGeneration(request.topic, "", numbers, ()),
        index_version=0,
        selection=Selection(-FOREVER, FOREVER, ()),
        objects=tuple(_planned(o, (o.window if told else None) or (now, now + 1)) for o in objects),
        gaps=(),
        allow_unsendable_timestamps=request.allow_unsendable_timestamps,
        created_at=plan.created_at,
        target=(plan.starts or {}).get(request.to_topic),
    )


def _planned(item: ForeignObject, window: tuple[int, int]) -> PlannedObject:
    return PlannedObject(
        key=item.key,
        etag=item.etag,
        size=item.size,
        sha256="",
        digest="",
        kafka_partition=item.kafka_partition,
        start_offset=item.first_offset or 0,
        end_offset=FOREVER,
        record_count=0,
        record_bytes=item.size,
        min_timestamp=window[0],
        max_timestamp=window[1] - 1,
        out_of_range=False,
    )


def offset_of(given: Offsets, kafka_partition: int) -> int | None:
    """The bound of a kafka partition, None where it is open."""
    return given if given is None or isinstance(given, int) else given.get(kafka_partition)


def _is_past(item: ForeignObject, end_offset: int | None) -> bool:
    return end_offset is not None and item.first_offset is not None and item.first_offset >= end_offset


def _target(request: RestoreRequest, rename: Rename | None, topic: str) -> str:
    transforms = request.outgoing.transforms
    if rename is None:
        rename = Template(routed_topic(transforms, topic) if routes(transforms) else topic)
    return target_topic(rename, topic)


def _times(request: RestoreRequest) -> tuple[tuple[int, int], ...]:
    """The windows of time that all must hold, as those of which one must; none where every time is wanted."""
    first, last = _ms(request.from_time, -FOREVER), _ms(request.to_time, FOREVER)
    if not request.windows:
        return () if (first, last) == (-FOREVER, FOREVER) else ((first, last),)
    windows = ((max(first, _ms(s, 0)), min(last, _ms(e, 0))) for s, e in sorted(request.windows))
    return tuple((start, end) for start, end in windows if start < end) or ((0, 0),)


def _ms(moment: datetime | None, default: int) -> int:
    return default if moment is None else (moment - datetime(1970, 1, 1, tzinfo=timezone.utc)) // MILLISECOND


def _chosen(
    objects: Sequence[ForeignObject], times: Sequence[tuple[int, int]]
) -> tuple[list[ForeignObject], tuple[str, ...]]:
    """The objects that may hold records of any of the windows."""
    if not times:
        return list(objects), ()
    selected = [within(objects, start, end) for start, end in times]
    keys = {o.key for one in selected for o in one.objects}
    notes = dict.fromkeys(note for one in selected for note in one.notes)
    return [o for o in objects if o.key in keys], tuple(notes)


def _listed(report: ScanReport) -> Iterable[str]:
    bad = set(report.bad)
    yield from (f"{report.counts[kind]:,} {what}" for kind, what in _COUNTED.items() if kind in report.counts)
    yield from (line for line in report.lines if line not in bad)


def check_stored(request: RestoreRequest, topics: Sequence[str], rename: Rename | None, plan: ForeignPlan) -> None:
    """That a stored plan of these terms goes where they say, and reads what their connector reads.

    Raises:
        IntegrityError: it does not: somebody changed it.
    """
    named = {o.topic for o in plan.objects}
    wanted = {topic: _target(request, rename, topic) for topic in sorted(named)}
    check_said(request, "restore_id", plan.restore_id, request.restore_id)
    check_said(request, "targets", plan.targets, wanted)
    check_said(request, "times", plan.times, _times(request))
    check_place(request, plan.place)
    check_said(request, "starts", set(plan.starts or wanted.values()), set(wanted.values()))
    for item, told in zip(plan.objects, as_told(request.config, topics, plan.objects), strict=True):
        check_said(request, f"object {item.key}", told and (item.topic, item.kafka_partition, item.first_offset), told)


def with_starts(plan: ForeignPlan, look: Callable[[str], TargetStart]) -> ForeignPlan:
    """The plan with its targets as they are before the first record."""
    return replace(plan, starts={name: look(name) for name in sorted(set(plan.targets.values()))})
