"""Processes that are forked from one that has imported what they need: to import it again takes seconds each time.

Python has one such process, and the modules that it imports are listed once: a second list would replace the first.
"""

from multiprocessing import get_context

FORKED = get_context("forkserver")
FORKED.set_forkserver_preload(
    [
        *(f"kafka_s3_platform_tests.faults.test_{name}_killed" for name in ("archive", "restore", "vacuum")),
        "kafka_s3_platform_tests.hostile.measure",
        # pyarrow imports pandas with the first bad record
        "pandas",
    ]
)
