"""Connector files as checks: one that does not load is red, and keeps no other connector from its work."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import dagster as dg

from kafka_s3_platform.defs.names import op_name
from kafka_s3_platform.errors import ConfigError
from kafka_s3_platform.text import printable

FILES_KEY = dg.AssetKey(["connector_files"])
INTERVAL_SECONDS = 60

Problems = Callable[[], Mapping[Path, str]]
"""What is wrong now, by connector file."""


def file_checks(files: Sequence[Path], problems: Problems) -> dg.Definitions:
    """An asset for the connector files, a check for each of them, and the sensor that evaluates the checks."""
    spec = dg.AssetSpec(
        FILES_KEY,
        group_name="connector_files",
        description="The connector files. A check for each: whether it loads. One that does not load stops no other.",
    )
    checks = [_check(path, problems) for path in files]
    return dg.Definitions(assets=[spec], asset_checks=checks, sensors=[_sensor(files, problems)])


def _check(path: Path, problems: Problems) -> dg.AssetChecksDefinition:
    @dg.asset_check(asset=FILES_KEY, name=op_name(path.name), description=printable(f"`{path}` loads."))
    def loads() -> dg.AssetCheckResult:
        problem = problems().get(path)
        return dg.AssetCheckResult(passed=problem is None, description=problem)

    return loads


def _sensor(files: Sequence[Path], problems: Problems) -> dg.SensorDefinition:
    @dg.sensor(
        name="connector_files",
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Reads the connector files again: its ticks fail while one does not load, as its check does.",
    )
    def connector_files(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        wrong = problems()
        known = {path.name: wrong.get(path, "") for path in files}
        before = json.loads(context.cursor or "{}")
        told = "\n".join(dict.fromkeys(wrong.values()))
        if wrong and known == before:
            # what is to be told as an event is told: from now on the sensor itself is red
            raise ConfigError(told)
        return dg.SensorResult(
            asset_events=[
                _evaluation(path, known[path.name]) for path in files if known[path.name] != before.get(path.name)
            ],
            cursor=json.dumps(known),
            skip_reason=told or f"{len(files)} connector file(s) load",
        )

    return connector_files


def _evaluation(path: Path, problem: str) -> dg.AssetCheckEvaluation:
    return dg.AssetCheckEvaluation(
        asset_key=FILES_KEY,
        check_name=op_name(path.name),
        passed=not problem,
        metadata={},
        severity=dg.AssetCheckSeverity.ERROR,
        description=problem or None,
    )
