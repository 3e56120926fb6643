"""What an object tells of its records' offsets before it is read: by its metadata, or by what lies beside it."""

from dataclasses import dataclass

from kafka_s3_platform.config.settings import ConnectorConfig
from kafka_s3_platform.errors import IntegrityError
from kafka_s3_platform.formats.kept_offsets import BESIDE, METADATA, REPEATED, KeptOffsets
from kafka_s3_platform.partitioners.keys import offsets_key
from kafka_s3_platform.sources.objects import ForeignObject
from kafka_s3_platform.store.objects import ObjectInfo, ObjectStore
from kafka_s3_platform.store.upload import Provenance


@dataclass(frozen=True)
class ToldOffsets:
    """How many records, the last one's offset, and the offset of each, None for what is not told.

    Of objects of others, the name may tell the last offset.

    `is_ours`: this platform wrote the object, and may have put records of others' offsets between its own.
    """

    count: int | None = None
    last: int | None = None
    offsets: KeptOffsets | None = None
    is_ours: bool = False


RECORD_COUNT = "record-count"
"""What the metadata of our own objects say besides their offsets."""


def is_ours(info: ObjectInfo) -> bool:
    """Whether this platform wrote the object, by its metadata."""
    return RECORD_COUNT in info.metadata or Provenance.of(info) is not None


def told_of(config: ConnectorConfig, store: ObjectStore, item: ForeignObject) -> ToldOffsets:
    """What is told of an object, by one look at it.

    Raises:
        IntegrityError: what is told is not true of the object's name, or cannot be understood.
    """
    info = store.head(item.key)
    if info is None:
        return ToldOffsets(last=item.last_offset)  # whoever opens it tells that it is gone
    count, last = (_number(info.metadata.get(name, "")) for name in (RECORD_COUNT, "last-offset"))
    kept = info.metadata.get(METADATA, "")
    text = _beside(config, store, item) if kept == BESIDE else "" if kept == REPEATED else kept
    if text:
        offsets = _parsed(text, item, config.store.limits.block_bytes)
        return ToldOffsets(offsets.count, offsets.last, offsets, is_ours=True)
    dense = None if kept else _dense(item.first_offset, count, last)
    last = item.last_offset if last is None else last
    return ToldOffsets(count, last, dense, is_ours=bool(kept) or is_ours(info))


def _dense(first: int | None, count: int | None, last: int | None) -> KeptOffsets | None:
    """Earlier versions told no more than this: enough where the records have no hole between them."""
    if first is None or not count or last is None or last - first + 1 != count:
        return None
    return KeptOffsets.dense(first, count)


def _beside(config: ConnectorConfig, store: ObjectStore, item: ForeignObject) -> str:
    """What is kept in an object of its own; nothing where that was lost."""
    key = offsets_key(item.key, config.layout.directory_delim)
    info = store.head(key)
    if info is None:
        return ""
    if info.size > config.store.limits.block_bytes:
        raise IntegrityError(f"object {key} has {info.size:,} bytes: it keeps no offsets of {item.key}")
    return store.get(key).decode(errors="replace")


def _parsed(text: str, item: ForeignObject, most_bytes: int) -> KeptOffsets:
    try:
        found = KeptOffsets.parse(text, most_bytes)
    except ValueError as err:
        raise IntegrityError(f"object {item.key}: the offsets that are kept with it cannot be read: {err}") from err
    if item.first_offset not in {None, found.first}:
        raise IntegrityError(
            f"object {item.key}: its name says that it begins at offset {item.first_offset}, what is kept with it says "
            f"{found.first}: it is a copy of another object, or was renamed"
        )
    return found


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() else None
