"""How every restore begins: its target created if asked for, where that stood, and the plan in the bucket."""

import logging
from dataclasses import replace

from kafka_s3_platform.errors import (
    ConfigError,
    MissingTopicError,
    PreflightError,
    SupersededError,
    TopicRecreatedError,
)
from kafka_s3_platform.kafka.admin import ClusterAdmin
from kafka_s3_platform.restore.plan import RestorePlan, TargetStart
from kafka_s3_platform.restore.preflight import Target, look_at_target, refuse, room_findings
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


def check_target(request: RestoreRequest, start: TargetStart, target: Target) -> None:
    """That the topic is the one that an earlier run of this restore id has sent to.

    Raises:
        MissingTopicError: there is none any more.
        TopicRecreatedError: it is another of the same name.
    """
    another = "Restore under another restore id"
    if target.description is None:
        raise MissingTopicError(
            f"restore {request.restore_id}: its target topic {request.to_topic} was deleted since it began. {another}"
        )
    if target.description.topic_id != start.topic_id:
        raise TopicRecreatedError(
            f"restore {request.restore_id} began with target topic {request.to_topic} of id {start.topic_id}; the one "
            f"there now has id {target.description.topic_id}: it was deleted and created again. {another}"
        )


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
        content = store.get(request.report_key)
    except NotFoundError:
        return None
    return replace(RestoreReport.from_json(content, request.report_key), already_finished=True)
