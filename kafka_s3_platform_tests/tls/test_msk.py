"""Logins by IAM, to a broker that checks the tokens as MSK's do."""

import time
import uuid
from collections.abc import Iterator

import pyarrow as pa
import pytest
from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
from confluent_kafka import Producer
from moto.server import ThreadedMotoServer

from kafka_s3_platform.core import aws_login
from kafka_s3_platform.core.config.settings import KafkaSettings
from kafka_s3_platform.core.errors import AuthorizationError
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.kafka.client import Reasons, open_client
from kafka_s3_platform.core.kafka.confluent_reader import ConfluentReader
from kafka_s3_platform.core.kafka.fetch.fetch_reader import FetchReader
from kafka_s3_platform.core.model.offsets import OffsetRange
from kafka_s3_platform.operate.local import stack as embedded
from kafka_s3_platform.operate.local.settings import StackSettings
from kafka_s3_platform_tests.conftest import free_port_settings, free_ports, own_stack
from kafka_s3_platform_tests.kafka.topics import handed_over
from kafka_s3_platform_tests.restore.own import numbered
from kafka_s3_platform_tests.support import produce
from kafka_s3_platform_tests.tls.authority import Authority
from kafka_s3_platform_tests.tls.msk import KEY, REGION, SECRET, MskBroker, MskKafka, msk_properties

OAUTHBEARER = {
    "sasl_mechanism": "OAUTHBEARER",
    "sasl_jaas_config": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;",
    "sasl_login_callback_handler_class": "software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler",
}


@pytest.fixture(scope="module")
def msk(stack_settings: StackSettings, authority: Authority) -> Iterator[MskKafka]:
    ports = free_port_settings()
    [port] = free_ports(1)
    properties = msk_properties(ports["kafka_port"], ports["kafka_controller_port"], port, authority)
    properties = {**stack_settings.kafka_properties, **properties}
    with own_stack(stack_settings, kafka_properties=properties, **ports) as settings:
        embedded.start_servers((MskBroker(settings),))
        yield MskKafka(settings.bootstrap_servers, f"127.0.0.1:{port}", authority)


@pytest.fixture(autouse=True)
def _of_the_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    """The credentials of the process that connects."""
    aws_login._open_credentials.cache_clear()  # noqa: SLF001
    variables = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": REGION}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="module")
def topic(msk: MskKafka) -> str:
    name = f"topic-{uuid.uuid4().hex[:12]}"
    plain = KafkaSettings(bootstrap_servers=msk.plain)
    with ClusterAdmin(plain) as admin:
        admin.create_topic(name, 1)
    produce(plain, name, numbered(20))
    return name


@pytest.mark.parametrize("ways", [{}, OAUTHBEARER], ids=["AWS_MSK_IAM", "OAUTHBEARER"])
def test_every_client_logs_in_as_files_of_java_say(
    msk: MskKafka, topic: str, ways: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    settings = msk.settings(**ways)
    with ClusterAdmin(settings) as admin:
        assert admin.describe_topic(topic) is not None
    assert topic in open_client(Producer, settings, Reasons(), {}, {}).list_topics(topic, timeout=20).topics
    with caplog.at_level("INFO"), FetchReader(settings, topic) as reader:
        table = pa.Table.from_batches(list(reader.read(0, OffsetRange(0, 20))))
    assert (table.num_rows, handed_over(caplog)) == (20, False)
    with ConfluentReader(settings, topic) as reader:
        assert pa.Table.from_batches(list(reader.read(0, OffsetRange(0, 20)))).equals(table)


def test_a_token_is_renewed_before_it_expires(msk: MskKafka, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker ends a session when its token does."""
    monkeypatch.setattr(MSKAuthTokenProvider, "DEFAULT_TOKEN_EXPIRY_SECONDS", 6)
    signed: list[float] = []
    sign = aws_login.sign_msk_token

    def count(properties: dict[str, str]) -> tuple[str, float]:
        signed.append(time.monotonic())
        return sign(properties)

    monkeypatch.setattr(aws_login, "sign_msk_token", count)
    settings = msk.settings()
    with ClusterAdmin(settings) as admin, ConfluentReader(settings, topic) as reader:
        ends = time.monotonic() + 60
        while len(signed) < 4 and time.monotonic() < ends:
            assert sum(batch.num_rows for batch in reader.read(0, OffsetRange(0, 20))) == 20
            admin.describe_topic(topic)
            time.sleep(0.5)
    assert len(signed) >= 4, "each of the two clients asks for a second one"


@pytest.mark.parametrize(
    ("name", "value"), [("AWS_SECRET_ACCESS_KEY", "another"), ("AWS_REGION", "eu-west-1"), ("AWS_ACCESS_KEY_ID", "x")]
)
def test_a_token_of_another_secret_key_or_region_is_refused_as_a_login(
    msk: MskKafka, topic: str, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(AuthorizationError), ClusterAdmin(msk.settings()) as admin:
        admin.describe_topic(topic)


def test_without_credentials_the_error_says_so(
    msk: MskKafka, topic: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/absent")
    with pytest.raises(AuthorizationError, match="no AWS credentials"), ClusterAdmin(msk.settings()) as admin:
        admin.describe_topic(topic)


def test_a_role_is_assumed_with_its_session_and_external_id(
    msk: MskKafka, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = ThreadedMotoServer("127.0.0.1", 0)
    server.start()
    host, port = server.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", f"http://{host}:{port}")
    options = (
        'awsRoleArn="arn:aws:iam::123456789012:role/kafka" awsRoleSessionName="archive" awsRoleExternalId="id"'
        ' awsStsRegion="eu-central-1"'
    )
    jaas = f"software.amazon.msk.auth.iam.IAMLoginModule required {options};"
    try:
        properties = msk.settings(sasl_jaas_config=jaas).properties("consumer")
        token, expiry = aws_login.sign_msk_token(properties)
    finally:
        server.stop()
    assert time.time() < expiry < time.time() + 901
    assert token
    credentials = aws_login._open_credentials(  # noqa: SLF001
        tuple(properties.get(name) for name in aws_login.MSK_OPTIONS.values())
    )
    assert credentials.get_frozen_credentials().token, "temporary ones"
