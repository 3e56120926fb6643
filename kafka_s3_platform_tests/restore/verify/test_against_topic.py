"""The archive compared with a topic, without a restore."""

from typing import Any

import pytest

from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.errors import MissingTopicError
from kafka_s3_platform.core.restore.verify.against_topic import Comparison, compare_with_topic
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.kafka.topics import delete_records
from kafka_s3_platform_tests.kafka.wire import WireRecord, produce_batch, record_batch
from kafka_s3_platform_tests.restore.own import Archive, numbered, request, restored, target_of
from kafka_s3_platform_tests.support import InProcessRunner, Sent, archived, produce, snapshot


def compared(config: ConnectorConfig, **changes: Any) -> Comparison:
    return compare_with_topic(request(config, **changes), InProcessRunner())


def test_a_restored_topic_is_the_same(shared_archive: Archive) -> None:
    config = shared_archive([*numbered(500), *numbered(20, kafka_partition=2)], 3)
    report = restored(config)

    found = compared(config)

    assert found.ok
    first, second = found.kafka_partitions
    assert (first.archived_count, first.found_count, first.foreign_count) == (500, 500, 0)
    assert (second.kafka_partition, second.found_count) == (2, 20)
    assert [p.archived_digest for p in found.kafka_partitions] == [p.digest for p in report.kafka_partitions]
    assert all(p.archived_digest == p.found_digest for p in found.kafka_partitions)


def test_what_is_missing_is_named_by_its_first_offset_and_all_is_counted(shared_archive: Archive, lab: Lab) -> None:
    config = shared_archive(numbered(10))
    target = lab.create(f"other-{target_of(config)}")
    records = numbered(10)
    produce(config.kafka, target, [*records[:4], Sent(b"foreign"), *records[5:]])

    found = compared(config, to_topic=target)

    assert not found.ok
    [part] = found.kafka_partitions
    assert (part.found_count, part.archived_count, part.first_missing, part.foreign_count) == (4, 10, 4, 6)
    assert part.archived_digest != part.found_digest


def test_the_order_counts(shared_archive: Archive, lab: Lab) -> None:
    config = shared_archive(numbered(3))
    target = lab.create(f"other-{target_of(config)}")
    first, second, third = numbered(3)
    produce(config.kafka, target, [first, third, second])

    assert not compared(config, to_topic=target).ok


def test_a_window_is_compared_alone(shared_archive: Archive) -> None:
    config = shared_archive(numbered(10))
    restored(config, from_offset=4)

    assert not compared(config).ok
    found = compared(config, from_offset=4)
    assert (found.ok, found.kafka_partitions[0].archived_count) == (True, 6)


def test_the_source_topic_is_compared_as_far_as_it_still_goes_back(lab: Lab) -> None:
    config = lab.archive(numbered(10))
    topic = config.topics[0]
    delete_records(config.kafka, topic, 3)
    produce(config.kafka, topic, [Sent(b"not archived yet")])

    found = compared(config, to_topic=topic)

    assert found.ok
    [part] = found.kafka_partitions
    assert (part.archived_count, part.foreign_count) == (7, 1)
    assert (part.first_target_offset, part.last_target_offset) == (3, 9)
    assert f"{topic}-0 begins at offset 3: what was before is not compared" in found.notes


def test_a_kafka_partition_that_the_topic_lacks_holds_nothing(shared_archive: Archive, lab: Lab) -> None:
    config = shared_archive([*numbered(3), *numbered(2, kafka_partition=1)], 2)
    target = lab.create(f"other-{target_of(config)}")
    produce(config.kafka, target, numbered(3))

    found = compared(config, to_topic=target)

    assert [(p.ok, p.found_count, p.first_missing) for p in found.kafka_partitions] == [(True, 3, None), (False, 0, 0)]


def test_records_where_nothing_is_archived_are_told(shared_archive: Archive, lab: Lab) -> None:
    config = shared_archive(numbered(3))
    target = lab.create(f"other-{target_of(config)}", 2)
    produce(config.kafka, target, [*numbered(3), Sent(b"v", kafka_partition=1)])

    found = compared(config, to_topic=target)

    assert found.ok
    assert f"{target}-1 holds records, and nothing is archived of it in the window: it is not compared" in found.notes


def test_a_damaged_object_is_named_and_others_are_compared(copied_archive: Archive, lab: Lab) -> None:
    config = copied_archive([*numbered(3), *numbered(2, kafka_partition=1)], 2)
    restored(config)
    key = next(s.key for s in snapshot(config).segments if s.kafka_partition == 0)
    lab.s3.delete_object(Bucket=config.store.bucket, Key=key)

    found = compared(config)

    assert [p.ok for p in found.kafka_partitions] == [False, True]
    assert key in found.kafka_partitions[0].fault


def test_a_topic_with_a_batch_that_cannot_be_read_is_not_the_same(shared_archive: Archive, lab: Lab) -> None:
    config = shared_archive([*numbered(3), *numbered(2, kafka_partition=1)], 2)
    target = lab.create(f"other-{target_of(config)}", 2)
    produce(config.kafka, target, [*numbered(3), *numbered(2, kafka_partition=1)])
    lying = record_batch([WireRecord(1)] * 2, offset_deltas=[1, 0])
    produce_batch(config.kafka.bootstrap_servers, target, 0, lying)

    found = compared(config, to_topic=target)

    assert [p.ok for p in found.kafka_partitions] == [False, True]
    assert f"topic {target}, kafka partition 0, offset 3: the record batch" in found.kafka_partitions[0].fault


def test_a_topic_that_does_not_exist_is_an_error(shared_archive: Archive) -> None:
    config = shared_archive(numbered(3))

    with pytest.raises(MissingTopicError):
        compared(config, to_topic=f"absent-{target_of(config)}")


def test_records_that_are_there_once_more_are_told_apart_from_those_of_others(
    shared_archive: Archive, lab: Lab
) -> None:
    config = shared_archive(numbered(10))
    target = lab.create(f"other-{target_of(config)}")
    records = numbered(10)
    produce(config.kafka, target, [*records[5:], *records, Sent(b"theirs")])

    found = compared(config, to_topic=target)

    assert (found.ok, found.exact) == (True, False)
    [part] = found.kafka_partitions
    assert (part.found_count, part.doubled_count, part.foreign_count) == (10, 5, 1)


@pytest.mark.parametrize("more", ["nothing", "twice", "theirs", "elsewhere"])
def test_exactly_the_same_is_said_of_those_records_and_nothing_else(
    shared_archive: Archive, lab: Lab, more: str
) -> None:
    config = shared_archive(numbered(3))
    target = lab.create(f"other-{target_of(config)}", 2)
    extra = {
        "nothing": [],
        "twice": numbered(1),
        "theirs": [Sent(b"theirs")],
        "elsewhere": numbered(1, kafka_partition=1),
    }
    produce(config.kafka, target, [*numbered(3), *extra[more]])

    found = compared(config, to_topic=target)

    assert (found.ok, found.exact) == (True, more == "nothing")


def test_of_kafka_partitions_that_are_not_asked_for_nothing_is_said(shared_archive: Archive) -> None:
    config = shared_archive([*numbered(3), *numbered(2, kafka_partition=1)], 2)
    restored(config)

    found = compared(config, kafka_partitions=(1,))

    assert (found.exact, [p.kafka_partition for p in found.kafka_partitions], found.notes) == (True, [1], ())


def test_exactly_the_same_is_not_said_of_objects_that_hold_values_only(lab: Lab) -> None:
    """Their records cannot be compared: whether the topic holds them is not known."""
    lab.archive([Sent(b'{"n":0}')], layout={"format": "json"}, records={"value": {"format": "JSON"}})
    config = lab.connector()
    lab.produce([Sent(b"one")])
    archived(config)
    target = lab.create(f"other-{lab.topic}")
    produce(config.kafka, target, [Sent(b"one")])

    found = compared(config, to_topic=target)

    assert (found.ok, found.exact, found.gaps) == (True, False, ())
    [note] = found.notes
    assert f"{lab.topic}-0: 1 objects (1 records within offsets [0, 1)) are of format json" in note


def test_where_nothing_is_archived_in_the_window_nothing_is_exactly_the_same(shared_archive: Archive, lab: Lab) -> None:
    config = shared_archive(numbered(3))
    target = lab.create(f"empty-{target_of(config)}")

    found = compared(config, to_topic=target, from_offset=2**40)

    assert (found.archived_count, found.ok, found.exact) == (0, True, False)
