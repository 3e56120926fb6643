"""Records that ask for more than they hold are dead letters, whatever the converter; the others of the topic come."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from kafka_s3_platform.core.config.settings import RegistrySettings
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.hostile.containers import archived_apart, long
from kafka_s3_platform_tests.kafka.topics import values
from kafka_s3_platform_tests.support import Sent, connector, produce

MEGABYTES, SECONDS = 300, 60
MILLION = 1_000_000


@dataclass(frozen=True)
class Live:
    """A converter, a good value of its schema `good`, and bad values, each with the schema that it is of."""

    format: str
    type: str
    good: tuple[Any, bytes]
    bad: Mapping[str, tuple[Any, bytes]]
    settings: Mapping[str, Any] = field(default_factory=dict)


def _list_of(items: Any) -> Any:
    return {"type": "array", "items": items}


def _wide(byte: str, nulls: int) -> Any:
    """A record of one byte that is many values."""
    fields = [{"name": "b", "type": byte}, *({"name": f"n{i}", "type": "null"} for i in range(nulls))]
    return {"type": "record", "name": "W", "fields": fields}


_LINKED = {"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}
_BYTES_AND_END = long(MILLION) + bytes(MILLION + 1)
AVRO = Live(
    "AVRO",
    "AVRO",
    (_list_of("null"), long(3) + b"\0"),
    {
        "endless nothing": (_list_of("null"), long(2**40) + b"\0"),
        "a thousand nulls for a byte": (_list_of(_wide("boolean", 1000)), _BYTES_AND_END),
        "twenty nulls for a byte": (_list_of(_wide("boolean", 20)), _BYTES_AND_END),
        "a long name for a byte": (
            _list_of({"type": "record", "name": "N", "fields": [{"name": "n" * 9_000, "type": "boolean"}]}),
            _BYTES_AND_END,
        ),
        "maps of nothing": ({"type": "map", "values": _wide("boolean", 1000)}, long(300_000) + bytes(600_001)),
        "deep": (_LINKED, b"\2" * 100_000 + b"\0"),
        "a length": ("bytes", long(2**40)),
        "a count": ({"type": "map", "values": "int"}, long(2**40)),
        "a block's size": (_list_of("int"), long(-5) + long(2**40)),
    },
)

_OBJECTS = b"[" + b"{}," * 300_000 + b"{}]"
_CHOICE = {
    "oneOf": [
        {"title": name, "type": "object", "properties": {"a": {"$ref": "#/definitions/U"}}} for name in ("A", "B")
    ]
}
JSON_SCHEMA = Live(
    "JSON_SR",
    "JSON",
    ({"type": "object", "title": "G", "properties": {"n": {"type": "integer"}}}, b'{"n":1}'),
    {
        "a thousand absent fields": (
            _list_of(
                {"type": "object", "title": "X", "properties": {f"f{i}": {"type": "string"} for i in range(1000)}}
            ),
            _OBJECTS,
        ),
        "an absent field with a default of a megabyte": (
            _list_of(
                {"type": "object", "title": "X", "properties": {"a": {"type": "string", "default": "x" * 900_000}}}
            ),
            _OBJECTS,
        ),
        "types that do not fit, inside each other": (
            {
                "type": "object",
                "title": "R",
                "properties": {"u": {"$ref": "#/definitions/U"}},
                "definitions": {"U": _CHOICE},
            },
            b'{"u":' + b'{"a":' * 60 + b"5" + b"}" * 61,
        ),
        "deep": (_list_of({"type": "integer"}), b"[" * MILLION),
        "an exponent": ({"type": "integer"}, b"1e100000000"),
        "digits": ({"type": "integer"}, b"1" * MILLION),
    },
)


def _messages(width: int) -> str:
    fields = " ".join(f"optional string f{i} = {i + 1};" for i in range(width))
    return f'syntax = "proto3"; message A {{ repeated B b = 1; }} message B {{ {fields} }}'


_ITSELF = 'syntax = "proto3"; message A { A a = 1; int32 n = 2; }'


def _inside(levels: int) -> bytes:
    found = b""
    for _ in range(levels):
        size, head = len(found), b""
        while size > 127:
            head, size = head + bytes([size & 127 | 128]), size >> 7
        found = b"\x0a" + head + bytes([size]) + found
    return b"\0" + found


PROTOBUF = Live(
    "PROTOBUF",
    "PROTOBUF",
    (_messages(3), b"\0" + b"\x0a\0" * 5),
    {
        "a thousand absent fields": (_messages(1000), b"\0" + b"\x0a\0" * 450_000),
        "a long name": (
            f'syntax = "proto3"; message A {{ repeated B b = 1; }} message B {{ optional int32 {"n" * 9000} = 1; }}',
            b"\0" + b"\x0a\0" * 450_000,
        ),
        "deep": (_ITSELF, _inside(5000)),
        "not closed": (_ITSELF, b"\0" + b"\x0a\x7f" * 100_000),
        "groups": (_ITSELF, b"\0" + b"\x0b" * 900_000),
    },
)

JSON = Live(
    "JSON",
    "",
    (None, b'{"n":1}'),
    {
        "deep": (None, b"[" * 1000 + b"]" * 1000),
        "deeper": (None, b'{"a":' * 150_000 + b"1" + b"}" * 150_000),
        "not closed": (None, b"[" * MILLION),
    },
)


def _enveloped(schema: Any, payload: bytes) -> bytes:
    return b'{"schema":' + json.dumps(schema).encode() + b',"payload":' + payload + b"}"


def _struct(*fields: Mapping[str, Any]) -> Any:
    return {"type": "struct", "name": "X", "fields": list(fields)}


def _optional(name: str, **more: Any) -> Mapping[str, Any]:
    return {"field": name, "type": "string", "optional": True, **more}


def _lists(levels: int) -> Any:
    return _list_of(_lists(levels - 1)) if levels else {"type": "int32"}


ENVELOPE = Live(
    "JSON",
    "",
    (None, _enveloped({"type": "int32"}, b"1")),
    {
        "a thousand absent fields": (
            None,
            _enveloped(_list_of(_struct(*(_optional(f"f{i}") for i in range(1000)))), _OBJECTS),
        ),
        "a default": (None, _enveloped(_list_of(_struct(_optional("a", default="x" * 90_000))), _OBJECTS)),
        "a long name": (None, _enveloped(_list_of(_struct(_optional("n" * 90_000))), _OBJECTS)),
        "a deep schema": (None, _enveloped(_lists(400), b"[]")),
        "a deep payload": (None, _enveloped({"type": "int32"}, b"[" * 900_000)),
        "an exponent": (None, _enveloped({"type": "int64"}, b"1e100000000")),
    },
    {"schemas_enable": True},
)

LIVE = {"avro": AVRO, "json schema": JSON_SCHEMA, "protobuf": PROTOBUF, "json": JSON, "json with its schema": ENVELOPE}


@pytest.fixture
def framed(registry: RegistrySettings, topic_name: str) -> Iterator[Callable[[str, Any, bytes], bytes]]:
    """A value behind the id of its schema, which is registered under a subject of its own."""
    with SchemaRegistryClient({"url": registry.url}) as client:

        def frame(kind: str, schema: Any, body: bytes) -> bytes:
            if schema is None:
                return body
            draft = {"$schema": "http://json-schema.org/draft-07/schema#"} if kind == "JSON" else {}
            text = schema if kind == "PROTOBUF" else json.dumps(draft | schema if draft else schema)
            schema_id: int = client.register_schema(f"{topic_name}-{hash(text)}", Schema(text, kind))
            return b"\0" + schema_id.to_bytes(4, "big") + body

        yield frame


@pytest.mark.parametrize("name", LIVE)
def test_hostile_values_are_dead_letters_and_the_others_are_archived(
    lab: Lab, registry: RegistrySettings, framed: Callable[[str, Any, bytes], bytes], name: str
) -> None:
    live = LIVE[name]
    dead = lab.create(f"{lab.topic}-dead", **{"max.message.bytes": 2 * MILLION})
    topics = [lab.create(t, **{"max.message.bytes": 2 * MILLION}) for t in (f"{lab.topic}-before", lab.topic)]
    good = framed(live.type, *live.good)
    bad = [framed(live.type, *each) for each in live.bad.values()]
    produce(lab.kafka, topics[0], [Sent(good)] * 100)
    produce(lab.kafka, topics[1], [Sent(v) for each in bad for v in (good, each)] + [Sent(good)])
    value = {"format": live.format, **live.settings, **({"registry": registry} if live.type else {})}
    errors = {"tolerance": "all", "dead_letter_topic": dead, "dead_letter_replication_factor": 1}
    configs = [
        connector(lab.kafka, lab.store, t, layout={"format": "json"}, records={"value": value, "errors": errors})
        for t in topics
    ]
    found = archived_apart(configs)
    assert (found.records, found.dead_letters, found.failure) == (len(bad) + 1, len(bad), "")
    assert values(lab.kafka, dead) == bad
    assert found.megabytes < MEGABYTES, found
    assert found.seconds < SECONDS, found
