"""Translates archived offsets of consumer groups to the target of a finished restore, with its mapping of offsets.

For each group it finds the place in the target to continue at, and its precision.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import groupby

import numpy as np

from kafka_s3_platform.core.config.folder import FOLDER_VARIABLE
from kafka_s3_platform.core.config.settings import ConnectorConfig, KafkaSettings
from kafka_s3_platform.core.errors import ConfigError, PermanentError, PreflightError, TopicRecreatedError
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.kafka.answers import Answers
from kafka_s3_platform.core.kafka.new_reader import new_reader
from kafka_s3_platform.core.model.frontier import Frontier
from kafka_s3_platform.core.model.offsets import OffsetRange, RangeSet
from kafka_s3_platform.core.model.segment import CommittedOffset, Segment, cluster_overlaps
from kafka_s3_platform.core.model.state import IndexState
from kafka_s3_platform.core.restore.documents import RestoreDocuments, parse_table
from kafka_s3_platform.core.restore.request import RestoreReport
from kafka_s3_platform.core.restore.source.archive_plan import ArchivePlan
from kafka_s3_platform.core.restore.source.base import BegunElsewhereError
from kafka_s3_platform.core.restore.source.topics_plan import TopicsPlan
from kafka_s3_platform.core.restore.verify.read_back import MAPPING_SCHEMA, Runs
from kafka_s3_platform.core.store.errors import NotFoundError
from kafka_s3_platform.core.store.index import ConnectorIndex, IndexSnapshot
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform.core.store.row_filter import EVERY_SEGMENT

Doubt = tuple[int, str]
"""An offset, and the reason why the records before it are not the same as in the source."""


NO_DOUBT: Doubt = (0, "")


TOPICS_AT_ONCE = 8

NO_RUNS: Runs = np.empty((3, 0), np.int64)


@dataclass(frozen=True)
class Restored:
    """The result of a restore in one kafka partition.

    `runs` is the restore's offset mapping. The archive ends before `archived_end`. From the source offset of `missing`
    on, every archived record is in the target once. From the target offset of `mixed` on, the target holds nothing but
    restored records up to the last one, and no copy of them after it.
    """

    runs: Runs
    archived_end: int
    missing: Doubt = NO_DOUBT
    mixed: Doubt = NO_DOUBT

    @property
    def target_end(self) -> int:
        """The target offset after the last restored record, or 0 if there is none."""
        if self.runs.size:
            return int(self.runs[1, -1] + self.runs[2, -1])
        return 0


class Precision(StrEnum):
    """The precision of a translated offset.

    `EXACT`: from this offset on, the group reads each archived record it had not read, once and in order, and no other
    writer's record among them. `APPROXIMATE`: records are missing or doubled, other writers' records lie among them, or
    this is unknown. `NONE`: there is no such offset.
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
        """The translated offsets of each group, by its name."""
        in_order = sorted(self.offsets, key=lambda o: (o.group_id, o.kafka_partition))
        return {group: tuple(offsets) for group, offsets in groupby(in_order, lambda o: o.group_id)}


TranslatedPlace = tuple[int | None, Precision, str]


def translate_offsets(
    rows: Iterable[CommittedOffset], restored: Mapping[int, Restored], logs: Mapping[int, Frontier], moved: str = ""
) -> Iterator[TranslatedOffset]:
    """Translate each row's offset to the target, whose kafka partitions are `logs`.

    `moved` is the reason if none can be translated.
    """
    for row in rows:
        log = logs.get(row.kafka_partition)
        here = restored.get(row.kafka_partition)
        if moved or log is None or here is None:
            place = _refuse_place(moved or "the target has no kafka partition of this number")
        else:
            place = _check_place(_find_place(row.committed_offset, here, log), log)
        offset, precision, reason = place
        yield TranslatedOffset(
            row.group_id, row.kafka_partition, row.committed_offset, offset, precision, reason, row.metadata
        )


def _refuse_place(reason: str) -> TranslatedPlace:
    return None, Precision.NONE, reason


def _find_place(committed: int, restored: Restored, log: Frontier) -> TranslatedPlace:
    """Find the target offset from which the group has to go on, and its precision.

    `restored.runs` are three rows of numbers: source offset, target offset and length of each run of restored records.
    """
    sources, targets, counts = restored.runs
    if not sources.size:
        return _find_idle_place(committed, restored, log)
    # The first run that ends after the committed offset. The group goes on inside it, or at its beginning.
    at = int(np.searchsorted(sources + counts, committed, side="right"))
    place = restored.target_end if at == sources.size else int(targets[at] + max(0, committed - sources[at]))
    if doubt := _find_doubt(committed, place, restored):
        return place, Precision.APPROXIMATE, doubt
    return place, Precision.EXACT, _describe_all(committed, restored)


def _find_doubt(committed: int, place: int, restored: Restored) -> str:
    """Explain why the place is not exact. Return an empty text if it is."""
    if committed > restored.archived_end:
        return f"the committed offset is after what is archived, which ends at offset {restored.archived_end}"
    if committed < restored.missing[0]:
        return restored.missing[1]
    return restored.mixed[1] if place < restored.mixed[0] else ""


def _describe_all(committed: int, restored: Restored) -> str:
    """Return the reason why a place is exact, for people to read."""
    if committed == restored.archived_end:
        return f"the group had read all that is archived, which ends at offset {committed}"
    return (
        f"all that is archived in offsets [{committed}, {restored.archived_end}) is in the target, once and by itself"
    )


def _find_idle_place(committed: int, restored: Restored, log: Frontier) -> TranslatedPlace:
    """Find the place in a kafka partition without restored records."""
    if doubt := _find_doubt(committed, log.high_watermark, restored):
        return _refuse_place(f"nothing was restored of this kafka partition: {doubt}")
    if log.log_start_offset < log.high_watermark:
        return _refuse_place("nothing is archived that the group had not read, and the target holds records of others")
    reason = "nothing is archived that the group had not read, and the target is empty"
    return log.high_watermark, Precision.EXACT, reason


def _check_place(place: TranslatedPlace, log: Frontier) -> TranslatedPlace:
    """Return the place, or a refusal if the target no longer holds its offset."""
    offset = place[0]
    if offset is not None and not log.log_start_offset <= offset <= log.high_watermark:
        extent = f"[{log.log_start_offset}, {log.high_watermark})"
        return _refuse_place(f"it would be target offset {offset}, and the target holds {extent} only")
    return place


def read_runs(store: ObjectStore, key: str | None) -> Runs:
    """Read the offset mapping of a restore: source offset, target offset and length of runs. It is empty for no key."""
    if key is None:
        return NO_RUNS
    table = parse_table(store.get(key), MAPPING_SCHEMA, key)
    return np.stack([column.to_numpy() for column in table.columns])


def find_doubled(runs: Runs) -> Doubt:
    """Return the end of the source offsets with more than one record in the target."""
    sources, _, counts = runs
    ends = sources + counts
    twice = np.flatnonzero(sources[1:] < ends[:-1])
    if not twice.size:
        return NO_DOUBT
    end = int(ends[twice[-1]])
    return end, f"the record of offset {end - 1} is in the target more than once"


def drop_repeats(runs: Runs) -> Runs:
    """Drop repeats of the record before, because a transform may make several records from one."""
    sources, targets, counts = runs
    repeats = np.zeros(sources.size, np.int64)
    repeats[1:] = sources[1:] < (sources + counts)[:-1]
    once = np.stack([sources + repeats, targets + repeats, counts - repeats])
    return once[:, once[2] > 0]


def find_absent(runs: Runs, segments: Iterable[Segment]) -> Doubt:
    """Return the end of the archived offsets that are absent from `runs`, which must not have an offset twice.

    Only archived records are restored. So if as many were restored as an object has, they are the same records.
    """
    doubt = NO_DOUBT
    for cluster in cluster_overlaps(segments):
        start = cluster[0].start_offset
        end = max(s.end_offset for s in cluster)
        archived = sum(s.record_count for s in cluster)
        count = count_restored(runs, start, end)
        if count == archived:
            continue
        # If an object has no holes, each of its offsets is a record. Otherwise the object would have to be read.
        last = _find_last_absent(runs, end) if archived == end - start else end
        doubt = (
            last,
            (f"of the {archived:,} records that are archived in offsets [{start}, {end}) {count:,} are in the target"),
        )
    return doubt


def _find_last_absent(runs: Runs, end: int) -> int:
    """Find the end of the last hole in the runs below `end`."""
    sources, _, counts = runs
    ends = sources + counts
    run_count = int(np.searchsorted(sources, end))
    if not run_count or ends[run_count - 1] < end:
        return end
    holes = np.flatnonzero(sources[1:run_count] > ends[: run_count - 1])
    if holes.size:
        return int(sources[holes[-1] + 1])
    return int(sources[0])


def count_restored(runs: Runs, start_offset: int, end_offset: int) -> int:
    """Count the target's records of the source offsets `[start_offset, end_offset)`."""
    sources, _, counts = runs
    if not sources.size:
        return 0
    counts_before = np.cumsum(counts) - counts
    bounds = np.array([start_offset, end_offset])
    at = np.maximum(np.searchsorted(sources, bounds, side="right") - 1, 0)
    below = counts_before[at] + np.clip(bounds - sources[at], 0, counts[at])
    return int(below[1] - below[0])


def read_finished_restore(config: ConnectorConfig, restore_id: str) -> tuple[TopicsPlan, RestoreReport] | None:
    """Read the documents of a finished restore. Return None if the connector's bucket has no restore with this id.

    Raises PermanentError if it is not finished, or if it restored another sink's objects.
    """
    store = ObjectStore(config.restore_store)
    documents = RestoreDocuments(config.archive.restore_dir, restore_id)
    try:
        plan = TopicsPlan.from_json(store.get(documents.plan), documents.plan)
    except (NotFoundError, BegunElsewhereError):
        return None
    except PreflightError as err:
        raise ConfigError(
            f"restore {restore_id} has no offsets of consumer groups to translate: {err}. Groups are archived with a "
            f"topic of ours, in its index; objects that others wrote tell of none"
        ) from err
    if plan.facts.connector != config.name:
        return None
    try:
        return plan, RestoreReport.from_json(store.get(documents.report), documents.report)
    except NotFoundError as err:
        raise PermanentError(
            f"restore {restore_id} is not finished, there is no {documents.report}: offsets can be translated when "
            f"it is verified. Run it again under the same id"
        ) from err


def translate_groups(
    config: ConnectorConfig,
    plan: TopicsPlan,
    report: RestoreReport,
    admin: ClusterAdmin,
    groups: Collection[str] = (),
    connectors: Sequence[ConnectorConfig] = (),
) -> list[Translation]:
    """Translate the offsets of the archived groups, or only of `groups`, to each target. `admin` is for its cluster.

    The restore was started with `config`, and may have topics of other `connectors`.

    Raises:
        ConfigError: the file of a connector of the restore is missing.
        PermanentError: no archive of the topics holds offsets of such a group.
        TopicRecreatedError: a target is not the topic the restore wrote to.
    """
    reports = {part.topic: part for part in report.parts or (report,)}
    indexes = {c.name: ConnectorIndex.of(c) for c in (*connectors, config)}
    if gone := sorted({topic_plan.facts.connector for topic_plan in plan.topics} - indexes.keys()):
        raise ConfigError(
            f"restore {plan.restore_id} has topics of connector {' and '.join(gone)}, which has no file here: its "
            f"index holds the groups' offsets. Put the file back, or name the folder that has it in {FOLDER_VARIABLE}"
        )
    snapshots: dict[str, IndexSnapshot] = {}
    for connector in dict.fromkeys(topic_plan.facts.connector for topic_plan in plan.topics):
        index = indexes[connector].open()
        topics = [topic_plan.source.topic for topic_plan in plan.topics if topic_plan.facts.connector == connector]
        # Loaded together, because otherwise the rows of each topic cost a request.
        index.load_states(topics)
        index.load_segments(topics, EVERY_SEGMENT)
        snapshots |= {topic: index.topic(topic) for topic in topics}
    archived = set[str]()
    for snapshot in snapshots.values():
        archived.update(row.group_id for row in snapshot.state.groups)
    if not archived or not archived.issuperset(groups):
        named = ", ".join(sorted(set(groups) - archived)) or "any consumer group"
        raise PermanentError(
            f"the archive of topic {report.topic} holds no offsets of {named}; there are those of "
            f"{', '.join(sorted(archived)) or 'none'}. archive.consumer.groups names the groups to be archived"
        )
    store = ObjectStore(config.restore_store)
    rows: dict[str, list[CommittedOffset]] = {}
    for topic, snapshot in snapshots.items():
        rows[topic] = [row for row in snapshot.state.groups if not groups or row.group_id in groups]
    topic_plans = [topic_plan for topic_plan in plan.begun_topics if rows[topic_plan.source.topic]]
    targets = admin.find_topics(topic_plan.to_topic for topic_plan in topic_plans).all_or_raise()
    for topic_plan in topic_plans:
        check_topic_id(topic_plan.to_topic, targets[topic_plan.to_topic].topic_id, topic_plan.start.topic_id)
    logs = admin.frontiers_of({topic: target.kafka_partitions for topic, target in targets.items()}).all_or_raise()

    def translate(topic_plan: ArchivePlan) -> Translation:
        topic = topic_plan.source.topic
        return _translate_rows(
            topic_plan, reports[topic], store, admin.settings, snapshots[topic], rows[topic], logs[topic_plan.to_topic]
        )

    # Most of the time is spent waiting for the store, which has a mapping of each kafka partition.
    with ThreadPoolExecutor(TOPICS_AT_ONCE, thread_name_prefix="groups") as pool:
        return list(pool.map(translate, topic_plans))


def _translate_rows(
    plan: ArchivePlan,
    report: RestoreReport,
    store: ObjectStore,
    kafka: KafkaSettings,
    snapshot: IndexSnapshot,
    rows: Sequence[CommittedOffset],
    target: Answers[int, Frontier],
) -> Translation:
    """Translate the groups' offsets of one topic, with its restored runs and the other records in the target."""
    numbers = {r.kafka_partition for r in rows}
    logs = {p: log for p, log in target.all_or_raise().items() if p in numbers}
    keys = {p.kafka_partition: p.mapping_key for p in report.kafka_partitions}
    restored = {p: _find_restored(p, snapshot, read_runs(store, keys.get(p))) for p in numbers}
    moved = _explain_moved(plan)
    if not moved:
        # The target has to be read for other writers' records only if offsets have a place there.
        for p, log in logs.items():
            lowest = min(r.committed_offset for r in rows if r.kafka_partition == p)
            places = _find_other_places(restored[p], lowest, log, _find_doubled_end(report, p))
            mixed = _find_mixed(kafka, report.to_topic, restored[p].target_end, places, log)
            restored[p] = replace(restored[p], mixed=mixed)
    offsets = translate_offsets(rows, restored, logs, moved)
    return Translation(plan.restore_id, report.topic, report.to_topic, plan.start.topic_id, tuple(offsets))


def check_topic_id(topic: str, topic_id: str, expected_id: str) -> None:
    """Refuse a topic whose id differs from the one the restore wrote to."""
    if topic_id != expected_id:
        raise TopicRecreatedError(
            f"topic {topic} has id {topic_id}, the restored one had {expected_id}: it was deleted and created "
            f"again, or this is another cluster. Offsets of the one mean nothing in the other"
        )


def _explain_moved(plan: ArchivePlan) -> str:
    """Explain why no offset of the source has a place in the target. Return an empty text if they have."""
    partitioning = plan.facts.partitioning
    if plan.facts.keeps_numbers:
        return ""
    return (
        f"records went to other kafka partitions, by {partitioning}: one offset of the source has no one place in the "
        f"target"
    )


def _find_restored(kafka_partition: int, snapshot: IndexSnapshot, runs: Runs) -> Restored:
    """Return what was restored of a kafka partition's source offsets.

    Its `missing` is the end of the offsets with a missing or doubled record, and the reason.
    """
    state = snapshot.state
    end = state.coverage(kafka_partition).end_offset or 0
    segments = [s for s in snapshot.segments if s.kafka_partition == kafka_partition]
    expired_end = max((s.end_offset for s in snapshot.expired if s.kafka_partition == kafka_partition), default=0)
    doubts = [
        _find_unarchived(state, kafka_partition, end),
        find_doubled(runs),
        find_absent(drop_repeats(runs), segments),
        (expired_end, f"records before offset {expired_end} expired by a rule of retention"),
    ]
    # The doubt with the highest offset counts, because there is no other doubt from there on.
    return Restored(runs, end, max(doubts))


def _find_unarchived(state: IndexState, kafka_partition: int, end: int) -> Doubt:
    """Return the end of the source offsets with records missing in the archive, whose last offset is before `end`."""
    gaps = [g.offsets for g in state.gaps if g.kafka_partition == kafka_partition]
    archived = (state.coverage(kafka_partition) - RangeSet(gaps)).ranges
    # Only an archive without a hole up to the end counts, because a group goes on from its offset to the end.
    complete_from = archived[-1].start_offset if archived and archived[-1].end_offset == end else end
    left_out = [
        scan.end_offset
        for scan in state.all_scans
        if scan.kafka_partition == kafka_partition and scan.filtered_count + scan.dead_letter_count
    ]
    filtered_from = max(left_out, default=0)
    return max(
        (complete_from, f"the archive does without records before offset {complete_from}, or begins there"),
        (filtered_from, f"before offset {filtered_from} records were left out when they were archived"),
    )


def _find_doubled_end(report: RestoreReport, kafka_partition: int) -> int:
    """Return the end of the target offsets that may hold second copies of restored records, or 0 if none do."""
    ends = (t.end_offset for t in report.targets if t.kafka_partition == kafka_partition and t.doubled_count)
    return next(ends, 0)


def _find_mixed(kafka: KafkaSettings, topic: str, end: int, places: Sequence[OffsetRange], log: Frontier) -> Doubt:
    """Find the target offset from which on only restored records follow up to `end`, and no copy of them after it.

    Ends of transactions take offsets too, so the `places` are read, the last one first, until a record is found.
    """
    if min(log.high_watermark, log.last_stable_offset) < end:
        return end, f"the target shows what it holds up to offset {log.last_stable_offset}, restored was up to {end}"
    if not places:
        return NO_DOUBT
    with new_reader(kafka, topic) as reader:
        for offsets in reversed(places):
            for batch in reader.read(log.kafka_partition, offsets):
                offset = int(batch.column("offset")[-1].as_py())
                where = "lie among them" if offset < end else "lie behind them"
                what = f"records of others, or some of its own again, {where}"
                return offset + 1, f"{what}, the last of them at or after target offset {offset}"
    return NO_DOUBT


def _find_other_places(restored: Restored, lowest: int, log: Frontier, doubled_end: int) -> list[OffsetRange]:
    """List the target offsets without restored records that come after the first record from source offset `lowest` on.

    They lie between restored records, and after the last one up to `doubled_end`.
    """
    sources, targets, counts = restored.runs
    ends = targets + counts
    first = int(np.searchsorted(sources + counts, max(lowest, restored.missing[0]), side="right"))
    holes = np.flatnonzero(targets[1:] > ends[:-1])
    bounds = [(int(ends[n]), int(targets[n + 1])) for n in holes[holes >= first]]
    bounds.append((restored.target_end, min(doubled_end, log.last_stable_offset)))
    clipped = ((max(start, log.log_start_offset), end) for start, end in bounds)
    return [OffsetRange(start, end) for start, end in clipped if start < end]
