"""Connect's transforms of fields. The expected results are those of Apache Kafka 4.3.1's own classes."""

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_s3_platform.connect.converters.json_text import JsonConverter
from kafka_s3_platform.core.model.connect import NO_SCHEMA, Payload
from kafka_s3_platform_tests.transforms.batches import (
    NOON,
    apply,
    batch,
    fields_of,
    messages,
    optional,
    payload,
    schema,
    schema_of,
    values,
)

PERSON = schema("com.example.Person", ("name", "string"), optional("age", "int"), optional("nick", "string", "none"))
ANN = {"name": "Ann", "age": 5, "nick": "A"}
TIMESTAMP = {"type": "long", "logicalType": "timestamp-millis"}


INSERT_ALL = {
    "type": "InsertField$Value",
    "topic.field": "topic",
    "partition.field": "partition!",
    "offset.field": "offset?",
    "timestamp.field": "time",
    "static.field": "site",
    "static.value": "eu",
}


class TestInsertField:
    def test_metadata_becomes_fields_without_a_schema(self) -> None:
        done = apply(batch(payload([{"a": 1}])), a=INSERT_ALL)
        assert values(done) == [{"a": 1, "topic": "orders", "partition": 4, "offset": 100, "time": NOON, "site": "eu"}]
        assert done.batch.value.codes.tolist() == [NO_SCHEMA]

    def test_the_schema_gains_the_fields_optional_unless_marked_required(self) -> None:
        done = apply(batch(payload([ANN], PERSON)), a=INSERT_ALL)
        assert values(done) == [{**ANN, "topic": "orders", "partition": 4, "offset": 100, "time": NOON, "site": "eu"}]
        assert fields_of(done.batch.value) == {
            "name": "string",
            "age": ["null", "int"],
            "nick": ["string", "null"],
            "topic": ["null", "string"],
            "partition": "int",
            "offset": ["null", "long"],
            "time": ["null", TIMESTAMP],
            "site": ["null", "string"],
        }

    def test_a_changed_schema_has_no_id_but_keeps_its_version(self) -> None:
        changed = apply(batch(payload([ANN], PERSON)), a=INSERT_ALL).batch.value.schemas[0]
        assert (changed.schema_id, changed.subject, changed.version) == (None, "orders-value", 3)

    def test_objects_are_never_changed_in_place(self) -> None:
        given_ = {"a": 1}
        apply(batch(payload([given_])), a=INSERT_ALL)
        assert given_ == {"a": 1}

    def test_the_bytes_a_value_came_as_no_longer_count(self) -> None:
        assert apply(batch(payload([{"a": 1}])), a=INSERT_ALL).batch.value.raw is None

    def test_tombstones_pass(self) -> None:
        done = apply(batch(payload([None, {"a": 1}])), a=INSERT_ALL)
        assert values(done)[0] is None
        assert done.failures == ()

    def test_keys_have_their_own_transform(self) -> None:
        step = {"type": "InsertField$Key", "static.field": "s", "static.value": "v"}
        done = apply(batch(payload([{"a": 1}]), key=payload([{"k": 1}])), a=step)
        assert done.batch.key.objects == [{"k": 1, "s": "v"}]
        assert values(done) == [{"a": 1}]

    def test_a_record_without_timestamp_lacks_an_optional_field_and_fails_for_a_required_one(self) -> None:
        lenient = {"type": "InsertField$Value", "timestamp.field": "t"}
        given_ = batch(payload([ANN], PERSON), timestamps=[-1])
        assert values(apply(given_, a=lenient)) == [{**ANN, "t": None}]
        assert values(apply(batch(payload([{"a": 1}]), timestamps=[-1]), a=lenient)) == [{"a": 1}]
        strict = apply(given_, a={**lenient, "timestamp.field": "t!"})
        assert messages(strict) == ["Invalid value: null used for required field: t"]

    def test_a_field_that_the_schema_has_already_is_refused_but_a_map_is_overwritten(self) -> None:
        step = {"type": "InsertField$Value", "static.field": "name", "static.value": "x"}
        assert messages(apply(batch(payload([ANN], PERSON)), a=step)) == [
            "Cannot create field because of field name duplication name"
        ]
        assert values(apply(batch(payload([{"name": "Ann"}])), a=step)) == [{"name": "x"}]

    def test_a_null_becomes_its_fields_default_only_if_the_file_says_so(self) -> None:
        step = {"type": "InsertField$Value", "static.field": "s", "static.value": "v"}
        given_ = batch(payload([{"name": "Ann", "age": None, "nick": None}], PERSON))
        assert values(apply(given_, a=step))[0]["nick"] is None
        assert values(apply(given_, a={**step, "replace.null.with.default": "true"}))[0]["nick"] == "none"

    @pytest.mark.parametrize("value", ["text", 5, [1]])
    def test_what_is_no_map_is_a_failure(self, value: Any) -> None:
        done = apply(batch(payload([value, {"a": 1}])), a=INSERT_ALL)
        (failure,) = done.failures
        assert failure.offset == 100
        assert failure.stage == "TRANSFORMATION"
        assert failure.executing_class == "org.apache.kafka.connect.transforms.InsertField$Value"
        assert failure.exception == "org.apache.kafka.connect.errors.DataException"
        assert failure.message.startswith(
            "Only Map objects supported in absence of schema for [field insertion], found"
        )
        assert done.batch.offsets.tolist() == [101]


class TestReplaceField:
    def replaced(self, **options: str) -> dict[str, Any]:
        step = {"type": "ReplaceField$Value", **options}
        plain = values(apply(batch(payload([ANN])), a=step))
        done = apply(batch(payload([ANN], PERSON)), a=step)
        assert values(done) == plain
        assert list(fields_of(done.batch.value)) == list(plain[0])
        return dict(plain[0])

    def test_fields_are_dropped_kept_or_renamed_with_and_without_a_schema(self) -> None:
        assert self.replaced(exclude="age") == {"name": "Ann", "nick": "A"}
        assert self.replaced(include="age, nick") == {"age": 5, "nick": "A"}
        assert self.replaced(include="name,age", exclude="age") == {"name": "Ann"}
        assert self.replaced(renames="name:full_name,age:years") == {"full_name": "Ann", "years": 5, "nick": "A"}

    def test_the_old_words_of_kafka_2_are_named(self) -> None:
        with pytest.raises(ValueError, match=r"transforms.a.blacklist: .* Kafka 4.0 calls it exclude"):
            self.replaced(blacklist="age")

    def test_a_rename_onto_another_field_is_a_failure(self) -> None:
        step = {"type": "ReplaceField$Value", "renames": "name:nick"}
        for value in (payload([ANN], PERSON), payload([ANN])):
            assert messages(apply(batch(value), a=step)) == [
                "Cannot create field because of field name duplication nick"
            ]
        assert self.replaced(renames="name:nick", exclude="nick") == {"nick": "Ann", "age": 5}

    def test_a_type_whose_definition_is_dropped_is_defined_where_it_is_used_next(self) -> None:
        place = {"type": "record", "name": "Place", "fields": [{"name": "city", "type": "string"}]}
        given_ = schema("com.example.Trip", ("start", place), ("end", "Place"))
        trip = {"start": {"city": "a"}, "end": {"city": "b"}}
        done = apply(batch(payload([trip], given_)), a={"type": "ReplaceField$Value", "exclude": "start"})
        assert fields_of(done.batch.value)["end"] == {"type": "record", "name": "Place", "fields": place["fields"]}

    def test_a_record_that_holds_itself_is_refused(self) -> None:
        node = schema("com.example.Node", ("value", "int"), optional("next", "Node"))
        step = {"type": "ReplaceField$Value", "renames": "value:v"}
        assert messages(apply(batch(payload([{"value": 1, "next": None}], node)), a=step)) == [
            "com.example.Node holds itself: a recursive schema cannot be changed"
        ]

    @given(st.dictionaries(st.sampled_from("abcdef"), st.integers(), min_size=1))
    def test_renaming_there_and_back_changes_nothing(self, value: dict[str, int]) -> None:
        there, back = ",".join(f"{name}:{name}_" for name in "abcdef"), ",".join(f"{name}_:{name}" for name in "abcdef")
        steps = {
            "a": {"type": "ReplaceField$Value", "renames": there},
            "b": {"type": "ReplaceField$Value", "renames": back},
        }
        assert values(apply(batch(payload([value])), **steps)) == [value]
        record = schema("R", *((name, "long") for name in value))
        done = apply(batch(payload([value], record)), **steps)
        assert values(done) == [value]
        assert schema_of(done.batch.value) == record.avro


TYPES = schema("T", ("i", "int"), ("d", "double"), ("b", "boolean"), ("s", "string"), ("t", TIMESTAMP), ("by", "bytes"))
TYPED = {"i": 7, "d": 1.5, "b": True, "s": "x", "t": NOON, "by": b"x"}


class TestMaskField:
    def test_fields_become_the_empty_value_of_their_type_and_the_schema_stays(self) -> None:
        step = {"type": "MaskField$Value", "fields": "i,d,b,s,t"}
        done = apply(batch(payload([TYPED], TYPES)), a=step)
        assert values(done) == [{"i": 0, "d": 0.0, "b": False, "s": "", "t": 0, "by": b"x"}]
        assert done.batch.value.schemas == (TYPES,)
        plain = {"l": [1], "m": {"a": 1}, "n": None, "s": "x"}
        step = {"type": "MaskField$Value", "fields": "l,m,n,s"}
        assert values(apply(batch(payload([plain])), a=step)) == [{"l": [], "m": {}, "n": None, "s": ""}]

    def test_a_replacement_is_converted_to_the_fields_type(self) -> None:
        step = {"type": "MaskField$Value", "fields": "i,d,s", "replacement": "42"}
        done = apply(batch(payload([TYPED], TYPES)), a=step)
        assert values(done) == [{**TYPED, "i": 42, "d": 42.0, "s": "42"}]

    @pytest.mark.parametrize(
        ("field", "replacement", "said"),
        [
            ("i", "x", "Unable to convert x .* to a number"),
            ("b", "x", "Cannot mask value of type boolean with custom replacement"),
            ("t", "5", "Cannot mask value of type class java.util.Date with custom replacement"),
            ("by", None, "Cannot mask value of type: bytes"),
        ],
    )
    def test_what_cannot_be_masked_is_a_failure(self, field: str, replacement: str | None, said: str) -> None:
        step = {"type": "MaskField$Value", "fields": field} | ({"replacement": replacement} if replacement else {})
        (message,) = messages(apply(batch(payload([TYPED], TYPES)), a=step))
        assert message.startswith(said.split(" .* ", maxsplit=1)[0])

    def test_a_masked_decimal_keeps_its_scale(self) -> None:
        money = schema("M", ("m", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}))
        step = {"type": "MaskField$Value", "fields": "m", "replacement": "1.5"}
        assert values(apply(batch(payload([{"m": b"\x30\x39"}], money)), a=step)) == [{"m": b"\x00\x96"}]

    @pytest.mark.parametrize("type_", ["MaskField$Value", "ValueToKey"])
    def test_a_tombstone_is_a_failure_as_in_connect(self, type_: str) -> None:
        done = apply(batch(payload([None])), a={"type": type_, "fields": "a"})
        assert messages(done)[0].endswith("found: null")


INNER = {"type": "record", "name": "Inner", "fields": [{"name": "x.y", "type": "int"}]}
OUTER = schema("Outer", optional("in", INNER), ("s", "string"))


class TestExtractField:
    def extracted(self, field: str, value: Any, *schemas: Any, syntax: str = "V1") -> Payload:
        step = {"type": "ExtractField$Value", "field": field, "field.syntax.version": syntax}
        done = apply(batch(payload([value], *schemas)), a=step)
        assert done.failures == ()
        return done.batch.value

    def test_the_value_becomes_the_field_and_its_schema_the_fields(self) -> None:
        assert self.extracted("s", {"s": "x"}).objects == ["x"]
        side = self.extracted("s", {"in": None, "s": "x"}, OUTER)
        assert (side.objects, schema_of(side)) == (["x"], "string")

    def test_version_2_reaches_into_nested_fields_and_quotes_dots_by_backticks(self) -> None:
        value = {"in": {"x.y": 5}, "s": ""}
        assert self.extracted("in.`x.y`", value, syntax="V2").objects == [5]
        side = self.extracted("in.`x.y`", value, OUTER, syntax="v2")
        assert (side.objects, schema_of(side)) == ([5], "int")
        assert self.extracted("in.x", {"in.x": 1}).objects == [1]

    def test_a_missing_field_is_null_without_a_schema_and_a_failure_with_one(self) -> None:
        assert self.extracted("nope", {"s": "x"}).objects == [None]
        step = {"type": "ExtractField$Value", "field": "nope"}
        assert messages(apply(batch(payload([{"in": None, "s": ""}], OUTER)), a=step)) == ["Unknown field: nope"]

    def test_a_null_on_the_way_is_null_and_has_no_schema(self) -> None:
        side = self.extracted("in.`x.y`", {"in": None, "s": ""}, OUTER, syntax="V2")
        assert (side.objects, side.codes.tolist()) == ([None], [NO_SCHEMA])

    def test_a_backtick_that_is_not_closed_is_an_error_when_the_file_is_loaded(self) -> None:
        with pytest.raises(ValueError, match="backtick at position 2 is not closed"):
            self.extracted("a.`b", {}, syntax="V2")


HOIST = {"type": "HoistField$Value", "field": "h"}


class TestHoistField:
    def test_the_value_becomes_the_only_field_also_when_it_is_null(self) -> None:
        assert values(apply(batch(payload(["x", None, {"a": 1}])), a=HOIST)) == [
            {"h": "x"},
            {"h": None},
            {"h": {"a": 1}},
        ]

    def test_the_new_record_is_named_as_confluents_avro_names_it(self) -> None:
        done = apply(batch(payload([ANN], PERSON)), a=HOIST, b={**HOIST, "field": "g"})
        outer = schema_of(done.batch.value)
        assert (outer["namespace"], outer["name"]) == ("io.confluent.connect.avro", "ConnectDefault2")
        assert outer["fields"][0]["type"]["name"] == "ConnectDefault"
        assert outer["fields"][0]["type"]["fields"][0]["type"] == {
            **PERSON.avro,
            "name": "Person",
            "namespace": "com.example",
        }

    @given(st.recursive(st.none() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=3)))
    def test_extracting_a_hoisted_field_gives_the_value_back(self, value: Any) -> None:
        done = apply(batch(payload([value])), a=HOIST, b={"type": "ExtractField$Value", "field": "h"})
        assert values(done) == [value]


class TestFlatten:
    def test_nested_fields_come_to_the_top_and_are_optional_when_one_above_them_is(self) -> None:
        inner = {"type": "record", "name": "In", "fields": [{"name": "x", "type": "int"}, optional("y", "string", "d")]}
        deep = schema("Deep", optional("in", inner), ("req", "In"), ("list", {"type": "array", "items": "int"}))
        some = {"in": {"x": 1, "y": None}, "req": {"x": 2, "y": "k"}, "list": [1]}
        done = apply(batch(payload([some, {**some, "in": None}], deep)), a={"type": "Flatten$Value", "delimiter": "_"})
        assert values(done) == [
            {"in_x": 1, "in_y": None, "req_x": 2, "req_y": "k", "list": [1]},
            {"in_x": None, "in_y": None, "req_x": 2, "req_y": "k", "list": [1]},
        ]
        assert fields_of(done.batch.value) == {
            "in_x": ["null", "int"],
            "in_y": ["string", "null"],
            "req_x": "int",
            "req_y": ["string", "null"],
            "list": {"type": "array", "items": "int"},
        }

    def test_a_map_is_flattened_without_a_schema_and_a_failure_with_one(self) -> None:
        step = {"type": "Flatten$Value"}
        assert values(apply(batch(payload([{"m": {"a": {"b": 1}}, "n": None}])), a=step)) == [{"m.a.b": 1, "n": None}]
        with_map = schema("M", ("m", {"type": "map", "values": "int"}))
        assert messages(apply(batch(payload([{"m": {}}], with_map)), a=step)) == [
            "Flatten transformation does not support MAP for record with schemas (for field m)."
        ]

    def test_fields_that_would_get_one_name_are_a_failure(self) -> None:
        for value in ({"a": {"b": 1}, "a.b": 2}, {"a.b": 2, "a": {"b": 1}}):
            assert messages(apply(batch(payload([value])), a={"type": "Flatten$Value"})) == [
                "Cannot create field because of field name duplication a.b"
            ]

    def test_a_record_that_holds_itself_is_a_failure(self) -> None:
        tree = {"type": "record", "name": "Tree", "fields": [optional("left", "Tree")]}
        given_ = batch(payload([{"tree": {"left": None}}], schema("R", ("tree", tree))))
        assert messages(apply(given_, a={"type": "Flatten$Value"})) == [
            "Tree holds itself: a recursive schema cannot be flattened"
        ]

    @given(
        st.recursive(
            st.dictionaries(st.sampled_from("abc"), st.integers(), min_size=1),
            lambda inner: st.dictionaries(st.sampled_from("abc"), inner | st.integers(), min_size=1),
        )
    )
    def test_nothing_is_lost_and_flattening_twice_is_flattening_once(self, value: dict[str, Any]) -> None:
        step = {"type": "Flatten$Value", "delimiter": "/"}
        (flat,) = values(apply(batch(payload([value])), a=step))
        assert _nested(flat) == value
        assert values(apply(batch(payload([value])), a=step, b=step)) == [flat]


class TestValueToKey:
    def test_the_key_becomes_a_record_of_the_values_fields(self) -> None:
        step = {"type": "ValueToKey", "fields": "nick,name"}
        done = apply(batch(payload([ANN], PERSON), key=payload(["old"])), a=step)
        assert done.batch.key.objects == [{"nick": "A", "name": "Ann"}]
        assert fields_of(done.batch.key) == {"nick": ["string", "null"], "name": "string"}
        assert done.batch.value.schemas == (PERSON,)
        assert done.batch.value.raw is not None

    def test_a_missing_field_is_null_without_a_schema_and_a_failure_with_one(self) -> None:
        step = {"type": "ValueToKey", "fields": "nope"}
        assert apply(batch(payload([{"a": 1}])), a=step).batch.key.objects == [{"nope": None}]
        assert messages(apply(batch(payload([ANN], PERSON)), a=step)) == ["Field does not exist: nope"]


RENAME_SCHEMA = {"type": "SetSchemaMetadata$Value", "schema.name": "org.other.Human", "schema.version": "9"}


class TestSetSchemaMetadata:
    def test_name_and_version_are_set(self) -> None:
        named = schema_of(apply(batch(payload([ANN], PERSON)), a=RENAME_SCHEMA).batch.value)
        assert (named["namespace"], named["name"], named["connect.version"]) == ("org.other", "Human", 9)
        assert named["fields"] == PERSON.avro["fields"]

    def test_a_value_without_a_schema_is_a_failure_but_a_tombstone_passes(self) -> None:
        done = apply(batch(payload([{"a": 1}, None])), a=RENAME_SCHEMA)
        assert messages(done) == ["Schema required for [updating schema metadata]"]
        assert values(done) == [None]


DROP_B = {"type": "ReplaceField$Value", "exclude": "b"}
ONE = schema("R", ("a", "int"))
TWO = schema("R", ("a", "int"), optional("b", "int"))


class TestSeveralSchemas:
    def test_each_record_keeps_to_its_own_schema_and_equal_results_are_one_schema(self) -> None:
        given_ = payload([{"a": 1}, {"a": 2, "b": 3}, None, {"a": 4}], ONE, TWO, None, ONE)
        done = apply(batch(given_), a=DROP_B).batch.value
        assert done.objects == [{"a": 1}, {"a": 2}, None, {"a": 4}]
        assert done.codes.tolist() == [0, 0, NO_SCHEMA, 0]
        assert len(done.schemas) == 1

    def test_one_schema_that_cannot_be_changed_fails_its_records_only(self) -> None:
        step = {"type": "InsertField$Value", "static.field": "b", "static.value": "v"}
        given_ = payload([{"a": 1}, {"a": 2, "b": 3}], ONE, TWO)
        done = apply(batch(given_), a=step)
        assert values(done) == [{"a": 1, "b": "v"}]
        assert [failure.offset for failure in done.failures] == [101]

    def test_what_comes_out_does_not_depend_on_how_records_were_batched(self) -> None:
        given_ = batch(payload([{"a": 1}, {"a": 2, "b": 3}, None], ONE, TWO, None))
        whole = apply(given_, a=DROP_B).batch
        parts = [apply(given_.take(np.array([at])), a=DROP_B).batch for at in range(3)]
        assert [part.value.objects[0] for part in parts] == list(whole.value.objects)
        assert [schema_of(part.value) for part in parts] == [schema_of(whole.value, i) for i in range(3)]


def _nested(flat: dict[str, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for path, value in flat.items():
        *outer, last = path.split("/")
        held = nested
        for name in outer:
            held = held.setdefault(name, {})
        held[last] = value
    return nested


BIG = [{"a": Decimal("1e400"), "b": Decimal("12345678901234567890.5")}]
STEPS = [
    {"type": "ReplaceField$Value", "exclude": "x"},
    {"type": "ExtractField$Value", "field": "a"},
    {"type": "Flatten$Value"},
    {"type": "ExtractTopic$Value", "field": "a", "skip.missing.or.null": "true"},
    {"type": "ValueToKey", "fields": "a"},
    {"type": "HeaderFrom$Value", "fields": "a", "headers": "h", "operation": "copy"},
]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step["type"])
def test_a_key_twice_in_one_object_fails_with_the_reason(step: dict[str, str]) -> None:
    twice = JsonConverter("t", is_key=False).convert(pa.array([b'{"a":"x","b":1,"b":2}']), np.arange(1)).payload
    [message] = messages(apply(batch(twice), a=step))
    assert message.endswith("an object has the key 'b' more than once")


def test_numbers_beyond_doubles_are_masked_and_cast_as_numbers() -> None:
    masked = apply(batch(payload(BIG)), a={"type": "MaskField$Value", "fields": "a"})
    assert values(masked) == [{"a": 0.0, "b": Decimal("12345678901234567890.5")}]
    cast = apply(batch(payload(BIG)), a={"type": "Cast$Value", "spec": "b:string"})
    assert values(cast)[0]["b"] == "12345678901234567890.5"


def test_a_header_holds_such_a_number_alone_and_never_as_a_text_in_a_map() -> None:
    step = {"type": "HeaderFrom$Value", "fields": "b", "headers": "h", "operation": "copy"}
    done = apply(batch(payload(BIG)), a=step)
    assert done.batch.records.column("headers").to_pylist() == [[{"key": "h", "value": b"12345678901234567890.5"}]]
    [message] = messages(apply(batch(payload([{"b": BIG[0]}])), a=step))
    assert "holds the number 1E+400, which no double is" in message
