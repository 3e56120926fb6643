"""What a sink writes of a record's bytes, its restore by its own file sends as the same bytes, without any server."""

from dataclasses import replace
from datetime import datetime, timezone

import pytest

from kafka_s3_platform.config.settings import ConnectorConfig
from kafka_s3_platform.converters import new_converter
from kafka_s3_platform.formats.parts import ObjectPart
from kafka_s3_platform.restore.foreign_source import ForeignSource
from kafka_s3_platform.restore.outgoing.stream import OutgoingStream
from kafka_s3_platform.restore.outgoing.values import ValueSettings, new_values
from kafka_s3_platform.restore.request import RestoreRequest
from kafka_s3_platform.restore.source.foreign_plan import make_foreign_plan
from kafka_s3_platform.restore.source.foreign_stream import ForeignStreamTask, WantedRecords, type_strings
from kafka_s3_platform.sources.sample import Sample, make_sample_keys
from kafka_s3_platform_tests.config.conftest import Load, folder, load
from kafka_s3_platform_tests.formats.connect import came, written_with_sidecars
from kafka_s3_platform_tests.sources.memory import MemoryStore

__all__ = ("folder", "load")  # fixtures

AIVEN = {"connector.class": "io.aiven.kafka.connect.s3.AivenKafkaConnectS3SinkConnector"}
TEMPLATE = {"file.name.template": "{{topic}}/{{partition}}-{{start_offset}}"}
KEYS = {"store.kafka.keys": "true", "keys.format.class": "JsonFormat", "key.converter": "StringConverter"}
LINES = {"format.output.type": "csv", "format.output.fields.value.encoding": "none", "format.class": ""}
OF_JSON = [b'{"n":1}', b'"a"', b"2", b"[null]"]
OF_TEXT = [b"a", b"", b'"q"', b"null", b"1", b"AAE=", b'{"n":1}', "\u00e9".encode()]


def objects_of(config: ConnectorConfig, values: list[bytes]) -> dict[str, bytes]:
    batch = came(values, [b"k"] * len(values))
    value, key = (
        new_converter(getattr(config.records, side), "events", is_key=side == "key")
        .convert(batch.records.column(side), batch.offsets)
        .payload
        for side in ("value", "key")
    )
    names = make_sample_keys(config, Sample("events", datetime(2020, 3, 1, 12, tzinfo=timezone.utc)))
    parts: list[ObjectPart] = ["value", "key"]
    found = {}
    for name, part, payload in zip(names, parts, (value, key), strict=False):
        of_part = replace(batch, value=value, key=key)
        made = written_with_sidecars(config.layout, of_part, part=part, schema=next(iter(payload.schemas), None))
        found[name] = made.pop("")
        found |= {f"{name.removesuffix('.gz')}.{ending}": body for ending, body in made.items()}
    return found


def sent(config: ConnectorConfig, objects: dict[str, bytes], count: int) -> list[tuple[bytes | None, bytes | None]]:
    assert config.reader is not None
    request = ForeignSource(RestoreRequest(config.reader, "", "copy", "r", "x")).complete()
    store = MemoryStore(objects, {name: {"record-count": str(count)} for name in objects})
    values = new_values(ValueSettings(request.outgoing, request.config.records, "events", "copy"))
    outgoing = OutgoingStream(request.outgoing, "events", 0, 1, "copy", values=values)
    [group] = make_foreign_plan(request, (), None, store).groups
    batches = WantedRecords(ForeignStreamTask(request.config, group), store)
    made = [outgoing.encoded(type_strings(batch, request.config.records)) for batch in batches]
    return [(row["key"], row["value"]) for batch in made for row in batch.to_pylist()]


@pytest.mark.parametrize("names", [{}, TEMPLATE, AIVEN], ids=["Connect's names", "a template", "Aiven's class"])
@pytest.mark.parametrize(
    ("keys", "converter", "values"),
    [
        ({"format.class": "JsonFormat"}, "JsonConverter", OF_JSON),
        ({"format.class": "JsonFormat"}, "StringConverter", OF_TEXT),
        ({"format.class": "JsonFormat", **KEYS}, "ByteArrayConverter", [*OF_TEXT, b"\xff\0"]),
        ({"format.class": "ByteArrayFormat"}, "ByteArrayConverter", OF_TEXT),
        ({"format.class": "AvroFormat", **KEYS}, "StringConverter", OF_TEXT),
        ({"format.class": "BlockGzipFormat"}, "JsonConverter", OF_JSON),
        ({"format.class": "BlockGzipFormat"}, "StringConverter", OF_TEXT),
        (LINES, "ByteArrayConverter", OF_TEXT),
    ],
)
def test_the_bytes_of_keys_and_values_come_back_from_a_sinks_own_file(
    load: Load, names: dict[str, str], keys: dict[str, str], converter: str, values: list[bytes]
) -> None:
    given = {"value.converter": converter, **keys, **names}
    given |= {"value.converter.schemas.enable": "false"} if converter == "JsonConverter" else {}
    config = load(given).config
    found = sent(config, objects_of(config, values), len(values))
    assert found == [(b"k" if KEYS.items() <= keys.items() else None, value) for value in values]
