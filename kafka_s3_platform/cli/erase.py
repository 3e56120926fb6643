"""`kafka-s3 erase`."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, TextIO
from uuid import uuid4

import click

from kafka_s3_platform.cli.messages import json_option, print_result
from kafka_s3_platform.cli.options import connector_argument
from kafka_s3_platform.cli.runs import find_archived_topics
from kafka_s3_platform.core.defs.resources import SparkResource
from kafka_s3_platform.core.defs.restore.values import read_record_keys
from kafka_s3_platform.core.errors import IntegrityError
from kafka_s3_platform.core.text import count_noun
from kafka_s3_platform.core.upkeep.erase import ErasureReport, ErasureRequest, erase_records
from kafka_s3_platform.operate.defs.warm_spark import choose_runner


@click.command
@connector_argument
@click.option("--topic", required=True, metavar="T", help="Erase from the archive of this topic.")
@click.option(
    "--key",
    "texts",
    multiple=True,
    metavar="KEY",
    help="Erase records with this key: UTF-8 text, or bytes as in hex:ff00. May be repeated.",
)
@click.option(
    "--keys-from",
    type=click.File(encoding="utf-8-sig"),
    metavar="FILE",
    help="Erase records with the keys in this file, one a line, as --key has them. - is the standard input, so that no "
    "key stays in the history of a shell.",
)
@click.option("--apply", is_flag=True, help="Erase them. Default: search, and print what would go.")
@click.option(
    "--despite-hold", is_flag=True, help="Erase also from days that archive.retention.hold keeps. Default: they stay."
)
@json_option
def erase(
    *,
    connector: str,
    topic: str,
    texts: tuple[str, ...],
    keys_from: TextIO | None,
    apply: bool,
    despite_hold: bool,
    as_json: bool,
) -> None:
    """Erase every record with some keys from the archive of a topic of CONNECTOR.

    Without --apply, print what would go.

    All objects are read. Those that hold such a record are written again without it, read back, and replaced in one
    commit; then the old ones are deleted. If the command is killed at any moment, running it again goes on. It prints
    the places that may still hold such records.

    Exit status 1 if some objects could not be searched.
    """
    [archived] = find_archived_topics(connector, topic)
    request = ErasureRequest(archived.config, topic, _read_keys(texts, keys_from), str(uuid4()), despite_hold)
    report = erase_records(request, SparkResource(choose_runner).make_runner(), applies=apply)
    print_result(_make_document(request, report), as_json, list(_format_report(report)))
    if report.faults:
        raise IntegrityError("; ".join(report.faults))


def _read_keys(texts: tuple[str, ...], keys_from: TextIO | None) -> tuple[bytes, ...]:
    """Return the keys of both options. Raises UsageError if there is none, or if one is empty or given twice."""
    try:
        lines = [line.rstrip("\r\n") for line in keys_from] if keys_from else []
    except UnicodeDecodeError as err:
        raise click.UsageError(f"--keys-from is not UTF-8: {err}. Write bytes as in hex:ff00") from err
    keys = read_record_keys("--key", texts) + read_record_keys("--keys-from", lines)
    if not keys:
        raise click.UsageError("name the keys by --key or --keys-from")
    # The report counts the records of each key by its place: none is left out here, so that the place is the reader's.
    places: dict[bytes, int] = {}
    for place, key in enumerate(keys, 1):
        if not key:
            raise click.UsageError(f"key {place} of {len(keys)} is empty: records with an empty key belong to nobody")
        if places.setdefault(key, place) < place:
            raise click.UsageError(f"key {place} of {len(keys)} is key {places[key]} again: leave it out")
    return tuple(keys)


def _make_document(request: ErasureRequest, report: ErasureReport) -> dict[str, Any]:
    """Make the JSON of the command."""
    return {
        "run_id": request.run_id,
        "applied": report.applied,
        "topic": report.topic,
        "searched_objects": len(report.searched),
        "searched_records": sum(s.record_count for s in report.searched),
        "records_by_key": report.counts,
        "records": report.record_count,
        "records_on_hold": sum(s.record_count for s in report.on_hold),
        "by_object": [
            {
                "key": s.key,
                "kafka_partition": s.kafka_partition,
                "from_offset": s.start_offset,
                "to_offset": s.end_offset,
                "records": s.record_count,
            }
            for s in report.erased
        ],
        "merged_objects": len(report.merged),
        "written_objects": [s.key for s in report.outputs],
        "compared_records": sum(s.record_count for s in report.outputs),
        "removed_objects": [asdict(item) for item in report.removed],
        "leftover_objects": [item.key for item in report.leftovers],
        "not_deleted": report.not_deleted,
        "refused": report.faults,
        "unreached": report.unreached,
    }


def _format_report(report: ErasureReport) -> Iterator[str]:
    """Yield the lines about the records that were erased, or would be."""
    topic = report.topic
    verb = "were erased" if report.applied else "would be erased"
    yield (
        f"{topic}: {count_noun(report.record_count, 'record')} {verb}, of {count_noun(len(report.erased), 'object')}; "
        f"{count_noun(len(report.searched), 'object')} with "
        f"{count_noun(sum(s.record_count for s in report.searched), 'record')} searched"
    )
    for number, count in enumerate(report.counts, 1):
        if count == 0 or len(report.counts) > 1:
            yield f"  key {number} of {len(report.counts)}: {count_noun(count, 'record')}"
    if report.merged:
        yield (
            f"  {count_noun(len(report.merged), 'merged object')} of hours {'went' if report.applied else 'would go'} "
            f"too: their day holds their other records"
        )
    if report.leftovers:
        verb = "were" if report.applied else "would be"
        yield f"  {count_noun(len(report.leftovers), 'old object')} that an earlier erasure had left {verb} deleted too"
    if report.on_hold:
        count = sum(s.record_count for s in report.on_hold)
        yield f"  on hold, {count_noun(count, 'record')}: --despite-hold erases them"
    if report.applied:
        yield (
            f"  {count_noun(sum(s.record_count for s in report.outputs), 'record')} in "
            f"{count_noun(len(report.outputs), 'new object')} read back: as before, and none with a key; "
            f"{count_noun(len(report.removed), 'old object')} deleted"
        )
    yield from (f"  {key} is not the object of the index, and stays" for key in report.not_deleted)
    yield from (f"  not reached: {text}" for text in report.unreached)
