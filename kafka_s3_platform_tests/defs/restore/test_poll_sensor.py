"""The sensor of a source connector, against real Kafka and S3; the runs that it asks for are executed."""

import json
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pydantic import SecretStr

from kafka_s3_platform.connect.defs.restore.foreign import EVERY_TOPIC
from kafka_s3_platform.connect.defs.restore.foreign_request import make_foreign_request
from kafka_s3_platform.core.config.settings import ConnectorConfig, ConverterSettings, SourceSettings, TransformSettings
from kafka_s3_platform.core.defs.restore.config import ForeignRestoreConfig
from kafka_s3_platform.core.defs.topic import TopicAssets
from kafka_s3_platform.core.errors import PreflightError
from kafka_s3_platform.core.instance.work import FAILURE_TAG, name_restored_op
from kafka_s3_platform.core.restore.run import restore
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.defs.running import definitions, launch, tick
from kafka_s3_platform_tests.faults.proxy import faulty_proxy
from kafka_s3_platform_tests.kafka.topics import values
from kafka_s3_platform_tests.support import InProcessRunner

Put = Callable[[int, Sequence[int]], str]


@pytest.fixture
def config(lab: Lab) -> ConnectorConfig:
    """A source that sends lines of JSON to `copy_of_` their topic, which is there."""
    lab.create(f"copy_of_{lab.topic}")
    router = {"regex": SecretStr(".*"), "replacement": SecretStr("copy_of_$0")}
    records = {
        "value": ConverterSettings(format="JSON"),
        "transforms": (TransformSettings(alias="AddPrefix", type="RegexRouter", options=router),),
    }
    layout = {"format": "json", "partitioner": "Default"}
    made = lab.connector(layout=layout, records=records)
    return made.model_copy(update={"topics": (), "source": SourceSettings(poll_interval_ms=2500)})


@pytest.fixture
def put(lab: Lab) -> Put:
    def stored(first: int, values: Sequence[int]) -> str:
        key = f"topics/{lab.topic}/partition=0/{lab.topic}+0+{first:010d}.json"
        body = b"".join(b'{"n":%d}\n' % v for v in values)
        lab.s3.put_object(Bucket=lab.store.bucket, Key=key, Body=body)
        return key

    return stored


def sent(config: ConnectorConfig, topic: str) -> list[int]:
    found = values(config.kafka, f"copy_of_{topic}")
    return [json.loads(v)["n"] for v in found]


def asked(found: dg.SensorResult) -> list[tuple[str, str | None]]:
    configs = [r.run_config["ops"][name_restored_op("c")]["config"] for r in found.run_requests or ()]
    return [(c["how"]["restore_id"], c["what"].get("after")) for c in configs]


def run_asked(config: ConnectorConfig, found: dg.SensorResult) -> None:
    """What the run that was asked for does, without a run that any instance knows of."""
    [request] = found.run_requests or ()
    given = ForeignRestoreConfig(**request.run_config["ops"][name_restored_op("c")]["config"])
    topics = TopicAssets(config, EVERY_TOPIC)
    restore(make_foreign_request(topics, given, given.how.restore_id or "", "run"), InProcessRunner())


def judged(run: dg.ExecuteInProcessResult) -> tuple[str, str] | None:
    """What the check of the restore says, None if it passed."""
    [found] = run.get_asset_check_evaluations()
    return None if found.passed else (found.severity.value, found.description or "")


def poll(config: ConnectorConfig, cursor: str | None = None, **more: Any) -> dg.SensorResult:
    return tick(config, "poll__c", cursor, **more)


def test_it_looks_as_often_as_the_file_says_and_only_once_it_is_turned_on(config: ConnectorConfig) -> None:
    sensor = definitions(config).get_repository_def().get_sensor_def("poll__c")
    assert sensor.minimum_interval_seconds == 3
    assert sensor.default_status is dg.DefaultSensorStatus.STOPPED
    assert "every 2.5 s" in (sensor.description or "")


def test_the_first_run_sends_all_and_the_next_ones_what_appeared(
    config: ConnectorConfig, put: Put, topic_name: str
) -> None:
    where = "any topic was looked for below s3://"
    assert f"there are no objects; {where}" in str(poll(config).skip_reason)
    put(0, range(3))
    with pytest.raises(PreflightError, match=rf"no object of topic absent was found: {topic_name}, absent was looked"):
        poll(config.model_copy(update={"topics": (topic_name, "absent")}))
    put(3, range(3, 5))
    first = poll(config)
    assert asked(first) == [("poll.c.1", None)]
    sent_all = launch(config, (first.run_requests or ())[0])
    assert sent_all.success
    assert judged(sent_all) is None
    idle = poll(config, first.cursor)
    assert not idle.run_requests
    assert "no new object since restore poll.c.1" in str(idle.skip_reason)

    replaced = put(3, range(90, 92))
    assert f"object {replaced} was replaced after it was sent" in str(poll(config, idle.cursor).skip_reason)
    put(5, [5])
    second = poll(config, idle.cursor)
    assert asked(second) == [("poll.c.2", "poll.c.1")]
    run = launch(config, (second.run_requests or ())[0])
    assert run.success
    [event] = run.get_asset_materialization_events()
    metadata = event.step_materialization_data.materialization.metadata
    assert (metadata["restore_id"].value, metadata["after"].value) == ("poll.c.2", "poll.c.1")
    assert sent(config, topic_name) == list(range(6))
    assert not poll(config, second.cursor).run_requests


def test_all_that_was_sent_is_known_though_dagsters_folders_and_the_cursor_are_lost(
    config: ConnectorConfig, put: Put, topic_name: str, tmp_path: Path
) -> None:
    for n in range(2):
        put(n, [n])
        run_asked(config, poll(config))
    with dg.DagsterInstance.ephemeral(str(tmp_path / "new")) as fresh:
        assert "no new object since restore poll.c.2" in str(poll(config, instance=fresh).skip_reason)
        put(2, [2])
        found = poll(config, instance=fresh)
        assert asked(found) == [("poll.c.3", "poll.c.2")]
        run_asked(config, found)
    assert sent(config, topic_name) == [0, 1, 2]


def test_while_a_run_is_queued_none_is_asked_for(
    config: ConnectorConfig, instance: dg.DagsterInstance, put: Put
) -> None:
    put(0, [0])
    [request] = poll(config).run_requests or ()
    job = definitions(config).resolve_job_def("restore__c")
    instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED, tags=dict(request.tags))
    waiting = poll(config)
    assert not waiting.run_requests
    assert "restore poll.c.1: run" in str(waiting.skip_reason)
    assert "is queued or under way" in str(waiting.skip_reason)


def test_one_that_failed_for_good_stops_the_chain_by_name_until_its_cause_is_mended(
    config: ConnectorConfig, put: Put, lab: Lab
) -> None:
    put(0, range(2))
    run_asked(config, poll(config))
    bad = put(2, [2])
    lab.s3.put_object(Bucket=config.store.bucket, Key=bad, Body=b'{"n":2}\n{"n')
    [second] = poll(config).run_requests or ()
    assert not launch(config, second).success
    put(5, [5])
    stopped = poll(config)
    assert not stopped.run_requests
    assert "restore poll.c.2: run" in str(stopped.skip_reason)
    assert "fix its cause, then re-execute that run" in str(stopped.skip_reason)

    source = SourceSettings(poll_interval_ms=2500, behavior_on_error="ignore")
    tolerant = config.model_copy(update={"source": source})
    [again] = poll(tolerant).run_requests or ()
    assert asked(poll(tolerant)) == [("poll.c.2", "poll.c.1")]
    # It finishes its restore id and fails, since its only object is left out: the chain goes on.
    failed = launch(tolerant, again)
    assert not failed.success
    assert judged(failed) == ("ERROR", f"copy_of_{lab.topic}: nothing was restored: 1 object or record skipped")
    run_asked(tolerant, poll(tolerant))
    assert sent(config, lab.topic) == [0, 1, 5]


def test_one_whose_broker_was_down_is_asked_for_again_a_while_later(
    config: ConnectorConfig, instance: dg.DagsterInstance, put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(0, [0])
    [request] = poll(config).run_requests or ()
    job = definitions(config).resolve_job_def("restore__c")
    tags = {**request.tags, FAILURE_TAG: "transient"}
    instance.create_run_for_job(job, status=dg.DagsterRunStatus.FAILURE, tags=tags)
    waiting = poll(config)
    assert not waiting.run_requests
    assert "restore poll.c.1: run" in str(waiting.skip_reason)
    assert "asked for again at" in str(waiting.skip_reason)
    monkeypatch.setattr("kafka_s3_platform.core.defs.runs.FIRST_WAIT", timedelta())
    assert asked(poll(config)) == [("poll.c.1", None)]


def test_a_begun_restore_of_no_known_run_goes_on_under_its_own_id(config: ConnectorConfig, put: Put, lab: Lab) -> None:
    put(0, range(2))
    run_asked(config, poll(config))
    # As a killed run leaves it: all was sent, nothing says that it is finished.
    lab.s3.delete_object(Bucket=config.store.bucket, Key="_restore/poll.c.1.report.json")
    put(2, [2])
    for wanted in (("poll.c.1", None), ("poll.c.2", "poll.c.1")):
        found = poll(config)
        assert asked(found) == [wanted]
        run_asked(config, found)
    assert sent(config, lab.topic) == [0, 1, 2]


def test_a_bad_name_in_the_bucket_fails_the_tick_with_what_to_do(config: ConnectorConfig, put: Put, lab: Lab) -> None:
    put(0, [0])
    key = f"topics/{lab.topic}/partition=0/nonsense.json"
    lab.s3.put_object(Bucket=config.store.bucket, Key=key, Body=b"x")
    with pytest.raises(Exception, match=r"nonsense\.json.*behavior\.on\.error"):
        poll(config)


def test_a_store_that_does_not_answer_is_a_reason_to_skip(config: ConnectorConfig) -> None:
    store = config.store.model_copy(update={"endpoint_url": "http://127.0.0.1:31698", "max_retries": 0})
    found = poll(config.model_copy(update={"store": store}))
    assert "127.0.0.1:31698" in str(found.skip_reason)


def test_a_listing_may_take_longer_where_dagster_gives_ticks_more_time(
    config: ConnectorConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    with faulty_proxy(config.store.endpoint_url or "") as proxy:
        proxy.seconds_to_answer = 1.0
        slow = config.model_copy(update={"store": config.store.model_copy(update={"endpoint_url": proxy.endpoint})})
        monkeypatch.setenv("DAGSTER_SENSOR_GRPC_TIMEOUT_SECONDS", "1")
        assert "the store answers slowly" in str(poll(slow).skip_reason)
        monkeypatch.setenv("DAGSTER_SENSOR_GRPC_TIMEOUT_SECONDS", "90")
        assert "there are no objects" in str(poll(slow).skip_reason)


def test_what_a_restore_left_out_as_bad_is_no_news_before_it_or_the_file_is_changed(
    config: ConnectorConfig, put: Put, lab: Lab
) -> None:
    assert config.source is not None
    ignoring = config.model_copy(update={"source": config.source.model_copy(update={"behavior_on_error": "ignore"})})
    put(0, [0])
    bad = put(1, [1])
    lab.s3.put_object(Bucket=config.store.bucket, Key=bad, Body=b'{"n":1}\n{"n')
    [first] = poll(ignoring).run_requests or ()
    assert judged(launch(ignoring, first)) == (
        "WARN",
        f"copy_of_{lab.topic}: verified, but not everything could be restored: 1 object or record skipped",
    )
    for _ in range(2):
        idle = poll(ignoring)
        assert not idle.run_requests
        assert "1 objects are as they were when restore poll.c.1 left them out as bad" in str(idle.skip_reason)
    put(2, [2])
    run_asked(ignoring, poll(ignoring))
    assert not poll(ignoring).run_requests

    read_otherwise = ignoring.model_copy(update={"layout": ignoring.layout.model_copy(update={"codec": "gzip"})})
    assert asked(poll(read_otherwise)) == [("poll.c.3", "poll.c.2")]
    lab.s3.put_object(Bucket=config.store.bucket, Key=bad, Body=b'{"n":1}\n')
    run_asked(ignoring, poll(ignoring))
    assert sent(config, lab.topic) == [0, 2, 1]
    assert not poll(ignoring).run_requests


def test_a_file_alone_whose_records_name_their_topics_is_polled(config: ConnectorConfig, put: Put, lab: Lab) -> None:
    options = {"field": SecretStr("n"), "skip.missing.or.null": SecretStr("false")}
    extract = TransformSettings(alias="x", type="ExtractTopic$Value", options=options)
    records = config.records.model_copy(update={"transforms": (extract,)})
    topics = [lab.create(f"{lab.topic}-{n}") for n in range(2)]
    key = put(0, [])
    lab.s3.put_object(Bucket=lab.store.bucket, Key=key, Body="".join(f'{{"n":"{name}"}}\n' for name in topics).encode())
    routing = config.model_copy(update={"records": records})
    run = launch(routing, (poll(routing).run_requests or ())[0])
    assert (run.success, judged(run)) == (True, None)
    assert [len(values(config.kafka, name)) for name in topics] == [1, 1]
