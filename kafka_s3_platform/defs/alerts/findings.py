"""What alerts tell of: work of connectors that failed and was not done since, and checks that fail.

Work is told by the runs that ended, topic by topic: a topic that fails is not over because a run of another topic
succeeds. Failed checks of one connector's topics are told together, and so are all connectors of a silent server.
"""

import math
import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone

import dagster as dg

from kafka_s3_platform.defs.alerts.incidents import Finding
from kafka_s3_platform.defs.archive.checks import ERROR, LOST_METADATA, RISK_CHECK, SILENT_METADATA, read_reported_time
from kafka_s3_platform.defs.failures import RETRIES_TAG
from kafka_s3_platform.defs.file_checks import FILES_KEY
from kafka_s3_platform.instance.tables import list_failed_checks
from kafka_s3_platform.instance.work import (
    DIGEST_SIZE,
    Subjects,
    Work,
    digest_key,
    find_failed_assets,
    find_work,
    list_picked_keys,
    name_work_jobs,
    read_run_error,
)
from kafka_s3_platform.status.concerns import CONDITIONS

MOST_TITLE = 200
"""Characters of an error in a title: it is the subject of a mail."""


@dataclass(frozen=True)
class FailedCheck:
    """A check that fails. `silent` names the server that does not answer, if that is why.

    `lost_at` is when Kafka may delete what is not archived, in seconds since the epoch, infinite if that is not near.
    """

    key: dg.AssetCheckKey
    at: datetime
    says: str
    silent: str
    lost_at: float = math.inf

    @property
    def connector(self) -> str:
        return self.key.asset_key.path[0]


def read_failed_checks(instance: dg.DagsterInstance, known: Collection[dg.AssetCheckKey]) -> list[FailedCheck]:
    """Return those of the `known` checks that fail. One that only warns needs nobody at night."""
    found = []
    for evaluation, at in list_failed_checks(instance):
        if evaluation.severity == ERROR and evaluation.asset_check_key in known:
            silent = evaluation.metadata.get(SILENT_METADATA)
            lost_at = read_reported_time(evaluation.metadata, LOST_METADATA)
            found.append(
                FailedCheck(
                    evaluation.asset_check_key,
                    datetime.fromtimestamp(at, timezone.utc),
                    evaluation.description or "",
                    "" if silent is None else str(silent.value),
                    math.inf if lost_at is None else lost_at.timestamp(),
                )
            )
    return sorted(found, key=lambda check: check.key.to_user_string())


def find_failed(checks: Sequence[FailedCheck]) -> Iterator[Finding]:
    """Make one finding of all that fails together."""
    groups: dict[str, list[FailedCheck]] = {}
    for check in checks:
        key = f"outage {check.silent}" if check.silent else name_check_finding(check.key)
        groups.setdefault(key, []).append(check)
    for key, group in groups.items():
        group.sort(key=lambda check: check.lost_at)
        first = group[0]
        since = min(check.at for check in group)
        if first.silent:
            connectors = tuple(sorted({check.connector for check in group}))
            title = f"{first.silent} does not answer"
            finding = Finding(
                key, "outage", title, None, connectors, since, first.says, CONDITIONS["silent"].advice, is_healing=True
            )
        elif first.key.asset_key == FILES_KEY:
            # the first line names the file, the second one may be its first error
            lines = "\n".join(first.says.splitlines()[:2])
            title = f"a connector file does not load: {textwrap.shorten(lines, MOST_TITLE, placeholder=' ...')}"
            finding = Finding(
                key, "check", title, None, (), since, first.says, CONDITIONS["unknown"].advice, is_healing=False
            )
        else:
            is_risk = first.key.name == RISK_CHECK
            title = "topics are at risk" if is_risk else f"check {first.key.name} fails"
            advice = CONDITIONS["late"].advice if is_risk else _OTHER.format(first.connector)
            topics = tuple(check.key.asset_key.path[-1] for check in group)
            about = (f"connector {first.connector}: {title}", first.connector, topics, since, _fold(group), advice)
            finding = Finding(key, "check", *about, is_healing=False)
        yield finding if math.isinf(first.lost_at) else replace(finding, lost_at=first.lost_at)


def _fold(group: Sequence[FailedCheck]) -> str:
    """Return what is said of the topics, once for all of which the same is said, the nearest loss first."""
    said: dict[str, list[str]] = {}
    for check in group:
        said.setdefault(check.says, []).append(check.key.asset_key.path[-1])
    if len(group) == 1:
        return group[0].says
    return "\n".join(f"{_name(topics)}: {says}" for says, topics in said.items())


def _name(topics: Sequence[str]) -> str:
    return topics[0] + (f" and {len(topics) - 1:,} more" if len(topics) > 1 else "")


def name_check_finding(key: dg.AssetCheckKey) -> str:
    """Return the key of the finding that the check fails: one for all topics of a connector."""
    connector = "" if key.asset_key == FILES_KEY else key.asset_key.path[0]
    return f"check {connector} {key.name}"


_OTHER = (
    "The page of the check in Dagster has more. `kafka-s3 resolve {0}` lists offsets that could not be archived, and "
    "`kafka-s3 verify {0}` compares objects with the index."
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
