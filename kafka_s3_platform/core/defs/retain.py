"""The retention job of a connector, which removes the hours and days the rules in its file no longer keep."""

from collections.abc import Collection, Sequence
from itertools import chain

import dagster as dg

from kafka_s3_platform.core.defs.failures import raise_dagster_failures
from kafka_s3_platform.core.defs.jobs import make_op_job
from kafka_s3_platform.core.defs.topic import TopicAssets
from kafka_s3_platform.core.model.silence import raise_failures, try_each
from kafka_s3_platform.core.upkeep.retain import RetentionReport, collect_refusals, retain_topic

RETAIN_TIME = "30 3 * * *"
"""After the night's compaction, and before the upkeep of the index."""

STAYS = "Each commit is whole by itself. A second run goes on, and `kafka-s3 vacuum` removes objects that were left."


def make_retain_job(topics: Sequence[TopicAssets]) -> dg.JobDefinition:
    """Make the retain job, which removes the hours and days a connector's rules of retention no longer keep."""
    connector = topics[0].config.name
    configs = {topic.topic: topic.config for topic in topics}

    def remove(context: dg.OpExecutionContext) -> None:
        with raise_dagster_failures(context, STAYS):
            reports, failures = try_each(configs, lambda name: retain_topic(configs[name], name, context.run_id))
            context.add_output_metadata(_sum_reports(reports.values()))
            raise_failures({**failures, **collect_refusals(reports.values())})

    description = f"Remove hours and days that the rules of retention of connector {connector} let go."
    return make_op_job("retain", "objects", connector, description, remove)


def _sum_reports(reports: Collection[RetentionReport]) -> dict[str, int]:
    """Sum up the removals of all topics, as metadata of the op."""
    removals = [*chain.from_iterable(report.removals for report in reports)]
    return {
        "hours": sum(r.hour_count for r in removals if not r.expires),
        "expired_days": sum(r.expires for r in removals),
        "expired_records": sum(r.record_count for r in removals),
        "removed_objects": sum(len(r.objects) for r in removals),
        "removed_bytes": sum(r.size for r in removals),
        "days_on_hold": sum(len(report.plan.days_on_hold) for report in reports),
        "replaced_objects": sum(len(report.replaced) for report in reports),
    }
