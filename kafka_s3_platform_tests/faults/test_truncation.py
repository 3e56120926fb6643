"""A log that loses what is archived already and grows past it again: found out, and never where nothing was lost."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from kafka_s3_platform.archive import regrown, scan
from kafka_s3_platform.config.settings import ConnectorConfig, KafkaSettings, StoreSettings
from kafka_s3_platform.errors import LogTruncatedError
from kafka_s3_platform.kafka.admin import ClusterAdmin
from kafka_s3_platform.kafka.confluent_reader import ConfluentReader
from kafka_s3_platform.kafka.new_reader import new_reader
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

FATES = {"cut": 30, "refilled": None, "kept": 30, "idle": 0}
"""What becomes of the log, and how many records come then: None, as many as it takes to its end of before."""

KEPT = 5
"""Where a log ends that is cut."""


def restart(settings: StackSettings, *cut: str) -> None:
    """As after a crash; the logs of the topics in `cut` end at KEPT then."""
    kill_broker(settings)
    for topic in cut:
        cut_log(settings, topic, KEPT)
    embedded.start_stack(settings)


READERS = {"fetch": new_reader, "confluent": ConfluentReader}
"""What scans read with."""


def test_a_log_that_was_cut_below_the_archive_and_grew_to_its_end_or_past_it_is_found_out(
    own_stack: StackSettings, store_settings: StoreSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one that ends where the archive does nothing is left to read, so that no scan finds out."""
    kafka = KafkaSettings(bootstrap_servers=own_stack.bootstrap_servers)
    names = {(reader, end, fate): f"{reader}-{end}-{fate}" for reader in READERS for end in ENDS for fate in FATES}
    configs = {topic: connector(kafka, store_settings, topic) for topic in names.values()}
    with ClusterAdmin(kafka) as admin:
        for (_, end, _), topic in names.items():
            admin.create_topic(topic, 1)
            ENDS[end](kafka, topic)
            wait_until_stable(kafka, topic)
        ends = {topic: admin.frontiers(topic, [0])[0].high_watermark for topic in configs}
    # first archived in an epoch of which the log will hold nothing
    restart(own_stack)
    before: dict[str, int] = {}
    for (reader, _, _), topic in names.items():
        read_with(READERS[reader], monkeypatch)
        before[topic] = count(configs[topic])
    restart(own_stack, *(topic for (_, _, fate), topic in names.items() if fate in {"cut", "refilled"}))
    for (_, _, fate), topic in names.items():
        new = FATES[fate]
        produce(kafka, topic, [b"new"] * (ends[topic] - KEPT if new is None else new))
    for (reader, _, fate), topic in names.items():
        read_with(READERS[reader], monkeypatch)
        if fate in {"kept", "idle"}:
            assert count(configs[topic]) == before[topic] + (FATES[fate] or 0)
            continue
        is_cut = fate == "cut"
        told = rf"{topic}.*truncated" if is_cut else f"archive and log both end at offset {ends[topic]}"
        # a run of an hour that has no records reads nothing, and finds out only what needs no reading
        for hours in (None, None if is_cut else [NOON]):
            with pytest.raises(LogTruncatedError, match=told):
                archived(configs[topic], hours)
        assert offsets_by_kafka_partition(stored(configs[topic]))[0] == list(range(before[topic]))


def read_with(reader: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "new_reader", reader)
    monkeypatch.setattr(regrown, "new_reader", reader)


def count(config: ConnectorConfig) -> int:
    """Archive; how many records there are then."""
    archived(config)
    return int(stored(config).num_rows)
