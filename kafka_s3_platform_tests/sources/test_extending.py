"""The examples of docs/extending.md and docs/transforms.md, as they are printed there, and classes that fail."""

import io
import json
import re
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pydantic import SecretStr

from kafka_s3_platform.connect.config.files import load_connector
from kafka_s3_platform.connect.config.zooz import convert_environment
from kafka_s3_platform.connect.converters import ConvertedPayload, new_converter
from kafka_s3_platform.connect.converters.encoding import new_encoder
from kafka_s3_platform.connect.sources.sample import Sample, make_sample_keys
from kafka_s3_platform.connect.sources.scan import SourceListing
from kafka_s3_platform.connect.transforms import new_chain
from kafka_s3_platform.core.config.settings import ConnectorConfig, ConverterSettings, LayoutSettings
from kafka_s3_platform.core.errors import ConfigError, PermanentError, TransientError
from kafka_s3_platform.core.formats.format_io import new_writer
from kafka_s3_platform.core.layouts.new_layout import new_segment_layout
from kafka_s3_platform.core.layouts.segment_key import SegmentKey
from kafka_s3_platform.core.model.batches import RECORD_SCHEMA
from kafka_s3_platform.core.model.connect import NO_SCHEMA, ConnectBatch, Payload, Schema
from kafka_s3_platform.core.partitioners.extractors import extract_times, new_extractor
from kafka_s3_platform.core.partitioners.partitioners import new_partitioner
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.converters.values import convert_rows
from kafka_s3_platform_tests.kafka.topics import values
from kafka_s3_platform_tests.restore.foreign import SourceLab, restored
from kafka_s3_platform_tests.sources.memory import MemoryStore, source, stream
from kafka_s3_platform_tests.support import NOON, Sent, archived

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
    names = ("partitioner", "timestamp_extractor", "format", "mappers", "converter", "key_layout")
    monkeypatch.setenv("KAFKA_S3_PLUGINS", ",".join(f"shown_{name}" for name in names))


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
    return load_connector(path, tmp_path / "worker.properties", {})


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
from kafka_s3_platform.plugins import ExtractedTimes, KeyReader, RecordExtractor
from kafka_s3_platform.plugins import SegmentKey, SegmentLayout, TransientError

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

class Decoder:
    def __init__(self, options, topic, is_key):
        self.secret = options["password"]
        if self.secret == "none":
            raise RuntimeError(f"no login with {self.secret}")
    def to_connect_data(self, data):
        if data == b"float":
            raise KeyError(f"{self.secret} knows no float")
        if data == b"large":
            return "string", data
        if data == b"other":
            raise TransientError(f"{self.secret} is not served now")
        return None, data.decode()

class Encoder(Decoder):
    def from_connect_data(self, schema, value):
        if value == "text":
            return value
        raise OverflowError(f"{self.secret} is too small")

class WithoutTopic(SegmentLayout):
    def key(self, segment):
        return f"{self.root}{segment.kafka_partition}/{segment.encoded_partition}/{segment.first_offset}"
    def parse(self, key):
        _, number, *folders, offset = key.split("/")
        return SegmentKey("", "/".join(folders), int(number), int(offset))

class OnlyRead(KeyReader):
    def read(self, key):
        return None

class Alone:
    def read(self, key): ...
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


def own_converter(name: str, login: str = "s3cret") -> ConverterSettings:
    return ConverterSettings(format=f"faulty_plugins.{name}", plugin_options={"password": SecretStr(login)})


def decoded(settings: ConverterSettings, *values: bytes) -> ConvertedPayload:
    converter = new_converter(settings, "orders", is_key=False)
    return converter.convert(pa.array(values, pa.binary()), np.arange(len(values)))


@pytest.mark.usefixtures("_faulty")
def test_whatever_a_converter_raises_is_the_fault_of_one_record_and_shows_no_option() -> None:
    found = decoded(own_converter("Decoder"), b"float", b"fine", b"large")
    assert found.payload.objects == ["fine"]
    assert [(failure.offset, failure.executing_class) for failure in found.failures] == [
        (0, "faulty_plugins.Decoder"),
        (2, "faulty_plugins.Decoder"),
    ]
    assert (
        "the value of the record at offset 0 of topic orders cannot be converted: KeyError: '"
        in found.failures[0].message
    )
    assert "has to return a Schema or None first, not str" in found.failures[1].message
    assert not any("s3cret" in failure.message for failure in found.failures)


@pytest.mark.usefixtures("_faulty")
@pytest.mark.parametrize(
    ("make", "error", "said"),
    [
        (lambda: decoded(own_converter("Decoder"), b"other"), TransientError, "is not served now"),
        (
            lambda: new_converter(own_converter("Decoder", "none"), "orders", is_key=True),
            PermanentError,
            r"faulty_plugins\.Decoder failed, made for keys of topic orders: RuntimeError: no login with",
        ),
        (
            lambda: new_encoder(own_converter("Decoder"), "orders", is_key=False),
            ConfigError,
            "Decoder has no from_connect_data, so a restore cannot write values with it",
        ),
    ],
)
def test_a_converter_that_cannot_work_ends_the_run(
    make: Callable[[], object], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said) as raised:
        make()
    assert "s3cret" not in str(raised.value)


@pytest.mark.usefixtures("_faulty")
def test_a_value_that_a_converter_cannot_write_is_the_fault_of_one_record() -> None:
    settings = own_converter("Encoder")
    encoded = new_encoder(settings, "orders", is_key=False).encode(decoded(settings, b"text", b"fine").payload)
    assert encoded.column.to_pylist() == [None, None]
    assert "from_connect_data has to return bytes, not str" in encoded.bad[0]
    assert "OverflowError" in encoded.bad[1]
    assert "s3cret" not in encoded.bad[1]


@pytest.mark.usefixtures("_faulty")
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("WithoutTopic", "made 'topics/0/year=2026/7' of .* a key has to begin with 'topics/', and to hold topic"),
        ("OnlyRead", "the keys of objects: faulty_plugins.OnlyRead only reads keys"),
        ("Alone", "faulty_plugins.Alone has to extend SegmentLayout of kafka_s3_platform.plugins, or KeyReader"),
    ],
)
def test_a_layout_with_which_two_objects_could_get_one_key_is_refused(name: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        new_segment_layout(LayoutSettings(key_layout=f"faulty_plugins.{name}")).key(SegmentKey("t", "year=2026", 0, 7))


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
    scanned = SourceListing(config, store=MemoryStore({key: b"{}\n", other: b"{}\n"}))
    (item,) = list(scanned)
    assert (item.key, item.window) == (key, (1_552_348_800_000, 1_552_435_200_000))
    assert scanned.report.counts["misplaced"] == 1


OWN = """\
name=trees
connector.class=io.confluent.connect.s3.{class_name}
topics={topic}
s3.bucket.name=confluent-kafka-connect-s3-testing
archive.start.hour=2025-12-01T00:00
archive.allowed.lateness.ms=0
format.class={format_name}
archive.key.layout=shown_key_layout.FolderOfEachPartition
"""
CONVERTER = "value.converter=shown_converter.TextConverter\nvalue.converter.separator=;\n"
NAME = "topics/{topic}/0/partition=0/00000000000000000000"


@pytest.mark.parametrize(
    ("format_name", "extension", "body", "reading", "restored_values"),
    [
        (
            "shown_format.CsvFormat",
            "csv",
            b"offset,id,kind\n0,7,spruce\n2,8,birch\n",
            "value.converter=ByteArrayConverter\n",
            [b'{"id": "7", "kind": "spruce"}', b'{"id": "8", "kind": "birch"}'],
        ),
        (
            "JsonFormat",
            "json",
            b'{"id":7,"kind":"spruce"}\n{"id":8,"kind":"birch"}\n',
            CONVERTER,
            [b"7;spruce", b"8;birch"],
        ),
    ],
)
def test_a_format_a_converter_and_a_layout_of_one_s_own_archive_a_topic_and_restore_it(
    lab: Lab, tmp_path: Path, format_name: str, extension: str, body: bytes, reading: str, restored_values: list[bytes]
) -> None:
    files = SourceLab(lab.kafka, lab.topic, lab.create, lab.fixture, tmp_path)
    lab.create_topic()
    lab.produce([Sent(value, timestamp=NOON) for value in (b"7;spruce", b"no tree", b"8;birch", None)])
    keys = {"topic": lab.topic, "format_name": format_name}
    tolerance = "errors.tolerance=all\nbehavior.on.null.values=ignore\n"
    archived(files.load(OWN.format(class_name="S3SinkConnector", **keys) + CONVERTER, tolerance))
    key = f"{NAME.format(topic=lab.topic)}.{extension}"
    assert lab.s3.get_object(Bucket=lab.store.bucket, Key=key)["Body"].read() == body

    source = OWN.format(class_name="source.S3SourceConnector", **keys).replace("archive.start", "# archive.start")
    report = restored(files.load(source.replace("archive.allowed", "# archive.allowed") + reading), (), "{topic}-copy")
    assert (report.sent_count, report.verified) == (2, True)
    assert values(lab.kafka, f"{lab.topic}-copy") == restored_values
