"""Rehearses the restore of an archive: restores drawn hours of each topic, compares them, and removes them again.

It is the same restore as after a disaster, of all topics at once. If something does not come back, each incomplete
topic is restored once more, alone and without its bad objects, to find the lost hours.
"""

import logging
import os
import textwrap
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from uuid import uuid4

from kafka_s3_platform.core.config.settings import ConnectorConfig, KafkaSettings
from kafka_s3_platform.core.defs.resources import SparkResource, read_deployed_conf
from kafka_s3_platform.core.errors import (
    HEAL_OBJECT,
    ConfigError,
    IntegrityError,
    PermanentError,
    PlatformError,
    PreflightError,
)
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.model.segment import Segment
from kafka_s3_platform.core.model.times import EPOCH, HOUR
from kafka_s3_platform.core.model.turns import TopicTurns, add_turn, draw_turns, join_hours
from kafka_s3_platform.core.restore.archive_source import ArchiveSource
from kafka_s3_platform.core.restore.evidence import ComparedTopic, Evidence, EvidenceFolder, Standing, describe_restored
from kafka_s3_platform.core.restore.request import OnError, RestoreReport, RestoreRequest
from kafka_s3_platform.core.restore.run import restore
from kafka_s3_platform.core.restore.signing import read_evidence_key
from kafka_s3_platform.core.restore.source.topics_plan import TopicsPlan
from kafka_s3_platform.core.spark.runner import TaskRunner
from kafka_s3_platform.core.spark.session import build_spark_conf
from kafka_s3_platform.core.store.index import ConnectorIndex, ConnectorSnapshot
from kafka_s3_platform.core.store.index_rows import EXPIRED
from kafka_s3_platform.core.store.objects import ObjectInfo, ObjectStore
from kafka_s3_platform.core.store.row_filter import SegmentFilter
from kafka_s3_platform.core.text import count_noun
from kafka_s3_platform.core.upkeep.compact.days import is_mergeable
from kafka_s3_platform.core.upkeep.verify import overlaps_hours, read_hour_segments
from kafka_s3_platform.operate.local.ephemeral import run_ephemeral_broker

logger = logging.getLogger(__name__)

DEFAULT_DAYS = 30
"""The period of a connector whose file names none."""

LONGEST_RUN = timedelta(days=1)
"""If all documents of a rehearsal are older than this, it was killed, and its remains are removed."""

EPHEMERAL = "ephemeral"
"""Stands for the cluster of a rehearsal that started a Kafka of its own, which ends with it."""

MOST_REASON = 300
"""The most characters of the reason why hours did not come back."""

HourReasons = Mapping[datetime, str]
"""Maps each drawn hour to the reason why it did not come back, or to an empty text if it did."""


@dataclass(frozen=True)
class Draw:
    """The `hours` of one topic drawn for a rehearsal. `counts` maps all hours to their numbers of records in the index.

    `record_bytes`, `undated_records` and `values_only_records` are of the whole topic; the last are those of hours
    whose objects hold values alone. `erased` has the records erased from days and months. Their hours are not kept, so
    `counts` still includes them.
    """

    topic: str
    counts: Mapping[datetime, int]
    hours: Sequence[datetime]
    record_bytes: int
    undated_records: int
    values_only_records: int
    erased: Sequence[Segment] = ()

    @property
    def record_count(self) -> int:
        """The number of records in the drawn hours."""
        return sum(self.counts.get(hour, 0) for hour in self.hours)

    @property
    def most_erased(self) -> int:
        """The greatest number of the drawn hours' records that may have been erased."""
        return sum(segment.record_count for segment in self.erased if overlaps_hours(segment, self.hours))

    @property
    def expected_bytes(self) -> int:
        """The approximate number of bytes of the drawn records."""
        return self.record_bytes * self.record_count // max(1, sum(self.counts.values()))


class Rehearsal:
    """Restores drawn hours of a connector's archive to another Kafka, compares them, and stores the result as evidence.

    `draws` has the hours of each topic whose turn it is.

    Raises:
        ConfigError: its objects do not hold whole records, its hours are not hours of records' timestamps, nothing is
            archived, or the key for evidence cannot sign.
    """

    def __init__(self, config: ConnectorConfig) -> None:
        _check_format(config)
        self._config = config
        # Not the id of Dagster's run, which may be retried. Each rehearsal begins anew, on another Kafka.
        self._id = str(uuid4())
        self._key = read_evidence_key(os.environ)
        self._period_days = config.archive.rehearsal_days or DEFAULT_DAYS
        snapshot = ConnectorIndex.of(config).peek()
        if snapshot is None:
            raise ConfigError(f"nothing is archived of connector {config.name}, so nothing can come back")
        self._snapshots = {snapshot.version: snapshot}
        self._turns = EvidenceFolder(config).read_standing().turns
        self.draws = [self._draw(topic, snapshot) for topic in config.topics]

    def run(self, target: KafkaSettings, runner: TaskRunner, *, is_ephemeral: bool) -> Evidence:
        """Restore, compare and remove the drawn hours. Store the evidence, and return it.

        An `is_ephemeral` target ends with this rehearsal. Of another one, the documents name the cluster.

        Raises:
            PlatformError: the target or the store does not answer, or a right is missing. This tells nothing about the
                archive, and nothing is stored.
        """
        started_at = datetime.now(timezone.utc)
        archive = self._config.archive
        folder = f"{archive.restore_dir}/rehearsal={self._config.name}/"
        name = f"{EPHEMERAL if is_ephemeral else _read_cluster_id(target)}.{self._id}"
        documents = archive.model_copy(update={"restore_dir": f"{folder}{name}"})
        config = self._config.model_copy(update={"archive": documents})
        try:
            compared_topics, reasons, bytes_per_second = self._rehearse(config, target, runner)
        finally:
            _remove_traces(ObjectStore(config.restore_store), folder, name, target)
        rate = Standing(bytes_per_second=bytes_per_second)
        return self._store(started_at, compared_topics, reasons, f"Kafka at {target.bootstrap_servers}", rate)

    def store_nothing(self) -> None:
        """Store evidence that no topic has hours to restore: those of before are not waited for any more."""
        self._store(datetime.now(timezone.utc), (), {}, "nothing", Standing())

    def _store(
        self,
        started_at: datetime,
        compared_topics: Sequence[ComparedTopic],
        reasons: Mapping[str, HourReasons],
        target: str,
        rate: Standing,
    ) -> Evidence:
        """Store the evidence of what was compared, with the turns of all topics. Return it."""
        finished_at = datetime.now(timezone.utc)
        turns = {draw.topic: self._add_turn(draw, reasons.get(draw.topic, {}), finished_at) for draw in self.draws}
        evidence = Evidence(
            kind="rehearsal",
            connector=self._config.name,
            bucket=self._config.store.bucket,
            started_at=started_at,
            finished_at=finished_at,
            seconds=(finished_at - started_at).total_seconds(),
            topics=tuple(compared_topics),
            run=self._id,
            target=target,
            standing=replace(rate, turns=turns),
        )
        return EvidenceFolder(self._config).add(evidence, self._key)

    def _draw(self, topic: str, snapshot: ConnectorSnapshot) -> Draw:
        """Draw the topic's hours for this rehearsal, from the index and from the turns of earlier rehearsals."""
        lateness = timedelta(milliseconds=self._config.archive.allowed_lateness_ms)
        newest = datetime.now(timezone.utc) - lateness - HOUR
        all_counts = {hour: records for hour, (records, _) in snapshot.count_hours(topic, EPOCH).items()}
        expired = snapshot.topic(topic).list_chunks(SegmentFilter("hourly"), [EXPIRED])
        gone = {chunk.chunk_start for chunk in expired}
        live_chunks = snapshot.topic(topic).list_chunks(SegmentFilter("hourly"))
        of_values = {chunk.chunk_start for chunk in live_chunks if not is_mergeable(chunk)}
        erased = snapshot.topic(topic).erased
        # an hour keeps the numbers it was archived with
        erased_counts = Counter[datetime | None]()
        for segment in erased:
            erased_counts[segment.chunk_start] += segment.record_count if segment.chunk == "hourly" else 0
        present = {hour: n - erased_counts[hour] for hour, n in all_counts.items()}
        counts = {hour: n for hour, n in present.items() if n and hour <= newest and hour not in gone | of_values}
        sums = snapshot.segment_sums.get(topic)
        records, record_bytes = (sums.records, sums.record_bytes) if sums else (0, 0)
        return Draw(
            topic=topic,
            counts=counts,
            hours=draw_turns(counts, self._turns.get(topic), self._period_days),
            record_bytes=record_bytes * sum(counts.values()) // max(1, records),
            undated_records=records - sum(all_counts.values()),
            values_only_records=sum(n for hour, n in present.items() if hour in of_values),
            erased=tuple(segment for segment in erased if segment.chunk != "hourly"),
        )

    def _add_turn(self, draw: Draw, reasons: HourReasons, at: datetime) -> TopicTurns:
        """Return the topic's turns after this rehearsal: when each hour last came back, or why it did not."""
        turns = self._turns.get(draw.topic)
        return add_turn(turns, reasons, at, self._period_days, draw.counts, draw.record_bytes)

    def _rehearse(
        self, config: ConnectorConfig, target: KafkaSettings, runner: TaskRunner
    ) -> tuple[list[ComparedTopic], dict[str, HourReasons], float | None]:
        """Restore all topics together, then incomplete ones alone. Also return the rate of the first restore."""
        draws = [draw for draw in self.draws if draw.hours]
        requests = [self._request(config, target, draw, f"all-{n}", "fail") for n, draw in enumerate(draws)]
        together = replace(requests[0], topic="all topics", to_topic="a topic each", windows=())
        source = ArchiveSource(together, tuple(requests)) if len(requests) > 1 else ArchiveSource(requests[0])
        reports: dict[str, RestoreReport] = {}
        bytes_per_second = None
        try:
            report = restore(source, runner)
            reports = {part.topic: part for part in report.parts or (report,)}
            bytes_per_second = report.record_bytes / max(report.seconds, 1e-3) if report.verified else None
        except PermanentError as err:
            logger.warning("not all of %s comes back, so each topic is tried alone: %s", config.name, err)
        versions = self._read_versions(requests[0]) if reports else {}
        compared_topics: list[ComparedTopic] = []
        reasons: dict[str, HourReasons] = {}
        for number, draw in enumerate(draws):
            part = reports.get(draw.topic)
            reasons[draw.topic] = self._judge(draw, part, versions)
            if any(reasons[draw.topic].values()):
                alone = self._request(config, target, draw, f"topic-{number}", "log")
                part, reasons[draw.topic] = self._try_alone(draw, alone, runner)
            compared_topics.append(_describe(draw, part, reasons[draw.topic]))
        return compared_topics, reasons, bytes_per_second

    def _request(
        self, config: ConnectorConfig, target: KafkaSettings, draw: Draw, name: str, on_error: OnError
    ) -> RestoreRequest:
        """Make the request that restores a topic's drawn hours to a new topic."""
        return RestoreRequest(
            config=config,
            topic=draw.topic,
            # Without the name of the source, which may already be as long as a name may be.
            to_topic=f"rehearsal-{self._id}-{name}",
            restore_id=name.partition("-")[0] if on_error == "fail" else name,
            run_id=self._id,
            target=target,
            windows=tuple(join_hours(draw.hours)),
            create_topic=True,
            allow_unsendable_timestamps=True,
            behavior_on_error=on_error,
        )

    def _try_alone(
        self, draw: Draw, request: RestoreRequest, runner: TaskRunner
    ) -> tuple[RestoreReport | None, HourReasons]:
        """Restore one topic without its bad objects. Raise errors that tell nothing about the archive."""
        try:
            report = restore(ArchiveSource(request), runner)
        except (IntegrityError, PreflightError) as err:
            return None, dict.fromkeys(draw.hours, textwrap.shorten(err.text, MOST_REASON))
        return report, self._judge(draw, report, self._read_versions(request))

    def _judge(self, draw: Draw, report: RestoreReport | None, versions: Mapping[str, int]) -> HourReasons:
        """Return why each drawn hour did not come back, or an empty text if it did.

        An hour came back if none of its objects is bad, and if as many records came back as the index counts. That is
        the index of the version in `versions`, from which the topic's restore was planned: late records may come after
        the draw, and records may be erased.
        """
        if report is None or report.failure or not report.verified:
            return dict.fromkeys(draw.hours, report.failure if report and report.failure else "not restored")
        snapshot = self._open(versions[draw.topic])
        draw = replace(self._draw(draw.topic, snapshot), hours=draw.hours)
        segments = read_hour_segments(snapshot.topic(draw.topic), draw.hours) if report.left_out else []
        bad_segments = [segment for segment in segments if not set(report.left_out).isdisjoint(segment.keys)]
        unknown_keys = set(report.left_out).difference(*(segment.keys for segment in bad_segments))
        expected = draw.record_count - sum(segment.record_count for segment in bad_segments)
        # The object of a day also has records of other hours, so its number of lost records is not known.
        is_counted = all(segment.chunk == "hourly" for segment in bad_segments)
        # records out of range may be of these times too, and the index counts them for no hour
        dated_count = report.record_count - report.out_of_range_count
        is_expected = expected - draw.most_erased <= dated_count <= expected
        if unknown_keys or (is_counted and not is_expected):
            came_back = f"{count_noun(report.record_count, 'record')} came back"
            return dict.fromkeys(draw.hours, f"{came_back} of {draw.record_count:,} that the index counts")
        reasons = dict.fromkeys(draw.hours, "")
        for segment in bad_segments:
            reason = f"object {segment.key} is damaged, missing or replaced"
            reasons |= {hour: reasons[hour] or reason for hour in draw.hours if overlaps_hours(segment, [hour])}
        return reasons

    def _read_versions(self, request: RestoreRequest) -> Mapping[str, int]:
        """Return, by topic, the version of the index that the stored plan of a restore was made from."""
        key = request.documents.plan
        plan = TopicsPlan.from_json(ObjectStore(request.config.restore_store).get(key), key)
        return {part.source.topic: part.index_version for part in plan.topics}

    def _open(self, version: int) -> ConnectorSnapshot:
        """Open a version of the index, once."""
        if version not in self._snapshots:
            index = ConnectorIndex.of(self._config)
            self._snapshots[version] = ConnectorSnapshot(index, index.table.open(version))
        return self._snapshots[version]


def _check_format(config: ConnectorConfig) -> None:
    """Raise ConfigError if the archive cannot be rehearsed: it has no whole records, or no hours of timestamps."""
    if config.source is not None or not config.layout.is_envelope:
        raise ConfigError(
            f"connector {config.name} has no archive of whole records (format {config.layout.format}): a rehearsal "
            "restores records as they were. `kafka-s3 restore` of its objects to a topic of yours shows what comes back"
        )
    if config.layout.timestamp_extractor == "Wallclock":
        raise ConfigError(
            f"the hours of connector {config.name} are those of places in the log (timestamp.extractor=Wallclock), and "
            "a rehearsal restores hours of timestamps. `kafka-s3 verify --deep` reads all of its objects"
        )


def _describe(draw: Draw, report: RestoreReport | None, reasons: HourReasons) -> ComparedTopic:
    """Return the evidence about a topic: the compared records, and the reasons for lost hours."""
    nothing = ComparedTopic(
        topic=draw.topic, compared_with="nothing", records=0, record_bytes=0, verdict="", is_complete=False
    )
    compared = describe_restored(report) if report and report.verified else nothing
    failed_count = sum(map(bool, reasons.values()))
    undated = f"{count_noun(draw.undated_records, 'record')} of no hour, which no rehearsal restores"
    of_values = (
        f"{count_noun(draw.values_only_records, 'record')} of hours with values only, which no rehearsal restores"
    )
    erased = f"up to {count_noun(draw.most_erased, 'record')}, which may have been erased by request"
    return replace(
        compared,
        verdict=f"{len(draw.hours) - failed_count:,} of {count_noun(len(draw.hours), 'hour')} came back",
        is_complete=not failed_count,
        left_out=(
            *compared.left_out,
            *dict.fromkeys(filter(None, reasons.values())),
            *([undated] if draw.undated_records else []),
            *([of_values] if draw.values_only_records else []),
            *([erased] if draw.most_erased else []),
        ),
        windows=tuple(join_hours(draw.hours)),
        terms={},
    )


def _read_cluster_id(target: KafkaSettings) -> str:
    with ClusterAdmin(target) as admin:
        return admin.describe_cluster().cluster_id


def _remove_traces(store: ObjectStore, folder: str, rehearsal: str, target: KafkaSettings) -> None:
    """Delete the topics and documents of this rehearsal and of killed ones. If something cannot be deleted, log it.

    Documents that name topics of another cluster stay for a rehearsal there.
    """
    newest_killed = datetime.now(timezone.utc) - LONGEST_RUN
    here = {EPHEMERAL, rehearsal.partition(".")[0]}
    documents: dict[str, list[ObjectInfo]] = defaultdict(list)
    try:
        for info in store.list(folder):
            documents[info.key.removeprefix(folder).partition("/")[0]].append(info)
        with ClusterAdmin(target) as admin:
            for name, objects in documents.items():
                is_killed = all(info.last_modified < newest_killed for info in objects)
                if name == rehearsal or (is_killed and name.partition(".")[0] in here):
                    _remove_one(store, admin, objects)
    except PlatformError as err:
        logger.warning("topics rehearsal-* or documents of rehearsals in %s stay: %s", store.uri(folder), err)


def _remove_one(store: ObjectStore, admin: ClusterAdmin, objects: Sequence[ObjectInfo]) -> None:
    """Delete the documents of one rehearsal, and the topics its plans name."""
    for info in objects:
        # Most documents are not plans. A plan names the topics with their ids.
        with suppress(IntegrityError, PreflightError):
            plan = TopicsPlan.from_json(store.get(info.key), info.key) if info.key.endswith(".json") else None
            for topic, start in ((plan and plan.starts) or {}).items():
                if admin.topic_exists(topic):
                    admin.delete_topic(topic, start.topic_id)
    for info in objects:
        store.delete(info.key, info.etag)


def rehearse_archive(
    config: ConnectorConfig, spark: SparkResource, target: KafkaSettings | None = None
) -> Evidence | None:
    """Rehearse the due hours of a connector. Return None if it has no past hour with records.

    Without `target`, a Kafka is started for it. This Kafka ends with the process, however the process ends.

    Raises:
        ConfigError: it cannot be rehearsed (see `Rehearsal` and `run_ephemeral_broker`), or Spark's tasks run on other
            machines, which cannot reach this Kafka.
        PlatformError: something does not answer. This tells nothing about the archive.
    """
    rehearsal = Rehearsal(config)
    if not any(draw.hours for draw in rehearsal.draws):
        rehearsal.store_nothing()
        return None
    master = build_spark_conf(read_deployed_conf(os.environ))["spark.master"]
    if target is None and not master.startswith("local"):
        raise ConfigError(
            f"the Kafka of a rehearsal listens on this machine alone, and tasks run on others (spark.master={master}): "
            "name a cluster for it, kafka-s3 rehearse --target-worker"
        )
    expected_bytes = sum(draw.expected_bytes for draw in rehearsal.draws)
    with nullcontext(target) if target else run_ephemeral_broker(expected_bytes) as kafka:
        return rehearsal.run(kafka, spark.make_runner(), is_ephemeral=target is None)


def check_rehearsal(evidence: Evidence) -> None:
    """Raise IntegrityError, with the topics and the reasons, if some of the rehearsed hours did not come back."""
    if failed_topics := [topic for topic in evidence.topics if not topic.is_complete]:
        lines = "".join(f"\n{topic.topic}: {'; '.join((topic.verdict, *topic.left_out))}" for topic in failed_topics)
        raise IntegrityError(
            f"rehearsal of {evidence.connector}: of {count_noun(len(failed_topics), 'topic')} not all came back. "
            f"{HEAL_OBJECT}. The next rehearsal tries these hours again{lines}"
        )
