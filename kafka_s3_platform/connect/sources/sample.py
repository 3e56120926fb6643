"""Makes the keys of objects for a sample record, for commands and errors to show how an object would be named."""

import json
from dataclasses import dataclass, replace
from datetime import datetime, timezone

import numpy as np
import pyarrow as pa

from kafka_s3_platform.connect.config.formats_of_connect import find_lenses_endings
from kafka_s3_platform.connect.layouts.template import complete_template
from kafka_s3_platform.core.config.settings import ConnectorConfig, LayoutSettings
from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform.core.formats.format_io import find_extension
from kafka_s3_platform.core.layouts.new_layout import new_key_reader, new_segment_layout
from kafka_s3_platform.core.layouts.segment_key import SegmentKey, list_parts
from kafka_s3_platform.core.model.batches import RECORD_SCHEMA
from kafka_s3_platform.core.model.connect import NO_SCHEMA, ConnectBatch, Int64s, Payload
from kafka_s3_platform.core.model.times import HOUR_MS
from kafka_s3_platform.core.partitioners.extractors import extract_times, new_extractor
from kafka_s3_platform.core.partitioners.partitioners import new_partitioner


@dataclass(frozen=True)
class Sample:
    """A record at offset 0 of kafka partition 0. `value` is JSON text, or None if it is unknown."""

    topic: str
    time: datetime
    value: str | None = None


def make_sample_keys(config: ConnectorConfig, sample: Sample) -> tuple[str, ...]:
    """Make the keys of the objects of values, keys and headers, or of whole records, that would begin with the sample.

    Transforms do not run, since the sample's value is their result. A source with a template gets the template itself.
    Raises ConfigError if the value is not JSON, or if the record would fail, for example because it lacks a field.
    """
    layout = config.layout
    if config.source is not None and layout.key_layout == "template":
        return (new_key_reader(config).root + complete_template(layout),)
    if layout.key_layout == "lenses":
        ending = find_lenses_endings(layout.format)[0]
        return (f"{new_key_reader(config).root}{sample.topic}/0/000000000000_<earliest>_<latest>{ending}",)
    batch = _build_sample_batch(sample)
    folders = new_partitioner(layout).encode(batch, _extract_times(layout, batch))
    if folders.failures:
        raise ConfigError(f"the sample has no folder: {folders.failures[0].message}; give its value")
    encoded = folders.names[int(folders.codes[0])]
    hour_ms = int(sample.time.timestamp() * 1000) // HOUR_MS * HOUR_MS
    keys = new_segment_layout(layout)
    segment = SegmentKey(sample.topic, encoded, 0, 0, hour_ms=hour_ms)
    return tuple(keys.key(replace(segment, extension=find_extension(layout, part))) for part in list_parts(layout))


def _build_sample_batch(sample: Sample) -> ConnectBatch:
    """Build a batch of the one record. Raise ConfigError if its value is not JSON."""
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


def _extract_times(layout: LayoutSettings, batch: ConnectBatch) -> Int64s:
    """Return the sample's time for its folder, from the layout's extractor. Raise ConfigError if it finds none."""
    if layout.timestamp_extractor in {"Record", "Wallclock"}:
        return batch.timestamps
    extracted = extract_times(new_extractor(layout), batch)
    if extracted.times.null_count:
        reason = extracted.reasons.get(0, "the timestamp extractor has no answer")
        raise ConfigError(f"the sample has no time: {reason}; give its value")
    times: Int64s = extracted.times.to_numpy()
    return times
