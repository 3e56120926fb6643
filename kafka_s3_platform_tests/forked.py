"""Processes that are forked from one that has imported what they need: to import it again takes seconds each time.

Python has one such process, and the modules that it imports are listed once: a second list would replace the first.
"""

import traceback
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

T = TypeVar("T")

SECONDS = 480.0
"""How long a process may take. What it may cost is for the tests to say."""

FORKED = get_context("forkserver")
FORKED.set_forkserver_preload(
    [
        *(f"kafka_s3_platform_tests.faults.test_{name}_killed" for name in ("archive", "restore", "vacuum")),
        "kafka_s3_platform_tests.hostile.measure",
        # pyarrow imports pandas with the first bad record
        "pandas",
    ]
)


def call_apart(function: Callable[..., T], *arguments: Any) -> T:
    """Return what a function returns in a process of its own.

    Raises AssertionError where it raises something, or its process ends in another way.
    """
    here, there = FORKED.Pipe(duplex=False)
    process = FORKED.Process(target=_tell, args=(there, function, arguments))
    process.start()
    there.close()
    is_told = here.poll(SECONDS)
    if not is_told:
        process.kill()
    process.join()
    assert is_told, f"it did not end within {SECONDS:g} s"
    assert process.exitcode == 0, f"exit code {process.exitcode}"
    found, fault = here.recv()
    assert not fault, fault
    returned: T = found
    return returned


def end_apart(function: Callable[..., object], *arguments: Any) -> int:
    """Call a function in a process of its own. Return its exit status, or the signal that ended it, negative."""
    process: BaseProcess = FORKED.Process(target=function, args=arguments)
    process.start()
    process.join(SECONDS)
    assert process.exitcode is not None, f"it did not end within {SECONDS:g} s"
    return process.exitcode


def _tell(listener: Connection, function: Callable[..., object], arguments: tuple[Any, ...]) -> None:
    try:
        listener.send((function(*arguments), ""))
    except Exception:  # noqa: BLE001 (it is raised where it is waited for)
        listener.send((None, traceback.format_exc()))
