"""Every client over TLS, by each way of telling who one is."""

import ssl
import time
import uuid
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka.admin import AclBinding, AclBindingFilter, AdminClient
from pydantic import SecretStr

from kafka_s3_platform.connect.config.keys.clients import translate_properties
from kafka_s3_platform.core.config.settings import KafkaSettings
from kafka_s3_platform.core.errors import AuthorizationError, PlatformError, TransientError
from kafka_s3_platform.core.kafka import client as admin_calls
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.kafka.client import TIMEOUT_SECONDS
from kafka_s3_platform.core.kafka.confluent_reader import ConfluentReader
from kafka_s3_platform.core.kafka.fetch.connection import BrokerConnection, UnsupportedError
from kafka_s3_platform.core.kafka.fetch.fetch_reader import FetchReader
from kafka_s3_platform.core.model.offsets import OffsetRange
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.kafka.guarded import rights
from kafka_s3_platform_tests.kafka.topics import handed_over, until
from kafka_s3_platform_tests.restore.own import numbered
from kafka_s3_platform_tests.support import NOON, archived, connector, produce, snapshot
from kafka_s3_platform_tests.tls import stores
from kafka_s3_platform_tests.tls.authority import Authority
from kafka_s3_platform_tests.tls.broker import LIMITED, SecuredKafka
from kafka_s3_platform_tests.tls.stores import make_keystore, make_truststore

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
WAYS = ("certificate", *MECHANISMS, "OAUTHBEARER")
ALL = OffsetRange(0, 20)


@pytest.fixture(autouse=True)
def _refused_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_calls, "GRACE_SECONDS", 2.0)


def new_topic(secured: SecuredKafka) -> str:
    """A topic with 20 records, created and written by a client with a certificate."""
    name = f"topic-{uuid.uuid4().hex[:12]}"
    with ClusterAdmin(secured.by_certificate()) as admin:
        admin.create_topic(name, 1)
    produce(secured.by_certificate(), name, numbered(20))
    return name


@pytest.fixture(scope="module")
def topic(secured: SecuredKafka) -> str:
    """One that is only read."""
    return new_topic(secured)


@pytest.fixture
def own_topic(secured: SecuredKafka) -> str:
    """One whose rights are changed."""
    return new_topic(secured)


def quickly_read(settings: KafkaSettings, topic: str) -> pa.Table:
    with FetchReader(settings, topic) as reader:
        return pa.Table.from_batches(list(reader.read(0, ALL)))


@pytest.mark.parametrize("way", WAYS)
def test_both_readers_read_the_same(
    secured: SecuredKafka, topic: str, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings = secured.as_user(way)
    with caplog.at_level("INFO"):
        found = quickly_read(settings, topic)
    with ConfluentReader(settings, topic) as reader:
        assert pa.Table.from_batches(list(reader.read(0, ALL))).equals(found)
    # tokens are left to librdkafka
    assert (found.num_rows, handed_over(caplog)) == (20, way == "OAUTHBEARER")


@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
def test_both_readers_use_key_stores_of_java(
    secured: SecuredKafka, topic: str, tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    entries = {
        "security.protocol": "SSL",
        "ssl.truststore.location": str(make_truststore(secured.authority.ca, tmp_path / "trust", kind)),
        "ssl.truststore.password": stores.PASSWORD,
        "ssl.keystore.location": str(make_keystore(secured.authority.client.both, tmp_path / "keys", kind)),
        "ssl.keystore.password": stores.PASSWORD,
        **({"ssl.key.password": stores.KEY_PASSWORD} if kind == "JKS" else {}),
    }
    outcome = translate_properties(entries, "common")
    assert outcome.refused == {}
    common = {name: SecretStr(value) for name, value in outcome.properties.items()}
    settings = KafkaSettings(bootstrap_servers=secured.mutual, common=common)
    with caplog.at_level("INFO"):
        table = quickly_read(settings, topic)
    assert (table.num_rows, handed_over(caplog)) == (20, False)
    with ConfluentReader(settings, topic) as reader:
        assert pa.Table.from_batches(list(reader.read(0, ALL))).equals(table)


def test_the_properties_that_confluent_cloud_hands_out_are_understood(
    secured: SecuredKafka, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings = secured.by_password(
        "PLAIN",
        client_dns_lookup="use_all_dns_ips",
        socket_timeout_ms="20000",
        ssl_endpoint_identification_algorithm="https",
        ssl_ca_location=None,
        ssl_ca_pem=secured.authority.ca.read_text(),
    )
    with caplog.at_level("INFO"):
        assert quickly_read(settings, topic).num_rows == 20
    assert not handed_over(caplog)


def test_the_nearest_replica_of_a_rack_is_left_to_librdkafka(
    secured: SecuredKafka, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"):
        assert quickly_read(secured.by_password("PLAIN", client_rack="eu-1a"), topic).num_rows == 20
    assert handed_over(caplog)


def test_another_name_than_the_certificates_is_refused_unless_none_counts(secured: SecuredKafka, topic: str) -> None:
    misnamed = {"bootstrap_servers": secured.users.replace("127.0.0.1", "localhost")}
    careless = secured.by_password("PLAIN", ssl_endpoint_identification_algorithm="none").model_copy(update=misnamed)
    assert quickly_read(careless, topic).num_rows == 20
    careful = secured.by_password("PLAIN").model_copy(update=misnamed)
    with pytest.raises(AuthorizationError, match="certificate verify failed"), ClusterAdmin(careful) as admin:
        admin.describe_cluster()


def refused_everywhere(settings: KafkaSettings, topic: str, why: str) -> None:
    """By an admin client, long before its time is over; by confluent-kafka's reader; by the quick one's connection."""
    started = time.monotonic()
    with pytest.raises(AuthorizationError, match=why), ClusterAdmin(settings) as admin:
        admin.describe_topic(topic)
    assert time.monotonic() - started < TIMEOUT_SECONDS / 2
    with (
        ConfluentReader(settings, topic, answer_seconds=2) as reader,
        pytest.raises(AuthorizationError, match=why),
    ):
        list(reader.read(0, ALL))
    host, _, port = settings.bootstrap_servers.partition(":")
    with pytest.raises((UnsupportedError, ssl.SSLCertVerificationError), match=why):
        BrokerConnection(host, int(port), settings.properties("consumer"), timeout=5)


def test_a_broker_of_another_authority_is_refused(secured: SecuredKafka, strangers: Authority, topic: str) -> None:
    settings = secured.by_password("PLAIN", ssl_ca_location=str(strangers.ca))
    refused_everywhere(settings, topic, "certificate verify failed")


@pytest.mark.parametrize("listener", ["expired", "elsewhere"])
def test_a_broker_whose_certificate_is_out_of_date_or_another_server_s_is_refused(
    secured: SecuredKafka, topic: str, listener: str
) -> None:
    settings = secured.without_credentials(getattr(secured.ports, listener))
    refused_everywhere(settings, topic, "certificate verify failed")


@pytest.mark.parametrize(
    ("listener", "name", "value"),
    [
        ("expired", "enable.ssl.certificate.verification", "false"),
        ("elsewhere", "ssl.endpoint.identification.algorithm", "none"),
    ],
)
def test_what_turns_verification_off_is_told_by_each_run(
    secured: SecuredKafka,
    topic: str,
    listener: str,
    name: str,
    value: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kafka_s3_platform.core.kafka.client._told", set())
    settings = secured.without_credentials(getattr(secured.ports, listener), **{name.replace(".", "_"): value})
    for _ in range(2):
        with ClusterAdmin(settings) as admin:
            admin.describe_cluster()
    [said] = [r.getMessage() for r in caplog.records if "are not verified" in r.getMessage()]
    assert f"{settings.bootstrap_servers} are not verified, since {name}={value}" in said
    caplog.clear()
    with ClusterAdmin(secured.by_password("PLAIN")) as admin:
        admin.describe_cluster()
    assert caplog.records == []


@pytest.mark.parametrize(
    ("listener", "protocol", "advice"),
    [
        ("mutual", None, "set security.protocol to SSL, or to SASL_SSL"),
        ("users", "SASL_PLAINTEXT", "set security.protocol to SSL, or to SASL_SSL"),
        ("users", "SSL", "set security.protocol to SASL_SSL, and sasl.mechanism"),
        ("plain", "SASL_SSL", "set security.protocol to PLAINTEXT, or to SASL_PLAINTEXT"),
        ("plain", "SASL_PLAINTEXT", "takes no login: set security.protocol to PLAINTEXT, or to SSL"),
    ],
)
def test_a_listener_of_another_protocol_is_told_with_the_protocol_to_set(
    secured: SecuredKafka, listener: str, protocol: str | None, advice: str
) -> None:
    given = secured.by_password("PLAIN", security_protocol=protocol or "PLAINTEXT")
    settings = given.model_copy(update={"bootstrap_servers": getattr(secured, listener)})
    with pytest.raises(PlatformError, match=advice), ClusterAdmin(settings, 1.5) as admin:
        admin.list_topics()
    with pytest.raises(PlatformError, match=advice), ConfluentReader(settings, "t", answer_seconds=1.5) as reader:
        list(reader.read(0, ALL))


def allow(secured: SecuredKafka, topic: str) -> list[AclBinding]:
    """Give `LIMITED` what docs/rights.md says that archiving takes, and nothing else."""
    bindings = [right.binding(LIMITED) for right in rights("archive", SOURCE=topic)]
    client = AdminClient({"bootstrap.servers": secured.plain})
    for asked in client.create_acls(bindings).values():
        asked.result(30)
    return bindings


def revoke(secured: SecuredKafka, bindings: list[AclBinding]) -> None:
    filters = [
        AclBindingFilter(
            b.restype, b.name, b.resource_pattern_type, b.principal, b.host, b.operation, b.permission_type
        )
        for b in bindings
    ]
    client = AdminClient({"bootstrap.servers": secured.plain})
    for asked in client.delete_acls(filters).values():
        asked.result(30)
    # the controller has deleted them, and the broker hears of it a moment later
    until(lambda: not any(client.describe_acls(revoked).result(30) for revoked in filters))


@pytest.mark.parametrize("way", WAYS)
def test_the_documented_rights_are_enough_and_needed(secured: SecuredKafka, own_topic: str, way: str, lab: Lab) -> None:
    settings = secured.as_user(way, LIMITED)
    config = connector(settings, lab.store, own_topic)
    with pytest.raises(PlatformError, match=own_topic) as raised:
        archived(config, [NOON])
    assert not isinstance(raised.value, TransientError)
    bindings = allow(secured, own_topic)
    with ConfluentReader(settings, own_topic) as reader:
        whole = pa.Table.from_batches(list(reader.read(0, ALL)))
    assert quickly_read(settings, own_topic).equals(whole)
    archived(config)
    assert sum(s.record_count for s in snapshot(config).segments) == 20
    revoke(secured, bindings)


@pytest.mark.parametrize("reader_class", [FetchReader, ConfluentReader])
@pytest.mark.parametrize("way", WAYS)
def test_rights_that_are_revoked_in_the_middle_of_a_run_end_it_in_their_own_words(
    secured: SecuredKafka, own_topic: str, way: str, reader_class: type[FetchReader | ConfluentReader]
) -> None:
    bindings = allow(secured, own_topic)
    settings = secured.as_user(way, LIMITED)
    with reader_class(settings, own_topic) as reader:
        assert sum(batch.num_rows for batch in reader.read(0, ALL)) == 20
        revoke(secured, bindings)
        produce(secured.by_certificate(), own_topic, numbered(20))
        with pytest.raises(AuthorizationError, match=rf"(?s){own_topic}.*TOPIC_AUTHORIZATION_FAILED"):
            list(reader.read(0, OffsetRange(20, 40)))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_refused(secured: SecuredKafka, topic: str, mechanism: str) -> None:
    settings = secured.by_password(mechanism, sasl_password="wrong")
    refused_everywhere(settings, topic, "(?i)authentication failed|refuses to authenticate")


def test_a_client_without_certificate_is_refused_where_one_is_asked_for(secured: SecuredKafka, topic: str) -> None:
    settings = secured.by_certificate(ssl_certificate_location=None, ssl_key_location=None)
    with pytest.raises(AuthorizationError, match="certificate"), ClusterAdmin(settings) as admin:
        admin.describe_topic(topic)
