"""A log that loses what is archived already and grows past it again: found out, and never where nothing was lost."""

from collections.abc import Callable, Mapping

import pytest

from kafka_s3_platform.archive import regrown, scan
from kafka_s3_platform.config.settings import ConnectorConfig, KafkaSettings, StoreSettings
from kafka_s3_platform.errors import LogTruncatedError
from kafka_s3_platform.kafka.admin import ClusterAdmin
from kafka_s3_platform.kafka.reader import ConfluentReader
from kafka_s3_platform.kafka.readers import new_reader
from kafka_s3_platform.local import stack as embedded
from kafka_s3_platform.local.settings import StackSettings
from kafka_s3_platform_tests.faults.broker import cut_log, kill_broker
from kafka_s3_platform_tests.kafka.topics import open_transaction, produce, wait_until_stable
from kafka_s3_platform_tests.support import NOON, archived, connector, offsets_by_kafka_partition, stored

pytestmark = pytest.mark.integration

Fill = Callable[[KafkaSettings, str], None]


def plain(kafka: KafkaSettings, topic: str) -> None:
    for n in range(10):
        produce(kafka, topic, [b"%d" % n])


def committed(kafka: KafkaSettings, topic: str) -> None:
    plain(kafka, topic)
    open_transaction(kafka, topic, [b"x"] * 5).commit_transaction(30)


def aborted(kafka: KafkaSettings, topic: str) -> None:
    plain(kafka, topic)
    open_transaction(kafka, topic, [b"x"] * 5).abort_transaction(30)


ENDS: Mapping[str, Fill] = {"a-record": plain, "a-marker": committed, "an-aborted-one": aborted}
"""What the last offset is that is archived."""

FATES = ("cut", "kept")
"""What becomes of the log."""


def restart(settings: StackSettings, *cut: str) -> None:
    """As after a crash; the logs of the topics in `cut` end at offset 5 then."""
    kill_broker(settings)
    for topic in cut:
        cut_log(settings, topic, 5)
    embedded.up(settings)


READERS = {"fetch": new_reader, "confluent": ConfluentReader}
"""What scans read with."""


def test_a_log_that_was_cut_below_the_archive_and_grew_past_it_is_found_out(
    own_stack: StackSettings, store_settings: StoreSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka = KafkaSettings(bootstrap_servers=own_stack.bootstrap_servers)
    names = {(reader, end, fate): f"{reader}-{end}-{fate}" for reader in READERS for end in ENDS for fate in FATES}
    configs = {topic: connector(kafka, store_settings, topic) for topic in names.values()}
    with ClusterAdmin(kafka) as admin:
        for topic in configs:
            admin.create_topic(topic, 1)
    for (_, end, _), topic in names.items():
        ENDS[end](kafka, topic)
        wait_until_stable(kafka, topic)
    # first archived in an epoch of which the log will hold nothing
    restart(own_stack)
    before: dict[str, int] = {}
    for (reader, _, _), topic in names.items():
        monkeypatch.setattr(scan, "new_reader", READERS[reader])
        before[topic] = count(configs[topic])
    restart(own_stack, *(topic for (_, _, fate), topic in names.items() if fate == "cut"))
    for topic in configs:
        produce(kafka, topic, [b"new"] * 30)
    for (reader, _, fate), topic in names.items():
        monkeypatch.setattr(scan, "new_reader", READERS[reader])
        if fate == "kept":
            assert count(configs[topic]) == before[topic] + 30
            continue
        for _ in range(2):
            with pytest.raises(LogTruncatedError, match=rf"{topic}.*truncated"):
                archived(configs[topic])
        assert offsets_by_kafka_partition(stored(configs[topic]))[0] == list(range(before[topic]))


def count(config: ConnectorConfig) -> int:
    """Archive; how many records there are then."""
    archived(config)
    return int(stored(config).num_rows)


def test_a_log_that_was_cut_below_the_archive_and_grew_to_its_very_end_is_found_out(
    own_stack: StackSettings, store_settings: StoreSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is left to read there, so no scan finds out."""
    kafka = KafkaSettings(bootstrap_servers=own_stack.bootstrap_servers)
    names = {(reader, fate): f"{reader}-{fate}" for reader in READERS for fate in ("cut", "kept", "grown")}
    configs = {topic: connector(kafka, store_settings, topic) for topic in names.values()}
    with ClusterAdmin(kafka) as admin:
        for topic in configs:
            admin.create_topic(topic, 1)
            plain(kafka, topic)
    restart(own_stack)
    assert [count(config) for config in configs.values()] == [10] * len(configs)
    restart(own_stack, *(names[reader, "cut"] for reader in READERS))
    for (_, fate), topic in names.items():
        produce(kafka, topic, [b"new"] * {"cut": 5, "kept": 0, "grown": 5}[fate])
    for reader, kind in READERS.items():
        monkeypatch.setattr(regrown, "new_reader", kind)
        for hours in (None, [NOON]):
            with pytest.raises(LogTruncatedError, match="archive and log both end at offset 10"):
                archived(configs[names[reader, "cut"]], hours)
        assert [count(configs[names[reader, fate]]) for fate in ("kept", "grown")] == [10, 15]
