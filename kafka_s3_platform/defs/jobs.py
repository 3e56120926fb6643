"""Jobs: archive, compact and verify for each connector, restore for each topic."""

from collections.abc import Sequence
from dataclasses import dataclass

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from kafka_s3_platform.defs.names import op_name
from kafka_s3_platform.defs.topic import ArchivedTopic

Job = UnresolvedAssetJobDefinition
"""What `define_asset_job` returns; Dagster exports no name for it."""


@dataclass(frozen=True)
class ConnectorJobs:
    """One connector's jobs; `restore` by topic, since a restore's config is one topic's.

    `compact` and `restore` only where objects are native.
    """

    archive: Job
    compact: Job | None
    verify: Job
    restore: dict[str, Job]

    @property
    def all(self) -> list[Job]:
        compact = [self.compact] if self.compact else []
        return [self.archive, *compact, self.verify, *self.restore.values()]


def connector_jobs(topics: Sequence[ArchivedTopic], slow_checks: Sequence[dg.AssetChecksDefinition]) -> ConnectorJobs:
    """The jobs of one connector. Checks that read the store run in `verify`, not after every hour."""
    connector = topics[0].config.name
    hourly = dg.AssetSelection.assets(*(topic.key("hourly") for topic in topics))
    slow = dg.AssetSelection.checks(*slow_checks)
    return ConnectorJobs(
        archive=dg.define_asset_job(
            op_name("archive", connector), hourly - slow, description=f"Archive hours of connector {connector}."
        ),
        compact=_compact_job(topics) if topics[0].is_native else None,
        verify=dg.define_asset_job(
            op_name("verify", connector), slow, description=f"Look at the objects of connector {connector}."
        ),
        restore={topic.topic: _restore_job(topic) for topic in topics if topic.is_native},
    )


def foreign_job(connector: str, key: dg.AssetKey) -> Job:
    """The job of a source connector."""
    return dg.define_asset_job(
        op_name("restore", connector),
        dg.AssetSelection.assets(key),
        description=f"Restore the objects that source connector {connector} describes.",
    )


def jobs_that_change(key: dg.AssetKey) -> frozenset[str]:
    """Names of the jobs that write the asset when they run as a whole; `verify` writes none."""
    if len(key.path) == len(("connector", "group")) and key.path[1] == "restored":
        return frozenset({op_name("restore", key.path[0])})
    if len(key.path) != len(("connector", "group", "topic")):
        return frozenset()
    connector, group, topic = key.path
    names = {
        "hourly": op_name("archive", connector),
        "daily": op_name("compact", connector),
        "restored": op_name("restore", connector, topic),
    }
    return frozenset({names[group]} if group in names else ())


def _compact_job(topics: Sequence[ArchivedTopic]) -> Job:
    connector = topics[0].config.name
    daily = dg.AssetSelection.assets(*(topic.key("daily") for topic in topics))
    return dg.define_asset_job(
        op_name("compact", connector), daily, description=f"Compact days of connector {connector}."
    )


def _restore_job(topic: ArchivedTopic) -> Job:
    return dg.define_asset_job(
        topic.op_name("restore"),
        dg.AssetSelection.assets(topic.key("restored")),
        description=f"Restore records of {topic.name} to another topic.",
    )
