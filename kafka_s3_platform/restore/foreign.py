"""Restores what the file of an S3 source connector describes: objects that others wrote, or that no index holds.

Plan, preflight, replay, verify and report, as for our own archive: one stream for each topic and source kafka
partition. A plan is of what the bucket held when it was made; what came later takes another restore id.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from kafka_s3_platform.config.settings import ConverterSettings
from kafka_s3_platform.errors import ConfigError, RecordError
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
from kafka_s3_platform.restore.chain import check_same_records, claim, known_before, save_known
from kafka_s3_platform.restore.creation import as_brokers_take_it
from kafka_s3_platform.restore.execution import Execution
from kafka_s3_platform.restore.filters import check_filter, is_filtered
from kafka_s3_platform.restore.foreign_plan import (
    ForeignPlan,
    as_restore_plan,
    check_stored,
    foreign_terms,
    make_foreign_plan,
    offset_of,
    tells_times,
    with_starts,
)
from kafka_s3_platform.restore.foreign_stream import ForeignStreamTask
from kafka_s3_platform.restore.outgoing import OutgoingStream, changes_count
from kafka_s3_platform.restore.plan import RestorePlan, TargetStart, check_terms, shown_terms
from kafka_s3_platform.restore.preflight import Target, about_target, look_at_target, refuse, room_of
from kafka_s3_platform.restore.renaming import Rename
from kafka_s3_platform.restore.replay import ReplayTask
from kafka_s3_platform.restore.request import Outgoing, RestoreReport, RestoreRequest
from kafka_s3_platform.restore.sent import SentSettings
from kafka_s3_platform.restore.space import objects_finding
from kafka_s3_platform.restore.target import (
    MAX_MESSAGE_BYTES,
    Finding,
    TargetConfigs,
    refusal,
    remark,
)
from kafka_s3_platform.restore.thaw import cold_findings, thaw
from kafka_s3_platform.restore.trial import TrialTask, count_foreign, unwritable
from kafka_s3_platform.restore.values import ValueSettings, new_values
from kafka_s3_platform.sources.how_read import not_held
from kafka_s3_platform.sources.objects import ObjectGroup
from kafka_s3_platform.spark.runner import TaskRunner
from kafka_s3_platform.store.errors import NotFoundError
from kafka_s3_platform.store.objects import ObjectStore
from kafka_s3_platform.store.promises import check_promises

logger = logging.getLogger(__name__)

TIMESTAMP_TYPE = "message.timestamp.type"


@dataclass(frozen=True)
class ForeignRequest:
    """Restore objects of a source connector.

    `request` says how, its own `topic` and `to_topic` apart: `topics` are restored, by default those of the file, and
    every one that is found where it names none. `rename` makes the targets' names; without it RegexRouter does, of the
    file or of `request.outgoing`, else they are the sources' own. `after` is the id of a finished restore of the same
    connector: what it has sent is left out, and what restores before it have.
    """

    request: RestoreRequest
    topics: tuple[str, ...] = ()
    rename: Rename | None = None
    after: str | None = None


def restore_foreign(asked: ForeignRequest, runner: TaskRunner) -> RestoreReport:
    """Restore what is asked for, or resume it, or say that it is done.

    Raises:
        PreflightError: a target would not keep what is sent, the restore id belongs to another restore, or the one that
            this is to come after is not finished.
        IntegrityError: an object is bad, and `behavior.on.error` is `fail`: nothing of it was sent.
        BusyError: objects are in cold storage.
        TopicRecreatedError: a target is not the one that an earlier run of this id has sent to.
        PlatformError: what went wrong in its rooms; the message ends with how far each stream came.
    """
    request = _prepared(asked.request)
    archive, store = ObjectStore(request.config.store), ObjectStore(request.config.restore_store)
    begun = _stored_plan(asked, request, store)
    if begun is not None and (done := finished_report(request, begun.starts or {}, store)) is not None:
        logger.info("restore %s is finished already; nothing is sent", request.restore_id)
        return done
    known = None
    if begun is None:
        check_new_id(request, store)
        known = known_before(request, asked.after, store)
        check_same_records(request, asked.after, store)
    plan = begun or make_foreign_plan(request, asked.topics, asked.rename, archive, asked.after, known)
    with ClusterAdmin(request.target_kafka) as admin:
        goals = [_goal(request, plan, name, admin) for name in sorted(set(plan.targets.values()))]
        plan = _with_known_starts(request, plan, goals, store)
        trials = [_trial(request, plan, goals, group) for group in plan.groups]
        found = [*_preflight(plan, goals), *unwritable([] if begun else trials, archive)]
        if request.dry_run:
            return _dry_run(request, plan, found, trials, runner)
        _log(request, plan, found)
        refuse(_named(request, plan), found)
        check_promises(store, request.config.archive.restore_dir)
        if begun is None:
            save_known(request, known, store)
            claim(request, asked.after, store)
            plan = _begin(request, plan, goals, admin, store)
        goals = [_goal(request, plan, goal.request.to_topic, admin) for goal in goals]
    thaw(request, [o.key for o in plan.objects if o.is_cold], archive)
    task_of = partial(_replay_task, request, plan, goals, plan.digest, begun is not None)
    streams = [task_of(group) for group in plan.groups]
    return Execution(request, streams, plan.starts or {}, store, runner).run(_planned_report(request, plan, found))


def _prepared(request: RestoreRequest) -> RestoreRequest:
    """The request with what the connector's file says: its transforms, its converters, its `behavior.on.error`."""
    config, outgoing = request.config, request.outgoing
    if config.source is None:
        raise ConfigError(f"connector {config.name} is a sink: its archive is restored by its index")
    if request.restore_acls or outgoing.map_schema_ids:
        what = "ACLs" if request.restore_acls else "schema ids"
        raise ConfigError(f"connector {config.name} is a source: its objects tell no {what}, so none can be restored")
    check_filter(request.records)
    source = config.source.model_copy(update={"behavior_on_error": request.on_error})
    made = replace(outgoing, transforms=(*config.records.transforms, *outgoing.transforms))
    if not config.layout.is_envelope:
        key, value = (_converter(outgoing, given, own) for given, own in _sides(request))
        made = replace(made, key=key, value=value)
    return replace(request, config=config.model_copy(update={"source": source}), outgoing=made)


def _sides(request: RestoreRequest) -> Iterator[tuple[ConverterSettings | None, ConverterSettings]]:
    records, outgoing = request.config.records, request.outgoing
    yield outgoing.key, records.key
    yield outgoing.value, records.value


def _converter(outgoing: Outgoing, given: ConverterSettings | None, own: ConverterSettings) -> ConverterSettings:
    """The file's converter writes to the registry of the target, where the restore names one."""
    if given is not None or outgoing.target_registry is None or own.registry is None:
        return given or own
    return own.model_copy(update={"registry": outgoing.target_registry})


def _stored_plan(asked: ForeignRequest, request: RestoreRequest, store: ObjectStore) -> ForeignPlan | None:
    try:
        content = store.get(request.plan_key)
    except NotFoundError:
        return None
    plan = ForeignPlan.from_json(content, request.plan_key)
    check_terms(request, foreign_terms(request, asked.topics, asked.rename, asked.after), plan.terms, plan.created_at)
    check_stored(request, asked.topics, asked.rename, plan)
    return plan


@dataclass(frozen=True)
class _Goal:
    """One target. `request` and `plan` are those of what goes to it, as checks of a target look at them."""

    request: RestoreRequest
    plan: RestorePlan
    target: Target

    @property
    def size(self) -> int:
        return self.target.kafka_partition_count(self.request, self.plan)


def _goal(request: RestoreRequest, plan: ForeignPlan, to_topic: str, admin: ClusterAdmin) -> _Goal:
    sources = sorted(topic for topic, target in plan.targets.items() if target == to_topic)
    own = replace(request, topic=to_topic if to_topic in sources else ", ".join(sources), to_topic=to_topic)
    target = look_at_target(own, admin)
    if plan.starts is not None:
        check_target(own, plan.starts[to_topic], target.description)
    if not tells_times(request.config):
        # What the target makes of timestamps matters to those only that are told.
        given = {name: value for name, value in target.configs.configs.items() if name != TIMESTAMP_TYPE}
        target = replace(target, configs=TargetConfigs(to_topic, given, target.configs.now))
    goal_plan = as_restore_plan(own, plan)
    return _Goal(own, goal_plan, as_brokers_take_it(own, goal_plan, target, admin))


def _preflight(plan: ForeignPlan, goals: Sequence[_Goal]) -> list[Finding]:
    found = [finding for goal in goals for finding in _about(goal, plan)]
    if not plan.objects:
        found.append(remark("there are no objects to restore"))
    unheld = not_held(goals[0].request.config) if goals and plan.objects else ()
    if goals:
        found.append(objects_finding(plan.object_bytes, room_of(goals[0].request, goals[0].target)))
    return [*found, *cold_findings(plan.objects), *map(remark, (*plan.notes, *unheld))]


def _about(goal: _Goal, plan: ForeignPlan) -> Iterator[Finding]:
    request = goal.request
    sources = [topic for topic, target in plan.targets.items() if target == request.to_topic]
    if request.delivery == "at_least_once" and len(sources) > 1:
        yield refusal(
            f"{' and '.join(sources)} go to {request.to_topic} together: with delivery=at_least_once a run that goes "
            f"on finds what has arrived by its content, and equal records of two topics are not told apart. Restore "
            f"with exactly_once, or to a topic for each"
        )
    if len(sources) > 1 and "compact" in goal.target.configs.policies:
        yield refusal(
            f"{' and '.join(sources)} go to {request.to_topic} together, and it has cleanup.policy=compact: of records "
            f"that share a key, compaction keeps one. Set cleanup.policy=delete on it for the restore"
        )
    for topic in sources:
        values = _values(request, topic)
        made = None if values is None else new_values(values)
        OutgoingStream(request.outgoing, topic, 0, goal.size, request.to_topic, values=made)
    yield from about_target(request, goal.plan, goal.target)


def _values(request: RestoreRequest, topic: str) -> ValueSettings | None:
    """None where keys and values are sent as they are read."""
    outgoing = request.outgoing
    if not (outgoing.key or outgoing.value or outgoing.transforms):
        return None
    return ValueSettings(outgoing, request.config.records, topic, request.to_topic)


def _named(request: RestoreRequest, plan: ForeignPlan) -> RestoreRequest:
    """For messages and the report."""
    targets = ", ".join(sorted(set(plan.targets.values()))) or "nothing"
    return replace(request, topic=", ".join(plan.targets) or "no topic", to_topic=targets)


def _log(request: RestoreRequest, plan: ForeignPlan, found: Sequence[Finding]) -> None:
    named = _named(request, plan)
    size, streams = plan.object_bytes / 1e6, len(plan.groups)
    what = f"{size:.1f} MB in {len(plan.objects)} objects of {streams} streams"
    logger.info("restore %s of %s to %s: %s", request.restore_id, named.topic, named.to_topic, what)
    for finding in found:
        logger.warning("restore %s: %s", request.restore_id, finding)


def _dry_run(
    request: RestoreRequest,
    plan: ForeignPlan,
    found: Sequence[Finding],
    trials: Sequence[TrialTask],
    runner: TaskRunner,
) -> RestoreReport:
    """With `exact`, every object is read: their records are counted and written, and the bad ones found."""
    _log(request, plan, found)
    if not request.exact:
        unknown = remark("how many records the objects hold is not known before they are read: --exact (exact) counts")
        return _planned_report(request, plan, [*found, unknown])
    try:
        counts = list(runner.run(count_foreign, trials, request.config.tasks_max))
    except RecordError as err:
        return _planned_report(request, plan, [*found, refusal(str(err))])
    report = _planned_report(request, plan, found)
    return replace(
        report,
        record_count=sum(c.record_count for c in counts),
        record_bytes=sum(c.record_bytes for c in counts),
        exact=not (is_filtered(request.records) or report.before_transforms),
        skipped=(*report.skipped, *(s for c in counts for s in c.skipped)),
        gaps=tuple(gap for c in counts for gap in c.gaps),
        notes=(*report.notes, *dict.fromkeys(n for c in counts for n in c.notes)),
    )


def _begin(
    request: RestoreRequest, plan: ForeignPlan, goals: Sequence[_Goal], admin: ClusterAdmin, store: ObjectStore
) -> ForeignPlan:
    """Create targets if asked to, and the plan's object: from here on this restore id has one plan."""
    for goal in goals:
        if goal.target.description is None:
            create_target(goal.request, goal.plan, goal.size, goal.target, admin)
    plan = with_starts(plan, lambda name: _start(replace(request, to_topic=name), admin))
    store_plan(request, store, plan.to_json())
    return plan


def _with_known_starts(
    request: RestoreRequest, plan: ForeignPlan, goals: Sequence[_Goal], store: ObjectStore
) -> ForeignPlan:
    if plan.starts is None or all(start.is_known for start in plan.starts.values()):
        return plan
    targets = {goal.request.to_topic: goal for goal in goals}
    known = with_starts(plan, lambda name: target_start(targets[name].request, targets[name].target))
    if not request.dry_run:
        replace_plan(request, store, known.to_json())
    return known


def _start(request: RestoreRequest, admin: ClusterAdmin) -> TargetStart:
    return target_start(request, look_at_target(request, admin))


def _stream(request: RestoreRequest, plan: ForeignPlan, group: ObjectGroup) -> ForeignStreamTask:
    return ForeignStreamTask(
        request.config,
        group,
        plan.times,
        offset_of(request.from_offset, group.kafka_partition),
        offset_of(request.to_offset, group.kafka_partition),
        request.allow_unsendable_timestamps,
    )


def _sent(request: RestoreRequest, goals: Sequence[_Goal], topic: str, to_topic: str) -> SentSettings:
    goal = next(g for g in goals if g.request.to_topic == to_topic)
    values = _values(goal.request, topic)
    return SentSettings(to_topic, goal.size, request.records, request.outgoing, request.on_error, values)


def _trial(request: RestoreRequest, plan: ForeignPlan, goals: Sequence[_Goal], group: ObjectGroup) -> TrialTask:
    return TrialTask(_stream(request, plan, group), _sent(request, goals, group.topic, plan.targets[group.topic]))


def _replay_task(
    request: RestoreRequest, plan: ForeignPlan, goals: Sequence[_Goal], digest: str, resumed: bool, group: ObjectGroup
) -> ReplayTask:
    to_topic = plan.targets[group.topic]
    goal = next(g for g in goals if g.request.to_topic == to_topic)
    return ReplayTask(
        restore_id=request.restore_id,
        plan_digest=digest,
        delivery=request.delivery,
        stream=_stream(request, plan, group),
        sent=_sent(request, goals, group.topic, to_topic),
        kafka=request.target_kafka,
        target_starts=(plan.starts or {})[to_topic].offsets,
        documents=request.config.restore_store,
        checkpoint_key=request.key(f"/{group.topic}/{group.kafka_partition}.json"),
        run_id=request.run_id,
        resumed=resumed,
        max_message_bytes=goal.target.configs.number("max.message.bytes", MAX_MESSAGE_BYTES),
        # Those that objects tell are looked at when they are read; unknown ones become the time of sending.
        allow_unsendable_timestamps=True,
        place=plan.place,
    )


def _planned_report(request: RestoreRequest, plan: ForeignPlan, found: Sequence[Finding]) -> RestoreReport:
    named = _named(request, plan)
    return RestoreReport(
        restore_id=request.restore_id,
        topic=named.topic,
        to_topic=named.to_topic,
        kafka_partitions=(),
        record_count=0,
        record_bytes=0,
        exact=False,
        out_of_range_count=0,
        object_count=len(plan.objects),
        object_bytes=plan.object_bytes,
        sent_count=0,
        gaps=(),
        notes=tuple(dict.fromkeys(f.text for f in found if not f.refuses)),
        refusals=tuple(f.text for f in found if f.refuses),
        plan_key=request.plan_key,
        plan_digest=plan.digest,
        estimated_seconds=plan.estimated_seconds,
        replay_seconds=0.0,
        verify_seconds=0.0,
        verified=False,
        dry_run=request.dry_run,
        before_transforms=changes_count(request.outgoing, request.on_error),
        asked=shown_terms(plan.terms, request.restore_id),
        skipped=plan.skipped,
        of_others=True,
    )
