"""A Schema Registry over TLS. Schemas that it gives are in test_connector.py."""

from pathlib import Path

import pytest
from pydantic import SecretStr

from kafka_s3_platform.connect.config.keys.converters import read_converter
from kafka_s3_platform.connect.converters.registry import open_registry
from kafka_s3_platform.core.config.settings import RegistrySettings
from kafka_s3_platform.core.errors import ConfigError, RegistryUnavailableError
from kafka_s3_platform.operate.local.settings import REGISTRY_PATH, StackSettings
from kafka_s3_platform_tests.tls.authority import Authority, tls_before
from kafka_s3_platform_tests.tls.stores import PASSWORD, make_keystore, make_truststore

ONCE = {"max.retries": SecretStr("0")}


def test_a_certificate_of_an_authority_that_was_not_named_is_refused(
    registry: RegistrySettings, stack_settings: StackSettings, authority: Authority
) -> None:
    with tls_before(stack_settings.registry_port, authority.server) as port:
        url = f"https://127.0.0.1:{port}{REGISTRY_PATH}"
        secured = registry.model_copy(update={"url": url, "properties": ONCE})
        with pytest.raises(ConfigError, match=r"certificate verify failed.*Have schema\.registry\.ssl\.ca\.location"):
            open_registry(secured).archived(1)


@pytest.mark.parametrize("is_trusted", [True, False])
def test_a_truststore_and_a_keystore_of_java_are_used(
    registry: RegistrySettings,
    stack_settings: StackSettings,
    authority: Authority,
    strangers: Authority,
    tmp_path: Path,
    is_trusted: bool,
) -> None:
    trust = make_truststore((authority if is_trusted else strangers).ca, tmp_path / "trust", "JKS")
    keys = make_keystore(authority.client.both, tmp_path / "keys", "PKCS12")
    with tls_before(stack_settings.registry_port, authority.server) as port:
        options = {
            "schema.registry.url": f"https://127.0.0.1:{port}{REGISTRY_PATH}",
            "schema.registry.ssl.truststore.location": str(trust),
            "schema.registry.ssl.truststore.password": PASSWORD,
            "schema.registry.ssl.keystore.location": str(keys),
            "schema.registry.ssl.keystore.password": PASSWORD,
        }
        settings, outcome = read_converter("AVRO", options, schemas_enable=False)
        assert outcome.refused == {}
        assert settings.registry is not None
        properties = {**settings.registry.properties, **ONCE}
        secured = settings.registry.model_copy(update={"properties": properties})
        if is_trusted:
            open_registry(secured).list_subjects()
        else:
            with pytest.raises(ConfigError, match="certificate verify failed"):
                open_registry(secured).list_subjects()


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
