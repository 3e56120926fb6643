"""A Kafka, an S3 and a Schema Registry that are reached over TLS."""

from collections.abc import Iterator

import pytest

from kafka_s3_platform.operate.local import stack as embedded
from kafka_s3_platform.operate.local.broker import Broker
from kafka_s3_platform.operate.local.settings import StackSettings
from kafka_s3_platform_tests.conftest import free_port_settings, free_ports, own_stack
from kafka_s3_platform_tests.store.http_proxy import running
from kafka_s3_platform_tests.tls.authority import Authority, TokenEndpoint, new_authority
from kafka_s3_platform_tests.tls.broker import Ports, SecuredKafka, add_scram_users, secured_properties


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return new_authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="session")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """An authority that no server's certificate is of."""
    return new_authority(tmp_path_factory.mktemp("strangers"))


@pytest.fixture(scope="package")
def secured(stack_settings: StackSettings, authority: Authority) -> Iterator[SecuredKafka]:
    ports = free_port_settings()
    own = Ports(*free_ports(4))
    properties = secured_properties(ports["kafka_port"], ports["kafka_controller_port"], own, authority)
    properties = {**stack_settings.kafka_properties, **properties}
    with (
        own_stack(stack_settings, kafka_properties=properties, **ports) as settings,
        running(TokenEndpoint()) as tokens,
    ):
        embedded.start_servers((Broker(settings),))
        add_scram_users(settings.bootstrap_servers)
        yield SecuredKafka(settings.bootstrap_servers, own, f"{tokens.endpoint}/token", authority)
