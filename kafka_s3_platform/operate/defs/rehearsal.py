"""The nightly job that rehearses the restore of a connector's archive."""

from typing import TYPE_CHECKING

import dagster as dg

from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.defs.failures import raise_dagster_failures
from kafka_s3_platform.core.defs.jobs import make_op_job
from kafka_s3_platform.core.defs.resources import SparkResource

if TYPE_CHECKING:
    from kafka_s3_platform.core.restore.evidence import Evidence

REHEARSAL_TIME = "0 2 * * *"
"""After the night's compaction, and before retention removes anything."""

_STAYS = "A rehearsal changes nothing of the archive. Another one draws the same hours again."


def make_rehearsal_job(config: ConnectorConfig) -> dg.JobDefinition:
    """Make the job that restores drawn hours of a connector's topics, compares them, and removes them again."""

    def rehearse(context: dg.OpExecutionContext, spark: dg.ResourceParam[SparkResource]) -> None:
        # the code of restores is not needed to load definitions
        from kafka_s3_platform.operate.rehearsal.rehearse import check_rehearsal, rehearse_archive

        with raise_dagster_failures(context, _STAYS):
            evidence = rehearse_archive(config, spark)
            if evidence is not None:
                context.add_output_metadata(_make_metadata(evidence))
                check_rehearsal(evidence)

    description = (
        f"Restore drawn hours of each topic of connector {config.name} to a Kafka that is started for it, compare, and "
        f"remove them again: each hour once in {config.archive.rehearsal_days} days."
    )
    return make_op_job("rehearse", "hours", config.name, description, rehearse)


def _make_metadata(evidence: "Evidence") -> dict[str, int | float]:
    """Make the metadata of a rehearsal from its evidence, the document about the hours that came back."""
    turns = evidence.standing.turns.values()
    return {
        "evidence": evidence.number,
        "records": sum(topic.records for topic in evidence.topics),
        "topics": len(evidence.topics),
        "failed_topics": sum(not topic.is_complete for topic in evidence.topics),
        "hours": sum(topic.hour_count for topic in turns),
        "proven_hours": sum(topic.count_proven(evidence.finished_at) for topic in turns),
        "whole_restore_seconds": evidence.standing.estimate_return(evidence.standing.turns) or 0.0,
    }
