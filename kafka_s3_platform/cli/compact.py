"""`kafka-s3 compact`."""

from datetime import date
from typing import Any

import click

from kafka_s3_platform.cli.connector_files.names import connector_argument
from kafka_s3_platform.cli.output import json_option, print_result
from kafka_s3_platform.cli.runs import RunOutcome, find_native_topics, raise_failures, run_assets, topic_option
from kafka_s3_platform.instance.names import make_op_name


@click.command
@connector_argument
@click.option(
    "--day", required=True, metavar="DAY", help="Compact this day of the connector's timezone, such as 2013-01-31."
)
@topic_option
@json_option
def compact(connector: str, day: str, topic: str | None, as_json: bool) -> None:
    """Merge the hourly objects of a day into daily ones, for all topics of CONNECTOR in one run."""
    try:
        key = date.fromisoformat(day).isoformat()
    except ValueError as err:
        raise click.UsageError(f"--day {day}: not a day, such as 2013-01-31") from err
    job_name = make_op_name("compact", connector)
    topics = find_native_topics(connector, topic, "compact")
    for archived in topics:
        if not archived.days.definition.has_partition_key(key):
            raise click.UsageError(
                f"--day {day}: the days of {archived.name} begin with archive.start.hour, "
                f"{archived.config.archive.start_hour.isoformat()}, and end with today. An earlier day can be restored "
                f"as it is; to merge it, move archive.start.hour back to that day"
            )
    outcomes, failures = run_assets({t.key("daily"): t.topic for t in topics}, job_name, [key])
    if not outcomes:
        raise_failures(failures)
    documents = [_make_document(o) for o in outcomes]
    print_result({"runs": documents}, as_json, [_format_day(d) for d in documents])
    raise_failures(failures)


def _make_document(outcome: RunOutcome) -> dict[str, Any]:
    return {"topic": outcome.topic, "run_id": outcome.run_id, "days": list(outcome.events)}


def _format_day(document: dict[str, Any]) -> str:
    day = document["days"][0]
    unmerged = day["hourly_objects_of_values_only"]
    stay = f", {unmerged} stay hourly: their format holds values only" if unmerged else ""
    apart = day.get("out_of_range_records")
    late = f", up to {apart:,} records are out of range since archive.start.hour was later" if apart else ""
    return (
        f"{document['topic']}: {day['partition_key']} holds {day['partition_row_count']:,} records in {day['objects']} "
        f"object(s), {day['merged_objects']} were merged{stay}{late} (run {document['run_id']})"
    )
