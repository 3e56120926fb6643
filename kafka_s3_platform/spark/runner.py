"""Runs independent tasks as Spark jobs of one Spark task each.

One job a task, from a bounded pool of driver threads: `tasks.max` bounds what runs at once without fixing which task
runs where, results arrive one by one (progress is live), and a slow task holds up nobody.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from kafka_s3_platform.config import plugins
from kafka_s3_platform.errors import PermanentError, TransientError
from kafka_s3_platform.spark.session import MAX_TASK_ATTEMPTS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Attempt:
    """Which try of a task this is: ids grow with every try that one Spark application starts."""

    attempt_id: int
    number: int

    @property
    def is_last(self) -> bool:
        return self.number + 1 >= MAX_TASK_ATTEMPTS


class TaskRunner(Protocol):
    """Runs `function(task, attempt)` for each task somewhere, at most `max_concurrent` at once."""

    def run(self, function: Callable[[T, Attempt], R], tasks: Sequence[T], max_concurrent: int) -> Iterator[R]:
        """Results as they come, in any order. The first error that no retry mends is raised; nothing new starts."""
        ...

    def at_once(self, max_concurrent: int) -> int:
        """How many tasks run at once at the most: limits are shared out among these."""
        ...


@dataclass(frozen=True)
class _Outcome(Generic[R]):
    """What comes back from an executor: errors as values, because Spark would turn them into text."""

    result: R | None
    error: Exception | None


class SparkRunner:
    """The tasks run on Spark; the session is asked for when there is a first task, so an idle run starts none."""

    def __init__(self, session: "Callable[[], SparkSession]") -> None:
        self._session = session

    def run(self, function: Callable[[T, Attempt], R], tasks: Sequence[T], max_concurrent: int) -> Iterator[R]:
        if not tasks:
            return
        context: Any = self._session().sparkContext
        # Python workers of a cluster have an environment of their own: what may be loaded is decided by this process.
        context.environment[plugins.VARIABLE] = ",".join(plugins.allowance())
        with ThreadPoolExecutor(max_concurrent, thread_name_prefix="spark-task") as pool:
            pending = {pool.submit(self._one, context, function, task) for task in tasks}
            try:
                while pending:
                    done, pending = wait(pending, return_when=FIRST_COMPLETED)
                    for future in done:
                        yield future.result()
            finally:
                _stop(pending)

    def at_once(self, max_concurrent: int) -> int:
        """No more than this machine's cores where Spark runs in it; a cluster may give as many as are asked for."""
        context = self._session().sparkContext
        is_local = str(context.master).startswith("local")
        return min(max_concurrent, context.defaultParallelism) if is_local else max_concurrent

    def _one(self, context: Any, function: Callable[[T, Attempt], R], task: T) -> R:
        outcome: _Outcome[R] = context.parallelize([task], 1).map(_guarded(function)).collect()[0]
        if outcome.error is not None:
            raise outcome.error
        return outcome.result  # type: ignore[return-value]


def _stop(pending: "set[Future[Any]]") -> None:
    """Jobs that have not started never do; those that run are awaited by the pool, so none outlives its run."""
    for future in pending:
        future.cancel()


def _guarded(function: Callable[[T, Attempt], R]) -> Callable[[T], _Outcome[R]]:
    def call(task: T) -> _Outcome[R]:
        from pyspark import TaskContext

        context: Any = TaskContext.get()
        attempt = Attempt(context.taskAttemptId(), context.attemptNumber())
        try:
            return _Outcome(function(task, attempt), None)
        except PermanentError as err:
            return _Outcome(None, err)
        except TransientError as err:
            if attempt.is_last:
                return _Outcome(None, err)
            raise

    return call
