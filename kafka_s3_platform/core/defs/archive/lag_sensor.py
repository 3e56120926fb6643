"""The lag sensor: reports each topic's lag and risk, and requests its due hours.

It reads no records. It makes a bounded number of observations of a topic's lag, to keep Dagster's storage small.
"""

import json
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import dagster as dg

from kafka_s3_platform.core.defs.archive.checks import make_evaluation
from kafka_s3_platform.core.defs.archive.empty_windows import EmptyWindows, Window
from kafka_s3_platform.core.defs.archive.first_hour import FirstHourSearch
from kafka_s3_platform.core.defs.jobs import Job
from kafka_s3_platform.core.defs.metadata import Metadata, make_metadata_table
from kafka_s3_platform.core.defs.runs import Requests, ShownHours, list_windows
from kafka_s3_platform.core.defs.tick import Tick
from kafka_s3_platform.core.defs.topic import TopicAssets
from kafka_s3_platform.core.errors import (
    BrokerUnavailableError,
    MissingTopicError,
    PlatformError,
    StoreUnavailableError,
    TransientError,
)
from kafka_s3_platform.core.instance.names import make_op_name
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.model.health import Level, Risk
from kafka_s3_platform.core.model.times import HOUR
from kafka_s3_platform.core.status.backlog import MAX_HOURS, Backlog, UnansweredError, split_contiguous
from kafka_s3_platform.core.status.backlogs import Backlogs, read_archived
from kafka_s3_platform.core.status.index_look import IndexLook
from kafka_s3_platform.core.status.risk import find_risk
from kafka_s3_platform.core.status.topic import fingerprint_inputs
from kafka_s3_platform.core.text import count_noun


def request_hours(
    topic: TopicAssets, backlog: Backlog, requests: Requests, shown: ShownHours, tick: Tick, *, priority: int = 0
) -> None:
    """Request runs of the topic's due hours, one for each contiguous range no run is working on.

    Dagster starts queued runs of a higher `priority` first.
    """
    key = topic.key("hourly")
    requests.set_priority(key, priority)
    if requests.is_requested(key):
        tick.reasons.append(f"{topic.name}: a run asked for earlier is queued or under way")
        return
    if not backlog.frontiers:
        tick.reasons.append(f"{topic.name}: a run would fail until somebody decides")
        return
    runs = requests.list_unfinished(key)
    due_hours, lost_hours = backlog.select_due_hours(_find_due_hours(topic, backlog, runs, shown))
    if lost_hours:
        tick.warn(_describe_lost(topic, len(lost_hours)))
    offered = [hour for hour in due_hours if hour >= topic.first_offered]
    if len(offered) < len(due_hours):
        # Dagster refuses a run of an hour that it does not offer yet
        tick.reasons.append(
            f"{topic.name}: hours before {topic.first_offered} wait: this code location is to be reloaded"
        )
    candidates = [hour for hour in offered if hour not in lost_hours]
    if not runs and _hold_up_later(candidates, backlog):
        _request_until_now(topic, backlog, requests, tick)
    if not requests.has_asked(key):
        _request_oldest(topic, candidates, backlog, requests, tick)
    is_idle = not runs and not requests.has_asked(key)
    if _needs_run_until_now(backlog, due_hours, lost_hours, is_idle=is_idle):
        _request_until_now(topic, backlog, requests, tick)


def _find_due_hours(
    topic: TopicAssets, backlog: Backlog, runs: Sequence[dg.DagsterRun], shown: ShownHours
) -> list[datetime]:
    """Return the due hours no run is working on.

    If kafka partitions wait for a person's decision, hours that were requested before are left out, because a new run
    would again lack these kafka partitions.
    """
    busy = list_windows(runs, topic.hours)
    due = backlog.hours_due(shown.of(topic))
    if backlog.undecided:
        due = [hour for hour in due if hour not in backlog.state.asked_hours]
    return [hour for hour in due if not any(start <= hour < end for start, end in busy)]


def _hold_up_later(candidates: Sequence[datetime], backlog: Backlog) -> bool:
    """Return True if all that waits in closed hours lies behind the oldest hours, beyond the most that are requested.

    A kafka partition without a leader, or with an open transaction, keeps hours due for as long as that lasts. The
    others must not wait for it.
    """
    oldest = backlog.oldest_uncovered
    newest = backlog.newest_closed
    if len(candidates) <= MAX_HOURS or oldest is None or newest is None:
        return False
    return candidates[MAX_HOURS - 1] < oldest <= newest


def _needs_run_until_now(
    backlog: Backlog, due_hours: Collection[datetime], lost_hours: Collection[datetime], *, is_idle: bool
) -> bool:
    """Return True if records need a run up to now, not a run of an hour.

    `is_idle` is True if no run is requested or under way.
    """
    # No run is requested for a lost hour, since it would fail. A run up to now archives what is left of the hour.
    if is_idle and backlog.has_left(lost_hours):
        return True
    if backlog.precedes_hours or (not due_hours and backlog.has_hole):
        return True
    return is_idle and backlog.is_rotation_due


def _request_oldest(
    topic: TopicAssets, candidates: Sequence[datetime], backlog: Backlog, requests: Requests, tick: Tick
) -> None:
    """Request runs of the oldest of these hours, one for each contiguous range."""
    for hours in split_contiguous(candidates[:MAX_HOURS]):
        partition_keys = [topic.hours.key(hour) for hour in hours]
        _request_or_wait(topic, partition_keys, backlog.fingerprint(hours), requests, tick)


def _request_or_wait(
    topic: TopicAssets, partition_keys: Sequence[str], fingerprint: str, requests: Requests, tick: Tick
) -> None:
    """Request a run of these hours, or of all up to now if there are none, or note in the tick why it has to wait."""
    reason = requests.ask(topic.key("hourly"), partition_keys, fingerprint)
    if reason:
        tick.reasons.append(f"{topic.name}: {reason}")


def _request_until_now(topic: TopicAssets, backlog: Backlog, requests: Requests, tick: Tick) -> None:
    """Request a run of all records up to now, including the open hour, and hours no run is requested for."""
    starts = sorted((p, r.ranges[0].start_offset) for p, r in backlog.uncovered.items())
    fingerprint = fingerprint_inputs([backlog.topic_id, topic.config_digest, starts])
    _request_or_wait(topic, [], fingerprint, requests, tick)


def _describe_lost(topic: TopicAssets, count: int) -> str:
    """Return the warning that Kafka deleted records of `count` hours before they were archived."""
    return (
        f"{topic.name}: retention took records of {count_noun(count, 'hour')} before they were archived; they are not "
        f"asked for. Set archive.allow.gaps=true to record the gap. A run up to now archives what is left of them"
    )


MINUTE = timedelta(minutes=1)
OBSERVED_EVERY = timedelta(minutes=10)
"""Interval of the observations of a lag that only moves.

A tick each minute would see the lag of a busy topic move every time. Six points an hour show just as well that runs
catch up, and add no more rows of observations than the runs do. The limits below apply to each such interval.
"""

MORE_BY_LAG = 2
"""Number of further observations when a lag comes or goes, or hours become due.

With `rotate.schedule.interval.ms` of a minute, the lag goes to zero and back all the time.
"""

MORE_BY_TROUBLE = 4
"""Number of further observations of all kinds when a trouble changes.

This means that a kafka partition begins or ceases to fail, that a hole appears or goes, or that the risk changes.

It is more than MORE_BY_LAG, so that a lag that comes and goes never holds up the report of a failure. The report of a
kafka partition that fails and answers in turns is held up.
"""


@dataclass(frozen=True)
class Observed:
    """The main facts of a topic's last observation, and the number of observations in its interval.

    The cursor keeps them as a short text, since Dagster stores the cursor with each tick.
    """

    digest: str = ""
    first_minute: int = 0
    """Time of the first tick that evaluated the topic, in minutes since 1970 like `since_minute`, or 0 if none did."""

    since_minute: int = 0
    more: int = 0
    trouble: str = ""
    is_behind: bool = False
    risk: int = -1
    """Level of the check `at_risk`, or -1 if it was never evaluated."""

    due: tuple[int, ...] = ()
    """First and last hour due, in hours since 1970. Empty if no hour is due, or if nothing is left to archive."""

    def __str__(self) -> str:
        numbers = (self.first_minute, self.since_minute, self.more)
        words = (self.digest, *numbers, self.trouble, int(self.is_behind), self.risk, *self.due)
        return " ".join(map(str, words))


def find_due_observation(backlog: Backlog, risk: int, cursor_value: object) -> Observed | None:
    """Return the facts about a topic's lag to report to Dagster, or None if no report is due.

    `cursor_value` holds the facts of the last report. `risk` is the level of the check `at_risk`, or -1 if it was never
    evaluated.
    """
    last = read_observed(cursor_value)
    minute = int(backlog.now.timestamp() // MINUTE.total_seconds())
    is_behind = any(backlog.lag.values())
    first = last.first_minute or minute
    present = Observed(
        backlog.digest, first, minute, 0, _describe_trouble(backlog), is_behind, risk, _find_due(backlog)
    )
    is_worth_more = _is_worth_more(last, present)
    # while something is at risk, the time that is left is reported again and again
    if not is_worth_more and risk <= 0 and present.digest == last.digest:
        return None
    # The clock may have been set back.
    if not timedelta() <= (minute - last.since_minute) * MINUTE < OBSERVED_EVERY:
        return present
    is_trouble = (present.trouble, present.risk) != (last.trouble, last.risk)
    limit = MORE_BY_TROUBLE if is_trouble else MORE_BY_LAG
    if is_worth_more and last.more < limit:
        return replace(present, since_minute=last.since_minute, more=last.more + 1)
    return None


def read_observed(cursor_value: object) -> Observed:
    """Read the facts of a topic's last report from the sensor's cursor.

    Return empty facts if the text has another form.
    """
    try:
        digest, first, since, more, trouble, is_behind, risk, *due = str(cursor_value).split()
        times = int(first), int(since)
        return Observed(digest, *times, int(more), trouble, is_behind == "1", int(risk), tuple(map(int, due)))
    except ValueError:
        return Observed()


def _is_worth_more(last: Observed, now: Observed) -> bool:
    """Return True if something has changed since the last report that a person must see at once."""
    if (now.trouble, now.is_behind, now.risk) != (last.trouble, last.is_behind, last.risk):
        return True
    return bool(now.due) and (not last.due or now.due[0] < last.due[0] or now.due[-1] > last.due[-1])


def _describe_trouble(backlog: Backlog) -> str:
    """Return a word that changes with the silent kafka partitions, and when a hole comes or goes."""
    silent = fingerprint_inputs(sorted(backlog.failures)) if backlog.failures else "-"
    return f"{silent}+hole" if backlog.has_hole else silent


def _find_due(backlog: Backlog) -> tuple[int, ...]:
    """Return the first and the last due hour, in hours since 1970, or none if nothing waits or Kafka is silent."""
    # The newest hour of a topic without news is due as well, but an observation would say nothing new about it. An
    # error of the broker is raised by the code that needs its answer.
    with suppress(PlatformError):
        if backlog.uncovered and backlog.hours_left:
            return tuple(int(hour.timestamp() // 3600) for hour in (backlog.hours_left[0], backlog.hours_left[-1]))
    return ()


INTERVAL_SECONDS = 60
BROKER_SECONDS = 5.0
"""Longest wait for one answer of the broker. Some topics need four answers, and a tick has 60 seconds."""

RED_TICKS = 3
"""Number of ticks in a row without an answer that fails the topics' checks. From the next tick on, ticks fail too."""

SILENT = "/silent"
"""The cursor's name for the number of these ticks. No topic has such a name."""

NO_BACKLOG = "/no_backlog"
"""After a topic's name, the cursor's name for the reported reason why the topic's backlog cannot be read.

Before that, it is the number of ticks in a row in which the topic alone got no answer.
"""


def make_lag_sensor(
    topics: Sequence[TopicAssets], job: Job, status: dg.DefaultSensorStatus, hours_folder: Path | None = None
) -> dg.SensorDefinition:
    """Make the lag sensor of one connector for its `topics`. It requests runs of the connector's archive job.

    In `hours_folder` it remembers the connector's earliest hour.
    """
    connector = topics[0].config
    search = FirstHourSearch(topics, hours_folder) if hours_folder is not None else None
    empty = EmptyWindows("hourly")

    @dg.sensor(
        name=make_op_name("lag", connector.name),
        job=job,
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=status,
        description=f"Reports how far connector {connector.name} is behind, and requests runs for the hours that are "
        "due.",
    )
    def lag(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        """Evaluate the topics, as far as the time allows, and request the due runs."""
        tick = Tick(json.loads(context.cursor or "{}"), context.log)
        index_look = IndexLook("lag", topics)
        requests = Requests(context.instance, [topic.key("hourly") for topic in topics])
        shown = ShownHours(context.instance)
        if tick.cursor.get(SILENT, 0) >= RED_TICKS:
            # A tick that fails keeps no cursor. So the clock tells where to begin, to give each topic its turn.
            tick.cursor["/lag"] = topics[int(time.time()) % len(topics)].topic
        with closing(index_look), ClusterAdmin(connector.kafka, BROKER_SECONDS) as admin:
            backlogs = Backlogs(
                topics, admin, lambda topic: read_archived(topic, index_look, is_known=topic.topic in tick.cursor), tick
            )

            def evaluate(topic: TopicAssets) -> None:
                if search is not None:
                    search.mark_reached(topic)
                backlog = evaluate_topic(topic, backlogs, requests, shown, tick)
                if backlog is None or backlog.silent_store is not None:
                    return
                if search is not None:
                    search.add_hours(backlog)
                empty.report(
                    topic, backlog.newest_closed, lambda: list_idle_hours(topic, backlog, shown), index_look, tick
                )

            tick.evaluate_each("lag", topics, evaluate)
        if search is not None:
            search.write_first_hour(context, shown, tick)
        tick.requests += requests.make(job.name)
        report_silence(topics, tick)
        return tick.result()

    return lag


def evaluate_topic(
    topic: TopicAssets, backlogs: Backlogs, requests: Requests, shown: ShownHours, tick: Tick
) -> Backlog | None:
    """Report one topic's lag to Dagster, and request runs of its due hours.

    Return None if the topic is gone from Kafka.
    """
    backlog = _read_backlog(topic, backlogs, tick)
    if backlog is None:
        return None
    for failure in backlog.failures.values():
        tick.warn(f"{topic.name}: {failure}")
    for reason in backlog.reasons_to_decide:
        tick.warn(f"{topic.name}: {reason}")
    level = observe_lag(topic, backlog, tick)
    if backlog.silent_store is None:
        request_hours(topic, backlog, requests, shown, tick, priority=max(level, 0))
    else:
        # it is not known what is due, and a run could not write
        tick.miss(topic, backlog.silent_store)
    return backlog


def _read_backlog(topic: TopicAssets, backlogs: Backlogs, tick: Tick) -> Backlog | None:
    """Return the topic's backlog, or None if the topic is gone from Kafka. Report the risk of one without a backlog."""
    try:
        backlog = backlogs.read(topic)
    except TransientError:
        raise
    except PlatformError as err:
        if not isinstance(err, MissingTopicError) or topic.config.topics_regex is None:
            report_no_backlog(topic, _make_unknown_risk(err), type(err).__name__, tick)
            raise
        text = "the topic is not at Kafka any more; what is archived of it stays"
        tick.reasons.append(f"{topic.name}: {text}")
        report_no_backlog(topic, Risk(Level.FINE, f"Nothing is at risk: {text}, and the rest is lost."), "gone", tick)
        return None
    tick.cursor.pop(f"{topic.topic}{NO_BACKLOG}", None)
    return backlog


def _make_unknown_risk(err: PlatformError) -> Risk:
    """Return the risk of a topic about which an error that does not pass tells too little."""
    return Risk(Level.FAIL, f"What is at risk is not known: {err}")


def list_idle_hours(topic: TopicAssets, backlog: Backlog, shown: ShownHours) -> Iterator[Window]:
    """List the closed hours Dagster offers, but that are neither shown as materialized nor due for a run."""
    shown_hours = shown.of(topic)
    due = {*backlog.hours_due(shown_hours)}
    newest = backlog.newest_closed
    hour = topic.first_offered
    while newest is not None and hour <= newest:
        if hour not in shown_hours and hour not in due:
            yield hour, (hour,)
        hour += HOUR


def report_silence(topics: Sequence[TopicAssets], tick: Tick) -> None:
    """Count the ticks in a row in which Kafka or the store answered for no topic.

    The tick with number RED_TICKS makes the topics' checks fail, and each later tick raises the error.
    """
    if tick.answered or not tick.unavailable:
        tick.cursor.pop(SILENT, None)
        _report_silent_topics(tick)
        return
    _, error = tick.unavailable[0]
    count = tick.cursor.get(SILENT, 0) + 1
    if count > RED_TICKS and not tick.observations:
        raise error
    tick.cursor[SILENT] = min(count, RED_TICKS)
    if count == RED_TICKS:
        text = f"Nothing is archived: no tick of the last {count} had an answer: {error}"
        for topic in topics:
            tick.cursor.pop(f"{topic.topic}{NO_BACKLOG}", None)
            _report_risk(topic, Risk(Level.FAIL, text), tick, error)


def _report_silent_topics(tick: Tick) -> None:
    """Warn of each topic that alone got no answer, in RED_TICKS ticks in a row, unless its last result is red."""
    for topic, err in tick.unavailable:
        name = f"{topic.topic}{NO_BACKLOG}"
        last = tick.cursor.get(name, 0)
        if last in range(RED_TICKS - 1):
            tick.cursor[name] = last + 1
        elif read_observed(tick.cursor.get(topic.topic)).risk <= Level.FINE:
            report_no_backlog(topic, Risk(Level.WARN, f"What waits is not known: {err}"), "silent", tick)


def report_no_backlog(topic: TopicAssets, risk: Risk, reason: str, tick: Tick) -> None:
    """Report the risk of a topic whose backlog cannot be read, once for each reason.

    Otherwise the check's last result would stand, which may be green, or blame a server that answers again.
    """
    name = f"{topic.topic}{NO_BACKLOG}"
    if tick.cursor.get(name) != reason:
        tick.cursor[name] = reason
        _report_risk(topic, risk, tick)


def _report_risk(
    topic: TopicAssets, risk: Risk, tick: Tick, silence: BrokerUnavailableError | StoreUnavailableError | None = None
) -> None:
    """Report the risk of a topic, and note its level for the topic's next observation."""
    # a topic that no tick has evaluated yet is evaluated by its first tick
    if topic.topic in tick.cursor:
        tick.cursor[topic.topic] = str(replace(read_observed(tick.cursor[topic.topic]), risk=int(risk.level)))
    tick.observations.append(make_evaluation(topic, risk, silence))


def observe_lag(topic: TopicAssets, backlog: Backlog, tick: Tick) -> int:
    """Report the topic's lag and risk to Dagster, if a report is due. Return the level of the risk.

    If the broker does not answer how old the lag is, report the lag and then raise the broker's error.
    """
    name = topic.topic
    last = read_observed(tick.cursor.get(name))
    first_tick = datetime.fromtimestamp(last.first_minute * 60, timezone.utc) if last.first_minute else backlog.now
    risk = _find_risk(backlog, Level(max(last.risk, 0)), first_tick)
    level = last.risk if risk is None else risk.level
    observed = find_due_observation(backlog, level, tick.cursor.get(name))
    if observed is None:
        return level
    # An incomplete report is repeated, but not by each tick for as long as something is silent. Its digest differs
    # from all others, so that the next interval has another observation.
    tick.cursor[name] = str(replace(observed, digest="-"))
    metadata = _make_lag_metadata(backlog)
    try:
        metadata |= _make_age_metadata(backlog)
    finally:
        tick.observations.append(dg.AssetObservation(topic.key("kafka"), metadata=metadata))
        if risk is not None and (level != last.risk or level):
            # a reported outage goes on until the index can be read again
            is_outage = tick.cursor.get(SILENT, 0) >= RED_TICKS
            silence = backlog.silent_store if is_outage else None
            tick.observations.append(make_evaluation(topic, risk, silence))
    tick.cursor[name] = str(observed)
    return level


def _find_risk(backlog: Backlog, last: Level, first_tick: datetime) -> Risk | None:
    """Return the current risk, or None if Kafka does not answer, so that the last result of the check stands."""
    try:
        risk = find_risk(backlog, first_tick)
    except (TransientError, UnansweredError):
        return None
    except PlatformError as err:
        return _make_unknown_risk(err)
    if backlog.silent_store is not None and last > risk.level:
        # the index as it was last read is no reason for a better level
        return Risk(last, f"What is archived is not known: {backlog.silent_store}")
    return risk


def _make_lag_metadata(backlog: Backlog) -> Metadata:
    """Make the metadata of a report: lag and offsets of each kafka partition, and the obstacles to archiving."""
    rows = [
        {
            "kafka_partition": p,
            "lag": backlog.lag[p],
            "log_start_offset": frontier.log_start_offset,
            "last_stable_offset": frontier.last_stable_offset,
            "high_watermark": frontier.high_watermark,
            "archived_up_to": backlog.state.coverage(p).end_offset,
        }
        for p, frontier in sorted(backlog.frontiers.items())
    ]
    silent = [f"kafka partition {p}: {failure}" for p, failure in sorted(backlog.failures.items())]
    undecided = backlog.reasons_to_decide
    return {
        **({} if undecided else {"lag": sum(backlog.lag.values())}),
        "waiting_for_transactions": sum(f.last_stable_offset < f.high_watermark for f in backlog.frontiers.values()),
        "has_hole": backlog.has_hole,
        **({"kafka_partitions": make_metadata_table(rows, list(rows[0]))} if rows else {}),
        **({"not_archived_until_somebody_decides": "\n".join(undecided)} if undecided else {}),
        **({"without_an_answer": "\n".join(silent)} if silent else {}),
    }


def _make_age_metadata(backlog: Backlog) -> Metadata:
    """Make the metadata about the waiting hours and the time until Kafka deletes them. This asks the broker often."""
    oldest = backlog.oldest_uncovered
    seconds = backlog.seconds_to_retention_loss
    return {
        "hours_due": len(backlog.hours_left),
        **({"oldest_hour_not_archived": dg.MetadataValue.timestamp(oldest)} if oldest else {}),
        **({"seconds_to_retention_loss": seconds} if seconds is not None else {}),
    }
