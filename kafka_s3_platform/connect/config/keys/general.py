"""The keys of every connector: its name, its class, its topics, its number of tasks, and its Kafka cluster.

Its own properties of connections override those in worker.properties.
"""

from collections.abc import Mapping

from pydantic import SecretStr

from kafka_s3_platform.connect.config.dialects import CONNECT, CONNECTOR_CLASS, Dialect
from kafka_s3_platform.connect.config.keys import values
from kafka_s3_platform.connect.config.keys.archive import BATCH_BYTES
from kafka_s3_platform.connect.config.keys.clients import select_security
from kafka_s3_platform.connect.config.keys.config_file import ConfigFile
from kafka_s3_platform.connect.config.keys.table import (
    REQUIRED,
    Key,
    TypedKey,
    declare_honoured,
    declare_key,
    declare_refused,
    declare_setting,
    declare_without_meaning,
)
from kafka_s3_platform.connect.config.worker import NO_LICENCE, Worker, read_scope
from kafka_s3_platform.core.config.settings import ConnectorConfig, KafkaSettings

ENDPOINT = declare_key(
    "kafka.endpoint",
    values.parse_bootstrap_servers,
    "Confluent Cloud's bootstrap servers. They replace those of worker.properties.",
    default="",
)

KAFKA_KEYS: tuple[Key, ...] = (
    declare_honoured(
        "kafka.api.key", "Confluent Cloud's API key. With it, the cluster is read over SASL_SSL with mechanism PLAIN."
    ),
    declare_honoured("kafka.api.secret", "Secret of `kafka.api.key`."),
    ENDPOINT,
    declare_honoured(
        "consumer.override.*", "A consumer property of this connector. Overrides `consumer.*` of the worker."
    ),
    declare_honoured(
        "producer.override.*", "A producer property of this connector. Overrides `producer.*` of the worker."
    ),
    declare_honoured(
        "admin.override.*", "An admin client property of this connector. Overrides `admin.*` of the worker."
    ),
)


def find_cluster(worker: Worker) -> KafkaSettings:
    """Return the cluster as worker.properties alone describes it. Admin clients connect like consumers."""
    properties = worker.properties
    return KafkaSettings(
        bootstrap_servers=worker.bootstrap_servers,
        common=properties["common"],
        consumer=properties["consumer"],
        producer=properties["producer"],
        admin={**select_security(properties["consumer"]), **properties["admin"]},
    )


def read_kafka(file: ConfigFile, worker: Worker) -> KafkaSettings:
    """Return the cluster of worker.properties, with the overrides of the connector file."""
    servers = file.value(ENDPOINT) or worker.bootstrap_servers
    if not servers and not file.is_refused("kafka.endpoint"):
        there = "" if worker.exists else ", which does not exist"
        file.refuse("bootstrap.servers", f"required: name the cluster's brokers in {worker.path}{there}")
    api_key = _read_api_key(file)
    base = {scope: _drop_login(texts) if api_key else texts for scope, texts in worker.properties.items()}
    consumer = {**base["consumer"], **read_scope(file, "consumer", "consumer.override.")}
    producer = {**base["producer"], **read_scope(file, "producer", "producer.override.")}
    # In Connect, consumers look up offsets. Here the admin client does, so it connects like consumers.
    admin = {**select_security(consumer), **base["admin"], **read_scope(file, "admin", "admin.override.")}
    common = {**base["common"], **api_key}
    return KafkaSettings(
        bootstrap_servers=servers,
        batch_bytes=file.value(BATCH_BYTES),
        common=common,
        consumer=consumer,
        producer=producer,
        admin=admin,
    )


def _read_api_key(file: ConfigFile) -> dict[str, SecretStr]:
    """Return the login with Confluent Cloud's API key, or an empty one if the file has no such key."""
    file.require_both("kafka.api.key", "kafka.api.secret")
    if "kafka.api.key" not in file:
        return {}
    login = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": file.text("kafka.api.key"),
        "sasl.password": file.text("kafka.api.secret"),
    }
    return {name: SecretStr(value) for name, value in login.items()}


def _drop_login(properties: Mapping[str, SecretStr]) -> dict[str, SecretStr]:
    """Return the properties without the login and the security protocol, because an API key replaces both."""
    return {name: value for name, value in properties.items() if not name.startswith(("sasl.", "security."))}


CLASS = declare_key(
    "connector.class",
    CONNECTOR_CLASS,
    "The connector that the file was written for: Confluent's, DeviantArt's or Aiven's S3 sink, or Confluent's or"
    " Aiven's S3 source, by full or short name; Lenses' S3 sink or source, by full name; Confluent Cloud's"
    " `S3_SINK` or `S3_SOURCE`; or this platform's own `S3Archive`. `kafka-s3 describe CLASS` lists its keys.",
    default=CONNECT,
    shown=CONNECT.short_name,
)
TASKS_MAX = declare_setting(
    ConnectorConfig,
    "tasks_max",
    "tasks.max",
    values.expect_integer(1, 100_000),
    "How many Spark tasks one run executes at the same time, at most. Changes nothing else.",
)
TOPICS: TypedKey[tuple[str, ...]] = declare_key(
    "topics",
    values.parse_topics,
    "Topics to archive, or to restore, separated by commas.",
    default=(),
    shown="required, or `topics.regex`; a source's: every topic found",
)
TOPICS_REGEX = declare_key(
    "topics.regex",
    values.parse_java_regex,
    "Archive every topic whose whole name matches this pattern. Replaces `topics`.",
    default=None,
)
SOURCE_TOPIC: TypedKey[tuple[str, ...]] = declare_key(
    "topic",
    values.parse_topics,
    "Aiven's key for the topic of all objects, if `file.name.template` names none.",
    default=(),
)

GENERAL_KEYS: tuple[Key, ...] = (
    declare_honoured(
        "name",
        "Name of the connector: letters, digits, `.`, `_`, `-`. It is part of asset keys and of the index.",
        REQUIRED,
    ),
    CLASS,
    TASKS_MAX,
    TOPICS,
    TOPICS_REGEX,
    *KAFKA_KEYS,
    *declare_without_meaning(
        "Belongs to Connect's own runtime.",
        """tasks.max.enforce config.action.reload connector.plugin.version max.write.duration.ms retry.backoff.ms
        shutdown.timeout.ms auto.restart.on.user.error""",
    ),
    *declare_without_meaning(
        "Tasks read ranges of offsets that they are given: there is no consumer group to keep alive.",
        "max.poll.interval.ms max.poll.records",
    ),
    *declare_without_meaning(NO_LICENCE, "confluent.*"),
    *declare_without_meaning(
        "Says where Confluent Cloud runs the connector.",
        "kafka.region kafka.dedicated kafka.service.account.id cloud.environment cloud.provider",
    ),
    declare_refused(
        "kafka.auth.mode",
        "service accounts exist in Confluent Cloud only; use `kafka.api.key` and `kafka.api.secret`",
        "KAFKA_API_KEY",
    ),
)


def read_topics(file: ConfigFile, dialect: Dialect) -> tuple[tuple[str, ...], str | None]:
    """Read the topics, or the pattern of their names. As in Connect, a sink needs one of the two, a source neither."""
    if TOPICS.name in file and TOPICS_REGEX.name in file:
        file.refuse(TOPICS_REGEX.name, "topics names the topics; keep one")
    elif TOPICS_REGEX.name not in file and not dialect.is_source:
        file.require(TOPICS.name, "name the topics to archive, or set topics.regex")
    named = file.value(TOPICS)
    if dialect.is_source and not named:
        named = file.value(SOURCE_TOPIC)
    return named, file.value(TOPICS_REGEX)
