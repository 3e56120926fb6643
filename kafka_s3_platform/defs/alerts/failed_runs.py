"""Which work of a connector has failed and was not done since. It is told by the runs that ended, topic by topic.

A topic that fails is not over because a run of another topic succeeds.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone

import dagster as dg

from kafka_s3_platform.defs.alerts.incidents import Finding
from kafka_s3_platform.defs.failures import RETRIES_TAG
from kafka_s3_platform.instance.request_tags import DIGEST_SIZE, digest_key
from kafka_s3_platform.instance.work import (
    Subjects,
    Work,
    find_failed_assets,
    find_work,
    list_picked_keys,
    name_work_jobs,
    read_run_error,
)

OVERLAP = timedelta(minutes=2)
"""So far before the last run that ended a tick looks again: the clocks of two machines may differ."""

FIRST_LOOK = timedelta(days=1)
"""The first tick looks at runs that ended so short a time ago."""

ASKED_AGAIN = frozenset({"archive", "compact", "verify", "upkeep"})
"""Work that sensors and schedules ask for again. A restore is asked for by nobody."""

_ENDED = (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE)


@dataclass(frozen=True)
class UndoneRun:
    """A run that failed, and what of it was not done since: digests of 12 characters, of assets or of the work.

    `once` may heal by itself, and has not failed twice in a row. `failing` is to be told.
    """

    connector: str
    kind: str
    run_id: str
    ended_at: datetime
    is_healing: bool
    once: str = ""
    failing: str = ""


@dataclass(frozen=True)
class EndedRuns:
    """What is known of the runs that ended up to `until`, `seen` being those of the last two minutes before."""

    until: datetime
    seen: tuple[str, ...] = ()
    failed: tuple[UndoneRun, ...] = ()


def note_ended_runs(
    instance: dg.DagsterInstance, before: EndedRuns | None, subjects: Subjects, silent: Collection[str], now: datetime
) -> EndedRuns:
    """Add the runs that ended since. What may heal by itself is no failure of a connector that is `silent`.

    That is one whose cluster or store does not answer, which is told already.
    """
    known = before or EndedRuns(now - FIRST_LOOK)
    since = known.until - OVERLAP
    jobs = name_work_jobs({connector for connector, _ in subjects})
    records = instance.get_run_records(dg.RunsFilter(statuses=_ENDED, updated_after=since))
    ended = {r.dagster_run.run_id: (_find_end(r), r.dagster_run) for r in records if _find_end(r) >= since}
    failed = [_keep(run, subjects) for run in known.failed]
    for at, run in sorted((ended[run_id] for run_id in ended.keys() - set(known.seen)), key=lambda each: each[0]):
        for work in find_work(run, jobs):
            if work[1] == "restore" and run.status != dg.DagsterRunStatus.SUCCESS and RETRIES_TAG in run.tags:
                continue  # somebody waits for the command, which tells how it ended
            failed = _note(failed, at, run, work, subjects.get(work, {}), silent)
    until = min(now, max([known.until, *(at for at, _ in ended.values())]))
    seen = tuple(sorted(run_id for run_id, (at, _) in ended.items() if at >= until - OVERLAP))
    return EndedRuns(until, seen, tuple(run for run in failed if run.once or run.failing))


def find_failing(instance: dg.DagsterInstance, ended: EndedRuns, subjects: Subjects) -> Iterator[Finding]:
    """Find what fails, with the error of the last run of each work."""
    by_work: dict[Work, list[UndoneRun]] = {}
    for run in ended.failed:
        if run.failing:
            by_work.setdefault((run.connector, run.kind), []).append(run)
    for (connector, kind), runs in by_work.items():
        last = max(runs, key=lambda run: run.ended_at)
        names = subjects[connector, kind]
        healing = all(run.is_healing for run in runs)
        yield Finding(
            name_run_finding(connector, kind),
            "run",
            f"connector {connector}: {kind} fails",
            connector,
            tuple(sorted(filter(None, (names[digest] for run in runs for digest in _split(run.failing))))),
            min(run.ended_at for run in runs),
            read_run_error(instance, last.run_id),
            _HEALING if healing else (_NOBODY_ASKS if kind not in ASKED_AGAIN else _PERMANENT),
            healing,
            last.run_id,
        )


def name_run_finding(connector: str, kind: str) -> str:
    """Return the key of the finding that this work of the connector fails."""
    return f"run {connector} {kind}"


_HEALING = "It is asked for again by itself. If it goes on failing, see the error."
_PERMANENT = (
    "Do what the error says. Then execute the run again: until something changes, nobody asks for the same again."
)
_NOBODY_ASKS = "Do what the error says, then start it again under its restore id: it goes on. Nobody else asks for it."


def _note(
    failed: Sequence[UndoneRun],
    at: datetime,
    run: dg.DagsterRun,
    work: Work,
    names: Mapping[str, str],
    silent: Collection[str],
) -> list[UndoneRun]:
    """Return the failures after one more run has ended."""
    connector, kind = work
    picked = {digest_key(key) for key in list_picked_keys(run, connector)}
    touched = names.keys() & picked if picked else set(names)
    # what it failed to do is in the same state as before, or a worse one
    reasons = find_failed_assets(run, touched)
    again = {digest for each in failed if each.run_id != run.run_id for digest in _split(each.once)} & reasons.keys()
    told = {digest for each in failed for digest in _split(each.failing)} & reasons.keys()
    healing = {digest for digest, reason in reasons.items() if kind in ASKED_AGAIN and reason in {"", "transient"}}
    lasting = reasons.keys() - healing
    is_excused = connector in silent
    left = [_take_away(each, touched - (healing if is_excused else set())) for each in failed]
    counted = set() if is_excused else healing
    new = UndoneRun(connector, kind, run.run_id, at, not lasting)
    once, failing = counted - again - told, lasting | (counted & (again | told))
    return [*left, replace(new, once="".join(sorted(once)), failing="".join(sorted(failing)))]


def _keep(run: UndoneRun, subjects: Subjects) -> UndoneRun:
    """Leave out what is not defined any more."""
    names = subjects.get((run.connector, run.kind), {})
    return _take_away(run, {*_split(run.once), *_split(run.failing)} - names.keys())


def _take_away(run: UndoneRun, digests: Collection[str]) -> UndoneRun:
    once, failing = ("".join(d for d in _split(text) if d not in digests) for text in (run.once, run.failing))
    return replace(run, once=once, failing=failing)


def _split(text: str) -> list[str]:
    return [text[at : at + DIGEST_SIZE] for at in range(0, len(text), DIGEST_SIZE)]


def _find_end(record: dg.RunRecord) -> datetime:
    ended = record.end_time or record.create_timestamp.timestamp()
    return datetime.fromtimestamp(ended, timezone.utc)
