"""How every restore begins: its target created if asked for, where that stood, and the plan in the bucket."""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace

from kafka_s3_platform.errors import (
    ConfigError,
    MissingTopicError,
    PreflightError,
    SupersededError,
    TopicRecreatedError,
)
from kafka_s3_platform.kafka.admin import ClusterAdmin, TopicDescription
from kafka_s3_platform.restore.partitioning import SOURCE
from kafka_s3_platform.restore.plan import RestorePlan, TargetStart
from kafka_s3_platform.restore.preflight import Target, describe_if_there, look_at_target, refuse, room_findings
from kafka_s3_platform.restore.request import RestoreReport, RestoreRequest
from kafka_s3_platform.restore.target import findings, new_topic_configs
from kafka_s3_platform.store.errors import NotFoundError, PreconditionError
from kafka_s3_platform.store.objects import ObjectStore

logger = logging.getLogger(__name__)


def create_target(request: RestoreRequest, plan: RestorePlan, size: int, target: Target, admin: ClusterAdmin) -> Target:
    """Create the topic that is not there yet, with `size` kafka partitions; what it is then.

    Raises:
        PreflightError: the defaults of its brokers, which are known only now, would not keep the records.
    """
    configs, _ = new_topic_configs(request, plan, target.configs.now, target.not_taken)
    admin.create_topic(request.to_topic, size, request.replication_factor or -1, configs=configs)
    logger.info("created topic %s with %d kafka partitions", request.to_topic, size)
    created = look_at_target(request, admin)
    # Objects of others have no counts, and no size that could be too large for certain.
    room = room_findings(request, plan, created) if plan.record_count else ()
    refuse(request, [*findings(request, plan, created.configs, {}), *room])
    return created


def target_start(request: RestoreRequest, target: Target) -> TargetStart:
    """Where the target stands before the first record."""
    if target.description is None:
        raise MissingTopicError(f"topic {request.to_topic} was just created and is not there; run again")
    offsets = tuple((p, frontier.high_watermark) for p, frontier in sorted(target.frontiers.items()))
    return TargetStart(target.description.topic_id, offsets)


def check_target(request: RestoreRequest, start: TargetStart, found: TopicDescription | None) -> TopicDescription:
    """The topic, if it is as it was when the restore began.

    Raises:
        MissingTopicError, TopicRecreatedError: as `check_same_topic` does.
        PreflightError: keys choose the kafka partition, and it has another number of them now.
    """
    topic = check_same_topic(request, start, found)
    partitioning, count, now = request.outgoing.partitioning, len(start.offsets), len(topic.kafka_partitions)
    if partitioning != SOURCE and count != now:
        raise PreflightError(
            f"restore {request.restore_id} deals records out by {partitioning} over the {count} kafka partitions that "
            f"{request.to_topic} had when it began; now it has {now}. Records of one key would lie in two of them, out "
            f"of order. Restore to another topic, under another restore id"
        )
    return topic


def check_same_topic(request: RestoreRequest, start: TargetStart, found: TopicDescription | None) -> TopicDescription:
    """The topic, if it is the one that the restore has begun with.

    Raises:
        MissingTopicError: there is none any more.
        TopicRecreatedError: it is another of the same name.
    """
    another = "Restore under another restore id"
    if found is None:
        raise MissingTopicError(
            f"restore {request.restore_id}: its target topic {request.to_topic} was deleted since it began. {another}"
        )
    if found.topic_id != start.topic_id:
        raise TopicRecreatedError(
            f"restore {request.restore_id} began with target topic {request.to_topic} of id {start.topic_id}; the one "
            f"there now has id {found.topic_id}: it was deleted and created again. {another}"
        )
    return found


def check_new_id(request: RestoreRequest, store: ObjectStore) -> None:
    """That a restore which has no plan yet would share no document with another one.

    Raises:
        ConfigError: its plan would lie where the report of another restore id does.
        PreflightError: something lies where its report is to be: a report without its plan, or another restore's plan.
    """
    named = request.restore_id.removesuffix(".report")
    if named != request.restore_id:
        raise ConfigError(
            f"restore id {request.restore_id}: its plan would be the object {request.plan_key}, which is the report of "
            f"restore id {named}. Take one that does not end with .report"
        )
    if store.head(request.report_key) is not None:
        raise PreflightError(
            f"restore id {request.restore_id}: it has no plan, and where its report is to be, {request.report_key}, "
            f"something lies: the report of a restore whose plan was deleted, or the plan of another restore id. Take "
            f"another restore id"
        )


def store_plan(request: RestoreRequest, store: ObjectStore, document: bytes) -> None:
    """Create the plan's object: from here on this restore id has one plan.

    Raises:
        SupersededError: another run has just begun the same restore.
    """
    try:
        store.put_new(request.plan_key, document)
    except PreconditionError as err:
        raise SupersededError(
            f"restore {request.restore_id}: another run has just begun it ({request.plan_key}). Let it finish, or end "
            f"it and run again"
        ) from err


def replace_plan(request: RestoreRequest, store: ObjectStore, document: bytes) -> None:
    """Put a plan whose target starts are known in the place of one whose are not, while nothing of it was sent.

    Raises:
        PreflightError: something may have been sent, and nobody can tell any more from which offset on.
        SupersededError: another run has just replaced it.
    """
    if next(store.list(request.key("/")), None) is not None:
        raise PreflightError(
            f"restore {request.restore_id}: its plan {request.plan_key} has no true offset at which its target stood "
            f"before: a broker that was going down answered none, and an earlier version believed it. What it has sent "
            f"since cannot be told from what was there. Restore to another topic under another restore id"
        )
    found = store.head(request.plan_key)
    try:
        store.replace(request.plan_key, document, found.etag if found else "")
    except (PreconditionError, NotFoundError) as err:
        raise SupersededError(
            f"restore {request.restore_id}: another run is at work on its plan ({request.plan_key}). Let it finish, or "
            f"end it and run again"
        ) from err


def stored_report(request: RestoreRequest, store: ObjectStore) -> RestoreReport | None:
    """That of a restore which is finished, None where it is not."""
    try:
        return RestoreReport.from_json(store.get(request.report_key), request.report_key)
    except NotFoundError:
        return None


def finished_report(
    request: RestoreRequest, starts: Mapping[str, TargetStart], store: ObjectStore
) -> RestoreReport | None:
    """That of a restore which is finished, with what became of its targets since; None where it is not.

    The numbers are those of then: no record is sent or read now.

    Raises:
        MissingTopicError, TopicRecreatedError: a target topic is not there any more.
    """
    done = stored_report(request, store)
    if done is None:
        return None
    with ClusterAdmin(request.target_kafka) as admin:
        since = [line for name, start in starts.items() for line in _deleted_since(request, name, start, admin)]
    if done.foreign_count and not done.targets:
        since.append(
            "an earlier version has counted the records of other writers: doubled and own ones may be among them"
        )
    return replace(done, already_finished=True, dry_run=request.dry_run, notes=(*done.notes, *since))


def _deleted_since(request: RestoreRequest, to_topic: str, start: TargetStart, admin: ClusterAdmin) -> Iterator[str]:
    check_same_topic(replace(request, to_topic=to_topic), start, describe_if_there(admin, to_topic))
    logs = admin.frontiers(to_topic, [number for number, _ in start.offsets])
    for number, offset in start.offsets:
        begins = logs[number].log_start_offset
        if begins > offset:
            yield (
                f"{to_topic}-{number} begins at offset {begins} now: what was in offsets [{offset}, {begins}) when the "
                f"restore ended has been deleted since"
            )
