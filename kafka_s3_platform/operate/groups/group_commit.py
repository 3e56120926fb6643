"""Commits translated offsets of consumer groups at the target, and resets them by a document of earlier offsets."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone

import msgspec

from kafka_s3_platform.core.errors import IntegrityError, PermanentError, PreflightError
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.kafka.groups import (
    Committed,
    delete_offsets,
    publish_offsets_of,
    read_committed_of,
    refuse_active_group,
)
from kafka_s3_platform.operate.groups.group_offsets import Precision, TranslatedOffset, Translation, check_topic_id


@dataclass(frozen=True)
class TopicBefore:
    """A target, and each group's committed offsets before the change, by kafka partition, or None for no offset."""

    topic_id: str
    groups: Mapping[str, Mapping[int, Committed | None]]


@dataclass(frozen=True)
class Rollback:
    """Everything needed to undo an `apply_translations`, with the targets by name."""

    restore_id: str
    written_at: str
    topics: Mapping[str, TopicBefore]

    def to_json(self) -> bytes:
        return json.dumps(asdict(self), indent=1).encode()

    @staticmethod
    def from_json(content: bytes) -> "Rollback":
        """Parse a document from `to_json`. Raises PermanentError if it is something else."""
        try:
            return msgspec.json.decode(content, type=Rollback)
        except (ValueError, msgspec.MsgspecError) as err:
            raise PermanentError(f"this is no rollback file of kafka-s3 groups: {err!r}") from err


def check_translations(admin: ClusterAdmin, translations: Sequence[Translation], *, allow_approximate: bool) -> None:
    """Refuse translations that may not be committed.

    Raises:
        BusyError: a group has members.
        PreflightError: an offset is approximate or has no place, and this is not allowed.
    """
    doubtful: list[str] = []
    topics: dict[str, str] = {}
    for translation in translations:
        topics |= dict.fromkeys(translation.groups, translation.to_topic)
    for group, topic in topics.items():
        refuse_active_group(admin, group, f"setting offsets of topic {topic}")
    for translation in translations:
        for group, offsets in translation.groups.items():
            doubtful += (
                f"\n{group}, {translation.to_topic}, kafka partition {o.kafka_partition}: {o.reason}"
                for o in offsets
                if o.precision is not Precision.EXACT
            )
    if doubtful and not allow_approximate:
        count = sum(len(translation.offsets) for translation in translations)
        raise PreflightError(
            f"{len(doubtful)} of {count} offsets of restore {translations[0].restore_id} are not exact; "
            f"nothing was committed. Leave their groups out with --group, or allow it: --allow-approximate commits "
            f"approximate offsets, and leaves out those that have no place:{''.join(doubtful)}"
        )


def apply_translations(
    admin: ClusterAdmin,
    translations: Sequence[Translation],
    save: Callable[[bytes], object],
    *,
    allow_approximate: bool = False,
    sets_back: bool = True,
) -> Rollback:
    """Commit the translated offsets, read them back and compare. Before the first commit, `save` stores the rollback.

    The offsets of a group are committed for all targets in one request.

    Raises:
        BusyError, PreflightError: as in `check_translations`, before anything is changed. If not `sets_back`, also if a
            group has other offsets at the target.
        TopicRecreatedError: a target was deleted and created again.
        IntegrityError: the offsets read back differ from those committed.
    """
    check_translations(admin, translations, allow_approximate=allow_approximate)
    restore_id = translations[0].restore_id
    offsets: dict[str, dict[str, dict[int, Committed]]] = defaultdict(dict)
    targets = admin.find_topics(translation.to_topic for translation in translations).all_or_raise()
    for translation in translations:
        check_topic_id(translation.to_topic, targets[translation.to_topic].topic_id, translation.to_topic_id)
        for group, rows in translation.groups.items():
            if places := _list_targets(rows):
                offsets[group][translation.to_topic] = places
    earlier_offsets: dict[str, dict[str, Mapping[int, Committed | None]]] = {t.to_topic: {} for t in translations}
    for group, by_topic in offsets.items():
        for topic, committed in read_committed_of(admin, group, by_topic).items():
            places = by_topic[topic]
            if not sets_back and any(committed[p].offset != places[p].offset for p in committed):
                raise PreflightError(
                    f"group {group} has committed other offsets of {topic}: it has gone on since. Nothing was changed; "
                    f"to set it back: kafka-s3 groups {restore_id} --group {group} --apply"
                )
            earlier_offsets[topic][group] = {p: committed.get(p) for p in sorted(places)}
    topics = {t.to_topic: TopicBefore(t.to_topic_id, earlier_offsets[t.to_topic]) for t in translations}
    rollback = Rollback(restore_id, datetime.now(timezone.utc).isoformat(), topics)
    # Saved before the first commit: whatever fails from here on can be undone.
    save(rollback.to_json())
    for group, by_topic in offsets.items():
        _commit_offsets(admin, group, by_topic)
    return rollback


def _list_targets(offsets: Iterable[TranslatedOffset]) -> dict[int, Committed]:
    """Return the offsets to commit at the target, by kafka partition. Offsets without a place are left out."""
    by_kafka_partition: dict[int, Committed] = {}
    for offset in offsets:
        if offset.target_offset is not None:
            by_kafka_partition[offset.kafka_partition] = Committed(offset.target_offset, offset.metadata)
    return by_kafka_partition


def roll_back_groups(admin: ClusterAdmin, rollback: Rollback) -> list[str]:
    """Undo `apply_translations`. Return sentences about the changes.

    If a group had committed nothing before, its offset is removed. Kafka itself removes a group without offsets.
    Offsets of other topics are not touched. If an offset cannot be removed, a sentence says so.
    """
    for topic, topic_before in rollback.topics.items():
        check_topic_id(topic, admin.describe_topic(topic).topic_id, topic_before.topic_id)
        for group in topic_before.groups:
            refuse_active_group(admin, group, f"setting back offsets of topic {topic}")
    lines: list[str] = []
    for topic, topic_before in rollback.topics.items():
        for group, group_offsets in topic_before.groups.items():
            sentences = _undo_group(admin, group, topic, group_offsets)
            lines += sentences if len(rollback.topics) == 1 else (f"{topic}: {sentence}" for sentence in sentences)
    return lines


def _undo_group(
    admin: ClusterAdmin, group: str, topic: str, earlier_offsets: Mapping[int, Committed | None]
) -> Iterator[str]:
    """Set a group's offsets of a topic back, and yield a sentence for each. Remove an offset that was None before."""
    offsets = {p: c for p, c in earlier_offsets.items() if c is not None}
    _commit_offsets(admin, group, {topic: offsets})
    yield from (f"{group}, kafka partition {p}: back at offset {c.offset}" for p, c in sorted(offsets.items()))
    if none := sorted(set(earlier_offsets) - set(offsets)):
        yield _take_back(admin, group, topic, none)


def _take_back(admin: ClusterAdmin, group: str, topic: str, kafka_partitions: Sequence[int]) -> str:
    """Delete the group's offsets of these kafka partitions. Return a sentence about it, or about why they stay."""
    numbers = ",".join(map(str, kafka_partitions))
    opening = f"{group}: had committed nothing of kafka partitions {numbers} before"
    try:
        delete_offsets(admin, group, topic, kafka_partitions)
    except PermanentError as err:
        return (
            f"{opening}; their offsets stay ({err}). Remove them with kafka-consumer-groups.sh --bootstrap-server "
            f"HOST:PORT --delete-offsets --group {group} --topic {topic}:{numbers}"
        )
    return f"{opening}; their offsets are removed"


def _commit_offsets(admin: ClusterAdmin, group: str, offsets: Mapping[str, Mapping[int, Committed]]) -> None:
    """Commit a group's offsets of these topics in one request, and read them back."""
    publish_offsets_of(admin, group, offsets)
    # Another client may commit for the same group meanwhile. The group had no members, but nothing locks it.
    committed = read_committed_of(admin, group, offsets)
    differences: list[str] = []
    for topic, places in offsets.items():
        for number, place in places.items():
            now = committed[topic][number].offset if number in committed[topic] else "none"
            if now != place.offset:
                differences.append(f"{topic}-{number}: {now} instead of {place.offset}")
    if differences:
        raise IntegrityError(
            f"offsets of consumer group {group} were committed and read back otherwise ({', '.join(differences)}): "
            f"somebody else commits in its name. Stop that, and apply again; the rollback file has what was before"
        )
