"""Restores of objects in cold storage, from moto's S3: it refuses to read them until they were asked for and are there.

SeaweedFS, the S3 server of the other tests, has no such classes.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from moto.moto_api import state_manager
from moto.server import ThreadedMotoServer
from pydantic import SecretStr

from kafka_s3_platform.core.config.settings import ConnectorConfig, KafkaSettings, StoreSettings
from kafka_s3_platform.core.errors import BusyError, IntegrityError
from kafka_s3_platform.core.restore.archive_source import ArchiveSource
from kafka_s3_platform.core.restore.preflight import thaw as thawing
from kafka_s3_platform.core.restore.request import RestoreReport, Thaw
from kafka_s3_platform.core.restore.run import restore
from kafka_s3_platform.core.store.client import new_s3_client as new_client
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform_tests.conftest import CreateTopic, Lab
from kafka_s3_platform_tests.kafka.topics import values
from kafka_s3_platform_tests.restore.conftest import copy_objects
from kafka_s3_platform_tests.restore.foreign import JSON, LINES, SourceLab, numbered, numbers, restored
from kafka_s3_platform_tests.restore.own import request
from kafka_s3_platform_tests.restore.own import restored as restored_archive
from kafka_s3_platform_tests.store.http_proxy import running
from kafka_s3_platform_tests.store.rights import actions, beyond, policy, unused
from kafka_s3_platform_tests.store.servers import Recorder
from kafka_s3_platform_tests.support import HOUR, NOON, InProcessRunner, Sent, archived, connector, produce, snapshot

LOOKS = 3
"""How often an object that was asked for is looked at before it is there."""

FROM_COLD = "archive.source.thaw.days=3\narchive.source.thaw.tier=Bulk\n"


@pytest.fixture(scope="module")
def cold_server() -> Iterator[str]:
    state_manager.set_transition("s3::keyrestore", {"progression": "manual", "times": LOOKS})
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


def bucket_of(cold_server: str, bucket: str) -> StoreSettings:
    secret = SecretStr("any")
    return StoreSettings(
        bucket=bucket, region="us-east-1", endpoint_url=cold_server, access_key_id=secret, secret_access_key=secret
    )


@pytest.fixture(scope="module")
def s3_client(cold_server: str) -> Iterator[Any]:
    client = new_client(bucket_of(cold_server, "any"))
    yield client
    client.close()


@pytest.fixture
def store_settings(cold_server: str, s3_client: Any, topic_name: str) -> StoreSettings:
    """A bucket of the cold server, instead of the stack's."""
    s3_client.create_bucket(Bucket=topic_name)
    return bucket_of(cold_server, topic_name)


def move(client: Any, bucket: str, key: str, storage_class: str) -> None:
    """As a lifecycle rule does."""
    place = {"Bucket": bucket, "Key": key}
    client.copy_object(**place, CopySource=place, StorageClass=storage_class, MetadataDirective="COPY")


@pytest.fixture
def lines(lab: SourceLab) -> list[str]:
    """The keys of another sink's objects: the first and the last in cold storage."""
    keys = [lab.put(lab.topic, first, numbered(first, 3)) for first in (0, 3, 6)]
    move(lab.s3, lab.topic, keys[0], "GLACIER")
    move(lab.s3, lab.topic, keys[2], "DEEP_ARCHIVE")
    return keys


@pytest.fixture(scope="module")
def archive(
    cold_server: str, s3_client: Any, kafka_settings: KafkaSettings, create_topic: CreateTopic
) -> ConnectorConfig:
    """Our own archive of two hours."""
    topic = create_topic(f"topic-{uuid4().hex[:12]}")
    s3_client.create_bucket(Bucket=topic)
    produce(kafka_settings, topic, [Sent(b"%d" % n, timestamp=NOON + n * HOUR / 3) for n in range(6)])
    config = connector(kafka_settings, bucket_of(cold_server, topic), topic)
    archived(config)
    return config


@pytest.fixture
def config(archive: ConnectorConfig, lab: Lab) -> ConnectorConfig:
    """A copy of that archive, of which a lifecycle rule has moved the first hour to cold storage."""
    copy_objects(lab.s3, archive, lab.store)
    config = archive.model_copy(update={"store": lab.store})
    for segment in snapshot(config).segments:
        if segment.chunk_start == NOON:
            move(lab.s3, lab.store.bucket, segment.key, "GLACIER")
    return config


def restored_own(config: ConnectorConfig, **terms: Any) -> RestoreReport:
    """To a topic that is named after the bucket of the test."""
    return restored_archive(config, to_topic=f"{config.store.bucket}-restored", **terms)


def states(client: Any, bucket: str) -> list[str]:
    """What S3 says of the thawing of those objects of topics/ of which it says something."""
    listed = client.list_objects_v2(Bucket=bucket, Prefix="topics/")["Contents"]
    found = [client.head_object(Bucket=bucket, Key=item["Key"]) for item in listed]
    return [head["Restore"] for head in found if "Restore" in head]


def run_until_it_is_there(run: Callable[[], RestoreReport]) -> tuple[list[str], RestoreReport]:
    """What the runs said that came too early, and the report of the last."""
    said: list[str] = []
    while len(said) < 4 * LOOKS:
        try:
            return said, run()
        except BusyError as err:
            said.append(str(err))
    pytest.fail(f"never there: {said}")


@pytest.mark.usefixtures("lines")
def test_cold_objects_are_asked_for_first_and_restored_once_they_are_there(lab: SourceLab) -> None:
    said, report = run_until_it_is_there(
        lambda: restored(lab.load(LINES, JSON + FROM_COLD), (), "{topic}-copy", restore_id=lab.topic)
    )
    assert "2 objects are in cold storage" in said[0]
    assert all(
        "copies of them were requested. Run again under this restore id when these are available" in line
        for line in said
    )
    assert (report.record_count, report.sent_count, report.verified) == (9, 9, True)
    assert numbers(lab.kafka, f"{lab.topic}-copy") == list(range(9))


def test_an_archive_whose_hours_a_lifecycle_rule_moved_is_restored_like_any_other(
    config: ConnectorConfig, lab: Lab
) -> None:
    said, report = run_until_it_is_there(partial(restored_own, config, thaw=Thaw(3, "Bulk")))
    assert "restore r1: 1 objects are in cold storage" in said[0]
    assert (report.record_count, report.sent_count, report.verified) == (6, 6, True)
    assert values(lab.kafka, f"{lab.topic}-restored") == [b"%d" % n for n in range(6)]


def test_cold_objects_of_several_connectors_are_asked_for_in_their_buckets(
    config: ConnectorConfig, lab: Lab, create_topic: CreateTopic
) -> None:
    other = create_topic(f"{lab.topic}-other")
    store = lab.store.model_copy(update={"bucket": other})
    lab.s3.create_bucket(Bucket=other)
    produce(lab.kafka, other, [Sent(b"%d" % n) for n in range(2)])
    second = connector(lab.kafka, store, other).model_copy(update={"name": "d"})
    archived(second)
    [segment] = snapshot(second).segments
    move(lab.s3, other, segment.key, "GLACIER")
    requests = tuple(request(c, to_topic=f"{c.store.bucket}-restored", thaw=Thaw(3)) for c in (config, second))
    together = replace(requests[0], topic="both", to_topic="{topic}-restored")
    said, report = run_until_it_is_there(lambda: restore(ArchiveSource(together, requests), InProcessRunner()))
    assert "restore r1: 2 objects are in cold storage" in said[0]
    assert [(part.record_count, part.verified) for part in report.parts] == [(6, True), (2, True)]
    assert len(states(lab.s3, other)) == 1


def test_of_an_archive_only_the_objects_of_the_window_have_to_be_thawed(config: ConnectorConfig, lab: Lab) -> None:
    report = restored_own(config, from_time=NOON + HOUR)
    assert (report.record_count, report.verified) == (3, True)
    assert not any("cold storage" in note for note in report.notes)
    assert states(lab.s3, config.store.bucket) == []


def test_a_run_waits_for_them_as_long_as_it_is_told_and_says_so(
    config: ConnectorConfig, lab: Lab, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(thawing, "POLL_SECONDS", 0.05)
    with caplog.at_level("INFO", logger="kafka_s3_platform"):
        report = restored_own(config, thaw=Thaw(3, wait_seconds=60))
    waiting = [line for line in caplog.messages if line == "restore r1: waiting for 1 objects from cold storage"]
    assert len(waiting) in range(1, LOOKS + 2)
    assert (report.record_count, report.verified) == (6, True)
    [state] = states(lab.s3, config.store.bucket)
    expiry = datetime.strptime(state.split('"')[3], "%a, %d %b %Y %H:%M:%S %Z").replace(tzinfo=timezone.utc)
    assert abs(expiry - datetime.now(timezone.utc) - timedelta(days=3)) < timedelta(days=1)


def test_a_dry_run_tells_of_them_and_asks_for_none(config: ConnectorConfig, lab: Lab) -> None:
    report = restored_own(config, dry_run=True, thaw=Thaw(3))
    assert any(note.startswith("1 objects are in cold storage, such as topics/") for note in report.notes)
    assert states(lab.s3, config.store.bucket) == []


def test_nothing_is_asked_for_and_nothing_sent_unless_the_request_says_so(config: ConnectorConfig, lab: Lab) -> None:
    with pytest.raises(BusyError, match=r"1 objects are in cold storage, such as .*: set the number of days for which"):
        restored_own(config)
    assert states(lab.s3, lab.topic) == []
    assert values(lab.kafka, f"{lab.topic}-restored") == []


def test_it_takes_the_rights_that_the_documentation_names(config: ConnectorConfig, cold_server: str) -> None:
    with running(Recorder(cold_server)) as recorder:
        store = config.store.model_copy(update={"endpoint_url": recorder.endpoint})
        recorded = config.model_copy(update={"store": store})
        run_until_it_is_there(partial(restored_own, recorded, thaw=Thaw(1)))
        done = actions(recorder.requests)
    assert beyond(done, policy("restore") | policy("thaw")) == set()
    # no day was merged here
    assert {resource for _, resource in unused(done, policy("thaw"))} == {"arn:aws:s3:::BUCKET/topics_daily/*"}


def test_where_bad_objects_are_left_out_cold_ones_are_left_out_and_told(lab: SourceLab, lines: list[str]) -> None:
    report = restored(lab.load(LINES, JSON), (), "{topic}-copy", restore_id=lab.topic, behavior_on_error="ignore")
    assert report.record_count == 3
    assert [any(key in line and "was not thawed" in line for line in report.skipped) for key in lines] == [
        True,
        False,
        True,
    ]
    assert numbers(lab.kafka, f"{lab.topic}-copy") == [3, 4, 5]
    assert states(lab.s3, lab.topic) == []
    later = partial(
        restored, lab.load(LINES, JSON), (), "{topic}-copy", restore_id="later", after=lab.topic, thaw=Thaw(1)
    )
    assert run_until_it_is_there(later)[1].sent_count == 6
    assert numbers(lab.kafka, f"{lab.topic}-copy") == [3, 4, 5, 0, 1, 2, 6, 7, 8]


def test_an_object_may_be_asked_for_twice_and_is_named_when_it_is_read_too_early(lab: Lab, lines: list[str]) -> None:
    store = ObjectStore(lab.store)
    for _ in range(2):
        store.request_thaw(lines[0], 1, "Standard")
    with pytest.raises(IntegrityError, match=r"\+0000000000\.json .*It lies in a cold storage class"):
        store.get(lines[0])
