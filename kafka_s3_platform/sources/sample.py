"""The keys of the objects that would begin with a sample record."""

import json
from dataclasses import dataclass
from datetime import datetime, timezone

import numpy as np
import pyarrow as pa

from kafka_s3_platform.config.settings import ConnectorConfig, LayoutSettings
from kafka_s3_platform.errors import ConfigError
from kafka_s3_platform.formats.parts import ObjectPart
from kafka_s3_platform.formats.writers import extension
from kafka_s3_platform.model.connect import NO_SCHEMA, ConnectBatch, Int64s, Payload
from kafka_s3_platform.model.record import RECORD_SCHEMA
from kafka_s3_platform.partitioners.extractors import new_extractor
from kafka_s3_platform.partitioners.key_layouts import new_key_layout
from kafka_s3_platform.partitioners.partitioners import new_partitioner
from kafka_s3_platform.sources.layouts import new_key_reader, template_of_values

HOUR_MS = 3_600_000


@dataclass(frozen=True)
class Sample:
    """A record at offset 0 of kafka partition 0. `value` is JSON text; None where nothing of it is known."""

    topic: str
    time: datetime
    value: str | None = None


def sample_keys(config: ConnectorConfig, sample: Sample) -> tuple[str, ...]:
    """The keys of the objects of values, keys and headers, or of whole records, that begin with the sample.

    Transforms are left out: a value of the sample is what they have made of it. Of a source with a template of
    keys, that.

    Raises:
        ConfigError: the value is no JSON, or the record would fail, such as for a field that it does not have.
    """
    layout = config.layout
    if config.source is not None and layout.key_layout == "template":
        return (new_key_reader(config).root + template_of_values(layout),)
    if layout.key_layout == "lenses":
        ending = {"bytes": "text"}.get(layout.format, layout.format.rpartition(".")[2])
        return (f"{new_key_reader(config).root}{sample.topic}/0/000000000000_<earliest>_<latest>.{ending}",)
    batch = _batch(sample)
    found = new_partitioner(layout).encode(batch, _times(layout, batch))
    if found.failures:
        raise ConfigError(f"the sample has no folder: {found.failures[0].message}; give its value")
    encoded = found.names[int(found.codes[0])]
    hour_ms = int(sample.time.timestamp() * 1000) // HOUR_MS * HOUR_MS
    keys = new_key_layout(layout)
    return tuple(
        keys.key(sample.topic, encoded, 0, 0, extension(layout, part), timestamp_ms=hour_ms) for part in _parts(layout)
    )


def _parts(layout: LayoutSettings) -> list[ObjectPart]:
    beside: dict[ObjectPart, str | None] = {"key": layout.keys_format, "headers": layout.headers_format}
    return ["value", *(part for part, name in beside.items() if name)]


def _batch(sample: Sample) -> ConnectBatch:
    value = b"{}" if sample.value is None else sample.value.encode()
    row = {"topic": sample.topic, "partition": 0, "offset": 0, "timestamp": sample.time.astimezone(timezone.utc)}
    records = pa.RecordBatch.from_pylist([{**row, "timestampType": 0, "value": value}], RECORD_SCHEMA)
    try:
        decoded = json.loads(value)
    except ValueError as err:
        raise ConfigError(f"the sample's value is no JSON: {err}") from err
    codes = np.full(1, NO_SCHEMA, np.int32)
    key = Payload(records.column("key"), codes, ())
    return ConnectBatch(records, key, Payload(None, codes, (), [decoded]))


def _times(layout: LayoutSettings, batch: ConnectBatch) -> Int64s:
    if layout.timestamp_extractor in {"Record", "Wallclock"}:
        return batch.timestamps
    found = new_extractor(layout).extract(batch)
    if found.times.null_count:
        reason = found.reasons.get(0, "the timestamp extractor has no answer")
        raise ConfigError(f"the sample has no time: {reason}; give its value")
    times: Int64s = found.times.to_numpy()
    return times
