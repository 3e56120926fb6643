"""The restore use case: plan, preflight, replay, verify, mapping, report.

It may be killed at any point and run again under the same restore id: the plan in the bucket says what is sent, and how
much of it has arrived is said by the progress markers that are committed with the records (`exactly_once`), or by the
target itself, matched with the archive (`at_least_once`).
"""

import logging
from collections.abc import Sequence
from dataclasses import replace

from kafka_s3_platform.kafka.admin import ClusterAdmin
from kafka_s3_platform.restore.begin import (
    check_new_id,
    check_target,
    create_target,
    finished_report,
    replace_plan,
    store_plan,
    target_start,
)
from kafka_s3_platform.restore.creation import as_brokers_take_it
from kafka_s3_platform.restore.execution import Execution
from kafka_s3_platform.restore.outgoing import changes_count
from kafka_s3_platform.restore.plan import RestorePlan, check_same, estimated_seconds, make_plan, shown_terms
from kafka_s3_platform.restore.preflight import (
    Target,
    count_exactly,
    counted_findings,
    look_at_target,
    preflight,
    refuse,
)
from kafka_s3_platform.restore.replay import ReplayTask
from kafka_s3_platform.restore.request import RestoreReport, RestoreRequest
from kafka_s3_platform.restore.schemas import SchemaMapping, map_schemas
from kafka_s3_platform.restore.sent import SentSettings
from kafka_s3_platform.restore.stream import stream_task
from kafka_s3_platform.restore.target import (
    MAX_MESSAGE_BYTES,
    Finding,
    new_topic_size,
    remark,
    restorable_acls,
)
from kafka_s3_platform.restore.thaw import thaw
from kafka_s3_platform.restore.values import ValueSettings
from kafka_s3_platform.spark.runner import TaskRunner
from kafka_s3_platform.store.errors import NotFoundError
from kafka_s3_platform.store.index import TopicIndex
from kafka_s3_platform.store.objects import ObjectStore
from kafka_s3_platform.store.promises import check_promises

logger = logging.getLogger(__name__)


def restore(request: RestoreRequest, runner: TaskRunner) -> RestoreReport:
    """Restore what `request` asks for, or resume it, or say that it is done.

    Raises:
        PreflightError: the target would not keep what is sent, or the restore id belongs to another restore.
        BusyError: objects are in cold storage.
        TopicRecreatedError: the target topic is not the one that an earlier run of this id has sent to.
        PlatformError: what went wrong in its rooms; the message ends with how far each kafka partition came.
    """
    store, archive = ObjectStore(request.config.restore_store), ObjectStore(request.config.store)
    begun = _stored_plan(request, store)
    if begun is not None and (done := finished_report(request, {request.to_topic: begun.start}, store)) is not None:
        logger.info("restore %s is finished already; nothing is sent", request.restore_id)
        return done
    with ClusterAdmin(request.target_kafka) as admin:
        plan = begun or make_plan(request)
        target = as_brokers_take_it(request, plan, look_at_target(request, admin), admin)
        if begun is None:
            check_new_id(request, store)
        else:
            plan = _with_known_start(request, begun, target, store)
        objects = archive.heads([o.key for o in plan.objects])
        found = preflight(request, plan, target, objects, runner)
        if request.dry_run:
            return _dry_run(request, plan, target, found, runner)
        _log(request, plan, found)
        refuse(request, found)
        check_promises(store, request.config.archive.restore_dir)
        if begun is None:
            plan = _begin(request, plan, target, admin, store)
        target = look_at_target(request, admin)
    thaw(request, [o.key for o in objects if o and o.is_cold], archive)
    values, mapping = _values(request)
    found = [*found, *(remark(note) for note in (mapping.notes if mapping else ()))]
    planned = replace(_planned_report(request, plan, found), schema_ids=_schema_ids(mapping))
    streams = _streams(request, plan, target, values, resumed=begun is not None)
    return Execution(request, streams, {request.to_topic: plan.start}, store, runner).run(planned)


def _dry_run(
    request: RestoreRequest, plan: RestorePlan, target: Target, found: Sequence[Finding], runner: TaskRunner
) -> RestoreReport:
    """What would be done; with `exact`, everything is read to count what passes the filter."""
    if not request.exact:
        _log(request, plan, found)
        return _planned_report(request, plan, found)
    counts = count_exactly(request, plan, runner)
    found = [*found, *counted_findings(request, target, counts)]
    _log(request, plan, found)
    planned = _planned_report(request, plan, found)
    return replace(
        planned,
        record_count=sum(c.record_count for c in counts),
        record_bytes=sum(c.record_bytes for c in counts),
        exact=not planned.before_transforms,
        skipped=tuple(line for c in counts for line in c.skipped),
    )


def _values(request: RestoreRequest) -> tuple[ValueSettings | None, SchemaMapping | None]:
    """What executors need to rewrite keys and values, None where they stay as they are.

    Registers the archived schemas in the target's registry if ids are to be mapped; done again, it finds them there.
    """
    outgoing, config = request.outgoing, request.config
    changes = outgoing.key or outgoing.value or outgoing.map_schema_ids or outgoing.transforms
    if not changes:
        return None, None
    snapshot = TopicIndex(config.store, config.archive.index_dir, config.name, request.topic).peek()
    schemas = snapshot.state.schemas if snapshot else ()
    mapping: SchemaMapping | None = None
    if outgoing.map_schema_ids and outgoing.target_registry is not None:
        mapping = map_schemas(outgoing.target_registry, schemas, config.records, request.topic, request.to_topic)
    settings = ValueSettings(outgoing, config.records, request.topic, request.to_topic, mapping, tuple(schemas))
    return settings, mapping


def _stored_plan(request: RestoreRequest, store: ObjectStore) -> RestorePlan | None:
    try:
        content = store.get(request.plan_key)
    except NotFoundError:
        return None
    plan = RestorePlan.from_json(content, request.plan_key)
    check_same(request, plan)
    return plan


def _log(request: RestoreRequest, plan: RestorePlan, found: Sequence[Finding]) -> None:
    logger.info(
        "restore %s of %s to %s: %s%s records, %.1f MB in %d objects of %d kafka partitions, roughly %.0f s",
        request.restore_id,
        request.topic,
        request.to_topic,
        "" if plan.exact else "at most ",
        f"{plan.record_count:,}",
        plan.object_bytes / 1e6,
        len(plan.objects),
        len(plan.kafka_partitions),
        estimated_seconds(request, plan),
    )
    for finding in found:
        logger.warning("restore %s: %s", request.restore_id, finding)


def _begin(
    request: RestoreRequest, plan: RestorePlan, target: Target, admin: ClusterAdmin, store: ObjectStore
) -> RestorePlan:
    """Create the target if asked to, and the plan's object: from here on this restore id has one plan."""
    if target.description is None:
        target = create_target(request, plan, new_topic_size(request, plan), target, admin)
    if request.restore_acls:
        # Before the plan is stored: a run that is killed here does it again.
        admin.create_topic_acls(request.to_topic, restorable_acls(plan.source.acls or ()))
    plan = replace(plan, target=target_start(request, target))
    store_plan(request, store, plan.to_json())
    return plan


def _with_known_start(request: RestoreRequest, plan: RestorePlan, target: Target, store: ObjectStore) -> RestorePlan:
    """The stored plan, where the target is still the one that it is for."""
    check_target(request, plan.start, target.description)
    if plan.start.is_known:
        return plan
    known = replace(plan, target=target_start(request, target))
    if not request.dry_run:
        replace_plan(request, store, known.to_json())
    return known


def _streams(
    request: RestoreRequest, plan: RestorePlan, target: Target, values: ValueSettings | None, *, resumed: bool
) -> list[ReplayTask]:
    """One for each source kafka partition that has something to restore."""
    sent = SentSettings(
        request.to_topic,
        target.kafka_partition_count(request, plan),
        request.records,
        request.outgoing,
        request.on_error,
        values,
    )
    digest = plan.digest
    return [
        ReplayTask(
            restore_id=request.restore_id,
            plan_digest=digest,
            delivery=request.delivery,
            stream=stream_task(request, plan, kafka_partition),
            sent=sent,
            kafka=request.target_kafka,
            target_starts=plan.start.offsets,
            documents=request.config.restore_store,
            checkpoint_key=request.key(f"/{kafka_partition}.json"),
            run_id=request.run_id,
            resumed=resumed,
            max_message_bytes=target.configs.number("max.message.bytes", MAX_MESSAGE_BYTES),
            allow_unsendable_timestamps=plan.allow_unsendable_timestamps,
            place=plan.place,
        )
        for kafka_partition in plan.kafka_partitions
    ]


def _schema_ids(mapping: SchemaMapping | None) -> tuple[tuple[int, int], ...]:
    sides = (mapping.key_ids, mapping.value_ids) if mapping else ()
    return tuple(sorted({pair for ids in sides if ids for pair in ids.items()}))


def _planned_report(request: RestoreRequest, plan: RestorePlan, found: Sequence[Finding]) -> RestoreReport:
    before_transforms = changes_count(request.outgoing, request.on_error)
    return RestoreReport(
        restore_id=request.restore_id,
        topic=request.topic,
        to_topic=request.to_topic,
        kafka_partitions=(),
        record_count=plan.record_count,
        record_bytes=plan.record_bytes,
        exact=plan.exact and not before_transforms,
        out_of_range_count=plan.out_of_range_count,
        object_count=len(plan.objects),
        object_bytes=plan.object_bytes,
        sent_count=0,
        gaps=plan.gaps,
        notes=tuple(f.text for f in found if not f.refuses),
        refusals=tuple(f.text for f in found if f.refuses),
        plan_key=request.plan_key,
        plan_digest=plan.digest,
        estimated_seconds=estimated_seconds(request, plan),
        replay_seconds=0.0,
        verify_seconds=0.0,
        verified=False,
        dry_run=request.dry_run,
        before_transforms=before_transforms,
        asked=shown_terms(plan.terms, request.restore_id),
    )
