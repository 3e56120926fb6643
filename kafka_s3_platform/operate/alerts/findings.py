"""Finds the subjects of alerts: failed work of connectors without a later success, and failed checks.

Failed work is tracked topic by topic, so the failure of one topic does not end because a run of another topic succeeds.
Failed checks of one connector's topics are one finding. A server that does not answer is one finding for all its
connectors.
"""

import math
import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from operator import itemgetter

import dagster as dg

from kafka_s3_platform.core.defs.archive.checks import (
    ERROR,
    LOST_METADATA,
    RISK_CHECK,
    SILENT_METADATA,
    read_reported_time,
)
from kafka_s3_platform.core.defs.failures import RETRIES_TAG
from kafka_s3_platform.core.defs.file_checks import FILES_KEY
from kafka_s3_platform.core.instance.tables import list_failed_checks
from kafka_s3_platform.core.instance.work import (
    REPEATED_WORK,
    Subjects,
    Work,
    digest_key,
    find_failed_assets,
    find_work,
    heals_itself,
    list_picked_keys,
    name_work_jobs,
    read_run_error,
    split_digests,
)
from kafka_s3_platform.operate.alerts.incidents import Finding
from kafka_s3_platform.operate.status.concerns import CONDITIONS

MOST_TITLE = 200
"""The longest quotation of an error in a title, which is the subject of a mail."""


@dataclass(frozen=True)
class FailedCheck:
    """A failed check. `silent_server` names the server that did not answer, or is empty if that was not the reason.

    From `lost_at` on, in seconds since the epoch, Kafka may delete unarchived records. It is infinite if no such time
    is near.
    """

    key: dg.AssetCheckKey
    evaluated_at: datetime
    description: str
    silent_server: str
    lost_at: float = math.inf

    @property
    def connector(self) -> str:
        return self.key.asset_key.path[0]


def read_failed_checks(instance: dg.DagsterInstance, defined: Collection[dg.AssetCheckKey]) -> list[FailedCheck]:
    """Return the failures among the `defined` checks, ordered by name. Mere warnings are left out."""
    failed_checks = []
    for evaluation, at in list_failed_checks(instance):
        if evaluation.severity == ERROR and evaluation.asset_check_key in defined:
            silent_server = evaluation.metadata.get(SILENT_METADATA)
            lost_at = read_reported_time(evaluation.metadata, LOST_METADATA)
            failed_checks.append(
                FailedCheck(
                    evaluation.asset_check_key,
                    datetime.fromtimestamp(at, timezone.utc),
                    evaluation.description or "",
                    "" if silent_server is None else str(silent_server.value),
                    math.inf if lost_at is None else lost_at.timestamp(),
                )
            )
    return sorted(failed_checks, key=lambda check: check.key.to_user_string())


def make_check_findings(checks: Sequence[FailedCheck]) -> Iterator[Finding]:
    """Make one finding for each silent server, and one for each failed check of a connector's topics."""
    groups: dict[str, list[FailedCheck]] = {}
    for check in checks:
        key = f"outage {check.silent_server}" if check.silent_server else name_check_finding(check.key)
        groups.setdefault(key, []).append(check)
    for key, group in groups.items():
        yield _make_check_finding(key, sorted(group, key=lambda check: check.lost_at))


def _make_check_finding(key: str, group: Sequence[FailedCheck]) -> Finding:
    """Make the finding of failed checks with the same `key`. The check with the nearest loss comes first."""
    first = group[0]
    connector = None
    names: tuple[str, ...] = ()
    error = first.description
    if first.silent_server:
        title = f"{first.silent_server} does not answer"
        names = tuple(sorted({check.connector for check in group}))
        advice = CONDITIONS["silent"].advice
    elif first.key.asset_key == FILES_KEY:
        # the first line names the file, the second one may be its first error
        lines = "\n".join(error.splitlines()[:2])
        title = f"a connector file does not load: {textwrap.shorten(lines, MOST_TITLE, placeholder=' ...')}"
        advice = CONDITIONS["unknown"].advice
    else:
        connector = first.connector
        names = tuple(check.key.asset_key.path[-1] for check in group)
        error = _join_descriptions(group)
        is_risk = first.key.name == RISK_CHECK
        title = f"connector {connector}: {'topics are at risk' if is_risk else f'check {first.key.name} fails'}"
        advice = CONDITIONS["late"].advice if is_risk else _OTHER.format(connector)
    return Finding(
        key=key,
        kind="outage" if first.silent_server else "check",
        title=title,
        connector=connector,
        names=names,
        since=min(check.evaluated_at for check in group),
        error=error,
        advice=advice,
        is_healing=bool(first.silent_server),
        lost_at=None if math.isinf(first.lost_at) else first.lost_at,
    )


def _join_descriptions(group: Sequence[FailedCheck]) -> str:
    """Join the checks' descriptions, each with its topics. Equal ones are joined once, the nearest loss first."""
    topics_by_description: dict[str, list[str]] = {}
    for check in group:
        topics_by_description.setdefault(check.description, []).append(check.key.asset_key.path[-1])
    if len(group) == 1:
        return group[0].description
    return "\n".join(f"{_name_topics(topics)}: {description}" for description, topics in topics_by_description.items())


def _name_topics(topics: Sequence[str]) -> str:
    """Return the first topic, and the number of the others."""
    return topics[0] + (f" and {len(topics) - 1:,} more" if len(topics) > 1 else "")


def name_check_finding(key: dg.AssetCheckKey) -> str:
    """Return the key of a failed check's finding, which is the same for all topics of a connector."""
    connector = "" if key.asset_key == FILES_KEY else key.asset_key.path[0]
    return f"check {connector} {key.name}"


_OTHER = (
    "The page of the check in Dagster has more. `kafka-s3 resolve {0}` lists offsets that could not be archived, and "
    "`kafka-s3 verify {0}` compares objects with the index."
)


OVERLAP = timedelta(minutes=2)
"""The time before the last run's end for which a tick looks for runs again, since two machines' clocks may differ."""

FIRST_LOOKBACK = timedelta(days=1)
"""The longest time since a run's end at which the first tick still considers the run."""

_ENDED = (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE)


@dataclass(frozen=True)
class OpenFailure:
    """A failed run, and the part of its work that no later run has done.

    The part is given as digests of 12 characters, of assets or of the whole work. The digests in `failed_once` may heal
    by themselves, and have not failed twice in a row. The digests in `failing` need an alert.
    """

    connector: str
    kind: str
    run_id: str
    ended_at: datetime
    is_healing: bool
    failed_once: str = ""
    failing: str = ""


@dataclass(frozen=True)
class EndedRuns:
    """The outcome of all runs that ended up to `until`.

    `recent_ids` are the runs that ended in the last two minutes before it. `failures` are those not made good by a
    later run.
    """

    until: datetime
    recent_ids: tuple[str, ...] = ()
    failures: tuple[OpenFailure, ...] = ()


def add_ended_runs(
    instance: dg.DagsterInstance,
    last_ended: EndedRuns | None,
    subjects: Subjects,
    silent: Collection[str],
    now: datetime,
) -> EndedRuns:
    """Add the runs ended since `last_ended`.

    `silent` are the connectors whose cluster or store does not answer. The outage is a finding of its own, so failures
    of these connectors do not count if they may heal by themselves.
    """
    previous = last_ended or EndedRuns(now - FIRST_LOOKBACK)
    since = previous.until - OVERLAP
    jobs = name_work_jobs({connector for connector, _ in subjects})
    records = instance.get_run_records(dg.RunsFilter(statuses=_ENDED, updated_after=since))
    ended = {r.dagster_run.run_id: (_find_end(r), r.dagster_run) for r in records if _find_end(r) >= since}
    failures = [_drop_undefined(failure, subjects) for failure in _drop_deleted(previous.failures, instance)]
    for ended_at, run in sorted((ended[id_] for id_ in ended.keys() - set(previous.recent_ids)), key=itemgetter(0)):
        for work in find_work(run, jobs):
            if work[1] == "restore" and run.status != dg.DagsterRunStatus.SUCCESS and RETRIES_TAG in run.tags:
                continue  # somebody waits for the command, which prints how it ended
            failures = _add_run(failures, ended_at, run, work, subjects.get(work, {}), silent)
    until = min(now, max([previous.until, *(ended_at for ended_at, _ in ended.values())]))
    recent_ids = tuple(sorted(run_id for run_id, (ended_at, _) in ended.items() if ended_at >= until - OVERLAP))
    return EndedRuns(until, recent_ids, tuple(f for f in failures if f.failed_once or f.failing))


def make_run_findings(instance: dg.DagsterInstance, ended: EndedRuns, subjects: Subjects) -> Iterator[Finding]:
    """Make one finding for each kind of failing work, with the error of its last failed run."""
    by_work: dict[Work, list[OpenFailure]] = {}
    for failure in ended.failures:
        if failure.failing:
            by_work.setdefault((failure.connector, failure.kind), []).append(failure)
    for (connector, kind), failures in by_work.items():
        last = max(failures, key=lambda failure: failure.ended_at)
        names = subjects[connector, kind]
        is_healing = all(failure.is_healing for failure in failures)
        asked_once = kind not in REPEATED_WORK
        yield Finding(
            name_run_finding(connector, kind),
            "run",
            f"connector {connector}: {kind} fails",
            connector,
            tuple(
                sorted(
                    filter(None, (names[digest] for failure in failures for digest in split_digests(failure.failing)))
                )
            ),
            min(failure.ended_at for failure in failures),
            read_run_error(instance, last.run_id),
            _HEALING if is_healing else (_NOBODY_ASKS if asked_once else _PERMANENT),
            is_healing,
            last.run_id,
            asked_once=asked_once,
        )


def name_run_finding(connector: str, kind: str) -> str:
    """Return the key of the finding for failures of this kind of a connector's work."""
    return f"run {connector} {kind}"


_HEALING = "It is asked for again by itself. If it goes on failing, see the error."
_PERMANENT = (
    "Do what the error says. Then execute the run again: until something changes, nobody asks for the same again."
)
_NOBODY_ASKS = "Do what the error says, then start it again under its restore id: it goes on. Nobody else asks for it."


def _add_run(
    failures: Sequence[OpenFailure],
    ended_at: datetime,
    run: dg.DagsterRun,
    work: Work,
    names: Mapping[str, str],
    silent: Collection[str],
) -> list[OpenFailure]:
    """Return the failures that are still open after one more run.

    All assets of the run are removed from earlier failures, and its failed ones are added. `names` maps each asset's
    digest to its topic. `silent` are the connectors whose server does not answer, so their failures may heal by
    themselves.
    """
    connector, kind = work
    picked_digests = {digest_key(key) for key in list_picked_keys(run, connector)}
    attempted = names.keys() & picked_digests if picked_digests else set(names)
    # what it failed to do is in the same state as before, or a worse one
    reasons = find_failed_assets(run, attempted)
    others = [failure for failure in failures if failure.run_id != run.run_id]
    failed_before = {digest for failure in others for digest in split_digests(failure.failed_once)}
    failed_before |= {digest for failure in failures for digest in split_digests(failure.failing)}
    healing = {digest for digest, reason in reasons.items() if heals_itself(kind, reason)}
    permanent = reasons.keys() - healing
    is_excused = connector in silent
    remaining = [_remove_digests(failure, attempted - (healing if is_excused else set())) for failure in failures]
    counted_digests = set() if is_excused else healing
    failed_once = "".join(sorted(counted_digests - failed_before))
    failing = "".join(sorted(permanent | (counted_digests & failed_before)))
    return [*remaining, OpenFailure(connector, kind, run.run_id, ended_at, not permanent, failed_once, failing)]


def _drop_deleted(failures: Sequence[OpenFailure], instance: dg.DagsterInstance) -> list[OpenFailure]:
    """Return the failures whose runs were not deleted. Nobody needs a deleted one, as in `kafka-s3 health`."""
    run_ids = [failure.run_id for failure in failures]
    present = {*instance.get_run_ids(dg.RunsFilter(run_ids=run_ids))} if run_ids else set()
    return [failure for failure in failures if failure.run_id in present]


def _drop_undefined(failure: OpenFailure, subjects: Subjects) -> OpenFailure:
    """Return the failure without the assets and work no longer defined in any file."""
    names = subjects.get((failure.connector, failure.kind), {})
    return _remove_digests(
        failure, {*split_digests(failure.failed_once), *split_digests(failure.failing)} - names.keys()
    )


def _remove_digests(failure: OpenFailure, digests: Collection[str]) -> OpenFailure:
    """Return the failure without these assets, because a later run has done them or they are gone."""
    texts = failure.failed_once, failure.failing
    failed_once, failing = ("".join(d for d in split_digests(text) if d not in digests) for text in texts)
    return replace(failure, failed_once=failed_once, failing=failing)


def _find_end(record: dg.RunRecord) -> datetime:
    """Return the time when the run ended, or when it was created if Dagster does not know its end."""
    return datetime.fromtimestamp(record.end_time or record.create_timestamp.timestamp(), timezone.utc)
