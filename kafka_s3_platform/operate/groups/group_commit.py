"""Commits translated offsets of consumer groups at the target, and resets them by a document of the offsets before."""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Any

from kafka_s3_platform.core.errors import IntegrityError, PermanentError, PreflightError
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.kafka.groups import (
    Committed,
    delete_offsets,
    publish_offsets,
    read_committed,
    read_group_state,
    refuse_active_group,
)
from kafka_s3_platform.operate.groups.group_offsets import Precision, TranslatedOffset, Translation, check_topic_id


@dataclass(frozen=True)
class GroupBefore:
    """A group's committed offsets at the target before the change, by kafka partition; None for none."""

    existed: bool
    offsets: Mapping[int, Committed | None]


@dataclass(frozen=True)
class Rollback:
    """Everything needed to undo an `apply_translation`."""

    restore_id: str
    topic: str
    topic_id: str
    written_at: str
    groups: Mapping[str, GroupBefore]

    def to_json(self) -> bytes:
        return json.dumps(asdict(self), indent=1).encode()

    @staticmethod
    def from_json(content: bytes) -> "Rollback":
        """Parse a document of `to_json`. Raises PermanentError if it is something else."""
        try:
            document: dict[str, Any] = json.loads(content)
            groups = {g: _parse_before(b) for g, b in document.pop("groups").items()}
            return Rollback(**document, groups=groups)
        except (ValueError, TypeError, KeyError, AttributeError) as err:
            raise PermanentError(f"this is no rollback file of kafka-s3 groups: {err!r}") from err


def _parse_before(document: Mapping[str, Any]) -> GroupBefore:
    offsets = {int(p): c and Committed(**c) for p, c in document["offsets"].items()}
    return GroupBefore(document["existed"], offsets)


def check_translation(admin: ClusterAdmin, translation: Translation, *, allow_approximate: bool) -> None:
    """Refuse translations that may not be committed.

    Raises:
        BusyError: a group has members.
        PreflightError: an offset is approximate or has no place, and this was not allowed.
    """
    for group in translation.groups:
        refuse_active_group(admin, group, f"setting offsets of topic {translation.to_topic}")
    doubtful = [o for o in translation.offsets if o.precision is not Precision.EXACT]
    if doubtful and not allow_approximate:
        listed = "".join(f"\n{o.group_id}, kafka partition {o.kafka_partition}: {o.reason}" for o in doubtful)
        raise PreflightError(
            f"{len(doubtful)} of {len(translation.offsets)} offsets of restore {translation.restore_id} are not exact; "
            f"nothing was committed. Leave their groups out with --group, or allow it: --allow-approximate commits "
            f"approximate offsets, and leaves out those that have no place:{listed}"
        )


def apply_translation(
    admin: ClusterAdmin, translation: Translation, save: Callable[[bytes], object], *, allow_approximate: bool = False
) -> Rollback:
    """Commit the translated offsets at the target, read them back and compare. `save` keeps the rollback before that.

    Raises:
        BusyError, PreflightError: as `check_translation`, before anything is changed.
        TopicRecreatedError: the target was deleted and created again.
        IntegrityError: other offsets are read back than were committed.
    """
    check_translation(admin, translation, allow_approximate=allow_approximate)
    topic = translation.to_topic
    check_topic_id(topic, admin.describe_topic(topic).topic_id, translation.to_topic_id)
    targets = {group: _list_targets(offsets) for group, offsets in translation.groups.items()}
    rollback = Rollback(
        restore_id=translation.restore_id,
        topic=topic,
        topic_id=translation.to_topic_id,
        written_at=datetime.now(timezone.utc).isoformat(),
        groups={g: _read_before(admin, g, topic, offsets) for g, offsets in targets.items() if offsets},
    )
    # Saved before the first commit: whatever fails from here on can be undone.
    save(rollback.to_json())
    for group, offsets in targets.items():
        _commit_offsets(admin, group, topic, offsets)
    return rollback


def _list_targets(offsets: Iterable[TranslatedOffset]) -> dict[int, Committed]:
    by_kafka_partition: dict[int, Committed] = {}
    for offset in offsets:
        if offset.target_offset is not None:
            by_kafka_partition[offset.kafka_partition] = Committed(offset.target_offset, offset.metadata)
    return by_kafka_partition


def roll_back_groups(admin: ClusterAdmin, rollback: Rollback) -> list[str]:
    """Undo `apply_translation`. Return sentences about the changes.

    If a group had nothing committed before, its offset is removed. Kafka itself removes a group that has no offset
    left. Offsets at other topics are not touched. If an offset cannot be removed, a sentence says so.
    """
    topic = rollback.topic
    check_topic_id(topic, admin.describe_topic(topic).topic_id, rollback.topic_id)
    for group in rollback.groups:
        refuse_active_group(admin, group, f"setting back offsets of topic {topic}")
    lines: list[str] = []
    for group, before in rollback.groups.items():
        lines += _undo_group(admin, group, topic, before)
    return lines


def _undo_group(admin: ClusterAdmin, group: str, topic: str, before: GroupBefore) -> Iterator[str]:
    offsets = {p: c for p, c in before.offsets.items() if c is not None}
    _commit_offsets(admin, group, topic, offsets)
    yield from (f"{group}, kafka partition {p}: back at offset {c.offset}" for p, c in sorted(offsets.items()))
    if none := sorted(set(before.offsets) - set(offsets)):
        yield _take_back(admin, group, topic, none)


def _take_back(admin: ClusterAdmin, group: str, topic: str, kafka_partitions: Sequence[int]) -> str:
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


def _read_before(admin: ClusterAdmin, group: str, topic: str, kafka_partitions: Collection[int]) -> GroupBefore:
    committed = read_committed(admin, group, topic, kafka_partitions)
    existed = read_group_state(admin, group).state != "DEAD" or bool(committed)
    return GroupBefore(existed, {p: committed.get(p) for p in sorted(kafka_partitions)})


def _commit_offsets(admin: ClusterAdmin, group: str, topic: str, offsets: Mapping[int, Committed]) -> None:
    if not offsets:
        return
    publish_offsets(
        admin,
        group,
        topic,
        {p: c.offset for p, c in offsets.items()},
        {p: c.metadata for p, c in offsets.items()},
    )
    # Another client may commit for the same group meanwhile: no member was there, but nothing locks a group.
    committed = read_committed(admin, group, topic, offsets)
    wrong = {p: c.offset for p, c in offsets.items() if p not in committed or committed[p].offset != c.offset}
    if wrong:
        named = ", ".join(
            f"{p}: {committed[p].offset if p in committed else 'none'} instead of {o}" for p, o in wrong.items()
        )
        raise IntegrityError(
            f"offsets of consumer group {group} at topic {topic} were committed and read back otherwise ({named}): "
            f"somebody else commits in its name. Stop that, and apply again; the rollback file has what was before"
        )
