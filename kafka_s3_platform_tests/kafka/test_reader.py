import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from kafka_s3_platform.core.config.settings import KafkaSettings
from kafka_s3_platform.core.errors import (
    BrokerUnavailableError,
    IntegrityError,
    LogTruncatedError,
    MissingTopicError,
    OffsetGapError,
    OpenTransactionError,
)
from kafka_s3_platform.core.kafka import confluent_reader
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.kafka.answers import RecordOffset
from kafka_s3_platform.core.kafka.client import open_client
from kafka_s3_platform.core.kafka.confluent_reader import ConfluentReader
from kafka_s3_platform.core.kafka.fetch.connection import BrokerConnection
from kafka_s3_platform.core.kafka.fetch.fetch_reader import FetchReader
from kafka_s3_platform.core.kafka.record_reader import Throttle
from kafka_s3_platform.core.model.batches import BATCH_BYTES, BATCH_OFFSETS, RECORD_SCHEMA
from kafka_s3_platform.core.model.gaps import Gap
from kafka_s3_platform.core.model.offsets import OffsetRange, TopicPartition
from kafka_s3_platform.operate.local.settings import StackSettings
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.kafka.answering import answering, nothing
from kafka_s3_platform_tests.kafka.topics import (
    ask_offsets,
    delete_records,
    open_transaction,
    produce,
    read,
    until,
    wait_until_stable,
)
from kafka_s3_platform_tests.kafka.wire import (
    COMPRESS,
    GZIP,
    NO_PRODUCER,
    SNAPPY,
    ZSTD,
    WireRecord,
    framed,
    produce_batch,
    record_batch,
    records_body,
)
from kafka_s3_platform_tests.kafka.wire import produce as produce_raw

MEBIBYTE = 1024 * 1024
NOON_MS = 1_767_268_800_000


@pytest.fixture
def topic(lab: Lab) -> str:
    return lab.create_topic()


Reader = ConfluentReader | FetchReader


@pytest.fixture(params=[ConfluentReader, FetchReader])
def reader_class(request: pytest.FixtureRequest) -> type[Reader]:
    """Both readers keep the same promises."""
    kind: type[Reader] = request.param
    return kind


@pytest.fixture
def reader(reader_class: type[Reader], lab: Lab, topic: str) -> Iterator[Reader]:
    with reader_class(lab.kafka, topic, answer_seconds=20, end_seconds=2) as reader:
        yield reader


@pytest.fixture
def impatient(reader_class: type[Reader], lab: Lab, topic: str) -> Iterator[Reader]:
    """A reader for what does not come."""
    with reader_class(lab.kafka, topic, answer_seconds=20, end_seconds=0.3) as reader:
        yield reader


@pytest.fixture
def tolerant(reader_class: type[Reader], lab: Lab, topic: str) -> Iterator[Reader]:
    """A reader that records gaps."""
    with reader_class(lab.kafka, topic, allow_gaps=True, answer_seconds=20, end_seconds=2) as reader:
        yield reader


def found_offsets(table: pa.Table) -> list[int]:
    found: list[int] = table.column("offset").to_pylist()
    return found


def test_a_range_is_read_as_record_batches(lab: Lab, topic: str, reader: Reader) -> None:
    produce(lab.kafka, topic, [b"%d" % i for i in range(10)])
    table, end = read(reader, 2, 7)
    assert table.schema == RECORD_SCHEMA
    assert table.column("value").to_pylist() == [b"2", b"3", b"4", b"5", b"6"]
    assert set(table.column("topic").to_pylist()) == {topic}
    assert set(table.column("partition").to_pylist()) == {0}
    assert (end.position, end.records, end.bytes, end.gaps) == (7, 5, 5, ())
    assert end.leader_epoch is not None


def test_how_a_range_was_read_is_known_only_at_its_end(lab: Lab, topic: str, reader: Reader) -> None:
    produce(lab.kafka, topic, [b"v"])
    reading = reader.read(0, OffsetRange(0, 1))
    with pytest.raises(ValueError, match="not read to its end"):
        _ = reading.end
    assert [len(batch) for batch in reading] == [1]
    assert reading.end.records == 1


def test_contiguous_ranges_are_read_straight_through_and_others_anew(lab: Lab, topic: str, reader: Reader) -> None:
    produce(lab.kafka, topic, [b"%d" % i for i in range(1000)])
    for start, end in [(0, 1), (1, 400), (400, 401), (401, 1000), (300, 500), (500, 600), (700, 800), (0, 1000)]:
        assert found_offsets(read(reader, start, end)[0]) == list(range(start, end))


def test_reading_that_was_given_up_half_way_begins_anew(lab: Lab, topic: str, reader: Reader) -> None:
    produce(lab.kafka, topic, [b"%d" % i for i in range(100)])
    reading = iter(reader.read(0, OffsetRange(0, 100)))
    next(reading)
    assert found_offsets(read(reader, 0, 50)[0]) == list(range(50))
    assert found_offsets(read(reader, 50, 100)[0]) == list(range(50, 100))


def test_batches_end_at_multiples_of_the_offset_grid_however_ranges_are_fetched(
    lab: Lab, topic: str, reader: Reader
) -> None:
    count = 2 * BATCH_OFFSETS + 100
    produce(lab.kafka, topic, (b"v" for _ in range(count)))
    batches = list(reader.read(0, OffsetRange(100, count)))
    assert [len(batch) for batch in batches] == [BATCH_OFFSETS - 100, BATCH_OFFSETS, 100]
    assert found_offsets(pa.Table.from_batches(batches)) == list(range(100, count))


def test_large_records_are_cut_by_bytes(reader_class: type[Reader], lab: Lab, topic: str) -> None:
    large = lab.create(f"{topic}-large", max_message_bytes=4 * MEBIBYTE)
    client = Producer(lab.kafka.properties("producer") | {"message.max.bytes": 4 * MEBIBYTE})
    for i in range(40):
        client.produce(large, bytes([i]) * MEBIBYTE, partition=0)
    assert client.flush(60) == 0
    with reader_class(lab.kafka, large) as reader:
        batches = list(reader.read(0, OffsetRange(0, 40)))
    per_batch = BATCH_BYTES // MEBIBYTE
    assert [len(batch) for batch in batches] == [per_batch, per_batch, 40 - 2 * per_batch]
    values = pa.Table.from_batches(batches).column("value").to_pylist()
    assert values == [bytes([i]) * MEBIBYTE for i in range(40)]


def test_a_range_may_end_in_control_records(reader_class: type[Reader], lab: Lab, topic: str, reader: Reader) -> None:
    open_transaction(lab.kafka, topic, [b"a", b"b"]).commit_transaction(30)
    table, end = read(reader, 0, 3)
    assert found_offsets(table) == [0, 1]
    assert end.position == 3
    # the marker may be of a later epoch than the last record, whose own would look like truncation
    assert end.leader_epoch == (0 if reader_class is FetchReader else None)
    assert read(reader, 0, 2)[1].leader_epoch is not None


def test_aborted_transactions_are_not_delivered(lab: Lab, topic: str, reader: Reader) -> None:
    produce(lab.kafka, topic, [b"before"])
    open_transaction(lab.kafka, topic, [b"x"] * 5).abort_transaction(30)
    table, end = read(reader, 0, 7)
    assert (found_offsets(table), end.position) == ([0], 7)
    produce(lab.kafka, topic, [b"after"])
    assert found_offsets(read(reader, 7, 8)[0]) == [7]
    assert found_offsets(read(reader, 2, 8)[0]) == [7]


def test_a_range_of_nothing_but_an_aborted_transaction_is_read_to_its_end(lab: Lab, topic: str, reader: Reader) -> None:
    open_transaction(lab.kafka, topic, [b"x"] * 5).abort_transaction(30)
    table, end = read(reader, 1, 4)
    assert (len(table), end.records, end.gaps) == (0, 0, ())
    assert end.position >= 4


def test_an_open_transaction_is_waited_for(lab: Lab, topic: str, reader: Reader) -> None:
    transaction = open_transaction(lab.kafka, topic, [b"a", b"b"])
    later = threading.Timer(1, transaction.commit_transaction, [30])
    later.start()
    assert found_offsets(read(reader, 0, 3)[0]) == [0, 1]
    later.join()


def test_a_transaction_open_for_too_long_is_named_with_the_offset(lab: Lab, topic: str, impatient: Reader) -> None:
    produce(lab.kafka, topic, [b"before"])
    transaction = open_transaction(lab.kafka, topic, [b"a"])
    with pytest.raises(OpenTransactionError, match=rf"{topic}, kafka partition 0, offset 1: .*last stable offset at 1"):
        read(impatient, 0, 2)
    transaction.abort_transaction(30)


def test_holes_left_by_compaction_are_neither_gaps_nor_waited_for(
    reader_class: type[Reader], lab: Lab, topic: str
) -> None:
    compacted = lab.create(
        f"{topic}-compacted",
        cleanup_policy="compact",
        segment_bytes=MEBIBYTE,
        min_cleanable_dirty_ratio=0.001,
        max_compaction_lag_ms=1000,
    )
    client = Producer(lab.kafka.properties("producer"))
    for i in range(300):
        client.produce(compacted, b"x" * 10_000, key=b"same", partition=0)
        if i % 50 == 0:
            client.flush(30)
    assert client.flush(30) == 0

    def kept() -> list[int]:
        with reader_class(lab.kafka, compacted) as reader:
            table, end = read(reader, 0, 300)
        assert (end.position, end.gaps) == (300, ())
        return found_offsets(table)

    until(lambda: len(kept()) < 200)
    assert kept()[-1] == 299
    with reader_class(lab.kafka, compacted) as reader:
        assert len(read(reader, 0, 10)[0]) == 0
        assert found_offsets(read(reader, 10, 300)[0]) == kept()


def test_deleted_offsets_stop_the_reader_with_a_message_that_says_what_to_do(
    lab: Lab, topic: str, reader: Reader
) -> None:
    produce(lab.kafka, topic, [b"v"] * 10)
    delete_records(lab.kafka, topic, 4)
    with pytest.raises(
        OffsetGapError, match=rf"{topic}, kafka partition 0: offsets \[1, 4\) .*retention.*archive\.allow\.gaps"
    ):
        read(reader, 1, 8)


def test_deleted_offsets_are_a_gap_where_gaps_are_allowed(lab: Lab, topic: str, tolerant: Reader) -> None:
    produce(lab.kafka, topic, [b"v"] * 10)
    delete_records(lab.kafka, topic, 4)
    table, end = read(tolerant, 1, 8)
    assert found_offsets(table) == [4, 5, 6, 7]
    assert end.gaps == (Gap(0, 1, 4, "retention"),)


def test_a_broker_that_answers_from_its_log_start_on_does_not_hide_what_was_deleted(
    lab: Lab, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka answers OFFSET_OUT_OF_RANGE; a broker that speaks its protocol may go on where its log begins."""
    ask = BrokerConnection.ask

    def from_the_log_start(
        self: BrokerConnection, tp: TopicPartition, offset: int, leader_epoch: int, max_bytes: int, wait_ms: int
    ) -> None:
        ask(self, tp, max(offset, 4), leader_epoch, max_bytes, wait_ms)

    for _ in range(2):
        # in two batches, of which the log start lies between
        produce(lab.kafka, topic, [b"v"] * 4)
    delete_records(lab.kafka, topic, 4)
    monkeypatch.setattr(BrokerConnection, "ask", from_the_log_start)
    with FetchReader(lab.kafka, topic, allow_gaps=True, answer_seconds=20, end_seconds=2) as tolerant:
        table, end = read(tolerant, 1, 8)
    assert (found_offsets(table), end.gaps) == ([4, 5, 6, 7], (Gap(0, 1, 4, "retention"),))
    with FetchReader(lab.kafka, topic) as strict, pytest.raises(OffsetGapError, match=r"\[1, 4\)"):
        read(strict, 1, 8)


def test_a_range_deleted_as_a_whole_is_one_gap_and_the_next_range_is_read(
    lab: Lab, topic: str, tolerant: Reader
) -> None:
    produce(lab.kafka, topic, [b"v"] * 10)
    delete_records(lab.kafka, topic, 8)
    table, end = read(tolerant, 0, 5)
    assert (len(table), end.position, end.gaps) == (0, 5, (Gap(0, 0, 5),))
    table, end = read(tolerant, 5, 10)
    assert (found_offsets(table), end.gaps) == ([8, 9], (Gap(0, 5, 8),))


def test_records_deleted_while_they_are_read_are_a_gap_not_silence(
    reader_class: type[Reader], lab: Lab, topic: str
) -> None:
    large = lab.create(f"{topic}-deleted", max_message_bytes=4 * MEBIBYTE)
    client = Producer(lab.kafka.properties("producer") | {"message.max.bytes": 4 * MEBIBYTE})
    for _ in range(200):
        client.produce(large, b"x" * MEBIBYTE, partition=0)
    assert client.flush(60) == 0
    # Slow enough that most of the range is not fetched yet when it is deleted.
    with reader_class(lab.kafka, large, Throttle(None, 60 * MEBIBYTE), allow_gaps=True) as reader:
        reading = reader.read(0, OffsetRange(0, 200))
        found: list[int] = []
        for batch in reading:
            if not found:
                delete_records(lab.kafka, large, 190)
            found += batch.column("offset").to_pylist()
    (gap,) = reading.end.gaps
    assert gap.end_offset == 190
    assert found == [*range(gap.start_offset), *range(190, 200)]


def test_a_log_that_ends_before_the_range_begins_was_truncated(lab: Lab, topic: str, reader: Reader) -> None:
    produce(lab.kafka, topic, [b"v"] * 3)
    for leader_epoch in (None, 0):
        with pytest.raises(LogTruncatedError, match=rf"{topic}, kafka partition 0, offset 5: .*truncated"):
            read(reader, 5, 8, leader_epoch)


def test_a_log_that_ends_before_the_range_ends_was_truncated(lab: Lab, topic: str, impatient: Reader) -> None:
    produce(lab.kafka, topic, [b"v"] * 3)
    with pytest.raises(LogTruncatedError, match="the log ends at 3"):
        read(impatient, 0, 5)


def test_a_leader_epoch_that_the_log_does_not_know_was_truncated(lab: Lab, topic: str, reader: Reader) -> None:
    produce(lab.kafka, topic, [b"v"] * 3)
    assert found_offsets(read(reader, 1, 3, 0)[0]) == [1, 2]
    with pytest.raises(LogTruncatedError, match="truncated"):
        read(reader, 1, 3, 9)


def test_header_names_and_values_survive(lab: Lab, topic: str, reader: Reader) -> None:
    headers: list[tuple[str, bytes | None]] = [
        ("a", b"1"),
        ("a", None),
        ("a", b""),
        ("", b"\xff\x00"),
        ("x-y.z", b"2"),
        ("schlüssel-日本", b"3"),
    ]
    wire = [(name.encode(), value) for name, value in headers]
    records = [WireRecord(1, headers=[]), WireRecord(1, headers=wire), WireRecord(1, headers=wire[:1])]
    produce_raw(lab.kafka.bootstrap_servers, topic, 0, records)
    found = read(reader, 0, 3)[0].column("headers").to_pylist()
    assert found[0] is None
    assert [(h["key"], h["value"]) for h in found[1]] == headers
    assert found[2] == [{"key": "a", "value": b"1"}]


def header_name_that_is_not_utf_8(kafka: KafkaSettings, topic: str) -> None:
    """At offset 2 of 4."""
    good, bad = WireRecord(1, headers=[(b"ok", b"1")]), WireRecord(1, headers=[(b"ok", b"1"), (b"\xff", b"2")])
    produce_raw(kafka.bootstrap_servers, topic, 0, [good, good, bad, good])


def test_a_header_name_that_is_not_utf_8_stops_the_reader_at_its_offset(lab: Lab, topic: str, reader: Reader) -> None:
    header_name_that_is_not_utf_8(lab.kafka, topic)
    with pytest.raises(IntegrityError, match=rf"{topic}, kafka partition 0, offset 2: a header name is not UTF-8"):
        read(reader, 0, 4)
    assert found_offsets(read(reader, 0, 2)[0]) == [0, 1]
    assert found_offsets(read(reader, 3, 4)[0]) == [3]


def test_a_skipping_reader_tells_of_a_header_name_not_in_utf_8(
    reader_class: type[Reader], lab: Lab, topic: str
) -> None:
    header_name_that_is_not_utf_8(lab.kafka, topic)
    with reader_class(lab.kafka, topic, skip_unreadable=True) as reader:
        reading = reader.read(0, OffsetRange(1, 4))
        batch = next(iter(reading))
        assert batch.column("offset").to_pylist() == [1, 2, 3]
        assert list(reading.failures) == [2]
        assert "not UTF-8" in reading.failures[2]
        one, other, again = batch.column("headers").to_pylist()
        assert one == again == [{"key": "ok", "value": b"1"}]
        escaped = [{"key": "ok", "value": b"1"}, {"key": "\\xff", "value": b"2"}]
        assert other == (escaped if reader_class is FetchReader else None)
        none = reader.read(0, OffsetRange(3, 4))
        assert sum(map(len, none)) == 1
        assert not none.failures


CRAFTED = [
    [500, 501],  # past the end of the batch, and past what others write
    [0, 500],
    [1, 0],
    [0, 0],
    [0, -1],
]


def crafted_batch_among_good_ones(kafka: KafkaSettings, topic: str, offset_deltas: Sequence[int]) -> None:
    """At offsets 10 and 11 of 512: the broker checks the offsets of compressed records only."""
    produce(kafka, topic, [b"good"] * 10)
    records = [WireRecord(1, value=b"crafted")] * len(offset_deltas)
    produce_batch(kafka.bootstrap_servers, topic, 0, record_batch(records, offset_deltas=offset_deltas))
    produce(kafka, topic, [b"good"] * 500)


@pytest.mark.parametrize("offset_deltas", CRAFTED, ids=str)
def test_a_batch_of_lies_takes_no_good_record_with_it(lab: Lab, topic: str, offset_deltas: Sequence[int]) -> None:
    crafted_batch_among_good_ones(lab.kafka, topic, offset_deltas)
    with FetchReader(lab.kafka, topic, skip_unreadable=True) as reader:
        table, end = read(reader, 0, 512)
        assert found_offsets(table) == [*range(10), *range(12, 512)]
        assert set(table["value"].to_pylist()) == {b"good"}
        [bad] = end.unreadable
        assert (bad.start_offset, bad.end_offset, bad.reason) == (10, 12, "batch")
        assert (
            "the record batch at offset 10, up to 11, cannot be read: the offsets of its records do not" in bad.message
        )
        assert (end.records, end.gaps) == (510, ())
        beside = {(0, 10): [], (0, 11): [(10, 11)], (11, 12): [(11, 12)], (12, 20): [], (5, 400): [(10, 12)]}
        for (start, stop), told in beside.items():
            table, end = read(reader, start, stop)
            assert found_offsets(table) == [o for o in range(start, stop) if o not in (10, 11)]
            assert [(u.start_offset, u.end_offset) for u in end.unreadable] == told


@pytest.mark.parametrize("offset_deltas", CRAFTED, ids=str)
def test_a_batch_of_lies_stops_a_reader_that_skips_nothing(lab: Lab, topic: str, offset_deltas: Sequence[int]) -> None:
    crafted_batch_among_good_ones(lab.kafka, topic, offset_deltas)
    with FetchReader(lab.kafka, topic) as reader:
        with pytest.raises(IntegrityError, match=rf"{topic}, kafka partition 0, offset 10: .* do not ascend within"):
            read(reader, 0, 512)
        assert found_offsets(read(reader, 12, 512)[0]) == list(range(12, 512))


@pytest.mark.parametrize("offset_deltas", CRAFTED, ids=str)
def test_no_record_hides_others_from_librdkafka_by_lying_about_its_offset(
    lab: Lab, topic: str, offset_deltas: Sequence[int]
) -> None:
    crafted_batch_among_good_ones(lab.kafka, topic, offset_deltas)
    for end in (512, 13, 300):
        with (
            ConfluentReader(lab.kafka, topic, skip_unreadable=True) as reader,
            pytest.raises(IntegrityError, match=f"{topic}, kafka partition 0: records lie about their offsets"),
        ):
            read(reader, 0, end)
    with ConfluentReader(lab.kafka, topic) as reader:
        assert found_offsets(read(reader, 12, 512)[0]) == list(range(12, 512))
        assert found_offsets(read(reader, 0, 10)[0]) == list(range(10))


def test_a_batch_that_was_damaged_on_the_brokers_disk_is_told_and_passed_by(
    lab: Lab, stack_settings: StackSettings, topic: str
) -> None:
    for n in range(3):
        produce_raw(lab.kafka.bootstrap_servers, topic, 0, [WireRecord(1, value=b"%d-%d" % (n, i)) for i in range(4)])
    damage(stack_settings, topic, b"1-2")
    with FetchReader(lab.kafka, topic, skip_unreadable=True) as reader:
        table, end = read(reader, 0, 12)
        assert found_offsets(table) == [0, 1, 2, 3, 8, 9, 10, 11]
        assert [(u.start_offset, u.end_offset) for u in end.unreadable] == [(4, 8)]
        assert "its CRC is wrong" in end.unreadable[0].message
        # nothing follows it in what is fetched: its header tells its end
        damage(stack_settings, topic, b"2-0")
        table, end = read(reader, 0, 12)
        assert [(u.start_offset, u.end_offset) for u in end.unreadable] == [(4, 8), (8, 12)]


def damage(settings: StackSettings, topic: str, value: bytes) -> None:
    """Change a byte of it in the broker's log."""
    [log] = settings.data_dir.rglob(f"{topic}-0/*.log")
    found = log.read_bytes().index(value)
    with log.open("r+b") as file:
        file.seek(found)
        file.write(b"?")


def one_batch_of_two_streams_among_good_ones(kafka: KafkaSettings, topic: str) -> None:
    """Offsets 3 to 13 are a batch that librdkafka cannot decompress."""
    records = [WireRecord(1, value=b"%d" % n * 100) for n in range(11)]
    body = records_body(records)
    two = COMPRESS[SNAPPY](body[:200]) + COMPRESS[SNAPPY](body[200:])
    produce(kafka, topic, [b"good"] * 3)
    produce_batch(kafka.bootstrap_servers, topic, 0, framed(two, records, 0, SNAPPY, NO_PRODUCER))
    produce(kafka, topic, [b"good"] * 3)


def test_a_batch_that_librdkafka_cannot_decompress_is_told_and_passed_by(lab: Lab, topic: str) -> None:
    one_batch_of_two_streams_among_good_ones(lab.kafka, topic)
    with ConfluentReader(lab.kafka, topic) as strict, pytest.raises(IntegrityError, match=r"topic.*[Dd]ecompress"):
        read(strict, 0, 17)
    with ConfluentReader(lab.kafka, topic, skip_unreadable=True) as reader:
        for (start, end), told in {(0, 17): (3, 14), (5, 17): (5, 14), (0, 9): (3, 9), (12, 13): (12, 13)}.items():
            table, ending = read(reader, start, end)
            assert found_offsets(table) == [o for o in range(start, end) if not 3 <= o < 14]
            assert [(u.start_offset, u.end_offset, u.reason) for u in ending.unreadable] == [(*told, "batch")]
            assert "Decompression" in ending.unreadable[0].message


def test_after_deleted_offsets_such_a_batch_stops_no_reader_of_any_cluster(lab: Lab, topic: str) -> None:
    """librdkafka reads the rest of a range whose start was deleted, however the cluster is connected to."""
    one_batch_of_two_streams_among_good_ones(lab.kafka, topic)
    delete_records(lab.kafka, topic, 1)
    with FetchReader(lab.kafka, topic, allow_gaps=True, skip_unreadable=True) as reader:
        table, ending = read(reader, 0, 17)
        assert found_offsets(table) == [1, 2, 14, 15, 16]
        assert ending.gaps == (Gap(0, 0, 1, "retention"),)
        assert [(u.start_offset, u.end_offset) for u in ending.unreadable] == [(3, 14)]


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, ZSTD])  # an lz4 stream of two frames is refused by the broker
def test_records_compressed_in_two_streams_are_read(lab: Lab, topic: str, codec: int) -> None:
    records = [WireRecord(1, value=b"one" * 100), WireRecord(1, value=b"other" * 100)]
    body = records_body(records)
    two = COMPRESS[codec](body[:200]) + COMPRESS[codec](body[200:])
    produce_batch(lab.kafka.bootstrap_servers, topic, 0, framed(two, records, 0, codec, NO_PRODUCER))
    with FetchReader(lab.kafka, topic) as reader:
        assert read(reader, 0, 2)[0]["value"].to_pylist() == [b"one" * 100, b"other" * 100]


def test_null_and_empty_keys_and_values_stay_apart(lab: Lab, topic: str, reader: Reader) -> None:
    pairs = [(None, None), (b"", b""), (None, b""), (b"", None)]
    produce_raw(lab.kafka.bootstrap_servers, topic, 0, [WireRecord(1, key, value) for key, value in pairs])
    table = read(reader, 0, 4)[0]
    assert list(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True)) == pairs


def test_timestamps_survive_to_the_millisecond(reader_class: type[Reader], lab: Lab, topic: str) -> None:
    stamps = [1_700_000_000_001, 0, -1, -1000, 1, 253_402_300_799_000]
    ahead = lab.create(f"{topic}-ahead", message_timestamp_after_max_ms=2**63 - 1)
    for stamp in stamps:
        produce_raw(lab.kafka.bootstrap_servers, ahead, 0, [WireRecord(stamp)])
    with reader_class(lab.kafka, ahead) as reader:
        table = read(reader, 0, len(stamps))[0]
    assert table["timestamp"].cast(pa.int64()).to_pylist() == stamps
    assert table["timestampType"].to_pylist() == [0, 0, -1, 0, 0, 0]


def test_timestamps_far_apart_in_one_batch_of_the_producer_survive(lab: Lab, topic: str, reader: Reader) -> None:
    stamps = [1_700_000_000_000, 1, 1_700_000_000_000 + 40 * 86_400_000, -1, 0]
    produce_raw(lab.kafka.bootstrap_servers, topic, 0, [WireRecord(stamp) for stamp in stamps])
    table = read(reader, 0, len(stamps))[0]
    assert table["timestamp"].cast(pa.int64()).to_pylist() == stamps


def test_log_append_time_is_told(reader_class: type[Reader], lab: Lab, topic: str) -> None:
    appended = lab.create(f"{topic}-appended", message_timestamp_type="LogAppendTime")
    before = int(time.time() * 1000)
    produce_raw(lab.kafka.bootstrap_servers, appended, 0, [WireRecord(5), WireRecord(-1)])
    with reader_class(lab.kafka, appended) as reader:
        table = read(reader, 0, 2)[0]
    assert table["timestampType"].to_pylist() == [1, 1]
    assert all(stamp >= before - 1000 for stamp in table["timestamp"].cast(pa.int64()).to_pylist())


@pytest.mark.parametrize("codec", [0, GZIP, SNAPPY, ZSTD])
@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
def test_what_an_honest_broker_tells_of_a_time_is_what_the_log_holds(
    reader_class: type[Reader], lab: Lab, topic: str, codec: int, kind: str
) -> None:
    timed = lab.create(f"{topic}-timed", message_timestamp_type=kind)
    records = [WireRecord(NOON_MS + n) for n in range(3)]
    body = records_body(records)
    batch = framed(COMPRESS[codec](body) if codec else body, records, 0, codec, NO_PRODUCER)
    for _ in range(2):
        produce_batch(lab.kafka.bootstrap_servers, timed, 0, batch)
    with ClusterAdmin(lab.kafka) as admin, reader_class(lab.kafka, timed) as reader:
        told = list(ask_offsets(admin, timed, [0], [0, NOON_MS + 1, NOON_MS + 2]).all_or_raise()[0].values())
        assert [reader.find_timestamp(0, o) for o in told if isinstance(o, RecordOffset)] == [
            o.timestamp_ms for o in told if isinstance(o, RecordOffset)
        ]
        assert isinstance(told[0], RecordOffset)
        assert reader.find_timestamp(0, 99) is None


@pytest.mark.parametrize("committed", [True, False])
def test_what_an_honest_broker_tells_of_a_time_may_be_an_aborted_record_or_a_marker(
    lab: Lab, topic: str, committed: bool
) -> None:
    writer = open_transaction(lab.kafka, topic, [b"x", b"y"])
    writer.commit_transaction(30) if committed else writer.abort_transaction(30)
    wait_until_stable(lab.kafka, topic)
    with ClusterAdmin(lab.kafka) as admin, FetchReader(lab.kafka, topic) as reader:
        times = [t for t in (reader.find_timestamp(0, offset) for offset in range(3)) if t is not None]
        assert len(times) == 3
        for time_ms in times:
            told = ask_offsets(admin, topic, [0], [time_ms]).all_or_raise()[0][time_ms]
            assert isinstance(told, RecordOffset)
            assert reader.find_timestamp(0, told) == told.timestamp_ms
    with ConfluentReader(lab.kafka, topic) as reader:
        assert [reader.find_timestamp(0, offset) for offset in range(3)] == [
            *(times[:2] if committed else [None, None]),
            None,
        ], "librdkafka shows committed records only"


def test_a_throttle_slows_the_reader(reader_class: type[Reader], lab: Lab, topic: str) -> None:
    produce(lab.kafka, topic, [b"v"] * 300)
    with reader_class(lab.kafka, topic, Throttle(200)) as reader:
        start = time.monotonic()
        assert len(read(reader, 0, 300)[0]) == 300
    assert time.monotonic() - start > 0.4


def test_an_unreachable_broker_is_named_with_the_reason() -> None:
    nowhere = KafkaSettings(bootstrap_servers="127.0.0.1:1")
    with (
        ConfluentReader(nowhere, "t", answer_seconds=1) as reader,
        pytest.raises(BrokerUnavailableError, match=r"topic t at 127\.0\.0\.1:1.*Connection refused"),
    ):
        read(reader, 0, 1)


def test_a_missing_topic_or_kafka_partition_is_named(lab: Lab, topic: str, reader: Reader) -> None:
    with (
        ConfluentReader(lab.kafka, "no-such-topic", answer_seconds=20) as other,
        pytest.raises(MissingTopicError, match="no-such-topic"),
    ):
        read(other, 0, 1)
    with pytest.raises(MissingTopicError, match=f"{topic} has no kafka partition 3"):
        list(reader.read(3, OffsetRange(0, 1)))


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_both_readers_give_the_same_batches_whatever_the_compression(lab: Lab, topic: str, codec: str) -> None:
    producer = Producer(lab.kafka.properties("producer") | {"compression.type": codec, "linger.ms": 20})
    for n in range(20_000):
        headers: list[tuple[str, str | bytes | None]] = [("h", b"%d" % n), ("h", None), ("ü", b"")] if n % 3 else []
        value = None if n % 11 == 0 else b"" if n % 7 == 0 else b"value " * (n % 50)
        producer.produce(topic, value, b"key-%d" % n if n % 5 else None, headers=headers, timestamp=NOON_MS + n)
    producer.flush(30)
    found = []
    for kind in (ConfluentReader, FetchReader):
        with kind(lab.kafka, topic) as reader:
            found.append(list(reader.read(0, OffsetRange(100, 19_990))))
    assert [b.num_rows for b in found[0]] == [b.num_rows for b in found[1]]
    assert all(one.equals(other) for one, other in zip(*found, strict=True))


class GoingDown:
    """A consumer whose broker answers `bounds` of a log, and everything else as it is."""

    def __init__(self, consumer: Any, bounds: tuple[int, int]) -> None:
        self._consumer, self._bounds = consumer, bounds

    def __getattr__(self, name: str) -> Any:
        return getattr(self._consumer, name)

    def get_watermark_offsets(self, *_: Any, **__: Any) -> tuple[int, int]:
        return self._bounds


@pytest.mark.parametrize("bounds", [(-1001, -1001), (0, -1001), (-1, 5), (5, 4)])
def test_a_log_whose_bounds_cannot_be_is_asked_for_again_later(
    lab: Lab, topic: str, bounds: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Taken as it comes, it is a log that was truncated: nothing would be read until somebody decided."""
    produce(lab.kafka, topic, [b"a"] * 5)
    monkeypatch.setattr(confluent_reader, "open_client", lambda *given: GoingDown(open_client(*given), bounds))
    with ConfluentReader(lab.kafka, topic, answer_seconds=20, end_seconds=2) as reader:
        for start, end in ((0, 5), (7, 9)):
            with pytest.raises(
                BrokerUnavailableError, match=f"log start of topic {topic}, kafka partition 0: the broker"
            ):
                read(reader, start, end)
        with answering(nothing), pytest.raises(BrokerUnavailableError, match=r"-1001"):
            read(reader, 5, 7)
