"""What only old versions of an index need is removed; every version that may still be read stays readable.

An upkeep that ends at any moment: the index answers as before, and the next upkeep goes on.
"""

import json
import re
import signal
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest
from deltalake import DeltaTable

from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.errors import (
    AuthorizationError,
    ClockError,
    IndexConflictError,
    IndexDamagedError,
    PlatformError,
    StoreUnavailableError,
)
from kafka_s3_platform.core.model.offsets import make_span
from kafka_s3_platform.core.model.segment import Scan
from kafka_s3_platform.core.store.index import ConnectorIndex, ConnectorSnapshot
from kafka_s3_platform.core.store.index_commit import Change, retry_commit
from kafka_s3_platform.core.store.index_files import list_log
from kafka_s3_platform.core.store.index_reads import forget_rows, list_data_files
from kafka_s3_platform.core.store.objects import ObjectInfo, ObjectStore
from kafka_s3_platform.core.upkeep.index import KEPT, CleanupReport, keep_up_index, remove_expired
from kafka_s3_platform.core.upkeep.index_merge import merge_files
from kafka_s3_platform_tests.faults.proxy import faulty_proxy
from kafka_s3_platform_tests.forked import end_apart
from kafka_s3_platform_tests.store.http_proxy import HttpAnswer, HttpRequest, Proxy, refusal, running
from kafka_s3_platform_tests.upkeep.index.conftest import NewConfig, kill_after
from kafka_s3_platform_tests.upkeep.index.hours import HOUR, answer_all, archive_hour, make_result, merge_day, reserve

DAY = datetime(2026, 1, 1, tzinfo=timezone.utc)
NOW = timedelta()


def objects(config: ConnectorConfig) -> dict[str, ObjectInfo]:
    folder = ConnectorIndex.of(config).table.folder
    return {o.key.removeprefix(f"{folder}/"): o for o in ObjectStore(config.store).list(f"{folder}/")}


def data_files(config: ConnectorConfig) -> set[str]:
    return {name for name in objects(config) if name.startswith("period=")}


def live_files(config: ConnectorConfig) -> set[str]:
    index = ConnectorIndex.of(config)
    return {file.path for file in list_data_files(index.table, index.table.open())}


def archive_hours(config: ConnectorConfig, first: int, count: int) -> None:
    for number in range(first, first + count):
        archive_hour(config, DAY + number * HOUR, number)


def through(config: ConnectorConfig, endpoint: str) -> ConnectorConfig:
    store = config.store.model_copy(update={"endpoint_url": endpoint, "max_retries": 0})
    return config.model_copy(update={"store": store})


def test_nothing_is_removed_of_an_index_without_rows_or_none(new_config: NewConfig) -> None:
    config = new_config(1)
    assert keep_up_index(config, dry_run=False).version is None
    assert ConnectorIndex.of(config).peek() is None
    ConnectorIndex.of(config).open()
    report = keep_up_index(config, dry_run=False, retention=NOW)
    assert (report.version, report.checkpoint, report.cleanup) == (0, True, CleanupReport())
    assert keep_up_index(config, dry_run=False, retention=NOW).checkpoint is False


@pytest.mark.parametrize("topics", [1, 3])
def test_afterwards_only_live_files_and_the_log_from_the_checkpoint_on_are_there(
    new_config: NewConfig, topics: int
) -> None:
    config = new_config(topics)
    archive_hours(config, 0, 5)
    before = answer_all(config)
    dry = keep_up_index(config, dry_run=True, retention=NOW)
    assert answer_all(config) == before
    assert dry.version == 10
    report = keep_up_index(config, dry_run=False, retention=NOW)
    assert answer_all(config) == before
    assert data_files(config) == live_files(config)
    assert report.refused is None
    log = list_log(ConnectorIndex.of(config).table)
    assert report.version is not None
    assert list(log.entries) == list(log.checkpoints) == [report.version] == [report.cleanup.base]
    # each run's second commit took out the reservations of its first one
    assert report.cleanup.files == 5 + report.merge.files
    assert report.cleanup.log_entries == report.version
    again = keep_up_index(config, dry_run=False, retention=NOW)
    assert (again.merge.files, again.checkpoint, again.cleanup) == (0, False, CleanupReport())
    archive_hours(config, 5, 1)
    for topic in config.topics:
        assert ConnectorIndex.of(config).open().topic(topic).state.coverage(0) == make_span(0, 60)


def test_a_dry_run_tells_what_the_next_run_removes(new_config: NewConfig) -> None:
    config = new_config(1)
    archive_hours(config, 0, 3)
    index = ConnectorIndex.of(config)
    index.table.open().table.create_checkpoint()
    archive_hours(config, 3, 1)
    dry = remove_expired(index, NOW, dry_run=True)
    was = objects(config)
    assert remove_expired(index, NOW, dry_run=False) == dry
    gone = [info for name, info in was.items() if name not in objects(config)]
    assert (dry.files, dry.log_entries, dry.checkpoints) == (3, 6, 0)
    assert dry.file_bytes + dry.log_bytes == sum(info.size for info in gone)


def test_versions_that_were_the_newest_within_the_time_stay_readable_and_no_file_of_theirs_goes(
    new_config: NewConfig,
) -> None:
    config = new_config(2)
    index = ConnectorIndex.of(config)
    archive_hours(config, 0, 3)
    keep_up_index(config, dry_run=False, retention=KEPT)
    time.sleep(5)  # the store tells times by the second, and a busy machine takes seconds for a step
    since = datetime.now(timezone.utc)
    first = index.open().version
    archive_hours(config, 3, 3)
    answers = {
        version: index.table.open(version).table.to_pyarrow_table() for version in range(first, index.open().version)
    }
    keep_up_index(config, dry_run=False, retention=KEPT)
    report = remove_expired(index, datetime.now(timezone.utc) - since + timedelta(seconds=3.5), dry_run=False)
    assert report.base == first
    assert report.files > 0
    for version, rows in answers.items():
        assert index.table.open(version).table.to_pyarrow_table().num_rows == rows.num_rows
    assert keep_up_index(config, dry_run=False, retention=KEPT).cleanup == CleanupReport()


def test_a_reader_that_opened_the_index_before_reads_on_and_after_its_time_is_told_to_read_again(
    new_config: NewConfig,
) -> None:
    config = new_config(1)
    archive_hours(config, 0, 5)
    index = ConnectorIndex.of(config)
    reader, later = ConnectorIndex.of(config).open(), index.open()
    wanted = answer_all(config)["t-0"]
    keep_up_index(config, dry_run=False, retention=KEPT)
    forget_rows()
    assert reader.topic("t-0").segments == wanted[1]
    keep_up_index(config, dry_run=False, retention=NOW)
    forget_rows()
    with pytest.raises(IndexConflictError, match=r"files of version 10 are not there any more.*Read the index again"):
        _ = later.topic("t-0").state
    with pytest.raises(IndexConflictError):
        reader.topic("t-0").state.coverage(0)
    assert replace(index.open().topic("t-0").state, version=0) == wanted[0]
    archive_hours(config, 5, 1)
    assert index.open().topic("t-0").state.coverage(0) == make_span(0, 60)


def test_a_file_that_is_missing_of_the_newest_version_is_damage_all_the_same(new_config: NewConfig) -> None:
    config = new_config(1)
    archive_hours(config, 0, 1)
    name = max(live_files(config))  # of the state
    store = ObjectStore(config.store)
    store.delete(f"{ConnectorIndex.of(config).table.folder}/{name}", objects(config)[name].etag)
    forget_rows()
    with pytest.raises(IndexDamagedError):
        _ = ConnectorIndex.of(config).open().topic("t-0").state


def test_a_handle_of_expired_credentials_is_opened_again_at_its_version_or_told_to_read_again(
    new_config: NewConfig,
) -> None:
    config = new_config(1)
    archive_hours(config, 0, 5)
    snapshot = ConnectorIndex.of(config).open()
    keep_up_index(config, dry_run=False, retention=NOW)
    snapshot._handle = replace(snapshot._handle, options={})  # noqa: SLF001 - as with new credentials
    with pytest.raises(IndexConflictError, match="Read the index again"):
        _ = snapshot.handle


def add_scan(snapshot: ConnectorSnapshot) -> None:
    snapshot.commit({"t-0": Change((Scan(0, 50, 60, 10, 1, 1),))}, commit_id="late")


def test_a_commit_on_a_version_whose_log_is_gone_is_refused_and_succeeds_on_the_newest(new_config: NewConfig) -> None:
    config = new_config(1)
    archive_hours(config, 0, 5)
    index = ConnectorIndex.of(config)
    snapshot = index.open()
    keep_up_index(config, dry_run=False, retention=NOW)
    with pytest.raises(IndexConflictError):
        add_scan(snapshot)
    retry_commit(index, add_scan)
    assert index.open().topic("t-0").state.coverage(0) == make_span(0, 60)


class Late(Proxy):
    """Forwards a matching request only after `before` was called, once."""

    def __init__(self, upstream: str, method: str, target: str, before: Callable[[], object]) -> None:
        super().__init__(upstream)
        self._match = (method, target)
        self._before: list[Callable[[], object]] = [before]

    def answer(self, request: HttpRequest) -> HttpAnswer | None:
        if request.method == self._match[0] and re.search(self._match[1], request.target) and self._before:
            self._before.pop()()
        return super().answer(request)


def test_a_commit_that_arrives_after_the_log_went_on_without_it_is_found_out(new_config: NewConfig) -> None:
    """The store takes it: its place in the log is free again. The run must not believe that it has committed."""
    config = new_config(1)
    archive_hours(config, 0, 5)

    def meanwhile() -> None:
        archive_hours(config, 5, 1)
        keep_up_index(config, dry_run=False, retention=NOW)

    with running(Late(config.store.endpoint_url or "", "PUT", rf"_delta_log/{11:020d}\.json", meanwhile)) as proxy:
        index = ConnectorIndex.of(through(config, proxy.endpoint))
        snapshot = index.open()
        with pytest.raises(IndexConflictError, match="committed so late"):
            snapshot.commit({"t-0": Change((Scan(0, 70, 80, 10, 1, 1),))}, commit_id="late")
        assert f"_delta_log/{11:020d}.json" in objects(config)
        assert not index.open().has_commit("late", since=0)
        assert index.open().topic("t-0").state.coverage(0) == make_span(0, 60)
    # what it left harms nobody, and goes
    keep_up_index(config, dry_run=False, retention=NOW)
    archive_hours(config, 6, 2)
    keep_up_index(config, dry_run=False, retention=NOW)
    assert f"_delta_log/{11:020d}.json" not in objects(config)
    assert ConnectorIndex.of(config).open().topic("t-0").state.coverage(0) == make_span(0, 80)


def test_only_what_the_log_names_is_removed(new_config: NewConfig) -> None:
    config = new_config(1)
    archive_hours(config, 0, 5)
    store = ObjectStore(config.store)
    folder = ConnectorIndex.of(config).table.folder
    strange = [f"{folder}/period=state/part-of-somebody.parquet", f"{folder}/notes.txt", "_index/c/t-0/part-0.parquet"]
    for key in strange:
        store.put_new(key, b"kept")
    keep_up_index(config, dry_run=False, retention=NOW)
    assert [store.get(key) for key in strange] == [b"kept"] * 3


def test_a_name_that_no_data_file_has_is_never_deleted(new_config: NewConfig) -> None:
    config = new_config(1)
    archive_hours(config, 0, 1)
    index = ConnectorIndex.of(config)
    victim = "../../topics/t-0/object.parquet"
    remove = {"remove": {"path": victim, "deletionTimestamp": 1, "dataChange": True}}
    ObjectStore(config.store).put_new(index.table.name_log_entry(3), json.dumps(remove).encode())
    archive_hours(config, 1, 1)
    with pytest.raises(IndexDamagedError, match="as one of its data files"):
        keep_up_index(config, dry_run=False, retention=NOW)
    assert live_files(config) <= data_files(config)
    assert list_log(index.table).entries.keys() >= {0, 1, 2, 3}


def test_a_checkpoint_that_lacks_a_file_removes_nothing(new_config: NewConfig) -> None:
    """It would be the only truth once the entries before it are gone."""
    config = new_config(1)
    archive_hours(config, 0, 2)
    index = ConnectorIndex.of(config)
    index.table.open(2).table.create_checkpoint()
    store = ObjectStore(config.store)
    good = store.get(index.table.name_log_entry(4).replace(".json", ".checkpoint.parquet").replace("4.", "2."))
    wrong = index.table.name_log_entry(4).replace(".json", ".checkpoint.parquet")
    store.put_new(wrong, good)
    with pytest.raises(IndexDamagedError, match="Nothing was removed"):
        remove_expired(index, NOW, dry_run=False)
    assert set(list_log(index.table).entries) == {0, 1, 2, 3, 4}


def test_without_the_right_to_delete_every_other_step_is_done_and_the_right_is_named(new_config: NewConfig) -> None:
    config = new_config(1)
    archive_hours(config, 0, 5)
    before = answer_all(config)
    with faulty_proxy(config.store.endpoint_url or "") as proxy:
        proxy.refuse("DELETE", ".", 403, "AccessDenied")
        report = keep_up_index(through(config, proxy.endpoint), dry_run=False, retention=NOW)
    assert report.merge.files > 0
    assert report.checkpoint
    with pytest.raises(AuthorizationError, match=r"s3:DeleteObject on _index/connector=c/\*.*docs/iam\.md"):
        report.raise_refusal()
    assert answer_all(config) == before
    assert keep_up_index(config, dry_run=False, retention=NOW).cleanup.files > 0


def test_a_store_that_lies_about_time_or_lists_what_was_removes_nothing_that_is_needed(new_config: NewConfig) -> None:
    config = new_config(1)
    archive_hours(config, 0, 5)
    with faulty_proxy(config.store.endpoint_url or "") as proxy:
        lied_to = through(config, proxy.endpoint)
        proxy.date_shift = timedelta(days=400)
        with pytest.raises(ClockError):
            keep_up_index(lied_to, dry_run=False)
        proxy.date_shift = timedelta()
        # times of objects a year ago: versions go too early, and no answer is another
        old = rb"<LastModified>2025-01-01T00:00:00Z</LastModified>"
        proxy.falsify(
            "GET",
            "list-type",
            lambda answer: replace(answer, body=re.sub(rb"<LastModified>[^<]*</LastModified>", old, answer.body)),
        )
        before = answer_all(config)
        keep_up_index(lied_to, dry_run=False)
        proxy.clear()
        assert answer_all(config) == before
        assert live_files(config) <= data_files(config)
        # lists of the log as it was before
        both = r"(?=.*list-type)(?=.*prefix=[^&]*_delta_log/(&|$))"
        ours = rf"(?=.*encoding-type)(?!.*start-after){both}"
        for first, lists, told in ((5, both, None), (7, ours, "its answers are behind")):
            archive_hours(config, first, 1)
            proxy.answer_stale("GET", lists)
            list_log(ConnectorIndex.of(lied_to).table)
            archive_hours(config, first + 1, 1)
            before = answer_all(config)
            with pytest.raises(StoreUnavailableError, match=told) if told else nullcontext():
                remove_expired(ConnectorIndex.of(lied_to), NOW, dry_run=False)
            proxy.clear()
            assert answer_all(config) == before
        # a store that deletes whatever the condition is
        proxy.ignore_conditions(
            (
                config.store.access_key_id.get_secret_value() if config.store.access_key_id else "",
                config.store.secret_access_key.get_secret_value() if config.store.secret_access_key else "",
            ),
            "DELETE",
        )
        before = answer_all(config)
        keep_up_index(lied_to, dry_run=False, retention=NOW)
    assert answer_all(config) == before
    assert data_files(config) == live_files(config)


def test_a_table_that_somebody_restored_keeps_the_files_of_the_version_that_came_back(new_config: NewConfig) -> None:
    config = new_config(1)
    archive_hours(config, 0, 5)
    index = ConnectorIndex.of(config)
    was = answer_all(config)
    version = index.open().version
    merge_files(index, DAY.date(), dry_run=False)
    table = DeltaTable(index.uri, storage_options=index.table.options)
    table.restore(version)
    keep_up_index(config, dry_run=False, retention=NOW)
    assert answer_all(config) == was


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
