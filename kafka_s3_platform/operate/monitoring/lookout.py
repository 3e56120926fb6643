"""Looks at all connectors again and again, in a thread. Whoever asks gets what was seen last, at once."""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from functools import cached_property

from kafka_s3_platform.core.errors import PlatformError
from kafka_s3_platform.core.model.health import ConnectorHealth
from kafka_s3_platform.operate.monitoring.checks import FindReasons, run_checks
from kafka_s3_platform.operate.status.concerns import Concern, list_concerns

logger = logging.getLogger(__name__)

TakeLook = Callable[[], Sequence[ConnectorHealth]]


@dataclass(frozen=True)
class HealthReport:
    """What the last look found. `error` says why there is nothing, or why it is too old to be relied on.

    `good` is what a look found that knew everything about a connector, by its name.
    """

    connectors: tuple[ConnectorHealth, ...] = ()
    own_concerns: tuple[Concern, ...] = ()
    looked_at: datetime | None = None
    seconds: float | None = None
    good: Mapping[str, ConnectorHealth] = field(default_factory=dict)
    error: str = ""

    @property
    def is_well(self) -> bool:
        """Whether there was a look, and no check fails."""
        return not self.error and not any(concern.check for concern in self.concerns)

    @cached_property
    def concerns(self) -> list[Concern]:
        """What needs attention, the nearest loss first, and what checks of users say in the end."""
        return [*list_concerns(self.connectors), *self.own_concerns]


class Lookout:
    """Looks every `interval` seconds. A look that has not ended after `patience` seconds more counts as failed."""

    def __init__(self, look: TakeLook, checks: Mapping[str, FindReasons], interval: float, patience: float) -> None:
        self._look = look
        self._checks = checks
        self._interval = interval
        self._patience = patience
        self._report = HealthReport(error="the first check is running")
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lookout", daemon=True)

    def start(self) -> None:
        """Begin. The first look is under way when this returns."""
        self._thread.start()

    def stop(self) -> None:
        """Begin no further look."""
        self._ended.set()

    def read(self) -> HealthReport:
        """Return what was seen last. What is too old is not returned, only that it is."""
        report = self._report
        if report.looked_at is None:
            return report
        age = datetime.now(timezone.utc) - report.looked_at
        if age <= timedelta(seconds=self._interval + self._patience):
            return report
        error = f"no check has ended for {age.total_seconds():.0f} s: the last one hangs, or this machine stood still"
        return HealthReport(looked_at=report.looked_at, good=report.good, error=error)

    def _run(self) -> None:
        """Look at the connectors every `interval` seconds, until `stop`."""
        while True:
            self._look_once()
            if self._ended.wait(self._interval):
                return

    def _look_once(self) -> None:
        """Look at the connectors, and keep the report. If that fails, the report says why."""
        started = time.monotonic()
        good = dict(self._report.good)
        try:
            connectors = tuple(self._look())
            own = run_checks(self._checks, connectors)
            error = ""
        except PlatformError as err:
            connectors, own, error = (), (), str(err)
        except Exception as err:
            logger.exception("a look at the connectors failed")
            connectors, own, error = (), (), f"the check failed: {type(err).__name__}"
        if not error:
            # connectors that are no more are forgotten
            good = {each.connector: good[each.connector] for each in connectors if each.connector in good}
        good |= {each.connector: each for each in connectors if each.is_known and not each.is_removed}
        now = datetime.now(timezone.utc)
        self._report = HealthReport(connectors, own, now, time.monotonic() - started, good, error)
