"""A Kafka, an S3 and a Schema Registry that are reached over TLS."""

import dataclasses
from collections.abc import Iterator

import pytest

from kafka_s3_platform.local import stack as embedded
from kafka_s3_platform.local.settings import StackSettings
from kafka_s3_platform_tests.conftest import free_port_settings, free_ports, stopped_at_exit
from kafka_s3_platform_tests.tls.authority import Authority, new_authority
from kafka_s3_platform_tests.tls.broker import SecuredKafka, add_scram_user, secured_properties


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return new_authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="session")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """An authority that no server's certificate is of."""
    return new_authority(tmp_path_factory.mktemp("strangers"))


@pytest.fixture(scope="session")
def secured(
    stack_settings: StackSettings, authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SecuredKafka]:
    ports = free_port_settings()
    mutual, sasl = free_ports(2)
    properties = secured_properties(ports["kafka_port"], ports["kafka_controller_port"], mutual, sasl, authority)
    settings = dataclasses.replace(
        stack_settings,
        data_dir=tmp_path_factory.mktemp("secured"),
        kafka_properties={**stack_settings.kafka_properties, **properties},
        **ports,
    )
    with stopped_at_exit(settings):
        embedded.up(settings)
        add_scram_user(settings.bootstrap_servers)
        yield SecuredKafka(f"127.0.0.1:{mutual}", f"127.0.0.1:{sasl}", authority)
