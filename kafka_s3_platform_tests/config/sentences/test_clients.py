"""What is said of the properties of Kafka's clients and of the worker's keys."""

from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer

from kafka_s3_platform.connect.config.keys.clients import CLIENT_PROPERTIES, WITHOUT_MEANING_PROPERTIES
from kafka_s3_platform.connect.config.keys.table import Support
from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform_tests.config.conftest import Load, sample_value
from kafka_s3_platform_tests.config.sentences.files import file_of, resolve, without_meaning

OF_JAVA = ("Belongs to the Java client.", "OpenSSL does this by its own rules.", "Keys and values are read")
JAVAS = [key.name.replace("*", "x") for key in WITHOUT_MEANING_PROPERTIES if key.doc.startswith(OF_JAVA)]


@pytest.mark.parametrize("name", JAVAS)
def test_librdkafka_has_no_such_property(name: str) -> None:
    for client in (Consumer, Producer):
        with pytest.raises(KafkaException, match="No such configuration property"):
            client({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", name: "1"})


@pytest.mark.parametrize("policy", ["None", "Principal", "All"])
def test_a_connector_overrides_any_honoured_property_whatever_the_policy(load: Load, policy: str) -> None:
    scopes = [(scope, key) for key in CLIENT_PROPERTIES for scope in key.scopes if scope != "common"]
    for scope, key in scopes:
        name = f"{scope}.override.{key.name}"
        found = load({name: sample_value(key)}, worker=f"connector.client.config.override.policy={policy}\n")
        (judged,) = [finding for finding in found.findings if finding.key == name]
        assert judged.support is Support.HONOURED


def test_no_java_plugin_is_loaded_though_a_path_of_plugins_is_there(load: Load, tmp_path: Path) -> None:
    (tmp_path / "plugins").mkdir()
    with pytest.raises(ConfigError, match="Java classes cannot run here"):
        load({"format.class": "com.example.Own"}, worker=f"plugin.path={tmp_path / 'plugins'}\n")


def test_no_licence_is_needed_and_one_that_is_there_changes_nothing(load: Load) -> None:
    licence = {"confluent.license": "x", "confluent.topic.bootstrap.servers": "b:1"}
    assert load(licence, worker="confluent.license=y\n").config == load(worker="").config


def test_tables_of_hive_are_refused_so_their_settings_mean_nothing() -> None:
    names = {"hive.metastore.uris": "thrift://m:1", "hive.home": "/opt/hive"}
    assert resolve({**file_of("json"), "hive.integration": "true"}).config is None
    assert without_meaning(resolve({**file_of("json"), **names})).keys() >= names.keys()


def test_access_keys_are_used_where_they_are_set_whatever_lenses_calls_the_mode() -> None:
    keys = {"connect.s3.aws.access.key": "a", "connect.s3.aws.secret.key": "s"}
    for mode in ("Credentials", "Default"):
        named, bare = (resolve({**file_of("lenses"), "connect.s3.aws.auth.mode": mode, **k}).config for k in (keys, {}))
        assert named is not None
        assert bare is not None
        assert named.store.access_key_id is not None
        assert (bare.store.access_key_id, bare.store.provider) == (None, None)


@pytest.mark.parametrize(("value", "loads"), [("true", False), ("false", True)])
def test_a_letter_for_an_ignored_null_is_refused_and_no_other_null_is_left_out(value: str, loads: bool) -> None:
    letters = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "dlq"}
    ignoring = {**file_of("json"), **letters, "behavior.on.null.values": "ignore", "report.null.values.to.dlq": value}
    assert (resolve(ignoring).config is not None) is loads
    failing = {**ignoring, "behavior.on.null.values": "fail"}
    assert "report.null.values.to.dlq" in without_meaning(resolve(failing))


@pytest.mark.parametrize(
    ("protocols", "loads"), [("TLSv1.2", True), ("TLSv1.3,TLSv1.2", True), ("TLSv1.3", False), ("TLSv1.1", False)]
)
def test_protocols_that_openssl_cannot_be_held_to_are_refused(protocols: str, loads: bool) -> None:
    found = resolve({**file_of("envelope"), "consumer.override.ssl.enabled.protocols": protocols})
    assert (found.config is not None) is loads
