"""Transforms of topics and headers, predicates, and the chain. The results are those of Apache Kafka 4.3.1."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_s3_platform_tests.transforms.batches import (
    NOON,
    Headers,
    apply,
    batch,
    fields_of,
    headers_of,
    messages,
    optional,
    payload,
    schema,
    topics_of,
    values,
)

TOMBSTONE = {"predicates": "tombstone", "predicates.tombstone.type": "RecordIsTombstone"}


@pytest.mark.parametrize(
    ("regex", "replacement", "topic", "renamed"),
    [
        (".*", "copy_of_$0", "orders", "copy_of_orders"),
        (r"(.*)-(\d+)", "$2_$1", "a-12", "12_a"),
        (r"(?<name>\w+)\.x", "${name}", "abc.x", "abc"),
        ("a|ab", "x", "ab", "xb"),
        ("(a)(b)?", "$1$2z", "a", "az"),
        ("([a-z]+)([0-9]+)", "$10", "ab12", "ab0"),
        ("order", "x", "orders", "orders"),
    ],
)
def test_regex_router_renames_topics_that_match_as_a_whole(
    regex: str, replacement: str, topic: str, renamed: str
) -> None:
    done = apply(
        batch(payload(["x", "y"]), topics=[topic, "unmatched/"]),
        a={"type": "org.apache.kafka.connect.transforms.RegexRouter", "regex": regex, "replacement": replacement},
    )
    expected = "copy_of_unmatched/" if regex == ".*" else "unmatched/"
    assert topics_of(done) == [renamed, expected]


def test_routers_leave_keys_and_values_as_they_came() -> None:
    given_ = batch(payload(["x"]))
    done = apply(
        given_, a={"type": "RegexRouter", "regex": "o(.*)", "replacement": "$1"}, b={"type": "TimestampRouter"}
    )
    assert topics_of(done) == ["rders-20231115"]
    assert done.batch.value is given_.value
    assert done.batch.key is given_.key


def test_timestamp_router_formats_each_records_time_in_utc() -> None:
    step = {"type": "TimestampRouter", "topic.format": "${timestamp}/${topic}", "timestamp.format": "yyyy-MM-dd HH"}
    given_ = batch(payload(["x"] * 3), topics=["a", "b", "a"], timestamps=[0, NOON, NOON + 3_600_000])
    assert topics_of(apply(given_, a=step)) == ["1970-01-01 00/a", "2023-11-15 12/b", "2023-11-15 13/a"]


def test_timestamp_router_fails_records_without_a_timestamp() -> None:
    done = apply(batch(payload(["x", "y"]), timestamps=[-1, NOON]), a={"type": "TimestampRouter"})
    assert messages(done) == ["Timestamp missing on record"]
    assert topics_of(done) == ["orders-20231115"]


NESTED = {"f1": {"f3": "deep", "l": ["zero", "one"]}, "f2": "flat", "n": 7}


@pytest.mark.parametrize(
    ("options", "topic"),
    [
        ({"field": "f2"}, "flat"),
        ({"field": '$["f1"]["f3"]', "field.format": "JSON_PATH"}, "deep"),
        ({"field": "$['f1'].l[1]", "field.format": "JSON_PATH"}, "one"),
        ({"field": "f4", "skip.missing.or.null": "true"}, "orders"),
        ({"field": "$.f1.l[7]", "field.format": "JSON_PATH", "skip.missing.or.null": "true"}, "orders"),
    ],
)
def test_extract_topic_takes_a_field_of_the_value(options: dict[str, str], topic: str) -> None:
    step = {"type": "io.confluent.connect.transforms.ExtractTopic$Value", **options}
    assert topics_of(apply(batch(payload([NESTED])), a=step)) == [topic]


def test_extract_topic_takes_the_whole_key_or_the_last_header_of_a_name() -> None:
    given_ = batch(payload([1, 2]), payload(["a", b"b"]), headers=[[("h", b"x"), ("h", b"y")], [("h", b"z")]])
    assert topics_of(apply(given_, a={"type": "ExtractTopic$Key"})) == ["a", "b"]
    assert topics_of(apply(given_, a={"type": "ExtractTopic$Header", "field": "h"})) == ["y", "z"]


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ("f4", "value field f4 is missing or null, and names no topic"),
        ("n", "value field n is no text that could name a topic, but int"),
        ("f1", "value field f1 is no text that could name a topic, but dict"),
    ],
)
def test_extract_topic_fails_records_that_name_none(field: str, said: str) -> None:
    done = apply(batch(payload([NESTED, {field: "t"}])), a={"type": "ExtractTopic$Value", "field": field})
    assert messages(done) == [said]
    assert topics_of(done) == ["t"]


@given(st.lists(st.none() | st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.binary(max_size=3)), min_size=1)))
def test_headers_are_dropped_and_inserted_as_lists_are(headers: list[Headers | None]) -> None:
    done = apply(
        batch(payload(["x"] * len(headers)), headers=headers),
        a={"type": "DropHeaders", "headers": "a,b"},
        b={"type": "InsertHeader", "header": "b", "value.literal": "new"},
    )
    assert headers_of(done) == [[*(h for h in each or () if h[0] == "c"), ("b", b"new")] for each in headers]


def test_a_record_whose_last_header_was_dropped_has_none() -> None:
    given_ = batch(payload(["x", "y"]), headers=[[("a", b"1")], None])
    assert headers_of(apply(given_, a={"type": "DropHeaders", "headers": "a"})) == [None, None]


def test_the_literal_null_is_a_header_without_a_value() -> None:
    step = {"type": "InsertHeader", "header": "h", "value.literal": "null"}
    assert headers_of(apply(batch(payload(["x"])), a=step)) == [[("h", None)]]


def test_fields_are_moved_or_copied_into_headers() -> None:
    step = {"type": "HeaderFrom$Value", "fields": "a,b", "headers": "h1,h2", "operation": "move"}
    value = {"a": 1.0, "b": {"x": [True, None]}, "c": "rest"}
    given_ = batch(payload([value]), headers=[[("h0", b"0")]])
    moved = apply(given_, a=step)
    assert headers_of(moved) == [[("h0", b"0"), ("h1", b"1.0"), ("h2", b'{"x":[true,null]}')]]
    assert values(moved) == [{"c": "rest"}]
    copied = apply(given_, a={**step, "operation": "copy"})
    assert headers_of(copied) == headers_of(moved)
    assert copied.batch.value is given_.value


def test_logical_types_are_written_into_headers_as_text() -> None:
    record = schema(
        "R", ("t", {"type": "long", "logicalType": "timestamp-millis"}), ("f", "float"), optional("n", "int")
    )
    step = {"type": "HeaderFrom$Value", "fields": "t,f,n", "headers": "t,f,n", "operation": "move"}
    done = apply(batch(payload([{"t": NOON, "f": 0.10000000149011612, "n": None}], record)), a=step)
    assert headers_of(done) == [[("t", b"2023-11-15T12:00:00.123Z"), ("f", b"0.1"), ("n", None)]]
    assert fields_of(done.batch.value) == {}


def test_a_missing_field_is_a_null_header_without_a_schema_and_a_failure_with_one() -> None:
    step = {"type": "HeaderFrom$Value", "fields": "nope", "headers": "h", "operation": "copy"}
    assert headers_of(apply(batch(payload([{"a": 1}])), a=step)) == [[("h", None)]]
    done = apply(batch(payload([{"a": 1}, None], schema("R", ("a", "int")))), a=step)
    assert [message.split(":")[0] for message in messages(done)] == [
        "Unknown field",
        "Only Map objects supported in absence of schema for [header copy], found",
    ]


def test_filter_drops_what_its_predicate_is_true_for_and_negate_turns_it_round() -> None:
    given_ = batch(payload(["x", None, "y"]))
    kept = apply(given_, predicates=TOMBSTONE, a={"type": "Filter", "predicate": "tombstone"})
    assert values(kept) == ["x", "y"]
    assert kept.failures == ()
    tombstones = apply(given_, predicates=TOMBSTONE, a={"type": "Filter", "predicate": "tombstone", "negate": "true"})
    assert tombstones.batch.offsets.tolist() == [101]


def test_a_step_changes_only_the_records_of_its_predicate() -> None:
    predicates = {"predicates": "p", "predicates.p.type": "TopicNameMatches", "predicates.p.pattern": "b.*"}
    given_ = batch(payload([{"v": 1}] * 3), topics=["a", "bc", "ab"])
    for step in (
        {"type": "InsertField$Value", "static.field": "s", "static.value": "x"},
        {"type": "HeaderFrom$Value", "fields": "v", "headers": "h", "operation": "move"},
        {"type": "InsertHeader", "header": "h", "value.literal": "1"},
        {"type": "RegexRouter", "regex": "(.)(.)", "replacement": "$2$1"},
        {"type": "TimestampRouter"},
        {"type": "ValueToKey", "fields": "v"},
    ):
        alone = apply(given_.take(np.array([1])), a=step)
        done = apply(given_, predicates=predicates, a={**step, "predicate": "p"})
        assert [values(done)[0], values(done)[2]] == [{"v": 1}, {"v": 1}]
        assert (values(done)[1], topics_of(done)[1]) == (values(alone)[0], topics_of(alone)[0])
        assert headers_of(done) == [None, headers_of(alone)[0], None]
        assert list(done.batch.key.objects) == [None, alone.batch.key.objects[0], None]


def test_has_header_key_sees_any_header_of_that_name() -> None:
    predicates = {"predicates": "p", "predicates.p.type": "HasHeaderKey", "predicates.p.name": "h"}
    given_ = batch(payload(["x", "y", "z"]), headers=[[("a", b""), ("h", None)], [("a", b"h")], None])
    done = apply(given_, predicates=predicates, a={"type": "Filter", "predicate": "p"})
    assert values(done) == ["y", "z"]


def test_steps_run_in_the_order_they_are_listed_in() -> None:
    insert = {"type": "InsertField$Value", "topic.field": "t"}
    route = {"type": "RegexRouter", "regex": ".*", "replacement": "new"}
    assert values(apply(batch(payload([{}])), a=insert, b=route)) == [{"t": "orders"}]
    assert values(apply(batch(payload([{}])), b=route, a=insert)) == [{"t": "new"}]


def test_failures_of_all_steps_are_collected_and_what_failed_goes_no_further() -> None:
    given_ = batch(payload([{"a": "1"}, "text", {"a": "x"}]))
    done = apply(
        given_,
        a={"type": "InsertField$Value", "static.field": "s", "static.value": "v"},
        b={"type": "Cast$Value", "spec": "a:int8"},
    )
    assert values(done) == [{"a": 1, "s": "v"}]
    assert [(f.offset, f.executing_class.rpartition(".")[2]) for f in done.failures] == [
        (101, "InsertField$Value"),
        (102, "Cast$Value"),
    ]


def test_a_chain_without_steps_and_a_batch_without_records_stay_as_they_are() -> None:
    given_ = batch(payload(["x"]))
    assert apply(given_).batch is given_
    empty = given_.take(np.array([], np.int64))
    assert apply(empty, a={"type": "TimestampRouter"}).batch.num_rows == 0


def test_headers_of_a_slice_of_a_batch_are_its_own() -> None:
    given_ = batch(payload(["x"] * 3), headers=[[("a", b"1"), ("b", b"2")], [("a", None)], [("c", b"3")]])
    part = given_.take(np.array([1, 2]))
    done = apply(part, a={"type": "InsertHeader", "header": "z", "value.literal": "q"})
    assert headers_of(done) == [[("a", None), ("z", b"q")], [("c", b"3"), ("z", b"q")]]
