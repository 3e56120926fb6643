"""Archives topics in a process of its own, whose memory is measured: `python -m ...hostile.archiving FILE`."""

import json
import pickle
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from kafka_s3_platform.config.settings import ConnectorConfig
from kafka_s3_platform_tests.hostile.measure import kilobytes
from kafka_s3_platform_tests.support import snapshot, tried


@dataclass(frozen=True)
class Archived:
    """What a run came to. `megabytes` are those above what a run before it has left; `offsets` those unresolved."""

    records: int
    dead_letters: int
    failure: str
    offsets: list[list[int]]
    seconds: float
    megabytes: float


def archived_apart(configs: Sequence[ConnectorConfig], folder: Path) -> Archived:
    """The last of the runs, all in one process."""
    path = folder / "configs.pickle"
    path.write_bytes(pickle.dumps(configs))
    program = [sys.executable, "-m", "kafka_s3_platform_tests.hostile.archiving", str(path)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"exit code {done.returncode}: {done.stderr[-3000:]}"
    return Archived(**json.loads(done.stdout))


def main(path: str) -> None:
    """Print it."""
    *before, config = pickle.loads(Path(path).read_bytes())  # noqa: S301 (the test wrote it)
    for each in before:
        tried(each).raise_failure()
    held = kilobytes("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    report = tried(config)
    told = Archived(
        sum(s.record_count for s in snapshot(config).segments),
        report.dead_letter_count,
        str(report.failure or ""),
        [[u.start_offset, u.end_offset] for u in snapshot(config).state.unresolved],
        report.seconds,
        (kilobytes("VmHWM") - held) / 1024,
    )
    sys.stdout.write(json.dumps(asdict(told)))


if __name__ == "__main__":
    main(*sys.argv[1:])
