"""What a message holds and its value cannot: it is counted and told, or the record fails."""

from typing import Any

import pytest

from kafka_s3_platform_tests.converters.protobuf.archived import converted

PROTO2 = 'syntax = "proto2"; package p; '
PROTO3 = 'syntax = "proto3"; package p; '
SHIP = PROTO3 + "message Ship { string name = 1; message Crew { int32 size = 1; } Crew crew = 2; "
SHIPS = SHIP + "repeated Crew old = 3; map<string, Crew> by_port = 4; oneof load { Crew people = 5; int32 tons = 6; } }"
FLAGS = PROTO2 + "enum Flag { RED = 0; BLUE = 3; } message Buoy { optional Flag flag = 1; "
BUOY = FLAGS + "repeated Flag flags = 2; map<int32, Flag> by_mile = 3; oneof top { Flag light = 4; } }"
HELD = PROTO2 + "message Held { optional int32 a = 1; extensions 50 to 60; repeated group Box = 2 "
EXTENDED = HELD + "{ optional int32 b = 1; } required int32 c = 3; } extend Held { optional string mark = 55; }"
TIMES = 'import "google/protobuf/timestamp.proto"; import "google/type/timeofday.proto"; '
TIMES = PROTO3 + TIMES + "message T { google.protobuf.Timestamp at = 1; google.type.TimeOfDay hour = 2; }"
WRAPPED = PROTO3 + 'import "google/protobuf/wrappers.proto"; message W { google.protobuf.Int32Value n = 1; }'
UNLISTED = "1 records lack in their value what schema 1 does not list (the first one: {})"


def varint(number: int) -> bytes:
    return bytes([number & 127 | 128]) + varint(number >> 7) if number >> 7 else bytes([number])


def told(text: str, message: bytes, **options: Any) -> list[str]:
    done = converted(text, b"\0" + message, **options)
    assert done.failures == ()
    return done.notes.sentences


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        (SHIPS, b"\x0a\x01x\x3a\x02hi", "field 7 of p.Ship"),
        (SHIPS, b"\x12\x04\x08\x01\x10\x02", "field 2 of p.Ship.Crew"),
        (SHIPS, b"\x1a\x00\x1a\x05\x25abcd", "field 4 of p.Ship.Crew"),
        (SHIPS, b"\x22\x07\x0a\x01k\x12\x02\x18\x01", "field 3 of p.Ship.Crew"),
        (SHIPS, b"\x22\x05\x0a\x01k\x18\x01", "field 4 of p.Ship"),
        (SHIPS, b"\x2a\x02\x48\x01", "field 9 of p.Ship.Crew"),
        (BUOY, b"\x08\x01", "field 1 of p.Buoy"),
        (BUOY, b"\x12\x03\x00\x02\x03", "field 2 of p.Buoy"),
        (BUOY, b"\x1a\x04\x08\x01\x10\x01", "field 3 of p.Buoy"),
        (BUOY, b"\x20\x09", "field 4 of p.Buoy"),
        (EXTENDED, b"\xba\x03\x01z\x18\x00", "extension p.mark of p.Held"),
        (EXTENDED, b"\xb8\x03\x01\x18\x00", "field 55 of p.Held"),
        (EXTENDED, b"\x13\x10\x05\x14\x18\x00", "field 2 of p.Held.Box"),
        (TIMES, b"\x0a\x02\x18\x01", "field 3 of google.protobuf.Timestamp"),
        (WRAPPED, b"\x0a\x02\x10\x01", "field 2 of google.protobuf.Int32Value"),
    ],
)
def test_what_a_schema_does_not_list_is_counted_wherever_it_is(text: str, message: bytes, place: str) -> None:
    assert told(text, message) == [UNLISTED.format(place)]


def test_records_that_hold_only_what_is_listed_are_told_nothing() -> None:
    assert told(SHIPS, b"\x0a\x01x\x12\x02\x08\x01\x30\x00") == []
    assert told(BUOY, b"\x08\x03\x12\x02\x00\x03") == []
    assert told(EXTENDED, b"") == []


def test_the_number_of_records_is_told_with_the_first_place_and_their_side() -> None:
    crew, bare, note = b"\0\x12\x02\x10\x05", b"\0", b"\0\x3a\x00"
    done = converted(SHIPS, bare, crew, bare, note, note, is_key=True)
    place = "field 2 of p.Ship.Crew"
    assert done.notes.sentences == [f"3 records lack in their key what schema 1 does not list (the first one: {place})"]
    assert list(done.losses) == [1, 3, 4]


def test_a_record_that_fails_is_not_told_of_too() -> None:
    day = PROTO3 + 'import "google/type/date.proto"; message D { google.type.Date a = 1; google.type.Date b = 2; }'
    unlisted_and_no_day = b"\x0a\x08\x08\x01\x10\x01\x18\x01\x20\x01\x12\x02\x10\x0e"
    done = converted(day, b"\0" + unlisted_and_no_day, b"\0")
    assert (len(done.failures), done.notes.sentences) == (1, [])


@pytest.mark.parametrize(
    ("number", "value", "is_told"), [(2**63 - 1, 2**63 - 1, False), (2**63, -(2**63), True), (2**64 - 2, -2, True)]
)
@pytest.mark.parametrize(("kind", "tag"), [("uint64", b"\x08"), ("fixed64", b"\x09")])
def test_numbers_that_become_negative_are_told(kind: str, tag: bytes, number: int, value: int, is_told: bool) -> None:
    body = number.to_bytes(8, "little") if kind == "fixed64" else varint(number)
    done = converted(f"{PROTO3} message N {{ {kind} n = 1; }}", b"\0" + tag + body)
    assert done.payload.objects == [{"n": value}]
    assert [f"became negative (the first one: {number})" in said for said in done.notes.sentences] == [True] * is_told


def test_keys_of_maps_that_become_negative_are_told() -> None:
    [said] = told(PROTO3 + "message N { map<uint64, bool> n = 1; }", b"\x0a\x0d\x08" + varint(2**64 - 1) + b"\x10\x01")
    assert "became negative (the first one: 18446744073709551615)" in said


@pytest.mark.parametrize(
    ("message", "value"),
    [
        (b"\x0a\x06\x08\x02\x10" + varint(1_234_567), {"at": 2001, "hour": None}),
        (b"\x12\x06\x18\x01\x20" + varint(2_000_001), {"at": None, "hour": 1002}),
    ],
)
def test_times_finer_than_a_millisecond_are_cut_and_told(message: bytes, value: Any) -> None:
    done = converted(TIMES, b"\0" + message)
    assert done.payload.objects == [value]
    assert done.notes.sentences[0].startswith("1 records have times in their value that were cut to milliseconds (")


@pytest.mark.parametrize("field", ["string s = 1;", "repeated string s = 1;", "map<string, string> s = 1;"])
@pytest.mark.parametrize("head", [PROTO2, 'edition = "2023"; option features.utf8_validation = NONE; '])
def test_text_of_other_syntaxes_that_is_no_utf_8_fails(head: str, field: str) -> None:
    """It became bytes, which JsonFormat wrote in base64."""
    label = "optional " if head == PROTO2 and field.startswith("string") else ""
    bad = b"\x0a\x06\x0a\x01k\x12\x01\xff" if "map" in field else b"\x0a\x02a\xff"
    done = converted(f"{head} message M {{ {label}{field} }}", b"\0" + bad, b"\0")
    assert ["text that is not UTF-8" in f.message for f in done.failures] == [True]


def test_a_oneof_that_would_be_named_like_a_field_refuses_the_schema() -> None:
    """The value held the one that came last, under the name of both."""
    text = PROTO3 + "message M { oneof by { int32 a = 1; string b = 2; } double by_0 = 3; }"
    done = converted(text, b"\0\x08\x01")
    assert "p.M has two fields named 'by_0'" in done.failures[0].message
    done = converted(text, b"\0\x08\x01", generate_index_for_unions="false")
    assert done.payload.objects == [{"by": {"a": 1, "b": None}, "by_0": 0.0}]


def test_a_decimal_finer_than_its_field_fails_by_its_own_digits() -> None:
    text = PROTO3 + 'import "confluent/type/decimal.proto"; message M { confluent.type.Decimal d = 1; }'
    done = converted(text, b"\0\x0a\x05\x0a\x01\x7d\x18\x02", b"\0\x0a\x06\x0a\x02\x01\x2c\x18\x02")
    assert done.payload.objects == [{"d": b"\x03"}]
    assert "has in a Decimal 1.25, which has more than 0 digits after the point" in done.failures[0].message


PORT = PROTO3 + "message P { map<int32, string> a = 1; message Q { int32 b = 1; } message R { int32 c = 1; } }"


@pytest.mark.parametrize(
    ("index", "said"),
    [(0, {"b": 7}), (1, "which clients count differently: p.P.Q or, without maps, p.P.R"), (2, {"c": 7}), (3, "lacks")],
)
def test_a_nested_message_that_clients_count_differently_is_never_read_as_another(index: int, said: Any) -> None:
    """The entry of the map is the first nested message to all but Java's client, where that normalizes schemas."""
    done = converted(PORT, bytes([4, 0, 2 * index]) + b"\x08\x07")
    if isinstance(said, str):
        assert said in done.failures[0].message
    else:
        assert done.payload.objects == [said]


def test_types_without_a_package_name_each_other_from_everywhere() -> None:
    text = (
        'syntax = "proto3"; message M { oneof o { N n = 1; M m = 2; } message I { M m = 1; } I i = 3; N again = 4; } '
    )
    done = converted(text + "message N { int32 a = 1; }", b"\0\x1a\x02\x0a\x00")
    [schema] = done.payload.schemas
    assert schema.avro["name"] == "M"
    assert done.payload.objects[0]["i"] == {"m": {"o_0": None, "i": None, "again": None}}
