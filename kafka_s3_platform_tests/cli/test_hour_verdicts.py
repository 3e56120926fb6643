"""Kafka deletes records before they are archived, or says wrong where they are. No command says more than is known.

An hour that is called complete holds all of its records, or is told as lacking at least as many offsets as are missing.
Only an hour that lacks nothing is told to Dagster as empty. All hours were over long ago: what is written after the
first look at the log came late, and none of these promises is about it. So all is written before.
"""

import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import dagster as dg
import pytest

from kafka_s3_platform.core.defs.archive.checks import HOURLY_CHECK
from kafka_s3_platform.core.defs.resources import SparkResource
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.model.times import to_epoch_ms
from kafka_s3_platform.core.store.index import ConnectorIndex
from kafka_s3_platform.core.upkeep.hour_states import find_empty_hours
from kafka_s3_platform_tests.cli.conftest import KafkaS3, parsed, write_reachable_connector
from kafka_s3_platform_tests.conftest import Lab, present
from kafka_s3_platform_tests.kafka import wire
from kafka_s3_platform_tests.kafka.topics import delete_records
from kafka_s3_platform_tests.kafka.wire import WireRecord
from kafka_s3_platform_tests.support import HOUR, NOON, InProcessRunner, Sent

LATENESS = timedelta(0)


class History:
    """A topic of one kafka partition, and what is done to it. Hours are those of a day, by their number."""

    def __init__(self, kafka_s3: KafkaS3, lab: Lab) -> None:
        self._kafka_s3, self._lab = kafka_s3, lab
        self._written = Counter[int]()
        lab.create_topic()
        self.configure()

    def configure(self, *, allow_gaps: bool = False) -> None:
        keys = {"archive.allow.gaps": str(allow_gaps).lower(), "archive.allowed.lateness.ms": "0"}
        write_reachable_connector(self._kafka_s3, self._lab.kafka, self._lab.store, self._lab.topic, **keys)

    def write(self, hour: int, count: int, minute: int = 0) -> None:
        """Write so many records of the hour, all of its first minute or a later one."""
        begin = NOON + (hour - 12) * HOUR + timedelta(minutes=minute)
        self._lab.produce([Sent(timestamp=begin + n * timedelta(milliseconds=10)) for n in range(count)])
        self._written[hour] += count

    def write_batch(self, hour: int, deltas: Sequence[int]) -> None:
        """Write a batch of the hour's first millisecond that claims other offsets than its place in the log."""
        batch = wire.record_batch([WireRecord(to_epoch_ms(NOON + (hour - 12) * HOUR))], offset_deltas=deltas)
        wire.produce_batch(self._lab.kafka.bootstrap_servers, self._lab.topic, 0, batch)

    def write_seconds(self, hour: int, seconds: Sequence[int]) -> None:
        """Write a record of each of these seconds of the hour."""
        self._lab.produce([Sent(timestamp=NOON + (hour - 12) * HOUR + timedelta(seconds=n)) for n in seconds])
        self._written[hour] += len(seconds)

    def delete_before(self, offset: int) -> None:
        delete_records(self._lab.kafka, self._lab.topic, offset)

    def delete_within_next_look(self, offset: int, monkeypatch: pytest.MonkeyPatch) -> None:
        """Delete what lies below the offset when a run has asked where hours begin, and not yet where the log does."""
        look = ClusterAdmin.add_log_starts
        pending = [offset]

        def delete(admin: ClusterAdmin, ends: Any) -> Any:
            if pending:
                self.delete_before(pending.pop())
            return look(admin, ends)

        monkeypatch.setattr(ClusterAdmin, "add_log_starts", delete)

    def ask(self, first: int, last: int | None = None) -> "subprocess.CompletedProcess[str]":
        """Archive one hour, or all from the first to the last one."""
        end = (first if last is None else last) + 1
        return self._kafka_s3("archive", "c", "--from", f"2026-01-01T{first:02}", "--to", f"2026-01-01T{end:02}")

    def resolve(self, *decision: str) -> None:
        done = self._kafka_s3("resolve", "c", "--topic", self._lab.topic, "--kafka-partition", "0", *decision)
        assert done.returncode == 0, done.stderr

    def show(self) -> Mapping[int, Mapping[str, Any]]:
        """Show each hour. Whatever is asserted of one, all keep the promise of this module."""
        [topic] = parsed(self._kafka_s3("show", "c", "--hours", "--json"))["topics"]
        shown = {int(hour["hour"][11:13]): hour for hour in topic["hours"]}
        for number, count in self._written.items():
            hour = shown[number]
            if hour["complete"] and hour["records"] < count:
                assert count_lacking(hour).total() >= count - hour["records"], f"{number} has {count} records: {hour}"
                assert hour["state"] in {"gap", "in doubt"}, f"{number} has {count} records: {hour}"
        wrong = {number for number in self.list_told_empty() if self._written[number]}
        assert not wrong, "told to Dagster as complete and empty"
        [verified] = parsed(self._kafka_s3("verify", "c", "--deep", "--json"))["topics"]
        assert verified["ok"]
        return shown

    def list_told_empty(self) -> set[int]:
        """List the hours that the sensors report to Dagster as complete and empty."""
        hours = [NOON + (number - 12) * HOUR for number in range(24)]
        snapshot = ConnectorIndex(self._lab.store, "_index", "c").open().topic(self._lab.topic)
        return {hour.hour for hour in find_empty_hours(snapshot, hours, LATENESS)}

    def read_check(self) -> Mapping[str, Any]:
        """Return the numbers that the last run's check of the archive has told Dagster."""
        key = dg.AssetCheckKey(dg.AssetKey(["c", "hourly", self._lab.topic]), HOURLY_CHECK)
        with dg.DagsterInstance.from_config(str(self._kafka_s3.folder / "dagster")) as instance:
            [latest] = instance.event_log_storage.get_asset_check_execution_history(key, limit=1)
        return {name: value.value for name, value in present(latest.evaluation).metadata.items()}


def count_lacking(hour: Mapping[str, Any]) -> Counter[str]:
    """Count the offsets that the hour may lack, by their fate."""
    counts = Counter[str]()
    for gap in hour["gaps"]:
        counts[gap["reason"]] += gap["to"] - gap["from"]
    return counts


@pytest.fixture
def history(kafka_s3_without_spark: KafkaS3, lab: Lab, monkeypatch: pytest.MonkeyPatch) -> History:
    """A history whose tasks run in this process: none of it is about Spark."""
    monkeypatch.setattr(SparkResource, "make_runner", lambda _: InProcessRunner())
    return History(kafka_s3_without_spark, lab)


def is_refused(done: "subprocess.CompletedProcess[str]", offsets: str) -> bool:
    """Whether a run told that these offsets were lost, and how to go on without them."""
    return (
        done.returncode == 1
        and f"offsets {offsets} were deleted before they were archived" in done.stderr
        and "archive.allow.gaps=true" in done.stderr
    )


@pytest.mark.parametrize(
    "asked",
    [[(17,), (14,), (13,), (12,)], [(14,), (13,), (12,)], [(12, 17)]],
    ids=["newest first", "cut first", "one run"],
)
def test_what_was_deleted_before_archiving_began_may_be_of_each_hour_that_had_begun(
    history: History, asked: Sequence[tuple[int, ...]]
) -> None:
    """F1: the hours 12 and 13 are gone, and half of 14. Nobody could have archived them, so no run fails."""
    for hour in range(12, 18):
        history.write(hour, 100)
    history.delete_before(250)
    for hours in asked:
        done = history.ask(*hours)
        assert done.returncode == 0, done.stderr
    shown = history.show()
    assert [shown[hour]["records"] for hour in range(12, 15)] == [0, 0, 50]
    for hour in range(12, 15):
        assert count_lacking(shown[hour]) == {"before archiving began": 250}, hour
        assert shown[hour]["state"] == "gap", hour
    assert history.read_check()["offsets_deleted_before_archiving_began"] == 250


def begin_then_lose(history: History) -> None:
    """The hours 12 to 19 have 10 records each. Of them 12 is archived, then all up to 17:05 is deleted."""
    for hour in range(12, 20):
        history.write(hour, 5)
        history.write(hour, 5, minute=30)
    assert history.ask(12).returncode == 0
    history.delete_before(55)


@pytest.mark.parametrize("asked", [[(13, 19)], [(hour,) for hour in range(13, 20)]], ids=["one run", "one by one"])
def test_a_gap_over_several_hours_is_told_of_each_of_them(history: History, asked: Sequence[tuple[int, ...]]) -> None:
    """F3."""
    begin_then_lose(history)
    history.configure(allow_gaps=True)
    for hours in asked:
        assert history.ask(*hours).returncode == 0
    shown = history.show()
    assert [shown[hour]["records"] for hour in range(13, 18)] == [0, 0, 0, 0, 5]
    for hour in range(13, 18):
        assert count_lacking(shown[hour]) == {"retention": 45}, hour
        assert shown[hour]["state"] == "gap", hour
    assert history.read_check()["lost_offsets"] == 45


def test_a_gap_over_several_hours_that_nobody_allowed_fails_each_of_them(history: History) -> None:
    begin_then_lose(history)
    for hour in range(13, 18):
        assert is_refused(history.ask(hour), "[10, 55)"), hour
    shown = history.show()
    assert not any(shown[hour]["complete"] for hour in range(13, 18))


@pytest.mark.parametrize(
    ("decision", "first"),
    [(("--skip", "--offsets", "20:55"), 14), (("--begin-at", "55"), 13)],
    ids=["skip", "begin-at"],
)
def test_what_somebody_decided_to_do_without_is_told_of_each_hour_that_may_have_had_it(
    history: History, decision: Sequence[str], first: int
) -> None:
    """F3. The log is whole, and tells where each hour begins; but what cannot be read may lie about its place."""
    for hour in range(12, 20):
        history.write(hour, 10)
    assert history.ask(12).returncode == 0
    history.resolve(*decision)
    assert history.ask(13, 19).returncode == 0
    shown = history.show()
    for hour in range(first, 18):
        counts = count_lacking(shown[hour])
        assert counts.keys() == {"skipped"}, hour
        assert 55 - (hour - 12) * 10 <= counts["skipped"] <= 55 - (first - 12) * 10, hour
        assert shown[hour]["state"] == "gap", hour


def lose_hours_before_the_first(history: History) -> None:
    """Archiving begins with hour 14, while the log is whole. Then the hours 12 and 13 are deleted."""
    for hour in (12, 13, 14):
        history.write(hour, 20)
    assert history.ask(14).returncode == 0
    history.delete_before(40)


def test_hours_that_the_log_had_when_archiving_began_fail_when_they_are_lost(history: History) -> None:
    """F3 by the ordinary way."""
    lose_hours_before_the_first(history)
    assert is_refused(history.ask(13), "[0, 40)")
    assert is_refused(history.ask(12), "[0, 40)")
    shown = history.show()
    assert not any(shown[hour]["complete"] for hour in (12, 13))


def test_hours_that_the_log_had_when_archiving_began_are_told_as_lost(history: History) -> None:
    """F3 by the ordinary way, where gaps are allowed."""
    lose_hours_before_the_first(history)
    history.configure(allow_gaps=True)
    assert [history.ask(hour).returncode for hour in (13, 12)] == [0, 0]
    shown = history.show()
    for hour in (12, 13):
        assert count_lacking(shown[hour]) == {"retention": 40}, hour
        assert shown[hour]["state"] == "gap", hour
    assert history.read_check()["lost_offsets"] == 40


def write_late_records(history: History, late: int) -> None:
    """Hour 12 has 20 records, between which `late` ones of hour 11 come. Then hour 13 comes."""
    history.write(12, 10)
    history.write(11, late)
    history.write(12, 10, minute=30)
    history.write(13, 10)


@pytest.mark.parametrize("late", [0, 1, 5])
def test_late_records_at_the_start_of_a_log_hide_nothing_that_was_deleted_before_archiving_began(
    history: History, late: int
) -> None:
    """F5: the first ten records of hour 12 are deleted."""
    write_late_records(history, late)
    history.delete_before(10)
    assert [history.ask(hour).returncode for hour in (12, 13)] == [0, 0]
    shown = history.show()
    assert shown[12]["records"] == 10
    assert count_lacking(shown[12]) == {"before archiving began": 10}


@pytest.mark.parametrize("late", [0, 1, 5])
def test_late_records_at_the_start_of_a_log_hide_nothing_that_retention_took(history: History, late: int) -> None:
    """F5, where the log was whole when archiving began with hour 13."""
    write_late_records(history, late)
    assert history.ask(13).returncode == 0
    history.delete_before(10)
    assert is_refused(history.ask(12), "[0, 10)")
    assert not history.show()[12]["complete"]
    history.configure(allow_gaps=True)
    assert history.ask(12).returncode == 0
    shown = history.show()
    assert shown[12]["records"] == 10
    assert count_lacking(shown[12]) == {"retention": 10}


def test_what_is_deleted_before_and_within_a_look_is_lost_in_all(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F8: the hour begins where the log did, when the run asked for it. That was too late for 42 records."""
    for hour, count in ((12, 235), (13, 42), (14, 30)):
        history.write(hour, count)
    assert history.ask(12).returncode == 0
    history.configure(allow_gaps=True)
    history.delete_before(277)
    history.delete_within_next_look(287, monkeypatch)
    assert history.ask(14).returncode == 0
    assert history.ask(13).returncode == 0
    shown = history.show()
    assert [shown[hour]["records"] for hour in (13, 14)] == [0, 20]
    for hour in (13, 14):
        assert count_lacking(shown[hour]) == {"retention": 52}, hour
    assert history.read_check()["lost_offsets"] == 52


@pytest.mark.parametrize("asked", [(), (11,)], ids=["alone", "behind an archived hour"])
@pytest.mark.parametrize(
    "seconds",
    [[0] * 200, [0, 60] * 100, [n // 50 * 10 for n in range(200)]],
    ids=["one time", "by turns", "a grid of ten seconds"],
)
def test_records_of_one_time_are_not_lost_behind_one_that_claims_a_later_offset(
    history: History, seconds: Sequence[int], asked: Sequence[int]
) -> None:
    """F6: the broker answers with the offset that a record claims, where an honest record of the same time may lie."""
    history.write(11, 30)
    history.write_batch(12, [191])
    history.write_seconds(12, seconds)
    for hour in (*asked, 12):
        history.ask(hour)
    history.show()
