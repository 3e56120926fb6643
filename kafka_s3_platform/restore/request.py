"""What a caller asks of a restore, and what it gets back."""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any, Literal

from kafka_s3_platform.config.settings import (
    ConnectorConfig,
    ConverterSettings,
    KafkaSettings,
    RegistrySettings,
    ThawTier,
    TransformSettings,
)
from kafka_s3_platform.config.transform_catalogue import is_python_class
from kafka_s3_platform.errors import ConfigError
from kafka_s3_platform.restore.documents import document

Delivery = Literal["exactly_once", "at_least_once"]

OnError = Literal["fail", "ignore", "log"]
"""`behavior.on.error`: what becomes of a bad object, which is left out whole, or of a bad record."""

Offsets = int | Mapping[int, int] | None
"""One offset for every kafka partition, or kafka partition -> offset; what is not named is unbounded."""

_RESTORE_ID = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,199}")


@dataclass(frozen=True)
class RecordFilter:
    """Which records of the window are restored; a record has to pass everything that is set.

    `keys`, `key_prefixes` and `key_regex` (Python, full match, on the key as UTF-8) choose by key, any of them.
    `predicate` is the dotted name of a function from a RECORD_SCHEMA batch to a boolean array; `sql` a condition over
    the same columns. `latest_per_key`: of each key only the last record that passes, a tombstone included.
    """

    keys: tuple[bytes, ...] = ()
    key_prefixes: tuple[bytes, ...] = ()
    key_regex: str | None = None
    predicate: str | None = None
    sql: str | None = None
    latest_per_key: bool = False


@dataclass(frozen=True)
class Outgoing:
    """What becomes of records on their way to the target.

    `partitioning`: `source` keeps kafka partition numbers, `murmur2` (Java's default) and `crc32` (librdkafka's
    consistent) hash the key, else a user's dotted Python name. `provenance_headers` adds the source's offset, kafka
    partition and timestamp as headers. `value` and `key` re-encode with the target's registry; `map_schema_ids`
    registers archived schemas there and rewrites the ids in payloads.
    """

    partitioning: str = "source"
    provenance_headers: bool = False
    transforms: tuple[TransformSettings, ...] = ()
    key: ConverterSettings | None = None
    value: ConverterSettings | None = None
    map_schema_ids: bool = False
    target_registry: RegistrySettings | None = None

    @property
    def has_mapper(self) -> bool:
        """Whether a user's own class may make several records of one."""
        return any(is_python_class(step) for step in self.transforms)


@dataclass(frozen=True, slots=True)
class Thaw:
    """Copies of objects in cold storage are asked for, for so many days; `days` None: none are.

    `tier` None is S3's default, `Standard`. `wait_seconds`: how long the restore waits for them.
    """

    days: int | None = None
    tier: ThawTier | None = None
    wait_seconds: float = 0.0


@dataclass(frozen=True)
class RestoreRequest:
    """Replay archived records of `topic` to `to_topic`.

    Without times and offsets everything is restored, records with out-of-range timestamps included. Times (with a
    timezone) and offsets are half-open and must both hold for a record. `target` is None for the connector's own
    cluster. The rates bound the whole restore. Run again under the same `restore_id`, it goes on where it ended.

    `windows` are more windows of time, in any order: a record has to be in one of them too (hours picked here and
    there). `exact` reads everything on a dry run, to count what filters let pass. A new topic gets
    `target_kafka_partitions`, by default as many as the source, and `replication_factor`, by default the brokers'.
    `connectors` are all that are known here: preflight looks among them for one that archives the target. Without
    `behavior_on_error` a source connector's file says it, see `on_error`; so it does of `thaw`, see `thawing`.

    Raises:
        ConfigError: the id cannot stand in an object key, or a window is empty or has no timezone.
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

    def __post_init__(self) -> None:
        if not _RESTORE_ID.fullmatch(self.restore_id):
            raise ConfigError(
                f"restore id {self.restore_id!r} is not usable: 1 to 200 letters, digits, '.', '_' and '-', the first "
                f"a letter or digit"
            )
        for start, end in ((self.from_time, self.to_time), *self.windows):
            _check_times(start, end)

    @property
    def target_kafka(self) -> KafkaSettings:
        return self.target or self.config.kafka

    @property
    def on_error(self) -> OnError:
        """`behavior.on.error` as asked, else as the file of a source connector has it, else `fail`."""
        source = self.config.source
        return self.behavior_on_error or (source.behavior_on_error if source else "fail")

    @property
    def thawing(self) -> Thaw:
        """`thaw` as asked, else as the file of a source connector has it."""
        source = self.config.source
        if source is None:
            return self.thaw
        return replace(self.thaw, days=self.thaw.days or source.thaw_days, tier=self.thaw.tier or source.thaw_tier)

    def key(self, name: str) -> str:
        """Object key of one of this restore's documents: `<restore dir>/<restore id><name>`."""
        return f"{self.config.archive.restore_dir}/{self.restore_id}{name}"

    @property
    def plan_key(self) -> str:
        return self.key(".json")

    @property
    def report_key(self) -> str:
        return self.key(".report.json")

    @property
    def page_key(self) -> str:
        """The report for people."""
        return self.key(".report.html")


def _check_times(from_time: datetime | None, to_time: datetime | None) -> None:
    for name, moment in (("from", from_time), ("to", to_time)):
        if moment is not None and moment.tzinfo is None:
            raise ConfigError(
                f"the {name} time {moment.isoformat()} has no timezone; write it with one, such as +00:00"
            )
    if from_time is not None and to_time is not None and from_time >= to_time:
        raise ConfigError(
            f"no time is in [{from_time.isoformat()}, {to_time.isoformat()}): the end must be after the start"
        )


@dataclass(frozen=True, slots=True)
class LeftOut:
    """How many records a stream did not send, and why.

    They had no key where the latest of each is wanted; a transform dropped them; they failed, which was ignored; they
    were routed to another topic.
    """

    without_key: int = 0
    filtered: int = 0
    failed: int = 0
    elsewhere: int = 0

    def __add__(self, other: "LeftOut") -> "LeftOut":
        return LeftOut(
            self.without_key + other.without_key,
            self.filtered + other.filtered,
            self.failed + other.failed,
            self.elsewhere + other.elsewhere,
        )


@dataclass(frozen=True, slots=True)
class KafkaPartitionReport:
    """What was restored of one source kafka partition, as read back from the target.

    Offsets are those of the first and the last record, None when there was no record. `foreign_count` and
    `doubled_count` are those of the target's kafka partition (`TargetReport`), and 0 where several streams of the
    restore may share it: `RestoreReport.targets` tells them then. `altered_timestamps` counts records whose timestamp
    the client cannot send. `digest` is the record digest of the archived records that were selected. Of objects that
    others wrote, `topic` is the source's, `skipped` names bad objects and records that were left out, `notes` say what
    cannot be known of the records, and `gaps` which offsets between two objects are in none.
    """

    kafka_partition: int
    record_count: int
    record_bytes: int
    out_of_range_count: int
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
    skipped: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    doubled_count: int = 0
    gaps: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TargetReport:
    """What a kafka partition of the target holds besides what was sent there, in offsets `[start_offset, end_offset)`.

    `doubled_count` counts records that equal one which was sent there, beyond those: the same record once more.
    `foreign_count` counts the others: other writers' records. `open_offset` is where an open transaction of somebody
    begins, behind which nothing was read; None where there was none. `stream_count` source kafka partitions go there.
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
        """Topic and kafka partition."""
        return self.to_topic, self.kafka_partition


@dataclass(frozen=True)
class RestoreReport:
    """What a restore did, or on a dry run what it would do.

    `record_count` and `record_bytes` (keys, values and headers) are exact once restored; of a dry run they are exact
    where `exact` is true and an upper bound otherwise; with `before_transforms` they are of records as they are read,
    and transforms or failures may make fewer or more of them. `sent_count` is what this run sent: less than
    `record_count` where an earlier run of this restore id had sent some. `gaps`, `notes` and `refusals` are sentences
    for people: what the archive lacks of the window, what preflight had to say, and why it would refuse (dry run only).
    `already_finished`: this restore id was finished before, nothing was sent now and the numbers are those of then.
    `asked` is what was asked for, the windows among it, as JSON; `skipped` are sentences, one for each object or record
    that was left out because it is bad; `schema_ids` are pairs of an archived id and the target registry's.
    `finished_at` is ISO 8601 in UTC. `left_out` are the keys of bad objects, None in reports of earlier versions.
    `targets` are the kafka partitions that records may have gone to, as read back; reports of earlier versions have
    none. `of_others`: objects were read by their format and names, not by an index.
    """

    restore_id: str
    topic: str
    to_topic: str
    kafka_partitions: tuple[KafkaPartitionReport, ...]
    record_count: int
    record_bytes: int
    exact: bool
    out_of_range_count: int
    object_count: int
    object_bytes: int
    sent_count: int
    gaps: tuple[str, ...]
    notes: tuple[str, ...]
    refusals: tuple[str, ...]
    plan_key: str
    plan_digest: str
    estimated_seconds: float
    replay_seconds: float
    verify_seconds: float
    verified: bool
    dry_run: bool
    already_finished: bool = False
    asked: Mapping[str, Any] = field(default_factory=dict)
    skipped: tuple[str, ...] = ()
    schema_ids: tuple[tuple[int, int], ...] = ()
    finished_at: str = ""
    left_out: tuple[str, ...] | None = None
    before_transforms: bool = False
    targets: tuple[TargetReport, ...] = ()
    of_others: bool = False

    @property
    def records_per_second(self) -> float:
        """Of sending, verification apart."""
        return self.sent_count / self.replay_seconds if self.replay_seconds else 0.0

    @property
    def page_key(self) -> str:
        """Object key of this report as a page."""
        return self.plan_key.removesuffix(".json") + ".report.html"

    @property
    def foreign_count(self) -> int:
        """Records of other writers between and after ours."""
        return sum(p.foreign_count for p in self.targets or self.kafka_partitions)

    @property
    def doubled_count(self) -> int:
        """Records that the target holds once more than they were sent."""
        return sum(p.doubled_count for p in self.targets)

    def to_json(self) -> bytes:
        return json.dumps(asdict(self), indent=1).encode()

    @staticmethod
    def from_json(content: bytes, key: str) -> "RestoreReport":
        """The report that `to_json` wrote. IntegrityError if it is none."""
        return document(content, RestoreReport, key)
