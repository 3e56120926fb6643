"""The daily chunks of a connector's topics, and their check: one op, and so one run, does all picked topics."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from datetime import date, datetime, timezone
from typing import TypeAlias

import dagster as dg

from kafka_s3_platform.core.defs.archive.checks import DAILY_CHECK, ERROR, MAX_ROWS, WARN
from kafka_s3_platform.core.defs.failures import join_errors, make_assets_failure, may_retry, raise_dagster_failures
from kafka_s3_platform.core.defs.metadata import (
    Metadata,
    make_kafka_partitions_table,
    make_metadata_table,
    make_segments_metadata,
)
from kafka_s3_platform.core.defs.resources import SparkResource
from kafka_s3_platform.core.defs.restore.form import make_form_metadata
from kafka_s3_platform.core.defs.topic import TopicAssets, make_topic_assets, pick_topics
from kafka_s3_platform.core.errors import PlatformError, TransientError
from kafka_s3_platform.core.instance.names import make_op_name
from kafka_s3_platform.core.status.index_look import IndexLook
from kafka_s3_platform.core.store.index import IndexSnapshot
from kafka_s3_platform.core.text import count_noun
from kafka_s3_platform.core.upkeep.compact.days import (
    CompactReport,
    CompactRequest,
    Month,
    Span,
    count_day_records,
    find_holder,
    list_due_days,
)

DayEvent: TypeAlias = dg.AssetMaterialization | dg.AssetCheckEvaluation
Outcomes: TypeAlias = Mapping[tuple[str, Span], CompactReport | PlatformError]

STAYS = (
    "Days that the run had committed stay merged. All others are as they were: their hours stay readable, and the next "
    "run merges them."
)

IN_MONTH = "objects of the day's month hold records of it too: they are not counted here"


def make_daily_check(topic: TopicAssets) -> dg.AssetCheckSpec:
    """Define the check `compacted` of a topic's days."""
    return dg.AssetCheckSpec(
        DAILY_CHECK,
        asset=topic.key("daily"),
        description="No past day has hourly segments to merge, and each day of the run holds as many records as its "
        "merged hourly segments. `kafka-s3 verify` counts all days.",
    )


def evaluate_days(topic: TopicAssets, index: IndexLook, days: Sequence[date]) -> dg.AssetCheckEvaluation:
    """Evaluate the check `compacted` after a run of these days. Without days, this only looks for days to merge.

    Other days are not counted, because the cost would grow with the age of the archive.
    """

    def find_all(snapshot: IndexSnapshot) -> tuple[list[date], list[dict[str, str | int]]]:
        due_days = list_due_days(snapshot, topic.config.layout.zone, topic.lateness, datetime.now(timezone.utc))
        return due_days, _find_differences(snapshot, days)

    findings = index.read(topic, find_all)
    due_days, differences = findings or ([], [])
    problems = [
        *([f"Hourly segments to merge: of {count_noun(len(due_days), 'past day')}."] if due_days else []),
        *([f"Other counts than their hours: {count_noun(len(differences), 'day')} of the run."] if differences else []),
        *([] if findings else ["Nothing is archived yet."]),
    ]
    columns = ["day", "daily_records", "hourly_records"]
    return dg.AssetCheckEvaluation(
        asset_key=topic.key("daily"),
        check_name=DAILY_CHECK,
        passed=not due_days and not differences,
        description=" ".join(problems) or None,
        metadata={
            "due_days": len(due_days),
            "days_to_merge": make_metadata_table([{"day": day.isoformat()} for day in due_days[:MAX_ROWS]], ["day"]),
            "counted_days": len(days),
            "different_counts": make_metadata_table(differences[:MAX_ROWS], columns),
        },
        severity=ERROR if differences else WARN,
    )


def _find_differences(snapshot: IndexSnapshot, days: Sequence[date]) -> list[dict[str, str | int]]:
    """Return a row for each day, or its month, whose number of merged records differs from its hours' number."""
    rows: list[dict[str, str | int]] = []
    # days that their month holds are counted with it
    for span in dict.fromkeys(find_holder(snapshot, day) for day in days):
        merged, hourly = count_day_records(snapshot, span)
        if merged != hourly:
            counts = {"daily_records": merged.total(), "hourly_records": hourly.total()}
            rows.append({"day": span.isoformat(), **counts})
    return rows


def make_daily_assets(topics: Sequence[TopicAssets]) -> dg.AssetsDefinition:
    """Make `<connector>/daily/<topic>` for each topic. One run merges picked days of picked topics, then due months.

    A permanent failure of a topic or a day does not stop the others. In the end the run fails, and names each failure.
    """
    connector = topics[0].config

    def daily(context: dg.AssetExecutionContext, spark: dg.ResourceParam[SparkResource]) -> Iterator[DayEvent]:
        picked_topics = [topic for topic in topics if topic.key("daily") in context.selected_asset_keys]
        days = _read_days(context, picked_topics)
        with raise_dagster_failures(context, STAYS):
            outcomes = _compact(picked_topics, days, context.run.run_id, spark) if picked_topics else {}
            _log_months(context, outcomes)
            _raise_transient(context, outcomes)
            failures = _join_failures(picked_topics, outcomes)
            # evaluated before the first event, so that a retry yields no event twice
            evaluations = _evaluate_selected(context, topics, days, has_failed=bool(failures))
        yield from _make_events(context.run, picked_topics, outcomes)
        yield from evaluations
        if failures:
            raise make_assets_failure(context, failures, len(picked_topics), STAYS)

    return make_topic_assets(
        daily,
        name=make_op_name("daily", connector.name),
        specs=[_make_spec(topic) for topic in topics],
        checks=[make_daily_check(topic) for topic in topics],
        pool=f"{connector.name}/daily",
    )


def _make_spec(topic: TopicAssets) -> dg.AssetSpec:
    """Define the asset of a topic's merged days."""
    return topic.make_spec(
        "daily",
        deps=[topic.key("hourly")],
        kinds=topic.kinds,
        partitions_def=topic.offered_days,
        # The events of days are the op's own: Dagster adds none for an output that is not there.
        skippable=True,
        description=f"The hourly segments of topic `{topic.topic}`, merged by day into larger ones, in offset order.",
        metadata={"dagster/uri": f"s3://{topic.config.store.bucket}/{topic.config.layout.daily_dir}/{topic.topic}"},
    )


def _read_days(context: dg.AssetExecutionContext, topics: Sequence[TopicAssets]) -> list[date]:
    """Return the run's days. A run of checks alone may have none."""
    if not topics and not context.has_partition_key and not context.has_partition_key_range:
        return []
    return [date.fromisoformat(key) for key in context.partition_keys]


def _compact(topics: Sequence[TopicAssets], days: Sequence[date], run_id: str, spark: SparkResource) -> Outcomes:
    """Merge the days of the topics, then the due months. Return the report or error of each."""
    # not needed to load definitions
    from kafka_s3_platform.core.upkeep.compact.run import compact_days, compact_due_months

    requests = [CompactRequest(topic.config, topic.topic, day, run_id) for topic in topics for day in days]
    runner = spark.make_runner()
    outcomes = compact_days(requests, runner)
    return {**outcomes, **compact_due_months({topic.topic: topic.config for topic in topics}, run_id, runner)}


def _log_months(context: dg.AssetExecutionContext, outcomes: Outcomes) -> None:
    """Log the merged months, because they are not partitions of the asset."""
    for (name, span), outcome in outcomes.items():
        if isinstance(span, Month) and isinstance(outcome, CompactReport):
            counts = (len(outcome.merged), len(outcome.written))
            context.log.info("%s, month %s: %d objects of days and months became %d", name, span, *counts)


def _raise_transient(context: dg.AssetExecutionContext, outcomes: Outcomes) -> None:
    """Raise a transient error if Dagster may retry the step. Merging twice does no harm."""
    if may_retry(context):
        for outcome in outcomes.values():
            if isinstance(outcome, TransientError):
                raise outcome


def _join_failures(topics: Sequence[TopicAssets], outcomes: Outcomes) -> dict[dg.AssetKey, PlatformError]:
    """Return one error for each failed topic, by its asset. It names all failed days."""
    errors: dict[dg.AssetKey, PlatformError] = {}
    for topic in topics:
        days = {day: err for (name, day), err in outcomes.items() if name == topic.topic}
        failures = {day.isoformat(): err for day, err in days.items() if isinstance(err, PlatformError)}
        if failures:
            errors[topic.key("daily")] = join_errors(failures)
    return errors


def _make_events(
    run: dg.DagsterRun, topics: Sequence[TopicAssets], outcomes: Outcomes
) -> Iterator[dg.AssetMaterialization]:
    """Yield a materialization of each merged day. Months are not partitions of the asset."""
    by_name = {topic.topic: topic for topic in topics}
    for (name, day), outcome in outcomes.items():
        if isinstance(outcome, CompactReport) and not isinstance(day, Month):
            topic = by_name[name]
            metadata = make_day_metadata(outcome, topic.config.store.bucket)
            metadata |= make_form_metadata(run, topic, days=[day.isoformat()])
            yield dg.AssetMaterialization(topic.key("daily"), partition=day.isoformat(), metadata=metadata)


def _evaluate_selected(
    context: dg.AssetExecutionContext, topics: Sequence[TopicAssets], days: Sequence[date], *, has_failed: bool
) -> list[dg.AssetCheckEvaluation]:
    """Evaluate the selected checks. Their error does not replace the error of a failed run."""
    selected_topics = pick_topics(context, topics, "daily")
    if not selected_topics:
        return []
    try:
        with closing(IndexLook("compacted", selected_topics)) as index:
            return [evaluate_days(topic, index, days) for topic in selected_topics]
    except PlatformError as err:
        if not has_failed:
            raise
        context.log.warning("the checks were not evaluated: %s", err)
        return []


def make_day_metadata(report: CompactReport, bucket: str) -> Metadata:
    """Make the metadata of one day. The rate is the whole run's."""
    rate = report.run_record_count / report.seconds if report.seconds else 0.0
    return {
        **make_segments_metadata(report.day.segments, bucket),
        "hourly_objects_left": report.day.hourly_count,
        "hourly_objects_of_values_only": len(report.day.unmergeable),
        **({"out_of_range_records": n} if (n := report.out_of_range_count) else {}),
        **({"in_month": IN_MONTH} if report.day.is_in_month else {}),
        "merged_objects": len(report.merged),
        "run_records_per_second": rate,
        "index_version": report.version,
        "kafka_partitions": make_kafka_partitions_table(report.day.segments),
    }
