"""Several streams in one kafka partition of a target: an equal record of one never stands for a lost one of another.

Exact counts before anything is sent, and windows of picked hours, on a real archive.

Counting tells what is lost, what is there twice and what is another's, whatever the order.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_s3_platform.core.config.settings import ConnectorConfig, TransformSettings
from kafka_s3_platform.core.errors import IntegrityError, PreflightError
from kafka_s3_platform.core.restore.archive_source import ArchiveSource, count_exactly
from kafka_s3_platform.core.restore.filters.stage import FilteredStream
from kafka_s3_platform.core.restore.preflight.goal import StreamCount
from kafka_s3_platform.core.restore.request import Outgoing, RecordFilter, RestoreReport, RestoreRequest
from kafka_s3_platform.core.restore.run import restore
from kafka_s3_platform.core.restore.source.archive_plan import make_plan
from kafka_s3_platform.core.restore.source.archive_stream import ArchivedStream, make_archive_stream
from kafka_s3_platform.core.restore.target_topic import Regex
from kafka_s3_platform.core.restore.verify.target_count import ExpectedRecords, TargetCount, count_records
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.restore.foreign import JSON, LINES, SourceLab, asked, numbered, numbers, restored
from kafka_s3_platform_tests.restore.own import Archive, Between, Step
from kafka_s3_platform_tests.restore.records import batch_of, offsets_of
from kafka_s3_platform_tests.support import HOUR, NOON, InProcessRunner, Sent, produce

MERGED = Regex("(.*)-[12]", "$1-copy")
ENVELOPES = """\
name=aiven
connector.class=io.aiven.kafka.connect.s3.source.S3SourceConnector
aws.s3.bucket.name=confluent-kafka-connect-s3-testing
file.name.template={{topic}}/{{partition}}-{{start_offset}}
file.compression.type=none
format.output.type=csv
format.output.fields=key,value,offset,timestamp
key.converter=org.apache.kafka.connect.converters.ByteArrayConverter
value.converter=org.apache.kafka.connect.converters.ByteArrayConverter
"""

Row = tuple[bytes, int]
"""A value and a timestamp."""

ROWS = st.lists(st.tuples(st.sampled_from([b"a", b"b"]), st.sampled_from([0, 5, 6])), max_size=8)
ANY = frozenset({0})


def losing(topic: str, kept: str, others: Step) -> Between:
    """Sends what the condition is true for of one topic's records; another writer sends before they are read back."""

    def lose(task: Any) -> Any:
        if task.stream.facts.topic != topic:
            return task
        return replace(task, sent=replace(task.sent, records=RecordFilter(sql=kept)))

    return Between(before_verify=others, replayed=lose)


@pytest.mark.parametrize("lost", [True, False])
def test_a_lost_record_is_found_though_others_have_as_many_and_equal_ones(lab: SourceLab, lost: bool) -> None:
    one, two, target = f"{lab.topic}-1", f"{lab.topic}-2", f"{lab.topic}-copy"
    lab.put(one, 0, numbered(0, 4))
    lab.put(two, 5, numbered(1, 2))
    runner = losing(two, '"offset" > 5' if lost else "true", lambda: produce(lab.kafka, target, [Sent(b'{"n":7}')] * 3))
    given = asked(lab.load(LINES, JSON), (), MERGED)
    if lost:
        with pytest.raises(IntegrityError, match=rf" 1 times less often than {one}, {two} together"):
            restore(given, runner)
    else:
        assert restore(given, runner).verified
    assert sorted(numbers(lab.kafka, target)) == sorted([0, 1, 2, 3, 2, 7, 7, 7] + [1] * (not lost))


def test_going_on_by_content_is_refused_where_two_topics_go_to_one(lab: SourceLab) -> None:
    lab.put(f"{lab.topic}-1", 0, numbered(0, 4))
    lab.put(f"{lab.topic}-2", 0, numbered(0, 4))
    with pytest.raises(PreflightError, match=r"cannot tell equal records of two topics apart"):
        restored(lab.load(LINES, JSON), (), MERGED, delivery="at_least_once")


@pytest.fixture
def envelopes(lab: SourceLab) -> Callable[..., RestoreReport]:
    """Restores four equal records of each of two topics, which tell their timestamps."""

    def run(runner: InProcessRunner, partitioning: str) -> RestoreReport:
        for topic in (f"{lab.topic}-1", f"{lab.topic}-2"):
            body = "".join(f"a2V5,dmFsdWU=,{n},{NOON:%Y-%m-%dT%H:%M:%SZ}\n" for n in range(4)).encode()
            lab.put_object(f"{topic}/0-0", body)
        sent = Outgoing(partitioning=partitioning)
        return restore(asked(lab.load(ENVELOPES), (), MERGED, outgoing=sent), runner)

    return run


@pytest.mark.parametrize("partitioning", ["source", "murmur2"])
def test_as_many_equal_records_as_all_topics_have_are_wanted(
    envelopes: Callable[..., RestoreReport], lab: Lab, partitioning: str
) -> None:
    report = envelopes(InProcessRunner(), partitioning)
    assert (report.record_count, report.verified) == (8, True)


def test_an_equal_record_of_another_moment_is_no_replacement_of_a_lost_one(
    envelopes: Callable[..., RestoreReport], lab: Lab
) -> None:
    late = Sent(b"value", b"key", NOON.replace(hour=13))
    runner = losing(f"{lab.topic}-2", '"offset" > 0', lambda: produce(lab.kafka, f"{lab.topic}-copy", [late] * 2))
    with pytest.raises(IntegrityError, match=r"-copy-0 holds a record of source offset .* 1 times less often"):
        envelopes(runner, "source")


@pytest.fixture
def config(shared_archive: Archive) -> ConnectorConfig:
    """Two kafka partitions with twelve records an hour, for five hours: keys k0 to k3 in turn."""
    sent = [
        Sent(b"%d" % n, b"k%d" % (n % 4), NOON + h * HOUR + n * HOUR / 12, kafka_partition=p)
        for p in range(2)
        for h in range(5)
        for n in range(12)
    ]
    return shared_archive(sent, 2)


def requested(config: ConnectorConfig, **changes: Any) -> RestoreRequest:
    return RestoreRequest(config, config.topics[0], to_topic="u", restore_id="r", run_id="x", **changes)


def counts(request: RestoreRequest) -> list[StreamCount]:
    return count_exactly(request, make_plan(request), InProcessRunner())


def selected(request: RestoreRequest, start: int = 0) -> list[int]:
    task = make_archive_stream(request, make_plan(request), 0)
    return offsets_of(FilteredStream(ArchivedStream(task, start), request.records))


def test_what_filters_let_pass_is_counted_exactly(config: ConnectorConfig) -> None:
    whole = requested(config)
    assert make_plan(whole).is_exact
    assert [c.record_count for c in counts(whole)] == [60, 60]

    keyed = requested(config, records=RecordFilter(keys=(b"k1",)))
    assert (make_plan(keyed).is_exact, make_plan(keyed).record_count) == (False, 120)
    first = counts(keyed)[0]
    assert (first.record_count, first.record_bytes, first.largest_record_bytes) == (15, 15 * 3, 3)

    latest = requested(config, records=RecordFilter(latest_per_key=True))
    assert selected(latest) == [56, 57, 58, 59]
    assert selected(latest, 58) == [58, 59]


def test_what_transforms_may_drop_is_never_counted_as_exact(config: ConnectorConfig) -> None:
    everything = TransformSettings(alias="drop", type="Filter")
    dropping = requested(config, dry_run=True, create_topic=True, outgoing=Outgoing(transforms=(everything,)))
    for request in (dropping, replace(dropping, exact=True)):
        found = restore(ArchiveSource(request), InProcessRunner())
        assert (found.record_count, found.exact, found.before_transforms) == (120, False, True)
    plain = restore(ArchiveSource(requested(config, dry_run=True, create_topic=True, exact=True)), InProcessRunner())
    assert (plain.exact, plain.before_transforms) == (True, False)


def test_hours_picked_here_and_there_read_only_their_objects(config: ConnectorConfig) -> None:
    windows = tuple((NOON + h * HOUR, NOON + (h + 1) * HOUR) for h in (4, 1))
    picked = requested(config, windows=windows)

    plan = make_plan(picked)

    assert (plan.is_exact, plan.record_count, len(plan.objects)) == (True, 48, 4)
    assert selected(picked) == [*range(12, 24), *range(48, 60)]
    half = requested(config, windows=windows, from_time=NOON + 1.5 * HOUR)
    assert selected(half) == [*range(18, 24), *range(48, 60)]


def batches(rows: Sequence[Row]) -> Iterator[pa.RecordBatch]:
    yield batch_of({"value": value, "timestamp": timestamp} for value, timestamp in rows)


def counted(streams: Sequence[Sequence[Row]], target: Sequence[Row], free: frozenset[int] = frozenset()) -> TargetCount:
    return count_records([ExpectedRecords(batches(rows), free) for rows in streams], batches(target), "a test")


@settings(max_examples=30)
@given(ROWS, ROWS, ROWS)
def test_it_is_the_difference_of_the_two_multisets(one: list[Row], two: list[Row], found: list[Row]) -> None:
    wanted, there = Counter([*one, *two]), Counter(found)
    result = counted([one, two], found)
    assert (result.lost is None) == (wanted <= there)
    if result.lost is None:
        assert result.doubled_count == sum((there - wanted)[row] for row in wanted)
        assert result.foreign_count == sum(count for row, count in there.items() if row not in wanted)


@settings(max_examples=30)
@given(ROWS, st.lists(st.integers(0, 2), min_size=8, max_size=8), ROWS)
def test_records_whose_timestamp_was_replaced_are_found_at_any(
    rows: list[Row], again: list[int], others: list[Row]
) -> None:
    own = {value for value, _ in rows}
    foreign = [row for row in others if row[0] not in own]
    sent = [(value, 9 if timestamp in ANY else timestamp) for value, timestamp in rows]
    doubles = [row for row, times in zip(sent, again, strict=False) for _ in range(times)]
    result = counted([rows], [*foreign, *doubles, *sent], ANY)
    assert result == TargetCount(len(doubles), len(foreign))


def test_what_was_lost_is_named_by_its_stream_and_offset() -> None:
    result = counted([[(b"a", 5), (b"b", 5)], [(b"b", 5), (b"b", 5)]], [(b"a", 5), (b"b", 5)])
    assert result.lost is not None
    assert (result.lost.count, result.lost.stream, result.lost.source_offset) == (2, 0, 1)
    assert (result.doubled_count, result.foreign_count) == (0, 0)


def test_none_and_nothing() -> None:
    assert counted([], []) == TargetCount()
    assert counted([[]], [(b"a", 5)]) == TargetCount(foreign_count=1)
