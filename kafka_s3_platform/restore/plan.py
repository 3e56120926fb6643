"""The plan of a restore: which objects and records go where. Made once per restore id, kept in the bucket."""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime, timedelta, timezone
from itertools import count, groupby, takewhile
from typing import Any
from zoneinfo import ZoneInfo

from kafka_s3_platform.config.settings import (
    ConnectorConfig,
    ConverterSettings,
    PredicateSettings,
    RegistrySettings,
    TransformSettings,
)
from kafka_s3_platform.config.transform_catalogue import keeps_content, public_options
from kafka_s3_platform.errors import IntegrityError, MissingTopicError, PreflightError
from kafka_s3_platform.formats.envelopes import is_envelope
from kafka_s3_platform.model.offsets import RangeSet, span
from kafka_s3_platform.model.segment import Segment, StoredObject, TopicAcl, TopicGeneration
from kafka_s3_platform.model.state import HOUR, IndexState
from kafka_s3_platform.restore.documents import document
from kafka_s3_platform.restore.request import Offsets, Outgoing, RecordFilter, RestoreRequest
from kafka_s3_platform.restore.schemas import ambiguous_ids
from kafka_s3_platform.restore.selection import Selection, select
from kafka_s3_platform.store.index import IndexSnapshot, TopicIndex

RECORDS_PER_SECOND = 150_000
BYTES_PER_SECOND = 60_000_000
"""What one task sends and verifies on one core of a small machine: for estimates only."""

MAX_STRETCHES = 20

_PLACE = re.compile(r"([0-9a-f]{8})?")
"""Of documents that were moved since it is another one than that of the request: only its form is looked at."""

_LATER_TERMS = frozenset({"read_as"})
"""Terms that plans of earlier versions do not have: nobody knows what they were."""

_DIGESTED = re.compile(r"scrypt:[0-9a-f]{32}")
"""What stands in a plan for the value of an option that may not be shown."""

NATIVE_FORMAT = "envelope.parquet"
"""The one that earlier versions restored: their plans name none."""


@dataclass(frozen=True, slots=True)
class PlannedObject:
    """One object of the archive as the index held it when the restore was planned. Fields as in `Segment`."""

    key: str
    etag: str
    size: int
    sha256: str
    digest: str
    kafka_partition: int
    start_offset: int
    end_offset: int
    record_count: int
    record_bytes: int
    min_timestamp: int
    max_timestamp: int
    out_of_range: bool
    format: str = NATIVE_FORMAT

    @property
    def stored(self) -> StoredObject:
        """The object as it was finished; its SHA-256 is empty where objects of others are restored."""
        return StoredObject(self.key, self.size, self.etag, self.sha256)


@dataclass(frozen=True, slots=True)
class TargetStart:
    """The target topic as it was before the first record: its id, and kafka partition -> high watermark."""

    topic_id: str
    offsets: tuple[tuple[int, int], ...]

    @property
    def is_known(self) -> bool:
        """Not where an earlier version took the -1001 of a broker that was going down for an offset."""
        return all(offset >= 0 for _, offset in self.offsets)

    def offset(self, kafka_partition: int) -> int:
        return dict(self.offsets)[kafka_partition]


@dataclass(frozen=True)
class Said:
    """What tells kinds of plans apart, and the digest that a plan was stored with.

    A plan of our own archive has a `source`, one of objects that others wrote a `kind`.
    """

    digest: str | None = None
    source: object = None
    kind: object = None


@dataclass(frozen=True)
class RestorePlan:
    """What a restore replays. `terms` is the request as it was made; `target` is None until the target is known.

    `values_only` tells of objects of the selection that are not among `objects`: their format holds no whole records.
    `place` is `place_of` its connector, empty in plans of earlier versions: restores of one id at two places are two.
    """

    restore_id: str
    terms: Mapping[str, Any]
    source: TopicGeneration
    index_version: int
    selection: Selection
    objects: tuple[PlannedObject, ...]
    gaps: tuple[str, ...]
    allow_unsendable_timestamps: bool
    created_at: str
    target: TargetStart | None = None
    values_only: tuple[str, ...] = ()
    place: str = ""

    @property
    def kafka_partitions(self) -> tuple[int, ...]:
        """Source kafka partitions that have something to restore."""
        return tuple(sorted({o.kafka_partition for o in self.objects}))

    def objects_of(self, kafka_partition: int) -> tuple[PlannedObject, ...]:
        return tuple(o for o in self.objects if o.kafka_partition == kafka_partition)

    @property
    def start(self) -> TargetStart:
        """Where the target stood. ValueError before the restore has begun."""
        if self.target is None:
            raise ValueError(f"restore {self.restore_id} has not begun")
        return self.target

    @property
    def exact(self) -> bool:
        """Whether every record of every object is restored, so that the index tells their number."""
        return not self.chooses and all(map(self.selection.holds, self.objects))

    @property
    def chooses(self) -> bool:
        """Whether the records themselves decide which of them are restored: filters, or transforms."""
        return bool(self.terms.get("records") or (self.terms.get("outgoing") or {}).get("transforms"))

    @property
    def keeps_numbers(self) -> bool:
        """Whether records keep their kafka partition's number."""
        return "partitioning" not in (self.terms.get("outgoing") or {})

    @property
    def is_snapshot(self) -> bool:
        """Whether each key is restored once only."""
        return bool((self.terms.get("records") or {}).get("latest_per_key"))

    @property
    def record_count(self) -> int:
        """Exact or at most."""
        return sum(self.records_at_most(o) for o in self.objects)

    def records_at_most(self, item: PlannedObject) -> int:
        start, end = self.selection.bounds(item)
        return max(0, min(item.record_count, end - start))

    @property
    def record_bytes(self) -> int:
        """Of keys, values and headers, exact or at most."""
        return sum(o.record_bytes for o in self.objects)

    @property
    def object_bytes(self) -> int:
        return sum(o.size for o in self.objects)

    @property
    def out_of_range_count(self) -> int:
        """Exact or at most."""
        return sum(self.records_at_most(o) for o in self.objects if o.out_of_range)

    @property
    def oldest(self) -> int | None:
        """The earliest timestamp that is sent (epoch ms, exact or no later), None where there is no record."""
        return min((max(o.min_timestamp, self.selection.from_ms) for o in self.objects), default=None)

    @property
    def newest(self) -> int | None:
        """The latest timestamp that is sent (epoch ms, exact or no earlier)."""
        return max((min(o.max_timestamp, self.selection.to_ms - 1) for o in self.objects), default=None)

    @property
    def digest(self) -> str:
        """SHA-256 of the plan: the same plan, the same digest."""
        return hashlib.sha256(json.dumps(self._document(), sort_keys=True).encode()).hexdigest()

    def to_json(self) -> bytes:
        return json.dumps(self._document() | {"digest": self.digest}, indent=1).encode()

    def _document(self) -> dict[str, Any]:
        """Without what plans of earlier versions do not have, where it is as it was there: their digests stay."""
        found = asdict(self)
        for item in found["objects"]:
            if item["format"] == NATIVE_FORMAT:
                del item["format"]
        for name in ("values_only", "place"):
            if not found[name]:
                del found[name]
        return found

    @staticmethod
    def from_json(content: bytes, key: str) -> "RestorePlan":
        """The plan that `to_json` wrote. IntegrityError if the object was changed since."""
        said = document(content, Said, key)
        if said.source is None:
            raise PreflightError(f"restore plan {key} is of objects that others wrote, not of an archive with an index")
        plan, digest = document(content, RestorePlan, key), said.digest
        if plan.digest != digest:
            raise IntegrityError(
                f"restore plan {key}: its digest is {plan.digest}, it says {digest}: somebody changed it. Restore "
                f"to another topic, under another restore id"
            )
        return plan


def make_plan(request: RestoreRequest) -> RestorePlan:
    """Choose objects from the index as it is now.

    Raises:
        MissingTopicError: the connector has archived nothing of the topic.
        ConfigError: the request names kafka partitions or offsets that cannot be.
        IntegrityError: the index is that of another topic.
        PreflightError: records are to be understood by schema ids that two registries have given.
    """
    config = request.config
    index = TopicIndex(config.store, config.archive.index_dir, config.name, request.topic)
    snapshot = index.peek()
    source = snapshot.state.topic if snapshot else None
    if snapshot is None or source is None:
        raise MissingTopicError(
            f"connector {config.name} has archived nothing of topic {request.topic}: there is no index at {index.uri}. "
            f"Archive it first, or correct the topic, the connector or archive.index.dir"
        )
    if source.topic != request.topic:
        raise IntegrityError(
            f"{index.uri} is the index of topic {source.topic}: its folder was copied or moved to that of "
            f"{request.topic}. Put each index back into the folder of its topic"
        )
    known = {*source.kafka_partitions, *(s.kafka_partition for s in snapshot.segments)}
    selection = select(request, known)
    chosen = [s for s in snapshot.segments if selection.overlaps(s)]
    _check_schemas(request, snapshot, chosen)
    return RestorePlan(
        restore_id=request.restore_id,
        terms=request_terms(request),
        source=replace(source, kafka_partitions=tuple(sorted(known)), acls=_known_acls(snapshot.state, source)),
        index_version=snapshot.version,
        selection=selection,
        objects=tuple(_planned(s) for s in chosen if is_envelope(s.format)),
        gaps=(*_missing(request, snapshot, selection), *_missing_schemas(request, snapshot, selection)),
        allow_unsendable_timestamps=request.allow_unsendable_timestamps,
        created_at=datetime.now(timezone.utc).isoformat(),
        values_only=tuple(_values_only(request.topic, chosen)),
        place=place_of(request.config),
    )


def _values_only(topic: str, chosen: Iterable[Segment]) -> Iterator[str]:
    """Of each kafka partition and format that holds values only, a sentence on its objects."""
    found = sorted(
        (s for s in chosen if not is_envelope(s.format)), key=lambda s: (s.kafka_partition, s.format, s.start_offset)
    )
    for (number, format_name), group in groupby(found, key=lambda s: (s.kafka_partition, s.format)):
        segments = list(group)
        records = sum(s.record_count for s in segments)
        ranges = RangeSet(s.offsets for s in segments)
        shown = ", ".join(str(r) for r in list(ranges)[:MAX_STRETCHES])
        yield (
            f"{topic}-{number}: {len(segments)} objects ({records:,} records within offsets {shown}) are of format "
            f"{format_name}, which their connector wrote then. It holds values only, of which no restore of the "
            f"archive can make the records that they were"
        )


def _known_acls(state: IndexState, source: TopicGeneration) -> tuple[TopicAcl, ...] | None:
    """What was known last of the topic's ACLs: a later look may have been refused."""
    same = (g.acls for g in reversed(state.generations) if g.topic_id == source.topic_id)
    return next((acls for acls in same if acls is not None), None)


def estimated_seconds(request: RestoreRequest, plan: RestorePlan) -> float:
    """How long sending and verifying takes, roughly: the slowest of the records, the bytes and the limits."""
    tasks = max(1, min(request.config.tasks_max, len(plan.kafka_partitions)))
    # To find the latest record of each key everything is read first, both when sending and when verifying.
    passes = 2 if plan.is_snapshot else 1
    at_once = [passes * plan.record_count / RECORDS_PER_SECOND / tasks]
    at_once.append(passes * plan.record_bytes / BYTES_PER_SECOND / tasks)
    limits = ((plan.record_count, request.records_per_second), (plan.record_bytes, request.bytes_per_second))
    return max(at_once + [size / limit for size, limit in limits if limit])


def check_same(request: RestoreRequest, plan: RestorePlan) -> None:
    """That a stored plan is this request's.

    Raises:
        PreflightError: the restore id was used for something else before; each difference is named.
        IntegrityError: the plan's windows, or its id, are not those that the request makes: somebody changed it.
    """
    check_terms(request, request_terms(request), plan.terms, plan.created_at)
    for name, found, wanted in (
        ("restore_id", plan.restore_id, request.restore_id),
        ("topic", plan.source.topic, request.topic),
        ("selection", plan.selection, select(request, plan.source.kafka_partitions)),
        ("allow_unsendable_timestamps", plan.allow_unsendable_timestamps, request.allow_unsendable_timestamps),
    ):
        check_said(request, name, found, wanted)
    check_place(request, plan.place)


def place_of(config: ConnectorConfig) -> str:
    """What tells the restores of one id apart whose documents lie in different buckets or folders."""
    store = config.restore_store
    where = [store.endpoint_url, store.bucket, config.archive.restore_dir]
    return hashlib.sha256(json.dumps(where).encode()).hexdigest()[:8]


def check_place(request: RestoreRequest, place: str) -> None:
    """IntegrityError where a plan's place is none: transactional ids are made of it."""
    check_said(request, "place", place, place if _PLACE.fullmatch(place) else place_of(request.config))


def check_said(request: RestoreRequest, name: str, found: object, wanted: object) -> None:
    """IntegrityError where a plan has something that no request of these terms makes."""
    if found != wanted:
        raise IntegrityError(
            f"restore plan {request.plan_key}: its {name} is {found}, what is asked for makes it {wanted}: somebody "
            f"changed it. Restore to another topic, under another restore id"
        )


def check_terms(request: RestoreRequest, asked: Mapping[str, Any], terms: Mapping[str, Any], created_at: str) -> None:
    """As `check_same`, by the terms of whichever kind of plan."""
    try:
        before = shown_terms(terms, request.restore_id)
    except (TypeError, ValueError, LookupError, AttributeError) as err:
        raise IntegrityError(f"restore plan {request.plan_key}: its terms are none of a restore: {err!r}") from err
    differences = [
        f"{name} was {before.get(name)}, is now {value}"
        for name, value in json.loads(json.dumps(asked)).items()
        if before.get(name) != value and (name in before or name not in _LATER_TERMS)
    ]
    if differences:
        raise PreflightError(
            f"restore id {request.restore_id} belongs to another restore ({request.plan_key} of {created_at}): "
            f"{'; '.join(differences)}. Ask for the same to resume that one, or take another restore id"
        )


def shown_terms(terms: Mapping[str, Any], restore_id: str) -> dict[str, Any]:
    """The terms of a plan as they may be shown: earlier versions wrote the options of all transforms as they were."""
    found: dict[str, Any] = json.loads(json.dumps(terms))
    for step in (found.get("outgoing") or {}).get("transforms") or ():
        for each in filter(None, (step, step.get("predicate"))):
            clear = {name: value for name, value in each["options"].items() if not _DIGESTED.fullmatch(value)}
            each["options"] |= _shown(each["type"], clear, restore_id)
    return found


def request_terms(request: RestoreRequest) -> dict[str, Any]:
    """What makes two requests the same restore, as JSON."""
    return {
        "connector": request.config.name,
        "topic": request.topic,
        "to_topic": request.to_topic,
        "from_time": _utc(request.from_time),
        "to_time": _utc(request.to_time),
        "from_offset": _plain(request.from_offset),
        "to_offset": _plain(request.to_offset),
        "kafka_partitions": None if request.kafka_partitions is None else sorted(set(request.kafka_partitions)),
        "allow_unsendable_timestamps": request.allow_unsendable_timestamps,
        "windows": [[_utc(start), _utc(end)] for start, end in sorted(request.windows)] or None,
        "records": _record_terms(request.records),
        "outgoing": _outgoing_terms(request.outgoing, request.restore_id),
    }


def _record_terms(records: RecordFilter) -> dict[str, Any] | None:
    """What is set of the filter, None where nothing is."""
    terms = asdict(records) | {name: [_key(k) for k in getattr(records, name)] for name in ("keys", "key_prefixes")}
    return {name: value for name, value in terms.items() if value not in ([], None, False)} or None


def _outgoing_terms(outgoing: Outgoing, restore_id: str) -> dict[str, Any] | None:
    """What is not as by default, without secrets; None where nothing is."""
    default = Outgoing()
    changed = [f.name for f in fields(Outgoing) if getattr(outgoing, f.name) != getattr(default, f.name)]
    return {name: _term(getattr(outgoing, name), restore_id) for name in changed} or None


def _term(value: Any, restore_id: str) -> Any:
    if isinstance(value, tuple):
        return [_step_terms(each, restore_id) for each in value]
    if isinstance(value, RegistrySettings):
        return value.url
    if isinstance(value, ConverterSettings):
        registry = value.registry and value.registry.url
        return value.model_dump(mode="json", exclude={"registry"}) | {"registry": registry}
    return value


def _step_terms(step: TransformSettings | PredicateSettings, restore_id: str) -> dict[str, Any]:
    options = {name: value.get_secret_value() for name, value in step.options.items()}
    terms = {"alias": step.alias, "type": step.type, "options": _shown(step.type, options, restore_id)}
    if isinstance(step, PredicateSettings):
        return terms
    predicate = step.predicate and _step_terms(step.predicate, restore_id)
    return terms | {"predicate": predicate, "negate": step.negate}


def _shown(type_: str, options: Mapping[str, str], restore_id: str) -> dict[str, str]:
    """Options that are not public as digests, by which it can be told whether they are the same."""
    public = public_options(type_)
    return {name: value if name in public else _digested(value, restore_id) for name, value in options.items()}


def _digested(value: str, restore_id: str) -> str:
    # Whoever reads the bucket sees it: slow on purpose, and another in each restore, so that nobody guesses from it.
    content = value.encode(errors="backslashreplace")
    return f"scrypt:{hashlib.scrypt(content, salt=restore_id.encode(), n=2**14, r=8, p=1, dklen=16).hex()}"


def _key(key: bytes) -> str:
    """As text, bytes that are none as hex."""
    try:
        return key.decode()
    except UnicodeDecodeError:
        return f"hex:{key.hex()}"


def _utc(moment: datetime | None) -> str | None:
    return None if moment is None else moment.astimezone(timezone.utc).isoformat()


def _plain(offsets: Offsets) -> Any:
    return {str(p): o for p, o in sorted(offsets.items())} if isinstance(offsets, Mapping) else offsets


def _planned(segment: Segment) -> PlannedObject:
    facts = {name: getattr(segment, name) for name in PlannedObject.__dataclass_fields__ if name != "out_of_range"}
    return PlannedObject(**facts, out_of_range=segment.chunk_start is None)


_GAPS = {
    True: "were lost to retention before they were archived",
    False: "were archived by another sink, before this connector took over from it",
}
"""What is said of gaps, by whether they are lost."""


def _missing(request: RestoreRequest, snapshot: IndexSnapshot, selection: Selection) -> Iterator[str]:
    """What the archive lacks of the selection, as sentences."""
    state, topic = snapshot.state, request.topic
    chosen = [s for s in snapshot.segments if selection.overlaps(s)]
    for window in selection.windows:
        p, covered = window.kafka_partition, state.coverage(window.kafka_partition)
        mine = [s for s in chosen if s.kafka_partition == p]
        asked = span(window.start_offset, min(window.end_offset, covered.end_offset or 0))
        if selection.is_timed:
            asked &= _surroundings(state, p, mine)
        for is_lost, what in _GAPS.items():
            gaps = (g for g in state.gaps if g.kafka_partition == p and g.is_lost == is_lost)
            ranges = RangeSet(r for g in gaps for r in span(g.start_offset, g.end_offset))
            yield from (f"{topic}-{p}: offsets {r} {what}" for r in asked & ranges)
        yield from (f"{topic}-{p}: offsets {r} are not archived" for r in asked - covered)
    yield from _incomplete(request, state, selection)


def _check_schemas(request: RestoreRequest, snapshot: IndexSnapshot, chosen: Sequence[Segment]) -> None:
    outgoing = request.outgoing
    changes = outgoing.key or outgoing.value or not all(map(keeps_content, outgoing.transforms))
    if not (changes or outgoing.map_schema_ids):
        return
    named = {schema_id for segment in chosen for schema_id in segment.schema_ids}
    found = ambiguous_ids(snapshot.state.schemas, request.config.records)
    if both := sorted(named & found.keys()):
        where = "; ".join(
            f"{schema_id} is another schema in each of {' and '.join(found[schema_id])}" for schema_id in both
        )
        raise PreflightError(
            f"topic {request.topic}: records name ids that registries have given to different schemas: {where}. "
            f"Nothing tells which of them a record means. Restore without mapping schema ids, without converters and "
            f"transforms of keys or values: their bytes stay as they are; or a window without these records"
        )


def _missing_schemas(request: RestoreRequest, snapshot: IndexSnapshot, selection: Selection) -> Iterator[str]:
    """Of schemas that the chosen segments name, those whose text is not known."""
    if not request.outgoing.map_schema_ids:
        return
    named = {i for s in snapshot.segments if selection.overlaps(s) for i in s.schema_ids}
    if missing := sorted(named - {s.schema_id for s in snapshot.state.schemas}):
        yield (
            f"{request.topic}: schemas {missing} were not archived (their registry did not answer, or does not know "
            f"them): records that name them are bad ones, behavior.on.error decides"
        )


def _surroundings(state: IndexState, kafka_partition: int, segments: Iterable[Segment]) -> RangeSet:
    """The offsets of the chosen segments, and gaps that touch them: what a window of time may have lost."""
    chosen = list(segments)
    if not chosen:
        return RangeSet()
    inside = span(min(s.start_offset for s in chosen), max(s.end_offset for s in chosen))
    gaps = [g for g in state.gaps if g.kafka_partition == kafka_partition]
    touching = [
        span(g.start_offset, g.end_offset)
        for g in gaps
        if any(r.start_offset <= g.end_offset and g.start_offset <= r.end_offset for r in inside)
    ]
    for more in touching:
        inside |= more
    return inside


def _incomplete(request: RestoreRequest, state: IndexState, selection: Selection) -> Iterator[str]:
    """Hours of a window of time whose archive may still grow."""
    hours = list(_hours(request)) if selection.is_timed else []
    lateness = timedelta(milliseconds=request.config.archive.allowed_lateness_ms)
    missing = sorted(set(hours) - state.complete_hours(hours, lateness))
    if missing:
        named = ", ".join(_stretches(missing)[:MAX_STRETCHES])
        yield (
            f"{request.topic}: {len(missing)} of {len(hours)} hours are not complete in the archive ({named}): what is "
            f"not archived yet may hold more of their records, until the archive goes far enough (kafka-s3 archive "
            f"{request.config.name} --until-now)"
        )


def _stretches(hours: Sequence[datetime]) -> list[str]:
    """Hours that follow each other as one."""
    runs = [[h for _, h in run] for _, run in groupby(enumerate(hours), lambda place: place[1] - place[0] * HOUR)]
    ends = [(f"{run[0]:%Y-%m-%dT%H:%M%z}", f"{run[-1]:%Y-%m-%dT%H:%M%z}") for run in runs]
    return [first if first == last else f"{first} to {last}" for first, last in ends]


def _hours(request: RestoreRequest) -> Iterator[datetime]:
    """Starts of the hours of the connector's timezone that the windows touch, from the archive's start up to now."""
    found = (h for window in request.windows or [(None, None)] for h in _hours_of(request, *window))
    yield from sorted(set(found))


def _hours_of(
    request: RestoreRequest, window_start: datetime | None, window_end: datetime | None
) -> Iterator[datetime]:
    now, archive_start = datetime.now(timezone.utc), request.config.archive.start_hour
    zone = ZoneInfo(request.config.layout.timezone)
    start = max(t for t in (request.from_time, window_start, archive_start) if t is not None)
    end = min(t for t in (request.to_time, window_end, now) if t is not None)
    first = start.astimezone(zone).replace(minute=0, second=0, microsecond=0).astimezone(timezone.utc)
    yield from takewhile(lambda hour: hour < end, (first + n * HOUR for n in count()))
