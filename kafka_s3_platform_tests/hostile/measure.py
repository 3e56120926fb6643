"""Reads one object in a process of its own: `python -m kafka_s3_platform_tests.hostile.measure FORMAT FILE`."""

import json
import resource
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from kafka_s3_platform.errors import IntegrityError
from kafka_s3_platform_tests.hostile.readers import READERS

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
    program = [sys.executable, "-m", "kafka_s3_platform_tests.hostile.measure", format_name, str(path)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=2 * SECONDS, check=False)
    assert done.returncode == 0, f"exit code {done.returncode}: {done.stderr[-2000:]}"
    return Measured(**json.loads(done.stdout))


def main(format_name: str, path: str) -> None:
    """Print it."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_BYTES, ADDRESS_BYTES))
    signal.alarm(SECONDS)
    body = Path(path).read_bytes()
    before = kilobytes("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    start, records, bad, fault = time.process_time(), 0, 0, ""
    try:
        for batch in READERS[format_name](body):
            records += len(batch) if hasattr(batch, "bad") else batch.num_rows
            bad += len(getattr(batch, "bad", ()))
    except IntegrityError as err:
        fault = str(err)
    seconds = time.process_time() - start
    told = Measured(records, bad, fault, seconds, (kilobytes("VmHWM") - before) / 1024)
    sys.stdout.write(json.dumps(asdict(told)))


def kilobytes(name: str) -> int:
    """What Linux says of this process's memory."""
    return int(Path("/proc/self/status").read_text().split(f"{name}:")[1].split()[0])


if __name__ == "__main__":
    main(*sys.argv[1:])
