"""`kafka-s3 verify`."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any
from uuid import uuid4
from zoneinfo import ZoneInfo

import click

from kafka_s3_platform.archive.verify import VerifyReport, verify_archive
from kafka_s3_platform.cli.output import json_option, show
from kafka_s3_platform.cli.runs import native_topics_of, of_each, raise_failures, topic_option, topics_of
from kafka_s3_platform.cli.windows import (
    OFFSETS,
    by_kafka_partition,
    numbers,
    offsets,
    target_kafka,
    target_worker_option,
    time_of,
)
from kafka_s3_platform.defs.resources import SparkResource
from kafka_s3_platform.errors import IntegrityError
from kafka_s3_platform.restore.against import Comparison, KafkaPartitionComparison, compare_with_topic
from kafka_s3_platform.restore.request import RestoreRequest


@click.command
@click.argument("connector")
@topic_option
@click.option("--deep", is_flag=True, help="Read every object, and check its SHA-256, records and offsets.")
@click.option("--against", metavar="TOPIC", help="Compare the records of --topic with those of this topic instead.")
@click.option("--exactly", is_flag=True, help="With --against: TOPIC must hold each record once, and nothing else.")
@target_worker_option
@click.option("--from", "from_time", metavar="TIME", help="Only records with this timestamp or a later one, ISO 8601.")
@click.option("--to", "to_time", metavar="TIME", help="Only records with an earlier timestamp than this.")
@click.option("--from-offset", multiple=True, callback=offsets, metavar="N", help=f"First offset. {OFFSETS}")
@click.option("--to-offset", multiple=True, callback=offsets, metavar="N", help=f"Offset to stop before. {OFFSETS}")
@click.option("--kafka-partitions", metavar="0,1,...", help="Only these kafka partitions.")
@click.option(
    "--allow-unsendable-timestamps", is_flag=True, help="A record with timestamp 0 may have any time in TOPIC."
)
@json_option
@click.pass_context
def verify(
    ctx: click.Context,
    /,
    *,
    connector: str,
    topic: str | None,
    deep: bool,
    against: str | None,
    exactly: bool,
    as_json: bool,
    **window: Any,
) -> None:
    """Compare the objects of CONNECTOR's topics with what the index says of them.

    With --against, compare archived records with those of a topic: their number, their order, and each one's content.
    Exit status 1 if an object is damaged, or an archived record is not in TOPIC; with --exactly also if one is there
    twice, or TOPIC holds anything else, or not all of it could be compared.
    """
    if against is not None:
        if topic is None or deep:
            raise click.UsageError("--against compares one --topic, and reads every object anyway: no --deep")
        found = _compared(connector, topic, against, **window)
        show({"ok": found.ok, "exact": found.exact, **asdict(found)}, as_json, list(_comparison_lines(found)))
        ctx.exit(0 if (found.exact if exactly else found.ok) else 1)
    if given := [name for name, value in {**window, "exactly": exactly}.items() if value]:
        raise click.UsageError(f"without --against all is verified: no --{given[0].replace('_', '-')}")
    with SparkResource().runner() as runner:
        reports, failures = of_each(
            topics_of(connector, topic), lambda t: verify_archive(t.config, t.topic, deep, runner)
        )
    show({"topics": [_document(r) for r in reports]}, as_json, [line for r in reports for line in _lines(r)])
    damaged = {r.topic: IntegrityError("not all is as the index says, see above") for r in reports if not r.ok}
    if failures:
        # running it again does not help the damaged ones, whatever may pass of the others
        raise_failures({**failures, **damaged})
    ctx.exit(1 if damaged else 0)


def _compared(
    connector: str,
    topic: str,
    against: str,
    *,
    target_worker: Path | None,
    from_time: str | None,
    to_time: str | None,
    from_offset: Mapping[str, int],
    to_offset: Mapping[str, int],
    kafka_partitions: str | None,
    allow_unsendable_timestamps: bool,
) -> Comparison:
    [archived] = native_topics_of(connector, topic, "compare")
    zone, run_id = ZoneInfo(archived.config.layout.timezone), str(uuid4())
    request = RestoreRequest(
        config=archived.config,
        topic=topic,
        to_topic=against,
        restore_id=run_id,
        run_id=run_id,
        target=target_kafka(target_worker),
        from_time=time_of("--from", from_time, zone),
        to_time=time_of("--to", to_time, zone),
        from_offset=by_kafka_partition(from_offset),
        to_offset=by_kafka_partition(to_offset),
        kafka_partitions=tuple(numbers(kafka_partitions)) or None,
        allow_unsendable_timestamps=allow_unsendable_timestamps,
    )
    with SparkResource().runner() as runner:
        return compare_with_topic(request, runner)


def _comparison_lines(found: Comparison) -> Iterator[str]:
    parts = found.kafka_partitions
    yield (
        f"{found.topic} against {found.to_topic}: {_state(found)}; {sum(p.found_count for p in parts):,} of "
        f"{sum(p.archived_count for p in parts):,} archived records found in order, "
        f"{sum(p.doubled_count for p in parts):,} once more, {sum(p.foreign_count for p in parts):,} records of others"
    )
    yield from (f"  {_comparison_line(p)}" for p in parts)
    yield from (f"  {text}" for text in (*found.gaps, *found.notes))


def _state(found: Comparison) -> str:
    if not found.ok:
        return "NOT the same"
    if found.exact:
        return "exactly the same"
    return "all is there, not that alone"


def _comparison_line(part: KafkaPartitionComparison) -> str:
    place = f"kafka partition {part.kafka_partition}: {part.found_count:,} of {part.archived_count:,} found"
    if part.fault:
        return f"{place}; {part.fault}"
    if part.first_missing is not None:
        return f"{place}; the first that was not is source offset {part.first_missing}"
    return f"{place}, digest {part.found_digest}"


def _document(report: VerifyReport) -> dict[str, Any]:
    unresolved = [{**asdict(u), "found_at": u.found_at.isoformat()} for u in report.unresolved]
    return {"ok": report.ok, **asdict(report), "unresolved": unresolved}


def _lines(report: VerifyReport) -> list[str]:
    state = "ok" if report.ok else f"{len(report.damages)} thing(s) are not as the index says"
    head = (
        f"{report.topic}: {state}; {report.segment_count} object(s), {report.record_count:,} records, "
        f"{report.size:,} bytes, {len(report.holes)} hole(s), {len(report.gaps)} gap(s)"
    )
    damages = [
        f"  kafka partition {d.kafka_partition}, {d.key or 'no single object'}: {d.message}" for d in report.damages
    ]
    holes = [
        f"  not archived: kafka partition {h.kafka_partition} [{h.start_offset}, {h.end_offset})" for h in report.holes
    ]
    gaps = [
        f"  lost: kafka partition {g.kafka_partition} [{g.start_offset}, {g.end_offset}), {g.reason}"
        for g in report.gaps
    ]
    taken_over = [
        f"  with the sink before this one: kafka partition {g.kafka_partition} [{g.start_offset}, {g.end_offset})"
        for g in report.taken_over
    ]
    unresolved = [
        f"  could not be archived: kafka partition {u.kafka_partition} {u.offsets}: {u.reason}: {u.message}"
        for u in report.unresolved
    ]
    return [head, *damages, *holes, *gaps, *taken_over, *unresolved]
