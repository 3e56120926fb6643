"""A connector file and the worker's settings as one `ConnectorConfig`."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from zoneinfo import ZoneInfo

from pydantic import SecretStr

from kafka_s3_platform.config import values
from kafka_s3_platform.config.clients import Scope, client_properties, security_of
from kafka_s3_platform.config.keys import CONNECTOR_KEYS
from kafka_s3_platform.config.parse import ConnectorFile
from kafka_s3_platform.config.settings import (
    ArchiveSettings,
    ConnectorConfig,
    KafkaSettings,
    LayoutSettings,
    StoreSettings,
)
from kafka_s3_platform.config.sheet import Finding, KeyClass, Sheet, substitute
from kafka_s3_platform.config.worker import Worker

Partitioner = Literal["Hourly", "Daily", "TimeBased"]
Extractor = Literal["Record", "Wallclock"]

_NATIVE = "remove the key to archive in the native Parquet envelope"
_CONFLUENT_KEYS = "write the file with the keys of Confluent's S3 sink"
_PARTITIONERS = "io.confluent.connect.storage.partitioner."
_EXTRACTORS = _PARTITIONERS + "TimeBasedPartitioner$"
_DAY_MS = 86_400_000

CONNECTOR_CLASS: values.Parser[Literal["connect", "cloud"]] = values.java_class(
    {
        "io.confluent.connect.s3.S3SinkConnector": "connect",
        "S3Sink": "connect",
        "S3_SINK": "cloud",
    },
    {
        "io.confluent.connect.s3.source.S3SourceConnector": "restore with `kafka-s3 restore`",
        "S3_SOURCE": "restore with `kafka-s3 restore`",
        "com.deviantart.kafka_connect_s3.S3SinkConnector": _CONFLUENT_KEYS,
        "io.aiven.kafka.connect.s3.AivenKafkaConnectS3SinkConnector": _CONFLUENT_KEYS,
        "io.aiven.kafka.connect.s3.S3SinkConnector": _CONFLUENT_KEYS,
    },
)

FORMAT_CLASS: values.Parser[Literal["envelope.parquet"]] = values.java_class(
    {"kafka_s3_platform.formats.EnvelopeParquetFormat": "envelope.parquet"},
    {
        "io.confluent.connect.s3.format.avro.AvroFormat": _NATIVE,
        "io.confluent.connect.s3.format.json.JsonFormat": _NATIVE,
        "io.confluent.connect.s3.format.bytearray.ByteArrayFormat": _NATIVE,
        "io.confluent.connect.s3.format.parquet.ParquetFormat": _NATIVE,
    },
)

PARTITIONER_CLASS: values.Parser[Partitioner] = values.java_class(
    {
        _PARTITIONERS + "HourlyPartitioner": "Hourly",
        _PARTITIONERS + "DailyPartitioner": "Daily",
        _PARTITIONERS + "TimeBasedPartitioner": "TimeBased",
    },
    {
        _PARTITIONERS + "DefaultPartitioner": "remove the key, or say HourlyPartitioner, to archive by the hour",
        _PARTITIONERS + "FieldPartitioner": "remove the key, or say HourlyPartitioner, to archive by the hour",
    },
)

TIMESTAMP_EXTRACTOR: values.Parser[Extractor] = values.java_class(
    {
        "Record": "Record",
        "Wallclock": "Wallclock",
        _EXTRACTORS + "RecordTimestampExtractor": "Record",
        _EXTRACTORS + "WallclockTimestampExtractor": "Wallclock",
    },
    {
        "RecordField": "say Record to use the record's own timestamp",
        _EXTRACTORS + "RecordFieldTimestampExtractor": "say Record to use the record's own timestamp",
    },
)

TIME_INTERVALS: Mapping[str, Partitioner] = {"HOURLY": "Hourly", "DAILY": "Daily"}

DAY_PATH = "'year'=YYYY/'month'=MM/'day'=dd"
HOUR_PATH = DAY_PATH + "/'hour'=HH"

ACCESS_KEY_IDS = (
    "aws.access.key.id",
    "s3.credentials.provider.aws.access.key.id",
    "s3.credentials.provider.access_key_id",
)
SECRET_ACCESS_KEYS = (
    "aws.secret.access.key",
    "s3.credentials.provider.aws.secret.access.key",
    "s3.credentials.provider.secret_access_key",
)


@dataclass(frozen=True)
class Resolution:
    """What a connector file comes to. `config` is None where any key is refused."""

    name: str
    findings: tuple[Finding, ...]
    config: ConnectorConfig | None


def resolve(file: ConnectorFile, worker: Worker, env: Mapping[str, str]) -> Resolution:
    """Judges every key of a connector file; raises nothing for what it refuses."""
    sheet = Sheet(CONNECTOR_KEYS, file.entries, env)
    name = _name(sheet, file, env)
    for key, what in (("topics", "name the topics to archive"), ("s3.bucket.name", "name the bucket")):
        sheet.require(key, what)
    cloud = sheet.read("connector.class", CONNECTOR_CLASS, "connect") == "cloud"
    topics: tuple[str, ...] = sheet.read("topics", values.topic_list, ())
    tasks_max = sheet.read("tasks.max", values.integer(1, 100_000), 1)
    kafka, store, layout = _kafka(sheet, worker), _store(sheet), _layout(sheet, cloud)
    archive = _archive(sheet, layout)
    findings = tuple(sheet.findings())
    if any(finding.key_class is KeyClass.REFUSED for finding in findings):
        return Resolution(name, findings, None)
    config = ConnectorConfig(
        name=name, topics=topics, tasks_max=tasks_max, kafka=kafka, store=store, layout=layout, archive=archive
    )
    return Resolution(name, findings, config)


def _name(sheet: Sheet, file: ConnectorFile, env: Mapping[str, str]) -> str:
    try:
        return values.connector_name(substitute(file.name, env).strip())
    except ValueError as err:
        sheet.refuse("name", str(err))
        return file.name


def _store(sheet: Sheet) -> StoreSettings:
    access_key_id, secret_access_key = _credentials(sheet)
    return StoreSettings(
        bucket=sheet.read("s3.bucket.name", values.bucket_name, ""),
        region=sheet.read("s3.region", str, "us-west-2"),
        endpoint_url=sheet.read("store.url", values.url, None),
        access_key_id=access_key_id,
        secret_access_key=secret_access_key,
        path_style=sheet.read("s3.path.style.access.enabled", values.boolean, default=True),
        part_size=sheet.read("s3.part.size", values.integer(5_242_880, 2**31 - 1), 26_214_400),
        max_retries=sheet.read("s3.part.retries", values.integer(0, 1000), 3),
    )


def _credentials(sheet: Sheet) -> tuple[SecretStr | None, SecretStr | None]:
    access_key_id, secret_access_key = _first(sheet, ACCESS_KEY_IDS), _first(sheet, SECRET_ACCESS_KEYS)
    _require_both(sheet, access_key_id or ACCESS_KEY_IDS[0], secret_access_key or SECRET_ACCESS_KEYS[0])
    return _secret(sheet, access_key_id), _secret(sheet, secret_access_key)


def _first(sheet: Sheet, names: tuple[str, ...]) -> str | None:
    given = [name for name in names if name in sheet]
    for name in given[1:]:
        sheet.refuse(name, f"{given[0]} sets the same; keep one")
    return given[0] if given else None


def _secret(sheet: Sheet, name: str | None) -> SecretStr | None:
    return SecretStr(sheet.text(name)) if name else None


def _require_both(sheet: Sheet, one: str, other: str) -> None:
    if (one in sheet) != (other in sheet):
        present, absent = (one, other) if one in sheet else (other, one)
        if not sheet.is_refused(absent):
            sheet.refuse(absent, f"required: {present} is set, and is of no use without it")


def _layout(sheet: Sheet, cloud: bool) -> LayoutSettings:
    partitioner = _partitioner(sheet)
    return LayoutSettings(
        topics_dir=sheet.read("topics.dir", values.directory, "topics"),
        format=sheet.read("format.class", FORMAT_CLASS, "envelope.parquet"),
        partitioner=partitioner,
        path_format=_path_format(sheet, partitioner),
        partition_duration_ms=_partition_duration_ms(sheet, partitioner),
        timezone=sheet.read("timezone", values.timezone_id, "UTC"),
        locale=sheet.read("locale", values.locale_id, "en"),
        timestamp_extractor=_timestamp_extractor(sheet),
        offset_pad_width=sheet.read("filename.offset.zero.pad.width", values.integer(0, 64), 10),
        flush_size=sheet.read("flush.size", values.integer(1, 2**31 - 1), 1000 if cloud else None),
        segment_bytes=sheet.read("archive.segment.bytes", values.integer(1), 268_435_456),
    )


def _partitioner(sheet: Sheet) -> Partitioner:
    by_class = sheet.read("partitioner.class", PARTITIONER_CLASS, None)
    interval = sheet.read("time.interval", values.choice(TIME_INTERVALS), "")
    if by_class and interval:
        sheet.refuse("time.interval", "partitioner.class says how records are grouped; keep one")
    return by_class or TIME_INTERVALS.get(interval, "Hourly")


def _path_format(sheet: Sheet, partitioner: Partitioner) -> str:
    if partitioner == "TimeBased":
        sheet.require("path.format", "TimeBasedPartitioner has no path of its own")
    return sheet.read("path.format", values.path_format, DAY_PATH if partitioner == "Daily" else HOUR_PATH)


def _partition_duration_ms(sheet: Sheet, partitioner: Partitioner) -> int:
    if partitioner == "TimeBased":
        sheet.require("partition.duration.ms", "TimeBasedPartitioner has no span of its own")
        return sheet.read("partition.duration.ms", values.integer(1), 3_600_000)
    span = _DAY_MS if partitioner == "Daily" else 3_600_000
    if "partition.duration.ms" in sheet:
        sheet.without_meaning("partition.duration.ms", f"{partitioner}Partitioner's span is always {span} ms.")
    return span


def _timestamp_extractor(sheet: Sheet) -> Extractor:
    extractor = sheet.read("timestamp.extractor", TIMESTAMP_EXTRACTOR, None)
    if extractor and sheet.is_refused("timestamp.field"):
        sheet.without_meaning("timestamp.field", f"The extractor {extractor} reads no field.")
    return extractor or "Record"


def _archive(sheet: Sheet, layout: LayoutSettings) -> ArchiveSettings:
    index_dir = sheet.read("archive.index.dir", values.directory, "_index")
    restore_dir = sheet.read("archive.restore.dir", values.directory, "_restore")
    _keep_apart(sheet, "archive.index.dir", index_dir, {"topics.dir": layout.topics_dir})
    _keep_apart(
        sheet, "archive.restore.dir", restore_dir, {"topics.dir": layout.topics_dir, "archive.index.dir": index_dir}
    )
    return ArchiveSettings(
        start_hour=_start_hour(sheet, ZoneInfo(layout.timezone)),
        allowed_lateness_ms=sheet.read("archive.allowed.lateness.ms", values.integer(0), 300_000),
        index_dir=index_dir,
        restore_dir=restore_dir,
        task_size=sheet.read("archive.task.size", values.integer(1), 1_000_000),
        daily_segment_bytes=sheet.read("archive.daily.segment.bytes", values.integer(1), 1_073_741_824),
        allow_gaps=sheet.read("archive.allow.gaps", values.boolean, default=False),
        records_per_second=sheet.read("archive.records.per.second", values.rate, None),
        bytes_per_second=sheet.read("archive.bytes.per.second", values.rate, None),
    )


def _start_hour(sheet: Sheet, zone: ZoneInfo) -> datetime:
    return sheet.read("archive.start.hour", values.hour(zone), datetime(2020, 1, 1, tzinfo=zone))


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
    return KafkaSettings(bootstrap_servers=servers, common=common, consumer=consumer, producer=producer, admin=admin)


def _override(sheet: Sheet, scope: Scope) -> dict[str, SecretStr]:
    prefix = f"{scope}.override."
    outcome = client_properties(sheet.under(prefix), scope)
    sheet.take(prefix, outcome)
    return {name: SecretStr(value) for name, value in outcome.properties.items()}


def _api_key(sheet: Sheet) -> dict[str, SecretStr]:
    _require_both(sheet, "kafka.api.key", "kafka.api.secret")
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
