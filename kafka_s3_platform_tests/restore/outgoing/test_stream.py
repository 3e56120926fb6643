"""What is sent: kafka partitions as Kafka's clients choose them, headers, transforms and routes.

Kafka partitions as librdkafka itself chooses them.
"""

import random
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from confluent_kafka import Producer
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_s3_platform.connect.config.keys.transforms import parse_transforms
from kafka_s3_platform.connect.restore.outgoing.stream import OutgoingStream
from kafka_s3_platform.connect.restore.outgoing.values import Rewritten
from kafka_s3_platform.core.errors import ConfigError, PermanentError, RecordError
from kafka_s3_platform.core.model.connect import NO_SCHEMA, ConnectBatch, Outcome, Payload
from kafka_s3_platform.core.restore.outgoing.partitioning import hash_crc32, hash_murmur2
from kafka_s3_platform.core.restore.outgoing.sent import PROVENANCE_HEADERS, SentSettings
from kafka_s3_platform.core.restore.request import Outgoing
from kafka_s3_platform.core.restore.target_topic import (
    Regex,
    Rename,
    Template,
    TopicMap,
    apply_routers,
    name_target_topic,
)
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.kafka.topics import records_of
from kafka_s3_platform_tests.restore.records import STREAMS, batch_of, rows_of, stream_of

OWN = "kafka_s3_platform_tests"
THIS = f"{OWN}.restore.outgoing.test_stream"
ROUTER = {"type": "org.apache.kafka.connect.transforms.RegexRouter", "regex": ".*", "replacement": "copy_of_$0"}

HEADERS = st.none() | st.lists(st.tuples(st.sampled_from("ab"), st.none() | st.binary(max_size=2)), max_size=3)

MAP = {"regex": "copy_of_regex", "replacement": "copy_of_replacement"}

KAFKA_PARTITIONS = 7


class ByLength:
    """A user's partitioner: by the length of the value."""

    def __init__(self, kafka_partition_count: int) -> None:
        self.count = kafka_partition_count

    def kafka_partitions(self, batch: pa.RecordBatch) -> pa.Int32Array:
        lengths = pc.fill_null(pc.binary_length(batch.column("value")), 0)
        return pa.array(np.minimum(lengths.to_numpy(), self.count - 1).astype(np.int32))


class OutOfBounds(ByLength):
    def kafka_partitions(self, batch: pa.RecordBatch) -> pa.Int32Array:
        return pa.array([self.count] * batch.num_rows, pa.int32())


class OfAnotherType(ByLength):
    def kafka_partitions(self, batch: pa.RecordBatch) -> Any:
        return [0] * batch.num_rows


class WithoutMethod:
    def __init__(self, kafka_partition_count: int) -> None:
        pass


class CannotBeMade:
    def kafka_partitions(self, batch: pa.RecordBatch) -> pa.Int32Array: ...


def steps(**transforms: Mapping[str, str]) -> Any:
    entries = {"transforms": ",".join(transforms)}
    return parse_transforms(
        entries
        | {f"transforms.{a}.{name}": value for a, options in transforms.items() for name, value in options.items()}
    )


def outgoing(count: int = 5, to_topic: str = "u", **given_: Any) -> OutgoingStream:
    rest = {name: given_.pop(name) for name in ("behavior_on_error", "values") if name in given_}
    return OutgoingStream("t", 3, SentSettings(to_topic, count, outgoing=Outgoing(**given_), **rest))


def python_murmur2(key: bytes) -> int:
    """Java's Utils.murmur2 and toPositive, byte by byte."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = 0x9747B28C ^ len(key)
    for at in range(0, len(key) - len(key) % 4, 4):
        k = int.from_bytes(key[at : at + 4], "little") * m & mask
        h = h * m & mask ^ (k ^ k >> 24) * m & mask
    if rest := key[len(key) - len(key) % 4 :]:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return (h ^ h >> 15) & 0x7FFFFFFF


def signed_positive(value: int) -> int:
    """What Java's toPositive makes of an int."""
    return value & 0x7FFFFFFF


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_gives_what_kafkas_own_test_expects(key: bytes, hashed: int) -> None:
    """The vectors are those of UtilsTest.testMurmur2 in Apache Kafka."""
    assert hash_murmur2(pa.array([key])).tolist() == [signed_positive(hashed)]


@settings(deadline=None)  # the first call compiles
@given(st.lists(st.none() | st.binary(max_size=40)), st.integers(0, 3))
def test_hashes_are_those_of_plain_python_whatever_the_batch_was_sliced_from(
    keys: list[bytes | None], skip: int
) -> None:
    column = pa.array(keys, pa.binary()).slice(skip)
    rest = keys[skip:]

    assert hash_murmur2(column).tolist() == [-1 if k is None else python_murmur2(k) for k in rest]
    assert hash_crc32(column).tolist() == [-1 if k is None else zlib.crc32(k) for k in rest]


@given(STREAMS, st.integers(4, 9))
def test_source_keeps_the_number_and_the_records(batches: Any, count: int) -> None:
    for batch in stream_of(batches):
        expected = [(3, batch)] if batch.num_rows else []
        assert outgoing(count).apply(batch) == expected


@settings(deadline=None)
@given(STREAMS, st.integers(1, 9), st.sampled_from(["murmur2", "crc32"]))
def test_keys_choose_kafka_partitions_and_order_is_kept_within_them(batches: Any, count: int, name: str) -> None:
    def number(row: Mapping[str, Any]) -> int:
        key, offset = row["key"], int(row["offset"])
        if key is None or (name == "crc32" and not key):
            return offset % count
        return (python_murmur2(key) if name == "murmur2" else zlib.crc32(key)) % count

    stream = outgoing(count, partitioning=name)
    for batch in stream_of(batches):
        found = stream.apply(batch)
        assert [p for p, _ in found] == sorted({number(row) for row in rows_of([batch])})
        for p, part in found:
            assert rows_of([part]) == [row for row in rows_of([batch]) if number(row) == p]


def test_too_few_kafka_partitions_for_source_numbers_are_an_error() -> None:
    with pytest.raises(PermanentError, match="kafka partition 3 keep their number, but the target has 3"):
        outgoing(3).apply(batch_of([{}]))


def test_a_users_partitioner_is_asked_by_its_dotted_name() -> None:
    batch = batch_of([{"value": v} for v in (b"xxx", b"", b"xxx", None, b"x")])

    found = outgoing(3, partitioning=f"{THIS}.ByLength").apply(batch)

    assert [(p, part.column("offset").to_pylist()) for p, part in found] == [(0, [1, 3]), (1, [4]), (2, [0, 2])]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nearby", "is neither one of source, murmur2, crc32"),
        ("no_such.Thing", "'no_such.Thing', named by --partitioning .*no plug-in that this installation allows"),
        (f"{OWN}.no_such.Thing", "--partitioning .*cannot import"),
        (f"{THIS}.WithoutMethod", r"has to have kafka_partitions\(\)"),
        (f"{THIS}.CannotBeMade", "with 5 kafka partitions: TypeError"),
    ],
)
def test_a_partitioner_that_cannot_be_used_is_refused_before_the_first_record(name: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        outgoing(partitioning=name)


@pytest.mark.parametrize(
    ("name", "said"),
    [("OutOfBounds", "kafka partition 5"), ("OfAnotherType", "returned list, not a pyarrow.Int32Array")],
)
def test_a_partitioners_wrong_answer_names_where(name: str, said: str) -> None:
    with pytest.raises(PermanentError, match=f"offset 0 on returned .*{said}|{said}"):
        outgoing(partitioning=f"{THIS}.{name}").apply(batch_of([{}]))


@given(st.lists(HEADERS, min_size=1), st.integers(0, 2))
def test_provenance_comes_behind_the_records_own_headers(headers: list[Any], skip: int) -> None:
    batch = batch_of([{"headers": h, "timestamp": -n} for n, h in enumerate(headers)]).slice(skip)

    found = outgoing(provenance_headers=True).apply(batch)

    rows = [row for _, part in found for row in rows_of([part])]
    for row, was in zip(rows, rows_of([batch]), strict=True):
        time = -was["offset"]
        told = [str(was["offset"]).encode(), b"3", str(time).encode()]
        added = [{"key": k, "value": v} for k, v in zip(PROVENANCE_HEADERS, told, strict=True)]
        assert row["headers"] == [*(was["headers"] or []), *added]
        assert {n: v for n, v in row.items() if n != "headers"} == {n: v for n, v in was.items() if n != "headers"}


def test_a_regex_router_names_the_target_and_all_records_go_there() -> None:
    stream = outgoing(to_topic="copy_of_t", transforms=steps(a=ROUTER))

    assert [p for p, _ in stream.apply(batch_of([{}, {}]))] == [3]
    assert stream.elsewhere == {}


def test_a_regex_router_that_contradicts_the_target_is_refused() -> None:
    with pytest.raises(ConfigError, match="route topic t to copy_of_t, but the target of the restore is u"):
        outgoing(transforms=steps(a=ROUTER))


def test_records_that_are_routed_elsewhere_are_left_out_and_counted() -> None:
    route = {"type": "io.confluent.connect.transforms.ExtractTopic$Key", "skip.missing.or.null": "true"}
    stream = outgoing(transforms=steps(a=route))

    found = stream.apply(batch_of([{"key": k} for k in (b"u", b"other", None, b"u", b"other", b"third")]))

    assert [(p, part.column("offset").to_pylist()) for p, part in found] == [(3, [0, 2, 3])]
    assert stream.elsewhere == {"other": 2, "third": 1}


def test_what_a_transform_drops_is_counted() -> None:
    entries = {
        "transforms": "f",
        "transforms.f.type": "Filter",
        "transforms.f.predicate": "gone",
        "predicates": "gone",
        "predicates.gone.type": "RecordIsTombstone",
    }
    stream = outgoing(transforms=parse_transforms(entries))

    assert stream.apply(batch_of([{"value": None}])) == []
    assert [part.num_rows for _, part in stream.apply(batch_of([{}, {"value": None}]))] == [1]
    assert (stream.filtered_count, stream.failed_count) == (2, 0)


def test_a_record_that_fails_ends_the_restore_or_is_left_out_as_asked(caplog: pytest.LogCaptureFixture) -> None:
    route = {"type": "ExtractTopic$Key"}
    batch = batch_of([{"key": b"u"}, {"key": None}, {"key": b"u"}])

    with pytest.raises(RecordError, match=r"t-3 to u: the record of source offset 1 fails .*ExtractTopic\$Key"):
        outgoing(transforms=steps(a=route)).apply(batch)
    for way, lines in (("ignore", 0), ("log", 1)):
        caplog.clear()
        stream = outgoing(transforms=steps(a=route), behavior_on_error=way)
        assert [part.column("offset").to_pylist() for _, part in stream.apply(batch)] == [[0, 2]]
        assert (stream.failed_count, stream.filtered_count, len(caplog.records)) == (1, 0, lines)


class Lengths:
    """Decodes a value to the map of its length, encodes what it is given as text."""

    changes_nothing = False

    def decode(self, batch: pa.RecordBatch, everything: bool = False) -> Outcome:
        given_ = ConnectBatch.of(batch)
        codes = np.full(batch.num_rows, NO_SCHEMA, np.int32)
        objects = [{"n": len(v)} if everything else v for v in batch.column("value").to_pylist()]
        return Outcome(ConnectBatch(batch, given_.key, Payload(None, codes, (), objects)))

    def encode(self, batch: ConnectBatch) -> Rewritten:
        raw = pa.array([str(o).encode() for o in batch.value.objects], pa.binary())
        return Rewritten(batch.records.set_column(1, batch.records.schema.field(1), raw))


def values_of(stream: OutgoingStream, value: bytes) -> list[bytes]:
    return [row["value"] for _, part in stream.apply(batch_of([{"value": value}])) for row in rows_of([part])]


def test_converters_stand_around_the_transforms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafka_s3_platform.connect.restore.outgoing.stream.Values", lambda values: values)
    extract = steps(a={"type": "ExtractField$Value", "field": "n"})

    assert values_of(outgoing(transforms=extract, values=Lengths()), b"abc") == [b"3"]
    assert values_of(outgoing(values=Lengths()), b"abc") == [b"b'abc'"]


def test_what_a_transform_makes_needs_a_converter_where_it_is_no_bytes() -> None:
    hoist = steps(a={"type": "HoistField$Value", "field": "n"})
    with pytest.raises(ConfigError, match=r"turned the value into dict, .* set value\.converter"):
        values_of(outgoing(transforms=hoist), b"abc")


@pytest.mark.parametrize(
    ("rename", "target"),
    [
        (Template("fixed"), "fixed"),
        (Template("copy_of_{topic}"), "copy_of_a.b"),
        (Regex("(a)\\.(.*)", "$2_$1"), "b_a"),
        (Regex("a", "x"), "a.b"),
        (TopicMap({"a.b": "c", "d": "e"}), "c"),
    ],
)
def test_a_rename_rule_names_the_target(rename: Rename, target: str) -> None:
    assert name_target_topic(rename, "a.b") == target


def test_a_map_of_topics_named_regex_and_replacement_is_no_router() -> None:
    assert [name_target_topic(TopicMap(MAP), topic) for topic in MAP] == list(MAP.values())
    assert name_target_topic(Regex("copy_of_regex", "x"), "regex") == "regex"


@pytest.mark.parametrize(
    ("rename", "terms"),
    [
        (Template("copy_of_{topic}"), "copy_of_{topic}"),
        (Regex("a", "b"), {"regex": "a", "replacement": "b"}),
        (TopicMap({"a": "b"}), {"a": "b"}),
        (TopicMap(MAP | {"a": "b"}), MAP | {"a": "b"}),
        (TopicMap(MAP), {"topic_map": MAP}),
    ],
)
def test_rules_stand_in_plans_in_a_form_that_stays_so_that_restores_go_on(rename: Rename, terms: Any) -> None:
    assert rename.terms == terms


@pytest.mark.parametrize(
    ("rename", "said"),
    [
        (Template("a b"), "is not a valid topic name"),
        (Template("copy_of_{name}"), "is not a valid topic name"),
        (Template(""), "is not a valid topic name"),
        (TopicMap({"x": "y"}), "has no target for a.b. It has targets for x"),
        (Regex("(", "x"), "the rename rule"),
        (Regex("a.*", "$1"), "no group 1"),
    ],
)
def test_a_rename_rule_that_cannot_be_used_says_why(rename: Rename, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        name_target_topic(rename, "a.b")


def test_routers_of_the_topic_alone_name_the_target_beforehand() -> None:
    second = {"type": "RegexRouter", "regex": "copy_of_(.*)", "replacement": "$1-2"}
    assert apply_routers(steps(a=ROUTER, b=second), "orders") == "orders-2"
    assert apply_routers((), "orders") == "orders"


@pytest.mark.parametrize(
    ("partitioner", "partitioning"),
    [("murmur2_random", "murmur2"), ("consistent_random", "crc32"), ("murmur2", "murmur2"), ("consistent", "crc32")],
)
def test_keys_go_where_a_producer_would_have_sent_them(lab: Lab, partitioner: str, partitioning: str) -> None:
    keys = [random.Random(n).randbytes(1 + n % 40) for n in range(500)]
    lab.create_topic(KAFKA_PARTITIONS)
    producer = Producer(lab.kafka.properties("producer") | {"partitioner": partitioner})
    for key in keys:
        producer.produce(lab.topic, b"v", key)
    assert producer.flush(30) == 0

    stream = outgoing(KAFKA_PARTITIONS, partitioning=partitioning)
    chosen = {p: part.column("key").to_pylist() for p, part in stream.apply(batch_of([{"key": k} for k in keys]))}

    for p in range(KAFKA_PARTITIONS):
        assert chosen.get(p, []) == records_of(lab.kafka, lab.topic, p).column("key").to_pylist()
