"""Runs independent tasks as Spark jobs of one Spark task each.

Each task is a job of its own, started by a bounded pool of driver threads. So `tasks.max` bounds how many tasks run at
once but not where they run, results arrive one by one (progress is live), and a slow task does not delay others. Small
tasks are dealt out into groups, because a Spark task itself costs more than a small piece of work.
"""

import logging
import pickle
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from kafka_s3_platform.core.config import plugins
from kafka_s3_platform.core.errors import PermanentError, SparkUnavailableError, TransientError, explain_full_disk
from kafka_s3_platform.core.spark.session import MAX_TASK_ATTEMPTS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")

GROUPS_PER_SLOT = 4
"""Number of groups for each task that can run at once: while a slow group runs, the others still have work to do."""

GROUP_COST = 1_000_000
"""The least cost of a group, in records, unless there would be fewer groups than can run at once.

The group itself adds a tenth of that as a fixed cost.
"""


def deal_out(tasks: Sequence[T], count_cost: Callable[[T], int], at_once: int) -> list[tuple[T, ...]]:
    """Deal out the tasks into groups of about the same cost, in order. A large task stays alone."""
    total = sum(map(count_cost, tasks))
    share = total / max(1, at_once, min(total // GROUP_COST, at_once * GROUPS_PER_SLOT))
    groups: list[list[T]] = []
    group_cost = share
    for task in tasks:
        cost = count_cost(task)
        if group_cost + cost > share:
            groups.append([])
            group_cost = 0
        groups[-1].append(task)
        group_cost += cost
    return [tuple(group) for group in groups]


logger = logging.getLogger(__name__)

R = TypeVar("R")

_RAISED_BY_TASK = "org.apache.spark.api.python.PythonException"
"""Spark's name for an error that a task's own code raised. It is a defect, as transient errors keep their class."""

STREAM_COST = 20_000
"""The fixed cost of one stream of a topic, in records: connections, requests, a transaction."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at a task. Ids grow with every attempt in a Spark application."""

    attempt_id: int
    number: int

    @property
    def is_last(self) -> bool:
        """True if Spark does not retry the task after this attempt."""
        return self.number + 1 >= MAX_TASK_ATTEMPTS


class TaskRunner(Protocol):
    """Runs `function(task, attempt)` for each task, at most `max_concurrent` at once."""

    def start(self) -> None:
        """Get ready to run tasks, before a run reserves anything. Raises SparkUnavailableError if it cannot."""
        ...

    def run(self, function: Callable[[T, Attempt], R], tasks: Sequence[T], max_concurrent: int) -> Iterator[R]:
        """Yield results as tasks end, in any order.

        Raise the first permanent error, or the first transient one of a last attempt. No new task starts then.
        """
        ...

    def run_grouped(
        self, function: Callable[[T, Attempt], R], tasks: Sequence[T], max_concurrent: int, _: Callable[[T], int]
    ) -> Iterator[R]:
        """Run the tasks as `run` does, but small ones may share one Spark task, which runs them one after the other.

        Their results come when all of them are done. If the Spark task is tried again, it begins with the first of
        them, so each has to find its own earlier results. The last argument counts the records, or bytes, of a task.
        """
        return self.run(function, tasks, max_concurrent)

    def at_once(self, max_concurrent: int) -> int:
        """Return the greatest number of tasks that run at once. Limits of a run are divided by this number."""
        ...


@dataclass(frozen=True)
class TaskOutcome(Generic[R]):
    """The answer of an executor. It holds an error as a value, because Spark would turn a raised error into text."""

    result: R | None
    error: Exception | None

    def unwrap(self) -> R:
        """Return the result, or raise the error."""
        if self.error is not None:
            raise self.error
        return self.result  # type: ignore[return-value]


class GroupingRunner(TaskRunner):
    """A runner that puts small tasks together, because a Spark task itself costs more than a small piece of work."""

    def run_grouped(
        self,
        function: Callable[[T, Attempt], R],
        tasks: Sequence[T],
        max_concurrent: int,
        count_size: Callable[[T], int],
    ) -> Iterator[R]:
        """Put small tasks together into Spark tasks by their sizes, and yield the result of each small task."""
        if not tasks:
            return
        groups = deal_out(tasks, lambda task: count_size(task) + STREAM_COST, self.at_once(max_concurrent))
        for results in self.run(partial(_call_for_each, function), groups, max_concurrent):
            yield from results


class SparkRunner(GroupingRunner):
    """Runs tasks on Spark. The session is requested for the first task, so a run without tasks starts no Spark."""

    def __init__(self, session: "Callable[[], SparkSession]") -> None:
        self._session = session

    def start(self) -> None:
        self._session()

    def run(self, function: Callable[[T, Attempt], R], tasks: Sequence[T], max_concurrent: int) -> Iterator[R]:
        if not tasks:
            return
        context: Any = self._session().sparkContext
        # Python workers of a cluster have their own environment, but this process decides which classes they may load.
        context.environment[plugins.VARIABLE] = ",".join(plugins.read_allowance())
        yield from run_in_threads(lambda task: self._run_one(context, function, task), tasks, max_concurrent)

    def at_once(self, max_concurrent: int) -> int:
        """Return at most this machine's number of cores if Spark is local. A cluster may run as many as requested."""
        context = self._session().sparkContext
        if str(context.master).startswith("local"):
            with _explain_loss(context):
                return min(max_concurrent, context.defaultParallelism)
        return max_concurrent

    def _run_one(self, context: Any, function: Callable[[T, Attempt], R], task: T) -> R:
        """Run a task as a Spark job with one Spark task. Return its result, or raise its error."""
        with _explain_loss(context):
            outcome: TaskOutcome[R] = context.parallelize([task], 1).map(guard_task(function)).collect()[0]
        return outcome.unwrap()


@contextmanager
def _explain_loss(context: Any) -> Iterator[None]:
    """Raise SparkUnavailableError if Spark gives a task up, or if its Java process has died."""
    from py4j.protocol import Py4JError

    try:
        yield
    # OSError: nobody listens any more where the Java process did
    except (Py4JError, OSError) as err:
        if _RAISED_BY_TASK in str(err):
            raise
        # of an error of Java, the first line says where and the second one what
        reason = str(err).split("\n")[:2][-1].strip(": .")
        raise SparkUnavailableError(
            f"Spark on {context.master} gave a task up: {reason}. Look at the logs of its executors: whether their "
            "machines run, have memory, and reach spark.driver.host. What was committed stays: run again"
        ) from err


class ChosenRunner(GroupingRunner):
    """Chooses a runner (a warm Spark or one of its own) when one is first needed, and passes all calls to it."""

    def __init__(self, choose: Callable[[], TaskRunner]) -> None:
        self._choose = choose

    @cached_property
    def _chosen(self) -> TaskRunner:
        return self._choose()

    def start(self) -> None:
        self._chosen.start()

    def run(self, function: Callable[[T, Attempt], R], tasks: Sequence[T], max_concurrent: int) -> Iterator[R]:
        if tasks:
            yield from self._chosen.run(function, tasks, max_concurrent)

    def at_once(self, max_concurrent: int) -> int:
        return self._chosen.at_once(max_concurrent)


def run_in_threads(
    run_task: Callable[[T], R],
    tasks: Sequence[T],
    max_concurrent: int,
    cancel_running: Callable[[], None] | None = None,
) -> Iterator[R]:
    """Yield the tasks' results as they end, at most `max_concurrent` at once.

    After an error no other task starts. Running tasks are waited for. An interrupt calls `cancel_running` first.
    """
    with ThreadPoolExecutor(max_concurrent, thread_name_prefix="spark-task") as pool:
        pending = {pool.submit(run_task, task) for task in tasks}
        try:
            while pending:
                finished, pending = wait(pending, return_when=FIRST_COMPLETED)
                for future in finished:
                    yield future.result()
        except BaseException as err:
            _cancel_pending(pending)
            if cancel_running is not None and not isinstance(err, Exception):
                cancel_running()
            raise


def _call_for_each(function: Callable[[T, Attempt], R], group: Sequence[T], attempt: Attempt) -> list[R]:
    return [function(task, attempt) for task in group]


def _cancel_pending(pending: "set[Future[Any]]") -> None:
    """Cancel the jobs that have not started. The pool waits for the running ones, so no job outlives its run."""
    for future in pending:
        future.cancel()


def _call_on_disk(function: Callable[[T, Attempt], R], task: T, attempt: Attempt) -> R:
    """Call a task. Raise FullDiskError (transient) if the disk of its machine is full."""
    try:
        return function(task, attempt)
    except OSError as err:
        if full := explain_full_disk(err):
            raise full from err
        raise


def guard_task(function: Callable[[T, Attempt], R]) -> Callable[[T], TaskOutcome[R]]:
    """Return a function for an executor. It calls `function` with a task, and returns errors as values."""

    def call(task: T) -> TaskOutcome[R]:
        """Call `function` with the number of this attempt, as Spark counts them."""
        from pyspark import TaskContext

        context: Any = TaskContext.get()
        attempt = Attempt(context.taskAttemptId(), context.attemptNumber())
        try:
            return TaskOutcome(_call_on_disk(function, task, attempt), None)
        except PermanentError as err:
            return TaskOutcome(None, err)
        except TransientError as err:
            # If it is raised, Spark retries the task. The last attempt returns it, so that it keeps its type.
            if attempt.is_last:
                return TaskOutcome(None, err)
            raise

    return call


def pickle_task(function: Callable[[T, Attempt], R], task: T) -> bytes:
    """Pickle a task with its function: by name if the function is in a module, else by value, as Spark does."""
    if all(inner.__module__ != "__main__" and "<" not in inner.__qualname__ for inner in _list_functions(function)):
        return pickle.dumps((function, task))
    # imports all of PySpark, which takes longer than most tasks
    from pyspark import cloudpickle

    pickled: bytes = cloudpickle.dumps((function, task))  # type: ignore[no-untyped-call]
    return pickled


def _list_functions(function: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """Yield the function, or the functions inside a partial one: a group's function calls the function of its tasks."""
    if not isinstance(function, partial):
        yield function
        return
    for inner in (function.func, *filter(callable, function.args)):
        yield from _list_functions(inner)


def run_pickled(pickled: bytes) -> bytes:
    """Run a task in a Python worker. Return its pickled outcome."""
    function, task = pickle.loads(pickled)  # noqa: S301 - from a process of this user: see `wire`
    return pickle.dumps(guard_task(function)(task))
