"""Looks at all connectors again and again, in a thread, so that callers get the last report at once."""

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
    """The result of the last look at all connectors.

    `error` tells why there is none, or why it is too old to be relied on. `good` has the last complete result of each
    connector, by its name.
    """

    connectors: tuple[ConnectorHealth, ...] = ()
    own_concerns: tuple[Concern, ...] = ()
    looked_at: datetime | None = None
    seconds: float | None = None
    good: Mapping[str, ConnectorHealth] = field(default_factory=dict)
    error: str = ""

    @property
    def is_well(self) -> bool:
        """True if there was a look, and no check failed in it."""
        return not self.error and not any(concern.check for concern in self.concerns)

    @cached_property
    def concerns(self) -> list[Concern]:
        """The concerns of all connectors, the nearest loss first, and the concerns of users' own checks last."""
        return [*list_concerns(self.connectors), *self.own_concerns]


class Lookout:
    """Looks every `interval` seconds. If a look is still under way `patience` seconds later, it counts as failed."""

    def __init__(
        self, take_look: TakeLook, checks: Mapping[str, FindReasons], interval: float, patience: float
    ) -> None:
        self._look = take_look
        self._checks = checks
        self._interval = interval
        self._patience = patience
        self._report = HealthReport(error="the first check is running")
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lookout", daemon=True)

    def start(self) -> None:
        """Start looking. The first look is under way when this returns."""
        self._thread.start()

    def stop(self) -> None:
        """Begin no further look."""
        self._ended.set()

    def read(self) -> HealthReport:
        """Return the report of the last look. If it is too old, return only an error and `good`."""
        report = self._report
        if report.looked_at is None:
            return report
        age = datetime.now(timezone.utc) - report.looked_at
        if age <= timedelta(seconds=self._interval + self._patience):
            return report
        error = f"no check has ended for {age.total_seconds():.0f} s: the last one hangs, or this machine stood still"
        return HealthReport(looked_at=report.looked_at, good=report.good, error=error)

    def _run(self) -> None:
        """Look at the connectors every `interval` seconds, until `stop` is called."""
        while True:
            self._look_once()
            if self._ended.wait(self._interval):
                return

    def _look_once(self) -> None:
        """Look at all connectors, and keep the result as the report. If the look fails, the report says why."""
        started = time.monotonic()
        good = dict(self._report.good)
        connectors: tuple[ConnectorHealth, ...] = ()
        own_concerns: tuple[Concern, ...] = ()
        error = ""
        try:
            looked = tuple(self._look())
            own_concerns = run_checks(self._checks, looked)
            connectors = looked
        except PlatformError as err:
            error = str(err)
        except Exception as err:
            logger.exception("a look at the connectors failed")
            error = f"the check failed: {type(err).__name__}"
        if not error:
            # forget connectors that no longer exist
            good = {health.connector: good[health.connector] for health in connectors if health.connector in good}
        good |= {health.connector: health for health in connectors if health.is_known and not health.is_removed}
        now = datetime.now(timezone.utc)
        self._report = HealthReport(connectors, own_concerns, now, time.monotonic() - started, good, error)
