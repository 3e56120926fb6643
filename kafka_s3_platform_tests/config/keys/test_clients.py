import re
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer

from kafka_s3_platform.connect.config.keys.clients import (
    CLIENT_KEYS,
    CLIENT_PROPERTIES,
    PAIRED_PROPERTIES,
    REFUSED_PROPERTIES,
    ClientProperty,
    Scope,
    select_security,
    translate_properties,
)
from kafka_s3_platform.connect.config.keys.table import Support
from kafka_s3_platform_tests.config.conftest import sample_value

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
JAAS = f'{PLAIN} required username="u" password="p";'

SCOPED = [(key, scope) for key in CLIENT_PROPERTIES for scope in sorted(key.scopes)]


@pytest.mark.parametrize(("key", "scope"), SCOPED, ids=lambda value: getattr(value, "name", value))
def test_librdkafka_takes_every_property_that_is_passed_on(key: ClientProperty, scope: Scope) -> None:
    outcome = translate_properties({key.name: sample_value(key)}, scope)
    assert outcome.judgements[key.name][0] is Support.HONOURED
    objection = objection_of_client(outcome.properties, Producer if scope == "producer" else Consumer)
    # Files that are not there and logins that are not whole are no matter of names and values.
    assert not re.search("No such configuration property|Invalid value|allowed range", objection)


def objection_of_client(properties: dict[str, str], client: type[Consumer | Producer]) -> str:
    try:
        client({"group.id": "none", "log_level": "0", **properties})
    except KafkaException as err:
        return str(err)
    return ""


def test_no_property_is_declared_twice() -> None:
    names = [key.name for key in (*CLIENT_PROPERTIES, *PAIRED_PROPERTIES, *REFUSED_PROPERTIES)]
    assert len(names) == len(set(names))
    assert all(CLIENT_KEYS.find(name) for name in names)


@pytest.mark.parametrize(
    ("entries", "properties"),
    [
        ({"fetch.max.wait.ms": "100"}, {"fetch.wait.max.ms": "100"}),
        ({"request.timeout.ms": "1000"}, {"socket.timeout.ms": "1000"}),
        ({"receive.buffer.bytes": "-1"}, {"socket.receive.buffer.bytes": "0"}),
        ({"sasl.mechanism": "scram-sha-256"}, {"sasl.mechanism": "SCRAM-SHA-256"}),
        ({"compression.type": "ZSTD"}, {"compression.type": "zstd"}),
        ({"fetch.min.bytes": "+010"}, {"fetch.min.bytes": "10"}),
        ({"enable.ssl.certificate.verification": "False"}, {"enable.ssl.certificate.verification": "false"}),
        ({"ssl.endpoint.identification.algorithm": ""}, {"ssl.endpoint.identification.algorithm": "none"}),
        ({"ssl.truststore.type": "PEM", "ssl.truststore.location": "/ca.pem"}, {"ssl.ca.location": "/ca.pem"}),
        (
            {"ssl.keystore.type": "PEM", "ssl.keystore.location": "/me.pem", "ssl.key.password": "p"},
            {"ssl.certificate.location": "/me.pem", "ssl.key.location": "/me.pem", "ssl.key.password": "p"},
        ),
        (
            {"sasl.jaas.config": f'{PLAIN} required username="a b" password="p;\\"=q";'},
            {"sasl.username": "a b", "sasl.password": 'p;"=q'},
        ),
        (
            {"sasl.jaas.config": f"{SCRAM} required\n  username=u\n  password='p';"},
            {"sasl.username": "u", "sasl.password": "p"},
        ),
    ],
)
def test_java_names_become_librdkafkas(entries: dict[str, str], properties: dict[str, str]) -> None:
    outcome = translate_properties(entries, "producer" if "compression.type" in entries else "consumer")
    assert outcome.properties == properties
    assert {name: support for name, (support, _) in outcome.judgements.items()} == dict.fromkeys(
        entries, Support.HONOURED
    )


@pytest.mark.parametrize(
    ("entries", "files"),
    [
        ({"ssl.ca.location": "ca.pem"}, {"ssl.ca.location": "{cwd}/ca.pem"}),
        ({"ssl.certificate.location": "../me.pem"}, {"ssl.certificate.location": "{above}/me.pem"}),
        ({"sasl.kerberos.keytab": "/etc/me.keytab"}, {"sasl.kerberos.keytab": "/etc/me.keytab"}),
        ({"ssl.truststore.type": "PEM", "ssl.truststore.location": "ca.pem"}, {"ssl.ca.location": "{cwd}/ca.pem"}),
        ({"ssl.ca.location": "probe"}, {"ssl.ca.location": "probe"}),
        ({"ssl.ca.pem": "ca.pem"}, {"ssl.ca.pem": "ca.pem"}),
    ],
)
def test_a_relative_path_counts_from_the_working_directory(
    entries: dict[str, str], files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks may run in another one, or in one that was given another name meanwhile."""
    monkeypatch.chdir(tmp_path)
    expected = {name: path.format(cwd=tmp_path, above=tmp_path.parent) for name, path in files.items()}
    assert translate_properties(entries, "common").properties == expected


def test_a_producers_request_timeout_is_its_own() -> None:
    assert translate_properties({"request.timeout.ms": "5"}, "producer").properties == {"request.timeout.ms": "5"}


def test_buffer_memory_becomes_kibibytes() -> None:
    outcome = translate_properties({"buffer.memory": "33554432"}, "producer")
    assert outcome.properties == {"queue.buffering.max.kbytes": "32768"}


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("isolation.level", "read_uncommitted", "aborted records are never archived"),
        ("auto.offset.reset", "latest", "a lost offset is a gap, never skipped"),
        ("enable.auto.commit", "true", "offsets are kept in the index"),
        ("group.id", "connect-flights", "offsets are kept in the index"),
        ("bootstrap.servers", "other:9092", "set bootstrap.servers in worker.properties"),
        ("ssl.truststore.location", "trust.jks", "/trust.jks cannot be read: No such file"),
        ("ssl.keystore.location", "key.jks", "/key.jks cannot be read: No such file"),
        ("fetch.min.bytes", "some", "'some' is no whole number"),
        ("fetch.min.bytes", "1e3", "'1e3' is no whole number"),
        ("fetch.min.bytes", "-1", 'Configuration property "fetch.min.bytes" value -1 is outside allowed range 0..'),
        ("request.timeout.ms", "9", 'Configuration property "socket.timeout.ms" value 9 is outside allowed range 10..'),
        ("security.protocol", "TLS", 'Invalid value "TLS" for configuration property "security.protocol"'),
        ("sasl.mechanism", "KERBEROS", "'KERBEROS' is none of PLAIN, SCRAM-SHA-256"),
        ("client.dns.lookup", "", 'Configuration property "client.dns.lookup" cannot be set to empty value'),
        ("debug", "everything", 'Invalid value "everything" for configuration property "debug"'),
        ("client.id", "", "is empty; leave the key out"),
        ("check.crcs", "1", "'1' is neither true nor false"),
        ("sasl.kerberos.principal", "me; rm", "as a shell reads it"),
        ("plugin.library.paths", "/tmp/mine.so", "unknown client property"),
        ("linger.ms", "5", "is a property of the producer only"),
        ("fetch.min.byte", "1", "unknown client property; did you mean fetch.min.bytes?"),
        ("interceptor.classes", "com.example.Mine", "Java classes cannot run here"),
        ("sasl.login.callback.handler.class", "software.amazon.msk.Handler", "is unknown here; did you mean"),
    ],
)
def test_what_cannot_be_overridden_is_refused_with_its_reason(name: str, value: str, reason: str) -> None:
    outcome = translate_properties({name: value}, "consumer")
    assert reason in outcome.refused[name]
    assert not outcome.properties


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("isolation.level", "read_committed"),
        ("auto.offset.reset", "earliest"),
        ("enable.auto.commit", "false"),
        ("max.poll.records", "500"),
        ("ssl.protocol", "TLSv1.3"),
        ("interceptor.classes", "io.confluent.monitoring.clients.interceptor.MonitoringConsumerInterceptor"),
        ("confluent.monitoring.interceptor.bootstrap.servers", "c3:9092"),
    ],
)
def test_what_is_done_anyway_is_accepted_without_meaning(name: str, value: str) -> None:
    outcome = translate_properties({name: value}, "consumer")
    assert outcome.judgements[name][0] is Support.WITHOUT_MEANING
    assert not outcome.properties


@pytest.mark.parametrize("acks", ["0", "1"])
def test_a_restore_is_acknowledged_by_all(acks: str) -> None:
    assert "all in-sync replicas" in translate_properties({"acks": acks}, "producer").refused["acks"]


@pytest.mark.parametrize(
    ("entries", "refused", "target"),
    [
        ({"fetch.max.wait.ms": "1", "fetch.wait.max.ms": "2"}, "fetch.wait.max.ms", "fetch.wait.max.ms"),
        ({"sasl.jaas.config": JAAS, "sasl.username": "u"}, "sasl.jaas.config", "sasl.username"),
        ({"sasl.password": "p", "sasl.jaas.config": JAAS}, "sasl.jaas.config", "sasl.password"),
        (
            {"ssl.truststore.type": "PEM", "ssl.truststore.location": "a", "ssl.ca.location": "b"},
            "ssl.truststore.location",
            "ssl.ca.location",
        ),
        (
            {"ssl.keystore.type": "PEM", "ssl.keystore.location": "a", "ssl.key.location": "b"},
            "ssl.keystore.location",
            "ssl.key.location",
        ),
    ],
)
def test_two_names_of_one_property_are_refused(entries: dict[str, str], refused: str, target: str) -> None:
    outcome = translate_properties(entries, "consumer")
    assert f"another property sets librdkafka's {target} too; keep one" in outcome.refused[refused]


def test_what_a_restore_fixes_is_never_said_to_be_honoured() -> None:
    key = CLIENT_KEYS.find("delivery.timeout.ms")
    assert key is not None
    assert key.support is Support.WITHOUT_MEANING


def test_how_long_a_transaction_may_be_open_is_the_worker_file_s() -> None:
    outcome = translate_properties({"transaction.timeout.ms": "300000"}, "producer")
    assert outcome.properties == {"transaction.timeout.ms": "300000"}
    assert (
        "outside allowed range 1000.."
        in translate_properties({"transaction.timeout.ms": "1"}, "producer").refused.popitem()[1]
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f'{PLAIN} required username="u" password="hunter2', "a quote is not closed"),
        (f'{PLAIN} required username="u" "hunter2";', "an option has no value"),
        (f'{PLAIN} required password="hunter2";', "names no username or no password"),
        (f'{SCRAM} required username="u" password="hunter2" tokenauth="true";', "an option besides"),
        (f'{PLAIN} required username="u" password=hunter2 hunter2="x";', "an option besides"),
        ('com.sun.security.auth.module.Krb5LoginModule required keyTab="hunter2";', "sasl.kerberos"),
        ("", "only PlainLoginModule, ScramLoginModule, OAuthBearerLoginModule, IAMLoginModule are read"),
    ],
)
def test_a_login_that_cannot_be_read_is_refused_without_quoting_it(text: str, reason: str) -> None:
    refused = translate_properties({"sasl.jaas.config": text}, "common").refused["sasl.jaas.config"]
    assert reason in refused
    assert "hunter2" not in refused


def test_the_outcome_does_not_show_its_values() -> None:
    assert "hunter2" not in repr(translate_properties({"sasl.password": "hunter2"}, "common"))


def test_security_is_how_to_connect_and_nothing_else() -> None:
    properties = {"sasl.username": "u", "ssl.ca.location": "c", "security.protocol": "SSL", "fetch.min.bytes": "1"}
    assert select_security(properties).keys() == {"sasl.username", "ssl.ca.location", "security.protocol"}


OAUTH = "org.apache.kafka.common.security.oauthbearer"
IAM = "software.amazon.msk.auth.iam"


@pytest.mark.parametrize(
    ("entries", "properties"),
    [
        (
            {
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.login.callback.handler.class": f"{OAUTH}.secured.OAuthBearerLoginCallbackHandler",
                "sasl.oauthbearer.token.endpoint.url": "https://login.example.com/token",
                "sasl.jaas.config": (
                    f"{OAUTH}.OAuthBearerLoginModule required clientId='me' clientSecret='s' scope=\"kafka\""
                    " extension_logicalCluster='lkc-1' extension_identityPoolId='pool-1';"
                ),
            },
            {
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.token.endpoint.url": "https://login.example.com/token",
                "sasl.oauthbearer.client.id": "me",
                "sasl.oauthbearer.client.secret": "s",
                "sasl.oauthbearer.scope": "kafka",
                "sasl.oauthbearer.extensions": "logicalCluster=lkc-1,identityPoolId=pool-1",
            },
        ),
        (
            {
                "sasl.mechanism": "aws_msk_iam",
                "sasl.client.callback.handler.class": f"{IAM}.IAMClientCallbackHandler",
                "sasl.jaas.config": (
                    f'{IAM}.IAMLoginModule required awsRoleArn="arn:aws:iam::1:role/a" awsStsRegion=eu-west-1'
                    ' awsRoleSessionName="s" awsRoleExternalId="x" awsProfileName="p" awsDebugCreds="true";'
                ),
            },
            {
                "sasl.mechanism": "AWS_MSK_IAM",
                "sasl.aws.role.arn": "arn:aws:iam::1:role/a",
                "sasl.aws.sts.region": "eu-west-1",
                "sasl.aws.role.session.name": "s",
                "sasl.aws.role.external.id": "x",
                "sasl.aws.profile": "p",
            },
        ),
    ],
)
def test_logins_by_tokens_are_read_as_javas_clients_name_them(
    entries: dict[str, str], properties: dict[str, str]
) -> None:
    outcome = translate_properties(entries, "common")
    assert (outcome.refused, outcome.properties) == ({}, properties)


def test_an_access_key_of_a_role_is_refused_without_quoting_it() -> None:
    entry = f'{IAM}.IAMLoginModule required awsRoleSecretAccessKey="hidden";'
    outcome = translate_properties({"sasl.jaas.config": entry}, "common")
    assert "has an option besides awsProfileName and awsRoleArn" in outcome.refused["sasl.jaas.config"]
    assert "hidden" not in repr(outcome)
