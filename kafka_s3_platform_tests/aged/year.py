"""A year of an archive in minutes: hours, late records, outages, merges, retention, upkeep and vacuum.

Store and index are real, and so is all code from the rows of an hour on: merges, retention, upkeep, vacuum, the judge.
The clock is simulated. There is no Kafka: an hour's objects and rows are made here, as a run makes them.

What every topic ever received is known. Each check compares it with what the archive holds.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from botocore.client import BaseClient

import kafka_s3_platform.core.store.index as index_module
import kafka_s3_platform.core.upkeep.compact.plan as plan_module
import kafka_s3_platform.core.upkeep.compact.run as run_module
import kafka_s3_platform.core.upkeep.index as upkeep_module
from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.formats.envelope.parquet import EnvelopeReader
from kafka_s3_platform.core.model.batches import RECORD_SCHEMA
from kafka_s3_platform.core.model.connect import ConnectBatch
from kafka_s3_platform.core.model.frontier import Frontier
from kafka_s3_platform.core.model.segment import HourRange, Scan, Segment, TopicGeneration
from kafka_s3_platform.core.model.times import to_epoch_ms
from kafka_s3_platform.core.segments.target import Bucket, BucketPart, SegmentTarget
from kafka_s3_platform.core.segments.writers import ClosedSegments, SegmentUploads, SegmentWriters
from kafka_s3_platform.core.store.index import ConnectorIndex
from kafka_s3_platform.core.store.index_commit import Change
from kafka_s3_platform.core.store.index_rows import IndexRow
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform.core.store.upload import Provenance
from kafka_s3_platform.core.upkeep.compact.days import CompactReport, CompactRequest, find_day_end, list_due_days
from kafka_s3_platform.core.upkeep.compact.plan import list_due_months
from kafka_s3_platform.core.upkeep.compact.run import compact_days, compact_due_months
from kafka_s3_platform.core.upkeep.index import keep_up_index
from kafka_s3_platform.core.upkeep.retain import retain_topic
from kafka_s3_platform.core.upkeep.vacuum import vacuum_topic
from kafka_s3_platform.core.upkeep.verify import verify_archive
from kafka_s3_platform_tests.support import InProcessRunner

UTC = ZoneInfo("UTC")
START = datetime(2025, 1, 1, tzinfo=timezone.utc)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
BUSY_EVERY = 5
"""One topic in five has records in each hour, the others in two hours of a day."""

RECORDS = 10
"""Records of an hour, on average."""

QUIET_HOURS = (9, 15)

RUN_HOURS = 6
"""A run archives so many hours, of all topics."""

LATE = 0.002
LATEST_HOURS = 40 * 24
"""Share of the records that are late, and by how much at most."""

OUTAGES = 0.01
"""Share of the hours with which an outage begins. It lasts up to two days, and ends with a run of all its hours."""

CHECKED_HOURS = 60 * 24
WRITERS = 8

REQUESTS = ("PutObject", "GetObject", "HeadObject", "DeleteObject", "ListObjectsV2")

UPKEEP_DAYS = 7
"""Retention, upkeep and vacuum come once in so many days; merges every day."""


class SimulatedTime(datetime):
    """What the upkeep and the index take for the time of this machine."""

    moment = START

    @classmethod
    def now(cls, tz: object = None) -> datetime:  # type: ignore[override] # noqa: ARG003
        return cls.moment


@contextmanager
def simulated_time() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module in (index_module, plan_module, run_module, upkeep_module):
            patch.setattr(module, "datetime", SimulatedTime)
        yield


@dataclass(frozen=True)
class Size:
    """What is in the bucket at the end of a month, and what the month asked of the store for objects."""

    month: str
    records: int
    live_objects: int
    objects: int
    object_bytes: int
    index_rows: int
    index_files: int
    index_bytes: int
    requests: Mapping[str, int]


@dataclass
class Year:
    """The archive of the connector's topics. `played_until` is the simulated time."""

    config: ConnectorConfig
    seed: int
    ends: dict[str, int] = field(default_factory=dict)
    hours: dict[str, dict[int, datetime]] = field(default_factory=dict)
    """By topic, the hour of each record's timestamp by its offset: all that was ever archived."""

    retained_at: datetime = START
    requests: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.store = ObjectStore(self.config.store)
        self.index = ConnectorIndex.of(self.config)
        self._waiting: list[datetime] = []
        self._outage_end = START
        for topic in self.config.topics:
            self.ends[topic] = 0
            self.hours[topic] = {}

    def play(self, days: int) -> Iterator[Size]:
        """Play the days, and check the archive and yield its size at the end of each month."""
        for number in range(days):
            day = START + number * DAY
            with simulated_time(), self._counted():
                self._play_day(day)
            if (day + DAY).day == 1 or number == days - 1:
                with simulated_time():
                    self.check()
                yield self.measure(f"{day:%Y-%m}")

    def _play_day(self, day: datetime) -> None:
        for hour in (day + n * HOUR for n in range(24)):
            SimulatedTime.moment = hour + HOUR + timedelta(minutes=6)
            self._waiting.append(hour)
            if self.random.random() < OUTAGES:
                self._outage_end = hour + self.random.randint(1, 48) * HOUR
            if hour >= self._outage_end and (hour.hour + 1) % RUN_HOURS == 0:
                self._archive()
        SimulatedTime.moment = day + DAY + HOUR
        self._merge()
        if (day - START).days % UPKEEP_DAYS == UPKEEP_DAYS - 1:
            self._keep_up()

    def _archive(self) -> None:
        """Archive the hours that wait, of all topics, with one commit."""
        snapshot = self.index.open()
        epoch = snapshot.version + 1
        begins = dict(self.ends)
        rows = {topic: self._receive(topic, epoch) for topic in self.config.topics}
        with ThreadPoolExecutor(WRITERS) as pool:
            writes = {t: pool.submit(self._write, t, begins[t], snapshot.table_id, epoch) for t in rows}
        changes = {t: Change((*rows[t], *writes[t].result()), run_id=f"run-{epoch}") for t in rows}
        snapshot.commit(changes)
        self._waiting.clear()

    def _receive(self, topic: str, epoch: int) -> list[IndexRow]:
        """Draw the records of the hours that wait. Return the rows of a run that has read them, without segments."""
        is_busy = self.config.topics.index(topic) % BUSY_EVERY == 0
        begin = self.ends[topic]
        rows: list[IndexRow] = [] if begin else [TopicGeneration(topic, f"id-{topic}", (0,), ())]
        for hour in self._waiting:
            start = self.ends[topic]
            count = self.random.randint(1, 2 * RECORDS - 1) if is_busy or hour.hour in QUIET_HOURS else 0
            for _ in range(count):
                self._add_record(topic, hour)
            rows.append(HourRange(hour, 0, start, self.ends[topic]))
        end = self.ends[topic]
        if end > begin:
            rows.append(Scan(0, begin, end, end - begin, 0, epoch, output_count=end - begin))
        rows.append(Frontier(0, 0, end, end, 0, SimulatedTime.moment, 1))
        return rows

    def _add_record(self, topic: str, hour: datetime) -> None:
        is_late = self.random.random() < LATE
        oldest = min(int((hour - START) / HOUR), LATEST_HOURS)
        age = self.random.randint(0, oldest) if is_late else 0
        self.hours[topic][self.ends[topic]] = hour - age * HOUR
        self.ends[topic] += 1

    def _write(self, topic: str, begin: int, index_id: str, epoch: int) -> tuple[Segment, ...]:
        """Write an object for each hour of the records from `begin` on."""
        offsets: dict[datetime, list[int]] = defaultdict(list)
        for offset in range(begin, self.ends[topic]):
            offsets[self.hours[topic][offset]].append(offset)
        layout = self.config.layout
        folder = self.config.archive.index_dir
        writer = Provenance(self.config.name, topic, f"id-{topic}", index_id, f"run-{epoch}", epoch, index_dir=folder)
        with SegmentUploads() as uploads:
            closed = ClosedSegments(uploads)
            with SegmentWriters(SegmentTarget(layout, topic, 0, writer), self.store, closed) as out:
                for hour, of_hour in offsets.items():
                    batch = ConnectBatch.of(make_records(topic, of_hour, hour))
                    bucket = Bucket(to_epoch_ms(hour), f"{hour:year=%Y/month=%m/day=%d/hour=%H}")
                    out.write(BucketPart(bucket, batch, batch.timestamps, 0))
                out.close()
            return tuple(closed.collect())

    def _merge(self) -> None:
        """Merge the days and months that are due, as a run of the asset does."""
        snapshot = self.index.open()
        requests = [
            CompactRequest(self.config, topic, day, "merge")
            for topic in self.config.topics
            for day in list_due_days(snapshot.topic(topic), UTC, self._lateness, SimulatedTime.moment)
        ]
        outcomes = dict(compact_days(requests, InProcessRunner())) if requests else {}
        outcomes |= compact_due_months(dict.fromkeys(self.config.topics, self.config), "merge", InProcessRunner())
        assert all(isinstance(outcome, CompactReport) for outcome in outcomes.values()), outcomes

    def _keep_up(self) -> None:
        self.retained_at = SimulatedTime.moment
        for topic in self.config.topics:
            report = retain_topic(self.config, topic, "retain", SimulatedTime.moment)
            assert (report.refused, report.replaced) == ((), ())
        keep_up_index(self.config, dry_run=False, retention=timedelta()).raise_refusal()
        for topic in self.config.topics:
            assert not vacuum_topic(self.config, topic, "vacuum", timedelta(), dry_run=False).removed

    def check(self) -> None:
        """Compare the archive with what its topics received: nothing lacks, is there twice, or is stuck."""
        connector = self.index.open()
        newest = SimulatedTime.moment.replace(hour=0, minute=0) if not self._waiting else self._waiting[0]
        past = [newest - n * HOUR for n in range(1, CHECKED_HOURS) if newest - n * HOUR >= START]
        for topic in self.config.topics:
            snapshot = connector.topic(topic)
            offsets = Counter(self._read_offsets(snapshot.segments))
            assert max(offsets.values(), default=1) == 1, f"{topic} holds records twice"
            must_stay = {o for o, hour in self.hours[topic].items() if self._find_end(hour) > self.retained_at}
            archived = range(self.ends[topic])
            assert must_stay <= set(offsets) <= set(archived), f"{topic} lacks records"
            expired = sum(segment.record_count for segment in snapshot.expired)
            assert len(offsets) + expired == len(archived), f"{topic} does not tell what expired"
            assert verify_archive(self.config, topic, False, InProcessRunner()).ok
            complete = snapshot.state.judge.list_complete(past, self._lateness)
            assert complete == set(past), f"{topic}: {len(past) - len(complete)} hours are not complete"
            now = SimulatedTime.moment
            assert list_due_days(snapshot, UTC, self._lateness, now) == [], f"days of {topic} are stuck"
            size = self.config.archive.monthly_segment_bytes
            assert list_due_months(snapshot, UTC, self._lateness, now, size) == [], f"months of {topic} are stuck"

    def _read_offsets(self, segments: Sequence[Segment]) -> Iterator[int]:
        for segment in segments:
            for batch in EnvelopeReader(self.store.open(segment.key), segment.key).batches():
                yield from batch.column("offset").to_pylist()

    def _find_end(self, hour: datetime) -> datetime:
        """Return the time before which no rule lets a record of the hour go."""
        rules = dict(self.config.archive.retention.ms)
        if "" not in rules:
            return datetime.max.replace(tzinfo=timezone.utc)
        return find_day_end(hour.date(), UTC) + timedelta(milliseconds=rules[""])

    def measure(self, month: str) -> Size:
        """Return the size of the bucket now, and the requests since the last call."""
        archive = self.config.archive
        connector = self.index.open()
        roots = (self.config.layout.topics_dir, self.config.layout.daily_dir)
        objects = [item for root in roots for item in self.store.list(f"{root}/")]
        table = connector.handle.table
        live = sum(sums.segments for sums in connector.segment_sums.values())
        index_bytes = sum(i.size for i in self.store.list(f"{archive.index_dir}/connector={self.config.name}/"))
        row_count = sum(pa.table(table.get_add_actions(flatten=True)).column("num_records").to_pylist())
        requests = {name: self.requests[name] for name in REQUESTS}
        self.requests.clear()
        size = sum(item.size for item in objects)
        files = len(table.file_uris())
        records = sum(self.ends.values())
        return Size(month, records, live, len(objects), size, row_count, files, index_bytes, requests)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """Count the requests of boto3, by what they do. Those of delta-rs, a few for each commit, are not seen."""
        call = vars(BaseClient)["_make_api_call"]

        def counting(client: BaseClient, name: str, request: Any) -> Any:
            self.requests[name] += 1
            return call(client, name, request)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(BaseClient, "_make_api_call", counting)
            yield

    @property
    def _lateness(self) -> timedelta:
        return timedelta(milliseconds=self.config.archive.allowed_lateness_ms)


def make_records(topic: str, offsets: Sequence[int], hour: datetime) -> pa.RecordBatch:
    """Return records with a key and a value of 200 bytes."""
    count = len(offsets)
    times = pa.array([to_epoch_ms(hour) + n for n in range(count)], pa.int64()).cast(pa.timestamp("ms", tz="UTC"))
    values = [Random(f"{topic}-{offset}").randbytes(200) for offset in offsets]
    keys = [b"%d" % (offset % 100) for offset in offsets]
    numbers = [pa.array([0] * count, pa.int32())] * 2
    columns = [keys, values, pa.nulls(count, RECORD_SCHEMA.field("headers").type), [topic] * count]
    arrays = [*columns, numbers[0], offsets, times, numbers[1]]
    return pa.RecordBatch.from_arrays(
        [c if isinstance(c, pa.Array) else pa.array(c, f.type) for c, f in zip(arrays, RECORD_SCHEMA, strict=True)],
        schema=RECORD_SCHEMA,
    )
