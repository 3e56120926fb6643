"""The health checks behind `/health` other than the concerns of connectors: the lag, and users' own classes."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Protocol

from kafka_s3_platform.core.config.plugins import HEALTH_CHECK, load_class, name_fault
from kafka_s3_platform.core.errors import PlatformError
from kafka_s3_platform.core.model.health import ConnectorHealth
from kafka_s3_platform.core.text import count_noun, escape_unprintable
from kafka_s3_platform.operate.status.concerns import Concern

FindReasons = Callable[[Sequence[ConnectorHealth]], Iterable[str]]


class HealthCheck(Protocol):
    """A user's own check. It is created once, without arguments, and asked each time the connectors were looked at."""

    def find_reasons(self, connectors: Sequence[ConnectorHealth]) -> Iterable[str]:
        """Return why something is not well, one sentence for each problem. Return none if all is well."""
        ...


def make_checks(healthy_lag: int | None, classes: Sequence[str]) -> dict[str, FindReasons]:
    """Return the checks by their names: the check of the lag, and one for each named class.

    A topic may be `healthy_lag` offsets behind its latest offset. None allows any number.

    Raises:
        ConfigError: a class is not allowed here, cannot be loaded, or is no check.
    """
    lag = {} if healthy_lag is None else {"lag": partial(_find_lag, healthy_lag)}
    return {**lag, **{dotted: _load_check(dotted) for dotted in classes}}


def run_checks(checks: Mapping[str, FindReasons], connectors: Sequence[ConnectorHealth]) -> tuple[Concern, ...]:
    """Ask each check. If one raises an error, this is a concern of its own, and the others are still asked."""
    concerns = []
    for name, find_reasons in checks.items():
        try:
            sentences = [escape_unprintable(str(reason)) for reason in find_reasons(connectors)]
        except PlatformError as err:
            sentences = [str(err)]
        concerns += [Concern("check", "", (), sentence, own_check=name) for sentence in sentences]
    return tuple(concerns)


def _load_check(dotted: str) -> FindReasons:
    """Load a user's check, and return its function. If it fails, the error names the class."""
    class_ = load_class(dotted, HEALTH_CHECK)
    with name_fault(class_, "creating it"):
        check: HealthCheck = class_()

    def find_reasons(connectors: Sequence[ConnectorHealth]) -> Iterable[str]:
        with name_fault(class_, "checking the health of connectors"):
            return [*check.find_reasons(connectors)]

    return find_reasons


def _find_lag(healthy_lag: int, connectors: Sequence[ConnectorHealth]) -> Iterator[str]:
    """Yield a sentence for each topic whose lag is unknown, or larger than allowed."""
    for health in connectors:
        for topic in health.topics:
            if topic.lag is None:
                yield f"{health.connector}/{topic.topic}: the lag is not known"
            elif topic.lag > healthy_lag:
                behind = f"{count_noun(topic.lag, 'offset')} behind the latest one, {healthy_lag:,} are allowed"
                yield f"{health.connector}/{topic.topic}: {behind}"
