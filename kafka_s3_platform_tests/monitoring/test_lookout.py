"""What is asked between two looks, while one hangs, and after one failed."""

import threading
import time
from collections.abc import Callable
from datetime import datetime, timezone

from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform.core.model.health import ConnectorHealth
from kafka_s3_platform.operate.monitoring.lookout import HealthReport, Lookout

HEALTH = ConnectorHealth("c", datetime.now(timezone.utc))


def wait(lookout: Lookout, is_so: Callable[[HealthReport], bool]) -> HealthReport:
    deadline = time.monotonic() + 10
    while not is_so(seen := lookout.read()):
        assert time.monotonic() < deadline, seen
        time.sleep(0.01)
    return seen


def test_a_look_that_hangs_is_told_and_what_it_found_before_is_not() -> None:
    hangs, ended = threading.Event(), threading.Event()

    def look() -> list[ConnectorHealth]:
        if hangs.is_set():
            ended.wait(30)
        hangs.set()
        return [HEALTH]

    lookout = Lookout(look, {}, interval=0.05, patience=0.5)
    assert lookout.read().error == "the first check is running"
    lookout.start()
    assert wait(lookout, lambda seen: not seen.error).connectors == (HEALTH,)
    silent = wait(lookout, lambda seen: bool(seen.error))
    assert (silent.connectors, silent.is_well, silent.good) == ((), False, {"c": HEALTH})
    ended.set()
    assert wait(lookout, lambda seen: not seen.error).is_well
    lookout.stop()


def test_a_look_that_fails_is_no_end_of_looking() -> None:
    failures = [ConfigError("connectors is no folder"), ZeroDivisionError()]

    def look() -> list[ConnectorHealth]:
        if failures:
            raise failures.pop(0)
        return [HEALTH]

    lookout = Lookout(look, {}, interval=0.2, patience=5.0)
    lookout.start()
    assert wait(lookout, lambda seen: seen.looked_at is not None).error == "[KS-CONFIG] connectors is no folder"
    wait(lookout, lambda seen: seen.error == "the check failed: ZeroDivisionError")
    assert wait(lookout, lambda seen: not seen.error).is_well
    lookout.stop()


def test_a_connector_that_is_no_more_is_forgotten() -> None:
    connectors = {"c", "removed"}
    lookout = Lookout(lambda: [ConnectorHealth(name, HEALTH.looked_at) for name in connectors], {}, 0.05, 5.0)
    lookout.start()
    wait(lookout, lambda seen: {*seen.good} == {"c", "removed"})
    connectors = {"c"}
    wait(lookout, lambda seen: {*seen.good} == {"c"})
    lookout.stop()
