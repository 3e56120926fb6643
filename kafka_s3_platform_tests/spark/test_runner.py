"""Tasks on a real Spark session: what comes back, what is tried again, how many run at once."""

import logging
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafka_s3_platform.connect.config.keys.transforms import parse_transforms
from kafka_s3_platform.core.config import plugins
from kafka_s3_platform.core.errors import FullDiskError, PermanentError, TransientError
from kafka_s3_platform.core.restore.target_topic import apply_routers
from kafka_s3_platform.core.spark.progress import Progress, Snapshot, call_with_progress
from kafka_s3_platform.core.spark.runner import Attempt, SparkRunner, TaskRunner
from kafka_s3_platform.core.spark.session import MAX_TASK_ATTEMPTS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def runner(spark: "SparkSession") -> SparkRunner:
    return SparkRunner(lambda: spark)


def note(folder: Path, task: int, attempt: Attempt) -> None:
    (folder / f"{task}-{attempt.number}-{attempt.attempt_id}").touch()


def double(task: int, _: Attempt) -> int:
    return 2 * task


def route(topic: str, _: Attempt) -> str:
    """Rename a topic by a transform, which the core does not import."""
    keys = {"transforms": "a", "transforms.a.type": "RegexRouter"}
    options = {"transforms.a.regex": ".*", "transforms.a.replacement": "copy_of_$0"}
    return apply_routers(parse_transforms(keys | options), topic)


def refuse(folder: Path, task: int, attempt: Attempt) -> int:
    note(folder, task, attempt)
    raise PermanentError(f"topic t-{task}: refused")


def fail_at_first(folder: Path, task: int, attempt: Attempt) -> int:
    note(folder, task, attempt)
    if attempt.number < 2:
        raise TransientError("not yet")
    return task


def fail_always(folder: Path, task: int, attempt: Attempt) -> int:
    note(folder, task, attempt)
    raise TransientError(f"try {attempt.number} of topic t-{task}")


def take_a_while(folder: Path, expected: int, task: int, _: Attempt) -> int:
    """How many run at this moment, once as many as expected do, or after a while."""
    own, deadline = folder / str(task), time.monotonic() + 60
    own.touch()
    while len(list(folder.iterdir())) < expected and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.2)
    at_once = len(list(folder.iterdir()))
    own.unlink()
    return at_once


def test_every_task_gives_its_result(runner: TaskRunner) -> None:
    assert sorted(runner.run(double, range(10), 2)) == [2 * n for n in range(10)]


def test_a_worker_loads_what_other_parts_add(runner: TaskRunner) -> None:
    assert list(runner.run(route, ["orders"], 1)) == ["copy_of_orders"]


def test_without_tasks_no_session_is_asked_for() -> None:
    def never() -> "SparkSession":
        raise AssertionError("a session was asked for")

    assert list(SparkRunner(never).run(double, [], 2)) == []
    assert list(SparkRunner(never).run_grouped(double, [], 2, int)) == []


def tell_attempt(folder: Path, task: int, attempt: Attempt) -> tuple[int, int]:
    """Fails at the first try of the task that fails."""
    note(folder, task, attempt)
    if task == FAILING and attempt.number == 0:
        raise TransientError("not yet")
    return task, attempt.attempt_id


FAILING = 290


def test_many_small_tasks_share_a_task_of_spark_and_a_large_one_has_its_own(
    runner: SparkRunner, tmp_path: Path
) -> None:
    sizes = {0: 50_000_000} | dict.fromkeys(range(1, 300), 10)
    found = list(runner.run_grouped(partial(tell_attempt, tmp_path), list(sizes), 2, lambda task: sizes[task]))
    assert sorted(task for task, _ in found) == list(sizes)
    by_attempt = Counter(attempt_id for _, attempt_id in found)
    assert sorted(by_attempt.values()) == [1, 299]
    # the group of the task that failed was tried again as a whole
    tried = Counter(int(path.name.partition("-")[0]) for path in tmp_path.iterdir())
    assert {task for task, tries in tried.items() if tries == 2} == set(range(1, FAILING + 1))


def test_a_permanent_error_comes_back_as_it_was_and_is_not_tried_again(runner: TaskRunner, tmp_path: Path) -> None:
    with pytest.raises(PermanentError, match=r"^\[KS-OTHER\] topic t-7: refused$"):
        list(runner.run(partial(refuse, tmp_path), [7], 1))
    assert len(list(tmp_path.iterdir())) == 1


def test_a_transient_error_is_tried_again_with_a_higher_attempt_id(runner: TaskRunner, tmp_path: Path) -> None:
    assert list(runner.run(partial(fail_at_first, tmp_path), [7], 1)) == [7]
    tries = sorted(tuple(map(int, p.name.split("-")[1:])) for p in tmp_path.iterdir())
    assert [number for number, _ in tries] == [0, 1, 2]
    assert sorted(i for _, i in tries) == [i for _, i in tries]


def fill_the_disk(task: int, _: Attempt) -> int:
    Path("/dev/full").write_text("more than there is room for")
    return task


def test_a_disk_that_is_full_where_a_task_runs_is_told_as_that_at_last(runner: TaskRunner) -> None:
    with pytest.raises(FullDiskError, match="No space left on device"):
        list(runner.run(fill_the_disk, [7], 1))


def test_the_last_try_gives_the_error_itself(runner: TaskRunner, tmp_path: Path) -> None:
    with pytest.raises(TransientError, match=rf"^\[KS-OTHER\] try {MAX_TASK_ATTEMPTS - 1} of topic t-7$"):
        list(runner.run(partial(fail_always, tmp_path), [7], 1))
    assert len(list(tmp_path.iterdir())) == MAX_TASK_ATTEMPTS


def test_after_an_error_nothing_new_starts(runner: TaskRunner, tmp_path: Path) -> None:
    with pytest.raises(PermanentError):
        list(runner.run(partial(refuse, tmp_path), range(20), 1))
    assert Counter(p.name.split("-")[0] for p in tmp_path.iterdir()).total() < 20


@pytest.mark.parametrize("max_concurrent", [1, 2])
def test_no_more_tasks_run_at_once_than_allowed(runner: TaskRunner, tmp_path: Path, max_concurrent: int) -> None:
    assert max(runner.run(partial(take_a_while, tmp_path, max_concurrent), range(4), max_concurrent)) == max_concurrent


def test_as_many_tasks_run_at_once_as_are_told(runner: TaskRunner, tmp_path: Path) -> None:
    """The session has two cores: limits are shared out among two tasks, though eight may run."""
    assert max(runner.run(partial(take_a_while, tmp_path, 2), range(6), 8)) == runner.at_once(8) == 2
    assert runner.at_once(1) == 1


def allowed_there(_: int, __: Attempt) -> tuple[str, ...]:
    return plugins.read_allowance()


def test_executors_may_load_what_the_driver_may(runner: SparkRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster's Python workers do not have the environment of Dagster's process."""
    monkeypatch.setenv(plugins.VARIABLE, "my_company,my_other.module")
    assert list(runner.run(allowed_there, [1], 1)) == [("my_company", "my_other.module")]
    monkeypatch.delenv(plugins.VARIABLE)
    assert list(runner.run(allowed_there, [1], 1)) == [()]


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
    assert caplog.messages[-1] == "p: 10/10 tasks, 10 records, 0 records/s, 0 B/s, in 20 s"


def test_nothing_done_yet_is_no_division_by_zero() -> None:
    assert Progress(logger, "p", tasks=1, expected=0).line().startswith("p: 0/1 tasks, 0 records, 0 records/s")
