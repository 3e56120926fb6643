"""The examples of docs/extending.md, as they are printed there."""

import io
import json
import re
from datetime import datetime, timezone
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from kafka_s3_platform.config.files import load_connector
from kafka_s3_platform.config.settings import ConnectorConfig
from kafka_s3_platform.config.zooz import convert_environment
from kafka_s3_platform.converters import new_converter
from kafka_s3_platform.formats.writers import new_writer
from kafka_s3_platform.model.connect import NO_SCHEMA, ConnectBatch, Payload, Schema
from kafka_s3_platform.model.record import RECORD_SCHEMA
from kafka_s3_platform.partitioners.extractors import new_extractor
from kafka_s3_platform.sources.objects import group_objects
from kafka_s3_platform.sources.read import ForeignStream
from kafka_s3_platform.sources.sample import Sample, make_sample_keys
from kafka_s3_platform.sources.scan import scan_objects
from kafka_s3_platform_tests.sources.memory import MemoryStore, source

DOCUMENT = Path(__file__).parents[2] / "docs" / "extending.md"


@pytest.fixture(autouse=True)
def _examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first block of Python of each section is a module `shown_<section>`, which the installation allows."""
    sections = re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    for title, text in sections:
        if block := re.search(r"```python\n(.*?)```", text, re.DOTALL):
            name = f"shown_{title.lower().replace(' ', '_')}"
            (tmp_path / f"{name}.py").write_text(block[1])
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("KAFKA_S3_PLUGINS", "shown_partitioner,shown_timestamp_extractor,shown_format")


def batch_of(payload: Payload) -> ConnectBatch:
    rows = [
        {"topic": "t", "partition": 0, "offset": n, "timestamp": 0, "timestampType": 0} for n in range(len(payload))
    ]
    records = pa.RecordBatch.from_pylist(rows, RECORD_SCHEMA)
    return ConnectBatch(
        records, Payload(records.column("key"), np.full(len(payload), NO_SCHEMA, np.int32), ()), payload
    )


def converted(tmp_path: Path, **more: str) -> ConnectorConfig:
    env = {"KAFKA_HOST": "a:9092", "SOURCE_KAFKA_TOPIC": "t", "S3_BUCKET_NAME": "bucket"}
    path = tmp_path / "zooz.json"
    path.write_text(json.dumps({**convert_environment(env).keys, **more}))
    return load_connector(path, tmp_path / "worker.properties", {}).config


def test_the_extractor_reads_the_times_of_what_convert_writes(tmp_path: Path) -> None:
    config = converted(tmp_path, **{"timestamp.extractor": "shown_timestamp_extractor.LogLineTimestamp"})
    lines = [b"2019-03-12 12:00:01.003 - INFO - service started", b"no time", b"\xff"]
    values = new_converter(config.records.value, "t", is_key=False).convert(pa.array(lines), np.arange(3)).payload
    found = new_extractor(config.layout).extract(batch_of(values))
    assert found.times.to_pylist() == [1_552_392_001_003, None, None]
    assert [found.reasons[n].split(":")[0] for n in (1, 2)] == ["ValueError", "UnicodeDecodeError"]


def test_a_format_of_one_s_own_reads_what_it_wrote() -> None:
    schema = Schema('{"type":"record","name":"R","fields":[{"name":"a","type":"string"},{"name":"b","type":"int"}]}')
    config, body = source({"format": "shown_format.CsvFormat"}), io.BytesIO()
    writer = new_writer(body, config.layout, "value", schema)
    rows = [{"a": "x", "b": 1}, {"a": "y", "b": 2}]
    writer.write(batch_of(Payload(None, np.zeros(2, np.int32), (schema,), rows)))
    writer.close({})
    store = MemoryStore(
        {"topics/t/partition=0/t+0+0000000005.csv": body.getvalue(), "topics/t/partition=0/x.json": b""}
    )
    (group,) = group_objects(scan_objects(config, store=store))
    (batch,) = ForeignStream(config, group, store)
    assert batch.column("value").to_pylist() == [b'{"a": "x", "b": "1"}', b'{"a": "y", "b": "2"}']
    assert batch.column("offset").to_pylist() == [5, 6]


def test_a_partitioner_of_one_s_own_reads_the_folders_that_it_makes() -> None:
    layout = {
        "format": "json",
        "partitioner": "shown_partitioner.FieldAndTimePartitioner",
        "partition_fields": ("country",),
        "path_format": "'dt'=YYYY-MM-dd",
        "partition_duration_ms": 86_400_000,
    }
    config = source(layout, ("t",), behavior_on_error="ignore")
    (key,) = make_sample_keys(config, Sample("t", datetime(2019, 3, 12, tzinfo=timezone.utc), '{"country":"DE"}'))
    assert key == "topics/t/country=DE/dt=2019-03-12/t+0+0000000000.json"
    other = key.replace("country=DE/", "")
    scanned = scan_objects(config, store=MemoryStore({key: b"{}\n", other: b"{}\n"}))
    (item,) = list(scanned)
    assert (item.key, item.window) == (key, (1_552_348_800_000, 1_552_435_200_000))
    assert scanned.report.counts["misplaced"] == 1
