import logging

import pytest
from pydantic import ValidationError

from kafka_s3_platform.config.settings import StoreSettings
from kafka_s3_platform.config.sheet import is_secret
from kafka_s3_platform.errors import ConfigError
from kafka_s3_platform_tests.config.conftest import Check, Load

JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="hunter2" password="hunter2";'
SECRETS = {
    "aws.access.key.id": "hunter2",
    "aws.secret.access.key": "${env:SECRET}",
    "kafka.api.key": "hunter2",
    "kafka.api.secret": "hunter2",
    "consumer.override.sasl.jaas.config": JAAS,
    "producer.override.ssl.key.password": "hunter2",
    "admin.override.ssl.key.pem": "hunter2",
    "confluent.license": "hunter2",
    "value.converter.schema.registry.basic.auth.user.info": "me:hunter2",
}


def test_a_configuration_shows_no_secret(load: Load, caplog: pytest.LogCaptureFixture) -> None:
    loaded = load(SECRETS, env={"SECRET": "hunter2"}, worker=f"sasl.jaas.config={JAAS}\n")
    with caplog.at_level(logging.INFO):
        logging.getLogger("kafka_s3_platform").info("%s %r", loaded.config, loaded)
    config = loaded.config
    shown = [repr(config), str(config), str(config.model_dump()), config.model_dump_json(), repr(loaded), caplog.text]
    shown += [str(config.model_dump(mode="json")), repr(config.kafka), str(config.store)]
    assert all("hunter2" not in text for text in shown)
    assert config.kafka.properties("consumer")["sasl.password"] == "hunter2"


def test_a_report_shows_no_secret(check: Check) -> None:
    refused = {
        "s3.sse.customer.key": "hunter2",
        "s3.proxy.url": "http://me:hunter2@proxy",
        "s3.proxy.password": "hunter2",
        "aws.secret.acces.key": "hunter2",
        "store.url": "http://me:hunter2@host",
    }
    report = check({**SECRETS, **refused}, env={"SECRET": "hunter2"}, worker=f"consumer.sasl.jaas.config={JAAS}\n")
    assert "hunter2" not in repr(report)
    assert {found.value for found in report.findings if found.key in SECRETS} == {"****"}


def test_an_error_shows_no_secret(load: Load) -> None:
    bad = {"consumer.override.sasl.jaas.config": "nonsense hunter2", "store.url": "http://me:hunter2@host"}
    with pytest.raises(ConfigError) as caught:
        load({"aws.secret.access.key": "hunter2", "kafka.api.secret": "hunter2", **bad})
    assert "hunter2" not in str(caught.value)


def test_an_error_of_the_settings_shows_no_value() -> None:
    with pytest.raises(ValidationError) as caught:
        StoreSettings.model_validate({"bucket": "b", "secret_access_key": ["hunter2"]})
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        "aws.access.key.id",
        "aws.secret.access.key",
        "kafka.api.key",
        "consumer.override.sasl.jaas.config",
        "s3.credentials.provider.secret_access_key",
        "ssl.keystore.key",
        "ssl.key.pem",
        "ssl.key.password",
        "s3.sse.customer.key",
        "confluent.license",
        "sasl.oauthbearer.client.secret",
        "value.converter.basic.auth.user.info",
        "AWS.SECRET",
        "proxy.pwd",
    ],
)
def test_a_keys_name_tells_that_it_is_secret(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize(
    "name", ["topics", "key.converter", "ssl.key.location", "s3.bucket.name", "path.format", "ssl.keystore.location"]
)
def test_other_names_tell_of_no_secret(name: str) -> None:
    assert not is_secret(name)
