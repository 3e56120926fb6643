"""What a caller asks of a restore, and what it gets back."""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from kafka_s3_platform.config.settings import ConnectorConfig, KafkaSettings
from kafka_s3_platform.errors import ConfigError

Offsets = int | Mapping[int, int] | None
"""One offset for every kafka partition, or kafka partition -> offset; what is not named is unbounded."""

_RESTORE_ID = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,199}")


@dataclass(frozen=True)
class RestoreRequest:
    """Replay archived records of `topic` to `to_topic`.

    Without times and offsets everything is restored, records with out-of-range timestamps included. Times (with a
    timezone) and offsets are half-open and must both hold for a record. `target` is None for the connector's own
    cluster. The rates bound the whole restore. Run again under the same `restore_id`, it goes on where it ended.

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

    def __post_init__(self) -> None:
        if not _RESTORE_ID.fullmatch(self.restore_id):
            raise ConfigError(
                f"restore id {self.restore_id!r} is not usable: 1 to 200 letters, digits, '.', '_' and '-', the first "
                f"a letter or digit"
            )
        _check_times(self.from_time, self.to_time)

    @property
    def target_kafka(self) -> KafkaSettings:
        return self.target or self.config.kafka

    def key(self, name: str) -> str:
        """Object key of one of this restore's documents: `<restore dir>/<restore id><name>`."""
        return f"{self.config.archive.restore_dir}/{self.restore_id}{name}"

    @property
    def plan_key(self) -> str:
        return self.key(".json")

    @property
    def report_key(self) -> str:
        return self.key(".report.json")

    def checkpoint_key(self, kafka_partition: int) -> str:
        return self.key(f"/{kafka_partition}.json")

    def mapping_key(self, kafka_partition: int) -> str:
        return self.key(f"/{kafka_partition}.mapping.parquet")


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
class KafkaPartitionReport:
    """What was restored of one source kafka partition, as read back from the target.

    Offsets are those of the first and the last record, None when there was no record. `foreign_count` counts records of
    other writers among ours. `altered_timestamps` counts records whose timestamp the client cannot send. `digest` is
    the record digest of the archived records that were selected.
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


@dataclass(frozen=True)
class RestoreReport:
    """What a restore did, or on a dry run what it would do.

    `record_count` and `record_bytes` (keys and values) are exact once restored; of a dry run they are exact where
    `exact` is true and an upper bound otherwise. `sent_count` is what this run sent: less than `record_count` where an
    earlier run of this restore id had sent some. `gaps`, `notes` and `refusals` are sentences for people: what the
    archive lacks of the window, what preflight had to say, and why it would refuse (dry run only).
    `already_finished`: this restore id was finished before, nothing was sent now and the numbers are those of then.
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

    @property
    def records_per_second(self) -> float:
        """Of sending, verification apart."""
        return self.sent_count / self.replay_seconds if self.replay_seconds else 0.0

    @property
    def foreign_count(self) -> int:
        """Records of other writers between and after ours."""
        return sum(p.foreign_count for p in self.kafka_partitions)

    def to_json(self) -> bytes:
        return json.dumps(asdict(self), indent=1).encode()

    @staticmethod
    def from_json(content: bytes) -> "RestoreReport":
        """The report that `to_json` wrote."""
        document: dict[str, Any] = json.loads(content)
        document["kafka_partitions"] = tuple(KafkaPartitionReport(**p) for p in document["kafka_partitions"])
        for name in ("gaps", "notes", "refusals"):
            document[name] = tuple(document[name])
        return RestoreReport(**document)
