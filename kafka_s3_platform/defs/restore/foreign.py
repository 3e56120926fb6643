"""Assets that replay objects of other writers to topics."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import dagster as dg

from kafka_s3_platform.config.settings import ConnectorConfig
from kafka_s3_platform.defs.failures import raise_dagster_failures
from kafka_s3_platform.defs.metadata import Metadata
from kafka_s3_platform.defs.resources import SparkResource
from kafka_s3_platform.defs.restore.config import FORM, ForeignRestoreConfig
from kafka_s3_platform.defs.restore.form import describe_form
from kafka_s3_platform.defs.restore.restored import (
    STAYS,
    RestoreEvent,
    make_restore_metadata,
    make_restored_check,
    yield_outcome,
)
from kafka_s3_platform.defs.run_config import make_plain_schema, read_config
from kafka_s3_platform.defs.topic import TopicAssets
from kafka_s3_platform.defs.topic_assets import make_topic_assets
from kafka_s3_platform.instance.names import make_op_name
from kafka_s3_platform.instance.work import name_restored_op

if TYPE_CHECKING:
    from kafka_s3_platform.restore.request import RestoreReport

EVERY_TOPIC = "every topic"
"""Takes the place of a topic's name for all topics that a source connector reads."""


def make_foreign_key(connector: str) -> dg.AssetKey:
    """`<connector>/restored`."""
    return dg.AssetKey([connector, "restored"])


def name_poll_sensor(connector: str) -> str:
    """Return the name of the sensor that requests the asset."""
    return make_op_name("poll", connector)


def make_foreign_asset(config: ConnectorConfig, sensor: str | None = None) -> dg.AssetsDefinition:
    """`<connector>/restored`: what the file of a source connector describes, in one run. `sensor` requests later ones.

    Without a sensor, it is the file of a sink, whose objects are read back.
    """
    key = make_foreign_key(config.name)
    topics = TopicAssets(config, EVERY_TOPIC)
    spec = dg.AssetSpec(
        key,
        **topics.shown_in("restored"),
        kinds={"kafka", "spark"},
        description=f"Objects that the file of connector `{config.name}` describes, replayed to topics. What their "
        "format does not hold cannot come back: `kafka-s3 check` tells. "
        f"{f'Turn on the sensor `{sensor}` to replay later objects too.' if sensor else ''}\n\n"
        f"{describe_form(config.name, {'topics': [*config.topics[:1]] or ['orders']})}",
        skippable=True,
    )

    def restored(context: dg.AssetExecutionContext, spark: dg.ResourceParam[SparkResource]) -> Iterator[RestoreEvent]:
        # what restores is not needed to load definitions
        from kafka_s3_platform.defs.restore.request import make_foreign_request
        from kafka_s3_platform.restore.run import restore

        run = context.run
        with raise_dagster_failures(context, STAYS):
            config_of_run = read_config(context, ForeignRestoreConfig)
            restore_id = config_of_run.how.restore_id or run.root_run_id or run.run_id
            report = restore(make_foreign_request(topics, config_of_run, restore_id, run.run_id), spark.make_runner())
        metadata: Metadata = {
            "topic": dg.MetadataValue.text(report.topic),
            **make_restore_metadata(report, topics.config.restore_store.bucket),
            **_make_after_metadata(report),
        }
        yield from yield_outcome(context, key, report, metadata)

    return make_topic_assets(
        restored,
        name=name_restored_op(config.name),
        specs=[spec],
        checks=[make_restored_check(key)],
        pool=f"{config.name}/restore",
        config_schema=make_plain_schema(ForeignRestoreConfig, FORM),
    )


def _make_after_metadata(report: "RestoreReport") -> Metadata:
    """Return the restore that this one follows."""
    after = report.terms.get("after")
    if after is None:
        return {}
    return {"after": dg.MetadataValue.text(after)}
