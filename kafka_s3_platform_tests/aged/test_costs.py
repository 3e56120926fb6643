"""What a path asks of the store does not grow with the age of the index, once the upkeep has been there.

What the generator of aged indexes writes is what the code would have written: it reads as whole and complete.
"""

from datetime import datetime, timedelta, timezone
from threading import Lock

from kafka_s3_platform.core.config.settings import ConnectorConfig, KafkaSettings, StoreSettings
from kafka_s3_platform.core.model.offsets import make_span
from kafka_s3_platform.core.store.index import TopicIndex
from kafka_s3_platform.core.store.index_reads import forget_rows
from kafka_s3_platform.core.upkeep.compact.days import read_day_segments
from kafka_s3_platform.core.upkeep.index import keep_up_index
from kafka_s3_platform_tests.aged.paths import PATHS
from kafka_s3_platform_tests.aged.rows import HOUR, RECORDS, Age, write_aged_index
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.store.http_proxy import HttpAnswer, HttpRequest, Proxy, running
from kafka_s3_platform_tests.support import connector

END = datetime(2026, 1, 1, tzinfo=timezone.utc)
KAFKA_PARTITIONS = 2
YOUNG_DAYS = 62
OLD_DAYS = 365

MORE_REQUESTS = 2
"""A merge leaves one file or two of the days that are not put together by month yet."""

WHOLE = {
    "folder sensor's look": "compares all folders of the bucket with those of the index",
    "show": "prints each day of the archive",
}
"""Paths that read of all ages what they compare or print."""


class Counted(Proxy):
    """Forwards everything, and counts the requests and the bytes of their answers."""

    def __init__(self, upstream: str) -> None:
        super().__init__(upstream)
        self.requests = 0
        self.size = 0
        self._lock = Lock()

    def answer(self, request: HttpRequest) -> HttpAnswer | None:
        answered = super().answer(request)
        with self._lock:
            self.requests += 1
            self.size += len(answered.body) if answered else 0
        return answered


def count(config: ConnectorConfig, age: Age, path: str) -> tuple[int, int]:
    """The requests and bytes of a path, in a process that has read nothing before."""
    forget_rows()
    with running(Counted(config.store.endpoint_url or "")) as proxy:
        store = config.store.model_copy(update={"endpoint_url": proxy.endpoint})
        PATHS[path](config.model_copy(update={"store": store}), age)
        return proxy.requests, proxy.size


def write_kept_up(store_settings: StoreSettings, name: str, days: int) -> tuple[ConnectorConfig, Age]:
    """An index of so many days, after an upkeep."""
    config = connector(KafkaSettings(bootstrap_servers="127.0.0.1:1"), store_settings, name)
    archive = config.archive.model_copy(update={"start_hour": END - timedelta(days=days)})
    config = config.model_copy(update={"name": name, "archive": archive})
    age = write_aged_index(config, KAFKA_PARTITIONS, 24 * days, END)
    keep_up_index(config, dry_run=False, retention=timedelta())
    return config, age


def test_no_path_costs_more_with_an_old_index(lab: Lab) -> None:
    young = write_kept_up(lab.store, f"{lab.topic}-young", YOUNG_DAYS)
    old = write_kept_up(lab.store, f"{lab.topic}-old", OLD_DAYS)
    costs = {path: (count(*young, path), count(*old, path)) for path in PATHS}
    # Opening costs more in the first week after the first upkeep: the log still names the files that it replaced.
    opened = [size for _, size in costs["open"]]
    grown = {}
    for path, ((requests, size), (old_requests, old_size)) in costs.items():
        more = (old_size - opened[1]) - (size - opened[0])
        if path not in WHOLE and (old_requests > requests + MORE_REQUESTS or more > size // 2):
            grown[path] = costs[path]
    assert grown == {}
    assert all(costs[path][1] > costs[path][0] for path in WHOLE)


HOURS = 24 * 5


def test_an_aged_index_is_whole_and_complete(lab: Lab) -> None:
    config = connector(KafkaSettings(bootstrap_servers="127.0.0.1:1"), lab.store, lab.topic)
    config = config.model_copy(update={"name": lab.topic})
    age = write_aged_index(config, 2, HOURS, END)
    snapshot = TopicIndex.of(config, lab.topic).open()
    state = snapshot.state
    hours = [age.start + n * HOUR for n in range(HOURS)]
    assert snapshot.version == age.version
    assert [state.coverage(p) for p in (0, 1)] == [make_span(0, HOURS * RECORDS)] * 2
    assert state.judge.list_complete(hours, timedelta(minutes=5)) == set(hours)
    assert all(map(state.is_scanned, hours))
    assert len(read_day_segments(snapshot, age.start.date())) == 2
    assert len(read_day_segments(snapshot, age.start.date(), ["retired"])) == 2 * 24
    assert sum(s.record_count for s in snapshot.segments) == sum(s.record_count for s in state.scans)
