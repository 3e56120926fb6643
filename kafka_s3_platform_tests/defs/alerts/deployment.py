"""A code location of connector files on an instance, of which a test is the daemon."""

from collections.abc import Sequence

import dagster as dg

from kafka_s3_platform.definitions import defs
from kafka_s3_platform_tests.defs.running import launch, tick


class Deployment:
    """Keeps cursors as Dagster does: not those of ticks that fail."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self.instance = instance
        self.cursors: dict[str, str] = {}

    def tick(self, name: str = "alerts") -> dg.SensorResult:
        """One tick of a sensor, whose events are stored."""
        found = tick(defs(), name, self.cursors.get(name), self.instance)
        for event in found.asset_events:
            self.instance.report_runless_asset_event(event)
        if found.cursor is not None:
            self.cursors[name] = found.cursor
        return found

    def launch(self, requests: Sequence[dg.RunRequest]) -> list[bool]:
        """Execute the runs. Return of each whether it succeeded."""
        return [launch(defs(), asked, self.instance).success for asked in requests]
