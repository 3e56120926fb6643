"""An object of the archive that is corrupted, cut off, replaced or gone: named, and never passed on as data."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from kafka_s3_platform.config.settings import ConnectorConfig
from kafka_s3_platform.errors import IntegrityError, PreflightError
from kafka_s3_platform.restore.archive_source import ArchiveSource
from kafka_s3_platform.restore.documents import read_left_out, save_left_out
from kafka_s3_platform.restore.execution import replay_streams
from kafka_s3_platform.restore.request import RestoreReport, RestoreRequest
from kafka_s3_platform.restore.run import restore
from kafka_s3_platform.restore.source.archive_plan import make_plan
from kafka_s3_platform.restore.source.archive_stream import ArchivedStream, make_archive_stream
from kafka_s3_platform.store.objects import ObjectStore
from kafka_s3_platform_tests.conftest import CreateTopic
from kafka_s3_platform_tests.kafka.topics import records_of
from kafka_s3_platform_tests.restore.targets import Archive, target_of
from kafka_s3_platform_tests.support import HOUR, NOON, InProcessRunner, Sent, snapshot

pytestmark = pytest.mark.integration

Harm = Callable[[bytes], bytes | None]


def flipped(body: bytes) -> bytes:
    """One byte of a page."""
    return body[:200] + bytes([body[200] ^ 0xFF]) + body[201:]


def cut_off(body: bytes) -> bytes:
    return body[:-100]


def gone(body: bytes) -> None:
    del body


HARMS: list[Harm] = [flipped, cut_off, gone]

MEANWHILE = [(flipped, False), (flipped, True), (cut_off, True), (gone, False)]

ALL = [b"%d-%d" % (hour, n) for hour in range(3) for n in range(1000)]
WITHOUT_SECOND = [v for v in ALL if not v.startswith(b"1-")]


@pytest.fixture
def config(copied_archive: Archive, create_topic: CreateTopic) -> ConnectorConfig:
    """Three hours in an object each, and an empty target."""
    config = copied_archive([Sent(v, None, NOON + int(v[:1]) * HOUR) for v in ALL])
    create_topic(target_of(config))
    return config


def restored(config: ConnectorConfig, runner: InProcessRunner | None = None, **changes: Any) -> RestoreReport:
    topic = config.topics[0]
    given: dict[str, Any] = {"to_topic": target_of(config), "restore_id": topic, "run_id": "x"}
    return restore(ArchiveSource(RestoreRequest(config, topic, **given | changes)), runner or InProcessRunner())


def sent(config: ConnectorConfig) -> list[bytes]:
    found: list[bytes] = records_of(config.kafka, target_of(config)).column("value").to_pylist()
    return found


def harm_second(config: ConnectorConfig, s3_client: Any, harm: Harm) -> str:
    """The key of the second hour's object, to which it was done."""
    key = snapshot(config).segments[1].key
    harmed = harm(s3_client.get_object(Bucket=config.store.bucket, Key=key)["Body"].read())
    if harmed is None:
        s3_client.delete_object(Bucket=config.store.bucket, Key=key)
    else:
        s3_client.put_object(Bucket=config.store.bucket, Key=key, Body=harmed)
    return key


class HarmingRunner(InProcessRunner):
    """Does it after the preflight; `unseen`, as if the bytes changed below a store that gives the same entity tag."""

    def __init__(self, config: ConnectorConfig, s3_client: Any, harm: Harm, *, unseen: bool = False) -> None:
        self._config, self._s3, self._harm, self._unseen = config, s3_client, harm, unseen
        self._etag: str | None = None

    def run(self, function: Any, tasks: Any, max_concurrent: int) -> Iterator[Any]:
        if function is replay_streams:
            key = harm_second(self._config, self._s3, self._harm)
            found = ObjectStore(self._config.store).head(key)
            self._etag = found.etag if self._unseen and found else None
        return iter(list(super().run(function, [self._fooled(t) for t in tasks], max_concurrent)))

    def _fooled(self, task: Any) -> Any:
        if self._etag is None:
            return task
        if isinstance(task, tuple):
            return tuple(map(self._fooled, task))
        objects = [replace(o, etag=self._etag) if n == 1 else o for n, o in enumerate(task.stream.objects)]
        return replace(task, stream=replace(task.stream, objects=tuple(objects)))


@pytest.mark.parametrize("harm", HARMS)
def test_fail_refuses_before_the_first_record(config: ConnectorConfig, s3_client: Any, harm: Harm) -> None:
    key = harm_second(config, s3_client, harm)
    with pytest.raises(PreflightError, match=rf"object {re.escape(key)} (was replaced|does not exist)"):
        restored(config)
    assert sent(config) == []


@pytest.mark.parametrize(("harm", "unseen"), MEANWHILE)
def test_fail_ends_at_an_object_that_is_harmed_meanwhile(
    config: ConnectorConfig, s3_client: Any, harm: Harm, unseen: bool
) -> None:
    runner = HarmingRunner(config, s3_client, harm, unseen=unseen)
    with pytest.raises(IntegrityError, match=r"object .*hour=13.* cannot be (read|opened)"):
        restored(config, runner)
    assert set(sent(config)) <= set(ALL[:1000])


@pytest.mark.parametrize(("harm", "behavior"), [(flipped, "ignore"), (cut_off, "log"), (gone, "log")])
def test_otherwise_it_is_left_out_whole_and_named(
    config: ConnectorConfig, s3_client: Any, harm: Harm, behavior: str, caplog: pytest.LogCaptureFixture
) -> None:
    key = harm_second(config, s3_client, harm)
    counted = restored(config, behavior_on_error=behavior, dry_run=True, exact=True)
    report = restored(config, behavior_on_error=behavior)

    assert sent(config) == WITHOUT_SECOND
    assert report.verified
    assert report.record_count == counted.record_count == 2000
    for found in (report, counted):
        (line,) = found.skipped
        assert key in line
        assert any(note.startswith("left out: ") and key in note for note in found.notes)
    assert any(key in r.getMessage() for r in caplog.records if r.name.endswith("source.archive_stream")) is (
        behavior == "log"
    )


@pytest.mark.parametrize(("harm", "unseen"), MEANWHILE)
def test_no_record_of_an_object_that_is_harmed_meanwhile_goes_out(
    config: ConnectorConfig, s3_client: Any, harm: Harm, unseen: bool
) -> None:
    runner = HarmingRunner(config, s3_client, harm, unseen=unseen)
    report = restored(config, runner, behavior_on_error="ignore")
    assert sent(config) == WITHOUT_SECOND
    assert [("hour=13" in line) for line in report.skipped] == [True]


def test_a_window_within_an_object_leaves_it_out_too(config: ConnectorConfig, s3_client: Any) -> None:
    harm_second(config, s3_client, gone)
    report = restored(config, behavior_on_error="ignore", from_offset=500, to_offset=2500)
    assert sent(config) == [*ALL[500:1000], *ALL[2000:2500]]
    assert len(report.skipped) == 1


def test_an_object_that_may_have_been_sent_in_part_is_never_left_out(config: ConnectorConfig, s3_client: Any) -> None:
    topic = config.topics[0]
    asked = RestoreRequest(config, topic, topic, restore_id="r", run_id="x", behavior_on_error="ignore")
    task = make_archive_stream(asked, make_plan(asked), 0)
    harm_second(config, s3_client, gone)
    store, key = ObjectStore(config.store), "_restore/r/0.left-out.json"
    bad = list(ArchivedStream(task, store).bad_objects())
    with pytest.raises(IntegrityError, match=r"object .*hour=13.*An earlier run may have sent a part of it"):
        save_left_out(store, key, "plan", bad, 1500)
    assert read_left_out(store, key, "plan") is None
    save_left_out(store, key, "plan", bad, 1000)
    save_left_out(store, key, "plan", [], 1000)
    decided = read_left_out(store, key, "plan")
    assert decided is not None
    assert list(decided) == [b.key for b in bad]
    with pytest.raises(IntegrityError, match="this one's plan is another"):
        read_left_out(store, key, "another")
    from_second = ArchivedStream(replace(task, left_out=decided), store, 1000)
    assert sum(b.num_rows for b in from_second) == 1000
    assert from_second.facts.skipped == tuple(decided.values())


def test_an_object_is_checked_whole_where_a_run_goes_on_inside_of_it(config: ConnectorConfig) -> None:
    topic = config.topics[0]
    asked = RestoreRequest(config, topic, topic, restore_id="r", run_id="x", behavior_on_error="ignore")
    task = make_archive_stream(asked, make_plan(asked), 0)
    objects = [replace(o, digest="00") if n == 1 else o for n, o in enumerate(task.objects)]
    [bad] = ArchivedStream(replace(task, objects=tuple(objects)), ObjectStore(config.store), 1500).bad_objects()
    assert "the record digest is" in bad.why
    assert bad.start_offset == 1000


def test_what_failed_goes_on_without_the_object_when_asked_to(config: ConnectorConfig, s3_client: Any) -> None:
    with pytest.raises(IntegrityError):
        restored(config, HarmingRunner(config, s3_client, gone))
    report = restored(config, behavior_on_error="log")
    assert sent(config) == WITHOUT_SECOND
    assert report.verified
