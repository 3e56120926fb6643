"""What a run says of that which it could not archive, after it has committed everything else."""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone

from kafka_s3_platform.archive.bad_records import offset_count
from kafka_s3_platform.archive.task import FailedScan
from kafka_s3_platform.errors import LogTruncatedError, PlatformError, TransientError, UnresolvedOffsetsError
from kafka_s3_platform.model.unresolved import Unresolved

SHOWN = 5
UNREADABLE = "batch"
"""Reason of offsets that not even the reader could deliver: no setting helps."""


FOR_EVER = -1
"""Kafka's own number for a topic that deletes no record for its age."""


def retention_ms(configs: Mapping[str, str]) -> int:
    """How long a topic with these configs in force keeps its records."""
    kept = int(configs.get("retention.ms", FOR_EVER))
    return kept if kept >= 0 and "delete" in configs.get("cleanup.policy", "delete") else FOR_EVER


def kept_until(item: Unresolved) -> datetime | None:
    """When retention may delete the first of its records at the earliest, None where that is unknown, or never."""
    kept, earliest = item.retention_ms, item.min_timestamp
    if kept is None or kept == FOR_EVER or earliest is None or earliest < 0:
        return None
    try:
        return datetime.fromtimestamp(earliest / 1000, timezone.utc) + timedelta(milliseconds=kept)
    except (OverflowError, ValueError):
        # timestamps are what producers say, and may be beyond any calendar
        return None


def time_left(item: Unresolved, now: datetime) -> str:
    """How long retention keeps its records at least: `for ever`, `unknown`, `none`, or such as `2 days, 3:04:05`."""
    if item.retention_ms == FOR_EVER:
        return "for ever"
    until = kept_until(item)
    if until is None:
        return "unknown"
    return str(timedelta(seconds=int((until - now).total_seconds()))) if until > now else "none"


def resolve_command(connector: str, topic: str, kafka_partition: int, decision: str) -> str:
    """The command that records a decision."""
    place = f"{shlex.quote(connector)} --topic {shlex.quote(topic)} --kafka-partition {kafka_partition}"
    return f"kafka-s3 resolve {place} {decision}"


def skip_command(connector: str, topic: str, item: Unresolved) -> str:
    """The command that decides to do without these offsets."""
    skip = f"--offsets {item.start_offset}:{item.end_offset} --skip"
    return resolve_command(connector, topic, item.kafka_partition, skip)


def failure_of(
    connector: str,
    topic: str,
    unresolved: Sequence[Unresolved],
    failed: Sequence[PlatformError],
) -> PlatformError | None:
    """One error for all that failed, None if nothing did.

    It is a passing one if any of them is: another try archives more. What lasts is told then as well.
    """
    if not unresolved and not failed:
        return None
    first = next((e for e in failed if isinstance(e, TransientError)), None) or next(iter(failed), None)
    others = [str(e) for e in failed if e is not first]
    said = [*_unresolved_lines(connector, topic, unresolved), *others[:SHOWN], *_more(len(others) - SHOWN)]
    if first is None:
        return UnresolvedOffsetsError("\n".join(said))
    # on a line of its own: what comes before may end with a command, to be copied
    first.args = ("\n".join([f"{first}", "Everything else that this run read is committed", *said]),)
    return first


def _unresolved_lines(connector: str, topic: str, unresolved: Sequence[Unresolved]) -> Iterator[str]:
    if not unresolved:
        return
    now = datetime.now(timezone.utc)
    yield (
        f"topic {topic}: {offset_count(unresolved):,} offsets in {len(unresolved):,} ranges could not be archived. "
        f"Everything else that this run read is committed:"
    )
    for item in unresolved[:SHOWN]:
        yield (
            f"{topic}-{item.kafka_partition} {item.offsets}: {item.reason}: {item.message} (time until retention may "
            f"delete them: {time_left(item, now)})"
        )
    yield from _more(len(unresolved) - SHOWN)
    if any(u.reason != UNREADABLE for u in unresolved):
        yield (
            "Correct the connector file, if it asks for what the records do not hold, and run again. Or set "
            "errors.tolerance=all, name a dead letter topic in errors.deadletterqueue.topic.name, and run again"
        )
    yield "To do without them:"
    yield from (skip_command(connector, topic, item) for item in unresolved[:SHOWN])
    if len(unresolved) > SHOWN:
        yield f"and what this lists: kafka-s3 resolve {shlex.quote(connector)} --topic {shlex.quote(topic)}"


def _more(count: int) -> Iterable[str]:
    return [f"and {count} more"] if count > 0 else []


def errors_of(failed: Iterable[FailedScan], connector: str, topic: str) -> Iterator[PlatformError]:
    """The errors of failed tasks, each with the place it failed at."""
    for item in failed:
        ranges = ", ".join(map(str, item.ranges[:SHOWN]))
        said = f"{topic}-{item.kafka_partition} {ranges} is not archived: {item.error}"
        if isinstance(item.error, LogTruncatedError):
            accept = resolve_command(connector, topic, item.kafka_partition, "--accept-truncation")
            said += f". To keep what is archived and go on after it: {accept}"
        item.error.args = (said,)
        yield item.error
