"""A Schema Registry over TLS. Schemas that it gives are in test_connector.py."""

import pytest
from pydantic import SecretStr

from kafka_s3_platform.connect.converters.registry import open_registry
from kafka_s3_platform.core.config.settings import RegistrySettings
from kafka_s3_platform.core.errors import ConfigError, RegistryUnavailableError
from kafka_s3_platform.operate.local.settings import REGISTRY_PATH, StackSettings
from kafka_s3_platform_tests.tls.authority import Authority, tls_before

ONCE = {"max.retries": SecretStr("0")}


def test_a_certificate_of_an_authority_that_was_not_named_is_refused(
    registry: RegistrySettings, stack_settings: StackSettings, authority: Authority
) -> None:
    with tls_before(stack_settings.registry_port, authority.server) as port:
        url = f"https://127.0.0.1:{port}{REGISTRY_PATH}"
        secured = registry.model_copy(update={"url": url, "properties": ONCE})
        with pytest.raises(ConfigError, match=r"certificate verify failed.*Have schema\.registry\.ssl\.ca\.location"):
            open_registry(secured).archived(1)


def test_a_port_that_speaks_tls_or_not_is_told_with_the_urls_scheme(
    registry: RegistrySettings, stack_settings: StackSettings, authority: Authority
) -> None:
    with tls_before(stack_settings.registry_port, authority.server) as port:
        for url, kind, advice in (
            (registry.url.replace("http:", "https:"), ConfigError, "does not speak TLS.*http://"),
            (f"http://127.0.0.1:{port}{REGISTRY_PATH}", RegistryUnavailableError, "https://.*if that port speaks TLS"),
        ):
            with pytest.raises(kind, match=advice):
                open_registry(registry.model_copy(update={"url": url, "properties": ONCE})).archived(1)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("expired", "expired.*Have the server's certificate renewed"),
        ("elsewhere", "mismatch.*Call the server in schema.registry.url by a name that its certificate holds"),
    ],
)
def test_a_certificate_that_is_out_of_date_or_another_server_s_is_told_as_that(
    registry: RegistrySettings, stack_settings: StackSettings, authority: Authority, name: str, said: str
) -> None:
    with tls_before(stack_settings.registry_port, getattr(authority, name)) as port:
        properties = {**ONCE, "ssl.ca.location": SecretStr(str(authority.ca))}
        url = f"https://127.0.0.1:{port}{REGISTRY_PATH}"
        with pytest.raises(ConfigError, match=said):
            open_registry(registry.model_copy(update={"url": url, "properties": properties})).archived(1)
