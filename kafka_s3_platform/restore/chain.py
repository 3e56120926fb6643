"""Restores of a source connector that follow each other: each sends what came since the one before it.

Beside its plan, a restore keeps what those before it have sent. Both never change once the restore is finished, so the
next one finds all that is known in two documents, however many restores there were.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from kafka_s3_platform.config.settings import ConnectorConfig
from kafka_s3_platform.errors import ConfigError, IntegrityError, PreflightError
from kafka_s3_platform.restore.begin import stored_report
from kafka_s3_platform.restore.documents import document
from kafka_s3_platform.restore.foreign_plan import ForeignPlan, check_found
from kafka_s3_platform.restore.known import Known, Unsent
from kafka_s3_platform.restore.plan import request_terms, shown_terms
from kafka_s3_platform.restore.renaming import BY_RECORD
from kafka_s3_platform.restore.request import RestoreReport, RestoreRequest
from kafka_s3_platform.sources.scan import scan
from kafka_s3_platform.store.errors import NotFoundError, PreconditionError
from kafka_s3_platform.store.objects import ObjectStore

_PARTLY = ("from_time", "to_time", "windows", "from_offset", "to_offset")
"""Terms by which an object may have been sent in part."""


@dataclass(frozen=True)
class Successor:
    """The document that says which restore comes after another: there is one at most, or both would send the same."""

    restore_id: str


def known_before(request: RestoreRequest, after: str | None, store: ObjectStore) -> Known | None:
    """What the restore `after` and those before it have sent, None where there is none before.

    Raises:
        PreflightError: that restore is not finished, is no such one that this can go on after, or another one does.
        ConfigError: `after` is no restore id, or that of the request itself.
        IntegrityError: its documents were changed.
    """
    if after is None:
        return None
    if after == request.restore_id:
        raise ConfigError(f"restore {after} cannot come after itself: give it an id of its own")
    earlier = replace(request, restore_id=after)
    plan, report = _finished(earlier, store)
    _check_only_one(request, earlier, store)
    own = _sent(plan, report)
    if plan.terms.get("after") is None:
        return own
    try:
        return Known.from_parquet(store.get(_known_key(earlier)), store.uri(_known_key(earlier))) | own
    except NotFoundError as err:
        raise IntegrityError(f"what was sent before restore {after} is not known any more: {err}") from err


def _sent(plan: ForeignPlan, report: RestoreReport) -> Known:
    """Bad objects were not, nor what holds the keys, headers or values of their records."""
    left_out, every = set(report.left_out or ()), [s for group in plan.groups for s in group.sets]
    sent = Known.of(o for s in every if left_out.isdisjoint(each.key for each in s.objects) for o in s.objects)
    if report.left_out is not None or report.skipped == plan.skipped:
        return sent
    count = len(report.skipped) - len(plan.skipped)
    note = (
        f"restore {plan.restore_id} was finished by an earlier version, which did not keep which objects it left out: "
        f"the {count:,} bad objects and records that its report names count as sent"
    )
    return replace(sent, notes=(note,))


def _finished(earlier: RestoreRequest, store: ObjectStore) -> tuple[ForeignPlan, RestoreReport]:
    after, connector = earlier.restore_id, earlier.config.name
    try:
        plan = ForeignPlan.from_json(store.get(earlier.plan_key), earlier.plan_key)
    except NotFoundError as err:
        raise PreflightError(f"no restore {after} was ever begun, so none can come after it: {err}") from err
    if plan.terms.get("connector") != connector:
        raise PreflightError(f"restore {after} is one of connector {plan.terms.get('connector')}, not of {connector}")
    if windows := [name for name in _PARTLY if plan.terms.get(name) is not None]:
        raise PreflightError(
            f"restore {after} sent a window ({', '.join(windows)}), so objects may have been sent in part: none can "
            f"come after it"
        )
    report = stored_report(earlier, store)
    if report is None:
        raise PreflightError(
            f"restore {after} is not finished: there is no {store.uri(earlier.report_key)}. Run it again under its id, "
            f"then what comes after it"
        )
    return plan, report


def check_same_records(request: RestoreRequest, after: str | None, store: ObjectStore) -> None:
    """That the restore `after` chose among records as this one does: what it has left out, none after it sends.

    Raises:
        PreflightError: its filter, or the transforms that may drop records, are others.
    """
    if after is None:
        return
    earlier = replace(request, restore_id=after)
    plan = ForeignPlan.from_json(store.get(earlier.plan_key), earlier.plan_key)
    before, now = (_choosing(terms) for terms in (shown_terms(plan.terms, after), request_terms(earlier)))
    if before is not None and before != now:
        raise PreflightError(
            f"restore {after} sent some records of its objects only: it chose by {json.dumps(before)}, this one by "
            f"{json.dumps(now)}. What it left out would never be sent. Ask for the same, or restore what it left out "
            f"without coming after it: to another topic, under another restore id"
        )


def _choosing(terms: Mapping[str, Any]) -> dict[str, Any] | None:
    """Of the terms of a restore, those by which it may leave records out; None where it leaves none out."""
    transforms = (terms.get("outgoing") or {}).get("transforms") or []
    drops = any(map(_may_drop, transforms))
    if not drops and terms.get("records") is None:
        return None
    return {"records": terms.get("records"), "transforms": transforms if drops else []}


def _may_drop(step: Mapping[str, Any]) -> bool:
    """Whether a transform may leave records out, or send them elsewhere."""
    name, predicate = step["type"], step.get("predicate")
    by_record = name == "RegexRouter" and predicate is not None and predicate["type"] != "TopicNameMatches"
    return name == "Filter" or "." in name or name.startswith(BY_RECORD) or by_record


def claim(request: RestoreRequest, after: str | None, store: ObjectStore) -> None:
    """Make this restore the one that comes after `after`.

    Raises:
        PreflightError: another one does.
    """
    if after is None:
        return
    earlier = replace(request, restore_id=after)
    try:
        store.put_new(_next_key(earlier), json.dumps({"restore_id": request.restore_id}).encode())
    except PreconditionError:
        _check_only_one(request, earlier, store)


def _check_only_one(request: RestoreRequest, earlier: RestoreRequest, store: ObjectStore) -> None:
    key = _next_key(earlier)
    try:
        found = document(store.get(key), Successor, key).restore_id
    except NotFoundError:
        return
    if found != request.restore_id:
        raise PreflightError(
            f"restore {found} comes after restore {earlier.restore_id} already ({store.uri(key)}), so restore "
            f"{request.restore_id} cannot: both would send the same. Let restore {found} finish, or run it again under "
            f"its id, and come after that one"
        )


def save_known(request: RestoreRequest, known: Known | None, store: ObjectStore) -> None:
    """Keep what is known before the plan is stored; a run that was killed in between has left the same.

    Raises:
        PreflightError: something else lies there.
    """
    if known is None:
        return
    key = _known_key(request)
    try:
        store.put_new(key, known.to_parquet())
    except PreconditionError as err:
        if not Known.from_parquet(store.get(key), store.uri(key)).table.equals(known.table):
            raise PreflightError(
                f"{store.uri(key)} says of restore {request.restore_id} that something else was sent before it: a run "
                f"of this id was to come after another restore. Take another restore id"
            ) from err


def _next_key(request: RestoreRequest) -> str:
    return request.key(".next")


def _known_key(request: RestoreRequest) -> str:
    return request.key(".known.parquet")


class Polls:
    """The restores by which a source connector goes on sending what appears: `poll.<connector>.1`, 2, 3 and so on."""

    def __init__(self, config: ConnectorConfig) -> None:
        self._config, self._store = config, ObjectStore(config.restore_store)

    def restore_id(self, number: int) -> str:
        """The id of the restore `number`."""
        return f"poll.{self._config.name}.{number}"

    def newest(self, seen: int = 0) -> int:
        """The number of the newest restore that was begun, 0 before the first. `seen`: that one is known to be."""
        number = seen or max(self._listed(), default=0)
        while self._store.head(self._request(number + 1).plan_key) is not None:
            number += 1
        return number

    def is_finished(self, number: int) -> bool:
        """Whether the restore has sent and verified everything."""
        return self._store.head(self._request(number).report_key) is not None

    def new_objects(self, number: int) -> Unsent:
        """What no restore up to `number` has sent, of the bucket as it is now.

        Raises:
            PlatformError: as planning the next restore would.
        """
        known = known_before(self._request(number + 1), self.restore_id(number) if number else None, self._store)
        found = scan(self._config, known=known.etags if known else ())
        objects = list(found)
        check_found(found, objects, known)
        if known is None and not objects:
            return Unsent((), (found.searched(),))
        return (known or Known.of(())).unsent(objects)

    def _listed(self) -> set[int]:
        prefix = self._request(0).plan_key.removesuffix("0.json")
        named = (re.fullmatch(r"([1-9]\d*)\.json", o.key.removeprefix(prefix)) for o in self._store.list(prefix))
        return {int(found[1]) for found in named if found}

    def _request(self, number: int) -> RestoreRequest:
        return RestoreRequest(self._config, topic="", to_topic="", restore_id=self.restore_id(number), run_id="")
