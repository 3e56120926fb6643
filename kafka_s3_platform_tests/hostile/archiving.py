"""Archives topics in a process of its own, whose memory is measured."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kafka_s3_platform.config.settings import ConnectorConfig
from kafka_s3_platform_tests.forked import call_apart
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


def archived_apart(configs: Sequence[ConnectorConfig]) -> Archived:
    """The last of the runs, all in one process."""
    return call_apart(_archive, configs)


def _archive(configs: Sequence[ConnectorConfig]) -> Archived:
    *before, config = configs
    for each in before:
        tried(each).raise_failure()
    held = kilobytes("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    report = tried(config)
    return Archived(
        sum(s.record_count for s in snapshot(config).segments),
        report.dead_letter_count,
        str(report.failure or ""),
        [[u.start_offset, u.end_offset] for u in snapshot(config).state.unresolved],
        report.seconds,
        (kilobytes("VmHWM") - held) / 1024,
    )
