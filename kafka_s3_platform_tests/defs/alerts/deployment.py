"""A code location of connector files on an instance, of which a test is the daemon."""

from collections.abc import Sequence

import dagster as dg
from dagster._core.definitions.run_request import RunRequest

from kafka_s3_platform.definitions import defs
from kafka_s3_platform.defs.failures import RETRIES_TAG


class Deployment:
    """Keeps cursors as Dagster does: not those of ticks that fail."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self.instance = instance
        self.cursors: dict[str, str] = {}

    def tick(self, name: str = "alerts") -> dg.SensorResult:
        """One tick of a sensor, whose events are stored."""
        location = defs()
        sensor = location.get_repository_def().get_sensor_def(name)
        with dg.build_sensor_context(
            instance=self.instance, cursor=self.cursors.get(name), definitions=location
        ) as context:
            found = sensor(context)
        assert isinstance(found, dg.SensorResult)
        for event in found.asset_events:
            self.instance.report_runless_asset_event(event)
        if found.cursor is not None:
            self.cursors[name] = found.cursor
        return found

    def launch(self, requests: Sequence[RunRequest]) -> list[bool]:
        """Execute the runs. Return of each whether it succeeded."""
        ended = []
        for asked in requests:
            job = defs().resolve_job_def(asked.job_name or "")
            job = job.get_subset(
                asset_selection=frozenset(asked.asset_selection or ()),
                asset_check_selection=frozenset(asked.asset_check_keys or ()),
            )
            run = job.execute_in_process(
                instance=self.instance,
                tags={RETRIES_TAG: "0", **asked.tags},
                run_config={**asked.run_config, "loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
                raise_on_error=False,
            )
            ended.append(run.success)
        return ended
