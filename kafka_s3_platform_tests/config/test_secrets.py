import pytest
from pydantic import ValidationError

from kafka_s3_platform.connect.config.keys.config_file import is_secret
from kafka_s3_platform.core.config.settings import StoreSettings
from kafka_s3_platform_tests.config.conftest import Check
from kafka_s3_platform_tests.conftest import present

EXAMPLES = "kafka_s3_platform_tests.transforms.example_mappers"


def test_options_of_plug_ins_are_masked_unless_their_class_says_otherwise(check: Check) -> None:
    keys = {
        "value.converter": "StringConverter",
        "format.class": "JsonFormat",
        "transforms": "m,h",
        "transforms.m.type": f"{EXAMPLES}.LevelFilter",
        "transforms.m.level": "DEBUG",
        "transforms.m.vault": "hunter2",
        "transforms.h.type": "InsertHeader",
        "transforms.h.header": "authorization",
        "transforms.h.value.literal": "hunter2",
        "predicates": "p",
        "predicates.p.type": "TopicNameMatches",
        "predicates.p.pattern": "a.*",
    }
    report = check(keys)
    assert "hunter2" not in repr(report)
    assert "hunter2" not in str(present(report.config).model_dump(mode="json"))
    values = {found.key: found.value for found in report.findings}
    assert {name for name in keys if values[name] == "****"} == {"transforms.m.vault", "transforms.h.value.literal"}
    # where it is refused, too
    report = check({**keys, "transforms.h.value.litteral": "hunter2", "transforms.x.vault": "hunter2"})
    assert not report.ok
    assert "hunter2" not in repr(report)


UNKNOWN = (
    "aws.secrt.acces.kye",
    "value.converter.basic.auth.usr.inf",
    "key.converter.schema.registry.basic.auth.usr.inf",
    "schema.registry.basic.auth.usr.inf",
    "consumer.override.sasl.jass.cnofig",
    "producer.override.confluent.x",
    "admin.override.sasl.pasword",
    "confluent.x",
    "header.converter.x",
    "hive.x",
    "csfle.x",
    "transforms.x",
    "predicates.x.y",
    "s3.credentials.provider.x",
)


@pytest.mark.parametrize(
    "more", [{}, {"value.converter": "AvroConverter", "format.class": "AvroFormat"}, {"value.converter": "Mistyped"}]
)
@pytest.mark.parametrize("key", UNKNOWN)
def test_the_value_of_a_key_that_is_not_known_is_masked(check: Check, key: str, more: dict[str, str]) -> None:
    """It may be a secret whose name is mistyped."""
    report = check({key: "hunter2", **more})
    assert "hunter2" not in repr(report)
    assert [found.value for found in report.findings if found.key == key] == ["****"]


@pytest.mark.parametrize(
    "key",
    [
        "sasl.jass.cnofig",
        "consumer.sasl.jass.cnofig",
        "confluent.x",
        "config.providers.vault.param.x",
        "rest.x",
        "value.converter.basic.auth.usr.inf",
        "value.converter.schema.registry.basic.auth.usr.inf",
    ],
)
def test_the_value_of_a_workers_key_that_is_not_known_is_masked(check: Check, key: str) -> None:
    report = check(worker=f"{key}=hunter2\n")
    assert "hunter2" not in repr(report)
    assert [found.value for found in report.worker_findings if found.key == key] == ["****"]


def test_values_of_keys_that_are_known_are_shown(check: Check) -> None:
    shown = {
        "flush.size": "3",
        "consumer.override.fetch.min.bytes": "7",
        "consumer.override.session.timeout.ms": "7",
        "consumer.override.auto.offset.reset": "latest",
        "value.converter.schemas.enable": "false",
        "key.converter.schemas.cache.size": "7",
        "value.converter.schema.registry.url": "http://registry:8081",
        "schema.registry.ssl.ca.location": "/ca.pem",
        "hive.integration": "true",
    }
    for more in (
        {},
        {"value.converter": "AvroConverter", "key.converter": "AvroConverter", "store.kafka.keys": "true"},
    ):
        report = check({**shown, **more}, worker="value.converter.schemas.enable=true\nfetch.min.bytes=7\n")
        values = {found.key: found.value for found in report.findings}
        assert {name: values[name] for name in shown} == shown
        assert "****" not in [found.value for found in report.worker_findings]


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
