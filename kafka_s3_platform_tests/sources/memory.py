"""A bucket in memory, and connectors that read from it."""

import hashlib
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from typing import Any

from kafka_s3_platform.config.settings import (
    ArchiveSettings,
    ConnectorConfig,
    KafkaSettings,
    LayoutSettings,
    RecordSettings,
    SourceSettings,
    StoreSettings,
)
from kafka_s3_platform.errors import IntegrityError
from kafka_s3_platform.store.errors import NotFoundError
from kafka_s3_platform.store.objects import ObjectInfo, ObjectStore

_THEN = datetime(2026, 1, 1, tzinfo=timezone.utc)


class MemoryStore(ObjectStore):
    """Objects by key, listed in the order in which they were put."""

    def __init__(self, objects: Mapping[str, bytes] = {}, metadata: Mapping[str, Mapping[str, str]] = {}) -> None:
        super().__init__(StoreSettings(bucket="bucket"))
        self.objects, self.metadata = dict(objects), dict(metadata)
        self.storage_classes: dict[str, str] = {}
        self.reads: list[str] = []

    def _info(self, key: str) -> ObjectInfo:
        body = self.objects[key]
        etag = f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"'
        storage_class = self.storage_classes.get(key, "STANDARD")
        return ObjectInfo(key, len(body), etag, _THEN, storage_class, self.metadata.get(key, {}))

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:  # noqa: ARG002
        return (self._info(key) for key in list(self.objects) if key.startswith(prefix))

    def head(self, key: str) -> ObjectInfo | None:
        return self._info(key) if key in self.objects else None

    def get(self, key: str) -> bytes:
        if key not in self.objects:
            raise NotFoundError(f"{key} does not exist")
        return self.objects[key]

    def read_range(self, key: str, start: int, end: int, etag: str) -> bytes:
        if key not in self.objects:
            raise NotFoundError(f"{key} does not exist")
        if self._info(key).etag != etag:
            raise IntegrityError(f"{key} was replaced while it was read")
        self.reads.append(key)
        return self.objects[key][start:end]


def source(
    layout: Mapping[str, Any],
    topics: tuple[str, ...] = (),
    records: Mapping[str, Any] = {},
    archive: Mapping[str, Any] = {},
    **own: Any,
) -> ConnectorConfig:
    """A source connector's settings; `own` are those of `SourceSettings`."""
    return ConnectorConfig(
        name="s",
        topics=topics,
        kafka=KafkaSettings(bootstrap_servers="none:9092"),
        store=StoreSettings(bucket="bucket"),
        layout=LayoutSettings(**{"codec": "none", "partitioner": "Default", **layout}),
        records=RecordSettings(**records),
        archive=ArchiveSettings(start_hour=_THEN, **archive),
        source=SourceSettings(**own),
    )
