"""A worker file and a connector file as they are written for secured clusters: archived, and restored exactly once."""

import json
from collections.abc import Iterator
from pathlib import Path

import javaproperties
import pytest
from click.testing import CliRunner

from kafka_s3_platform.cli import main
from kafka_s3_platform.connect.config.files import load_connector
from kafka_s3_platform.core.config.settings import RegistrySettings
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.operate.local.settings import REGISTRY_PATH, StackSettings
from kafka_s3_platform_tests.archive.values import framed
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.kafka.topics import values
from kafka_s3_platform_tests.restore.own import restored
from kafka_s3_platform_tests.store.http_proxy import running
from kafka_s3_platform_tests.store.servers import PlainStore
from kafka_s3_platform_tests.support import Sent, archived, produce, snapshot
from kafka_s3_platform_tests.tls.authority import tls_before
from kafka_s3_platform_tests.tls.broker import PASSWORD, USER, SecuredKafka, java_quoted

PERSON = {"type": "record", "name": "Person", "fields": [{"name": "name", "type": "string"}]}

WORKER = """\
bootstrap.servers={servers}
security.protocol=SASL_SSL
sasl.mechanism=SCRAM-SHA-512
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username="{user}" password={password};
ssl.truststore.type=PEM
ssl.truststore.location={ca}
ssl.endpoint.identification.algorithm=https
client.dns.lookup=use_all_dns_ips
"""

CONNECTOR = """\
name=people
connector.class=io.confluent.connect.s3.S3SinkConnector
topics={topic}
s3.bucket.name={bucket}
s3.region=us-east-1
store.url=https://127.0.0.1:{s3}
aws.access.key.id={access_key}
aws.secret.access.key={secret_key}
value.converter=io.confluent.connect.avro.AvroConverter
value.converter.schema.registry.url=https://127.0.0.1:{registry}{path}
value.converter.schema.registry.ssl.truststore.type=PEM
value.converter.schema.registry.ssl.truststore.location={ca}
archive.start.hour=2025-12-01T00:00
"""


@pytest.fixture
def connector_file(
    secured: SecuredKafka, registry: RegistrySettings, stack_settings: StackSettings, lab: Lab, tmp_path: Path
) -> Iterator[Path]:
    """`worker.properties` beside a connector file; S3 and the registry answer over TLS while it is there.

    S3 takes bodies only whole.
    """
    identity, ca = secured.authority.server, secured.authority.ca
    with (
        running(PlainStore(stack_settings.s3_endpoint)) as plain,
        tls_before(plain.server_port, identity) as s3,
        tls_before(stack_settings.registry_port, identity) as asked,
    ):
        worker = WORKER.format(
            servers=secured.users, user=USER, password=javaproperties.escape(java_quoted(PASSWORD)), ca=ca
        )
        (tmp_path / "worker.properties").write_text(worker)
        assert registry.url.endswith(REGISTRY_PATH)
        text = CONNECTOR.format(
            topic=lab.topic,
            bucket=lab.store.bucket,
            s3=s3,
            access_key=stack_settings.aws_access_key_id,
            secret_key=stack_settings.aws_secret_access_key,
            registry=asked,
            path=REGISTRY_PATH,
            ca=ca,
        )
        (tmp_path / "people.properties").write_text(text)
        yield tmp_path / "people.properties"


def test_what_is_archived_from_a_secured_cluster_comes_back_exactly_once(
    connector_file: Path,
    secured: SecuredKafka,
    registry: RegistrySettings,
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with ClusterAdmin(secured.by_certificate()) as admin:
        admin.create_topic(topic_name, 1)
    sent = framed(registry, topic_name, PERSON, [{"name": "ada"}, {"name": "grace"}])
    produce(secured.by_certificate(), topic_name, map(Sent, sent))
    monkeypatch.setenv("AWS_CA_BUNDLE", str(secured.authority.ca))
    monkeypatch.setenv("SSL_CERT_FILE", str(secured.authority.ca))

    config = load_connector(connector_file, connector_file.parent / "worker.properties", {})
    archived(config)
    report = restored(config)

    assert [schema.schema_text for schema in snapshot(config).state.schemas] == [json.dumps(PERSON)]
    assert report.verified
    assert values(config.kafka, f"{topic_name}-restored") == sent


def test_each_of_them_is_tried_with_what_the_file_says(
    connector_file: Path, secured: SecuredKafka, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ClusterAdmin(secured.by_certificate()) as admin:
        admin.create_topic(topic_name, 1)
    monkeypatch.setenv("AWS_CA_BUNDLE", str(secured.authority.ca))
    monkeypatch.setenv("SSL_CERT_FILE", str(secured.authority.ca))
    assert set(try_file(connector_file).values()) == {"ok", "not tried"}

    worker = connector_file.parent / "worker.properties"
    worker.write_text(worker.read_text().replace(f'username="{USER}"', 'username="nobody"'))
    found = try_file(connector_file)
    assert {what for what, judgement in found.items() if judgement == "wrong"} == {"broker"}
    assert found["Schema Registry of values"] == found["bucket"] == "ok"


def try_file(path: Path) -> dict[str, str]:
    """What was tried -> how it is."""
    done = CliRunner().invoke(main, ["check", str(path), "--connect", "--json"])
    return {each["what"]: each["judgement"] for each in json.loads(done.stdout)["tried"]}
