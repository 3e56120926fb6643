"""Jobs: archive, compact, verify and restore for each connector; verify and restore for a source connector."""

from collections.abc import Sequence
from dataclasses import dataclass

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from kafka_s3_platform.defs.restore.form import name_restore_job
from kafka_s3_platform.defs.topic import TopicAssets
from kafka_s3_platform.instance.names import make_op_name
from kafka_s3_platform.instance.work import REPLAY_JOBS

Job = UnresolvedAssetJobDefinition
"""What `define_asset_job` returns; Dagster exports no name for it."""


@dataclass(frozen=True)
class ConnectorJobs:
    """The jobs of one connector. `compact` and `restore` exist only if the objects have the native format."""

    archive: Job
    compact: Job | None
    verify: Job
    restore: Job | None

    @property
    def all(self) -> list[Job]:
        native = [job for job in (self.compact, self.restore) if job is not None]
        return [self.archive, self.verify, *native]


def make_connector_jobs(topics: Sequence[TopicAssets], slow_checks: dg.AssetChecksDefinition) -> ConnectorJobs:
    """Make the jobs of one connector. Checks that read the store run in `verify`, not after every hour."""
    connector = topics[0].config.name
    hourly = dg.AssetSelection.assets(*(topic.key("hourly") for topic in topics))
    slow = dg.AssetSelection.checks(slow_checks)
    return ConnectorJobs(
        archive=dg.define_asset_job(
            make_op_name("archive", connector), hourly - slow, description=f"Archive hours of connector {connector}."
        ),
        compact=_make_compact_job(topics) if topics[0].is_native else None,
        verify=dg.define_asset_job(
            make_op_name("verify", connector), slow, description=f"Check the objects of connector {connector} in S3."
        ),
        restore=_make_restore_job(topics) if topics[0].is_native else None,
    )


def make_foreign_job(connector: str, key: dg.AssetKey) -> Job:
    """Make the job of a source connector."""
    return dg.define_asset_job(
        name_restore_job(connector),
        dg.AssetSelection.assets(key),
        description=f"Replay to topics the objects that the file of connector {connector} describes.",
    )


def make_readable_job(connector: str, checks: dg.AssetChecksDefinition) -> Job:
    """Make the job that reads the objects of a source connector."""
    return dg.define_asset_job(
        make_op_name("verify", connector),
        dg.AssetSelection.checks(checks),
        description=f"Read the objects that the file of connector {connector} describes, and tell what cannot be read.",
    )


def list_changing_jobs(key: dg.AssetKey) -> frozenset[str]:
    """Return the names of the jobs that write the asset when they run as a whole. `verify` writes no asset."""
    if len(key.path) < len(("connector", "group")):
        return frozenset()
    connector, group = key.path[:2]
    verbs = {"hourly": ("archive",), "daily": ("compact",), "restored": ("restore", *REPLAY_JOBS)}.get(group, ())
    return frozenset(make_op_name(verb, connector) for verb in verbs)


def _make_compact_job(topics: Sequence[TopicAssets]) -> Job:
    connector = topics[0].config.name
    daily = dg.AssetSelection.assets(*(topic.key("daily") for topic in topics))
    return dg.define_asset_job(
        make_op_name("compact", connector), daily, description=f"Compact days of connector {connector}."
    )


def _make_restore_job(topics: Sequence[TopicAssets]) -> Job:
    connector = topics[0].config.name
    return dg.define_asset_job(
        name_restore_job(connector),
        dg.AssetSelection.assets(*(topic.key("restored") for topic in topics)),
        description=f"Restore records of a topic of connector {connector} to another topic. Pick the asset of one "
        "topic.",
    )
