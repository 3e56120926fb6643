"""The keys of the Kafka cluster: a connector's connections. They override worker.properties."""

from collections.abc import Mapping
from typing import Literal

from pydantic import Field, SecretStr

from kafka_s3_platform.config.keys import values
from kafka_s3_platform.config.keys.clients.properties import Scope
from kafka_s3_platform.config.keys.clients.translate import select_security, translate_properties
from kafka_s3_platform.config.keys.limits import BATCH_BYTES
from kafka_s3_platform.config.keys.sheet import Sheet
from kafka_s3_platform.config.keys.table import Key, Settings, declare_honoured, declare_key
from kafka_s3_platform.config.worker import Worker

ENDPOINT = declare_key(
    "kafka.endpoint",
    values.parse_bootstrap_servers,
    "Confluent Cloud's bootstrap servers. They replace those of worker.properties.",
    default="",
)

KAFKA_KEYS: tuple[Key, ...] = (
    declare_honoured(
        "kafka.api.key",
        None,
        "Confluent Cloud's API key. With it, the cluster is read over SASL_SSL with mechanism PLAIN.",
    ),
    declare_honoured("kafka.api.secret", None, "Secret of `kafka.api.key`."),
    ENDPOINT,
    declare_honoured(
        "consumer.override.*", None, "A consumer property of this connector. Overrides `consumer.*` of the worker."
    ),
    declare_honoured(
        "producer.override.*", None, "A producer property of this connector. Overrides `producer.*` of the worker."
    ),
    declare_honoured(
        "admin.override.*", None, "An admin client property of this connector. Overrides `admin.*` of the worker."
    ),
)


class KafkaSettings(Settings):
    """A cluster: librdkafka properties by kind of client. Any value may be secret.

    `batch_bytes` is how large a compressed record batch of its log may become.
    """

    bootstrap_servers: str
    batch_bytes: int = BATCH_BYTES.field
    common: Mapping[str, SecretStr] = Field(default_factory=dict)
    consumer: Mapping[str, SecretStr] = Field(default_factory=dict)
    producer: Mapping[str, SecretStr] = Field(default_factory=dict)
    admin: Mapping[str, SecretStr] = Field(default_factory=dict)

    def properties(self, client: Literal["admin", "consumer", "producer"]) -> dict[str, str]:
        """Return the librdkafka properties for one kind of client as plain text. Never log them."""
        of_client = {"admin": self.admin, "consumer": self.consumer, "producer": self.producer}[client]
        secret = {**self.common, **of_client}
        return {"bootstrap.servers": self.bootstrap_servers} | {k: v.get_secret_value() for k, v in secret.items()}


def find_cluster(worker: Worker) -> KafkaSettings:
    """Return the cluster of worker.properties alone. Admin clients connect like consumers."""
    properties = worker.properties
    return KafkaSettings(
        bootstrap_servers=worker.bootstrap_servers,
        common=properties["common"],
        consumer=properties["consumer"],
        producer=properties["producer"],
        admin={**select_security(properties["consumer"]), **properties["admin"]},
    )


def read_kafka(sheet: Sheet, worker: Worker) -> KafkaSettings:
    """Return the cluster of worker.properties, with the overrides of the connector file."""
    servers = sheet.value(ENDPOINT) or worker.bootstrap_servers
    if not servers and not sheet.is_refused("kafka.endpoint"):
        there = "" if worker.exists else ", which does not exist"
        sheet.refuse("bootstrap.servers", f"required: name the cluster's brokers in {worker.path}{there}")
    api_key = _read_api_key(sheet)
    base = {scope: _drop_login(texts) if api_key else texts for scope, texts in worker.properties.items()}
    consumer = {**base["consumer"], **_read_override(sheet, "consumer")}
    producer = {**base["producer"], **_read_override(sheet, "producer")}
    # In Connect, consumers look up offsets. Here the admin client does, so it connects like consumers.
    admin = {**select_security(consumer), **base["admin"], **_read_override(sheet, "admin")}
    common = {**base["common"], **api_key}
    return KafkaSettings(
        bootstrap_servers=servers,
        batch_bytes=sheet.value(BATCH_BYTES),
        common=common,
        consumer=consumer,
        producer=producer,
        admin=admin,
    )


def _read_override(sheet: Sheet, scope: Scope) -> dict[str, SecretStr]:
    prefix = f"{scope}.override."
    outcome = translate_properties(sheet.under(prefix), scope)
    sheet.take(prefix, outcome)
    return {name: SecretStr(value) for name, value in outcome.properties.items()}


def _read_api_key(sheet: Sheet) -> dict[str, SecretStr]:
    sheet.require_both("kafka.api.key", "kafka.api.secret")
    if "kafka.api.key" not in sheet:
        return {}
    login = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": sheet.text("kafka.api.key"),
        "sasl.password": sheet.text("kafka.api.secret"),
    }
    return {name: SecretStr(value) for name, value in login.items()}


def _drop_login(properties: Mapping[str, SecretStr]) -> dict[str, SecretStr]:
    """Return the properties without login and security protocol: an API key replaces both."""
    return {name: value for name, value in properties.items() if not name.startswith(("sasl.", "security."))}
