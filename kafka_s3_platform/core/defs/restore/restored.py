"""Assets that replay archived records of a topic to a topic."""

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

import dagster as dg

from kafka_s3_platform.core.defs.archive.checks import RESTORED_CHECK
from kafka_s3_platform.core.defs.failures import raise_dagster_failures
from kafka_s3_platform.core.defs.metadata import Metadata, make_metadata_table
from kafka_s3_platform.core.defs.resources import SparkResource
from kafka_s3_platform.core.defs.restore.config import FORM, RestoreConfig
from kafka_s3_platform.core.defs.restore.form import describe_form
from kafka_s3_platform.core.defs.run_config import make_plain_schema, read_config
from kafka_s3_platform.core.defs.topic import TopicAssets, make_topic_assets
from kafka_s3_platform.core.errors import PreflightError
from kafka_s3_platform.core.instance.work import NOTHING_TAG, TOPIC_TAG, name_restored_op
from kafka_s3_platform.core.text import format_size

if TYPE_CHECKING:
    from kafka_s3_platform.core.restore.request import RestoreReport, RestoreRequest

RestoreEvent = dg.AssetObservation | dg.AssetCheckEvaluation | dg.MaterializeResult[None]

STAYS = (
    "What was sent stays in the target. Re-execute this run, or launch one with its restore id, to go on where it "
    "ended; a restore that sends exactly once sends nothing twice then."
)
"""A run without a restore id in its config has its own id as such, which its re-execution keeps."""

MAX_NAMES = 10
"""Topics that a refusal names; it counts the rest."""

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
    """Make `<connector>/restored/<topic>` for each topic, by one op. A run restores one topic, as its config says.

    The assets have no partitions: a restore may select any records, so it does not belong to the page of an hour.
    """
    connector = topics[0].config

    def restored(context: dg.AssetExecutionContext, spark: dg.ResourceParam[SparkResource]) -> Iterator[RestoreEvent]:
        # what restores is not needed to load definitions
        from kafka_s3_platform.core.restore.archive_source import ArchiveSource
        from kafka_s3_platform.core.restore.run import restore

        with raise_dagster_failures(context, STAYS):
            topic = find_picked_topic(topics, context.selected_asset_keys)
            request = read_restore_request(context, topic, read_config(context, RestoreConfig))
            report = restore(ArchiveSource(request), spark.make_runner())
        key = topic.key("restored")
        metadata = make_restore_metadata(report, topic.config.restore_store.bucket)
        yield from yield_outcome(context, key, report, metadata)

    return make_topic_assets(
        restored,
        name=name_restored_op(connector.name),
        specs=[_make_spec(topic) for topic in topics],
        checks=[make_restored_check(topic.key("restored")) for topic in topics],
        pool=f"{connector.name}/restore",
        config_schema=make_plain_schema(RestoreConfig, FORM),
    )


def make_restored_check(key: dg.AssetKey) -> dg.AssetCheckSpec:
    """Make the spec of the check of a restore's asset."""
    return dg.AssetCheckSpec(
        RESTORED_CHECK,
        asset=key,
        description="The last restore sent all that was asked for, and found each record once in the target: the "
        "archive has no gap there, and no object or record was skipped or left out. It warns with the numbers "
        "otherwise, also if there was no record to restore, and fails if nothing was restored or nothing was verified. "
        "Records that transforms leave out are not missing. A dry run is no restore, and changes nothing here.",
    )


def yield_outcome(
    context: dg.AssetExecutionContext | dg.OpExecutionContext,
    key: dg.AssetKey,
    report: "RestoreReport",
    metadata: Metadata,
) -> Iterator[RestoreEvent]:
    """Yield the events of a restore. If nothing of what was there was restored, the run fails after an observation."""
    from kafka_s3_platform.core.restore.request import check_something_restored, judge_report

    verdict = judge_report(report)
    if report.dry_run or verdict.kind == "bad":
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
    with raise_dagster_failures(context):
        check_something_restored(report)


def find_picked_topic(topics: Sequence[TopicAssets], picked_keys: Collection[dg.AssetKey]) -> TopicAssets:
    """Return the one topic whose asset a run picked. PreflightError if it picked none, or several."""
    picked_topics = [topic for topic in topics if topic.key("restored") in picked_keys]
    if len(picked_topics) == 1:
        return picked_topics[0]
    names = [topic.topic for topic in picked_topics]
    first_names = ", ".join(names[:MAX_NAMES])
    suffix = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    raise PreflightError(
        f"connector {topics[0].config.name}: this run picked {len(names)} topics to restore{': ' if names else ''}"
        f"{first_names}{suffix}. A run restores one topic, since its config is about one. Nothing was sent. Pick the "
        f"asset "
        f"`restored` of one topic, or name the topic by the tag {TOPIC_TAG} to a job that replays, and start a run for "
        f"each topic"
    )


def _make_spec(topic: TopicAssets) -> dg.AssetSpec:
    return dg.AssetSpec(
        topic.key("restored"),
        # Not the days too: before each restore Dagster would warn of a dependency that was never materialized.
        deps=[topic.key("hourly")],
        **topic.shown_in("restored"),
        kinds={"kafka", "spark"},
        description=f"Archived records of topic `{topic.topic}`, replayed to another topic as they were. The page of "
        "an hour or a day has a link that opens the form of a restore, filled with it.\n\n"
        f"{describe_form(topic.config.name, {'hours': ['2013-01-31-15:00', '2013-01-31-16:00']})}",
        skippable=True,
    )


def read_restore_request(
    context: dg.AssetExecutionContext, topic: TopicAssets, config: RestoreConfig
) -> "RestoreRequest":
    """Make the request of a run's config. ConfigError where the config cannot be used."""
    from kafka_s3_platform.core.defs.restore.request import make_restore_request

    run = context.run
    restore_id = config.how.restore_id or run.root_run_id or run.run_id
    return make_restore_request(topic, config, restore_id, run.run_id)


def make_restore_metadata(report: "RestoreReport", bucket: str) -> Metadata:
    """Make metadata of what was restored: by kafka partition, with offsets at the source and at the target."""
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
        "verdict": dg.MetadataValue.text(verdict.text),
        "complete": dg.MetadataValue.bool(not list_missing(report) and not report.doubts),
        "records": dg.MetadataValue.int(report.record_count),
        "size": dg.MetadataValue.text(f"{format_size(report.record_bytes)} of keys, values and headers"),
        "terms": dg.MetadataValue.json(list_set_terms(report.terms)),
        "to_topic": dg.MetadataValue.text(report.to_topic),
        "restore_id": dg.MetadataValue.text(report.restore_id),
        "record_bytes": dg.MetadataValue.int(report.record_bytes),
        "sent_records": dg.MetadataValue.int(report.sent_count),
        "failed_records": dg.MetadataValue.int(left_out.failed),
        "records_without_key": dg.MetadataValue.int(left_out.without_key),
        "records_routed_elsewhere": dg.MetadataValue.int(left_out.elsewhere),
        "incomplete_records": dg.MetadataValue.int(left_out.incomplete),
        "filtered_records": dg.MetadataValue.int(left_out.filtered),
        "gap_count": dg.MetadataValue.int(report.gap_count),
        "skipped_count": dg.MetadataValue.int(report.skipped_count),
        "out_of_range_records": dg.MetadataValue.int(report.out_of_range_count),
        "objects": dg.MetadataValue.int(report.object_count),
        "object_bytes": dg.MetadataValue.int(report.object_bytes),
        "doubled_records": dg.MetadataValue.int(report.doubled_count),
        "foreign_records": dg.MetadataValue.int(report.foreign_count),
        "exact": dg.MetadataValue.bool(report.exact),
        "before_transforms": dg.MetadataValue.bool(report.dry_run and report.before_transforms),
        "verified": dg.MetadataValue.bool(report.verified),
        "dry_run": dg.MetadataValue.bool(report.dry_run),
        "already_finished": dg.MetadataValue.bool(report.already_finished),
        "seconds": dg.MetadataValue.float(report.seconds),
        "estimated_seconds": dg.MetadataValue.float(report.estimated_seconds),
        "records_per_second": dg.MetadataValue.float(report.records_per_second),
        "gaps": dg.MetadataValue.json([gap.text for gap in report.gaps]),
        "notes": dg.MetadataValue.json(list(report.notes)),
        "skipped": dg.MetadataValue.json(list(report.skipped)),
        "refusals": dg.MetadataValue.json(list(report.refusals)),
        "kafka_partitions": make_metadata_table(rows, columns),
        **({} if report.dry_run else _make_document_uris(report, bucket)),
    }


def _make_document_uris(report: "RestoreReport", bucket: str) -> Metadata:
    """Return where the plan and the report lie. A dry run writes none."""
    keys = {"plan": report.plan_key, "report": report.page_key}
    return {name: dg.MetadataValue.text(f"s3://{bucket}/{key}") for name, key in keys.items()}
