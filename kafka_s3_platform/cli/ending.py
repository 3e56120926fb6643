"""Ends a command's process with its status, and soon after Ctrl-C even if something still waits for an answer.

A library that waits in native code sees no Ctrl-C, and its thread may crash Python at the end.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

from kafka_s3_platform.core.waits import is_any_waiting

GRACE_SECONDS = 1.1
"""After Ctrl-C a command has this time to end by itself, and more as long as it makes progress."""

STILL_SECONDS = 0.7
"""A main thread that has not moved for this time is waiting for a silent server."""


def run_to_end(run: Callable[[], object], report_interrupt: Callable[[], int]) -> NoReturn:
    """Run the command, then end the process with its status. `report_interrupt` returns the status for Ctrl-C.

    Ending the process at once is like killing it: its commits stay.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        # written to at once, also while the main thread is in native code
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        threading.Thread(target=_watch, args=(reader, report_interrupt), name="interrupts", daemon=True).start()
    try:
        run()
    except SystemExit as end:
        if is_any_waiting():
            _end(end.code if isinstance(end.code, int) else int(end.code is not None))
        raise
    sys.exit(0)


def _watch(reader: int, report_interrupt: Callable[[], int]) -> None:
    """Wait for Ctrl-C, then end the process once its main thread stands still."""
    while os.read(reader, 1) != bytes([signal.SIGINT]):
        pass
    time.sleep(GRACE_SECONDS)
    while True:
        earlier_place = _find_place()
        time.sleep(STILL_SECONDS)
        if _find_place() == earlier_place:
            _end(report_interrupt())


def _find_place() -> tuple[FrameType | None, int]:
    """Return where the main thread is: its frame, and the instruction in it."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)  # noqa: SLF001 - as faulthandler does
    return frame, frame.f_lasti if frame else 0


def _end(status: int) -> NoReturn:
    """End the process at once with this status."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
