"""Reads one object in a process of its own, whose memory is measured."""

import resource
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile

from kafka_s3_platform.core.errors import IntegrityError
from kafka_s3_platform_tests.forked import call_apart
from kafka_s3_platform_tests.hostile.readers import BY_ARROW, CONVERTERS, READERS

ADDRESS_BYTES = 6 * 2**30
SECONDS = 60
"""Of CPU, which other processes do not change."""


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


def measured(format_name: str, content: bytes | Path) -> Measured:
    """Reads it there. Raises AssertionError where the process ends in another way than by the one error."""
    if isinstance(content, Path):
        return call_apart(_measure, format_name, content)
    with NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        return call_apart(_measure, format_name, Path(file.name))


def _measure(format_name: str, path: Path) -> Measured:
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_BYTES, ADDRESS_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    body = path.read_bytes()
    before = kilobytes("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    start, records, bad, fault = time.process_time(), 0, 0, ""
    try:
        for batch in {**READERS, **CONVERTERS, **BY_ARROW}[format_name](body):
            records += len(batch) if hasattr(batch, "bad") else batch.num_rows
            bad += len(getattr(batch, "bad", ()))
    except IntegrityError as err:
        fault = str(err)
    seconds = time.process_time() - start
    return Measured(records, bad, fault, seconds, (kilobytes("VmHWM") - before) / 1024)


def kilobytes(name: str) -> int:
    """What Linux says of this process's memory."""
    return int(Path("/proc/self/status").read_text().split(f"{name}:")[1].split()[0])
