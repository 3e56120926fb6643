"""A bucket in memory, and connectors that read from it."""

import gzip
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from kafka_s3_platform.connect.sources.objects import ObjectGroup, group_objects
from kafka_s3_platform.connect.sources.read import ForeignStream
from kafka_s3_platform.connect.sources.report import ReadReport
from kafka_s3_platform.connect.sources.scan import SourceListing
from kafka_s3_platform.core.config.settings import (
    ArchiveSettings,
    ConnectorConfig,
    KafkaSettings,
    LayoutSettings,
    RecordSettings,
    SourceSettings,
    StoreSettings,
)
from kafka_s3_platform.core.errors import IntegrityError
from kafka_s3_platform.core.formats.format_io import find_extension
from kafka_s3_platform.core.formats.parts import HEADERS_SCHEMA
from kafka_s3_platform.core.model.connect import ConnectBatch, Schema
from kafka_s3_platform.core.store.errors import NotFoundError
from kafka_s3_platform.core.store.objects import ObjectInfo, ObjectStore
from kafka_s3_platform_tests.formats.connect import came, written
from kafka_s3_platform_tests.formats.records import rows_of

_THEN = datetime(2026, 1, 1, tzinfo=timezone.utc)

FOLDER = "topics/t/partition=0/t+0+"

BLOCKS: dict[str, Any] = {"format": "block_gzip", "codec": "gzip", "partitioner": "Hourly"}

F1 = Schema('{"type":"record","name":"myrecord","fields":[{"name":"f1","type":"string"}]}')

AVRO = {"format": "avro", "codec": "null"}
GOOD = [{"f1": f"value{n}"} for n in range(1, 10)]


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


def opened(config: ConnectorConfig, store: MemoryStore) -> ObjectGroup:
    (group,) = group_objects(SourceListing(config, store=store))
    return group


def stream(
    config: ConnectorConfig,
    objects: MemoryStore | Mapping[str, bytes],
    start: int = 0,
    end: int | None = None,
    **how: Any,
) -> ForeignStream:
    store = objects if isinstance(objects, MemoryStore) else MemoryStore(objects, how.pop("metadata", {}))
    return ForeignStream(config, opened(config, store), store, start, end, **how)


def restored(
    config: ConnectorConfig, objects: Mapping[str, bytes], **store: Any
) -> tuple[list[dict[str, Any]], ReadReport]:
    found = stream(config, objects, **store)
    return rows_of(found), found.report


def decoded_values(config: ConnectorConfig, objects: Mapping[str, bytes]) -> list[Any]:
    return [o for batch in stream(config, objects).batches() for o in batch.value.objects]


def sent(config: ConnectorConfig, objects: MemoryStore | Mapping[str, bytes]) -> list[bytes | None]:
    """The values alone."""
    return [value for batch in stream(config, objects) for value in batch.column("value").to_pylist()]


def object_of(
    layout: dict[str, Any], batch: ConnectBatch, offset: int = 0, schema: Schema | None = None
) -> dict[str, bytes]:
    settings_ = LayoutSettings(**{"codec": "none", "partitioner": "Default", **layout})
    name = f"{FOLDER}{offset:010d}"
    return {f"{name}.{find_extension(settings_, 'value')}": written(settings_, batch, schema=schema)}


def blocks_of(held: Sequence[Sequence[int]]) -> tuple[bytes, bytes]:
    """An object of lines that tell their offset in Kafka, a block for each sequence of them, and its index."""
    members, chunks = [b"".join(b"%d\n" % offset for offset in block) for block in held], []
    packed = [gzip.compress(member, mtime=0) for member in members]
    for at, (block, member) in enumerate(zip(held, members, strict=True)):
        sizes = (len(member), len(block), len(packed[at]), sum(map(len, packed[:at])), block[0])
        names = ("byte_length_uncompressed", "num_records", "byte_length", "byte_offset", "first_record_offset")
        chunks.append(dict(zip(names, sizes, strict=True)))
    return b"".join(packed), json.dumps({"chunks": chunks}).encode()


def lines(start: int, count: int) -> bytes:
    return b"".join(b"%d\n" % n for n in range(start, start + count))


def source_of(config: ConnectorConfig, **own: Any) -> ConnectorConfig:
    """The sink's file with only its class changed, and without topics."""
    return config.model_copy(update={"topics": (), "source": SourceSettings(**own)})


def values(rows: Sequence[Mapping[str, Any]]) -> list[tuple[int, Any]]:
    return [(row["offset"], row["value"]) for row in rows]


def siblings(
    keys: Sequence[bytes], headers: Sequence[Any], lines: Sequence[bytes]
) -> tuple[dict[str, Any], dict[str, bytes]]:
    layout: dict[str, Any] = {
        "format": "json",
        "keys_format": "bytes",
        "headers_format": "avro",
        "headers_codec": "null",
    }
    settings_ = LayoutSettings(**{"codec": "none", **layout})
    batch = came(list(lines), list(keys), list(headers), is_json=True)
    name = f"{FOLDER}0000000005"
    return layout, {
        f"{name}.json": written(settings_, batch),
        f"{name}.keys.bin": written(settings_, batch, part="key"),
        f"{name}.headers.avro": written(settings_, batch, part="headers", schema=HEADERS_SCHEMA),
    }


def lines_at(*offsets: int, count: int = 2) -> dict[str, bytes]:
    return {f"{FOLDER}{o:010d}.json": b"".join(b"%d\n" % (o + i) for i in range(count)) for o in offsets}


def flipped(body: bytes, at: int, flip: int) -> bytes:
    damaged = bytearray(body)
    damaged[at % len(body)] ^= flip
    return bytes(damaged)
