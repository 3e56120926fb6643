"""Assets of restores, each of which replays archived records of a topic to a topic."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import dagster as dg

from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.defs.archive.checks import RESTORED_CHECK
from kafka_s3_platform.core.defs.failures import make_assets_failure, may_retry, raise_dagster_failures
from kafka_s3_platform.core.defs.metadata import Metadata, make_metadata_table
from kafka_s3_platform.core.defs.resources import SparkResource
from kafka_s3_platform.core.defs.restore.config import FORM, RestoreConfig
from kafka_s3_platform.core.defs.restore.form import describe_form
from kafka_s3_platform.core.defs.run_config import make_plain_schema, read_config
from kafka_s3_platform.core.defs.topic import TopicAssets, make_topic_assets
from kafka_s3_platform.core.errors import PermanentError, PlatformError, TransientError
from kafka_s3_platform.core.instance.names import name_restore_pool
from kafka_s3_platform.core.instance.work import NOTHING_TAG, name_restored_op
from kafka_s3_platform.core.text import format_size

if TYPE_CHECKING:
    from kafka_s3_platform.core.restore.request import RestoreReport

RestoreEvent = dg.AssetObservation | dg.AssetCheckEvaluation | dg.MaterializeResult[None]

STAYS = (
    "What was sent stays in the target. Re-execute this run, or launch one with its restore id, to go on where it "
    "ended; a restore that sends exactly once sends nothing twice then."
)
"""A run without a restore id in its config uses its own id as restore id, which its re-execution keeps."""

_JUDGED = (
    "records",
    "gap_count",
    "skipped_count",
    "failed_records",
    "records_without_key",
    "records_routed_elsewhere",
    "incomplete_records",
    "doubled_records",
    "verified",
    "restore_id",
)
"""The names of a restore's metadata that its check shows."""


def make_restored_assets(topics: Sequence[TopicAssets]) -> dg.AssetsDefinition:
    """Make `<connector>/restored/<topic>` for each topic, by one op. A run restores the picked ones as one restore.

    The assets have no partitions, because a restore may select any records, and so does not belong to the page of an
    hour.
    """
    connector = topics[0].config

    def restored(context: dg.AssetExecutionContext, spark: dg.ResourceParam[SparkResource]) -> Iterator[RestoreEvent]:
        # what restores is not needed to load definitions
        from kafka_s3_platform.core.defs.restore.request import make_archive_source
        from kafka_s3_platform.core.restore.request import check_something_restored
        from kafka_s3_platform.core.restore.run import restore

        run = context.run
        picked_topics = [topic for topic in topics if topic.key("restored") in context.selected_asset_keys]
        with raise_dagster_failures(context, STAYS):
            config = read_config(context, RestoreConfig)
            restore_id = config.how.restore_id or run.root_run_id or run.run_id
            source = make_archive_source(picked_topics, config, restore_id, run.run_id)
            report = restore(source, spark.make_runner())
            if any(part.is_transient for part in report.failed) and may_retry(context):
                check_something_restored(report)
        yield from _yield_parts(context, {r.topic: r.config for r in (source.request, *source.topics)}, report)

    return make_topic_assets(
        restored,
        name=name_restored_op(connector.name),
        specs=[_make_spec(topic) for topic in topics],
        checks=[make_restored_check(topic.key("restored")) for topic in topics],
        pool=name_restore_pool(connector.name),
        config_schema=make_plain_schema(RestoreConfig, FORM),
    )


def make_restored_check(key: dg.AssetKey) -> dg.AssetCheckSpec:
    """Define the check `restored` of a restore's asset."""
    return dg.AssetCheckSpec(
        RESTORED_CHECK,
        asset=key,
        description="The last restore sent all that was asked for, and found each record once in the target: the "
        "archive has no gap there, and no object or record was skipped or left out. It warns with the numbers "
        "otherwise, also if there was no record to restore, and fails if nothing was restored or nothing was verified. "
        "Records that transforms leave out are not missing. A dry run is no restore, and changes nothing here.",
    )


def _yield_parts(
    context: dg.AssetExecutionContext, configs: Mapping[str, ConnectorConfig], report: "RestoreReport"
) -> Iterator[RestoreEvent]:
    """Yield the events of each restored topic. If topics were not restored, fail the run then, and name each.

    `configs` has each topic's connector.
    """
    from kafka_s3_platform.core.restore.request import check_something_restored, judge_report

    failures: dict[dg.AssetKey, PlatformError] = {}
    parts = report.parts or (report,)
    for part in parts:
        # A restore that has begun keeps its topics, whatever topics its connector has now.
        connector = configs.get(part.topic) or next(iter(configs.values()))
        key = TopicAssets(connector, part.topic).key("restored")
        if part.failure:
            failures[key] = (TransientError if part.is_transient else PermanentError)(part.failure)
            continue
        metadata = make_restore_metadata(part, next(iter(configs.values())).restore_store.bucket)
        if report.parts:
            together = {"verdict": judge_report(report).text, "skipped": report.skipped, "refusals": report.refusals}
            metadata["all_topics"] = together
        events = _yield_events(context, key, part, metadata)
        yield from events if key in context.selected_asset_keys else _log_others(context, key, events)
        try:
            check_something_restored(part)
        except PlatformError as err:
            failures[key] = err
    if failures:
        raise make_assets_failure(context, failures, len(parts), STAYS)


def _log_others(
    context: dg.AssetExecutionContext, key: dg.AssetKey, events: Iterator[RestoreEvent]
) -> Iterator[RestoreEvent]:
    """Log the events of another connector's asset, or of one a later run did not pick. Yield none."""
    for event in events:
        if isinstance(event, dg.MaterializeResult):
            context.log_event(dg.AssetMaterialization(key, metadata=event.metadata))
        elif isinstance(event, dg.AssetObservation):
            context.log_event(event)
    yield from ()


def yield_outcome(
    context: dg.AssetExecutionContext | dg.OpExecutionContext,
    key: dg.AssetKey,
    report: "RestoreReport",
    metadata: Metadata,
) -> Iterator[RestoreEvent]:
    """Yield the events of a restore. Then fail the run if a topic failed, or if it restored none of the records."""
    from kafka_s3_platform.core.restore.request import check_something_restored

    yield from _yield_events(context, key, report, metadata)
    with raise_dagster_failures(context):
        check_something_restored(report)


def _yield_events(
    context: dg.AssetExecutionContext | dg.OpExecutionContext,
    key: dg.AssetKey,
    report: "RestoreReport",
    metadata: Metadata,
) -> Iterator[RestoreEvent]:
    """Yield the events of a restore: a materialization, and the result of its check.

    A dry or failed restore is an observation. A check the run did not pick is reported outside the run.
    """
    from kafka_s3_platform.core.restore.request import judge_report

    verdict = judge_report(report)
    if report.dry_run or verdict.kind == "bad" or report.failed:
        yield dg.AssetObservation(key, metadata=metadata)
    else:
        yield dg.MaterializeResult(asset_key=key, metadata=metadata)
    if not report.record_count and verdict.kind != "bad":
        context.instance.add_run_tags(context.run.run_id, {NOTHING_TAG: "true"})
    if not report.dry_run:
        evaluation = dg.AssetCheckEvaluation(
            asset_key=key,
            check_name=RESTORED_CHECK,
            passed=verdict.kind == "good",
            description=f"{report.to_topic}: {verdict.text}",
            metadata={name: metadata[name] for name in _JUDGED},
            severity=dg.AssetCheckSeverity.ERROR if verdict.kind == "bad" else dg.AssetCheckSeverity.WARN,
        )
        if any(check.asset_key == key for check in context.selected_asset_check_keys):
            yield evaluation
        else:
            # a link to the form picks no checks, and the check is about the last restore, whoever launched it
            context.instance.report_runless_asset_event(evaluation)


def _make_spec(topic: TopicAssets) -> dg.AssetSpec:
    """Define the asset of a topic's restores."""
    return topic.make_spec(
        "restored",
        # Not the days too, or Dagster would warn before each restore of a dependency that was never materialized.
        deps=[topic.key("hourly")],
        kinds={"kafka", "spark"},
        description=f"Archived records of topic `{topic.topic}`, replayed to another topic as they were. The page of "
        "an hour or a day has a link that opens the form of a restore, filled with it.\n\n"
        f"{describe_form(topic.config.name, {'hours': ['2013-01-31-15:00', '2013-01-31-16:00']})}",
        skippable=True,
    )


def make_restore_metadata(report: "RestoreReport", bucket: str) -> Metadata:
    """Make the metadata of a restore from its report: counts, verdict, and a table of the kafka partitions."""
    from kafka_s3_platform.core.restore.report_page import list_set_terms
    from kafka_s3_platform.core.restore.request import judge_report, list_missing

    columns = [
        *(["topic"] if any(p.topic for p in report.kafka_partitions) else []),
        "kafka_partition",
        "record_count",
        "record_bytes",
        "first_source_offset",
        "last_source_offset",
        "first_target_offset",
        "last_target_offset",
        "doubled_count",
        "foreign_count",
        "mapping_key",
    ]
    rows = [{name: getattr(p, name) for name in columns} for p in report.kafka_partitions]
    verdict = judge_report(report)
    left_out = report.left_out_records
    return {
        "verdict": verdict.text,
        "complete": not list_missing(report) and not report.doubts,
        "records": report.record_count,
        "size": f"{format_size(report.record_bytes)} of keys, values and headers",
        "terms": list_set_terms(report.terms),
        "to_topic": report.to_topic,
        "restore_id": report.restore_id,
        "record_bytes": report.record_bytes,
        "sent_records": report.sent_count,
        "failed_records": left_out.failed,
        "records_without_key": left_out.without_key,
        "records_routed_elsewhere": left_out.elsewhere,
        "incomplete_records": left_out.incomplete,
        "filtered_records": left_out.filtered,
        "missing": list(list_missing(report)),
        "gap_count": report.gap_count,
        "skipped_count": report.skipped_count,
        "out_of_range_records": report.out_of_range_count,
        "objects": report.object_count,
        "object_bytes": report.object_bytes,
        "doubled_records": report.doubled_count,
        "foreign_records": report.foreign_count,
        "exact": report.exact,
        "before_transforms": report.dry_run and report.before_transforms,
        "verified": report.verified,
        "dry_run": report.dry_run,
        "already_finished": report.already_finished,
        "seconds": report.seconds,
        "estimated_seconds": report.estimated_seconds,
        "records_per_second": report.records_per_second,
        "gaps": [gap.text for gap in report.gaps],
        "notes": list(report.notes),
        "skipped": list(report.skipped),
        "refusals": list(report.refusals),
        "kafka_partitions": make_metadata_table(rows, columns),
        # a dry run writes no documents
        **({} if report.dry_run else {"plan": f"s3://{bucket}/{report.plan_key}"}),
        **({} if report.dry_run else {"report": f"s3://{bucket}/{report.page_key}"}),
    }
