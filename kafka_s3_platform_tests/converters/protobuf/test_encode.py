import base64
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from hypothesis import given, settings

from kafka_s3_platform.connect.converters.protobuf.encode import ProtobufSerializer, compile_protobuf
from kafka_s3_platform.connect.converters.protobuf.files import compile_file
from kafka_s3_platform_tests.converters.protobuf.archived import converted
from kafka_s3_platform_tests.restore.example_schemas import ORDER, ORDERS

ORDER_PROTO = """\
syntax = "proto3";
package shop;

import "confluent/meta.proto";
import "confluent/type/decimal.proto";
import "google/protobuf/timestamp.proto";
import "google/type/date.proto";
import "google/type/timeofday.proto";

message Order {
  message Line {
    string sku = 1;
    .shop.Order.Line next = 2;
  }
  string id = 1;
  int32 count = 2;
  int64 total = 3;
  bool paid = 4;
  double weight = 5;
  bytes raw = 6;
  .confluent.type.Decimal price = 7 [(.confluent.field_meta) = {params: [{key: "precision", value: "20"}, \
{key: "scale", value: "2"}]}];
  .google.type.Date day = 8;
  .google.type.TimeOfDay hour = 9;
  .google.protobuf.Timestamp at = 10;
  string state = 11;
  optional string note = 12;
  optional int64 discount = 13;
  .google.protobuf.Timestamp seen = 14;
  repeated string tags = 15;
  map<string, int64> stock = 16;
  .shop.Order.Line line = 17;
  repeated .shop.Order.Line lines = 18;
  map<string, .shop.Order.Line> by_name = 19;
}
"""


@pytest.fixture(scope="module")
def order() -> ProtobufSerializer:
    return compile_protobuf(ORDER)


def record(avro: Any, name: str = "f") -> Any:
    return {"type": "record", "name": "R", "fields": [{"name": name, "type": avro}]}


def test_the_file_is_confluent_s(order: ProtobufSerializer) -> None:
    assert order.proto == ORDER_PROTO


@settings(deadline=None)
@given(ORDERS)
def test_values_come_back_as_they_were(order: ProtobufSerializer, value: dict[str, Any]) -> None:
    done = converted(order.text, order.body(value))
    assert done.failures == ()
    assert done.payload.objects == [value]


def test_what_is_registered_is_the_file_and_nothing_that_protoc_derives_from_it(order: ProtobufSerializer) -> None:
    file = FileDescriptorProto.FromString(base64.standard_b64decode(order.text))
    again = compile_file(order.proto, {})
    assert file.name == "default"
    assert [f.name for f in file.message_type[0].field] == again.message_types_by_name["Order"].fields_by_name.keys()
    assert not any(f.HasField("json_name") for f in file.message_type[0].field)
    assert compile_protobuf(ORDER).text == order.text


def test_the_bytes_of_a_map_do_not_depend_on_its_order() -> None:
    made = compile_protobuf(record({"type": "map", "values": "int"}))
    assert made.body({"f": {"a": 1, "b": 2}}) == made.body({"f": {"b": 2, "a": 1}})


def test_null_and_zero_stay_apart() -> None:
    made = compile_protobuf(record(["null", "int"]))
    done = converted(made.text, made.body({"f": None}), made.body({"f": 0}))
    assert done.payload.objects == [{"f": None}, {"f": 0}]


def test_a_null_array_comes_out_empty() -> None:
    made = compile_protobuf(record(["null", {"type": "array", "items": "int"}]))
    assert converted(made.text, made.body({"f": None})).payload.objects == [{"f": []}]


def test_a_union_is_a_message_with_a_oneof() -> None:
    made = compile_protobuf(record(["null", "int", "string", {"type": "record", "name": "X", "fields": []}], "what"))
    assert made.proto.splitlines()[3:-1] == [
        "  message WhatUnion {",
        "    message XMessage {",
        "    }",
        "    oneof value {",
        "      int32 int = 1;",
        "      string string = 2;",
        "      .R.WhatUnion.XMessage X = 3;",
        "    }",
        "  }",
        "  .R.WhatUnion what = 1;",
    ]
    done = converted(made.text, *(made.body({"what": value}) for value in (None, ("int", 0), ("string", "s"))))
    assert [o["what"] and o["what"]["value_0"] for o in done.payload.objects] == [
        None,
        {"int": 0, "string": None, "X": None},
        {"int": None, "string": "s", "X": None},
    ]


def test_a_message_is_never_named_like_a_field_beside_it() -> None:
    made = compile_protobuf(record({"type": "record", "name": "f", "fields": [{"name": "a", "type": "int"}]}))
    assert ".R.fMessage f = 1;" in made.proto


@pytest.mark.parametrize(
    ("avro", "reason"),
    [
        ("string", "has to be a record"),
        (["null", record("int")], "has to be a record"),
        (record("null"), "always null"),
        (record({"type": "array", "items": {"type": "array", "items": "int"}}), "arrays inside a list"),
        (record({"type": "map", "values": {"type": "map", "values": "int"}}), "maps inside a list or a map"),
    ],
)
def test_types_that_protobuf_has_not_are_refused(avro: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        compile_protobuf(avro)


@pytest.mark.parametrize(
    ("avro", "value"),
    [
        ("int", 2**31),
        ("int", True),
        ("string", b"x"),
        ("float", 1e39),
        ("float", -3.4028236e38),
        ("float", 2**25 + 1),
        ("double", 2**53 + 1),
        ("double", 10**400),
        ({"type": "array", "items": ["null", "int"]}, [None]),
        ({"type": "int", "logicalType": "date"}, 2**31 - 1),
        ({"type": "int", "logicalType": "time-millis"}, -1),
        ({"type": "long", "logicalType": "timestamp-millis"}, 2**62),
    ],
)
def test_values_that_protobuf_cannot_have_are_refused(avro: Any, value: Any) -> None:
    with pytest.raises((ValueError, TypeError, OverflowError)):
        compile_protobuf(record(avro)).body({"f": value})
