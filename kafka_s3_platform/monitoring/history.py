"""What Dagster's instance knows of connectors' runs: which failed last and why, and how long the last ones took."""

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import cached_property

import dagster as dg

from kafka_s3_platform.defs.restore.form import name_restored_op
from kafka_s3_platform.defs.work import find_work, name_work_jobs, read_run_error
from kafka_s3_platform.errors import PlatformError
from kafka_s3_platform.instance.home import find_instance
from kafka_s3_platform.model.health import EndedRun, FailedRun, RunHistory, RunningRestore

logger = logging.getLogger(__name__)

REMEMBERED_RUNS = 1000
"""So many runs that changed last are looked at by the first look. Later ones look at those that changed since."""

OVERLAP = timedelta(minutes=2)
"""So far before the last look a look begins: the clocks of two machines may differ."""

_ENDED = (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE)


@dataclass(frozen=True)
class _Run:
    """What counts of a run that ended."""

    run_id: str
    kind: str
    ended_at: datetime
    seconds: float | None
    is_success: bool


class NoInstanceError(Exception):
    """There is no instance of Dagster here, or it cannot be opened."""


class RunHistories:
    """Reads the histories of connectors from Dagster's instance, again and again. The first look opens it.

    A run that was canceled tells nothing: somebody wanted its end.
    """

    def __init__(self) -> None:
        self._since: datetime | None = None
        self._connectors: frozenset[str] = frozenset()
        self._last: dict[tuple[str, str], _Run] = {}
        self._failed: dict[str, _Run] = {}
        self._succeeded: dict[tuple[str, str], datetime] = {}
        self._told: dict[str, tuple[str, str]] = {}

    def read(self, connectors: Sequence[str]) -> dict[str, RunHistory]:
        """Return the history of each connector. Raises NoInstanceError, and whatever Dagster's storage raises."""
        instance = self._instance
        jobs = name_work_jobs(connectors)
        began = datetime.now(timezone.utc)
        if not self._connectors.issuperset(connectors):
            # of a connector that was not there yet, no earlier run was noted
            self._since = None
        after = None if self._since is None else self._since - OVERLAP
        records = instance.get_run_records(
            dg.RunsFilter(statuses=_ENDED, updated_after=after), limit=REMEMBERED_RUNS, order_by="update_timestamp"
        )
        for record in records:
            for name, kind in find_work(record.dagster_run, jobs):
                self._note(name, _make_run(record, kind))
        self._since, self._connectors = began, frozenset(connectors)
        restores = self._list_restores(connectors, jobs)
        ended: dict[str, list[EndedRun]] = defaultdict(list)
        for (name, kind), run in sorted(self._last.items()):
            ended[name].append(EndedRun(kind, run.ended_at, run.seconds, run.is_success))
        self._told = {run.run_id: self._read_error(instance, run.run_id) for run in self._failed.values()}
        return {
            name: RunHistory(self._describe_failed(name), tuple(ended[name]), tuple(restores[name]))
            for name in connectors
        }

    def _list_restores(
        self, connectors: Sequence[str], jobs: Mapping[str, tuple[str, str]]
    ) -> dict[str, list[RunningRestore]]:
        found: dict[str, list[RunningRestore]] = {name: [] for name in connectors}
        for run in self._instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED])):
            for name, kind in find_work(run, jobs):
                if kind == "restore":
                    found[name].append(RunningRestore(run.run_id, _find_restore_id(run, name)))
        return found

    def _note(self, connector: str, run: _Run) -> None:
        last = self._last.get((connector, run.kind))
        if last is None or run.ended_at >= last.ended_at:
            self._last[connector, run.kind] = run
        if run.is_success:
            known = self._succeeded.get((connector, run.kind), run.ended_at)
            self._succeeded[connector, run.kind] = max(known, run.ended_at)
        elif connector not in self._failed or run.ended_at >= self._failed[connector].ended_at:
            self._failed[connector] = run

    def _describe_failed(self, connector: str) -> FailedRun | None:
        run = self._failed.get(connector)
        if run is None:
            return None
        error, message = self._told[run.run_id]
        over = self._succeeded.get((connector, run.kind))
        is_over = over is not None and over > run.ended_at
        return FailedRun(run.run_id, run.kind, run.ended_at, error, message, is_over)

    @cached_property
    def _instance(self) -> dg.DagsterInstance:
        try:
            found = find_instance()
        except PlatformError as err:
            raise NoInstanceError(str(err)) from err
        except Exception as err:
            # the text of a database's error may hold what its address does
            raise NoInstanceError(f"Dagster's instance cannot be opened: {type(err).__name__}") from err
        if found is None:
            raise NoInstanceError("there is no instance of Dagster: set DAGSTER_HOME, or go to a dagster.yaml's folder")
        return found

    def _read_error(self, instance: dg.DagsterInstance, run_id: str) -> tuple[str, str]:
        """Return the class of the error that ended a run, and its message. It is read once."""
        if run_id in self._told:
            return self._told[run_id]
        return read_run_error(instance, run_id)


def _find_restore_id(run: dg.DagsterRun, connector: str) -> str:
    """Return the id under which the run restores: the one in its config, or that of the first run of its retries."""
    ops = run.run_config.get("ops")
    op = ops.get(name_restored_op(connector)) if isinstance(ops, Mapping) else None
    config = op.get("config") if isinstance(op, Mapping) else None
    how = config.get("how") if isinstance(config, Mapping) else None
    given = how.get("restore_id") if isinstance(how, Mapping) else None
    return str(given or run.root_run_id or run.run_id)


def _make_run(record: dg.RunRecord, kind: str) -> _Run:
    run = record.dagster_run
    ended = record.end_time or record.update_timestamp.replace(tzinfo=timezone.utc).timestamp()
    seconds = None if record.start_time is None else max(0.0, ended - record.start_time)
    ended_at = datetime.fromtimestamp(ended, timezone.utc)
    return _Run(run.run_id, kind, ended_at, seconds, run.status is dg.DagsterRunStatus.SUCCESS)
