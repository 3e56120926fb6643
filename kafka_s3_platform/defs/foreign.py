"""Objects that others wrote, replayed to topics."""

from collections.abc import Iterator
from zoneinfo import ZoneInfo

import dagster as dg

from kafka_s3_platform.config.settings import ConnectorConfig
from kafka_s3_platform.defs.failures import dagster_failures
from kafka_s3_platform.defs.metadata import Metadata
from kafka_s3_platform.defs.names import op_name
from kafka_s3_platform.defs.resources import SparkResource
from kafka_s3_platform.defs.restore_config import ForeignRestoreConfig, asked_window, foreign_request
from kafka_s3_platform.defs.restored import restore_metadata
from kafka_s3_platform.defs.run_config import config_of, plain_schema
from kafka_s3_platform.defs.topic import ArchivedTopic
from kafka_s3_platform.restore.foreign import restore_foreign
from kafka_s3_platform.restore.request import RestoreReport

EVERY_TOPIC = "every topic"
"""Where a name of a topic is wanted, of all that a source connector reads."""


def foreign_key(connector: str) -> dg.AssetKey:
    """`<connector>/restored`."""
    return dg.AssetKey([connector, "restored"])


def foreign_op(connector: str) -> str:
    """The name of the asset's op."""
    return op_name("restored", connector)


def poll_sensor_name(connector: str) -> str:
    """The name of the sensor that asks for the asset."""
    return op_name("poll", connector)


def foreign_asset(config: ConnectorConfig) -> dg.AssetsDefinition:
    """`<connector>/restored`: what the file of a source connector describes, in one run."""
    key, topics = foreign_key(config.name), ArchivedTopic(config, EVERY_TOPIC)
    spec = dg.AssetSpec(
        key,
        group_name="restored",
        kinds={"kafka", "spark"},
        description=f"Objects that source connector `{config.name}` describes, replayed to topics. Its sensor "
        f"`{poll_sensor_name(config.name)}`, once it is turned on, goes on with those that come later.",
        skippable=True,
    )

    @dg.multi_asset(
        name=foreign_op(config.name),
        specs=[spec],
        config_schema=plain_schema(ForeignRestoreConfig),
        pool=f"{config.name}/restore",
    )
    def restored(
        context: dg.AssetExecutionContext, spark: dg.ResourceParam[SparkResource]
    ) -> Iterator[dg.AssetObservation | dg.MaterializeResult[None]]:
        run, zone = context.run, ZoneInfo(topics.config.layout.timezone)
        with dagster_failures(context), spark.runner() as runner:
            asked = config_of(context, ForeignRestoreConfig)
            window = asked_window(asked, zone) or (None, None)
            restore_id = asked.restore_id or run.root_run_id or run.run_id
            report = restore_foreign(foreign_request(topics, asked, restore_id, run.run_id, window), runner)
        metadata: Metadata = {
            "topic": dg.MetadataValue.text(report.topic),
            **restore_metadata(report, topics.config.restore_store.bucket),
            **_after(report),
        }
        if report.dry_run:
            yield dg.AssetObservation(key, metadata=metadata)
        else:
            yield dg.MaterializeResult(metadata=metadata)

    return restored


def _after(report: RestoreReport) -> Metadata:
    """The restore that this one came after."""
    after = report.asked.get("after")
    return {} if after is None else {"after": dg.MetadataValue.text(after)}
