"""What objects hold: the records of one, with its keys and headers beside them, by the format of a source's file."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from kafka_s3_platform.config.plugins import FORMAT_READER, load_class
from kafka_s3_platform.config.settings import ConnectorConfig, ConverterSettings, LayoutSettings, SourceSettings
from kafka_s3_platform.errors import IntegrityError
from kafka_s3_platform.formats.aiven_reader import HEADERS, AivenReader
from kafka_s3_platform.formats.avro_reader import AvroReader
from kafka_s3_platform.formats.avro_schema import is_text
from kafka_s3_platform.formats.block_gzip import INDEX_SUFFIX, Block, read_index
from kafka_s3_platform.formats.block_gzip_reader import BlockGzipReader
from kafka_s3_platform.formats.bytes_reader import BytesReader
from kafka_s3_platform.formats.damage import beyond
from kafka_s3_platform.formats.envelopes import check_place, envelope_reader, is_envelope
from kafka_s3_platform.formats.field_reader import FieldReader
from kafka_s3_platform.formats.json_reader import JsonLinePayload, JsonReader
from kafka_s3_platform.formats.lenses_reader import LensesReader, Place
from kafka_s3_platform.formats.merge import offsets_of
from kafka_s3_platform.formats.parquet_reader import ParquetReader
from kafka_s3_platform.formats.reading import BatchReader, DatumPayload, ReadBatch, batched, bytes_payload
from kafka_s3_platform.formats.sink_lines import Base64Headers, Base64Lines, NullLines
from kafka_s3_platform.model.connect import Payload
from kafka_s3_platform.model.offsets import MAX_OFFSET, OffsetRange
from kafka_s3_platform.sources.blocks import WantedBlocks
from kafka_s3_platform.sources.objects import ForeignObject, ObjectSet
from kafka_s3_platform.sources.told import is_ours
from kafka_s3_platform.store.objects import ObjectFile, ObjectStore

Complaint = Callable[[int, dict[int, str]], str]
"""Given how many records an object has and which are bad: what is wrong with it, or nothing."""

HOLD_BYTES = 134_217_728
"""Objects that come to more are read twice instead of held: once to be sure of them, once to send them."""


class Contents:
    """Opens the objects of a source."""

    def __init__(self, config: ConnectorConfig, store: ObjectStore) -> None:
        self._config, self._store = config, store

    def blocks(self, objects: ObjectSet) -> tuple[Block, ...] | None:
        """Of an object with an index of its blocks; None of any other, and without an index."""
        limits = self._config.store.limits
        if self._config.layout.format != "block_gzip" or objects.value is None:
            return None
        index_key = f"{objects.name.key.removesuffix('.gz')}.{INDEX_SUFFIX}"
        index = self._store.head(index_key)
        if index is None:
            return None
        if index.size > limits.footer_bytes:
            raise beyond(index_key, f"has {index.size:,} bytes", "footer.bytes")
        return read_index(self._store.get(index_key), index_key, objects.name.size)

    def records(self, objects: ObjectSet, blocks: WantedBlocks | None = None) -> Iterator[ReadBatch]:
        """The records of an object, its keys and headers beside them; of one in blocks those of the wanted ones."""
        if is_envelope(self._config.layout.format):
            yield from self._envelope(objects.name)
            return
        readers = {o.part: self._reader(o) for o in objects.objects if blocks is None or o.part != "value"}
        if blocks is not None:
            readers["value"] = self._block_gzip(objects.name, blocks)
        parts = {part: reader.batches() for part, reader in readers.items()}
        yield from aligned(parts, objects.name.key)

    def _envelope(self, item: ForeignObject) -> Iterator[ReadBatch]:
        """Whole records, which are where the object's key says that they are."""
        offsets = OffsetRange(item.first_offset or 0, MAX_OFFSET)
        limits = self._config.store.limits
        reader = envelope_reader(self._config.layout.format, self._opened(item), item.key, limits)
        for batch in reader.batches():
            check_place(batch, item.kafka_partition, offsets, item.key)
            if batch.num_rows and batch.column("topic").unique().to_pylist() != [item.topic]:
                raise IntegrityError(f"object {item.key} holds records of another topic than {item.topic}")
            yield ReadBatch(
                bytes_payload(batch.column("value")),
                key=bytes_payload(batch.column("key")),
                headers=batch.column("headers"),
                offsets=offsets_of(batch),
                timestamps=batch.column("timestamp").cast(pa.int64()).to_numpy(),
                timestamp_types=batch.column("timestampType"),
            )

    def _reader(self, item: ForeignObject) -> BatchReader:
        layout, source = self._config.layout, self._config.source or SourceSettings()
        format_name = {"value": layout.format, "key": layout.keys_format, "headers": layout.headers_format}[item.part]
        if format_name is not None and format_name.startswith("lenses."):
            kind, place = format_name.removeprefix("lenses."), Place(item.topic, item.kafka_partition)
            return LensesReader(
                self._opened(item), item.key, kind, place, source, self._codec, self._config.store.limits
            )
        bare = source.bare if item.part == "value" else None
        is_enveloped = format_name is not None and format_name.startswith("aiven.")
        if is_enveloped or bare not in {None, "jsonl"}:
            kind = (format_name or "").removeprefix("aiven.") if is_enveloped else bare or ""
            return AivenReader(self._opened(item), item.key, kind, source, layout.codec, self._config.store.limits)
        reader = self._plain_reader(item, format_name or "")
        if item.part == "value" and (source.offset_field or source.timestamp_field):
            reader = FieldReader(reader, source)
        if item.part not in source.base64:
            return NullLines(reader) if bare else reader
        if item.part == "headers":
            # Our own sink, whose objects have metadata, writes headers as text where it can.
            return reader if is_ours(self._opened(item).info) else Base64Headers(reader)
        return Base64Lines(reader) if format_name == "json" else reader

    def _plain_reader(self, item: ForeignObject, format_name: str) -> BatchReader:
        layout, key, limits = self._config.layout, item.key, self._config.store.limits
        opened = self._opened(item)
        # Ours always end with a separator, which no value holds; a count alone does not find half a record at the end.
        is_own = is_ours(opened.info)
        match format_name:
            case "avro":
                return AvroReader(opened, key, limits)
            case "json":
                return JsonReader(opened, key, self._codec, open_end=not is_own, limits=limits)
            case "bytes":
                return BytesReader(
                    opened,
                    key,
                    layout.bytes_separator,
                    (self._codec or "none") if is_own else self._codec,
                    open_end=not is_own and self._may_end_open,
                    any_bytes=is_own or self._has_any_bytes(item),
                    limits=limits,
                )
            case "parquet":
                wrapped = self._converter(item).format in {"STRING", "BYTES"}
                return ParquetReader(opened, key, item.part, wrapped=wrapped, limits=limits)
            case "block_gzip":
                any_bytes = is_own or self._has_any_bytes(item)
                return BytesReader(opened, key, "\n", "gzip", any_bytes=any_bytes, limits=limits)
        return _Plugin(load_class(format_name, FORMAT_READER), layout, opened, key)

    @property
    def _codec(self) -> str:
        """What the file says that objects are compressed with whose names do not; empty where it does not either."""
        layout = self._config.layout
        is_named = (self._config.source or SourceSettings()).codec_is_named
        # Of Connect's own names, none is said by what they do not end with.
        codec = "none" if layout.key_layout == "connect" and layout.extension is None else layout.codec
        return codec if is_named or codec != "none" else ""

    @property
    def _may_end_open(self) -> bool:
        """Whether values of bytes may end without a separator. A sink that gives Connect's names writes one."""
        layout, source = self._config.layout, self._config.source or SourceSettings()
        return layout.key_layout in {"template", "zooz"} or source.separator_is_named

    def _has_any_bytes(self, item: ForeignObject) -> bool:
        """Whether the separator may be believed: the file names it, or objects of another format count records too."""
        layout = self._config.layout
        beside = {"value": layout.format, "key": layout.keys_format, "headers": layout.headers_format}
        if item.is_tombstone:
            del beside["value"]
        counted = any(name not in {None, "bytes"} for part, name in beside.items() if part != item.part)
        return counted or (self._config.source or SourceSettings()).separator_is_named

    def _block_gzip(self, item: ForeignObject, blocks: WantedBlocks) -> BatchReader:
        opened = self._opened(item)

        def read_range(start: int, length: int) -> bytes:
            return self._store.read_range(item.key, start, start + length, opened.info.etag)

        return BlockGzipReader(read_range, blocks.blocks, item.key, blocks.wanted, self._config.store.limits)

    def _opened(self, item: ForeignObject) -> Any:
        opened = self._store.open(item.key, item.etag)
        if opened.info.size != item.size:
            raise IntegrityError(f"object {item.key} has {opened.info.size} bytes, listed were {item.size}")
        return opened

    def _converter(self, item: ForeignObject) -> ConverterSettings:
        return self._config.records.key if item.part == "key" else self._config.records.value


def as_kafka(payload: Payload, converter: ConverterSettings) -> Payload:
    """Of text and bytes, which their converter takes as they are, the bytes; all else as it was read."""
    if converter.format not in {"STRING", "BYTES"}:
        return payload
    if isinstance(payload, DatumPayload) and all(map(is_text, payload.schemas)):
        return bytes_payload(pa.array([o.encode() if isinstance(o, str) else o for o in payload.objects], pa.binary()))
    if isinstance(payload, JsonLinePayload) and converter.format == "STRING":
        texts = zip(payload.objects, pa.array(payload.raw).to_pylist(), strict=True)
        return bytes_payload(pa.array([o.encode() if isinstance(o, str) else raw for o, raw in texts], pa.binary()))
    return payload


def aligned(parts: dict[Any, Iterator[ReadBatch]], key: str) -> Iterator[ReadBatch]:
    """Values, keys and headers of the same records joined by position.

    Raises:
        IntegrityError: there are not as many of one as of another.
    """
    held: dict[Any, ReadBatch] = {}
    while True:
        for part, batches in parts.items():
            if part not in held and (found := next((b for b in batches if len(b)), None)) is not None:
                held[part] = found
        if not held:
            return
        if missing := [part for part in parts if part not in held]:
            raise IntegrityError(f"object {key} has fewer records of {' and '.join(missing)} than of {', '.join(held)}")
        size = min(map(len, held.values()))
        yield _joined({part: batch.take(np.arange(size)) for part, batch in held.items()}, size)
        rest = {part: batch.take(np.arange(size, len(batch))) for part, batch in held.items() if len(batch) > size}
        held = rest


def _joined(parts: dict[Any, ReadBatch], size: int) -> ReadBatch:
    bad = {row: why for batch in parts.values() for row, why in batch.bad.items()}
    value, key = parts.get("value"), parts.get("key")
    headers = parts.get("headers")
    if value is None:
        value = ReadBatch(bytes_payload(pa.nulls(size, pa.binary())))
    return ReadBatch(
        value.value,
        bad,
        value.key if key is None else key.value,
        value.headers if headers is None else _headers(headers.value),
        value.offsets,
        value.timestamps,
    )


def _headers(payload: Payload) -> pa.Array:
    """Headers of each record, as the sink wrote them: text is its UTF-8; none are null."""
    found = [o["headers"] if isinstance(o, dict) else o for o in payload.objects]
    rows = [
        [{"key": h["key"], "value": h["value"].encode() if isinstance(h["value"], str) else h["value"]} for h in one]
        if one
        else None
        for one in found
    ]
    return pa.array(rows, HEADERS)


@dataclass(frozen=True)
class Checked:
    """The batches of an object that was read to its end without fault; `held_bytes` of them are in memory for that."""

    batches: Iterator[ReadBatch]
    count: int
    is_held: bool
    held_bytes: int


def checked(
    opened: Callable[[], Iterator[ReadBatch]], complaint: Complaint, key: str, most_bad: int, hold_bytes: int
) -> Checked:
    """All batches, after a look at every one of them: held where they are small, else read again."""
    held: list[ReadBatch] | None = []
    bad: dict[int, str] = {}
    size = count = 0
    for batch in opened():
        bad |= {count + row: why for row, why in batch.bad.items()}
        if len(bad) > most_bad:
            raise beyond(key, f"has more than {most_bad:,} lines that cannot be read", "bad.records")
        count += len(batch)
        size += batch.nbytes
        if held is not None and size > hold_bytes:
            held = None
        if held is not None:
            held.append(batch)
    if what := complaint(count, bad):
        raise IntegrityError(what)
    if held is None:
        return Checked(opened(), count, is_held=False, held_bytes=0)
    return Checked(iter(held), count, is_held=True, held_bytes=size)


class _Plugin:
    """A user's own format: its class method `read(source, key, layout)` gives the bytes of each value."""

    def __init__(self, kind: Any, layout: LayoutSettings, source: ObjectFile, key: str) -> None:
        self._values: Sequence[bytes | None] = kind.read(source, key, layout)

    def batches(self) -> Iterator[ReadBatch]:
        for values in batched(self._values):
            yield ReadBatch(bytes_payload(pa.array(values, pa.binary())))
