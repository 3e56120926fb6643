"""The checks behind `/health`: each tells why something is not well. Classes of users may be among them."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from kafka_s3_platform.config.plugins import HEALTH_CHECK, load_class, name_fault
from kafka_s3_platform.errors import PlatformError
from kafka_s3_platform.model.health import ConnectorHealth
from kafka_s3_platform.monitoring.concerns import list_concerns
from kafka_s3_platform.text import count_noun, escape_unprintable

FindReasons = Callable[[Sequence[ConnectorHealth]], Iterable[str]]


class HealthCheck(Protocol):
    """A check of a user's own. It is created once, without arguments, and asked after each look."""

    def find_reasons(self, connectors: Sequence[ConnectorHealth]) -> Iterable[str]:
        """Return why something is not well, a sentence for each. Nothing: all is well."""
        ...


@dataclass(frozen=True)
class Reason:
    """Why something is not well, and which check says so."""

    check: str
    says: str


@dataclass(frozen=True)
class NamedCheck:
    """A check and the name under which `/health` shows what it says."""

    name: str
    find_reasons: FindReasons


def make_checks(healthy_lag: int | None, classes: Sequence[str]) -> tuple[NamedCheck, ...]:
    """Return our own checks, and those of the named classes.

    `healthy_lag` is how many offsets a topic may be behind its latest one, None for any number.

    Raises:
        ConfigError: a class is not allowed here, cannot be loaded, or is no check.
    """
    ours = [
        NamedCheck("at_risk", partial(_find_concerns, {"loss", "late"})),
        # a server that is silent is why something is not known
        NamedCheck("reachable", partial(_find_concerns, {"unknown"})),
    ]
    if healthy_lag is not None:
        ours.append(NamedCheck("lag", partial(_find_lag, healthy_lag)))
    return (*ours, *map(_load_check, classes))


def run_checks(checks: Sequence[NamedCheck], connectors: Sequence[ConnectorHealth]) -> tuple[Reason, ...]:
    """Ask each check. One that fails is a reason by itself, and stops no other."""
    return tuple(reason for check in checks for reason in _ask(check, connectors))


def _ask(check: NamedCheck, connectors: Sequence[ConnectorHealth]) -> list[Reason]:
    try:
        return [Reason(check.name, escape_unprintable(str(says))) for says in check.find_reasons(connectors)]
    except PlatformError as err:
        return [Reason(check.name, str(err))]


def _load_check(dotted: str) -> NamedCheck:
    class_ = load_class(dotted, HEALTH_CHECK)
    with name_fault(class_, "creating it"):
        check: HealthCheck = class_()

    def find_reasons(connectors: Sequence[ConnectorHealth]) -> Iterable[str]:
        with name_fault(class_, "checking the health of connectors"):
            return [*check.find_reasons(connectors)]

    return NamedCheck(dotted, find_reasons)


def _find_concerns(kinds: Collection[str], connectors: Sequence[ConnectorHealth]) -> Iterator[str]:
    for concern in list_concerns(connectors):
        if concern.kind in kinds:
            yield f"{concern.place}: {concern.says}"


def _find_lag(healthy_lag: int, connectors: Sequence[ConnectorHealth]) -> Iterator[str]:
    for each in connectors:
        for topic in each.topics:
            if topic.lag is None:
                yield f"{each.connector}/{topic.topic}: the lag is not known"
            elif topic.lag > healthy_lag:
                behind = f"{count_noun(topic.lag, 'offset')} behind the latest one, {healthy_lag:,} are allowed"
                yield f"{each.connector}/{topic.topic}: {behind}"
