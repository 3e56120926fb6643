"""Evidence: a numbered document for each restore, rehearsal and deep verification, signed if there is a key.

A rehearsal is a trial restore of some hours. Evidence lies in the archive, so it outlives Dagster. A connector's newest
document also says when the records of each topic last came back.
"""

import logging
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from importlib.metadata import version
from typing import Any, Literal

import msgspec

from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.errors import IntegrityError
from kafka_s3_platform.core.model.health import Proof
from kafka_s3_platform.core.model.turns import TopicTurns
from kafka_s3_platform.core.restore.documents import DocumentHeader
from kafka_s3_platform.core.restore.request import RestoreReport, judge_report, list_missing
from kafka_s3_platform.core.restore.signing import EvidenceKey
from kafka_s3_platform.core.store.errors import PreconditionError
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform.core.text import count_noun

logger = logging.getLogger(__name__)

EVIDENCE_FORMAT = 1
"""The format of this version's evidence."""

SIGNATURE_SUFFIX = ".sig"

_NAMES = frozenset({"connector", "topic", "topics", "to_topic", "topics_regex"})
"""The terms of a restore that only name what it was of."""

_NAME = re.compile(r"(\d{6,})\.json")

EvidenceKind = Literal["restore", "rehearsal", "verification"]

_RESTORED = (
    "Every record that was sent was looked for in the target: equal key, value, headers and timestamp, in "
    "the order of its kafka partition, as often as it was sent. `terms` is what was asked for, if not all records as "
    "they were. `digest` is the record digest (XXH3, 128 bits) of what was sent, in order. `plan_digest` is the SHA-256"
    " of the plan, which has the SHA-256 of each object."
)
METHODS: Mapping[EvidenceKind, str] = {
    "restore": _RESTORED,
    "rehearsal": f"The records of the hours in `windows` were restored to topics that were deleted then. {_RESTORED} "
    "Their number was compared with that of the index.",
    "verification": "Every object was read to its end, and compared with the index: SHA-256, number of records, record "
    "digest and offsets. `digest` is the SHA-256 of the lines `<SHA-256 of an object> <its key>`, sorted.",
}
"""The way in which each kind of evidence comes about. Each document says it, for readers who have nothing else."""


@dataclass(frozen=True, kw_only=True)
class ComparedOffsets:
    """The records of a source kafka partition that came back. The offsets are of the first and the last record."""

    kafka_partition: int
    records: int
    record_bytes: int
    first_offset: int | None
    last_offset: int | None
    digest: str


@dataclass(frozen=True, kw_only=True)
class ComparedTopic:
    """The comparison of a topic's archived records with `compared_with`. `left_out` are sentences with numbers.

    `is_complete` is True if every record to be compared was there, and equal. `digest`, if there is one, is of the
    whole topic. `windows` are the time windows `[start, end)` of a rehearsal. `terms` is what was asked of a restore
    besides names: windows, filters, changes.
    """

    topic: str
    compared_with: str
    records: int
    record_bytes: int
    verdict: str
    is_complete: bool
    left_out: tuple[str, ...] = ()
    kafka_partitions: tuple[ComparedOffsets, ...] = ()
    digest: str = ""
    windows: tuple[tuple[datetime, datetime], ...] = ()
    terms: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Standing:
    """The state of each topic by the evidence up to some document. Each document has it, so the newest is enough.

    `proofs` has the last proof of each topic, `turns` its hours in rehearsals. The last rehearsal sent and read back
    `bytes_per_second` of keys, values and headers. It is None if no rehearsal had records.
    """

    proofs: Mapping[str, Proof] = field(default_factory=dict)
    turns: Mapping[str, TopicTurns] = field(default_factory=dict)
    bytes_per_second: float | None = None

    def estimate_return(self, topics: Collection[str]) -> float | None:
        """Return about how many seconds a restore of these topics as a whole takes, at the measured rate.

        Returns None if nobody knows, because a topic was not rehearsed or no rate was measured.
        """
        if not self.bytes_per_second or not topics or any(topic not in self.turns for topic in topics):
            return None
        return sum(self.turns[topic].record_bytes for topic in topics) / self.bytes_per_second


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """A comparison of a connector's archive, which `bucket` has. `seconds` includes the time of sending, if any.

    `run` is the restore id, if there was one. `key` names the key that signed the evidence (see `EvidenceKey`), and is
    empty if none did.
    """

    kind: EvidenceKind
    connector: str
    bucket: str
    started_at: datetime
    finished_at: datetime
    seconds: float
    topics: tuple[ComparedTopic, ...]
    run: str = ""
    target: str = ""
    plan_digest: str = ""
    number: int = 0
    key: str = ""
    method: str = ""
    platform: str = ""
    standing: Standing = field(default_factory=Standing)

    @property
    def is_complete(self) -> bool:
        """True if there are topics, and the comparison of each is complete."""
        return bool(self.topics) and all(topic.is_complete for topic in self.topics)

    def to_json(self) -> bytes:
        """Write the evidence, and its format."""
        values = {"format": EVIDENCE_FORMAT, **msgspec.to_builtins(self)}
        return msgspec.json.format(msgspec.json.encode(values), indent=1) + b"\n"

    @staticmethod
    def from_json(content: bytes, key: str) -> "Evidence":
        """Read evidence. Raises IntegrityError if it is none, or not in the format of `to_json`. `key` names it."""
        try:
            header = msgspec.json.decode(content, type=DocumentHeader)
            if header.format != EVIDENCE_FORMAT:
                raise ValueError(f"its format is {header.format}, and this version reads {EVIDENCE_FORMAT}")
            return msgspec.json.decode(content, type=Evidence)
        except (msgspec.MsgspecError, ValueError, RecursionError, OverflowError) as err:
            raise IntegrityError(
                f"{key} is not evidence that this version can read: {err}. Somebody changed it, or another version "
                "wrote it. Fetch it from the archive again, and check it with the version that it names"
            ) from err


def describe_restored(report: RestoreReport) -> ComparedTopic:
    """Return the comparison made by a verified restore of one target."""
    dropped = report.left_out_records.filtered
    filtered = [f"{count_noun(dropped, 'record')} left out by transforms"] if dropped else []
    return ComparedTopic(
        topic=report.topic,
        compared_with=report.to_topic,
        records=report.record_count,
        record_bytes=report.record_bytes,
        verdict=judge_report(report).text,
        is_complete=judge_report(report).kind == "good",
        left_out=(*list_missing(report), *filtered, *map(str, report.doubts)),
        kafka_partitions=tuple(
            ComparedOffsets(
                kafka_partition=part.kafka_partition,
                records=part.record_count,
                record_bytes=part.record_bytes,
                first_offset=part.first_source_offset,
                last_offset=part.last_source_offset,
                digest=part.digest,
            )
            for part in report.kafka_partitions
        ),
        terms={name: value for name, value in report.terms.items() if value and name not in _NAMES},
    )


class EvidenceFolder:
    """The evidence of one connector, in its folder of restores: `evidence=<connector>/000001.json`, and so on.

    The signature of a document lies beside it, under the document's name with `.sig` added.
    """

    def __init__(self, config: ConnectorConfig) -> None:
        self._store = ObjectStore(config.restore_store)
        self._folder = f"{config.archive.restore_dir}/evidence={config.name}/"

    def read_newest(self) -> Evidence | None:
        """Return the newest document, or None if there is none. Raises IntegrityError if somebody changed it."""
        number = self._find_newest()
        return self._read(number) if number else None

    def read_standing(self) -> Standing:
        """Return the standing by all evidence, empty if the newest document cannot be read: nothing is proven then."""
        return self._read_standing(self._find_newest())

    def add(self, evidence: Evidence, key: EvidenceKey | None) -> Evidence:
        """Store the evidence under the next number, and sign it if there is a key. Return it as it is stored.

        The `standing` of a rehearsal has the turns of its own topics. The turns of other topics are taken from the
        document before it.

        If the process is killed before the signature is stored, the document stays unsigned. Its run is not finished
        then, and writes another document when it goes on.
        """
        named = replace(
            evidence,
            key=key.name if key else "",
            method=METHODS[evidence.kind],
            platform=f"kafka-s3-platform {version('kafka-s3-platform')}",
        )
        while True:
            number = self._find_newest() + 1
            standing = _add_to_standing(self._read_standing(number - 1), named)
            numbered = replace(named, number=number, standing=standing)
            content = numbered.to_json()
            place = self._key(number)
            try:
                self._store.put_new(place, content)
            except PreconditionError:
                # Another run was quicker.
                continue
            if key is not None:
                self._store.put_new(place + SIGNATURE_SUFFIX, key.sign(content))
            logger.info("evidence %s", self._store.uri(place))
            return numbered

    def _find_newest(self) -> int:
        """Return the number of the newest document, or 0 if there is none."""
        names = (info.key.removeprefix(self._folder) for info in self._store.list(self._folder))
        return max((int(match[1]) for match in map(_NAME.fullmatch, names) if match), default=0)

    def _read_standing(self, number: int) -> Standing:
        """Return the standing of a document. It is empty if the document cannot be read, and so proves nothing."""
        try:
            return self._read(number).standing if number else Standing()
        except IntegrityError as err:
            logger.warning("when topics last came back is not known, and told anew from now on: %s", err)
            return Standing()

    def _read(self, number: int) -> Evidence:
        key = self._key(number)
        return Evidence.from_json(self._store.get(key), key)

    def _key(self, number: int) -> str:
        return f"{self._folder}{number:06}.json"


def _add_to_standing(standing: Standing, evidence: Evidence) -> Standing:
    """Return the standing after one more document. Even an incomplete restore proves the records that came back."""
    proofs = {
        topic.topic: Proof(evidence.finished_at, evidence.kind, topic.records)
        for topic in evidence.topics
        if topic.records and (topic.is_complete or evidence.kind == "restore")
    }
    return Standing(
        proofs={**standing.proofs, **proofs},
        turns={**standing.turns, **evidence.standing.turns},
        bytes_per_second=evidence.standing.bytes_per_second or standing.bytes_per_second,
    )


def make_restore_evidence(
    config: ConnectorConfig, parts: Sequence[RestoreReport], report: RestoreReport, started_at: datetime, target: str
) -> Evidence:
    """Return one connector's evidence of a verified restore. `parts` are the reports of the connector's targets."""
    return Evidence(
        kind="restore",
        connector=config.name,
        bucket=config.store.bucket,
        started_at=started_at,
        finished_at=datetime.fromisoformat(report.finished_at),
        seconds=report.seconds,
        topics=tuple(map(describe_restored, parts)),
        run=report.restore_id,
        target=target,
        plan_digest=report.plan_digest,
    )
