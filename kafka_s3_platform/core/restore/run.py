"""The restore use case for every source: plan, preflight, replay, verify, mapping, report.

A restore may be killed at any point and run again under the same restore id. The plan in the bucket records the objects
to send. Records that have already arrived are found by the progress markers committed with them (`exactly_once`), or by
matching the target with the archive (`at_least_once`).
"""

import logging
import math
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain

from kafka_s3_platform.core.errors import PreflightError
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.kafka.transactional_producer import try_transactions
from kafka_s3_platform.core.model.notes import DoubtNote
from kafka_s3_platform.core.restore.execution import Execution
from kafka_s3_platform.core.restore.outgoing.sent import ValueSettings, changes_count
from kafka_s3_platform.core.restore.preflight.begin import (
    check_new_id,
    create_target,
    read_finished_report,
    read_target_start,
    store_plan,
    take_back,
)
from kafka_s3_platform.core.restore.preflight.checks import Target, describe_sizes, inspect_target, raise_refusals
from kafka_s3_platform.core.restore.preflight.goal import (
    TARGETS_AT_ONCE,
    DryRunCount,
    Goal,
    map_configs,
    map_goals,
    observe_goals,
)
from kafka_s3_platform.core.restore.preflight.keeping import bound_seconds
from kafka_s3_platform.core.restore.preflight.target import (
    MAX_MESSAGE_BYTES,
    PreflightFinding,
    check_configs,
    choose_codec,
    choose_restorable_acls,
    make_remark,
)
from kafka_s3_platform.core.restore.preflight.thaw import thaw_objects
from kafka_s3_platform.core.restore.replay.spec import ReplayTask
from kafka_s3_platform.core.restore.request import ReadFacts, RestoreReport, RestoreRequest
from kafka_s3_platform.core.restore.restore_source import P, RestoreSource
from kafka_s3_platform.core.restore.signing import read_evidence_key
from kafka_s3_platform.core.restore.source.base import (
    BYTES_PER_SECOND,
    RestorePlan,
    TargetPlan,
    TargetStart,
    estimate_seconds,
    sum_known,
)
from kafka_s3_platform.core.spark.runner import TaskRunner
from kafka_s3_platform.core.store.errors import NotFoundError
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform.core.store.promises import check_promises
from kafka_s3_platform.core.text import count_noun, format_size

logger = logging.getLogger(__name__)


def name_topics(request: RestoreRequest, goals: Sequence[Goal]) -> RestoreRequest:
    """Return the request with the names of all source topics and of all targets, for messages and the report."""
    topics = sorted({*chain.from_iterable(goal.plan.topics for goal in goals)})
    targets = ", ".join(goal.plan.to_topic for goal in goals)
    return replace(request, topic=", ".join(topics) or "no topic", to_topic=targets or "nothing")


def log_plan(
    request: RestoreRequest, goals: Sequence[Goal], stream_count: int, findings: Sequence[PreflightFinding]
) -> None:
    """Log the plan, and a warning for each finding."""
    named = name_topics(request, goals)
    targets = [goal.plan for goal in goals]
    logger.info(
        "restore %s of %s to %s: %s%s in %s of %s, roughly %.0f s",
        request.restore_id,
        named.topic,
        named.to_topic,
        _format_count(targets),
        format_size(sum(target.object_bytes for target in targets)),
        count_noun(sum(len(target.objects) for target in targets), "object"),
        count_noun(stream_count, "kafka partition"),
        max(1.0, _estimate_seconds(request, targets)),
    )
    for finding in findings:
        logger.warning("restore %s: %s", request.restore_id, finding)


def _format_count(targets: Sequence[TargetPlan]) -> str:
    """Format the number of records for the log, such as `at most 1,000 records, `. It is empty if unknown."""
    count = sum_known(target.record_count for target in targets)
    if not targets or count is None:
        return ""
    return f"{'' if all(target.is_exact for target in targets) else 'at most '}{count_noun(count, 'record')}, "


def _estimate_seconds(request: RestoreRequest, targets: Sequence[TargetPlan]) -> float:
    """Return a rough estimate of the time. If a number of records is unknown, only the bytes of the objects count."""
    if sum_known(target.record_count for target in targets) is None:
        return sum(target.object_bytes for target in targets) / BYTES_PER_SECOND
    # Without targets, sum() would give the int 0, which Dagster refuses as a float.
    return math.fsum(estimate_seconds(request, target) for target in targets)


def add_schema_ids(
    report: RestoreReport, goals: Sequence[Goal], values: Mapping[tuple[str, str], ValueSettings | None]
) -> RestoreReport:
    """Add the schema ids of the target's registry, and notes on them, to the report and to each target's report.

    `values` has the settings for each pair of source topic and target.
    """
    pairs = set[tuple[int, int]]()
    notes: list[str] = []
    for settings in map(values.get, map_goals(goals)):
        if settings is None or settings.mapping is None:
            continue
        notes += settings.mapping.notes
        for ids in (settings.mapping.key_ids, settings.mapping.value_ids):
            pairs.update((ids or {}).items())
    pairs_of_parts = zip(report.parts, goals, strict=bool(report.parts))
    parts = tuple(add_schema_ids(part, [goal], values) for part, goal in pairs_of_parts)
    return replace(report, schema_ids=tuple(sorted(pairs)), notes=(*report.notes, *notes), parts=parts)


def make_planned_report(
    request: RestoreRequest, plan: RestorePlan, goals: Sequence[Goal], findings: Sequence[PreflightFinding]
) -> RestoreReport:
    """Make the report of a restore before it sends anything, with a report of each target if there are several.

    A number the source does not know is 0.
    """
    parts: list[RestoreReport] = []
    for goal in goals if len(goals) > 1 else ():
        goal_findings = [replace(finding, topic="") for finding in findings if finding.topic == goal.plan.name]
        # What a plan skips belongs to no topic's part of it.
        parts.append(replace(make_planned_report(request, plan, [goal], goal_findings), skipped=(), skipped_count=0))
    named = name_topics(request, goals)
    targets = [goal.plan for goal in goals]
    before_transforms = changes_count(request.outgoing, request.on_error)
    is_exact = bool(targets) and all(target.is_exact for target in targets)
    gaps = tuple(chain.from_iterable(target.gaps for target in targets))
    return RestoreReport(
        restore_id=request.restore_id,
        topic=named.topic,
        to_topic=named.to_topic,
        kafka_partitions=(),
        record_count=sum_known(target.record_count for target in targets) or 0,
        record_bytes=sum_known(target.record_bytes for target in targets) or 0,
        exact=is_exact and not before_transforms,
        out_of_range_count=sum(target.out_of_range_count for target in targets),
        object_count=sum(len(target.objects) for target in targets),
        object_bytes=sum(target.object_bytes for target in targets),
        sent_count=0,
        gaps=gaps,
        notes=tuple(dict.fromkeys(str(f) for f in findings if not f.refuses)),
        refusals=tuple(str(f) for f in findings if f.refuses),
        doubts=tuple(str(f) for f in findings if f.doubts),
        plan_key=request.documents.plan,
        plan_digest=plan.digest,
        estimated_seconds=_estimate_seconds(request, targets),
        seconds=0.0,
        verified=False,
        dry_run=request.dry_run,
        before_transforms=before_transforms,
        terms=plan.terms,
        skipped=plan.skipped,
        skipped_count=plan.skipped_count,
        gap_count=len(gaps),
        of_others=request.config.source is not None,
        parts=tuple(parts),
    )


def restore(source: RestoreSource[P], runner: TaskRunner) -> RestoreReport:
    """Run the restore of the source's request, or resume it, or return the report if it is finished.

    Raises:
        PreflightError: a target would not keep the records, or the restore id belongs to another restore.
        IntegrityError: an object is bad, and `behavior.on.error` is `fail`. No record of it was sent.
        BusyError: objects are in cold storage.
        TopicRecreatedError: a target is not the topic that an earlier run of this id has sent to, but a new one.
        PlatformError: any other failure. If sending failed, the message ends with the progress of each stream.
    """
    source = source.complete()
    # Before anything is sent, so that a key that cannot sign is reported at once.
    evidence_key = read_evidence_key(os.environ)
    request = source.request
    store = ObjectStore(request.config.restore_store)
    findings: list[PreflightFinding] = []
    begun = _read_stored_plan(source, store)
    if begun is not None:
        plan = begun
        targets = _plan_targets(source, plan)
        if (finished := read_finished_report(request, _collect_starts(targets), store)) is not None:
            logger.info("restore %s is finished already; nothing is sent", request.restore_id)
            return finished
    else:
        # Before planning, which may list a whole bucket.
        check_new_id(request, store)
        new_plan = source.make_plan(runner)
        plan = new_plan.plan
        findings += new_plan.findings
        targets = _plan_targets(source, plan)
    with ClusterAdmin(request.target_kafka, begins=True) as admin:
        goals = observe_goals(targets, admin, isolates=not request.dry_run)
        findings += _inspect_targets(goals)
        checked = source.check(plan, goals, runner)
        findings += checked.findings
        if request.dry_run:
            return _run_dry(source, plan, goals, findings, runner)
        stream_count = len(source.make_streams(plan))
        log_plan(request, goals, stream_count, findings)
        raise_refusals(name_topics(request, goals), findings)
        if begun is None and request.delivery == "exactly_once" and goals:
            # no stream has this transactional id, so nobody is fenced
            try_transactions(request.target_kafka, goals[0].plan.to_topic, f"restore.{request.restore_id}")
        if stream_count:
            runner.start()
        # Before the first write: the store's conditional writes protect the plan from a second run, and each connector
        # gets evidence at the end.
        for config in (request.config, *map_configs(goals).values()):
            check_promises(ObjectStore(config.restore_store), config.archive.restore_dir)
        if begun is None:
            # Before the plan: once it is stored, this restore id has begun, and nothing is claimed again.
            new_plan.claim()
            plan, goals = _begin_restore(request, plan, goals, admin, store)
        # Observe again: the targets may have been created above, and the goals now have their start offsets.
        goals = observe_goals([goal.plan for goal in goals], admin, isolates=True)
    thaw_objects(request, checked.cold_objects)
    values = {pair: source.make_value_settings(goal, pair[0]) for pair, goal in map_goals(goals).items()}
    tasks = _make_tasks(source, plan, goals, values, resumed=begun is not None)
    report = add_schema_ids(make_planned_report(request, plan, goals, findings), goals, values)
    return Execution(request, tasks, goals, store, runner, evidence_key).run(report)


def _plan_targets(source: RestoreSource[P], plan: P) -> list[TargetPlan]:
    """Return the part of the plan for each target topic, with the time that all of them take together."""
    targets = source.plan_targets(plan)
    seconds = math.fsum(map(bound_seconds, targets))
    return [replace(target, restore_seconds=seconds) for target in targets]


def _inspect_targets(goals: Sequence[Goal]) -> Iterator[PreflightFinding]:
    """Check the targets as far as their clusters show them, whatever the source of the records is."""
    sources = {*chain.from_iterable(goal.plan.topics for goal in goals)}
    for goal in goals:
        if goal.failure is None:
            yield from goal.name_findings(inspect_target(goal.plan, goal.target, sources))
    yield from describe_sizes([goal.plan for goal in goals])


def _read_stored_plan(source: RestoreSource[P], store: ObjectStore) -> P | None:
    """Return the plan stored by an earlier run of this restore id, or None if there is none."""
    try:
        content = store.get(source.request.documents.plan)
    except NotFoundError:
        return None
    return source.read_plan(content)


def _collect_starts(plans: Iterable[TargetPlan]) -> dict[str, TargetStart]:
    """Map each target topic to its state before the first record, if its restore has begun."""
    return {plan.to_topic: plan.start for plan in plans if plan.start is not None}


def _begin_restore(
    request: RestoreRequest, plan: P, goals: Sequence[Goal], admin: ClusterAdmin, store: ObjectStore
) -> tuple[P, list[Goal]]:
    """Create missing targets, then the plan's object. From then on, this restore id has exactly one plan."""
    starts: dict[str, TargetStart] = {}
    targets = _create_targets(goals, admin)
    for goal, target in zip(goals, targets, strict=True):
        if request.restore_acls:
            # Before the plan is stored: if this run is killed here, the next one does it again.
            admin.create_topic_acls(goal.plan.to_topic, choose_restorable_acls(goal.plan.acls or ()))
        starts[goal.plan.to_topic] = read_target_start(target)
    begun = replace(plan, starts=dict(sorted(starts.items())))
    store_plan(request, store, begun.to_json())
    return begun, [replace(goal, plan=replace(goal.plan, start=starts[goal.plan.to_topic])) for goal in goals]


def _create_targets(goals: Sequence[Goal], admin: ClusterAdmin) -> list[Target]:
    """Return the targets after creating the missing ones. If one is refused, the created ones are deleted again."""
    created: list[Target] = []

    def create(goal: Goal) -> Target:
        """Return the goal's target topic. Create it if the cluster does not have it yet."""
        if goal.target.description is not None:
            return goal.target
        target = create_target(goal.plan, goal.size, goal.target, admin)
        # before the check, so that a topic that fails it is deleted again
        created.append(target)
        # only the created topic shows the defaults of its brokers
        raise_refusals(goal.plan.request, list(check_configs(goal.plan, target.configs, {})))
        return target

    try:
        with ThreadPoolExecutor(TARGETS_AT_ONCE, thread_name_prefix="restore-target") as pool:
            return list(pool.map(create, goals))
    except PreflightError as err:
        if taken_back := take_back(created, admin):
            err.args = (f"{err.text}\n{taken_back}",)
        raise


def _make_tasks(
    source: RestoreSource[P],
    plan: P,
    goals: Sequence[Goal],
    values: Mapping[tuple[str, str], ValueSettings | None],
    *,
    resumed: bool,
) -> list[ReplayTask]:
    """Make the task of each stream. `values` has the settings of keys and values by source topic and target."""
    request = source.request
    digest = plan.digest
    goal_of = map_goals(goals)
    starts = _collect_starts(goal.plan for goal in goals)
    tasks = []
    for stream in source.make_streams(plan):
        facts = stream.facts
        goal = goal_of[facts.topic, facts.to_topic]
        if goal.failure is not None:
            continue
        limit = goal.target.configs.number("max.message.bytes", MAX_MESSAGE_BYTES)
        task = ReplayTask(
            restore_id=request.restore_id,
            plan_digest=digest,
            delivery=request.delivery,
            stream=stream,
            sent=goal.sent(values[facts.topic, facts.to_topic]),
            kafka=request.target_kafka,
            target_starts=starts[goal.plan.to_topic].offsets,
            documents_store=ObjectStore(request.config.restore_store),
            documents=request.documents.stream(facts.kafka_partition, facts.named_topic),
            run_id=request.run_id,
            resumed=resumed,
            max_message_bytes=limit,
            codec=choose_codec(goal.plan, limit),
            place=plan.place,
        )
        tasks.append(task)
    return tasks


def _run_dry(
    source: RestoreSource[P],
    plan: P,
    goals: Sequence[Goal],
    findings: Sequence[PreflightFinding],
    runner: TaskRunner,
) -> RestoreReport:
    """Report the plan of the restore. If the request is `exact`, read everything to count the records."""
    request = source.request
    stream_count = len(source.make_streams(plan))
    if not request.exact:
        log_plan(request, goals, stream_count, findings)
        if any(goal.plan.record_count is None for goal in goals) or not goals:
            what = "the number of records in the objects is unknown before they are read: --exact (how.exact) counts"
            findings = [*findings, make_remark(what)]
        return make_planned_report(request, plan, goals, findings)
    count = source.count(plan, goals, runner)
    findings = [*findings, *count.findings]
    log_plan(request, goals, stream_count, findings)
    report = make_planned_report(request, plan, goals, findings)
    if count.streams is None:
        return report
    topics = {goal.plan.name: goal.plan.topics for goal in goals}
    parts = (_add_count(part, count, topics[part.topic]) for part in report.parts)
    return replace(_add_count(report, count), parts=tuple(parts))


def _add_count(report: RestoreReport, count: DryRunCount, topics: Collection[str] | None = None) -> RestoreReport:
    """Return the report with the records counted for these topics, by default for all."""
    streams = [stream for stream in count.streams or () if topics is None or stream.topic in topics]
    facts = sum((stream.facts for stream in streams), ReadFacts())
    facts = replace(facts, out_of_range_count=0, notes=tuple(dict.fromkeys(facts.notes)))
    return replace(
        report,
        **vars(report + facts),
        record_count=sum(stream.record_count for stream in streams),
        record_bytes=sum(stream.record_bytes for stream in streams),
        exact=count.is_exact and not report.before_transforms,
        doubts=(*report.doubts, *(note for note in facts.notes if isinstance(note, DoubtNote))),
    )
