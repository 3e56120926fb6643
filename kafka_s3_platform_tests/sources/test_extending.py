"""The examples of docs/extending.md and docs/transforms.md, as they are printed there, and classes that fail."""

import io
import json
import re
from datetime import datetime, timezone
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from kafka_s3_platform.connect.config.files import load_connector
from kafka_s3_platform.connect.config.zooz import convert_environment
from kafka_s3_platform.connect.sources.sample import Sample, make_sample_keys
from kafka_s3_platform.connect.sources.scan import scan_objects
from kafka_s3_platform.connect.transforms import new_chain
from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.errors import PermanentError
from kafka_s3_platform.core.formats.format_io import new_writer
from kafka_s3_platform.core.model.batches import RECORD_SCHEMA
from kafka_s3_platform.core.model.connect import NO_SCHEMA, ConnectBatch, Payload, Schema
from kafka_s3_platform.core.partitioners.extractors import extract_times, new_extractor
from kafka_s3_platform.core.partitioners.partitioners import new_partitioner
from kafka_s3_platform_tests.converters.values import convert_rows
from kafka_s3_platform_tests.sources.memory import MemoryStore, source, stream

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(autouse=True)
def _examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first block of Python of each section is a module `shown_<section>`, which the installation allows."""
    sections = r"^## (.+?)\n(.*?)(?=^## |\Z)"
    shown = ((DOCS / name).read_text() for name in ("transforms.md", "extending.md"))
    for title, text in (pair for each in shown for pair in re.findall(sections, each, re.MULTILINE | re.DOTALL)):
        if block := re.search(r"```python\n(.*?)```", text, re.DOTALL):
            name = f"shown_{title.lower().replace(' ', '_')}"
            (tmp_path / f"{name}.py").write_text(block[1])
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("KAFKA_S3_PLUGINS", "shown_partitioner,shown_timestamp_extractor,shown_format,shown_mappers")


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
    values = convert_rows(config.records.value, lines).payload
    found = new_extractor(config.layout).extract(batch_of(values))
    assert found.times.to_pylist() == [1_552_392_001_003, None, None]
    assert [found.reasons[n].split(":")[0] for n in (1, 2)] == ["ValueError", "UnicodeDecodeError"]


def test_the_printed_mapper_and_the_printed_extractor_work_together(tmp_path: Path) -> None:
    """The mapper makes text of bytes, and the extractor failed the run for it."""
    named = {"transforms": "upper", "transforms.upper.type": "shown_mappers.UpperCaseMapper"}
    config = converted(tmp_path, **{"timestamp.extractor": "shown_timestamp_extractor.LogLineTimestamp"}, **named)
    lines = batch_of(Payload(pa.array([b"2019-03-12 12:00:01.003 - started"]), np.full(1, NO_SCHEMA, np.int32), ()))
    mapped = new_chain(config.records.transforms, "t").apply(lines).batch
    assert mapped.value.objects == ["2019-03-12 12:00:01.003 - STARTED"]
    assert extract_times(new_extractor(config.layout), mapped).times.to_pylist() == [1_552_392_001_003]


FAULTY = """
from kafka_s3_platform.plugins import ExtractedTimes, RecordExtractor

class OfEach(RecordExtractor):
    def timestamp(self, record):
        return {b"float": 1.5, b"large": 1 << 64, b"fine": 7}.get(record.value) or record.value.missing

class OfAll:
    def __init__(self, layout): pass
    def extract(self, batch):
        return batch.missing

class OfFew(OfAll):
    def extract(self, batch):
        return ExtractedTimes(batch.records.column("offset")[:1])

class OfNone(OfAll):
    def __init__(self, layout):
        raise RuntimeError("no")

class Folders(OfAll):
    def encode(self, batch, times_ms):
        return batch.missing
    def times(self, folder): ...
"""


@pytest.fixture
def _faulty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "faulty_plugins.py").write_text(FAULTY)
    monkeypatch.setenv("KAFKA_S3_PLUGINS", "faulty_plugins")


THREE = Payload(pa.array([b"float", b"large", b"other", b"fine"]), np.full(4, NO_SCHEMA, np.int32), ())


@pytest.mark.usefixtures("_faulty")
def test_whatever_an_extractor_of_records_raises_is_the_fault_of_one_record(tmp_path: Path) -> None:
    config = converted(tmp_path, **{"timestamp.extractor": "faulty_plugins.OfEach"})
    found = extract_times(new_extractor(config.layout), batch_of(THREE))
    assert found.times.to_pylist() == [None, None, None, 7]
    assert [found.reasons[n].split(":")[0] for n in range(3)] == ["TypeError", "OverflowError", "AttributeError"]


@pytest.mark.usefixtures("_faulty")
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("OfAll", r"faulty_plugins\.OfAll failed, as timestamp.extractor of t-0, offsets 0 to 3: AttributeError"),
        ("OfFew", r"OfFew\.extract, as timestamp.extractor of t-0, offsets 0 to 3, has to return"),
        ("OfNone", r"faulty_plugins\.OfNone failed, made for timestamp.extractor: RuntimeError: no"),
    ],
)
def test_an_extractor_of_batches_that_fails_is_named_with_the_records(tmp_path: Path, name: str, said: str) -> None:
    config = converted(tmp_path, **{"timestamp.extractor": f"faulty_plugins.{name}"})
    with pytest.raises(PermanentError, match=said):
        extract_times(new_extractor(config.layout), batch_of(THREE))


@pytest.mark.usefixtures("_faulty")
def test_a_partitioner_that_fails_is_named_with_the_records(tmp_path: Path) -> None:
    config = converted(tmp_path, **{"partitioner.class": "faulty_plugins.Folders"})
    with pytest.raises(PermanentError, match=r"faulty_plugins\.Folders failed, as partitioner.class of t-0, offsets 0"):
        new_partitioner(config.layout).encode(batch_of(THREE), np.zeros(4, np.int64))


def test_a_format_of_one_s_own_reads_what_it_wrote() -> None:
    schema = Schema('{"type":"record","name":"R","fields":[{"name":"a","type":"string"},{"name":"b","type":"int"}]}')
    config, body = source({"format": "shown_format.CsvFormat"}), io.BytesIO()
    writer = new_writer(body, config.layout, "value", schema)
    rows = [{"a": "x", "b": 1}, {"a": "y", "b": 2}]
    writer.write(batch_of(Payload(None, np.zeros(2, np.int32), (schema,), rows)))
    writer.close({})
    folder = "topics/t/partition=0"
    (batch,) = stream(config, {f"{folder}/t+0+0000000005.csv": body.getvalue(), f"{folder}/x.json": b""})
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
