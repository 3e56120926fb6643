"""The request of a restore, its report, and the verdict on it: the same for its page, the command line and the UI."""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass, field, fields, replace
from datetime import datetime
from operator import add
from typing import Any, Literal

from kafka_s3_platform.core.config.settings import (
    ConnectorConfig,
    ConverterSettings,
    KafkaSettings,
    RegistrySettings,
    ThawTier,
    TransformSettings,
    is_python_class,
)
from kafka_s3_platform.core.errors import ConfigError, IntegrityError, PermanentError, TransientError
from kafka_s3_platform.core.extensions import load_extension
from kafka_s3_platform.core.model.gaps import MissingRecords
from kafka_s3_platform.core.restore.documents import REPORT_FORMAT, RestoreDocuments, parse_document, read_header
from kafka_s3_platform.core.text import count_noun

Delivery = Literal["exactly_once", "at_least_once"]

OnError = Literal["fail", "ignore", "log"]
"""`behavior.on.error`: the treatment of a bad record, or of a bad object, which is never left out in part."""

Offsets = int | Mapping[int, int] | None
"""One offset for all kafka partitions, or the offset of each. A kafka partition that has none is not bounded."""

_RESTORE_ID = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,199}")

_SHOWN = 3
"""The number of reasons that an error or a verdict names."""


@dataclass(frozen=True)
class RecordFilter:
    """The choice among the records of the window. A record must pass all of these filters.

    `keys`, `key_prefixes` and `key_regex` (Python, full match, on the key as UTF-8) are one filter: one of them must
    match the key. `predicate` is the dotted name of a function from a RECORD_SCHEMA batch to a boolean array. `sql` is
    a condition over the same columns. `latest_per_key` keeps only the last passing record of each key, which may be a
    tombstone.
    """

    keys: tuple[bytes, ...] = ()
    key_prefixes: tuple[bytes, ...] = ()
    key_regex: str | None = None
    predicate: str | None = None
    sql: str | None = None
    latest_per_key: bool = False


@dataclass(frozen=True)
class Outgoing:
    """The changes made to records before they are sent to the target.

    `partitioning`: `source` keeps kafka partition numbers, `murmur2` (Java's default) and `crc32` (librdkafka's
    consistent) hash the key. Any other value is the dotted Python name of a user's class. `provenance_headers` adds the
    source's offset, kafka partition and timestamp as headers. `value` and `key` re-encode with the target's registry.
    `map_schema_ids` registers archived schemas there, and rewrites the ids in payloads.
    """

    partitioning: str = "source"
    provenance_headers: bool = False
    transforms: tuple[TransformSettings, ...] = ()
    key: ConverterSettings | None = None
    value: ConverterSettings | None = None
    map_schema_ids: bool = False
    target_registry: RegistrySettings | None = None

    @property
    def changes_content(self) -> bool:
        """True if keys, values or headers may differ from the archived ones, apart from schema ids and provenance."""
        if self.key or self.value:
            return True
        # Without transforms, the part that knows them need not be there.
        return bool(self.transforms) and not all(map(load_extension("keeps_content"), self.transforms))

    @property
    def has_mapper(self) -> bool:
        """True if a user's own class may make several records from one."""
        return any(is_python_class(step) for step in self.transforms)


@dataclass(frozen=True, slots=True)
class Thaw:
    """The request for copies of objects in cold storage, kept for `days` days. If `days` is None, none are requested.

    If `tier` is None, S3's default is used, `Standard`. The restore waits for the copies for at most `wait_seconds`.
    """

    days: int | None = None
    tier: ThawTier | None = None
    wait_seconds: float = 0.0


@dataclass(frozen=True)
class RestoreRequest:
    """The request to replay archived records of `topic` to `to_topic`.

    Without times and offsets everything is restored, including records with out-of-range timestamps. Times (with a
    timezone) and offsets are half-open, and a record must be inside both. `target` is None for the connector's own
    cluster. The rates limit the whole restore. A second run under the same `restore_id` goes on where the first ended.

    `windows` are further windows of time, in any order: a record must also be in one of them (such as single hours).
    `exact` reads everything on a dry run, to count the records that pass the filters. A new topic gets
    `target_kafka_partitions`, by default as many as the source, and `replication_factor`, by default the brokers'.
    `connectors` are all connectors of this installation: preflight looks for one that archives the target. Without
    `behavior_on_error` or `thaw`, the file of a source connector decides, see `on_error` and `thawing`. `topics_regex`
    (Java, full match) has chosen the topics. `first_topics` are sent before all others, in this order.

    Raises:
        ConfigError: the id is not allowed in an object key, or a window is empty or has no timezone.
    """

    config: ConnectorConfig
    topic: str
    to_topic: str
    restore_id: str
    run_id: str
    target: KafkaSettings | None = field(default=None, repr=False)
    from_time: datetime | None = None
    to_time: datetime | None = None
    from_offset: Offsets = None
    to_offset: Offsets = None
    kafka_partitions: tuple[int, ...] | None = None
    create_topic: bool = False
    dry_run: bool = False
    allow_source_topic: bool = False
    allow_unsendable_timestamps: bool = False
    records_per_second: float | None = None
    bytes_per_second: float | None = None
    delivery: Delivery = "exactly_once"
    records: RecordFilter = field(default_factory=RecordFilter)
    outgoing: Outgoing = field(default_factory=Outgoing)
    replication_factor: int | None = None
    restore_acls: bool = False
    windows: tuple[tuple[datetime, datetime], ...] = ()
    exact: bool = False
    target_kafka_partitions: int | None = None
    connectors: tuple[ConnectorConfig, ...] = field(default=(), repr=False)
    behavior_on_error: OnError | None = None
    thaw: Thaw = field(default_factory=Thaw)
    topics_regex: str | None = None
    first_topics: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not _RESTORE_ID.fullmatch(self.restore_id):
            raise ConfigError(
                f"restore id {self.restore_id!r} is not valid: use 1 to 200 letters, digits, '.', '_' and '-', with "
                "a letter or digit first"
            )
        for start, end in ((self.from_time, self.to_time), *self.windows):
            _check_times(start, end)

    @property
    def target_kafka(self) -> KafkaSettings:
        """The cluster of the target: the connector's own if the request names none."""
        return self.target or self.config.kafka

    @property
    def on_error(self) -> OnError:
        """`behavior.on.error` of the request, else of the source connector's file, else `fail`."""
        source = self.config.source
        return self.behavior_on_error or (source.behavior_on_error if source else "fail")

    @property
    def thawing(self) -> Thaw:
        """`thaw` of the request. The source connector's file decides what it leaves open."""
        source = self.config.source
        if source is None:
            return self.thaw
        return replace(self.thaw, days=self.thaw.days or source.thaw_days, tier=self.thaw.tier or source.thaw_tier)

    @property
    def documents(self) -> RestoreDocuments:
        """The keys of the documents of this restore."""
        return RestoreDocuments(self.config.archive.restore_dir, self.restore_id)


def _check_times(from_time: datetime | None, to_time: datetime | None) -> None:
    """Raise ConfigError if a time has no timezone, or the end is not after the start."""
    for name, moment in (("from", from_time), ("to", to_time)):
        if moment is not None and moment.tzinfo is None:
            raise ConfigError(
                f"the {name} time {moment.isoformat()} has no timezone; write it with one, such as +00:00"
            )
    if from_time is not None and to_time is not None and from_time >= to_time:
        raise ConfigError(
            f"the window [{from_time.isoformat()}, {to_time.isoformat()}) contains no time: its end must be after "
            "its start"
        )


@dataclass(frozen=True, slots=True)
class LeftOut:
    """The numbers of records that a stream did not send, by reason, and of records that it sent incompletely.

    `without_key`: they had no key, so they were not the latest record of one. `filtered`: a transform dropped them.
    `failed`: they failed, and `behavior.on.error` ignored this. `elsewhere`: they were routed to another topic.
    `incomplete`: they were sent, but lack a part of the archived record, since their key or value was re-encoded.
    """

    without_key: int = 0
    filtered: int = 0
    failed: int = 0
    elsewhere: int = 0
    incomplete: int = 0

    def __add__(self, other: "LeftOut") -> "LeftOut":
        return LeftOut(*map(add, astuple(self), astuple(other)))


@dataclass(frozen=True, kw_only=True)
class ReadFacts:
    """Facts about a source's records, as far as they were read.

    `skipped` has a sentence for each bad object and bad record left out. `gaps` are requested records that the source
    lacks. `notes` are sentences about unknown facts. `skipped` and `gaps` may be shortened, their counts not.
    """

    out_of_range_count: int = 0
    skipped: tuple[str, ...] = ()
    skipped_count: int = 0
    gaps: tuple[MissingRecords, ...] = ()
    gap_count: int = 0
    notes: tuple[str, ...] = ()

    def __add__(self, other: "ReadFacts") -> "ReadFacts":
        names = (f.name for f in fields(ReadFacts))
        return ReadFacts(**{name: getattr(self, name) + getattr(other, name) for name in names})


@dataclass(frozen=True, kw_only=True)
class KafkaPartitionReport(ReadFacts):
    """The restored records of one source kafka partition, as they were read back from the target.

    Offsets are of the first and the last record, or None if there was no record. `foreign_count` and `doubled_count`
    are the target's (`TargetReport`). They are 0 if several streams of the restore may share the target's kafka
    partition: `RestoreReport.targets` then has them. `altered_timestamps` counts records with a timestamp that the
    client cannot send. `digest` is the record digest of the selected archived records. `topic` is the source topic if
    one restore may have several, else empty.
    """

    kafka_partition: int
    record_count: int
    record_bytes: int
    first_source_offset: int | None
    last_source_offset: int | None
    first_target_offset: int | None
    last_target_offset: int | None
    foreign_count: int
    altered_timestamps: int
    digest: str
    mapping_key: str | None
    left_out: LeftOut = LeftOut()
    topic: str = ""
    doubled_count: int = 0


@dataclass(frozen=True, slots=True)
class TargetReport:
    """The records of a target's kafka partition besides the sent ones, in offsets `[start_offset, end_offset)`.

    `doubled_count` counts further copies of sent records. `foreign_count` counts records of other writers. At
    `open_offset` an open transaction begins: nothing was read from there on. It is None if there was no such
    transaction. `stream_count` is the number of source kafka partitions sent to this one.
    """

    to_topic: str
    kafka_partition: int
    start_offset: int
    end_offset: int
    doubled_count: int = 0
    foreign_count: int = 0
    open_offset: int | None = None
    stream_count: int = 1

    @property
    def place(self) -> tuple[str, int]:
        """The topic and the kafka partition."""
        return self.to_topic, self.kafka_partition


@dataclass(frozen=True, kw_only=True)
class RestoreReport(ReadFacts):
    """The result of a restore, or the plan of a dry run.

    `record_count` and `record_bytes` (keys, values and headers) are exact after a restore. On a dry run they are exact
    if `exact` is true, else an upper bound. With `before_transforms` they count records as they are read: transforms or
    failures may make fewer or more of them. `sent_count` counts the records sent by this run. It is less than
    `record_count` if an earlier run of this restore id had sent some. `gaps` are parts of the window that the archive
    lacks. `notes` and `refusals` are sentences: remarks of preflight, and reasons to refuse (dry run only). If
    `already_finished`, this restore id had been finished before, nothing was sent now, and the numbers are from then.
    `terms` is the request, with its windows, as JSON. `schema_ids` are pairs of an archived id and the id in the
    target's registry. `finished_at` is ISO 8601 in UTC. `left_out` are the keys of bad objects. `targets` are the kafka
    partitions that may have got records, as read back. `doubts` are notes that forbid a better verdict: records may
    have been read in a wrong way, or are not in the target (any more). If `of_others`, objects were read by their
    format and names, not by an index. `parts` are the reports of single targets, if there are several. `failure` is the
    error of one of several targets that was not restored. It may pass if `is_transient`.
    """

    restore_id: str
    topic: str
    to_topic: str
    kafka_partitions: tuple[KafkaPartitionReport, ...]
    record_count: int
    record_bytes: int
    exact: bool
    object_count: int
    object_bytes: int
    sent_count: int
    refusals: tuple[str, ...]
    plan_key: str
    plan_digest: str
    estimated_seconds: float
    seconds: float
    verified: bool
    dry_run: bool
    already_finished: bool = False
    terms: Mapping[str, Any] = field(default_factory=dict)
    schema_ids: tuple[tuple[int, int], ...] = ()
    finished_at: str = ""
    left_out: tuple[str, ...] = ()
    before_transforms: bool = False
    targets: tuple[TargetReport, ...] = ()
    of_others: bool = False
    doubts: tuple[str, ...] = ()
    parts: tuple["RestoreReport", ...] = ()
    failure: str = ""
    is_transient: bool = False

    @property
    def records_per_second(self) -> float:
        """The rate of sending and reading back."""
        if self.seconds:
            return self.sent_count / self.seconds
        return 0.0

    @property
    def page_key(self) -> str:
        """The object key of the HTML page of this report."""
        return RestoreDocuments.of_plan(self.plan_key).page

    @property
    def left_out_records(self) -> LeftOut:
        """The numbers of records read but not sent, by reason."""
        return sum((p.left_out for p in self.kafka_partitions), LeftOut())

    @property
    def foreign_count(self) -> int:
        """The number of other writers' records between and after the restore's."""
        return sum(p.foreign_count for p in self.targets)

    @property
    def doubled_count(self) -> int:
        """The number of further copies of sent records in the target."""
        return sum(p.doubled_count for p in self.targets)

    @property
    def failed(self) -> tuple["RestoreReport", ...]:
        """The parts that were not restored."""
        return tuple(part for part in self.parts if part.failure)

    def to_json(self) -> bytes:
        """Write the report, and its format."""
        return json.dumps({"format": REPORT_FORMAT, **asdict(self)}, indent=1).encode()

    @staticmethod
    def from_json(content: bytes, key: str) -> "RestoreReport":
        """Read a report written by `to_json`. Raises IntegrityError if it is no report, or has another format."""
        read_header(content, key, "restore report", REPORT_FORMAT)
        return parse_document(content, RestoreReport, key)


@dataclass(frozen=True, slots=True)
class Verdict:
    """`good`: all requested records are there. `part`: not all, or more. `bad`: none. `plan`: nothing to judge."""

    kind: Literal["good", "part", "bad", "plan"]
    text: str


def list_missing(report: RestoreReport) -> tuple[str, ...]:
    """List the requested records missing in the target, with their numbers, or nothing if none is missing."""
    left_out = report.left_out_records
    counts = (
        (report.gap_count, "gap", "in the archive"),
        (report.skipped_count, "object or record", "skipped"),
        (left_out.failed, "record", "failed and left out"),
        (left_out.without_key, "record", "without a key left out"),
        (left_out.elsewhere, "record", "routed to other topics and left out"),
        (left_out.incomplete, "record", "sent in part"),
    )
    return tuple(f"{count_noun(count, noun)} {what}" for count, noun, what in counts if count)


def judge_report(report: RestoreReport) -> Verdict:
    """Return the verdict on a restore, or on a dry run."""
    if report.refusals:
        return Verdict("bad", "would be refused")
    if report.dry_run and not report.already_finished:
        return Verdict("plan", "dry run, nothing was sent")
    if report.failure:
        return Verdict("bad", "not restored")
    if report.failed:
        named = ", ".join(f"{part.topic} to {part.to_topic}" for part in report.failed)
        return Verdict("part", f"{len(report.failed)} of {len(report.parts)} topics are not restored: {named}")
    if not report.verified:
        return Verdict("bad", "not verified")
    verdict = _judge_verified(report)
    dropped = report.left_out_records.filtered
    return Verdict(verdict.kind, f"{verdict.text}; {dropped:,} left out by transforms") if dropped else verdict


def _judge_verified(report: RestoreReport) -> Verdict:
    """Return the verdict on a restore whose records were read back: is all of it there, each record once?"""
    missing = "; ".join(list_missing(report))
    if _is_all_lost(report):
        return Verdict("bad", f"nothing was restored: {missing}")
    more = len(report.doubts) - _SHOWN
    doubts = [*report.doubts[:_SHOWN], *[f"and {more:,} doubts more, which are notes"] * (more > 0)]
    if report.doubled_count:
        matched = f"all records were found, plus {report.doubled_count:,} extra copies"
        lacks = [f"not everything could be restored: {missing}"] * bool(missing)
        return Verdict("part", "; ".join([matched, *lacks, *doubts]))
    if missing:
        return Verdict("part", "; ".join([f"verified, but not everything could be restored: {missing}", *doubts]))
    if doubts:
        return Verdict("part", f"every record sent was found once, but {'; '.join(doubts)}")
    if not report.record_count:
        return Verdict("plan", "no record was to be restored, so none was compared")
    return Verdict("good", f"verified: every record {'read' if report.of_others else 'sent'} was found once")


def check_something_restored(report: RestoreReport) -> None:
    """Check that a finished restore has restored anything, if there was anything to restore.

    Raises:
        IntegrityError: everything was bad, failed, or was left out.
        TransientError, PermanentError: some of its topics are not restored. Each is named, with its error.
    """
    if report.failed:
        lines = "".join(f"\n{part.topic} to {part.to_topic}: {part.failure}" for part in report.failed)
        error = TransientError if any(part.is_transient for part in report.failed) else PermanentError
        others = "; the others are restored and verified" if len(report.failed) < len(report.parts) else ""
        raise error(
            f"restore {report.restore_id}: {judge_report(report).text}{others}, see {report.page_key}. Run it again "
            f"under the same id to restore what is missing{lines}"
        )
    if report.dry_run or not _is_all_lost(report):
        return
    reasons = (*report.skipped, *(n for n in report.notes if "left out" in n))
    named = "".join(f"\n{reason}" for reason in reasons[:_SHOWN])
    raise IntegrityError(
        f"restore {report.restore_id} of {report.topic} to {report.to_topic}: {judge_report(report).text}. See "
        f"{report.page_key}. Correct what failed, and restore under another restore id{named}"
    )


def _is_all_lost(report: RestoreReport) -> bool:
    """Return True if there was something to restore, and not a single record is in the target."""
    left_out = report.left_out_records
    # Not the objects left out of the listing: if they were sent before, nothing had to be restored.
    skipped = sum(p.skipped_count for p in report.kafka_partitions)
    lost = skipped + left_out.failed + left_out.without_key + left_out.elsewhere
    return report.verified and not report.record_count and bool(lost)
