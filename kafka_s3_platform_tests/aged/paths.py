"""Each way in which the product reads or changes an index, without the broker: its answers are made up here.

A path takes the connector and what its index holds. `bench.age` measures them in processes of their own, and a test
counts what they ask of the store.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from zoneinfo import ZoneInfo

from kafka_s3_platform.cli import show
from kafka_s3_platform.core.archive.hours import report_hours
from kafka_s3_platform.core.archive.plan import PlanInput, plan_hours
from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.defs.archive import checks
from kafka_s3_platform.core.defs.compact import folder_sensor
from kafka_s3_platform.core.defs.topic import TopicAssets
from kafka_s3_platform.core.kafka.admin import TopicDescription
from kafka_s3_platform.core.kafka.answers import Answers, OffsetAtTime, RecordOffset
from kafka_s3_platform.core.model.frontier import Frontier
from kafka_s3_platform.core.model.segment import Compaction, HourRange, Reservation, Scan
from kafka_s3_platform.core.model.times import to_epoch_ms
from kafka_s3_platform.core.restore.request import RestoreRequest
from kafka_s3_platform.core.restore.source.archive_plan import make_plan
from kafka_s3_platform.core.status.backlog import Backlog
from kafka_s3_platform.core.status.backlogs import read_archived
from kafka_s3_platform.core.status.index_look import IndexLook
from kafka_s3_platform.core.store.index import ConnectorIndex, IndexSnapshot, TopicIndex
from kafka_s3_platform.core.store.index_commit import Change
from kafka_s3_platform.core.store.lease import take_leases
from kafka_s3_platform.core.upkeep.compact.days import find_day_start, list_due_days, read_day_segments
from kafka_s3_platform.core.upkeep.verify import read_hour_segments
from kafka_s3_platform_tests.aged.rows import DAY, HOUR, LEADER_EPOCH_HOURS, RECORDS, Age

Path = Callable[[ConnectorConfig, Age], object]


def open_index(config: ConnectorConfig, age: Age) -> object:
    """Open the index and read nothing of it."""
    _ = age
    return ConnectorIndex.of(config).peek()


def plan_next_hour(config: ConnectorConfig, age: Age) -> object:
    """Plan the first hour that is not archived."""
    given = _answer(config, age, _open(config, age))
    return plan_hours(given, [age.end])


def look_for_lag(config: ConnectorConfig, age: Age) -> object:
    """Do the lag sensor's part of a tick, of a topic that Dagster knows all hours of."""
    look = IndexLook("paths", [TopicAssets(config, topic) for topic in config.topics])
    found = [_find_due_hours(config, replace(age, topics=(topic,)), look) for topic in config.topics]
    look.close()
    return found


def look_for_days(config: ConnectorConfig, age: Age) -> object:
    """Do the folder sensor's part of a tick, of a topic that Dagster knows all days of."""
    topic = TopicAssets(config, age.topics[0])
    look = IndexLook("paths", [topic])
    days = {f"{age.start + n * DAY:%Y-%m-%d}" for n in range(age.hours // 24 + 1)}
    due = look.read(topic, lambda found: folder_sensor._find_due_days(topic, found, look.since, days))  # noqa: SLF001
    folders = look.read(topic, IndexSnapshot.list_folders)
    look.close()
    return due, folders


def show_topic(config: ConnectorConfig, age: Age) -> object:
    """Do what `kafka-s3 show` does."""
    return show._describe_days(TopicAssets(config, age.topics[0]))  # noqa: SLF001


def check_hours(config: ConnectorConfig, age: Age) -> object:
    """Evaluate the check of hours, as their run does."""
    topic = TopicAssets(config, age.topics[0])
    with closing(IndexLook("checks", [topic])) as look:
        return checks.evaluate_hourly(topic, look, None)


def report_last_hour(config: ConnectorConfig, age: Age) -> object:
    """Report the hour that was archived last, as its run does."""
    return list(report_hours(_open(config, age), [age.end - HOUR], timedelta(minutes=5)))


def report_old_hour(config: ConnectorConfig, age: Age) -> object:
    """Report an hour of the middle of the archive's life."""
    return list(report_hours(_open(config, age), [age.start + age.hours // 2 * HOUR], timedelta(minutes=5)))


def plan_restore(config: ConnectorConfig, age: Age) -> object:
    """Plan the restore of one hour of the middle."""
    hour = age.start + age.hours // 2 * HOUR
    topic = age.topics[0]
    return make_plan(RestoreRequest(config, topic, f"{topic}-2", "r", "run", from_time=hour, to_time=hour + HOUR))


def find_hour_objects(config: ConnectorConfig, age: Age) -> object:
    """Find what a verification of one hour of the middle looks at."""
    return read_hour_segments(_open(config, age), [age.start + age.hours // 2 * HOUR])


def commit_hour(config: ConnectorConfig, age: Age) -> object:
    """Commit the reservation and the result of an hour in which no record came."""
    whole = ConnectorIndex.of(config).open()
    whole.load_states(age.topics)
    epoch, first = whole.version + 1, age.hours * RECORDS
    places = [(p, first, first + 1) for p in range(age.kafka_partitions)]
    reserved = tuple(Reservation(*place, "run", epoch, age.end + HOUR) for place in places)
    hours = tuple(HourRange(age.end, p, first, first + 1) for p in range(age.kafka_partitions))
    leases = take_leases(whole, {t: Change((*reserved, *hours), run_id="run") for t in age.topics}, {})
    whole = ConnectorIndex.of(config).open()
    scans = tuple(Scan(p, first, first + 1, 0, 1, epoch) for p in range(age.kafka_partitions))
    return whole.commit({t: Change(scans, removed=leases[t].end, run_id="run") for t in age.topics})


def commit_day(config: ConnectorConfig, age: Age) -> object:
    """Commit the merge of the oldest day that is due: its reservation, and its segments for those of its hours."""
    snapshot = _open(config, age)
    topic = TopicAssets(config, age.topics[0])
    zone = ZoneInfo(config.layout.timezone)
    day = list_due_days(snapshot, zone, topic.lateness, age.end + 2 * DAY)[0]
    start = find_day_start(day, zone)
    lease = Compaction(start, "merge", snapshot.version + 1, age.end)
    taken = take_leases(snapshot.connector_snapshot, {topic.topic: Change((lease,), run_id="merge")}, {})[topic.topic]
    snapshot = _open(config, age)
    inputs = read_day_segments(snapshot, day)
    outputs = [
        replace(s, key=f"{s.key}-day", chunk="daily", chunk_start=start, epoch=taken.epoch)
        for s in inputs
        if s.chunk_start == start
    ]
    return snapshot.commit(Change(tuple(outputs), retired=inputs, removed=taken.end, run_id="merge"))


PATHS: Mapping[str, Path] = {
    "open": open_index,
    "plan an hour": plan_next_hour,
    "lag sensor's look": look_for_lag,
    "folder sensor's look": look_for_days,
    "show": show_topic,
    "checks of hours": check_hours,
    "report of the last hour": report_last_hour,
    "report of an old hour": report_old_hour,
    "plan a restore of an hour": plan_restore,
    "verify: objects of an hour": find_hour_objects,
    "commit an hour (reserve, result)": commit_hour,
    "commit a day's merge": commit_day,
}


def _open(config: ConnectorConfig, age: Age) -> IndexSnapshot:
    return TopicIndex.of(config, age.topics[0]).open()


def _answer(config: ConnectorConfig, age: Age, snapshot: IndexSnapshot) -> PlanInput:
    lookup = _make_lookup(age)
    return PlanInput(config, _describe(age), _make_frontiers(age), snapshot.state, lookup)


def _describe(age: Age) -> TopicDescription:
    return TopicDescription(age.topics[0], "an-id", tuple(range(age.kafka_partitions)), {"retention.ms": "604800000"})


def _make_frontiers(age: Age) -> dict[int, Frontier]:
    """Return what the broker says when the hour that begins at `age.end` is over: it holds one more hour."""
    begin = max(0, age.hours - 24 * 7) * RECORDS
    end = (age.hours + 1) * RECORDS
    epoch = age.hours // LEADER_EPOCH_HOURS
    seen = age.end + HOUR + timedelta(minutes=6)
    return {p: Frontier(p, begin, end, end, epoch, seen, age.kafka_partitions) for p in range(age.kafka_partitions)}


def _make_lookup(age: Age) -> Callable[[Iterable[int], Sequence[int]], Answers[int, Mapping[int, OffsetAtTime]]]:
    first = to_epoch_ms(age.start)

    def find(time: int) -> OffsetAtTime:
        hour = max(age.hours - 24 * 7, min((time - first) // 3_600_000, age.hours + 1))
        return None if hour > age.hours else RecordOffset(hour * RECORDS)

    def lookup(kafka_partitions: Iterable[int], times: Sequence[int]) -> Answers[int, Mapping[int, OffsetAtTime]]:
        return Answers({p: {time: find(time) for time in times} for p in kafka_partitions}, {})

    return lookup


def _find_due_hours(config: ConnectorConfig, age: Age, look: IndexLook) -> object:
    topic = TopicAssets(config, age.topics[0])
    found = read_archived(topic, look, is_known=True)
    configs = {"retention.ms": "604800000"}
    frontiers = _make_frontiers(age)
    backlog = Backlog(
        topic,
        "id",
        frontiers[0].observed_at,
        frontiers,
        found.state,
        found.stored_hours,
        _make_lookup(age),
        lambda: configs,
        lambda *_: None,
    )
    shown = {age.start + n * HOUR for n in range(age.hours)}
    return backlog.hours_due(shown), backlog.lag, backlog.has_hole
