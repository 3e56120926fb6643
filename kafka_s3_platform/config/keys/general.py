"""The keys of every connector: its name, its class, its topics and its number of tasks."""

from kafka_s3_platform.config.dialects import CONNECT, CONNECTOR_CLASS, Dialect
from kafka_s3_platform.config.keys import values
from kafka_s3_platform.config.keys.kafka import KAFKA_KEYS
from kafka_s3_platform.config.keys.sheet import Sheet
from kafka_s3_platform.config.keys.table import (
    REQUIRED,
    Key,
    TypedKey,
    declare_honoured,
    declare_key,
    declare_refused,
    declare_without_meaning,
)
from kafka_s3_platform.config.worker import NO_LICENCE
from kafka_s3_platform.java.regex import compile_java_regex


def _parse_topics_regex(text: str) -> str:
    compile_java_regex(text)
    return text


CLASS = declare_key(
    "connector.class",
    CONNECTOR_CLASS,
    "The connector that the file was written for: Confluent's, DeviantArt's or Aiven's S3 sink, or Confluent's or"
    " Aiven's S3 source, by full or short name; Lenses' S3 sink or source, by full name; Confluent Cloud's"
    " `S3_SINK` or `S3_SOURCE`; or this platform's own `S3Archive`. `kafka-s3 describe CLASS` lists its keys.",
    default=CONNECT,
    shown=CONNECT.short_name,
)
TASKS_MAX = declare_key(
    "tasks.max",
    values.expect_integer(1, 100_000),
    "How many Spark tasks one run executes at the same time, at most. Changes nothing else.",
    default=1,
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
    _parse_topics_regex,
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
        REQUIRED,
        "Name of the connector: letters, digits, `.`, `_`, `-`. It is part of asset keys and of the index.",
    ),
    CLASS,
    TASKS_MAX,
    TOPICS,
    TOPICS_REGEX,
    *KAFKA_KEYS,
    *declare_without_meaning(
        "Belongs to Connect's own runtime.",
        "tasks.max.enforce",
        "config.action.reload",
        "connector.plugin.version",
        "max.write.duration.ms",
        "retry.backoff.ms",
        "shutdown.timeout.ms",
        "auto.restart.on.user.error",
    ),
    *declare_without_meaning(
        "Tasks read ranges of offsets that they are given: there is no consumer group to keep alive.",
        "max.poll.interval.ms",
        "max.poll.records",
    ),
    *declare_without_meaning(NO_LICENCE, "confluent.*"),
    *declare_without_meaning(
        "Says where Confluent Cloud runs the connector.",
        "kafka.region",
        "kafka.dedicated",
        "kafka.service.account.id",
        "cloud.environment",
        "cloud.provider",
    ),
    declare_refused(
        "kafka.auth.mode",
        "service accounts exist in Confluent Cloud only; use `kafka.api.key` and `kafka.api.secret`",
        "KAFKA_API_KEY",
    ),
)


def read_topics(sheet: Sheet, dialect: Dialect) -> tuple[tuple[str, ...], str | None]:
    """Read the topics, or the pattern of their names. As in Connect, a sink needs one of them. A source needs none."""
    if TOPICS.name in sheet and TOPICS_REGEX.name in sheet:
        sheet.refuse(TOPICS_REGEX.name, "topics names the topics; keep one")
    elif TOPICS_REGEX.name not in sheet and not dialect.is_source:
        sheet.require(TOPICS.name, "name the topics to archive, or set topics.regex")
    named = sheet.value(TOPICS)
    if dialect.is_source and not named:
        named = sheet.value(SOURCE_TOPIC)
    return named, sheet.value(TOPICS_REGEX)
