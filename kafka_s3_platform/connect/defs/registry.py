"""Assets of a connector's Schema Registries, archived once a day."""

import dagster as dg

from kafka_s3_platform.connect.converters.registry_contents import name_registry
from kafka_s3_platform.core.config.settings import ConnectorConfig, RegistrySettings
from kafka_s3_platform.core.defs.failures import raise_dagster_failures
from kafka_s3_platform.core.defs.jobs import make_asset_job, make_nightly_schedule
from kafka_s3_platform.core.defs.topic import ASSET_TAG
from kafka_s3_platform.core.instance.names import make_name, make_op_name

REGISTRY_TIME = "30 0 * * *"


def define_registries(config: ConnectorConfig, status: dg.DefaultScheduleStatus) -> dg.Definitions:
    """Define an asset for each registry of the connector, one job for all of them, and its schedule.

    The definitions are empty if the connector names no registry.
    """
    registries = config.records.registries
    if not registries:
        return dg.Definitions()
    assets = [_make_asset(config, settings) for settings in registries]
    text = f"Archive the Schema Registries that connector {config.name} names: all subjects and versions."
    job = make_asset_job("registry", config.name, dg.AssetSelection.assets(*assets), text)
    schedule = make_nightly_schedule(config, job, REGISTRY_TIME, status)
    return dg.Definitions(assets=assets, jobs=[job], schedules=[schedule])


def _make_asset(config: ConnectorConfig, settings: RegistrySettings) -> dg.AssetsDefinition:
    """Make the asset of one registry. A run of it archives the registry."""
    name = name_registry(settings.url)

    @dg.asset(
        key=[config.name, "registry", name],
        group_name=f"{make_name(config.name)}/registry",
        owners=config.archive.owners,
        tags={ASSET_TAG: "registry"},
        pool=make_op_name("registry", config.name),
        description=f"All subjects, versions and settings of the Schema Registry at {settings.url}, also those that no"
        f" archived record names. `kafka-s3 registry restore {config.name}` registers them again.",
    )
    def archived(context: dg.AssetExecutionContext) -> dg.MaterializeResult[None]:
        # the client of registries is not needed to load definitions
        from kafka_s3_platform.connect.registries.archive import archive_registry

        with raise_dagster_failures(context, "An archived state of the registry is one object, written as a whole."):
            document, is_new = archive_registry(config, settings)
        contents = document.contents
        return dg.MaterializeResult(
            metadata={
                "subjects": len(contents.subjects),
                "versions": len(contents.versions),
                "deleted_versions": len(contents.deleted),
                "unreadable_versions": len(contents.unreadable),
                "gone_versions": len(document.gone),
                "changed": is_new,
                "unchanged_since": dg.MetadataValue.timestamp(document.observed_at),
                "object": f"s3://{config.store.bucket}/{document.key}",
            }
        )

    return archived
