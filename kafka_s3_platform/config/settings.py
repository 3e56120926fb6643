"""Typed settings that a connector file and the worker file resolve to.

Everything here is immutable and picklable (Spark tasks carry it); secrets are `SecretStr`, so no repr, log or page
shows them.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from kafka_s3_platform.model.limits import BATCH_BYTES, NO_KEYS, ReadLimits
from kafka_s3_platform.model.schema import ArchivedSchema

ThawTier = Literal["Standard", "Bulk", "Expedited"]
THAW_TIERS: tuple[ThawTier, ...] = get_args(ThawTier)
"""How fast S3 makes copies of objects in cold storage, and for how much."""


class Settings(BaseModel):
    """Base: immutable, and an unknown field is a defect of ours."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class KafkaSettings(Settings):
    """A cluster: librdkafka properties by client kind, every value possibly secret.

    `batch_bytes` is what a compressed record batch of its log may come to.
    """

    bootstrap_servers: str
    batch_bytes: int = BATCH_BYTES
    common: Mapping[str, SecretStr] = Field(default_factory=dict)
    consumer: Mapping[str, SecretStr] = Field(default_factory=dict)
    producer: Mapping[str, SecretStr] = Field(default_factory=dict)
    admin: Mapping[str, SecretStr] = Field(default_factory=dict)

    def properties(self, client: Literal["admin", "consumer", "producer"]) -> dict[str, str]:
        """Plain librdkafka properties for one kind of client. Never log them."""
        own = {"admin": self.admin, "consumer": self.consumer, "producer": self.producer}[client]
        secret = {**self.common, **own}
        return {"bootstrap.servers": self.bootstrap_servers} | {k: v.get_secret_value() for k, v in secret.items()}


class RoleSettings(Settings):
    """A role that AWS's Security Token Service lets us assume. `endpoint_url` None: the region's own."""

    arn: str
    session_name: str
    external_id: SecretStr | None = None
    duration_s: int = Field(default=3600, ge=900, le=43_200)
    region: str = "us-east-1"
    endpoint_url: str | None = None


class ProviderSettings(Settings):
    """A user's credentials provider: the dotted name of its class, and the options that it is called with."""

    class_name: str
    options: tuple[tuple[str, SecretStr], ...] = ()


class StoreSettings(Settings):
    """A bucket, how to reach it, how objects are put there, and how much one may ask of who reads it.

    Credentials are those of `provider`, else of `role` (assumed with the access key, or with the default chain), else
    the access key, else AWS's default chain, of which `chain` names the members that are asked. `proxy_url` may hold a
    user and a password. `customer_key` is 32 bytes in base64 (SSE-C). `tags` are put on objects where `tagging` is set,
    besides the offsets and the count.
    """

    bucket: str
    region: str = "us-west-2"
    endpoint_url: str | None = None
    access_key_id: SecretStr | None = None
    secret_access_key: SecretStr | None = None
    session_token: SecretStr | None = None
    role: RoleSettings | None = None
    provider: ProviderSettings | None = None
    chain: tuple[str, ...] = ()
    path_style: bool = True
    accelerate: bool = False
    proxy_url: SecretStr | None = None
    part_size: int = Field(default=26_214_400, ge=5_242_880)
    max_retries: int = Field(default=3, ge=0)
    retry_backoff_ms: int = Field(default=200, ge=0)
    canned_acl: str | None = None
    encryption: Literal["AES256", "aws:kms", "aws:kms:dsse"] | None = None
    kms_key_id: str | None = None
    customer_key: SecretStr | None = None
    tagging: bool = False
    tags: tuple[tuple[str, str], ...] = ()
    ignore_tagging_errors: bool = True
    limits: ReadLimits = NO_KEYS


class LayoutSettings(Settings):
    """What decides the keys, the bounds and the bytes of objects. Each segment's row carries its own.

    `format`, `partitioner` and `timestamp_extractor` are a name of ours or the dotted name of a user's Python class.
    """

    topics_dir: str = "topics"
    format: str = "envelope.parquet"
    codec: str = "zstd"
    codec_level: int | None = None
    keys_format: str | None = None
    headers_format: str | None = None
    keys_codec: str | None = None
    headers_codec: str | None = None
    bytes_extension: str = "bin"
    bytes_separator: str = "\n"
    decimal_format: Literal["BASE64", "NUMERIC"] = "BASE64"
    block_size: int = Field(default=67_108_864, gt=0)
    partitioner: str = "Hourly"
    partition_fields: tuple[str, ...] = ()
    path_format: str = "'year'=YYYY/'month'=MM/'day'=dd/'hour'=HH"
    partition_duration_ms: int = Field(default=3_600_000, gt=0)
    timezone: str = "UTC"
    locale: str = "en"
    timestamp_extractor: str = "Record"
    timestamp_field: str | None = None
    key_layout: Literal["connect", "block_gzip", "zooz", "template", "lenses"] = "connect"
    directory_delim: str = "/"
    file_delim: str = "+"
    offset_pad_width: int = Field(default=10, ge=0)
    file_name_template: str | None = None
    extension: str | None = None
    flush_size: int | None = Field(default=None, gt=0)
    rotate_interval_ms: int | None = Field(default=None, gt=0)
    rotate_schedule_interval_ms: int | None = Field(default=None, gt=0)
    segment_bytes: int = Field(default=268_435_456, gt=0)
    schema_compatibility: Literal["NONE", "BACKWARD", "FORWARD", "FULL"] = "NONE"
    null_values: Literal["ignore", "fail", "write"] = "write"
    tombstone_partition: str = "tombstone"

    @property
    def daily_dir(self) -> str:
        """The folder of merged days, beside that of the hours: a reader of either meets no record twice for it."""
        return f"{self.topics_dir}_daily" if self.topics_dir else "daily"

    @property
    def is_envelope(self) -> bool:
        """Whether objects hold whole records, as they are, whatever their converters."""
        return self.format.startswith("envelope.")


class RegistrySettings(Settings):
    """A Schema Registry with Confluent's API: properties of confluent-kafka's client, every value possibly secret.

    It is not asked for `archived` schemas: those are taken as they are, so that it may be gone.
    """

    url: str
    properties: Mapping[str, SecretStr] = Field(default_factory=dict)
    archived: tuple[ArchivedSchema, ...] = Field(default=(), repr=False)


class ConverterSettings(Settings):
    """How the bytes of keys or values are understood. `schemas_enable`: Connect's JSON envelope of schema and payload.

    `options` are the converter's own further keys, without their prefix.
    """

    format: Literal["BYTES", "STRING", "JSON", "JSON_SR", "AVRO", "PROTOBUF"] = "BYTES"
    schemas_enable: bool = False
    registry: RegistrySettings | None = None
    options: Mapping[str, str] = Field(default_factory=dict)


class PredicateSettings(Settings):
    """Which records a transform is for. `type` is a short class name."""

    alias: str
    type: str
    options: Mapping[str, SecretStr] = Field(default_factory=dict)


class TransformSettings(Settings):
    """One step of `transforms`. `type` is a short class name (`InsertField$Value`), or a user's dotted Python name.

    Which options may be shown says `config.transform_catalogue.public_options`.
    """

    alias: str
    type: str
    options: Mapping[str, SecretStr] = Field(default_factory=dict)
    predicate: PredicateSettings | None = None
    negate: bool = False


class ErrorSettings(Settings):
    """What becomes of records that fail."""

    tolerance: Literal["none", "all"] = "none"
    log_enable: bool = False
    log_include_messages: bool = False
    dead_letter_topic: str | None = None
    dead_letter_replication_factor: int = Field(default=3, ge=1)
    dead_letter_headers: bool = False


class RecordSettings(Settings):
    """What happens to records between Kafka and their objects."""

    key: ConverterSettings = Field(default_factory=ConverterSettings)
    value: ConverterSettings = Field(default_factory=ConverterSettings)
    transforms: tuple[TransformSettings, ...] = ()
    errors: ErrorSettings = Field(default_factory=ErrorSettings)


class ArchiveSettings(Settings):
    """The platform's own keys, all under the prefix `archive.`."""

    start_hour: datetime
    allowed_lateness_ms: int = Field(default=300_000, ge=0)
    index_dir: str = "_index"
    restore_dir: str = "_restore"
    restore_bucket: str | None = None
    task_size: int = Field(default=1_000_000, gt=0)
    daily_segment_bytes: int = Field(default=1_073_741_824, gt=0)
    allow_gaps: bool = False
    clock_tolerance_ms: int = Field(default=60_000, ge=0)
    publish_offsets: bool = False
    consumer_groups: tuple[str, ...] = ()
    records_per_second: float | None = Field(default=None, gt=0)
    bytes_per_second: float | None = Field(default=None, gt=0)


class SourceSettings(Settings):
    """How a source connector's file has objects read that others wrote, besides their layout.

    `fields` are those of Aiven's envelope in their order, none where objects hold values alone; `value_encoding` is
    that of its csv, `csv_empty` what an empty key or value there means (None: a key is null, a value is bad). `bare` is
    Aiven's output type where it wrote values alone. `base64` are the parts that the sink understood by
    ByteArrayConverter: in JSON their bytes are base64, and so are those of headers wherever they are text;
    `header_converter` is the class that understood them. `offset_field` and `timestamp_field` are paths within a
    record. `thaw_days` None: objects in cold storage are reported, not asked for. `cluster` is the id, or the bootstrap
    servers, of the cluster that the records are of, None where nobody said it. `separator_is_named`, `codec_is_named`:
    the file itself says what tells values apart, and whether objects are compressed, so that it is no default of ours.
    """

    behavior_on_error: Literal["fail", "ignore", "log"] = "fail"
    poll_interval_ms: int = Field(default=60_000, gt=0)
    fields: tuple[str, ...] = ()
    value_encoding: Literal["none", "base64"] = "base64"
    csv_empty: Literal["refuse", "null", "empty"] | None = None
    bare: Literal["csv", "jsonl", "json", "avro", "parquet"] | None = None
    base64: tuple[Literal["key", "value", "headers"], ...] = ()
    header_converter: str = "SimpleHeaderConverter"
    offset_field: str | None = None
    timestamp_field: str | None = None
    thaw_days: int | None = Field(default=None, gt=0)
    thaw_tier: ThawTier = "Standard"
    cluster: str | None = None
    separator_is_named: bool = False
    codec_is_named: bool = False


class ConnectorConfig(Settings):
    """One connector file, resolved. Of a source connector's file `source` is set, and no `topics` are all topics."""

    name: str
    topics: tuple[str, ...]
    topics_regex: str | None = None
    tasks_max: int = Field(default=1, ge=1)
    kafka: KafkaSettings
    store: StoreSettings
    layout: LayoutSettings
    records: RecordSettings = Field(default_factory=RecordSettings)
    archive: ArchiveSettings
    source: SourceSettings | None = None

    @property
    def restore_store(self) -> StoreSettings:
        """Where plans, progress and reports of restores are: the archive's bucket, or one of their own."""
        bucket = self.archive.restore_bucket
        return self.store if bucket is None else self.store.model_copy(update={"bucket": bucket})
