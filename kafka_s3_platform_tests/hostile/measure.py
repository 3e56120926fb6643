"""Reads one object in a process of its own, whose memory is measured."""

import resource
import signal
import time
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from kafka_s3_platform.errors import IntegrityError
from kafka_s3_platform_tests.forked import FORKED
from kafka_s3_platform_tests.hostile.readers import CONVERTERS, READERS

ADDRESS_BYTES = 6 * 2**30
SECONDS = 60


@dataclass(frozen=True)
class Measured:
    """What reading an object came to.

    `seconds` are of CPU, which other processes do not change; `megabytes` those above what the process had before;
    `fault` is the error.
    """

    records: int
    bad: int
    fault: str
    seconds: float
    megabytes: float


def measured(format_name: str, path: Path) -> Measured:
    """Reads it there. Raises AssertionError where the process ends in another way than by the one error."""
    here, there = FORKED.Pipe(duplex=False)
    process = FORKED.Process(target=_tell, args=(there, format_name, path))
    process.start()
    there.close()
    process.join(2 * SECONDS)
    process.kill()
    assert process.exitcode == 0, f"exit code {process.exitcode}"
    found = here.recv()
    assert isinstance(found, Measured), found
    return found


def _tell(listener: Connection, format_name: str, path: Path) -> None:
    try:
        listener.send(_measure(format_name, path))
    except Exception:  # noqa: BLE001 (it is raised where it is waited for)
        listener.send(traceback.format_exc())


def _measure(format_name: str, path: Path) -> Measured:
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_BYTES, ADDRESS_BYTES))
    signal.alarm(SECONDS)
    body = path.read_bytes()
    before = kilobytes("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    start, records, bad, fault = time.process_time(), 0, 0, ""
    try:
        for batch in {**READERS, **CONVERTERS}[format_name](body):
            records += len(batch) if hasattr(batch, "bad") else batch.num_rows
            bad += len(getattr(batch, "bad", ()))
    except IntegrityError as err:
        fault = str(err)
    seconds = time.process_time() - start
    return Measured(records, bad, fault, seconds, (kilobytes("VmHWM") - before) / 1024)


def kilobytes(name: str) -> int:
    """What Linux says of this process's memory."""
    return int(Path("/proc/self/status").read_text().split(f"{name}:")[1].split()[0])
