"""The check of objects that others wrote, run as Dagster's page runs it, on a real S3 server."""

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

import dagster as dg
import pytest

from kafka_s3_platform.core.config.settings import ConnectorConfig, ConverterSettings, KafkaSettings, SourceSettings
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.defs.running import definitions
from kafka_s3_platform_tests.support import connector

NOW = datetime.now(timezone.utc).replace(minute=0, second=0, microsecond=0)


@pytest.fixture
def config(lab: Lab) -> ConnectorConfig:
    kafka = KafkaSettings(bootstrap_servers="none:9092")
    made = connector(
        kafka,
        lab.store,
        "orders",
        layout={"format": "json", "partitioner": "Default"},
        records={"value": ConverterSettings(format="JSON")},
    )
    return made.model_copy(update={"topics": ("orders", "clicks"), "source": SourceSettings()})


def put(s3_client: Any, config: ConnectorConfig, folder: str, first: int, lines: list[str]) -> str:
    key = f"topics/{folder}/orders+0+{first:010d}.json"
    s3_client.put_object(Bucket=config.store.bucket, Key=key, Body="".join(f"{line}\n" for line in lines).encode())
    return key


def check(
    config: ConnectorConfig, instance: dg.DagsterInstance, given: Mapping[str, Any] | None = None
) -> dict[str, dg.AssetCheckEvaluation]:
    """Topic -> what the check says."""
    job = definitions(config).resolve_job_def("verify__c")
    ops = {"check__readable__c": {"config": dict(given or {})}}
    run_config = {"ops": ops, "loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
    run = job.execute_in_process(run_config=run_config, instance=instance)
    return {e.asset_key.path[-1]: e for e in run.get_asset_check_evaluations()}


def numbers(found: dg.AssetCheckEvaluation) -> dict[str, Any]:
    return {name: found.metadata[name].value for name in ("objects", "records", "bad", "gaps")}


def test_records_are_counted_and_what_is_broken_missing_or_misnamed_is_told(
    config: ConnectorConfig, instance: dg.DagsterInstance, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = "orders/partition=0"
    for first in (0, 2, 4):
        put(lab.s3, config, folder, first, ['{"n":1}', '{"n":2}'])
    found = check(config, instance)
    assert found["orders"].passed
    assert numbers(found["orders"]) == {"objects": 3, "records": 6, "bad": 0, "gaps": 0}
    assert not found["clicks"].passed, "that nothing was read is not fine"
    assert "There is no object to read: clicks was looked for below" in (found["clicks"].description or "")

    put(lab.s3, config, folder, 9, ['{"n":1}', '{"n":2'])
    put(lab.s3, config, "orders/partition=7", 11, ["{}"])
    damaged = check(config, instance)["orders"]
    assert (damaged.passed, damaged.severity) == (False, dg.AssetCheckSeverity.ERROR)
    assert numbers(damaged) == {"objects": 4, "records": 7, "bad": 2, "gaps": 1}
    told = str(damaged.metadata["all_bad"].value)
    assert f"topics/{folder}/orders+0+0000000009.json" in told
    assert "its name is of kafka partition 0, its folder is partition=7" in told
    assert "offsets [6, 9) are in no object" in str(damaged.metadata["all_gaps"].value)

    monkeypatch.setattr("kafka_s3_platform.connect.sources.objects.MAX_LINES", 0)
    unnamed = check(config, instance)["orders"]
    assert numbers(unnamed)["bad"] == 2, "also of those for which there is no room to name them"
    assert "1 more objects, of this topic or of others" in str(unnamed.metadata["all_bad"].value)


def test_time_folders_of_the_look_back_are_read_unless_others_are_asked_for(
    config: ConnectorConfig, instance: dg.DagsterInstance, lab: Lab
) -> None:
    config = config.model_copy(update={"layout": config.layout.model_copy(update={"partitioner": "Hourly"})})
    old = NOW - timedelta(days=30)
    for first, hour in enumerate((old, NOW - timedelta(days=1), NOW)):
        put(lab.s3, config, f"orders/{hour:year=%Y/month=%m/day=%d/hour=%H}", first, ["{}"])

    def read(**given: Any) -> int:
        return int(numbers(check(config, instance, given)["orders"])["records"])

    assert read() == 2
    assert read(everything=True) == 3
    assert read(from_time=old.isoformat(), to_time=(old + timedelta(hours=1)).isoformat()) == 1
