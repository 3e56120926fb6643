"""Whoever reaches Dagster's UI can report any event of any asset: nothing that it says stops a sensor or a run."""

from datetime import datetime, timezone
from typing import Any

import dagster as dg
import pytest

from kafka_s3_platform.config.settings import (
    ArchiveSettings,
    ConnectorConfig,
    KafkaSettings,
    LayoutSettings,
    StoreSettings,
)
from kafka_s3_platform.defs.archive.checks import RISK_CHECK, read_hours_at_risk
from kafka_s3_platform.defs.runs import ShownHours
from kafka_s3_platform.defs.topic import TopicAssets

TOPIC = TopicAssets(
    ConnectorConfig(
        name="c",
        topics=("t",),
        kafka=KafkaSettings(bootstrap_servers="broker:9092"),
        store=StoreSettings(bucket="bucket"),
        layout=LayoutSettings(timezone="UTC"),
        archive=ArchiveSettings(start_hour=datetime(2026, 1, 1, tzinfo=timezone.utc)),
    ),
    "t",
)
NO_HOURS = ["x", "", "../x", "2026-01-02", "2026-01-02 00:00", "0001-01-01-00:00", "9999-12-31-23:00", "\u0661"]


def test_what_was_reported_of_no_hour_hides_no_hour_that_is_shown() -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        for key in [*NO_HOURS, "2026-01-02-03:00"]:
            instance.report_runless_asset_event(dg.AssetMaterialization(TOPIC.key("hourly"), partition=key))
        shown = ShownHours(instance).of(TOPIC)
        assert datetime(2026, 1, 2, 3, tzinfo=timezone.utc) in shown
        assert datetime(2026, 1, 2, tzinfo=timezone.utc) not in shown


@pytest.mark.parametrize("time", [dg.MetadataValue.text("x"), *map(dg.MetadataValue.float, (1e308, float("nan")))])
def test_a_reported_risk_without_times_is_none(time: dg.MetadataValue[Any]) -> None:
    metadata = {"hours_at_risk_from": time, "hours_at_risk_to": time}
    evaluation = dg.AssetCheckEvaluation(
        asset_key=TOPIC.key("kafka"), check_name=RISK_CHECK, passed=False, metadata=metadata
    )
    with dg.DagsterInstance.ephemeral() as instance:
        instance.report_runless_asset_event(evaluation)
        assert read_hours_at_risk(instance, [TOPIC]) == {}
