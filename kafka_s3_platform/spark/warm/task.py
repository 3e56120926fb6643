"""A task as bytes: pickled by the client, and unpickled by the Python worker that runs it."""

import pickle
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from kafka_s3_platform.spark.runner import Attempt, R, T, guard_task


def pickle_task(function: Callable[[T, Attempt], R], task: T) -> bytes:
    """Pickle a task with its function: by name, as all of the platform's are, or else by value, as Spark does."""
    if all(inner.__module__ != "__main__" and "<" not in inner.__qualname__ for inner in _list_functions(function)):
        return pickle.dumps((function, task))
    # imports all of PySpark, which takes longer than most tasks
    from pyspark import cloudpickle

    pickled: bytes = cloudpickle.dumps((function, task))  # type: ignore[no-untyped-call]
    return pickled


def _list_functions(function: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """Yield the function, or those that a partial one is made of: a group of tasks is one that calls another."""
    if not isinstance(function, partial):
        yield function
        return
    for inner in (function.func, *filter(callable, function.args)):
        yield from _list_functions(inner)


def run_pickled(pickled: bytes) -> bytes:
    """Run a task in a Python worker. Return its pickled outcome."""
    function, task = pickle.loads(pickled)  # noqa: S301 - from a process of this user: see `wire`
    return pickle.dumps(guard_task(function)(task))
