"""Requests runs, and reads unfinished runs, ended runs and shown hours from the instance.

The shown hours, which Dagster shows as materialized, stay in the process, so that a tick reads only new events.
"""

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from functools import cached_property
from sys import intern
from typing import Any

import dagster as dg

from kafka_s3_platform.core.defs.archive.checks import list_index_checks
from kafka_s3_platform.core.defs.jobs import list_changing_jobs
from kafka_s3_platform.core.defs.processes import find_unfinished_runs
from kafka_s3_platform.core.defs.topic import TopicAssets
from kafka_s3_platform.core.instance.windows import Windows
from kafka_s3_platform.core.instance.work import (
    FAILURE_TAG,
    FIRST_WINDOW_TAG,
    LAST_WINDOW_TAG,
    PRIORITY_TAG,
    REQUEST_TAG,
    WINDOW_TAG,
    digest_inputs,
    find_failure,
    find_request_name,
    is_request_for,
    list_picked_keys,
    make_request_tags,
    make_window_tags,
    read_failed,
    read_inputs,
)

MARGIN = 1000
"""Distance from the newest event id within which events are read again.

An event may get its id before others, but become visible after them.
"""


@dataclass
class _ReadHours:
    """Hours of one asset, read up to an event."""

    event_id: int = 0
    starts: set[datetime] = field(default_factory=set)


_read_hours: dict[tuple[str, dg.AssetKey], _ReadHours] = {}


class ShownHours:
    """The hours an instance shows as materialized in one tick."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self._instance = instance

    def of(self, topic: TopicAssets) -> Collection[datetime]:
        """Return the starts of the topic's hours that Dagster shows as materialized, read when they are needed."""
        hours = _read_hours.setdefault((self._instance_id, topic.key("hourly")), _ReadHours())
        return _ShownTopicHours(self._instance, topic, hours, self)

    @cached_property
    def _instance_id(self) -> str:
        # A storage without an id is taken for the only one of this process.
        find = getattr(self._instance.run_storage, "get_run_storage_id", None)
        return str(find()) if find else ""

    @cached_property
    def newest_event_id(self) -> int:
        return self._instance.event_log_storage.get_maximum_record_id() or 0


class _ShownTopicHours(Collection[datetime]):
    """Asks the instance only about hours not yet known to be shown. Hours stay known after their events are deleted."""

    def __init__(self, instance: dg.DagsterInstance, topic: TopicAssets, hours: _ReadHours, shown: ShownHours) -> None:
        self._instance = instance
        self._topic = topic
        self._hours = hours
        self._shown = shown
        self._is_read = False

    def __contains__(self, hour: object) -> bool:
        if hour in self._hours.starts:
            return True
        self._read()
        return hour in self._hours.starts

    def __iter__(self) -> Iterator[datetime]:
        self._read()
        return iter(self._hours.starts)

    def __len__(self) -> int:
        self._read()
        return len(self._hours.starts)

    def _read(self) -> None:
        """Read the hours materialized since the last tick, once in a tick and only if they are needed."""
        if self._is_read:
            return
        self._is_read = True
        newest = self._shown.newest_event_id
        keys = self._instance.get_materialized_partitions(
            self._topic.key("hourly"), after_cursor=max(0, self._hours.event_id - MARGIN)
        )
        self._hours.starts |= self._topic.hours.starts(keys)
        self._hours.event_id = newest


REMEMBERED_RUNS = 100
"""Number of the last ended runs to read. The work of earlier runs may be requested once more."""

REMEMBERED_FAILURES = 100
"""Number of the last failed runs to read, however old, so that a permanent failure is not tried for ever."""

FIRST_WAIT = timedelta(minutes=1)
LONGEST_WAIT = timedelta(hours=1)
DOUBLINGS = 6
"""Number of doublings after which the wait is at LONGEST_WAIT."""

_FAILED = [dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]
_ENDED = [dg.DagsterRunStatus.SUCCESS, *_FAILED]


@dataclass(frozen=True)
class Due:
    """An asset's due work: contiguous partition keys, or none for a run without partitions."""

    key: dg.AssetKey
    partition_keys: tuple[str, ...]
    fingerprint: str
    """A digest of the inputs that decide how the run ends."""


class Requests:
    """The runs of a connector's assets of one group in one tick, and the tick's requests.

    Runs are read once in a tick, when the first asset needs them. Ended runs are read once in a process.
    """

    def __init__(self, instance: dg.DagsterInstance, keys: Sequence[dg.AssetKey]) -> None:
        self._instance = instance
        self._name = find_request_name(keys[0])
        self._due: list[Due] = []
        self._priorities: dict[dg.AssetKey, int] = {}

    def list_unfinished(self, key: dg.AssetKey) -> list[dg.DagsterRun]:
        """Return the unfinished runs that change the asset. Report runs of killed processes as failed."""
        return [run for run in self._unfinished if is_changing(run, key)]

    def is_under_way(self, key: dg.AssetKey, windows: Windows, moment: datetime) -> bool:
        """Return True if an unfinished run works on the asset's hour (or day) of the moment."""
        return any(start <= moment < end for start, end in list_windows(self.list_unfinished(key), windows))

    def is_requested(self, key: dg.AssetKey) -> bool:
        """Return True if a sensor or schedule requested an unfinished run of the asset."""
        return any(is_request_for(run.tags, key) for run in self.list_unfinished(key))

    def find_reason_to_wait(self, key: dg.AssetKey, fingerprint: str) -> str | None:
        """Return a reason not to request a run now, or None if there is none.

        The reason is a run with the same inputs that has not failed transiently, or a failure a short time ago.
        """
        digest = digest_inputs(key, fingerprint)
        for run in self.list_unfinished(key):
            if is_request_for(run.tags, key) and digest in read_inputs(run.tags):
                return f"run {run.run_id} with the same inputs is queued or under way"
        ended_runs = [run for run in self._ended if run.names(key)]
        same = next((run for run in ended_runs if digest in run.inputs), None)
        if same is not None and not same.is_transient(key):
            return f"run {same.run_id} with the same inputs {same.describe(key)}"
        failures = _list_failures(ended_runs, key)
        if not failures:
            return None
        wait = min(FIRST_WAIT * 2 ** min(len(failures) - 1, DOUBLINGS), LONGEST_WAIT)
        until = failures[0].ended_at + wait
        if datetime.now(timezone.utc) < until:
            return f"run {failures[0].run_id} failed; asked for again at {until:%H:%M:%S} UTC"
        return None

    def ask(self, key: dg.AssetKey, partition_keys: Sequence[str], fingerprint: str) -> str | None:
        """Note a run of the asset as due. If it has to wait, note nothing and return the reason."""
        reason = self.find_reason_to_wait(key, fingerprint)
        if reason is None:
            self._due.append(Due(key, tuple(partition_keys), fingerprint))
        return reason

    def set_priority(self, key: dg.AssetKey, priority: int) -> None:
        """Let this tick's runs of the asset start before queued ones of a lower priority."""
        self._priorities[key] = priority

    def has_asked(self, key: dg.AssetKey) -> bool:
        """Return True if this tick asked for a run of the asset."""
        return any(due.key == key for due in self._due)

    def make(self, job_name: str, run_config: Mapping[str, Any] | None = None) -> list[dg.RunRequest]:
        """Make the requests of this tick for Dagster: one run for all assets with the same partition keys."""
        groups: dict[tuple[str, ...], list[Due]] = {}
        for due in self._due:
            groups.setdefault(due.partition_keys[:: max(1, len(due.partition_keys) - 1)], []).append(due)
        return [self._make_request(job_name, ends, group, run_config) for ends, group in groups.items()]

    def _make_request(
        self, job_name: str, ends: Sequence[str], group: Sequence[Due], run_config: Mapping[str, Any] | None
    ) -> dg.RunRequest:
        """Make the request of one run for assets with the same partition keys. `ends` are the first and the last."""
        keys = [due.key for due in group]
        window_tags = {FIRST_WINDOW_TAG: ends[0], LAST_WINDOW_TAG: ends[-1]} if ends else {}
        if priority := max(self._priorities.get(key, 0) for key in keys):
            window_tags[PRIORITY_TAG] = str(priority)
        # If the request named no checks, Dagster would run all checks of the assets, even checks that list the bucket.
        return dg.RunRequest(
            run_key=self._make_run_key(group),
            job_name=job_name,
            asset_selection=keys,
            asset_check_keys=[check for key in keys for check in list_index_checks(key)],
            tags={
                **window_tags,
                **make_window_tags(window_tags),
                **make_request_tags({due.key: due.fingerprint for due in group}),
            },
            run_config=run_config,
        )

    def _make_run_key(self, group: Sequence[Due]) -> str:
        """Make a unique run key of the inputs and the last requested run.

        Several requests of one schedule need different keys. Dagster drops a sensor's request if an earlier run of the
        sensor has the same key, so the next try needs another key.
        """
        inputs = "".join(digest_inputs(due.key, due.fingerprint) for due in group)
        digest = hashlib.sha256(inputs.encode()).hexdigest()[:16]
        return f"{self._name} {digest}" + (f" after {self._newest}" if self._newest else "")

    @cached_property
    def _unfinished(self) -> list[dg.DagsterRun]:
        return find_unfinished_runs(self._instance)

    @cached_property
    def _newest(self) -> str | None:
        """The last requested run, ended or not."""
        return next(iter(self._instance.get_run_ids(dg.RunsFilter(tags=self._tags), limit=1)), None)

    @cached_property
    def _ended(self) -> list["_EndedRun"]:
        """The requested runs that have ended, the newest first."""
        # A run that ends meanwhile is in the first list, so read that one first.
        _ = self._unfinished
        newest_ids = self._instance.get_run_ids(dg.RunsFilter(tags=self._tags, statuses=_ENDED), limit=REMEMBERED_RUNS)
        failed_ids = self._instance.get_run_ids(
            dg.RunsFilter(tags=self._tags, statuses=_FAILED), limit=REMEMBERED_FAILURES
        )
        ids = list(dict.fromkeys([*newest_ids, *failed_ids]))
        remembered_runs = _ended_runs.get(self._name, {})
        runs_by_id = {run_id: remembered_runs[run_id] for run_id in ids if run_id in remembered_runs}
        if unread_ids := [run_id for run_id in ids if run_id not in runs_by_id]:
            for record in self._instance.get_run_records(dg.RunsFilter(run_ids=unread_ids)):
                runs_by_id[record.dagster_run.run_id] = _describe_ended(record)
        _ended_runs[self._name] = runs_by_id
        return [runs_by_id[run_id] for run_id in ids if run_id in runs_by_id]

    @property
    def _tags(self) -> Mapping[str, str]:
        return {REQUEST_TAG: self._name}


@dataclass(frozen=True)
class _EndedRun:
    """The outcome of an ended run for its assets, which no longer changes."""

    run_id: str
    status: dg.DagsterRunStatus
    ended_at: datetime
    keys: frozenset[str]
    inputs: frozenset[str]
    kind: str | None
    """The kind of failure of the run as a whole."""

    failed: Mapping[str, frozenset[str]] | None
    """Digests of failed assets by kind of failure, or None if all assets failed, or none did."""

    def names(self, key: dg.AssetKey) -> bool:
        """Return True if the run is for the asset, or for its entire job."""
        return not self.keys or key.to_user_string() in self.keys

    def has_done(self, key: dg.AssetKey) -> bool:
        """Return True if the run has done its work on the asset."""
        if self.status != dg.DagsterRunStatus.FAILURE:
            return self.status == dg.DagsterRunStatus.SUCCESS
        return self.failed is not None and find_failure(self.failed, key) is None

    def is_transient(self, key: dg.AssetKey) -> bool:
        """Return True if the asset failed for a transient reason: a broker was down, or the process was killed."""
        if self.status != dg.DagsterRunStatus.FAILURE or self.has_done(key):
            return False
        return (find_failure(self.failed, key) if self.failed else self.kind) != "permanent"

    def describe(self, key: dg.AssetKey) -> str:
        """Return the end of a sentence: the run's outcome for the asset, and the next step."""
        if self.has_done(key):
            return "succeeded; to do it again, re-execute that run"
        return f"ended as {self.status.value}; fix its cause, then re-execute that run"


_ended_runs: dict[str, dict[str, _EndedRun]] = {}
"""Ended runs by connector and group, because the stored form of a run with many topics takes long to read."""


def list_windows(runs: Sequence[dg.DagsterRun], windows: Windows) -> list[tuple[datetime, datetime]]:
    """Return the windows of the runs' partition keys. Tags without a key are skipped, as anybody can set tags."""
    windows_of_runs = []
    for run in runs:
        first_key = run.tags.get(FIRST_WINDOW_TAG) or run.tags.get(WINDOW_TAG)
        last_key = run.tags.get(LAST_WINDOW_TAG) or first_key
        if first_key and last_key and all(windows.is_key(key) for key in (first_key, last_key)):
            windows_of_runs.append((windows.start(first_key), windows.end(last_key)))
    return windows_of_runs


def is_changing(run: dg.DagsterRun, key: dg.AssetKey) -> bool:
    """Return True if the run writes the asset. A run without a selection (None or empty) runs its entire job."""
    picked_keys = list_picked_keys(run, key.path[0])
    if picked_keys or run.asset_check_selection:
        return key in picked_keys
    return run.job_name in list_changing_jobs(key)


def _describe_ended(record: dg.RunRecord) -> _EndedRun:
    """Return the outcome of a run, from its record and its tags."""
    run = record.dagster_run
    end_seconds = record.end_time or record.create_timestamp.timestamp()
    # interned: hundreds of runs name the same hundreds of assets
    keys = frozenset(intern(key.to_user_string()) for key in run.asset_selection or ())
    ended_at = datetime.fromtimestamp(end_seconds, timezone.utc)
    failed_assets = read_failed(run.tags)
    return _EndedRun(
        run.run_id, run.status, ended_at, keys, read_inputs(run.tags), run.tags.get(FAILURE_TAG), failed_assets
    )


def _list_failures(ended_runs: Sequence[_EndedRun], key: dg.AssetKey) -> list[_EndedRun]:
    """Return the runs that failed transiently since the asset was last done, the newest first."""
    failures: list[_EndedRun] = []
    for run in ended_runs:
        if run.has_done(key):
            break
        if run.is_transient(key):
            failures.append(run)
    return failures
