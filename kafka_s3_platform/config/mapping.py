"""A connector file and the worker's settings as one `ConnectorConfig`."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from pydantic import SecretStr

from kafka_s3_platform.config import values
from kafka_s3_platform.config.clients import Scope, client_properties, security_of
from kafka_s3_platform.config.dialects import CONNECT, CONNECTOR_CLASS, Dialect, read_as
from kafka_s3_platform.config.java_regex import compile_java_regex
from kafka_s3_platform.config.keys import CONNECTOR_KEYS
from kafka_s3_platform.config.lenses import KCQL, expanded
from kafka_s3_platform.config.limit_keys import read_batch_bytes
from kafka_s3_platform.config.mapping_layout import layout_settings
from kafka_s3_platform.config.mapping_records import record_settings
from kafka_s3_platform.config.mapping_source import needs_a_topic, source_settings
from kafka_s3_platform.config.parse import ConnectorFile
from kafka_s3_platform.config.settings import (
    ArchiveSettings,
    ConnectorConfig,
    KafkaSettings,
    LayoutSettings,
)
from kafka_s3_platform.config.sheet import Finding, KeyClass, Sheet, substitute
from kafka_s3_platform.config.store_keys import store_settings
from kafka_s3_platform.config.worker import Worker


@dataclass(frozen=True)
class Resolution:
    """What a connector file comes to. `config` is None where any key is refused."""

    name: str
    findings: tuple[Finding, ...]
    config: ConnectorConfig | None


def resolve(file: ConnectorFile, worker: Worker, env: Mapping[str, str]) -> Resolution:
    """Judges every key of a connector file; raises nothing for what it refuses."""
    words = expanded(file.entries, env)
    sheet = Sheet(CONNECTOR_KEYS, words.entries, env)
    for reason in words.refusals:
        sheet.refuse(KCQL, reason)
    name = _name(sheet, file, env)
    dialect = read_as(sheet.read("connector.class", CONNECTOR_CLASS, CONNECT), file.entries)
    if not words.refusals:
        sheet.require("s3.bucket.name", "name the bucket")
    topics, regex = _topics(sheet, dialect)
    tasks_max = sheet.read("tasks.max", values.integer(1, 100_000), 1)
    kafka, store, layout = _kafka(sheet, worker), store_settings(sheet), layout_settings(sheet, dialect)
    source = source_settings(sheet, dialect, layout, worker)
    records = record_settings(sheet, worker, layout, is_source=dialect.is_source)
    _one_topic(sheet, layout, topics, regex)
    if source is not None and needs_a_topic(sheet, layout) and len(topics) != 1:
        sheet.refuse("topics", "no key tells its topic: name the one that all objects are of")
    archive = _archive(sheet, layout)
    findings = tuple(sheet.findings())
    if any(finding.key_class is KeyClass.REFUSED for finding in findings):
        return Resolution(name, findings, None)
    config = ConnectorConfig(
        name=name,
        topics=topics,
        topics_regex=regex,
        tasks_max=tasks_max,
        kafka=kafka,
        store=store,
        layout=layout,
        records=records,
        archive=archive,
        source=source,
    )
    return Resolution(name, findings, config)


def _topics(sheet: Sheet, dialect: Dialect) -> tuple[tuple[str, ...], str | None]:
    """The topics, or the pattern that stands for them: one of the two, as Connect has it. A source needs neither."""
    if "topics" in sheet and "topics.regex" in sheet:
        sheet.refuse("topics.regex", "topics names the topics; keep one")
    elif "topics.regex" not in sheet and not dialect.is_source:
        sheet.require("topics", "name the topics to archive, or set topics.regex")
    named: tuple[str, ...] = sheet.read("topics", values.topic_list, ())
    if dialect.is_source and not named:
        named = sheet.read("topic", values.topic_list, ())
    return named, sheet.read("topics.regex", _regex, None)


def _regex(text: str) -> str:
    compile_java_regex(text)
    return text


def _one_topic(sheet: Sheet, layout: LayoutSettings, topics: tuple[str, ...], regex: str | None) -> None:
    if layout.key_layout == "zooz" and (regex or len(topics) > 1):
        sheet.refuse(
            "topics.regex" if regex else "topics",
            "keys of the layout zooz name no topic: write a file with a folder of its own for each topic",
        )


def _name(sheet: Sheet, file: ConnectorFile, env: Mapping[str, str]) -> str:
    try:
        return values.connector_name(substitute(file.name, env).strip())
    except ValueError as err:
        sheet.refuse("name", str(err))
        return file.name


def _archive(sheet: Sheet, layout: LayoutSettings) -> ArchiveSettings:
    index_dir = sheet.read("archive.index.dir", values.directory, "_index")
    restore_dir = sheet.read("archive.restore.dir", values.directory, "_restore")
    roots = {"topics.dir": layout.topics_dir, "the folder of merged days": layout.daily_dir}
    _keep_apart(sheet, "archive.index.dir", index_dir, roots)
    _keep_apart(sheet, "archive.restore.dir", restore_dir, {**roots, "archive.index.dir": index_dir})
    return ArchiveSettings(
        start_hour=_start_hour(sheet, ZoneInfo(layout.timezone)),
        allowed_lateness_ms=sheet.read("archive.allowed.lateness.ms", values.integer(0), 300_000),
        index_dir=index_dir,
        restore_dir=restore_dir,
        restore_bucket=sheet.read("archive.restore.bucket", values.bucket_name, None),
        task_size=sheet.read("archive.task.size", values.integer(1), 1_000_000),
        daily_segment_bytes=sheet.read("archive.daily.segment.bytes", values.integer(1), 1_073_741_824),
        allow_gaps=sheet.read("archive.allow.gaps", values.boolean, default=False),
        clock_tolerance_ms=sheet.read("archive.clock.tolerance.ms", values.integer(0), 60_000),
        publish_offsets=sheet.read("archive.publish.offsets", values.boolean, default=False),
        consumer_groups=sheet.read("archive.consumer.groups", values.group_list, ()),
        records_per_second=sheet.read("archive.records.per.second", values.rate, None),
        bytes_per_second=sheet.read("archive.bytes.per.second", values.rate, None),
    )


def _start_hour(sheet: Sheet, zone: ZoneInfo) -> datetime:
    start = sheet.read("archive.start.hour", values.hour(zone), datetime(2020, 1, 1, tzinfo=zone))
    if broken := values.broken_hour(zone, start):
        day, change = broken
        minutes = abs(change) // timedelta(minutes=1)
        sheet.refuse(
            "timezone",
            f"in the week before {day} the clocks of {zone.key} change by {minutes} minutes, and hours would have no "
            f"names of their own any more. Take UTC or another timezone, or, where that is past, a later "
            f"archive.start.hour",
        )
    return start


def _keep_apart(sheet: Sheet, name: str, folder: str, others: Mapping[str, str]) -> None:
    for other_name, other in others.items():
        if values.nested(folder, other):
            sheet.refuse(name, f"the folder {folder} and {other_name}, {other}, must not hold each other")


def _kafka(sheet: Sheet, worker: Worker) -> KafkaSettings:
    servers = sheet.read("kafka.endpoint", values.bootstrap_servers, worker.bootstrap_servers)
    if not servers and not sheet.is_refused("kafka.endpoint"):
        there = "" if worker.exists else ", which does not exist"
        sheet.refuse("bootstrap.servers", f"required: name the cluster's brokers in {worker.path}{there}")
    api_key = _api_key(sheet)
    base = {scope: _without_login(own) if api_key else own for scope, own in worker.properties.items()}
    consumer = {**base["consumer"], **_override(sheet, "consumer")}
    producer = {**base["producer"], **_override(sheet, "producer")}
    # Connect's consumer looks up offsets, for which the admin client stands here: it connects the same way.
    admin = {**security_of(consumer), **base["admin"], **_override(sheet, "admin")}
    common = {**base["common"], **api_key}
    return KafkaSettings(
        bootstrap_servers=servers,
        batch_bytes=read_batch_bytes(sheet),
        common=common,
        consumer=consumer,
        producer=producer,
        admin=admin,
    )


def _override(sheet: Sheet, scope: Scope) -> dict[str, SecretStr]:
    prefix = f"{scope}.override."
    outcome = client_properties(sheet.under(prefix), scope)
    sheet.take(prefix, outcome)
    return {name: SecretStr(value) for name, value in outcome.properties.items()}


def _api_key(sheet: Sheet) -> dict[str, SecretStr]:
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


def _without_login(properties: Mapping[str, SecretStr]) -> dict[str, SecretStr]:
    return {name: value for name, value in properties.items() if not name.startswith(("sasl.", "security."))}
