"""The settings of a connector as typed values, whatever file they were read from.

`config.keys` reads them from connector files. All are immutable and picklable, because Spark tasks carry them. Secrets
are `SecretStr`, so no repr, log or page shows them.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime
from typing import Annotated, Literal, TypeAlias, get_args
from zoneinfo import ZoneInfo

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveFloat, PositiveInt, SecretStr

from kafka_s3_platform.core.config.formats import NATIVE_FORMAT, find_format
from kafka_s3_platform.core.java.regex import compile_java_regex
from kafka_s3_platform.core.model import limits
from kafka_s3_platform.core.model.limits import DEFAULT_LIMITS, ReadLimits
from kafka_s3_platform.core.model.schema import ArchivedSchema
from kafka_s3_platform.core.model.times import HOUR_MS

Encryption = Literal["AES256", "aws:kms", "aws:kms:dsse"]
Compatibility = Literal["NONE", "BACKWARD", "FORWARD", "FULL"]
Decimals = Literal["BASE64", "NUMERIC"]
Nulls = Literal["ignore", "fail", "write"]
ErrorsTolerance = Literal["none", "all"]
Behavior = Literal["fail", "ignore", "log"]
CsvEmpty = Literal["refuse", "null", "empty"]
Encoding = Literal["none", "base64"]
AivenType = Literal["csv", "jsonl", "json", "avro", "parquet"]
ThawTier = Literal["Standard", "Bulk", "Expedited"]
THAW_TIERS: tuple[ThawTier, ...] = get_args(ThawTier)
"""The speeds at which S3 copies objects out of cold storage. A faster tier costs more."""

DAY_PATH = "'year'=YYYY/'month'=MM/'day'=dd"
HOUR_PATH = DAY_PATH + "/'hour'=HH"


class Settings(BaseModel):
    """Base of all settings. They are immutable, and an unknown field is a defect of ours."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class KafkaSettings(Settings):
    """A cluster: librdkafka properties by kind of client. Any value may be secret.

    `batch_bytes` limits the decompressed size of a compressed record batch of its log.
    """

    bootstrap_servers: str
    batch_bytes: int = limits.BATCH_BYTES
    common: Mapping[str, SecretStr] = Field(default_factory=dict)
    consumer: Mapping[str, SecretStr] = Field(default_factory=dict)
    producer: Mapping[str, SecretStr] = Field(default_factory=dict)
    admin: Mapping[str, SecretStr] = Field(default_factory=dict)

    def properties(self, client: Literal["admin", "consumer", "producer"]) -> dict[str, str]:
        """Return the librdkafka properties for one kind of client as plain text. Never log them."""
        of_client = {"admin": self.admin, "consumer": self.consumer, "producer": self.producer}[client]
        secret = {**self.common, **of_client}
        return {"bootstrap.servers": self.bootstrap_servers} | {k: v.get_secret_value() for k, v in secret.items()}


class RoleSettings(Settings):
    """A role to assume with AWS's Security Token Service. If `endpoint_url` is None, the region's endpoint is used."""

    arn: str
    session_name: str
    external_id: SecretStr | None = None
    duration_s: Annotated[int, Field(ge=900, le=43_200)] = 3600
    region: str = "us-east-1"
    endpoint_url: str | None = None


class ProviderSettings(Settings):
    """A user's credentials provider: the dotted name of its class, and the options it is called with."""

    class_name: str
    options: tuple[tuple[str, SecretStr], ...] = ()


class StoreSettings(Settings):
    """A bucket, how to reach it, how to put objects there, and the limits for objects that are read.

    Credentials come from `provider`, else from `role` (assumed with the access key, or with the default chain), else
    they are the access key, else they come from AWS's default chain. `chain` names the members of that chain to use,
    and is empty for all. `proxy_url` may hold a user and a password. `customer_key` is 32 bytes in base64 (SSE-C). If
    `tagging` is set, objects get `tags` besides the tags of the offsets and the count.
    """

    bucket: str
    region: str = "us-west-2"
    endpoint_url: str | None = None
    path_style: bool = True
    part_size: Annotated[int, Field(ge=5_242_880)] = 26_214_400
    max_retries: NonNegativeInt = 3
    retry_backoff_ms: NonNegativeInt = 200
    accelerate: bool = False
    proxy_url: SecretStr | None = None
    canned_acl: str | None = None
    storage_class: str | None = None
    encryption: Encryption | None = None
    kms_key_id: str | None = None
    customer_key: SecretStr | None = None
    tagging: bool = False
    tags: tuple[tuple[str, str], ...] = ()
    ignore_tagging_errors: bool = True
    access_key_id: SecretStr | None = None
    secret_access_key: SecretStr | None = None
    session_token: SecretStr | None = None
    role: RoleSettings | None = None
    provider: ProviderSettings | None = None
    chain: tuple[str, ...] = ()
    limits: ReadLimits = DEFAULT_LIMITS


class RegistrySettings(Settings):
    """A Schema Registry with Confluent's API. `properties` are confluent-kafka's client properties; any may be secret.

    The registry is not asked for `archived` schemas, so these can be used even if it no longer exists.
    """

    url: str
    properties: Mapping[str, SecretStr] = Field(default_factory=dict)
    archived: tuple[ArchivedSchema, ...] = Field(default=(), repr=False)


class ConverterSettings(Settings):
    """The settings to decode keys or values. `format` is one of our names, or a user's dotted Python name.

    `schemas_enable` is True if JSON has Connect's envelope of schema and payload.

    `options` are the other options of the converter, without their prefix, and `plugin_options` are the options of a
    user's class: any may be secret. `unread` names the keys that make the converter unusable, if archiving does without
    it. It is empty if the converter can be used.
    """

    format: str = "BYTES"
    schemas_enable: bool = False
    registry: RegistrySettings | None = None
    options: Mapping[str, str] = Field(default_factory=dict)
    plugin_options: Mapping[str, SecretStr] = Field(default_factory=dict)
    unread: str = ""

    @property
    def is_plugin(self) -> bool:
        """True for a user's own class."""
        return "." in self.format


class PredicateSettings(Settings):
    """Selects the records of a transform. `type` is a short class name."""

    alias: str
    type: str
    options: Mapping[str, SecretStr] = Field(default_factory=dict)


class TransformSettings(Settings):
    """A step of `transforms`. `type` is a short class name (`InsertField$Value`), or a user's dotted Python name.

    `find_public_options` returns its options without secrets.
    """

    alias: str
    type: str
    options: Mapping[str, SecretStr] = Field(default_factory=dict)
    predicate: PredicateSettings | None = None
    negate: bool = False


class LayoutSettings(Settings):
    """The settings for the keys, the bounds and the bytes of objects. The row of each segment holds its own layout.

    `format`, `partitioner`, `timestamp_extractor` and `key_layout` are one of our names or the dotted name of a user's
    Python class.
    """

    # Documents of the index hold these fields in this order: never change it.
    topics_dir: str = "topics"
    format: str = NATIVE_FORMAT
    codec: str = find_format(NATIVE_FORMAT).default_codec
    codec_level: int | None = None
    keys_format: str | None = None
    headers_format: str | None = None
    keys_codec: str | None = None
    headers_codec: str | None = None
    bytes_extension: str = "bin"
    bytes_separator: str = "\n"
    decimal_format: Decimals = "BASE64"
    block_size: PositiveInt = 67_108_864
    partitioner: str = "Hourly"
    partition_fields: tuple[str, ...] = ()
    path_format: str = HOUR_PATH
    partition_duration_ms: PositiveInt = HOUR_MS
    timezone: str = "UTC"
    locale: str = "en"
    timestamp_extractor: str = "Record"
    timestamp_field: str | None = None
    key_layout: str = "connect"
    directory_delim: str = "/"
    file_delim: str = "+"
    offset_pad_width: NonNegativeInt = 10
    file_name_template: str | None = None
    extension: str | None = None
    flush_size: PositiveInt | None = None
    rotate_interval_ms: PositiveInt | None = None
    rotate_schedule_interval_ms: PositiveInt | None = None
    segment_bytes: PositiveInt = 268_435_456
    schema_compatibility: Compatibility = "NONE"
    null_values: Nulls = "write"
    tombstone_partition: str = "tombstone"
    out_of_range_folder: str = "__out_of_range__"

    @property
    def out_of_range_folders(self) -> frozenset[str]:
        """The folders of records out of range: the current one, and the default, which may have been used before."""
        return frozenset({self.out_of_range_folder, type(self).model_fields["out_of_range_folder"].default})

    @property
    def has_out_of_range_folder(self) -> bool:
        """True if keys show records that are out of range by a folder of their own."""
        has_times = self.partitioner not in {"Default", "Field"} and self.timestamp_extractor != "Wallclock"
        return has_times and self.key_layout not in {"template", "lenses"}

    @property
    def zone(self) -> ZoneInfo:
        """The timezone of its folders, and of the hours and days that Dagster shows."""
        return ZoneInfo(self.timezone)

    @property
    def daily_dir(self) -> str:
        """The folder of merged days. It is beside the folder of hours, so a reader of either gets no record twice."""
        if self.topics_dir:
            return f"{self.topics_dir}_daily"
        return "daily"

    @property
    def ends_lines_once(self) -> bool:
        """True if a line break at the end of a value ends its line, as values of Zooz's topics often have one."""
        return self.key_layout == "zooz" and self.bytes_separator == "\n"

    @property
    def is_envelope(self) -> bool:
        """True if objects hold whole records unchanged, with any converters."""
        return find_format(self.format).is_envelope


class ErrorSettings(Settings):
    """The handling of failed records."""

    tolerance: ErrorsTolerance = "none"
    log_enable: bool = False
    log_include_messages: bool = False
    dead_letter_topic: str | None = None
    dead_letter_replication_factor: PositiveInt = 3
    dead_letter_headers: bool = False


class RecordSettings(Settings):
    """The settings of the way from Kafka to objects."""

    key: ConverterSettings = Field(default_factory=ConverterSettings)
    value: ConverterSettings = Field(default_factory=ConverterSettings)
    transforms: tuple[TransformSettings, ...] = ()
    errors: ErrorSettings = Field(default_factory=ErrorSettings)

    @property
    def registries(self) -> tuple[RegistrySettings, ...]:
        """The registries of the ids in keys and values, usually one. Without any, ids mean nothing."""
        return tuple({c.registry.url: c.registry for c in (self.key, self.value) if c.registry}.values())


PerTopic: TypeAlias = tuple[tuple[str, int], ...]
"""A number by topic. The number of the topic "" is for all topics that have none of their own."""


class RetentionSettings(Settings):
    """The rules by which data leaves the archive. -1, or no number, means that nothing does.

    Attributes:
        merged_ms: how long after the merge of its day the objects of an hour stay.
        ms: how long after its end a day stays.
        max_bytes: how many bytes of objects a topic may have before its oldest days go.
        first_day: days before this one go.
        holds: days that stay whatever the rules say: topic (`*`: every one), first day, and the day after the last.
    """

    merged_ms: PerTopic = ()
    ms: PerTopic = ()
    max_bytes: PerTopic = ()
    first_day: date | None = None
    holds: tuple[tuple[str, date, date], ...] = ()

    @property
    def has_rule(self) -> bool:
        """True if something may go."""
        rules = (*self.merged_ms, *self.ms, *self.max_bytes)
        return self.first_day is not None or any(number >= 0 for _, number in rules)

    def is_on_hold(self, topic: str, first_day: date, next_day: date) -> bool:
        """Return True if a hold covers a day of the topic from `first_day` to the one before `next_day`."""
        return any(name in {topic, "*"} and first < next_day and first_day < end for name, first, end in self.holds)


class ArchiveSettings(Settings):
    """The settings of archiving a topic, and the folders of its documents."""

    start_hour: datetime
    allowed_lateness_ms: NonNegativeInt = 300_000
    index_dir: str = "_index"
    restore_dir: str = "_restore"
    restore_bucket: str | None = None
    task_size: PositiveInt = 1_000_000
    daily_segment_bytes: PositiveInt = 1_073_741_824
    monthly_segment_bytes: NonNegativeInt = 0
    allow_gaps: bool = False
    clock_tolerance_ms: NonNegativeInt = 60_000
    publish_offsets: bool = False
    consumer_groups: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()
    risk_retention_warn: float = 0.5
    risk_retention_fail: float = 0.25
    risk_age_warn_ms: PositiveInt = 10_800_000
    risk_age_fail_ms: PositiveInt = 43_200_000
    records_per_second: PositiveFloat | None = None
    bytes_per_second: PositiveFloat | None = None
    retention: RetentionSettings = Field(default_factory=RetentionSettings)
    rehearsal_days: PositiveInt | None = None


class SourceSettings(Settings):
    """The settings to read other tools' objects, besides their layout.

    Attributes:
        behavior_on_error: the handling of unreadable objects and records.
        poll_interval_ms: how often the sensor looks for new objects.
        look_back_ms: how long after its time an object may come to a time folder and be counted at once.
        fields: the fields of Aiven's envelope in their order, or empty if objects hold only values.
        value_encoding: how values are encoded in Aiven's csv.
        csv_empty: the meaning of an empty key or value in csv. If None, an empty key is null and an empty value is bad.
        bare: Aiven's output type, if it wrote only values.
        base64: the parts written with ByteArrayConverter. In JSON their bytes are base64. Headers are base64 in every
            text format.
        header_converter: the sink's class for headers.
        offset_field: the path of the field with a record's offset.
        timestamp_field: the path of the field with a record's timestamp.
        thaw_days: how many days copies of objects in cold storage are asked for. If None, they are only reported.
        thaw_tier: how fast S3 makes the copies.
        cluster: the id, or the bootstrap servers, of the records' cluster, or None if the file names none.
        separator_is_named: True if the file names the separator, so it is no default.
        codec_is_named: True if the file names the codec, so it is no default.
    """

    behavior_on_error: Behavior = "fail"
    poll_interval_ms: PositiveInt = 60_000
    look_back_ms: NonNegativeInt = 172_800_000
    fields: tuple[str, ...] = ()
    value_encoding: Encoding = "base64"
    csv_empty: CsvEmpty | None = None
    bare: AivenType | None = None
    base64: tuple[Literal["key", "value", "headers"], ...] = ()
    header_converter: str = "SimpleHeaderConverter"
    offset_field: str | None = None
    timestamp_field: str | None = None
    thaw_days: PositiveInt | None = None
    thaw_tier: ThawTier = "Standard"
    cluster: str | None = None
    separator_is_named: bool = False
    codec_is_named: bool = False


class ConnectorConfig(Settings):
    """A connector file, resolved. For a source connector, `source` is set, and empty `topics` mean all topics."""

    name: str
    topics: tuple[str, ...]
    topics_regex: str | None = None
    others_dead_letters: frozenset[str] = frozenset()
    """The dead letter topics of the folder's connectors. `topics_regex` does not match them."""

    tasks_max: PositiveInt = 1
    kafka: KafkaSettings
    store: StoreSettings
    layout: LayoutSettings
    records: RecordSettings = Field(default_factory=RecordSettings)
    archive: ArchiveSettings
    source: SourceSettings | None = None
    reader: "ConnectorConfig | None" = None
    """A sink's file read as a source's file, if only a listing of the bucket can read its objects back. Else None."""

    unreadable: tuple[str, ...] = ()
    """The reasons why such a sink's file cannot be read as a source's file, by its keys."""

    unnamed_topics: str = ""
    """In a sink's reader, the reason why the topics in its objects' names are unknown. Empty if `topics` has them."""

    @property
    def restore_store(self) -> StoreSettings:
        """The store for plans, progress and reports of restores: the archive's bucket, or a bucket of their own."""
        bucket = self.archive.restore_bucket
        if bucket is None:
            return self.store
        return self.store.model_copy(update={"bucket": bucket})


INTERNAL = "__"
"""The start of the names of Kafka's own topics (`__consumer_offsets`). No pattern matches them; `topics` may name them.
"""


def is_python_class(settings: TransformSettings) -> bool:
    """Return True if the step is a user's own class."""
    return "." in settings.type


def routes_records(step_type: str, predicate_type: str | None) -> bool:
    """Return True if a transform with this predicate may send some records of a topic elsewhere than others.

    A type with a dot is a user's own class, and unknown.
    """
    routes = step_type == "RegexRouter" and predicate_type not in {None, "TopicNameMatches"}
    return routes or "." in step_type or step_type.startswith(("TimestampRouter", "ExtractTopic"))


def compile_topic_filter(config: ConnectorConfig, topics: tuple[str, ...]) -> Callable[[str], bool]:
    """Return a function that selects topics: by `topics`, else by the file. Without either, it selects all."""
    named = set(topics or config.topics)
    if named:
        return named.__contains__
    if config.topics_regex is None:
        return lambda _: True
    pattern = compile_java_regex(config.topics_regex)
    return lambda topic: pattern.fullmatch(topic) is not None


def match_topics(config: ConnectorConfig, topics: Iterable[str]) -> tuple[str, ...]:
    """Return the `topics` that fully match the connector's `topics.regex`, sorted. None match without a regex.

    Internal topics and the dead letter topics of all connectors are left out, because two connectors archiving each
    other's letters would make letters of letters, for ever.
    """
    return tuple(topic for topic in _match_all(config, topics) if not _is_of_letters(config, topic))


def list_letter_topics(config: ConnectorConfig, topics: Iterable[str]) -> tuple[str, ...]:
    """Return the matching topics that are left out because they are dead letter topics."""
    return tuple(topic for topic in _match_all(config, topics) if _is_of_letters(config, topic))


def _match_all(config: ConnectorConfig, topics: Iterable[str]) -> list[str]:
    """Return the topics that the connector's pattern matches, dead letter topics among them, sorted."""
    if config.topics_regex is None:
        return []
    pattern = compile_java_regex(config.topics_regex)
    return sorted(t for t in set(topics) if pattern.fullmatch(t) and not t.startswith(INTERNAL))


def _is_of_letters(config: ConnectorConfig, topic: str) -> bool:
    """Return True if a connector sends its failed records to the topic."""
    return topic == config.records.errors.dead_letter_topic or topic in config.others_dead_letters
