"""Asset checks of connector files: the check of a broken file is red, while all other connectors go on."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import dagster as dg

from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform.core.instance.names import make_op_name
from kafka_s3_platform.core.instance.reload import reload_code_location
from kafka_s3_platform.core.text import count_noun, escape_unprintable

FILES_KEY = dg.AssetKey(["connector_files"])
INTERVAL_SECONDS = 60

Problems = Callable[[], Mapping[Path, str]]
"""Returns the current problem of each broken connector file."""

AreOld = Callable[[], bool]
"""Returns True if the files have changed since this code location was defined."""


def make_file_checks(files: Sequence[Path], problems: Problems, are_old: AreOld) -> dg.Definitions:
    """Make an asset for the connector files, a check for each file, and the sensor of the checks.

    `problems` returns the current problem of each broken file. If `are_old` returns True, the sensor has the code
    location loaded again.
    """
    spec = dg.AssetSpec(
        FILES_KEY,
        # no connector's group has this name: with `__` in it, it would have a suffix
        group_name="connector__files",
        description="The connector files. Each file has a check, which passes if the file loads. A file that does not "
        "load stops no other.",
    )
    checks = [_make_check(path, problems) for path in files]
    return dg.Definitions(assets=[spec], asset_checks=checks, sensors=[_make_sensor(files, problems, are_old)])


def name_file_check(path: Path) -> str:
    """Return the name of a file's check, such as `orders_s3__json`."""
    return make_op_name(path.stem, path.suffix.removeprefix("."))


def _make_check(path: Path, problems: Problems) -> dg.AssetChecksDefinition:
    """Make the check of one connector file, which passes if the file loads."""

    @dg.asset_check(asset=FILES_KEY, name=name_file_check(path), description=escape_unprintable(f"`{path}` loads."))
    def loads() -> dg.AssetCheckResult:
        problem = problems().get(path)
        return dg.AssetCheckResult(passed=problem is None, description=problem)

    return loads


def _make_sensor(files: Sequence[Path], problems: Problems, are_old: AreOld) -> dg.SensorDefinition:
    """Make the sensor, which reads the files again each minute, and reports changed checks."""

    @dg.sensor(
        name="connector_files",
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Reads the connector files again. While a file does not load, the ticks and the check of the file "
        "fail. When a file is new, changed or gone, it has this code location loaded again.",
    )
    def connector_files(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        """Read the files again. Raise ConfigError if they have the same problems as in the last tick."""
        reloaded = f"connector files changed: {reload_code_location(context)}" if are_old() else ""
        problem_by_path = problems()
        problem_by_name = {path.name: problem_by_path.get(path, "") for path in files}
        last_problems = json.loads(context.cursor or "{}")
        text = "\n".join(dict.fromkeys(problem_by_path.values()))
        if problem_by_path and problem_by_name == last_problems:
            # the event was reported before: from now on the sensor itself is red
            raise ConfigError("\n".join(filter(None, (text, reloaded))))
        return dg.SensorResult(
            asset_events=[
                dg.AssetCheckEvaluation(
                    asset_key=FILES_KEY,
                    check_name=name_file_check(path),
                    passed=not problem_by_name[path.name],
                    metadata={},
                    severity=dg.AssetCheckSeverity.ERROR,
                    description=problem_by_name[path.name] or None,
                )
                for path in files
                if problem_by_name[path.name] != last_problems.get(path.name)
            ],
            cursor=json.dumps(problem_by_name),
            skip_reason="\n".join(filter(None, (text or f"{count_noun(len(files), 'file')} loaded", reloaded))),
        )

    return connector_files
