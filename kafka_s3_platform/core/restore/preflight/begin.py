"""Begins a restore: creates its target if asked, notes the target's end offsets, and stores the plan in the bucket."""

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain

from kafka_s3_platform.core.errors import (
    ConfigError,
    MissingTopicError,
    PreflightError,
    SupersededError,
    TopicRecreatedError,
)
from kafka_s3_platform.core.kafka.admin import ClusterAdmin, TopicDescription
from kafka_s3_platform.core.restore.outgoing.partitioning import SOURCE
from kafka_s3_platform.core.restore.preflight.checks import Target, observe_targets
from kafka_s3_platform.core.restore.preflight.target import make_topic_configs
from kafka_s3_platform.core.restore.request import RestoreReport, RestoreRequest
from kafka_s3_platform.core.restore.source.base import TargetPlan, TargetStart
from kafka_s3_platform.core.store.errors import NotFoundError, PreconditionError
from kafka_s3_platform.core.store.objects import ObjectStore

logger = logging.getLogger(__name__)


def create_target(plan: TargetPlan, size: int, target: Target, admin: ClusterAdmin) -> Target:
    """Create the target topic with `size` kafka partitions, and return it as the cluster then shows it."""
    configs, _ = make_topic_configs(plan, target.configs.now, target.not_taken)
    # -1: the brokers use their own default.
    admin.create_topic(plan.to_topic, size, plan.request.replication_factor or -1, configs=configs)
    logger.info("created topic %s with %d kafka partitions", plan.to_topic, size)
    # Observe again: only the created topic shows the configs of its brokers.
    return observe_targets([plan], admin, target.cluster, target.most_transaction_ms)[0]


def take_back(created: Iterable[Target], admin: ClusterAdmin) -> str:
    """Delete the targets just created, unless somebody uses them. Return a sentence about it."""
    deleted: list[str] = []
    remaining: list[str] = []
    for description in (target.description for target in created):
        if description is not None:
            is_deleted = admin.delete_topic(description.topic, description.topic_id, only_unused=True)
            (deleted if is_deleted else remaining).append(description.topic)
    sentences = [f"topics created for this check and deleted again: {', '.join(deleted)}"] * bool(deleted)
    sentences += [f"topics created for this check and not deleted: {', '.join(remaining)}"] * bool(remaining)
    return f"{'; '.join(sentences)}. Create the target yourself, as described above, and run again" if sentences else ""


def read_target_start(target: Target) -> TargetStart:
    """Return the target as it is before the first record: its id and its end offsets."""
    if target.description is None:
        raise MissingTopicError(
            f"topic {target.configs.topic} was just created, but the cluster does not show it: run again"
        )
    offsets = tuple((p, frontier.high_watermark) for p, frontier in sorted(target.frontiers.items()))
    return TargetStart(target.description.topic_id, offsets)


def check_target(request: RestoreRequest, start: TargetStart, current: TopicDescription | None) -> TopicDescription:
    """Return the topic if it has not changed since the restore began.

    Raises:
        MissingTopicError, TopicRecreatedError: see `check_same_topic`.
        PreflightError: keys choose the kafka partition, and the topic now has another number of kafka partitions.
    """
    topic = check_same_topic(request, start, current)
    partitioning = request.outgoing.partitioning
    count = len(start.offsets)
    now = len(topic.kafka_partitions)
    if partitioning != SOURCE and count != now:
        raise PreflightError(
            f"restore {request.restore_id} distributes records by {partitioning} over the {count} kafka partitions "
            f"that {request.to_topic} had when the restore began, but it now has {now}. Records of one key would be "
            "in two of them, out of order. Restore to another topic under another restore id"
        )
    return topic


def check_same_topic(request: RestoreRequest, start: TargetStart, current: TopicDescription | None) -> TopicDescription:
    """Return the topic if it is the one the restore began with.

    Raises:
        MissingTopicError: the topic was deleted.
        TopicRecreatedError: another topic of this name has been created since.
    """
    another = "Restore under another restore id"
    if current is None:
        raise MissingTopicError(
            f"restore {request.restore_id}: the target topic {request.to_topic} was deleted after the restore began. "
            f"{another}"
        )
    if current.topic_id != start.topic_id:
        raise TopicRecreatedError(
            f"restore {request.restore_id} began with target topic {request.to_topic} of id {start.topic_id}, but "
            f"that topic now has id {current.topic_id}: it was deleted and created again. {another}"
        )
    return current


def check_new_id(request: RestoreRequest, store: ObjectStore) -> None:
    """Check that a restore without a plan shares no document with another restore.

    Raises:
        ConfigError: its plan would lie at the key of another restore's report.
        PreflightError: an object is at its report's key, either a report whose plan is gone or another restore's plan.
    """
    named = request.restore_id.removesuffix(".report")
    if named != request.restore_id:
        raise ConfigError(
            f"restore id {request.restore_id} cannot be used: its plan would be stored at {request.documents.plan}, "
            f"which is the key of the report of restore id {named}. Use a restore id that does not end with .report"
        )
    if store.head(request.documents.report) is not None:
        raise PreflightError(
            f"restore id {request.restore_id} has no plan, but there is an object at the key of its report, "
            f"{request.documents.report}: the report of a restore whose plan was deleted, or the plan of another "
            "restore id. Use another restore id"
        )


def store_plan(request: RestoreRequest, store: ObjectStore, document: bytes) -> None:
    """Create the plan's object. From then on this restore id has exactly one plan.

    Raises:
        SupersededError: another run has just begun the same restore.
    """
    try:
        store.put_new(request.documents.plan, document)
    except PreconditionError as err:
        raise SupersededError(
            f"another run has just begun restore {request.restore_id} ({request.documents.plan}). Let it finish, or "
            "stop it and run again"
        ) from err


def read_stored_report(request: RestoreRequest, store: ObjectStore) -> RestoreReport | None:
    """Return the report of a finished restore, or None if the restore is not finished."""
    try:
        return RestoreReport.from_json(store.get(request.documents.report), request.documents.report)
    except NotFoundError:
        return None


def read_finished_report(
    request: RestoreRequest, starts: Mapping[str, TargetStart], store: ObjectStore
) -> RestoreReport | None:
    """Return the report of a finished restore, with notes on later deletions, or None if it is not finished.

    The numbers are from the time of the restore: no record is sent or read now.

    Raises:
        MissingTopicError, TopicRecreatedError: a target topic was deleted, or created again.
    """
    finished = read_stored_report(request, store)
    if finished is None:
        return None
    with ClusterAdmin(request.target_kafka) as admin:
        since = {name: tuple(_describe_deleted(request, name, start, admin)) for name, start in starts.items()}

    def tell_deleted(report: RestoreReport, sentences: Iterable[str]) -> RestoreReport:
        """Return the report as the report of a finished restore, with sentences on records deleted since then."""
        return replace(
            report,
            already_finished=True,
            dry_run=request.dry_run,
            notes=(*report.notes, *sentences),
            doubts=(*report.doubts, *sentences),
        )

    # If there are several topics, each part has its own verdict.
    parts = tuple(tell_deleted(part, since.get(part.to_topic, ())) for part in finished.parts)
    return replace(tell_deleted(finished, tuple(chain.from_iterable(since.values()))), parts=parts)


def _describe_deleted(request: RestoreRequest, to_topic: str, start: TargetStart, admin: ClusterAdmin) -> Iterator[str]:
    """Describe a target's offsets that were deleted since the restore began. Raises as `check_same_topic` does."""
    try:
        current = admin.describe_topic(to_topic)
    except MissingTopicError:
        current = None
    check_same_topic(replace(request, to_topic=to_topic), start, current)
    logs = admin.frontiers(to_topic, [number for number, _ in start.offsets])
    for number, offset in start.offsets:
        begins = logs[number].log_start_offset
        if begins > offset:
            yield (
                f"{to_topic}-{number} now begins at offset {begins}: the records that were in offsets [{offset}, "
                f"{begins}) when the restore ended have been deleted since"
            )
