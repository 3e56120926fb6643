"""A property of any Protobuf message: what is written of it is equal, or refused with the reason, or counted and told.

The oracle is Google's reflection: a message is built from what each format holds, and is the one that was drawn.
"""

import io
import json
from contextlib import suppress
from typing import Any

import fastavro
import pyarrow.parquet as pq
from hypothesis import given
from pydantic import SecretStr

from kafka_s3_platform.connect.converters import ConvertedPayload
from kafka_s3_platform.connect.converters.protobuf.encode import compile_protobuf
from kafka_s3_platform.connect.restore.outgoing.stream import OutgoingStream
from kafka_s3_platform.core.config.settings import LayoutSettings, RecordSettings, TransformSettings
from kafka_s3_platform.core.formats.parts import UnwritableSchemaError
from kafka_s3_platform.core.model.connect import ConnectBatch, Schema
from kafka_s3_platform.core.restore.outgoing.sent import SentSettings, ValueSettings
from kafka_s3_platform.core.restore.request import Outgoing
from kafka_s3_platform.operate.reading.values import ValueDecoder
from kafka_s3_platform_tests.converters.protobuf.archived import archived, converted, framed, settings
from kafka_s3_platform_tests.converters.protobuf.drawn import build, drawn_messages, keep_listed
from kafka_s3_platform_tests.formats.connect import came, written
from kafka_s3_platform_tests.restore.records import records

REASONS = (
    "which is no day",
    "that is no time",
    "outside of the years 1 to 9999",
    "more than 0 digits after the point",
    "has two fields named 'pick_0'",
)
"""Why a drawn message may be refused."""

TOLD = {"unlisted": "does not list", "cut": "cut to milliseconds", "negative": "became negative"}
Drawn = tuple[str, list[Any], dict[str, Any]]


def convert(drawn: Drawn) -> tuple[ConvertedPayload, list[Any]]:
    """What the converter makes of the messages, and what of each message must come back."""
    text, messages, options = drawn
    done = converted(text, *(b"\0" + message.SerializePartialToString() for message in messages), **options)
    assert [f.message for f in done.failures if not any(reason in f.message for reason in REASONS)] == []
    kept = [keep_listed(messages[at]) for at in done.positions]
    for at, (_, lost) in zip(done.positions.tolist(), kept, strict=True):
        said = " ".join(done.losses[at].kinds if at in done.losses else ())
        assert {name for name, words in TOLD.items() if words in said} == lost
    return done, [message for message, _ in kept]


def check(expected: list[Any], values: list[Any]) -> None:
    built = [build(type(message), value) for message, value in zip(expected, values, strict=True)]
    assert [text(message) for message in built] == [text(message) for message in expected]


def text(message: Any) -> bytes:
    """Equal for equal messages, also where they hold NaN."""
    return bytes(message.SerializePartialToString(deterministic=True))


def read_json(body: bytes) -> list[Any]:
    return [json.loads(line) for line in body.splitlines()]


@given(drawn_messages())
def test_any_message_is_in_objects_of_each_format_or_told_or_refused(drawn: Drawn) -> None:
    done, expected = convert(drawn)
    if expected:
        check(expected, list(done.payload.objects))
        check(expected, read_json(write(done, "json", "none")))
        check(expected, list(fastavro.reader(io.BytesIO(write(done, "avro", "null")))))
        # Parquet has neither types that contain themselves, nor records without fields.
        with suppress(UnwritableSchemaError):
            table = pq.read_table(io.BytesIO(write(done, "parquet", "none")))
            check(expected, table.to_pylist(maps_as_pydicts="strict"))


def write(done: ConvertedPayload, format_name: str, codec: str) -> bytes:
    [schema] = done.payload.schemas
    raw = came([framed(b"")] * len(done.payload))
    layout = LayoutSettings(format=format_name, codec=codec)
    return written(layout, ConnectBatch(raw.records, raw.key, done.payload), schema=schema)


@given(drawn_messages())
def test_any_message_of_an_envelope_is_read_or_restored_or_told_or_refused(drawn: Drawn) -> None:
    done, expected = convert(drawn)
    if expected:
        with suppress(UnwritableSchemaError):
            check(expected, read_decoded(drawn, done))
    stream, sent = restore_with_another_field(drawn)
    assert stream.failed_count == len(drawn[1]) - len(sent)
    if sent:
        assert (len(sent), stream.incomplete_count) == (len(expected), len(done.losses))
        back = read_anew(done.payload.schemas[0], sent)
        assert [value.pop("added") for value in back] == ["x"] * len(back)
        check(expected, back)


def read_decoded(drawn: Drawn, done: ConvertedPayload) -> list[Any]:
    """What `kafka_s3_platform.read` makes of the messages."""
    raw = [framed(b"\0" + text(drawn[1][at])) for at in done.positions]
    decoder = ValueDecoder("t", done.payload.schemas[0], settings(archived(drawn[0]), **drawn[2]))
    batch = came(raw)
    column = decoder.decode(batch.value, batch.records)
    return list(column.to_pylist(maps_as_pydicts="strict"))


def restore_with_another_field(drawn: Drawn) -> tuple[OutgoingStream, list[bytes]]:
    rows = [framed(b"\0" + text(message)) for message in drawn[1]]
    added = {"static.field": SecretStr("added"), "static.value": SecretStr("x")}
    how = Outgoing(transforms=(TransformSettings(alias="i", type="InsertField$Value", options=added),))
    schema = archived(drawn[0])
    source = RecordSettings(value=settings(schema, **drawn[2]))
    values = ValueSettings(how, source, "t", "copy", schemas=(schema,), registers=False)
    stream = OutgoingStream("t", 3, SentSettings("copy", 4, outgoing=how, values=values, behavior_on_error="ignore"))
    return stream, [value for _, batch in stream.apply(records(rows)) for value in batch.column("value").to_pylist()]


def read_anew(schema: Schema, sent: list[bytes]) -> list[Any]:
    """The values of restored messages, by the schema that the restore registers."""
    avro = schema.avro | {"fields": [*schema.avro["fields"], {"name": "added", "type": ["null", "string"]}]}
    done = converted(compile_protobuf(avro).text, *(value[5:] for value in sent))
    assert not done.failures
    return list(done.payload.objects)
