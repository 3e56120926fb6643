import logging

import pytest

from kafka_s3_platform.spark.progress import Progress, Snapshot, call_with_progress

logger = logging.getLogger(__name__)


def test_a_line_tells_tasks_records_rate_and_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    progress = Progress(logger, "archive flights", tasks=8, expected=400)
    now[0] += 10
    progress.advance(size=100, records=90, record_bytes=20_000_000)
    expected = "archive flights: 1/8 tasks, 90 records, 9 records/s, 2.0 MB/s, about 30 s left"
    assert progress.line() == expected
    seen: list[Snapshot] = []
    with call_with_progress(seen.append):
        progress.advance(100, 90, 20_000_000, "1 of 31 days")
    told = "1 of 31 days, 180 records, 18 records/s, 4.0 MB/s, about 10 s left"
    assert seen == [Snapshot("archive flights", 200, 400, told)]


def test_lines_are_seconds_apart_and_the_last_task_always_has_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    progress = Progress(logger, "p", tasks=10, expected=10, every=5.0)
    for _ in range(10):
        now[0] += 2
        progress.advance(1, 1, 1)
    assert [r.message.split(",")[0] for r in caplog.records] == [
        "p: 3/10 tasks",
        "p: 6/10 tasks",
        "p: 9/10 tasks",
        "p: 10/10 tasks",
    ]


def test_nothing_done_yet_is_no_division_by_zero() -> None:
    assert Progress(logger, "p", tasks=1, expected=0).line().startswith("p: 0/1 tasks, 0 records, 0 records/s")
