"""A sink's file names converters that its envelope does without: restores that change records decode with them."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from kafka_s3_platform.config.files import load_connector
from kafka_s3_platform.config.settings import ConnectorConfig
from kafka_s3_platform.errors import ConfigError
from kafka_s3_platform.model.notes import DoubtNote
from kafka_s3_platform.restore.archive_source import ArchiveSource
from kafka_s3_platform.restore.outgoing.keys import parse_outgoing
from kafka_s3_platform.restore.outgoing.stream import OutgoingStream
from kafka_s3_platform.restore.outgoing.values import ValueSettings, new_values
from kafka_s3_platform.restore.request import RestoreRequest
from kafka_s3_platform_tests.restore.outgoing.test_values import LONG, NINE, records

SINK = {"name": "events", "topics": "t", "s3.bucket.name": "bucket"}
SOURCE = SINK | {
    "connector.class": "io.confluent.connect.s3.source.S3SourceConnector",
    "format.class": "kafka_s3_platform.formats.EnvelopeJsonFormat",
}
JSON = {"value.converter": "org.apache.kafka.connect.json.JsonConverter", "value.converter.schemas.enable": "false"}
STRING = {"value.converter": "org.apache.kafka.connect.storage.StringConverter"}
AVRO = {"value.converter": "AvroConverter", "value.converter.schema.registry.url": LONG.registry_url}
SHARED = {"value.converter": "AvroConverter", "schema.registry.url": LONG.registry_url}
MASK = {"transforms": "m", "transforms.m.type": "MaskField$Value", "transforms.m.fields": "n"}
HOIST = {"transforms": "h", "transforms.h.type": "HoistField$Value", "transforms.h.field": "line"} | JSON


def config_of(folder: Path, keys: dict[str, str], worker: Mapping[str, str] = {}) -> ConnectorConfig:
    lines = [f"{name}={text}\n" for name, text in {"bootstrap.servers": "broker:9092", **worker}.items()]
    (folder / "worker.properties").write_text("".join(lines))
    (folder / "events.json").write_text(json.dumps(keys))
    return load_connector(folder / "events.json", folder / "worker.properties", {}).config


def stream_of(config: ConnectorConfig, outgoing: dict[str, str]) -> OutgoingStream:
    asked = RestoreRequest(config, "t", "copy", "r", "run", outgoing=parse_outgoing(outgoing))
    if config.source is None:
        ArchiveSource(asked).complete()
    values = new_values(ValueSettings(asked.outgoing, config.records, "t", "copy", schemas=(LONG,)))
    return OutgoingStream(asked.outgoing, "t", 3, 4, "copy", values=values)


def sent(config: ConnectorConfig, value: bytes, outgoing: dict[str, str]) -> list[bytes]:
    stream = stream_of(config, outgoing)
    return [v for _, batch in stream.apply(records([value])) for v in batch.column("value").to_pylist()]


@pytest.mark.parametrize("keys", [SINK, SOURCE], ids=["sink", "source"])
@pytest.mark.parametrize("is_the_workers", [False, True], ids=["file", "worker.properties"])
@pytest.mark.parametrize(
    ("converter", "value", "outgoing", "expected"),
    [
        (JSON, b'{"n":0}', JSON, b'{"n":0}'),
        (JSON, b'{"n":7}', MASK, b'{"n":0}'),
        (STRING, b"a line", HOIST, b'{"line":"a line"}'),
        (AVRO, NINE, JSON, b"9"),
    ],
    ids=["JSON", "JSON, a transform", "text, a transform", "Avro"],
)
def test_values_are_decoded_by_the_converter_that_file_or_worker_name(
    tmp_path: Path,
    keys: dict[str, str],
    is_the_workers: bool,
    converter: dict[str, str],
    value: bytes,
    outgoing: dict[str, str],
    expected: bytes,
) -> None:
    config = config_of(tmp_path, keys, converter) if is_the_workers else config_of(tmp_path, keys | converter)
    assert sent(config, value, outgoing) == [expected]


@pytest.mark.parametrize("converter", [AVRO, SHARED], ids=["its own key", "the shared key"])
def test_a_registry_is_that_of_the_schemas_to_archive_wherever_it_is_named(
    tmp_path: Path, converter: dict[str, str]
) -> None:
    config = config_of(tmp_path, SINK | converter)
    assert config.records.value.registry is not None
    assert sent(config, NINE, JSON) == [b"9"]


@pytest.mark.parametrize("name", ["com.example.OwnConverter", "AvroConverter"], ids=["unknown", "without a registry"])
def test_what_cannot_be_decoded_is_archived_and_restored_as_it_is_and_changed_by_no_restore(
    tmp_path: Path, name: str
) -> None:
    converter = {"value.converter": name}
    for config in (config_of(tmp_path, SINK | converter), config_of(tmp_path, SINK, converter)):
        assert sent(config, NINE, {}) == [NINE]
        for outgoing in (JSON, MASK):
            with pytest.raises(
                ConfigError, match=r"no restore can decode its values.*cannot be used: value\.converter"
            ):
                sent(config, NINE, outgoing)


@pytest.mark.parametrize("outgoing", [JSON, AVRO])
@pytest.mark.parametrize(
    ("keys", "value", "is_doubted"),
    [
        (SINK, b"\0\0\0\1\7abc", True),
        (SOURCE, b"\0\0\0\0\x2a", True),
        (SINK, b"\0\0\0\0\0abc", False),
        (SINK, b"\1\0\0\0\2abc", False),
        (SINK, b"\0\0\0\2", False),
    ],
)
def test_what_a_registrys_serializer_wrote_and_nobody_names_leaves_a_doubt_where_it_is_wrapped_as_bytes(
    tmp_path: Path, keys: dict[str, str], value: bytes, outgoing: dict[str, str], is_doubted: bool
) -> None:
    config = config_of(tmp_path, keys)
    asked = RestoreRequest(config, "t", "copy", "r", "run", outgoing=parse_outgoing(outgoing))
    settings = ValueSettings(asked.outgoing, config.records, "t", "copy", registers=False)
    stream = OutgoingStream(asked.outgoing, "t", 3, 4, "copy", values=new_values(settings))
    assert len(list(stream.apply(records([value, b"x", value])))) == 1
    doubts = [note for note in stream.notes if isinstance(note, DoubtNote)]
    assert [note.startswith("2 values begin with a 0 and a schema's id") for note in doubts] == [True] * is_doubted
