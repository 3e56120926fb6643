"""Retention killed at random moments, also between a commit and its deletions, while others read the archive."""

import logging
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date, timedelta
from multiprocessing.connection import Connection
from random import Random
from threading import Event
from typing import Any

import pytest

from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.store.errors import NotFoundError
from kafka_s3_platform.core.upkeep import retain
from kafka_s3_platform.core.upkeep.compact.days import CompactRequest
from kafka_s3_platform.core.upkeep.vacuum import vacuum_topic
from kafka_s3_platform_tests.forked import FORKED
from kafka_s3_platform_tests.support import HOUR, NOON, InProcessRunner, Sent, compact_day, snapshot
from kafka_s3_platform_tests.upkeep.compact.test_months import JANUARY, merge_days, monthly
from kafka_s3_platform_tests.upkeep.test_retain import is_whole, live_keys, objects, offsets, retained

LOGGER = logging.getLogger(__name__)

KILLS = 10
LONGEST_SECONDS = 0.1
"""A kill comes so long after a commit has begun, at most: before it is done, before its deletions, or among them."""

FIRST_DAY = date(2026, 2, 19)
DAYS = (*range(3), *range(31, 51))
"""Three days of January, which become a month, and twenty of February."""

RULES: tuple[dict[str, Any], ...] = ({"merged_ms": (("", 0),)}, {"first_day": FIRST_DAY})
RECORDS = [
    Sent(b"%d" % day, b"k", NOON + timedelta(days=day) + hour * HOUR, (), p)
    for day in DAYS
    for hour in range(3)
    for p in range(2)
]


def _retain(config: ConnectorConfig, rules: dict[str, Any], parent: Connection) -> None:
    commit = retain._commit  # noqa: SLF001

    def telling(*arguments: Any) -> Any:
        parent.send("begins")
        return commit(*arguments)

    retain._commit = telling  # type: ignore[assignment] # noqa: SLF001
    retain.SLICE_ROWS = 1
    retained(config, **rules)


@dataclass
class Reader:
    """Reads the archive, and compares it with what may not go. `overtaken` reads met an object that went meanwhile."""

    config: ConnectorConfig
    must_stay: dict[int, set[int]]
    reads: int = 0
    overtaken: int = 0

    def read(self) -> None:
        now = snapshot(self.config)
        assert sum(s.record_count for s in (*now.segments, *now.expired)) == len(RECORDS)
        by_number = offsets(self.config)
        self.reads += 1
        for kafka_partition, must_stay in self.must_stay.items():
            numbers = by_number.get(kafka_partition, [])
            assert len(numbers) == len(set(numbers)), f"read twice: {numbers}"
            assert must_stay <= set(numbers), f"missing: {sorted(must_stay - set(numbers))}"

    def read_until(self, stop: Event) -> None:
        while not stop.is_set():
            try:
                self.read()
            except NotFoundError:
                self.overtaken += 1


def _list_offsets(first_day: date) -> dict[int, set[int]]:
    """Return the offsets of the records of this day and later ones, by kafka partition."""
    listed: dict[int, set[int]] = {0: set(), 1: set()}
    for number, sent in enumerate(RECORDS):
        if sent.timestamp.date() >= first_day:
            listed[sent.kafka_partition].add(number // 2)
    return listed


def _kill_within(reader: Reader, rules: dict[str, Any], commits: int, seconds: float) -> int | None:
    """Start retention, and kill it so long after it has begun to commit so often. Return its exit status.

    The archive is read meanwhile.
    """
    here, there = FORKED.Pipe(duplex=False)
    process = FORKED.Process(target=_retain, args=(reader.config, rules, there))
    process.start()
    there.close()
    stop = Event()
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(reader.read_until, stop)
        try:
            for _ in range(commits):
                assert here.recv() == "begins"
            process.join(seconds)
        finally:
            process.kill()
            stop.set()
        reading.result()
    process.join()
    return process.exitcode


@pytest.mark.long
@pytest.mark.parametrize("seed", range(5))
def test_whoever_reads_misses_nothing_and_reads_nothing_twice_where_retention_is_killed(
    copied_archive: Callable[..., ConnectorConfig], seed: int
) -> None:
    random = Random(seed)
    config = monthly(copied_archive(RECORDS, kafka_partitions=2))
    merge_days(config)
    compact_day(CompactRequest(config, config.topics[0], JANUARY, "month"), InProcessRunner())
    kills = between = 0
    for rules in RULES:
        reader = Reader(config, _list_offsets(rules.get("first_day", date.min)))
        target = kills + KILLS // len(RULES)
        while kills < target:
            status = _kill_within(reader, rules, random.randint(1, 2), random.uniform(0, LONGEST_SECONDS))
            assert status in {0, -signal.SIGKILL}
            assert status, "it was through before it was killed: it has more days to go, or less time"
            kills += 1
            assert live_keys(config) <= objects(config), "a row without its object"
            between += bool(objects(config) - live_keys(config) - {s.key for s in snapshot(config).retired})
            reader.read()
            assert is_whole(config)
        retained(config, **rules)
        reader.read()
        LOGGER.info("%s: %d reads, %d more were overtaken", rules, reader.reads, reader.overtaken)
    LOGGER.info("seed %d: %d kills, %d of them before the objects of a commit were gone", seed, kills, between)
    vacuum_topic(config, config.topics[0], "v", timedelta(0), dry_run=False)
    assert objects(config) == live_keys(config)
    assert offsets(config) == {p: sorted(numbers) for p, numbers in _list_offsets(FIRST_DAY).items()}
    assert is_whole(config)
