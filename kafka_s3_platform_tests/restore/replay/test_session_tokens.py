"""Archive, verify, compact and restore by temporary credentials: each request carries their token, or is refused."""

from collections.abc import Iterator
from datetime import date, datetime, timedelta, timezone

import pytest
from pydantic import SecretStr

from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.errors import AuthorizationError
from kafka_s3_platform.core.store.index import ConnectorIndex, TopicIndex
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform.core.upkeep.compact.days import CompactRequest
from kafka_s3_platform.core.upkeep.verify import verify_archive
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.kafka.topics import values
from kafka_s3_platform_tests.restore.own import restored
from kafka_s3_platform_tests.store.servers import Recorder, Sts, session_gate
from kafka_s3_platform_tests.support import HOUR, NOON, InProcessRunner, Sent, archived, compact_day, connector

VALUES = [bytes([n]) * 900_000 for n in range(16)]


@pytest.fixture
def sts() -> Sts:
    return Sts()


@pytest.fixture
def gate(lab: Lab, sts: Sts) -> Iterator[Recorder]:
    with session_gate(lab.store, sts) as server:
        yield server


@pytest.fixture
def config(lab: Lab, gate: Recorder, sts: Sts) -> ConnectorConfig:
    """A connector whose file has an access key and its session token; a topic of two hours, some of it in parts."""
    lab.create_topic()
    lab.create(f"{lab.topic}-restored")
    lab.produce([Sent(v, None, NOON + (n > 13) * HOUR) for n, v in enumerate(VALUES)])
    access_key, secret, token, _ = sts.issue("test", {})
    session = {"access_key_id": access_key, "secret_access_key": secret, "session_token": token}
    given = {name: SecretStr(value) for name, value in session.items()}
    store = lab.store.model_copy(update={**given, "endpoint_url": gate.endpoint, "part_size": 5_242_880})
    return connector(lab.kafka, store, lab.topic, layout={"format": "envelope.avro", "codec": "null"})


def test_every_request_of_every_client_carries_the_token(config: ConnectorConfig, gate: Recorder) -> None:
    topic = config.topics[0]
    archived(config)
    compact_day(CompactRequest(config, topic, date(2026, 1, 1), "run"), InProcessRunner())
    assert verify_archive(config, topic, deep=True, runner=InProcessRunner()).ok
    assert restored(config).verified
    assert values(config.kafka, f"{topic}-restored") == VALUES

    assert {request.headers.get("x-amz-security-token") for request in gate.requests} == {
        config.store.session_token.get_secret_value() if config.store.session_token else ""
    }
    agents = {request.headers.get("user-agent", "").partition("/")[0] for request in gate.requests}
    assert {"Botocore", "kafka-s3-platform"} <= agents  # boto3 and the client of delta-rs
    assert any("uploadId" in request.target for request in gate.requests)


def test_a_token_that_does_not_hold_is_told_as_that(config: ConnectorConfig, sts: Sts) -> None:
    archived(config)
    key = config.store.access_key_id.get_secret_value() if config.store.access_key_id else ""
    token, expiry = sts.sessions[key]
    without = config.store.model_copy(update={"session_token": None})
    for store, known, said in (
        (config.store, (token, datetime.now(timezone.utc) - timedelta(seconds=1)), "ExpiredToken"),
        (config.store, (token + "x", expiry), "InvalidToken"),
        (without, (token, expiry), "InvalidToken"),
    ):
        sts.sessions[key] = known
        check_refusal(config.model_copy(update={"store": store}), said)


def check_refusal(config: ConnectorConfig, said: str) -> None:
    for attempt in (
        lambda: ObjectStore(config.store).put_new("a", b""),
        lambda: TopicIndex(ConnectorIndex(config.store, "_index", "c"), config.topics[0]).open(),
        lambda: archived(config, [NOON + HOUR]),
        lambda: restored(config, restore_id="other"),
    ):
        with pytest.raises(AuthorizationError, match=rf"{said}.*session token"):
            attempt()
