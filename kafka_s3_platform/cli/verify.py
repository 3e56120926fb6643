"""`kafka-s3 verify`."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from uuid import uuid4
from zoneinfo import ZoneInfo

import click

from kafka_s3_platform.cli.messages import Verdict, json_option, print_result
from kafka_s3_platform.cli.options import (
    connector_argument,
    parse_numbers,
    parse_offsets,
    parse_time,
    read_target_kafka,
    target_worker_option,
    topic_option,
)
from kafka_s3_platform.cli.runs import find_archived_topics, find_native_topics, raise_failures, try_topics
from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.defs.resources import SparkResource
from kafka_s3_platform.core.defs.restore.config import OFFSETS
from kafka_s3_platform.core.defs.restore.values import read_offsets
from kafka_s3_platform.core.errors import IntegrityError, PlatformError
from kafka_s3_platform.core.model.gaps import Gap
from kafka_s3_platform.core.restore.evidence import ComparedTopic, Evidence, EvidenceFolder
from kafka_s3_platform.core.restore.request import RestoreRequest
from kafka_s3_platform.core.restore.signing import EvidenceKey, read_evidence_key
from kafka_s3_platform.core.restore.verify.against_topic import Comparison, KafkaPartitionComparison, compare_with_topic
from kafka_s3_platform.core.text import count_noun
from kafka_s3_platform.core.upkeep.verify import Hole, VerifyReport, verify_archive
from kafka_s3_platform.operate.defs.warm_spark import choose_runner

_NOTHING = "nothing is archived, so nothing was compared"


@click.command
@connector_argument
@topic_option
@click.option("--deep", is_flag=True, help="Read every object, and check its SHA-256, records and offsets.")
@click.option(
    "--against", metavar="TOPIC", help="Compare the archived records of --topic with the records of TOPIC instead."
)
@click.option(
    "--exactly", is_flag=True, help="With --against: require that TOPIC holds each record once, and nothing else."
)
@target_worker_option
@click.option(
    "--from",
    "from_time",
    metavar="TIME",
    help="With --against: compare records with this timestamp or a later one. ISO 8601; without a UTC offset, in the "
    "connector's timezone.",
)
@click.option(
    "--to", "to_time", metavar="TIME", help="With --against: compare records with a timestamp before this one."
)
@click.option(
    "--from-offset",
    multiple=True,
    callback=parse_offsets,
    metavar="N",
    help=f"With --against: start at source offset N. {OFFSETS}",
)
@click.option(
    "--to-offset",
    multiple=True,
    callback=parse_offsets,
    metavar="N",
    help=f"With --against: stop before source offset N. {OFFSETS}",
)
@click.option(
    "--kafka-partitions",
    callback=parse_numbers,
    metavar="0,1,...",
    help="With --against: compare these kafka partitions of the source. Default: all.",
)
@click.option(
    "--allow-unsendable-timestamps",
    is_flag=True,
    help="With --against: accept any timestamp in TOPIC for a record with timestamp 0.",
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
    """Compare the objects of CONNECTOR's topics with the index.

    With --against, compare the archived records with the records of TOPIC: their number, their order and their content.

    Exit status 1 if an object is damaged, or if TOPIC lacks an archived record. With --exactly, also if TOPIC holds a
    record twice or anything else, or if something, or everything, could not be compared.
    """
    if against is not None:
        if topic is None or deep:
            raise click.UsageError("--against compares one --topic, and reads every object anyway: no --deep")
        comparison = _compare_topic(connector, topic, against, **window)
        document = {"ok": comparison.ok, "exact": comparison.exact, **asdict(comparison)}
        print_result(document, as_json, list(_format_comparison(comparison)))
        ctx.exit(0 if (comparison.exact if exactly else comparison.ok) else 1)
    if ignored := [name for name, value in {**window, "exactly": exactly}.items() if value]:
        raise click.UsageError(f"without --against all is verified: no --{ignored[0].replace('_', '-')}")
    runner = SparkResource(choose_runner).make_runner()
    key = read_evidence_key(os.environ) if deep else None
    started_at = datetime.now(timezone.utc)
    topics = find_archived_topics(connector, topic)
    reports, failures = try_topics(topics, lambda t: verify_archive(t.config, t.topic, deep, runner))
    lines = [line for r in reports for line in _format_report(r)]
    print_result({"topics": [{"ok": report.ok, **asdict(report)} for report in reports]}, as_json, lines)
    if deep:
        compared_topics = [
            *map(_describe_verified, reports),
            *(_describe_failed(topic, err) for topic, err in failures.items()),
        ]
        _store_evidence(topics[0].config, compared_topics, started_at, key)
    damaged = {r.topic: IntegrityError("not all is as the index says, see above") for r in reports if not r.ok}
    if failures:
        # Add the damaged topics, so that the command fails for good: running it again does not mend them.
        raise_failures({**failures, **damaged})
    ctx.exit(1 if damaged else 0)


def _store_evidence(
    config: ConnectorConfig, topics: Sequence[ComparedTopic], started_at: datetime, key: EvidenceKey | None
) -> None:
    """Store the comparison as evidence. Without a key, a failure to do so is only printed."""
    finished_at = datetime.now(timezone.utc)
    evidence = Evidence(
        kind="verification",
        connector=config.name,
        bucket=config.store.bucket,
        started_at=started_at,
        finished_at=finished_at,
        seconds=(finished_at - started_at).total_seconds(),
        topics=tuple(topics),
    )
    try:
        EvidenceFolder(config).add(evidence, key)
    except PlatformError as err:
        if key is not None:
            raise
        click.echo(f"{config.name}: the verification could not be recorded, so pages do not show it: {err}", err=True)


def _describe_failed(topic: str, error: PlatformError) -> ComparedTopic:
    """Describe, for evidence, a topic that could not be verified."""
    return ComparedTopic(
        topic=topic,
        compared_with="nothing",
        records=0,
        record_bytes=0,
        verdict=f"not verified: {error.text}",
        is_complete=False,
        left_out=("the topic as a whole",),
    )


def _describe_verified(report: VerifyReport) -> ComparedTopic:
    """Describe, for evidence, a verified topic."""
    lacking = (
        (len(report.damages), "difference from the index"),
        (len(report.holes), "range of offsets that was not archived yet"),
        (len(report.gaps), "range of offsets that is lost"),
        (len(report.taken_over), "range of offsets that another sink has"),
        (len(report.unresolved), "range of offsets that could not be archived"),
    )
    return ComparedTopic(
        topic=report.topic,
        compared_with="its index",
        records=report.record_count,
        record_bytes=report.record_bytes,
        verdict=_judge_objects(report),
        # An index that is lost names no object either.
        is_complete=report.ok and bool(report.segment_count),
        left_out=tuple(f"{count} x {what}" for count, what in lacking if count),
        digest=report.inventory,
    )


def _judge_objects(report: VerifyReport) -> str:
    """Return the verdict on a topic's objects in words."""
    if not report.ok:
        return "not as the index says"
    return "every object is as the index says" if report.segment_count else _NOTHING


def _compare_topic(
    connector: str,
    topic: str,
    against: str,
    *,
    target_worker: Path | None,
    from_time: str | None,
    to_time: str | None,
    from_offset: Mapping[str, int],
    to_offset: Mapping[str, int],
    kafka_partitions: list[int],
    allow_unsendable_timestamps: bool,
) -> Comparison:
    """Compare the archived records in a window with another topic's."""
    [archived] = find_native_topics(connector, topic, "compare")
    zone = ZoneInfo(archived.config.layout.timezone)
    run_id = str(uuid4())
    request = RestoreRequest(
        config=archived.config,
        topic=topic,
        to_topic=against,
        restore_id=run_id,
        run_id=run_id,
        target=read_target_kafka(target_worker),
        from_time=None if from_time is None else parse_time("--from", from_time, zone),
        to_time=None if to_time is None else parse_time("--to", to_time, zone),
        from_offset=read_offsets("--from-offset", from_offset),
        to_offset=read_offsets("--to-offset", to_offset),
        kafka_partitions=tuple(kafka_partitions) or None,
        allow_unsendable_timestamps=allow_unsendable_timestamps,
    )
    return compare_with_topic(request, SparkResource(choose_runner).make_runner())


def _format_comparison(comparison: Comparison) -> Iterator[str | Verdict]:
    """Yield the lines about a comparison with a topic."""
    parts = comparison.kafka_partitions
    yield Verdict(
        f"{comparison.topic} against {comparison.to_topic}: {_describe_comparison(comparison)}; "
        f"{sum(p.found_count for p in parts):,} of {comparison.archived_count:,} archived records found in order, "
        f"{sum(p.doubled_count for p in parts):,} once more, {sum(p.foreign_count for p in parts):,} other records "
        f"(outside of the window, or of other writers)",
        comparison.ok,
    )
    yield from (f"  {_format_kafka_partition(p)}" for p in parts)
    yield from (f"  {text}" for text in (*comparison.gaps, *comparison.notes))


def _describe_comparison(comparison: Comparison) -> str:
    """Return the verdict of a comparison in words."""
    if not comparison.ok:
        return "NOT the same"
    if not comparison.archived_count:
        return "nothing was compared, since nothing is archived in the window"
    if comparison.exact:
        return "exactly the same"
    if comparison.notes:
        return "all that was compared is there"
    return "all is there, and other records too"


def _format_kafka_partition(part: KafkaPartitionComparison) -> str:
    """Return the line about one kafka partition of the source."""
    place = f"kafka partition {part.kafka_partition}: {part.found_count:,} of {part.archived_count:,} found"
    if part.fault:
        return f"{place}; {part.fault}"
    if part.first_missing is not None:
        return f"{place}; the first that was not is source offset {part.first_missing}"
    return f"{place}, digest {part.found_digest}"


def _format_report(report: VerifyReport) -> Iterator[str | Verdict]:
    """Yield the lines about a verified topic: the verdict, then each fault."""
    state = "ok" if report.segment_count or report.holes or report.gaps else _NOTHING
    if not report.ok:
        state = f"not as the index says: {count_noun(len(report.damages), 'thing')}"
    yield Verdict(
        f"{report.topic}: {state}; {count_noun(report.segment_count, 'object')}, "
        f"{count_noun(report.record_count, 'record')}, {count_noun(report.size, 'byte')}, "
        f"{count_noun(len(report.holes), 'hole')}, {count_noun(len(report.gaps), 'gap')}",
        report.ok,
    )
    for d in report.damages:
        yield f"  kafka partition {d.kafka_partition}, {d.key or 'no single object'}: {d.message}"
    for hole in report.holes:
        yield f"  not archived: {_format_range(hole)}"
    for gap in report.gaps:
        yield f"  lost: {_format_range(gap)}, {gap.reason}"
    for gap in report.taken_over:
        yield f"  with the sink before this one: {_format_range(gap)}"
    for u in report.unresolved:
        yield f"  could not be archived: kafka partition {u.kafka_partition} {u.offsets}: {u.reason}: {u.message}"


def _format_range(item: Hole | Gap) -> str:
    """Return the words for a range of offsets of a kafka partition."""
    return f"kafka partition {item.kafka_partition} [{item.start_offset}, {item.end_offset})"
