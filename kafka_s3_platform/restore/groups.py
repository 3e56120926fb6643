"""Consumer groups at a restored topic: their archived offsets translated, and committed there as a step of its own."""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from enum import Enum
from itertools import groupby
from typing import Any

import numpy as np

from kafka_s3_platform.config.settings import ConnectorConfig, KafkaSettings
from kafka_s3_platform.errors import (
    ConfigError,
    IntegrityError,
    PermanentError,
    PreflightError,
    TopicRecreatedError,
)
from kafka_s3_platform.kafka.admin import ClusterAdmin
from kafka_s3_platform.kafka.groups import (
    Committed,
    committed_in,
    delete_offsets,
    group_state,
    publish_offsets,
    refuse_active,
)
from kafka_s3_platform.kafka.readers import new_reader
from kafka_s3_platform.model.frontier import Frontier
from kafka_s3_platform.model.offsets import OffsetRange, RangeSet
from kafka_s3_platform.model.segment import CommittedOffset, Segment, overlap_clusters
from kafka_s3_platform.model.state import IndexState
from kafka_s3_platform.restore.documents import table
from kafka_s3_platform.restore.mapping import MAPPING_SCHEMA, Runs
from kafka_s3_platform.restore.plan import RestorePlan
from kafka_s3_platform.restore.request import RestoreReport
from kafka_s3_platform.store.errors import NotFoundError
from kafka_s3_platform.store.index import IndexSnapshot, TopicIndex
from kafka_s3_platform.store.objects import ObjectStore

NO_RUNS: Runs = np.empty((3, 0), np.int64)


class Precision(str, Enum):
    """How good a translated offset is.

    `EXACT`: from there on the group reads each record that it had not read, as far as the source is archived, once and
    in order, and no other writer's record among them. `APPROXIMATE`: some of them are missing or doubled, others lie
    among them, or nobody can tell. `NONE`: there is no such place.
    """

    EXACT = "exact"
    APPROXIMATE = "approximate"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class TranslatedOffset:
    """The next offset of a group in one kafka partition, at the source and at the target (None if `NONE`)."""

    group_id: str
    kafka_partition: int
    source_offset: int
    target_offset: int | None
    precision: Precision
    reason: str
    metadata: str = ""


@dataclass(frozen=True)
class Translation:
    """The archived offsets of groups, translated to the target topic of a finished restore."""

    restore_id: str
    topic: str
    to_topic: str
    to_topic_id: str
    offsets: tuple[TranslatedOffset, ...]

    @property
    def groups(self) -> dict[str, tuple[TranslatedOffset, ...]]:
        found = groupby(sorted(self.offsets, key=lambda o: (o.group_id, o.kafka_partition)), lambda o: o.group_id)
        return {group: tuple(offsets) for group, offsets in found}


Doubt = tuple[int, str]
"""An offset before which something is not as it was, and what."""

NO_DOUBT: Doubt = (0, "")


@dataclass(frozen=True)
class Restored:
    """What came of one kafka partition.

    `runs` is its offset mapping; the archive ends before `archived_end`. From the source offset of `missing` on every
    archived record is in the target, once, and from the target offset of `mixed` on there is nothing else up to the
    last of them, and none of them again behind it.
    """

    runs: Runs
    archived_end: int
    missing: Doubt = NO_DOUBT
    mixed: Doubt = NO_DOUBT

    @property
    def target_end(self) -> int:
        """The target offset after the last restored record, 0 where there is none."""
        return int(self.runs[1, -1] + self.runs[2, -1]) if self.runs.size else 0


def plan_and_report(config: ConnectorConfig, restore_id: str) -> tuple[RestorePlan, RestoreReport] | None:
    """The documents of a finished restore, None where the connector's bucket has no restore of that id.

    Raises:
        PermanentError: the restore is not finished, or is of objects that others wrote.
    """
    store, prefix = ObjectStore(config.restore_store), f"{config.archive.restore_dir}/{restore_id}"
    try:
        plan = RestorePlan.from_json(store.get(f"{prefix}.json"), f"{prefix}.json")
    except NotFoundError:
        return None
    except PreflightError as err:
        raise ConfigError(
            f"restore {restore_id} has no offsets of consumer groups to translate: {err}. Groups are archived with a "
            f"topic of ours, in its index; objects that others wrote tell of none"
        ) from err
    if plan.terms.get("connector") != config.name:
        return None
    try:
        return plan, RestoreReport.from_json(store.get(f"{prefix}.report.json"), f"{prefix}.report.json")
    except NotFoundError as err:
        raise PermanentError(
            f"restore {restore_id} is not finished, there is no {prefix}.report.json: offsets can be translated when "
            f"it is verified. Run it again under the same id"
        ) from err


def translated(
    config: ConnectorConfig, plan: RestorePlan, report: RestoreReport, admin: ClusterAdmin, groups: Collection[str] = ()
) -> Translation:
    """The offsets of the archived groups, or of those named, at the restore's target. `admin` is of its cluster.

    Raises:
        PermanentError: the archive holds no offsets of such a group.
        TopicRecreatedError: the target is another topic than the one that was restored to.
    """
    snapshot = TopicIndex(config.store, config.archive.index_dir, config.name, report.topic).open()
    rows = _rows(snapshot.state.groups, groups, report.topic)
    target = admin.describe_topic(report.to_topic)
    _check_target(report.to_topic, target.topic_id, plan.start.topic_id)
    wanted = {r.kafka_partition for r in rows}
    logs = admin.frontiers(report.to_topic, wanted & set(target.kafka_partitions))
    store = ObjectStore(config.restore_store)
    keys = {p.kafka_partition: p.mapping_key for p in report.kafka_partitions}
    restored = {p: _restored(p, snapshot, load_runs(store, keys.get(p))) for p in wanted}
    moved = _moved(plan)
    if not moved:
        for p, log in logs.items():
            lowest = min(r.committed_offset for r in rows if r.kafka_partition == p)
            places = _other_places(restored[p], lowest, log, _doubled_end(report, p, log))
            mixed = _mixed(admin.settings, report.to_topic, restored[p].target_end, places, log)
            restored[p] = replace(restored[p], mixed=mixed)
    offsets = translate(rows, restored, logs, moved)
    return Translation(plan.restore_id, report.topic, report.to_topic, target.topic_id, tuple(offsets))


def _rows(rows: Sequence[CommittedOffset], groups: Collection[str], topic: str) -> list[CommittedOffset]:
    known = {r.group_id for r in rows}
    if not known or not known.issuperset(groups):
        named = ", ".join(sorted(set(groups) - known)) or "any consumer group"
        raise PermanentError(
            f"the archive of topic {topic} holds no offsets of {named}; there are those of "
            f"{', '.join(sorted(known)) or 'none'}. archive.consumer.groups names the groups whose offsets are archived"
        )
    return [r for r in rows if not groups or r.group_id in groups]


def _check_target(topic: str, found: str, wanted: str) -> None:
    if found != wanted:
        raise TopicRecreatedError(
            f"topic {topic} has id {found}, the one that was restored to had {wanted}: it was deleted and created "
            f"again, or this is another cluster. Offsets of the one mean nothing in the other"
        )


def _moved(plan: RestorePlan) -> str:
    """Why no offset of the source says anything of the target, empty where it does."""
    partitioning = (plan.terms.get("outgoing") or {}).get("partitioning", "source")
    if partitioning == "source":
        return ""
    return (
        f"records went to other kafka partitions, by {partitioning}: one offset of the source has no one place in the "
        f"target"
    )


def load_runs(store: ObjectStore, key: str | None) -> Runs:
    """An offset mapping that `MappingWriter` wrote; no key, no runs."""
    if key is None:
        return NO_RUNS
    found = table(store.get(key), MAPPING_SCHEMA, key)
    return np.stack([column.to_numpy() for column in found.columns])


def _restored(kafka_partition: int, snapshot: IndexSnapshot, runs: Runs) -> Restored:
    """Whether all was restored is told from offsets, whatever windows, filters and mappers there were."""
    state = snapshot.state
    end = state.coverage(kafka_partition).end_offset or 0
    segments = [s for s in snapshot.segments if s.kafka_partition == kafka_partition]
    doubts = [_not_archived(state, kafka_partition, end), doubled(runs), absent(each_once(runs), segments)]
    return Restored(runs, end, max(doubts))


def _not_archived(state: IndexState, kafka_partition: int, end: int) -> Doubt:
    gaps = [g.offsets for g in state.gaps if g.kafka_partition == kafka_partition]
    held = (state.coverage(kafka_partition) - RangeSet(gaps)).ranges
    whole_from = held[-1].start_offset if held and held[-1].end_offset == end else end
    left_out = [
        scan.end_offset
        for scan in state.scans
        if scan.kafka_partition == kafka_partition and scan.filtered_count + scan.dead_letter_count
    ]
    filtered_from = max(left_out, default=0)
    return max(
        (whole_from, f"the archive does without records before offset {whole_from}, or begins there"),
        (filtered_from, f"before offset {filtered_from} records were left out when they were archived"),
    )


def doubled(runs: Runs) -> Doubt:
    """Up to where a source offset is in the target more than once."""
    sources, _, counts = runs
    ends = sources + counts
    twice = np.flatnonzero(sources[1:] < ends[:-1])
    if not twice.size:
        return NO_DOUBT
    end = int(ends[twice[-1]])
    return end, f"the record of offset {end - 1} is in the target more than once"


def each_once(runs: Runs) -> Runs:
    """Without what repeats the record before it, as a transform that makes several of one does."""
    sources, targets, counts = runs
    again = np.zeros(sources.size, np.int64)
    again[1:] = sources[1:] < (sources + counts)[:-1]
    once = np.stack([sources + again, targets + again, counts - again])
    return once[:, once[2] > 0]


def absent(runs: Runs, segments: Iterable[Segment]) -> Doubt:
    """From where on no archived record is absent from `runs`, which hold each source offset once.

    Nothing is restored that is not archived: so of an object, as many as it holds are the same.
    """
    found = NO_DOUBT
    for cluster in overlap_clusters(segments):
        start, end = cluster[0].start_offset, max(s.end_offset for s in cluster)
        archived, count = sum(s.record_count for s in cluster), restored_count(runs, start, end)
        if count == archived:
            continue
        # Without holes in the object each offset is a record's. Else which are is not looked up.
        last = _last_absent(runs, end) if archived == end - start else end
        found = (
            last,
            (f"of the {archived:,} records that are archived in offsets [{start}, {end}) {count:,} are in the target"),
        )
    return found


def _last_absent(runs: Runs, end: int) -> int:
    """The end of the last hole that runs leave below `end`."""
    sources, _, counts = runs
    ends = sources + counts
    after = int(np.searchsorted(sources, end))
    if not after or ends[after - 1] < end:
        return end
    holes = np.flatnonzero(sources[1:after] > ends[: after - 1])
    return int(sources[holes[-1] + 1]) if holes.size else int(sources[0])


def _doubled_end(report: RestoreReport, kafka_partition: int, log: Frontier) -> int:
    """Below which target offset records of the restore may lie once more, 0 where none do.

    Reports of earlier versions count them with those of others, and do not say up to where.
    """
    if report.targets:
        ends = (t.end_offset for t in report.targets if t.kafka_partition == kafka_partition and t.doubled_count)
        return next(ends, 0)
    extra = (p.foreign_count for p in report.kafka_partitions if p.kafka_partition == kafka_partition)
    return log.last_stable_offset if any(extra) else 0


def _mixed(kafka: KafkaSettings, topic: str, end: int, places: Sequence[OffsetRange], log: Frontier) -> Doubt:
    """From which target offset on nothing but restored records lies before `end`, and none of them lies again behind.

    Ends of transactions take offsets too: so `places` are read, the last first, to the first record that is found.
    """
    if min(log.high_watermark, log.last_stable_offset) < end:
        return end, f"the target shows what it holds up to offset {log.last_stable_offset}, restored was up to {end}"
    if not places:
        return NO_DOUBT
    with new_reader(kafka, topic) as reader:
        for offsets in reversed(places):
            for batch in reader.read(log.kafka_partition, offsets):
                found = int(batch.column("offset")[-1].as_py())
                where = "lie among them" if found < end else "lie behind them"
                what = f"records of others, or some of its own again, {where}"
                return found + 1, f"{what}, the last of them at or after target offset {found}"
    return NO_DOUBT


def _other_places(restored: Restored, lowest: int, log: Frontier, doubled_end: int) -> list[OffsetRange]:
    """Target offsets behind the place of the first record from source offset `lowest` on that hold no restored one.

    Those between restored records, and those behind the last up to `doubled_end`.
    """
    sources, targets, counts = restored.runs
    ends = targets + counts
    first = int(np.searchsorted(sources + counts, max(lowest, restored.missing[0]), side="right"))
    holes = np.flatnonzero(targets[1:] > ends[:-1])
    bounds = [(int(ends[n]), int(targets[n + 1])) for n in holes[holes >= first]]
    bounds.append((restored.target_end, min(doubled_end, log.last_stable_offset)))
    held = ((max(start, log.log_start_offset), end) for start, end in bounds)
    return [OffsetRange(start, end) for start, end in held if start < end]


def restored_count(runs: Runs, start_offset: int, end_offset: int) -> int:
    """How many records of `[start_offset, end_offset)` of the source are in the target."""
    sources, _, counts = runs
    if not sources.size:
        return 0
    before = np.cumsum(counts) - counts
    bounds = np.array([start_offset, end_offset])
    at = np.maximum(np.searchsorted(sources, bounds, side="right") - 1, 0)
    below = before[at] + np.clip(bounds - sources[at], 0, counts[at])
    return int(below[1] - below[0])


def translate(
    rows: Iterable[CommittedOffset], restored: Mapping[int, Restored], logs: Mapping[int, Frontier], moved: str = ""
) -> Iterator[TranslatedOffset]:
    """Each row's offset at the target, whose kafka partitions are `logs`. `moved` says why that cannot be."""
    for row in rows:
        log, here = logs.get(row.kafka_partition), restored.get(row.kafka_partition)
        if moved or log is None or here is None:
            place = _nowhere(moved or "the target has no kafka partition of this number")
        else:
            place = _there(_place(row.committed_offset, here, log), log)
        offset, precision, reason = place
        yield TranslatedOffset(
            row.group_id, row.kafka_partition, row.committed_offset, offset, precision, reason, row.metadata
        )


Place = tuple[int | None, Precision, str]


def _nowhere(reason: str) -> Place:
    return None, Precision.NONE, reason


def _place(committed: int, restored: Restored, log: Frontier) -> Place:
    sources, targets, counts = restored.runs
    if not sources.size:
        return _idle(committed, restored, log)
    at = int(np.searchsorted(sources + counts, committed, side="right"))
    place = restored.target_end if at == sources.size else int(targets[at] + max(0, committed - sources[at]))
    if doubt := _doubt(committed, place, restored):
        return place, Precision.APPROXIMATE, doubt
    return place, Precision.EXACT, _all_of(committed, restored)


def _doubt(committed: int, place: int, restored: Restored) -> str:
    """Why the place is not exact, empty where it is."""
    if committed > restored.archived_end:
        return f"the committed offset is after what is archived, which ends at offset {restored.archived_end}"
    if committed < restored.missing[0]:
        return restored.missing[1]
    return restored.mixed[1] if place < restored.mixed[0] else ""


def _all_of(committed: int, restored: Restored) -> str:
    if committed == restored.archived_end:
        return f"the group had read all that is archived, which ends at offset {committed}"
    return (
        f"all that is archived in offsets [{committed}, {restored.archived_end}) is in the target, once and by itself"
    )


def _idle(committed: int, restored: Restored, log: Frontier) -> Place:
    """Nothing of the kafka partition was restored."""
    if doubt := _doubt(committed, log.high_watermark, restored):
        return _nowhere(f"nothing was restored of this kafka partition: {doubt}")
    if log.log_start_offset < log.high_watermark:
        return _nowhere("nothing is archived that the group had not read, and the target holds records of others")
    reason = "nothing is archived that the group had not read, and the target is empty"
    return log.high_watermark, Precision.EXACT, reason


def _there(place: Place, log: Frontier) -> Place:
    offset = place[0]
    if offset is not None and not log.log_start_offset <= offset <= log.high_watermark:
        held = f"[{log.log_start_offset}, {log.high_watermark})"
        return _nowhere(f"it would be target offset {offset}, and the target holds {held} only")
    return place


@dataclass(frozen=True)
class GroupBefore:
    """What a group had committed of the target before offsets were set: by kafka partition, None for nothing."""

    existed: bool
    offsets: Mapping[int, Committed | None]


@dataclass(frozen=True)
class Rollback:
    """What undoes an `apply`."""

    restore_id: str
    topic: str
    topic_id: str
    written_at: str
    groups: Mapping[str, GroupBefore]

    def to_json(self) -> bytes:
        return json.dumps(asdict(self), indent=1).encode()

    @staticmethod
    def from_json(content: bytes) -> "Rollback":
        """What `to_json` wrote. PermanentError if it is something else."""
        try:
            document: dict[str, Any] = json.loads(content)
            groups = {g: _before(b) for g, b in document.pop("groups").items()}
            return Rollback(**document, groups=groups)
        except (ValueError, TypeError, KeyError, AttributeError) as err:
            raise PermanentError(f"this is no rollback file of kafka-s3 groups: {err!r}") from err


def _before(document: Mapping[str, Any]) -> GroupBefore:
    offsets = {int(p): c and Committed(**c) for p, c in document["offsets"].items()}
    return GroupBefore(document["existed"], offsets)


def check_applicable(admin: ClusterAdmin, translation: Translation, *, allow_approximate: bool) -> None:
    """Refuse what may not be committed.

    Raises:
        BusyError: a group has members.
        PreflightError: an offset is approximate or has no place, and that was not allowed.
    """
    for group in translation.groups:
        refuse_active(admin, group, f"setting offsets of topic {translation.to_topic}")
    doubtful = [o for o in translation.offsets if o.precision is not Precision.EXACT]
    if doubtful and not allow_approximate:
        listed = "".join(f"\n{o.group_id}, kafka partition {o.kafka_partition}: {o.reason}" for o in doubtful)
        raise PreflightError(
            f"{len(doubtful)} of {len(translation.offsets)} offsets of restore {translation.restore_id} are not exact; "
            f"nothing was committed. Leave their groups out with --group, or allow it: --allow-approximate commits "
            f"approximate offsets, and leaves out those that have no place:{listed}"
        )


def apply(
    admin: ClusterAdmin, translation: Translation, save: Callable[[bytes], object], *, allow_approximate: bool = False
) -> Rollback:
    """Commit the translated offsets at the target, after `save` has kept the rollback; read them back and compare.

    Raises:
        BusyError, PreflightError: as `check_applicable`, before anything is changed.
        TopicRecreatedError: the target was deleted and created again.
        IntegrityError: what was committed is not what is read back.
    """
    check_applicable(admin, translation, allow_approximate=allow_approximate)
    topic = translation.to_topic
    _check_target(topic, admin.describe_topic(topic).topic_id, translation.to_topic_id)
    wanted = {
        group: {
            o.kafka_partition: Committed(o.target_offset, o.metadata) for o in offsets if o.target_offset is not None
        }
        for group, offsets in translation.groups.items()
    }
    rollback = Rollback(
        restore_id=translation.restore_id,
        topic=topic,
        topic_id=translation.to_topic_id,
        written_at=datetime.now(timezone.utc).isoformat(),
        groups={g: _committed_before(admin, g, topic, offsets) for g, offsets in wanted.items() if offsets},
    )
    save(rollback.to_json())
    for group, offsets in wanted.items():
        _commit(admin, group, topic, offsets)
    return rollback


def roll_back(admin: ClusterAdmin, rollback: Rollback) -> list[str]:
    """Set back what `apply` changed; what was done, as sentences.

    Where a group had nothing committed, its offset is taken back; Kafka itself removes a group that has none left. No
    other topic's offset is touched. What could not be taken back stays, and that is said.
    """
    topic = rollback.topic
    _check_target(topic, admin.describe_topic(topic).topic_id, rollback.topic_id)
    for group in rollback.groups:
        refuse_active(admin, group, f"setting back offsets of topic {topic}")
    return [line for group, before in rollback.groups.items() for line in _undone(admin, group, topic, before)]


def _undone(admin: ClusterAdmin, group: str, topic: str, before: GroupBefore) -> Iterator[str]:
    offsets = {p: c for p, c in before.offsets.items() if c is not None}
    _commit(admin, group, topic, offsets)
    yield from (f"{group}, kafka partition {p}: back at offset {c.offset}" for p, c in sorted(offsets.items()))
    if none := sorted(set(before.offsets) - set(offsets)):
        yield _taken_back(admin, group, topic, none)


def _taken_back(admin: ClusterAdmin, group: str, topic: str, kafka_partitions: Sequence[int]) -> str:
    numbers = ",".join(map(str, kafka_partitions))
    before = f"{group}: had committed nothing of kafka partitions {numbers} before"
    try:
        delete_offsets(admin, group, topic, kafka_partitions)
    except PermanentError as err:
        return (
            f"{before}; their offsets stay ({err}). Remove them with kafka-consumer-groups.sh --bootstrap-server "
            f"HOST:PORT --delete-offsets --group {group} --topic {topic}:{numbers}"
        )
    return f"{before}; their offsets are removed"


def _committed_before(admin: ClusterAdmin, group: str, topic: str, kafka_partitions: Collection[int]) -> GroupBefore:
    found = committed_in(admin, group, topic, kafka_partitions)
    existed = group_state(admin, group).state != "DEAD" or bool(found)
    return GroupBefore(existed, {p: found.get(p) for p in sorted(kafka_partitions)})


def _commit(admin: ClusterAdmin, group: str, topic: str, offsets: Mapping[int, Committed]) -> None:
    if not offsets:
        return
    publish_offsets(
        admin,
        group,
        topic,
        {p: c.offset for p, c in offsets.items()},
        {p: c.metadata for p, c in offsets.items()},
    )
    found = committed_in(admin, group, topic, offsets)
    wrong = {p: c.offset for p, c in offsets.items() if p not in found or found[p].offset != c.offset}
    if wrong:
        named = ", ".join(f"{p}: {found[p].offset if p in found else 'none'} instead of {o}" for p, o in wrong.items())
        raise IntegrityError(
            f"offsets of consumer group {group} at topic {topic} were committed and read back otherwise ({named}): "
            f"somebody else commits in its name. Stop that, and apply again; the rollback file has what was before"
        )
