"""What one evaluation of a sensor gathers over its topics."""

import json
from dataclasses import dataclass, field
from typing import Any

import dagster as dg

from kafka_s3_platform.errors import PermanentError


@dataclass
class Tick:
    """`cursor` is a small JSON object by topic, and changes only with what was seen."""

    cursor: dict[str, Any]
    requests: list[dg.RunRequest] = field(default_factory=list)
    observations: list[dg.AssetObservation] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    errors: list[PermanentError] = field(default_factory=list)

    def result(self) -> dg.SensorResult:
        """What Dagster is told. Raises the first permanent error, unless runs are asked for: they would be lost."""
        if self.errors and not self.requests:
            raise self.errors[0]
        return dg.SensorResult(
            run_requests=self.requests,
            asset_events=self.observations,
            cursor=json.dumps(self.cursor),
            skip_reason=None if self.requests else "; ".join(self.reasons) or "nothing is due",
        )
