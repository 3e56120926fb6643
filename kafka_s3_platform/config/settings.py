"""Typed settings that a connector file and the worker file resolve to.

Everything here is immutable and picklable (Spark tasks carry it); secrets are `SecretStr`, so no repr, log or page
shows them.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr


class Settings(BaseModel):
    """Base: immutable, and an unknown field is a defect of ours."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class KafkaSettings(Settings):
    """A cluster: librdkafka properties by client kind, every value possibly secret."""

    bootstrap_servers: str
    common: Mapping[str, SecretStr] = Field(default_factory=dict)
    consumer: Mapping[str, SecretStr] = Field(default_factory=dict)
    producer: Mapping[str, SecretStr] = Field(default_factory=dict)
    admin: Mapping[str, SecretStr] = Field(default_factory=dict)

    def properties(self, client: Literal["admin", "consumer", "producer"]) -> dict[str, str]:
        """Plain librdkafka properties for one kind of client. Never log them."""
        own = {"admin": self.admin, "consumer": self.consumer, "producer": self.producer}[client]
        secret = {**self.common, **own}
        return {"bootstrap.servers": self.bootstrap_servers} | {k: v.get_secret_value() for k, v in secret.items()}


class StoreSettings(Settings):
    """A bucket and how to reach it. Without keys, boto3's own credentials chain is used."""

    bucket: str
    region: str = "us-west-2"
    endpoint_url: str | None = None
    access_key_id: SecretStr | None = None
    secret_access_key: SecretStr | None = None
    session_token: SecretStr | None = None
    path_style: bool = True
    part_size: int = Field(default=26_214_400, ge=5_242_880)
    max_retries: int = Field(default=3, ge=0)


class LayoutSettings(Settings):
    """What decides the keys, the bounds and the bytes of objects. Each segment's row carries its own."""

    topics_dir: str = "topics"
    format: Literal["envelope.parquet"] = "envelope.parquet"
    partitioner: Literal["Hourly", "Daily", "TimeBased"] = "Hourly"
    path_format: str = "'year'=YYYY/'month'=MM/'day'=dd/'hour'=HH"
    partition_duration_ms: int = Field(default=3_600_000, gt=0)
    timezone: str = "UTC"
    locale: str = "en"
    timestamp_extractor: Literal["Record", "Wallclock"] = "Record"
    offset_pad_width: int = Field(default=10, ge=0)
    flush_size: int | None = Field(default=None, gt=0)
    segment_bytes: int = Field(default=268_435_456, gt=0)


class ArchiveSettings(Settings):
    """The platform's own keys, all under the prefix `archive.`."""

    start_hour: datetime
    allowed_lateness_ms: int = Field(default=300_000, ge=0)
    index_dir: str = "_index"
    restore_dir: str = "_restore"
    task_size: int = Field(default=1_000_000, gt=0)
    daily_segment_bytes: int = Field(default=1_073_741_824, gt=0)
    allow_gaps: bool = False
    records_per_second: float | None = Field(default=None, gt=0)
    bytes_per_second: float | None = Field(default=None, gt=0)


class ConnectorConfig(Settings):
    """One connector file, resolved."""

    name: str
    topics: tuple[str, ...]
    tasks_max: int = Field(default=1, ge=1)
    kafka: KafkaSettings
    store: StoreSettings
    layout: LayoutSettings
    archive: ArchiveSettings
