"""The objects described by an S3 source connector's file, as the source of a restore. No index lists them.

There is one stream for each topic and source kafka partition. A plan lists the objects in the bucket at the time it is
made. Later objects need another restore id. Records are tried before anything is created or sent, and counted in a dry
run.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import Self

from kafka_s3_platform.connect.restore.outgoing.stream import OutgoingStream, check_decoding
from kafka_s3_platform.connect.restore.polls import check_same_records, claim_successor, read_sent, save_sent
from kafka_s3_platform.connect.restore.source.foreign_plan import (
    ForeignPlan,
    SentObjects,
    check_foreign_plan,
    make_foreign_plan,
    make_foreign_targets,
    name_targets,
)
from kafka_s3_platform.connect.restore.source.foreign_stream import ForeignStreamTask, WantedRecords, type_strings
from kafka_s3_platform.connect.sources.objects import ForeignObject, has_record_times, is_covered
from kafka_s3_platform.connect.sources.report import explain_doubt, explain_missing
from kafka_s3_platform.core.config.settings import ConnectorConfig, ConverterSettings
from kafka_s3_platform.core.errors import ConfigError, IntegrityError, PreflightError, RecordError
from kafka_s3_platform.core.model.connect import ConnectBatch
from kafka_s3_platform.core.partitioners.folders import Window
from kafka_s3_platform.core.restore.filters.stage import check_filter, is_filtered
from kafka_s3_platform.core.restore.outgoing.sent import SentSettings, ValueSettings
from kafka_s3_platform.core.restore.preflight.goal import Checked, DryRunCount, Goal, StreamCount, map_goals
from kafka_s3_platform.core.restore.preflight.target import (
    PreflightFinding,
    check_newest,
    make_doubt,
    make_refusal,
    make_remark,
)
from kafka_s3_platform.core.restore.preflight.thaw import describe_cold, thaw_objects
from kafka_s3_platform.core.restore.request import OnError, Outgoing, ReadFacts, RestoreRequest
from kafka_s3_platform.core.restore.restore_source import NewPlan
from kafka_s3_platform.core.restore.source.base import TargetPlan
from kafka_s3_platform.core.restore.source.selection import find_offset_bound
from kafka_s3_platform.core.restore.target_topic import Rename, TopicMap, name_target_topic
from kafka_s3_platform.core.spark.runner import Attempt, TaskRunner
from kafka_s3_platform.core.store.objects import ObjectStore

MOST_BYTES = 67_108_864
"""The largest object that is read as a whole just to try its first records."""

MAX_TARGETS = 100
"""The most topics to which transforms may send one topic's records. For each, the records are read again."""


def check_times(
    config: ConnectorConfig, objects: Sequence[ForeignObject], times: Sequence[Window]
) -> Iterator[PreflightFinding]:
    """Refuse a time window if objects have no times, and doubt it if objects are only partly inside."""
    if not times or has_record_times(config):
        return
    without_time = sorted(o.key for o in objects if o.window is None)
    if without_time:
        yield make_refusal(
            f"the timestamps of the records in {len(without_time):,} objects, such as {without_time[0]}, are "
            "unknown: neither the objects nor their names contain them. A time window (hours, days, from, to) would "
            "restore all of these records. Select by offsets, or omit the window, which restores everything"
        )
    partial = sorted(o.key for o in objects if o.window is not None and not is_covered(o.window, times))
    if partial:
        yield make_doubt(
            f"{len(partial):,} objects, such as {partial[0]}, are only partly in the window of time, and are taken "
            f"whole: their records have no times"
        )


@dataclass(frozen=True)
class TrialTask:
    """A stream, and the settings by which its records would be changed before they are sent."""

    stream: ForeignStreamTask
    sent: SentSettings

    def outgoing(self, on_error: OnError | None = None) -> OutgoingStream:
        """Make a stream that encodes the records as for sending, but registers no schemas.

        `on_error` decides how failing records are handled. None stands for the restore's own setting.
        """
        values = self.sent.values and replace(self.sent.values, registers=False)
        behavior = on_error or self.sent.behavior_on_error
        settings = replace(self.sent, values=values, behavior_on_error=behavior)
        group = self.stream.group
        return OutgoingStream(group.topic, group.kafka_partition, settings, self.stream.to_topics)


def count_foreign(task: TrialTask, _: Attempt) -> StreamCount:
    """Read all objects of a task, and encode their records for sending.

    The count is of the records in the windows, before filters and transforms. If the task has no target, all records
    count as routed elsewhere, and so show the targets.

    Raises:
        IntegrityError: an object is bad, and `behavior.on.error` is `fail`.
        RecordError: a record cannot be written, and `behavior.on.error` is `fail`.
        PreflightError: the records name more than MAX_TARGETS targets.
    """
    stream = task.stream.facts
    records = WantedRecords(task.stream, stream.store)
    outgoing = task.outgoing()
    count = StreamCount(stream.topic, stream.kafka_partition)
    for batch in records:
        if outgoing.counts_all:
            count = count.add(batch.records)
        if stream.is_decoded:
            outgoing.encode(type_strings(batch, task.stream.config.records))
        elif not task.sent.to_topic:
            outgoing.apply(batch.records)
        if not task.sent.to_topic:
            _check_number(stream.topic, outgoing.elsewhere)
    facts = records.facts if outgoing.counts_all else ReadFacts()
    facts += ReadFacts(notes=outgoing.notes)
    return replace(count, facts=facts, elsewhere=dict(outgoing.elsewhere), filtered_count=outgoing.filtered_count)


def _check_number(topic: str, targets: Collection[str]) -> None:
    """Raise PreflightError if records of one topic go to too many target topics."""
    if len(targets) > MAX_TARGETS:
        raise PreflightError(
            f"the records of {topic} go to more than {MAX_TARGETS} topics, such as {', '.join(sorted(targets)[:3])}. "
            "Name one target for each restore (--to-topic, to.topic), which sends the records that go there"
        )


def try_first_records(tasks: Iterable[TrialTask], store: ObjectStore, *, is_begun: bool) -> Iterator[PreflightFinding]:
    """Find topics whose first records cannot be written, or contradict the connector's file.

    For each topic, the first stream with a small first object is tried. If the restore was begun before (`is_begun`),
    it has already passed the trial of writing.
    """
    looked_at = set[str]()
    for task in tasks:
        topic = task.stream.group.topic
        if topic in looked_at or not _is_soon_read(task.stream):
            continue
        looked_at.add(topic)
        # Bad objects are reported by the run that reads all of them.
        with suppress(IntegrityError):
            first = next(iter(WantedRecords(task.stream, store)), None)
            if first is not None and (doubt := explain_doubt(task.stream.config, first.value.objects)):
                yield make_doubt(f"{topic}: {doubt}")
            if is_begun:
                continue
            if first is not None and (why := _try_writing(task, type_strings(first, task.stream.config.records))):
                yield make_refusal(why)


def _is_soon_read(stream: ForeignStreamTask) -> bool:
    """Return True if the first object holds decoded values, is small and does not need to be thawed."""
    first = stream.group.sets[0]
    return stream.facts.is_decoded and first.size <= MOST_BYTES and not any(o.is_cold for o in first.objects)


def _try_writing(task: TrialTask, batch: ConnectBatch) -> str:
    """Encode records as they would be sent. Return the reason why this fails, or "" if it does not."""
    # First ignore failures: if every record fails, the converter is the wrong one.
    lenient = task.outgoing("ignore")
    lenient.encode(batch)
    failure = lenient.first_failure
    if failure is None:
        return ""
    if lenient.failed_count == batch.num_rows:
        return (
            f"none of the first {batch.num_rows:,} records of {task.stream.group.topic} can be written: "
            f"{failure.message}. Leaving such records out would leave all of them out. Choose another converter"
        )
    try:
        task.outgoing().encode(batch)
    except RecordError as err:
        return str(err)
    return ""


@dataclass(frozen=True)
class ForeignSource:
    """The objects of a source connector.

    `request` has all options, but its `topic` and `to_topic` are not used. Instead `topics` are restored, by default
    the file's topics, or every topic found if the file names none. `rename` makes the names of the targets. Without it,
    routers of the file or of `request.outgoing` make them; routers that look at the contents of records may send one
    topic to several targets. If there are no routers, a target has the name of its source. `after` is the id of a
    finished restore of the same connector. Objects sent by it or by earlier restores are left out.
    """

    request: RestoreRequest
    topics: tuple[str, ...] = ()
    rename: Rename | None = None
    after: str | None = None

    def complete(self) -> Self:
        """Add the transforms, the converters and `behavior.on.error` of the connector's file."""
        check_filter(self.request.records)
        return replace(self, request=_complete_request(self.request))

    def read_plan(self, content: bytes) -> ForeignPlan:
        """Read the stored plan, and check that it belongs to the request."""
        plan = ForeignPlan.from_json(content, self.request.documents.plan)
        check_foreign_plan(self.request, self.topics, self.rename, self.after, plan)
        return plan

    def make_plan(self, runner: TaskRunner) -> NewPlan[ForeignPlan]:
        """Plan the restore of the objects now in the bucket, without those sent by `after` or earlier restores.

        Claiming the plan makes this restore the only successor of `after`. If this is impossible, PreflightError is
        raised.
        """
        request = self.request
        documents = ObjectStore(request.config.restore_store)
        sent = read_sent(request, self.after, documents)
        check_same_records(request, self.after, documents)
        archive = ObjectStore(request.config.store)
        plan = make_foreign_plan(request, self.topics, self.rename, archive, self.after, sent)
        if self._routes_records:
            plan = self._add_targets(plan, runner)

        def claim() -> None:
            """Store the objects sent before, and record this restore as the successor of `after`."""
            save_sent(request, sent, documents)
            claim_successor(request, self.after, documents)

        return NewPlan(plan, claim)

    @property
    def _routes_records(self) -> bool:
        """True if the targets are known only from the records."""
        return name_targets(self.request, self.rename, ()) is None

    def _add_targets(self, plan: ForeignPlan, runner: TaskRunner) -> ForeignPlan:
        """Read all objects, and return the plan with the targets that their records name."""
        request = self.request
        if not request.dry_run:
            thaw_objects(request, _list_cold(plan, ObjectStore(request.config.store)))
        trials: list[TrialTask] = []
        for stream in self.make_streams(replace(plan, targets={o.topic: ("",) for o in plan.objects})):
            settings = SentSettings(
                "",
                outgoing=request.outgoing,
                behavior_on_error=request.on_error,
                values=self._choose_value_settings(stream.group.topic, ""),
            )
            trials.append(TrialTask(stream, settings))
        names: dict[str, set[str]] = {o.topic: set() for o in plan.objects}
        counts = self._count(trials, runner)
        for count in counts:
            topic = count.topic
            names[topic].update(name_target_topic(TopicMap({topic: name}), topic) for name in count.elsewhere)
            _check_number(topic, names[topic])
        doubts = (
            f"no record of {count.topic}-{count.kafka_partition} goes to a topic: transforms drop "
            f"{count.filtered_count:,}. {'. '.join(count.facts.notes)}"
            for count in counts
            if not names[count.topic]
        )
        targets = {topic: tuple(sorted(routed)) for topic, routed in names.items()}
        return replace(plan, targets=targets, doubts=(*plan.doubts, *doubts))

    def _count(self, trials: Sequence[TrialTask], runner: TaskRunner) -> list[StreamCount]:
        """Run the trials on Spark, and return the counts of all streams."""
        tasks_max = self.request.config.tasks_max
        return list(runner.run_grouped(count_foreign, trials, tasks_max, lambda t: t.stream.facts.size))

    def plan_targets(self, plan: ForeignPlan) -> tuple[TargetPlan, ...]:
        """Return a plan for each target topic. There are none if there are no objects."""
        return make_foreign_targets(self.request, plan)

    def check(self, plan: ForeignPlan, goals: Sequence[Goal], _: TaskRunner) -> Checked:
        """Check the listing, and try to write the first records of each topic."""
        for goal in goals:
            self._check_outgoing(goal)
        trials = self._make_trials(plan, goals)
        config = self.request.config
        is_begun = plan.starts is not None
        findings = [
            *_check_objects(config, plan),
            *try_first_records(trials, ObjectStore(config.store), is_begun=is_begun),
        ]
        sent = read_sent(self.request, self.after, ObjectStore(config.restore_store))
        findings += [] if sent is None else _find_other_targets(sent, goals, routes=self._routes_records)
        return Checked(tuple(findings), _list_cold(plan, ObjectStore(config.store)))

    def count(self, plan: ForeignPlan, goals: Sequence[Goal], runner: TaskRunner) -> DryRunCount:
        """Read every object to count its records, try to write them, and find bad objects."""
        try:
            counts = self._count(self._make_trials(plan, goals), runner)
        except RecordError as err:
            return DryRunCount(findings=(make_refusal(err.text),))
        newest = {c.topic: c.newest for c in sorted(counts, key=lambda c: c.newest)}
        late = (
            check_newest(newest[topic], goal.target.configs)
            for (topic, _), goal in map_goals(goals).items()
            if goal.target.description and topic in newest
        )
        findings = tuple(dict.fromkeys(chain.from_iterable(late)))
        return DryRunCount(tuple(counts), is_exact=not is_filtered(self.request.records), findings=findings)

    def make_value_settings(self, goal: Goal, topic: str) -> ValueSettings | None:
        """Return how a source topic's keys and values are encoded for the target, or None to send them as read."""
        return self._choose_value_settings(topic, goal.plan.to_topic)

    def _choose_value_settings(self, topic: str, to_topic: str) -> ValueSettings | None:
        """Return the settings for writing keys and values anew, or None if nothing changes them."""
        outgoing = self.request.outgoing
        if not (outgoing.key or outgoing.value or outgoing.transforms):
            return None
        return ValueSettings(outgoing, self.request.config.records, topic, to_topic)

    def make_streams(self, plan: ForeignPlan) -> list[ForeignStreamTask]:
        """Make a stream for each topic, kafka partition and target."""
        request = self.request
        streams: list[ForeignStreamTask] = []
        for group in plan.groups:
            stream = ForeignStreamTask(
                request.config,
                group,
                plan.times,
                find_offset_bound(request.from_offset, group.kafka_partition),
                find_offset_bound(request.to_offset, group.kafka_partition),
                request.allow_unsendable_timestamps,
            )
            targets = plan.targets[group.topic]
            to_topics = targets if self._routes_records else ()
            streams += (replace(stream, to_topic=name, to_topics=to_topics) for name in targets)
        return streams

    def _make_trials(self, plan: ForeignPlan, goals: Sequence[Goal]) -> list[TrialTask]:
        """Make a task for each stream that encodes its records as for sending, but sends nothing."""
        goal_of = map_goals(goals)
        trials = []
        for stream in self.make_streams(plan):
            goal = goal_of[stream.group.topic, stream.to_topic]
            trials.append(TrialTask(stream, goal.sent(self.make_value_settings(goal, stream.group.topic))))
        return trials

    def _check_outgoing(self, goal: Goal) -> None:
        """Raise ConfigError if the transforms, the converters or the partitioner cannot be used."""
        for topic in goal.plan.topics:
            OutgoingStream(topic, 0, goal.sent(self.make_value_settings(goal, topic)))


def _list_cold(plan: ForeignPlan, store: ObjectStore) -> tuple[tuple[ObjectStore, str], ...]:
    """Return the objects of a plan that are in cold storage, each with its store."""
    return tuple((store, o.key) for o in plan.objects if o.is_cold)


def _find_other_targets(sent: SentObjects, goals: Sequence[Goal], *, routes: bool) -> Iterator[PreflightFinding]:
    """Find targets that lack the records of earlier restores, because these went to another topic."""
    for goal in goals:
        description = goal.target.description
        target = (goal.plan.to_topic, description.topic_id if description else "")
        for topic in goal.plan.topics:
            for (to_topic, topic_id), count in sorted(sent.count_elsewhere(topic, target, routes=routes).items()):
                now = "another topic" if description else "a new topic"
                yield make_doubt(
                    f"{target[0]} lacks the records of {topic} that earlier restores have sent: {count:,} objects "
                    f"went to {to_topic} of id {topic_id}, and this is {now}. A restore without --after sends "
                    "everything"
                )


def _check_objects(config: ConnectorConfig, plan: ForeignPlan) -> Iterator[PreflightFinding]:
    """Yield the findings about a plan's objects that are known before any object is read."""
    if not plan.objects:
        yield make_remark("there are no objects to restore")
    yield from describe_cold([item.key for item in plan.objects if item.is_cold])
    yield from map(make_remark, plan.notes)
    yield from map(make_doubt, plan.doubts)
    yield from check_times(config, plan.objects, plan.times)
    if plan.objects:
        yield from map(make_remark, explain_missing(config))


def _complete_request(request: RestoreRequest) -> RestoreRequest:
    """Return the request with the transforms, converters and `behavior.on.error` of the connector's file."""
    config = request.config
    outgoing = request.outgoing
    if config.source is None:
        raise ConfigError(f"connector {config.name} is a sink: its archive is restored by its index")
    if request.restore_acls or outgoing.map_schema_ids:
        what = "ACLs" if request.restore_acls else "schema ids"
        raise ConfigError(f"connector {config.name} is a source: its objects have no {what}, so none can be restored")
    source = config.source.model_copy(update={"behavior_on_error": request.on_error})
    completed = replace(outgoing, transforms=(*config.records.transforms, *outgoing.transforms))
    check_decoding(config.name, config.records, completed)
    if not config.layout.is_envelope:
        key = _choose_converter(outgoing, outgoing.key, config.records.key)
        value = _choose_converter(outgoing, outgoing.value, config.records.value)
        completed = replace(completed, key=key, value=value)
    return replace(request, config=config.model_copy(update={"source": source}), outgoing=completed)


def _choose_converter(
    outgoing: Outgoing, requested: ConverterSettings | None, file_converter: ConverterSettings
) -> ConverterSettings:
    """Return the requested converter, or else the file's, with the target's registry if the restore names one."""
    if requested is not None or outgoing.target_registry is None or file_converter.registry is None:
        return requested or file_converter
    return file_converter.model_copy(update={"registry": outgoing.target_registry})
