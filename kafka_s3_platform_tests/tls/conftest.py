"""A Kafka, an S3 and a Schema Registry that are reached over TLS."""

import dataclasses
from collections.abc import Iterator

import pytest

from kafka_s3_platform.local import stack as embedded
from kafka_s3_platform.local.broker import Broker
from kafka_s3_platform.local.settings import StackSettings
from kafka_s3_platform_tests.conftest import free_port_settings, free_ports, stopped_at_exit
from kafka_s3_platform_tests.tls.authority import Authority, new_authority, token_endpoint
from kafka_s3_platform_tests.tls.broker import Ports, SecuredKafka, add_scram_users, secured_properties


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return new_authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="session")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """An authority that no server's certificate is of."""
    return new_authority(tmp_path_factory.mktemp("strangers"))


@pytest.fixture(scope="package")
def secured(
    stack_settings: StackSettings, authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SecuredKafka]:
    ports = free_port_settings()
    own = Ports(*free_ports(4))
    properties = secured_properties(ports["kafka_port"], ports["kafka_controller_port"], own, authority)
    settings = dataclasses.replace(
        stack_settings,
        data_dir=tmp_path_factory.mktemp("secured"),
        kafka_properties={**stack_settings.kafka_properties, **properties},
        **ports,
    )
    with stopped_at_exit(settings), token_endpoint() as token_url:
        embedded.start_servers((Broker(settings),))
        add_scram_users(settings.bootstrap_servers)
        yield SecuredKafka(settings.bootstrap_servers, own, token_url, authority)
