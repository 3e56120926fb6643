"""What a message comes to is told in time that grows with its bytes, whatever they are."""

import json
import time
from collections.abc import Callable
from typing import Any

import fastavro
import pytest
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import wrappers_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.struct_pb2 import Struct

from kafka_s3_platform.connect.converters.protobuf.decode import MessageSizes
from kafka_s3_platform.connect.converters.protobuf.files import compile_file
from kafka_s3_platform_tests.converters.conftest import Registered
from kafka_s3_platform_tests.converters.values import framed


@pytest.mark.parametrize("start", [b"", b"\x0a", b"\x08", b"\x0b" * 50], ids=["tag", "size", "number", "groups"])
def test_a_number_that_never_ends_costs_little(start: bytes) -> None:
    """Each byte of one made it longer: a megabyte took half a minute, eight of them half an hour."""
    sizes, began = MessageSizes(FileDescriptorProto.DESCRIPTOR), time.process_time()
    sizes.check(start + b"\xff" * 1_000_000)
    assert time.process_time() - began < 1


MONEY = 'syntax = "proto3"; package shop.common; message Money { string currency = 1; int64 units = 2; }'
ORDER = """
syntax = "proto3";
package shop;
import "shop/common.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
import "google/type/date.proto";
import "google/type/timeofday.proto";
import "confluent/meta.proto";
import "confluent/type/decimal.proto";
message Other { string a = 1; message Inside { int32 b = 1; } }
message Order {
  enum State { NEW = 0; DONE = 1; }
  message Line { string sku = 1; repeated int32 counts = 2; }
  string id = 1;
  shop.common.Money total = 2;
  google.protobuf.Timestamp at = 3;
  google.protobuf.Duration took = 4;
  google.type.Date day = 5;
  google.type.TimeOfDay hour = 6;
  google.protobuf.StringValue nick = 7;
  confluent.type.Decimal price = 8 [(confluent.field_meta) = {params: [{key: "scale", value: "2"}]}];
  map<string, int32> stock = 9;
  map<int32, Line> by_number = 10;
  oneof pay { string card = 11; int32 cash = 12; shop.common.Money credit = 13; }
  optional int32 maybe = 14;
  State state = 15;
  repeated Line lines = 16;
  repeated State states = 17;
  uint64 big = 18;
  bytes raw = 19;
  bool yes = 20;
  float f = 21;
  double d = 22;
  uint32 u = 23;
  sint32 s = 24;
  Order next = 25;
}
"""
ORDER_INDEX = b"\x02\x02"
"""One index, 1: the second message."""

NOTHING: dict[str, Any] = {
    "pay_0": None,
    "id": "",
    "total": None,
    "at": None,
    "took": None,
    "day": None,
    "hour": None,
    "nick": None,
    "price": None,
    "stock": {},
    "by_number": [],
    "maybe": None,
    "state": "NEW",
    "lines": [],
    "states": [],
    "big": 0,
    "raw": b"",
    "yes": False,
    "f": 0.0,
    "d": 0.0,
    "u": 0,
    "s": 0,
    "next": None,
}


@pytest.fixture(scope="module")
def new_order() -> Callable[[], Any]:
    file = compile_file(ORDER, {"shop/common.proto": MONEY})
    made: Callable[[], Any] = GetMessageClass(file.message_types_by_name["Order"])
    return made


@pytest.fixture
def order_id(registered: Registered) -> int:
    registered.register(MONEY, "PROTOBUF", subject="common")
    return registered.register(ORDER, "PROTOBUF", common="shop/common.proto")


@pytest.fixture
def one(registered: Registered, order_id: int) -> Callable[..., Any]:
    def converted(message: Any, **options: str) -> Any:
        row = framed(order_id, ORDER_INDEX + message.SerializeToString())
        result = registered.convert("PROTOBUF", [row], **options)
        assert not result.failures
        [schema] = result.payload.schemas
        parsed = fastavro.parse_schema(json.loads(schema.text.replace("logicalType", "was")))
        fastavro.validate(result.payload.objects[0], parsed)
        return result.payload.objects[0]

    return converted


def test_an_empty_message_has_defaults_and_nulls(one: Callable[..., Any], new_order: Callable[[], Any]) -> None:
    assert one(new_order()) == NOTHING


def test_every_kind_of_field(one: Callable[..., Any], new_order: Callable[[], Any]) -> None:
    message = new_order()
    message.id, message.maybe, message.state, message.cash = "x", 0, 1, 0
    message.total.currency = "CHF"
    message.at.seconds, message.at.nanos = -1, 999_999_999
    message.took.seconds, message.took.nanos = 3, 4
    message.day.year, message.day.month, message.day.day = 1970, 1, 3
    message.hour.hours, message.hour.nanos = 1, 5_000_000
    message.nick.value = "n"
    message.price.value, message.price.scale = (-125).to_bytes(2, "big", signed=True), 1
    message.stock["b"], message.stock["a"] = 2, 1
    message.by_number[7].sku = "seven"
    message.lines.add(sku="l", counts=[1, 2])
    message.states.extend([1, 9])
    message.big, message.raw, message.yes = (1 << 64) - 1, b"\xff", True
    message.f, message.d, message.u, message.s = 0.5, 1.25, (1 << 32) - 1, -3
    message.next.id = "y"
    assert one(message) == {
        "pay_0": {"card": None, "cash": 0, "credit": None},
        "id": "x",
        "total": {"currency": "CHF", "units": 0},
        "at": -1,
        "took": {"seconds": 3, "nanos": 4},
        "day": 2,
        "hour": 3_600_005,
        "nick": {"value": "n"},
        "price": (-1250).to_bytes(2, "big", signed=True),
        "stock": {"a": 1, "b": 2},
        "by_number": [{"key": 7, "value": {"sku": "seven", "counts": []}}],
        "maybe": 0,
        "state": "DONE",
        "lines": [{"sku": "l", "counts": [1, 2]}],
        "states": ["DONE", "UNKNOWN_ENUM_VALUE_State_9"],
        "big": -1,
        "raw": b"\xff",
        "yes": True,
        "f": 0.5,
        "d": 1.25,
        "u": (1 << 32) - 1,
        "s": -3,
        "next": {**NOTHING, "id": "y"},
    }


def test_confluent_s_options_change_oneofs_and_wrappers(one: Callable[..., Any], new_order: Callable[[], Any]) -> None:
    message = new_order()
    message.card, message.nick.value = "4111", ""
    assert one(message, generate_index_for_unions="false")["pay"] == {"card": "4111", "cash": None, "credit": None}
    flat = one(message, flatten_unions="true", wrapper_for_nullables="true")
    assert [flat[name] for name in ("card", "cash", "credit", "nick")] == ["4111", None, None, ""]
    assert one(new_order(), wrapper_for_nullables="true")["nick"] is None


def test_the_schema_says_what_is_what(registered: Registered, order_id: int, new_order: Callable[[], Any]) -> None:
    [schema] = registered.convert("PROTOBUF", [framed(order_id, ORDER_INDEX)]).payload.schemas
    assert (schema.schema_id, schema.subject, schema.version) == (order_id, f"{registered.topic}-value", 1)
    assert (schema.avro["namespace"], schema.avro["name"]) == ("shop", "Order")
    types = {field["name"]: field["type"][1] for field in schema.avro["fields"]}
    assert types["at"] == {"type": "long", "logicalType": "timestamp-millis"}
    assert types["day"] == {"type": "int", "logicalType": "date"}
    assert types["hour"] == {"type": "int", "logicalType": "time-millis"}
    assert types["price"] == {"type": "bytes", "logicalType": "decimal", "precision": 64, "scale": 2}
    assert types["state"] == "string"
    assert types["stock"] == {"type": "map", "values": "int", "connect.name": "shop.Order.StockEntry"}
    assert types["next"] == "shop.Order"
    assert [field["name"] for field in types["pay_0"]["fields"]] == ["card", "cash", "credit"]


def test_each_message_of_a_file_has_a_schema_of_its_own(registered: Registered, order_id: int) -> None:
    rows = [
        framed(order_id, b"\x00\x0a\x01q"),
        framed(order_id, b"\x04\x00\x00\x08\x05"),
        framed(order_id, b"\x00"),
        None,
    ]
    payload = registered.convert("PROTOBUF", rows).payload
    assert payload.objects == [{"a": "q"}, {"b": 5}, {"a": ""}, None]
    assert payload.codes.tolist() == [0, 1, 0, -1]
    assert [schema.avro["name"] for schema in payload.schemas] == ["Other", "Inside"]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "ends in the message indexes"),
        (b"\x02", "ends in the message indexes"),
        (b"\x01", "has -1 message indexes"),
        (b"\x02\x10", "names message [8]"),
        (ORDER_INDEX + b"\x0a\x05abc", "is no Protobuf message of schema"),
        (ORDER_INDEX + b"\x0a\x01\xff", "is no Protobuf message of schema"),
        (ORDER_INDEX + b"\x2a\x04\x08\x01\x10\x0d", "the Date 1-13-0, which is no day"),
        (ORDER_INDEX + b"\x32\x02\x08\x18", "a TimeOfDay that is no time"),
        (ORDER_INDEX + b"\x1a\x06\x10\xff\xff\xff\xff\x07", "outside of the years 1 to 9999"),
    ],
)
def test_damaged_messages_fail(registered: Registered, order_id: int, body: bytes, said: str) -> None:
    result = registered.convert("PROTOBUF", [framed(order_id, ORDER_INDEX), framed(order_id, body)])
    assert [failure.offset for failure in result.failures] == [1]
    assert said in result.failures[0].message


@pytest.mark.parametrize(
    ("message", "value"), [(wrappers_pb2.Int64Value(value=5), 5), (wrappers_pb2.StringValue(), "")]
)
def test_a_wrapper_that_is_the_whole_value_is_what_it_wraps_as_confluent_s_serializer_writes_it(
    registered: Registered, message: Any, value: Any
) -> None:
    serialize = ProtobufSerializer(type(message), registered.client, {"subject.name.strategy.type": "TOPIC"})
    row = serialize(message, SerializationContext(registered.topic, MessageField.VALUE))
    assert registered.convert("PROTOBUF", [row]).payload.objects == [value]


def test_a_well_known_type_inside_itself_is_read(registered: Registered) -> None:
    message = Struct()
    message.update({"a": {"b": [1, None]}})
    serialize = ProtobufSerializer(Struct, registered.client, {"subject.name.strategy.type": "TOPIC"})
    row = serialize(message, SerializationContext(registered.topic, MessageField.VALUE))
    payload = registered.convert("PROTOBUF", [row]).payload
    inner = payload.objects[0]["fields"]["a"]["kind_0"]["struct_value"]["fields"]["b"]["kind_0"]["list_value"]["values"]
    assert [value["kind_0"]["number_value"] for value in inner] == [1.0, None]
    assert inner[1]["kind_0"]["null_value"] == "NULL_VALUE"
    fastavro.parse_schema(payload.schemas[0].avro)


def test_proto2_is_read(registered: Registered) -> None:
    fields = "required int32 a = 1; optional int32 b = 2 [default = 5]; optional int32 c = 3;"
    text = f'syntax = "proto2"; message M {{ {fields} }}'
    schema_id = registered.register(text, "PROTOBUF")
    payload = registered.convert("PROTOBUF", [framed(schema_id, b"\x00\x08\x01\x18\x02")]).payload
    assert payload.objects == [{"a": 1, "b": None, "c": 2}]
