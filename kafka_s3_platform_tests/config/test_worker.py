from pathlib import Path

import pytest

from kafka_s3_platform.connect.config.files import load_connector, read_worker
from kafka_s3_platform.connect.config.keys.table import Support
from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform_tests.config.conftest import Load, finding, write

DISTRIBUTED = """\
bootstrap.servers=a:9092,b:9092
group.id=connect-cluster
key.converter=org.apache.kafka.connect.json.JsonConverter
value.converter=org.apache.kafka.connect.json.JsonConverter
key.converter.schemas.enable=true
value.converter.schemas.enable=true
internal.key.converter=org.apache.kafka.connect.json.JsonConverter
offset.storage.topic=connect-offsets
offset.storage.replication.factor=1
config.storage.topic=connect-configs
status.storage.topic=connect-status
offset.storage.file.filename=/tmp/connect.offsets
offset.flush.interval.ms=10000
rest.port=8083
rest.advertised.host.name=worker
listeners=HTTP://:8083
access.control.allow.methods=
plugin.path=/usr/share/java,/usr/share/confluent-hub-components
config.providers=env
config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider
consumer.interceptor.classes=io.confluent.monitoring.clients.interceptor.MonitoringConsumerInterceptor
"""


def test_a_worker_file_taken_from_connect_loads(tmp_path: Path) -> None:
    path = tmp_path / "worker.properties"
    path.write_text(DISTRIBUTED)
    worker = read_worker(path, {})
    assert worker.bootstrap_servers == "a:9092,b:9092"
    assert not any(worker.properties.values())
    honoured = {found.key for found in worker.findings if found.support is Support.HONOURED}
    converters = {f"{side}.converter{option}" for side in ("key", "value") for option in ("", ".schemas.enable")}
    assert honoured == {"bootstrap.servers", "config.providers", "config.providers.env.class", *converters}


def test_the_workers_security_holds_for_every_client(load: Load) -> None:
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="${env:PW}";'
    worker = f"security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.jaas.config={jaas}\n"
    kafka = load(worker=worker, env={"PW": "s3cret"}).config.kafka
    expected = {
        "bootstrap.servers": "broker:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "u",
        "sasl.password": "s3cret",
    }
    assert [kafka.properties(client) for client in ("admin", "consumer", "producer")] == [expected] * 3


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("consumer.group.id=x", r"consumer\.group\.id: offsets are kept in the index"),
        ("bootstrap.server=x:1", r"line 2: unknown key; did you mean bootstrap\.servers\?"),
        ("fetch.min.bytes=1", r"fetch\.min\.bytes: is a property of the consumer only, which is its prefix"),
        ("ssl.truststore.location=trust.jks", r"ssl\.truststore\.location: .*trust\.jks cannot be read"),
        ("ssl.ca.location=${env:CA}", r"ssl\.ca\.location: the environment variable 'CA' is not set"),
        ("topics=a", "line 2: unknown key"),
    ],
)
def test_a_refused_key_of_the_worker_names_the_workers_file(load: Load, line: str, message: str) -> None:
    with pytest.raises(ConfigError, match=rf"worker\.properties: 1 key refused:\n  {message}"):
        load(worker=line)


def test_a_connector_without_a_cluster_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, {})
    with pytest.raises(ConfigError, match=r"bootstrap\.servers: required: .*worker\.properties, which does not exist"):
        load_connector(path, tmp_path / "worker.properties", {})


def test_a_cloud_connector_names_its_own_cluster(tmp_path: Path) -> None:
    keys = {"kafka.endpoint": "SASL_SSL://b:9092", "kafka.api.key": "k", "kafka.api.secret": "s"}
    config = load_connector(write(tmp_path, keys), tmp_path / "worker.properties", {})
    assert config.kafka.bootstrap_servers == "b:9092"


def test_the_workers_findings_are_by_key(tmp_path: Path) -> None:
    path = tmp_path / "worker.properties"
    path.write_text("bootstrap.servers=a:1\nconsumer.fetch.min.bytes=1\nclient.id=me\n")
    findings = read_worker(path, {}).findings
    assert [(found.key, found.support) for found in findings] == [
        ("bootstrap.servers", Support.HONOURED),
        ("consumer.fetch.min.bytes", Support.HONOURED),
        ("client.id", Support.HONOURED),
    ]
    assert finding(findings, "client.id").effect == "Passed to librdkafka."
