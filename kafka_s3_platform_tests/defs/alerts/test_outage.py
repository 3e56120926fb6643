"""The store is stopped under load: one alert, healed by itself, one message that it is over, and nothing is lost."""

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path

import dagster as dg
import pytest

from kafka_s3_platform import read
from kafka_s3_platform.core.errors import StoreUnavailableError
from kafka_s3_platform.operate.local.seaweedfs import SeaweedFS
from kafka_s3_platform.operate.local.settings import StackSettings
from kafka_s3_platform.operate.local.stack import start_servers
from kafka_s3_platform_tests.conftest import Lab, own_stack
from kafka_s3_platform_tests.defs.alerts.deployment import Deployment
from kafka_s3_platform_tests.defs.alerts.servers import Mailbox, Webhook
from kafka_s3_platform_tests.support import Sent, produce

TOPICS = 3


@pytest.fixture
def store(stack_settings: StackSettings) -> Iterator[SeaweedFS]:
    """A store of the test's own, which it may stop."""
    with own_stack(stack_settings) as own:
        server = SeaweedFS(own)
        start_servers((server,))
        server.create_bucket()
        yield server


@pytest.fixture
def topics(store: SeaweedFS, lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Two connectors with these topics each."""
    names = [lab.create(f"{lab.topic}-{n}") for n in range(TOPICS)]
    folder = tmp_path / "connectors"
    folder.mkdir()
    (folder / "worker.properties").write_text(f"bootstrap.servers={lab.kafka.bootstrap_servers}\n")
    keys = {
        "topics": ",".join(names),
        "s3.bucket.name": store.settings.bucket,
        "s3.region": "us-east-1",
        "store.url": store.settings.s3_endpoint,
        "aws.access.key.id": store.settings.aws_access_key_id,
        "aws.secret.access.key": store.settings.aws_secret_access_key,
        "s3.part.retries": "0",
        "timezone": "UTC",
        "archive.start.hour": f"{datetime.now(timezone.utc):%Y-%m-%dT%H:00}",
        "rotate.schedule.interval.ms": "1",
        "archive.allowed.lateness.ms": "0",
    }
    for name in ("a", "b"):
        (folder / f"{name}.json").write_text(json.dumps({"name": name, "topics.dir": name, **keys}))
    monkeypatch.setenv("KAFKA_S3_CONNECTORS", str(folder))
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    monkeypatch.setattr("kafka_s3_platform.core.defs.tick.TICK_SECONDS", 6.0)
    monkeypatch.setattr("kafka_s3_platform.core.defs.runs.FIRST_WAIT", timedelta())
    return names


def test_an_outage_of_the_store_is_one_alert_and_one_message_that_it_is_over(
    store: SeaweedFS, topics: list[str], lab: Lab, instance: dg.DagsterInstance, hook: Webhook, mailed: Mailbox
) -> None:
    deployment = Deployment(instance)

    def send() -> None:
        for topic in topics:
            produce(lab.kafka, topic, [Sent(timestamp=datetime.now(timezone.utc))])

    def ask() -> list[dg.RunRequest]:
        """What the lag sensors ask for."""
        return [asked for name in "ab" for asked in deployment.tick(f"lag__{name}").run_requests or ()]

    def told() -> list[str]:
        """What was told, after one more tick of the alerts."""
        deployment.tick()
        events = [document["event"] for document in hook.taken]
        assert len(mailed.mails) == len(events)
        return events

    send()
    assert deployment.launch(ask()) == [True, True]
    assert told() == []

    send()
    under_way = ask()
    store.daemon.terminate()
    store.daemon.await_end()
    assert deployment.launch(under_way) == [False, False]
    for _ in range(3):
        assert told() == [], "a run that fails for a reason that may pass is no incident yet"
        send()
        assert not ask()
    assert told() == ["began"], "of two connectors with three topics each"
    [alert] = hook.taken
    assert alert["title"] == f"the store at {store.settings.s3_endpoint} does not answer"
    assert alert["names"] == ["a", "b"]
    assert alert["heals_by_itself"]
    with pytest.raises(StoreUnavailableError):
        deployment.tick("lag__a")
    assert deployment.launch(under_way) == [False, False]
    assert told() == ["began"], "nothing is told again, and runs fail for what is known"

    start_servers((store,))
    due = [asked for name in "ab" for asked in ask_until_due(deployment, name)]
    assert told() == ["began", "over"]
    assert deployment.launch(due) == [True, True]
    assert told() == ["began", "over"]
    assert mailed.mails[1]["In-Reply-To"] == mailed.mails[0]["Message-ID"]

    for connector in "ab":
        for topic in topics:
            found = read(connector, topic).to_table(columns=["offset"])
            assert sorted(found["offset"].to_pylist()) == [0, 1, 2, 3, 4], (connector, topic)


def ask_until_due(deployment: Deployment, connector: str) -> list[dg.RunRequest]:
    """What the lag sensor asks for when the store has come up: it answers 500 for a moment."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        with suppress(StoreUnavailableError):
            if due := deployment.tick(f"lag__{connector}").run_requests:
                return [*due]
        time.sleep(0.2)
    pytest.fail(f"nothing is due of {connector}")
