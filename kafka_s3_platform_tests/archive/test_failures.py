"""One error for all that failed in a run, and how long retention keeps what did."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from kafka_s3_platform.core.archive.failures import SHOWN, build_failure, describe_time_left, find_deletion_time
from kafka_s3_platform.core.errors import (
    BrokerUnavailableError,
    ForeignObjectError,
    OffsetGapError,
    PlatformError,
    UnresolvedOffsetsError,
)
from kafka_s3_platform.core.model.gaps import Unresolved
from kafka_s3_platform_tests.support import NOON

MS = round(NOON.timestamp() * 1000)


def unresolved(start: int, reason: str = "VALUE_CONVERTER", min_timestamp: int | None = MS) -> Unresolved:
    return Unresolved(0, start, start + 1, reason, "no JSON", NOON, min_timestamp)


def failure(rows: Sequence[Unresolved], *errors: PlatformError) -> PlatformError | None:
    return build_failure("c", "t", rows, errors)


def test_a_run_that_archived_everything_has_no_failure() -> None:
    assert failure([]) is None


def test_one_failed_kafka_partition_is_told_by_its_own_error() -> None:
    found = failure([], ForeignObjectError("in the way"))
    assert isinstance(found, ForeignObjectError)
    assert str(found) == "[KS-STORE-FOREIGN] in the way\nEverything else that this run read is committed"


def test_a_failure_that_passes_makes_the_run_one_that_is_tried_again_and_all_are_named() -> None:
    errors = [ForeignObjectError("in the way"), BrokerUnavailableError("no leader"), OffsetGapError("gone")]
    found = failure([unresolved(4)], *errors)
    assert isinstance(found, BrokerUnavailableError)
    for told in ("no leader", "in the way", "gone", "t-0 [4, 5): VALUE_CONVERTER: no JSON"):
        assert told in str(found)


def test_of_many_unresolved_ranges_the_first_are_shown_and_the_others_counted() -> None:
    found = failure([unresolved(n) for n in range(0, 2000, 2)])
    assert isinstance(found, UnresolvedOffsetsError)
    assert "1,000 offsets in 1,000 ranges" in str(found)
    assert "and 995 more" in str(found)


@pytest.mark.parametrize(
    ("reason", "advised"),
    [
        ("VALUE_CONVERTER", "errors.tolerance=all"),
        ("DEAD_LETTER", "config of the dead letter topic"),
        ("RETURNED_LETTER", "archive each other's dead letter topics"),
        ("batch", None),
    ],
)
def test_what_is_advised_can_help(reason: str, advised: str | None) -> None:
    said = str(failure([unresolved(4, reason)]))
    advices = ("errors.tolerance=all", "config of the dead letter topic", "archive each other's dead letter topics")
    for advice in advices:
        assert (advice in said) == (advice == advised)


@pytest.mark.parametrize("count", [1, 2, 5, 6])
def test_each_range_that_is_shown_has_its_own_command(count: int) -> None:
    said = str(build_failure("c", "t", [unresolved(4 * n) for n in range(count)], []))
    _, _, commands = said.partition("To do without them:\n")
    place = "kafka-s3 resolve c --topic t --kafka-partition 0"
    shown = [f"{place} --offsets {4 * n}:{4 * n + 1} --skip" for n in range(min(count, SHOWN))]
    rest = ["and what this lists: kafka-s3 resolve c --topic t"] if count > SHOWN else []
    assert commands.splitlines() == [*shown, *rest]


def test_the_time_left_is_that_of_the_earliest_record() -> None:
    day = timedelta(days=1)
    kept = replace(unresolved(4), retention_ms=86_400_000)
    assert find_deletion_time(kept) == NOON + day
    assert describe_time_left(kept, NOON) == "1 day, 0:00:00"
    assert describe_time_left(kept, NOON + day) == "none"
    for stamp in (None, -1, 2**63 - 1):
        assert describe_time_left(replace(kept, min_timestamp=stamp), NOON) == "unknown"
    assert describe_time_left(replace(kept, retention_ms=None), NOON) == "unknown"
    assert describe_time_left(replace(kept, retention_ms=-1), NOON) == "for ever"
