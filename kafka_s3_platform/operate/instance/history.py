"""The history of connectors' runs in Dagster's instance: failures, durations, and restores under way."""

import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import cached_property

import dagster as dg

from kafka_s3_platform.core.errors import PlatformError
from kafka_s3_platform.core.instance.names import SEPARATOR, make_name
from kafka_s3_platform.core.instance.work import (
    KIND_OF_GROUP,
    RESTORE_TAG,
    digest_key,
    find_failed_assets,
    find_work,
    heals_itself,
    list_picked_keys,
    list_subjects,
    name_restored_op,
    name_work_jobs,
    read_how,
    read_run_error,
)
from kafka_s3_platform.core.model.health import EndedRun, FailedRun, RunHistory, RunningRestore, Trigger
from kafka_s3_platform.operate.instance.home import find_instance


def read_triggers(
    instance: dg.DagsterInstance, connectors: Iterable[str], now: datetime
) -> Mapping[str, Mapping[str, Trigger]]:
    """Read the connectors' sensors and schedules that Dagster has evaluated, or that somebody has turned on or off.

    If two code locations have one of the same name, the one evaluated last counts.
    """
    names = {make_name(name): name for name in connectors}
    by_connector: dict[str, dict[str, Trigger]] = defaultdict(dict)
    for state in instance.all_instigator_state():
        verb, _, name = state.instigator_name.partition(SEPARATOR)
        if name in names:
            trigger = _make_trigger(verb, state.is_running, state.instigator_data, now)
            namesake = by_connector[names[name]].get(verb, trigger)
            by_connector[names[name]][verb] = max(trigger, namesake, key=lambda t: t.evaluated_at or _NEVER)
    return by_connector


def _make_trigger(verb: str, is_on: bool, data: object, now: datetime) -> Trigger:
    """Make the trigger from Dagster's data of a sensor or a schedule. The two name the same facts differently."""

    def read_time(*fields: str) -> datetime | None:
        seconds = next(filter(None, (getattr(data, field, None) for field in fields)), None)
        return None if seconds is None else datetime.fromtimestamp(seconds, timezone.utc)

    started_at = read_time("last_sensor_start_timestamp", "start_timestamp")
    evaluated_at = read_time("last_tick_start_timestamp", "last_iteration_timestamp")
    interval = getattr(data, "min_interval", None)
    last = max(started_at or _NEVER, evaluated_at or _NEVER)
    is_late = is_on and interval is not None and now - last > timedelta(seconds=interval) + TICK_PATIENCE
    return Trigger(verb, is_on, started_at, evaluated_at, is_late)


_NEVER = datetime.fromtimestamp(0, timezone.utc)

TICK_PATIENCE = timedelta(minutes=5)
"""The time beyond its interval within which a sensor that is on should be evaluated. Dagster evaluates many."""

logger = logging.getLogger(__name__)

REMEMBERED_RUNS = 1000
"""The number of last changed runs the first call reads. Later calls read the runs that have changed since."""

OVERLAP = timedelta(minutes=2)
"""The time before the last call from which on a call reads changed runs, because two machines' clocks may differ."""

_ENDED = (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE)


@dataclass(frozen=True)
class _Run:
    """A run that ended, and its topics: all `touched` ones, and `failed` ones. Work without topics has the topic ""."""

    run_id: str
    kind: str
    ended_at: datetime
    seconds: float | None
    is_success: bool
    touched: frozenset[str]
    failed: frozenset[str]
    is_healing: bool


NO_INSTANCE = "there is no instance of Dagster: set DAGSTER_HOME, or go to a dagster.yaml's folder"


class NoInstanceError(Exception):
    """There is no Dagster instance here (`NO_INSTANCE`), or it cannot be opened."""


class RunHistories:
    """Reads the histories of connectors from Dagster's instance. Each call reads only the changes since the last call.

    The first call opens the instance. Canceled runs are ignored, because somebody wanted them to end.
    """

    def __init__(self) -> None:
        self._since: datetime | None = None
        self._connectors: frozenset[str] = frozenset()
        self._last: dict[tuple[str, str], _Run] = {}
        self._failed: dict[tuple[str, str, str], _Run] = {}
        self._succeeded: dict[tuple[str, str, str], _Run] = {}
        self._errors: dict[str, str] = {}
        self._runs_of_day: dict[tuple[str, str], _Run] = {}

    def read(self, connectors: Sequence[str]) -> dict[str, RunHistory]:
        """Return the history of each of `connectors`, and of other connectors whose assets Dagster knows.

        Raises NoInstanceError, and the errors of Dagster's storage.
        """
        instance = self._instance
        jobs = name_work_jobs(connectors)
        started_at = datetime.now(timezone.utc)
        if not self._connectors.issuperset(connectors):
            # no earlier run of a new connector has been noted
            self._since = None
        self._forget_deleted(instance)
        updated_after = None if self._since is None else self._since - OVERLAP
        records = instance.get_run_records(
            dg.RunsFilter(statuses=_ENDED, updated_after=updated_after),
            limit=REMEMBERED_RUNS,
            order_by="update_timestamp",
        )
        keys = instance.all_asset_keys()
        subjects = list_subjects(connectors, keys)
        for record in records:
            for name, kind in find_work(record.dagster_run, jobs):
                run = _make_run(record, name, kind, subjects.get((name, kind), {}))
                self._note(name, run)
                self._runs_of_day[name, run.run_id] = run
        self._runs_of_day = {
            key: run for key, run in self._runs_of_day.items() if started_at - run.ended_at < timedelta(days=1)
        }
        self._since = started_at
        self._connectors = frozenset(connectors)
        restores = self._list_restores(connectors, jobs)
        ended: dict[str, list[EndedRun]] = defaultdict(list)
        for (name, kind), run in sorted(self._last.items()):
            ended[name].append(EndedRun(kind, run.ended_at, run.seconds, run.is_success))
        failures = self._list_failures(connectors)
        topics: dict[str, set[str]] = defaultdict(set)  # topics with an event of a sensor
        for key in keys:
            if len(key.path) == 3 and key.path[1] == "kafka":
                topics[key.path[0]].add(key.path[2])
        triggers = read_triggers(instance, connectors, started_at)
        runs = Counter(name for name, _ in self._runs_of_day)
        failed_runs = Counter(name for (name, _), run in self._runs_of_day.items() if not run.is_success)
        return {
            name: RunHistory(
                tuple(failures.get(name, ())),
                tuple(ended[name]),
                tuple(restores.get(name, ())),
                frozenset(topics[name]),
                runs[name],
                failed_runs[name],
                tuple(triggers.get(name, {}).values()),
            )
            for name in {*connectors, *topics}
        }

    def _forget_deleted(self, instance: dg.DagsterInstance) -> None:
        """Make this call read everything again if a failed run was deleted, because an earlier run may count now."""
        run_ids = [*{run.run_id for run in self._failed.values()}]
        if run_ids and len(instance.get_run_ids(dg.RunsFilter(run_ids=run_ids))) < len(run_ids):
            self._since = None
            for runs in (self._last, self._runs_of_day, self._failed, self._succeeded):
                runs.clear()

    def _list_restores(
        self, connectors: Sequence[str], jobs: Mapping[str, tuple[str, str]]
    ) -> dict[str, list[RunningRestore]]:
        """List each connector's restores under way, with their ids."""
        restores: dict[str, list[RunningRestore]] = {name: [] for name in connectors}
        for run in self._instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED])):
            for name, kind in find_work(run, jobs):
                if kind == "restore":
                    named_id = read_how(run, name_restored_op(name)).get("restore_id")
                    # the id in its config, or the id of the first run of its retries
                    restore_id = str(run.tags.get(RESTORE_TAG) or named_id or run.root_run_id or run.run_id)
                    restores[name].append(RunningRestore(run.run_id, restore_id))
        return restores

    def _note(self, connector: str, run: _Run) -> None:
        """Note a run as the last of its kind, and as the last failure or success of its topics."""
        last_run = self._last.get((connector, run.kind))
        if last_run is None or run.ended_at >= last_run.ended_at:
            self._last[connector, run.kind] = run
        for topic in run.touched:
            last_by_topic = self._failed if topic in run.failed else self._succeeded
            last_of_topic = last_by_topic.get((connector, run.kind, topic))
            if last_of_topic is None or run.ended_at >= last_of_topic.ended_at:
                last_by_topic[connector, run.kind, topic] = run

    def _list_failures(self, connectors: Iterable[str]) -> Mapping[str, Sequence[FailedRun]]:
        """List each connector's failed runs, latest first, with a topic that has not succeeded since.

        Add the latest failed run whose topics have all succeeded since. The text of each error is read once.
        """
        topics: dict[tuple[str, _Run], set[str]] = defaultdict(set)
        recovered: dict[str, _Run] = {}
        for (connector, kind, topic), run in self._failed.items():
            success = self._succeeded.get((connector, kind, topic))
            if success is None or success.ended_at <= run.ended_at:
                topics[connector, run].add(topic)
            elif connector not in recovered or run.ended_at > recovered[connector].ended_at:
                recovered[connector] = run
        for connector, run in recovered.items():
            topics.setdefault((connector, run), set())
        runs = {run.run_id for _, run in topics}
        self._errors = {run_id: self._errors.get(run_id) or read_run_error(self._instance, run_id) for run_id in runs}
        failed_runs: dict[str, list[FailedRun]] = {name: [] for name in connectors}
        for (connector, run), failed_topics in topics.items():
            names = tuple(sorted(filter(None, failed_topics or run.failed)))
            if connector in failed_runs:
                message = self._errors[run.run_id]
                failed_run = FailedRun(
                    run.run_id, run.kind, run.ended_at, message, not failed_topics, names, run.is_healing
                )
                failed_runs[connector].append(failed_run)
        return {name: sorted(runs, key=lambda run: run.ended_at, reverse=True) for name, runs in failed_runs.items()}

    @cached_property
    def _instance(self) -> dg.DagsterInstance:
        try:
            instance = find_instance()
        except PlatformError as err:
            raise NoInstanceError(str(err)) from err
        except Exception as err:
            # the text of a database's error may contain its address, and so a password
            raise NoInstanceError(f"Dagster's instance cannot be opened: {type(err).__name__}") from err
        if instance is None:
            raise NoInstanceError(NO_INSTANCE)
        return instance


def _make_run(record: dg.RunRecord, connector: str, kind: str, topics: Mapping[str, str]) -> _Run:
    """Build the `_Run` of a record. `topics` are the connector's topics, by the digests of their assets."""
    run = record.dagster_run
    ended_at = record.end_time or record.update_timestamp.replace(tzinfo=timezone.utc).timestamp()
    seconds = None if record.start_time is None else max(0.0, ended_at - record.start_time)
    picked_topics = {
        digest_key(key): "".join(key.path[2:])
        for key in list_picked_keys(run, connector)
        if key.path[0] == connector and len(key.path) > 1 and KIND_OF_GROUP.get(key.path[1]) == kind
    }
    run_topics = picked_topics or topics or {"": ""}
    reasons = find_failed_assets(run, run_topics)
    failed_topics = {run_topics[digest] for digest in reasons}
    is_success = run.status is dg.DagsterRunStatus.SUCCESS
    return _Run(
        run.run_id,
        kind,
        datetime.fromtimestamp(ended_at, timezone.utc),
        seconds,
        is_success,
        frozenset(run_topics.values()),
        frozenset(failed_topics if failed_topics or is_success else run_topics.values()),
        all(heals_itself(kind, reason) for reason in reasons.values()),
    )
