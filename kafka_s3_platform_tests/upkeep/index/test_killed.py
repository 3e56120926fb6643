"""An upkeep that ends at any moment: the index answers as before, and the next upkeep goes on."""

import signal
import threading
from datetime import datetime, timedelta, timezone

import pytest

from kafka_s3_platform.config.settings import ConnectorConfig
from kafka_s3_platform.errors import PlatformError
from kafka_s3_platform.model.offsets import make_span
from kafka_s3_platform.store.index import ConnectorIndex
from kafka_s3_platform.store.objects import ObjectStore
from kafka_s3_platform.upkeep.index.run import keep_up_index
from kafka_s3_platform_tests.forked import end_apart
from kafka_s3_platform_tests.store.http_proxy import HttpAnswer, HttpRequest, Proxy, refusal, running
from kafka_s3_platform_tests.upkeep.index.conftest import NewConfig, kill_after
from kafka_s3_platform_tests.upkeep.index.hours import HOUR, answer_all, archive_hour, make_result, merge_day, reserve
from kafka_s3_platform_tests.upkeep.index.test_cleanup import data_files, live_files, through

DAY = datetime(2026, 1, 1, tzinfo=timezone.utc)
NOW = timedelta()


class Ended(Proxy):
    """Forwards `requests` requests that change something, all but the answer of the last one, and nothing after it."""

    def __init__(self, upstream: str, requests: int) -> None:
        super().__init__(upstream)
        self.left = requests
        self._lock = threading.Lock()

    def answer(self, request: HttpRequest) -> HttpAnswer | None:
        if request.method in {"GET", "HEAD"}:
            return super().answer(request) if self.left > 0 else refusal(503, "SlowDown")
        with self._lock:
            self.left -= 1
            left = self.left
        if left < 0:
            return refusal(503, "SlowDown")
        answered = super().answer(request)
        return answered if left else None


@pytest.fixture
def config(new_config: NewConfig) -> ConnectorConfig:
    """Two topics with a day that is merged, and a run that has reserved the hour after it."""
    found = new_config(2)
    for number in range(4):
        archive_hour(found, DAY + number * HOUR, number)
    merge_day(found, found.topics, DAY)
    return found


def test_ended_after_any_request_that_changes_something_it_changes_no_answer_and_is_gone_on_with(
    config: ConnectorConfig,
) -> None:
    leases = reserve(config, DAY + 24 * HOUR, 4)
    before = answer_all(config)
    ended = 0
    while ended < 60:
        ended += 1
        with running(Ended(config.store.endpoint_url or "", ended % 7 + 1)) as proxy:
            try:
                report = keep_up_index(through(config, proxy.endpoint), dry_run=False, retention=NOW)
            except PlatformError:
                report = None
        if report is not None and proxy.left > 0:
            break
        assert live_files(config) <= data_files(config)
        assert answer_all(config) == before
    assert 8 < ended < 60
    # the run that had reserved before all of this commits
    snapshot = ConnectorIndex.of(config).open()
    for topic, lease in leases.items():
        lease.refuse_superseded(snapshot.topic(topic).state)
    snapshot.commit({topic: make_result(lease, DAY + 24 * HOUR, 4) for topic, lease in leases.items()})
    keep_up_index(config, dry_run=False, retention=NOW)
    assert answer_all(config).keys() == before.keys()
    for topic in config.topics:
        assert ConnectorIndex.of(config).open().topic(topic).state.coverage(0) == make_span(0, 50)


def _keep_up_until(config: ConnectorConfig, owner: type, method: str, nth: int) -> None:
    """An upkeep that is killed."""
    kill_after(owner, method, nth)
    keep_up_index(config, dry_run=False, retention=NOW)


@pytest.mark.parametrize(("method", "nth"), [("put_new", 1), ("delete", 1), ("delete", 8)])
def test_killed_by_a_signal_it_is_gone_on_with(config: ConnectorConfig, method: str, nth: int) -> None:
    before = answer_all(config)
    assert end_apart(_keep_up_until, config, ObjectStore, method, nth) == -signal.SIGKILL
    assert answer_all(config) == before
    keep_up_index(config, dry_run=False, retention=NOW)
    assert answer_all(config) == before
    unnamed = data_files(config) - live_files(config)
    # a file that no commit ever named is not the upkeep's to remove
    assert len(unnamed) == (1 if method == "put_new" else 0)
