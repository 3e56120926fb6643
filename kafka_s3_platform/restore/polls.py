"""Restores of a source connector that follow each other: each sends what appeared since the one before it.

Beside its plan, a restore stores what those before it have sent. Neither changes once the restore is finished, so the
next one finds everything in these two documents, however many restores there were.
"""

import json
import re
from dataclasses import dataclass, replace

import msgspec

from kafka_s3_platform.config.keys.transforms.steps import routes_records
from kafka_s3_platform.config.settings import ConnectorConfig
from kafka_s3_platform.errors import ConfigError, IntegrityError, PreflightError
from kafka_s3_platform.restore.documents import parse_document
from kafka_s3_platform.restore.preflight.begin import read_stored_report
from kafka_s3_platform.restore.request import RestoreReport, RestoreRequest
from kafka_s3_platform.restore.source.foreign_plan import ForeignPlan, check_found, collect_foreign_terms
from kafka_s3_platform.restore.source.sent_before import Known, Unsent
from kafka_s3_platform.restore.source.terms import Asked, AskedRecords, AskedTransform, collect_request_terms
from kafka_s3_platform.sources.objects import ForeignObject
from kafka_s3_platform.sources.scan import scan_objects
from kafka_s3_platform.store.errors import NotFoundError, PreconditionError
from kafka_s3_platform.store.objects import ObjectStore


@dataclass(frozen=True)
class Successor:
    """The document that names the one restore that follows another. Two followers would send the same objects."""

    restore_id: str


def read_known(request: RestoreRequest, after: str | None, store: ObjectStore) -> Known | None:
    """Read what the restore `after` and those before it have sent. None if `after` is None.

    Raises:
        PreflightError: that restore is not finished, cannot be followed by this one, or another one follows it already.
        ConfigError: `after` is no restore id, or it is the id of the request itself.
        IntegrityError: its documents were changed.
    """
    if after is None:
        return None
    if after == request.restore_id:
        raise ConfigError(f"restore {after} cannot come after itself: give it an id of its own")
    earlier = replace(request, restore_id=after)
    plan, report = _read_finished(earlier, store)
    _check_only_one(request, earlier, store)
    own = _collect_sent(plan, report)
    if plan.asked.after is None:
        return own
    try:
        return Known.from_parquet(store.get(earlier.documents.known), store.uri(earlier.documents.known)) | own
    except NotFoundError as err:
        raise IntegrityError(f"what was sent before restore {after} is not known any more: {err}") from err


def _collect_sent(plan: ForeignPlan, report: RestoreReport) -> Known:
    """Return the objects that a finished restore has sent.

    It has not sent bad objects, nor the objects with the keys, values or headers of their records.
    """
    left_out = set(report.left_out)
    objects: list[ForeignObject] = []
    for group in plan.groups:
        for one in group.sets:
            if left_out.isdisjoint(o.key for o in one.objects):
                objects += one.objects
    starts = plan.starts or {}
    targets = {topic: (name, starts[name].topic_id) for topic, name in plan.targets.items() if name in starts}
    return Known.of(objects, targets)


def _read_finished(earlier: RestoreRequest, store: ObjectStore) -> tuple[ForeignPlan, RestoreReport]:
    after = earlier.restore_id
    connector = earlier.config.name
    try:
        plan = ForeignPlan.from_json(store.get(earlier.documents.plan), earlier.documents.plan)
    except NotFoundError as err:
        raise PreflightError(f"no restore {after} was ever begun, so none can come after it: {err}") from err
    if plan.asked.connector != connector:
        raise PreflightError(f"restore {after} is one of connector {plan.asked.connector}, not of {connector}")
    if windows := plan.asked.windows_named:
        raise PreflightError(
            f"restore {after} sent a window ({', '.join(windows)}), so objects may have been sent in part: none can "
            f"come after it"
        )
    report = read_stored_report(earlier, store)
    if report is None:
        raise PreflightError(
            f"restore {after} is not finished: there is no {store.uri(earlier.documents.report)}. Run it again under "
            "its id, then what comes after it"
        )
    return plan, report


def check_same_records(request: RestoreRequest, after: str | None, store: ObjectStore) -> None:
    """Check that this restore filters records as the restore `after` did: later ones never send what that left out.

    Raises:
        PreflightError: its filter, or its transforms that may drop records, differ.
    """
    if after is None:
        return
    earlier = replace(request, restore_id=after)
    plan = ForeignPlan.from_json(store.get(earlier.documents.plan), earlier.documents.plan)
    before = _find_choice(plan.asked)
    now = _find_choice(Asked.of(collect_request_terms(earlier), earlier.documents.plan))
    if before is not None and before != now:
        raise PreflightError(
            f"restore {after} sent some records of its objects only: it chose by {_write_choice(before)}, this one "
            f"by {_write_choice(now)}. What it left out would never be sent. Ask for the same, or restore what it left "
            f"out without coming after it: to another topic, under another restore id"
        )


@dataclass(frozen=True)
class _Choice:
    """The filter and the transforms by which a restore leaves records out."""

    records: AskedRecords | None
    transforms: tuple[AskedTransform, ...]


def _find_choice(asked: Asked) -> _Choice | None:
    """Return how a restore leaves records out. None: it leaves none out."""
    drops = any(map(_may_drop, asked.transforms))
    if not drops and asked.records is None:
        return None
    # Transforms that drop nothing may differ: they do not decide which records are sent.
    return _Choice(asked.records, asked.transforms if drops else ())


def _write_choice(choice: _Choice | None) -> str:
    return json.dumps(msgspec.to_builtins(choice))


def _may_drop(step: AskedTransform) -> bool:
    """Whether a transform may leave records out, or send them elsewhere."""
    predicate = step.predicate.type if step.predicate else None
    return step.type == "Filter" or routes_records(step.type, predicate)


def claim_successor(request: RestoreRequest, after: str | None, store: ObjectStore) -> None:
    """Store that this restore is the one that follows `after`.

    Raises:
        PreflightError: another restore follows it already.
    """
    if after is None:
        return
    earlier = replace(request, restore_id=after)
    try:
        store.put_new(earlier.documents.successor, json.dumps({"restore_id": request.restore_id}).encode())
    except PreconditionError:
        _check_only_one(request, earlier, store)


def _check_only_one(request: RestoreRequest, earlier: RestoreRequest, store: ObjectStore) -> None:
    key = earlier.documents.successor
    try:
        found = parse_document(store.get(key), Successor, key).restore_id
    except NotFoundError:
        return
    if found != request.restore_id:
        raise PreflightError(
            f"restore {found} comes after restore {earlier.restore_id} already ({store.uri(key)}), so restore "
            f"{request.restore_id} cannot: both would send the same. Let restore {found} finish, or run it again under "
            f"its id, and come after that one"
        )


def save_known(request: RestoreRequest, known: Known | None, store: ObjectStore) -> None:
    """Store the known objects before the plan is stored. A run that was killed in between has stored the same.

    Raises:
        PreflightError: the document exists and has other objects.
    """
    if known is None:
        return
    key = request.documents.known
    try:
        store.put_new(key, known.to_parquet())
    except PreconditionError as err:
        if not Known.from_parquet(store.get(key), store.uri(key)).table.equals(known.table):
            raise PreflightError(
                f"{store.uri(key)} says of restore {request.restore_id} that something else was sent before it: a run "
                f"of this id was to come after another restore. Take another restore id"
            ) from err


class Polls:
    """The restores by which a source connector sends new objects: `poll.<connector>.1`, `.2`, `.3` and so on."""

    def __init__(self, config: ConnectorConfig) -> None:
        self._config = config
        self._store = ObjectStore(config.restore_store)

    def restore_id(self, number: int) -> str:
        """Return the id of the restore `number`."""
        return f"poll.{self._config.name}.{number}"

    def newest(self, seen: int = 0) -> int:
        """Return the number of the newest restore that has begun, 0 before the first. `seen` is one that has begun."""
        number = seen or max(self._listed(), default=0)
        while self._store.head(self._request(number + 1).documents.plan) is not None:
            number += 1
        return number

    def is_finished(self, number: int) -> bool:
        """Whether the restore has sent and verified everything."""
        return self._store.head(self._request(number).documents.report) is not None

    def new_objects(self, number: int) -> Unsent:
        """Find the objects in the bucket that no restore up to `number` has sent.

        Those that the restore `number` left out as bad are none, as long as they and the file's reading are the same:
        they are tried again beside new ones.

        Raises:
            PlatformError: planning the next restore would raise it too.
        """
        known = read_known(self._request(number + 1), self.restore_id(number) if number else None, self._store)
        found = scan_objects(self._config, preferred=known.etags if known else ())
        objects = list(found)
        check_found(found, objects, known)
        if known is None and not objects:
            return Unsent((), (found.searched(),))
        unsent = (known or Known.of(())).unsent(objects)
        return self._without_tried(number, unsent) if number else unsent

    def _without_tried(self, number: int, unsent: Unsent) -> Unsent:
        request = self._request(number)
        plan, _ = _read_finished(request, self._store)
        if plan.terms.get("read_as") != collect_foreign_terms(request, (), None, None)["read_as"]:
            return unsent
        tried = {(o.key, o.etag) for o in plan.objects}
        new = tuple(o for o in unsent.objects if (o.key, o.etag) not in tried)
        count = len(unsent.objects) - len(new)
        what = f"{count:,} objects are as they were when restore {request.restore_id} left them out as bad"
        return Unsent(new, (*unsent.notes, *(what,) * bool(count)), unsent.skipped)

    def _listed(self) -> set[int]:
        # There is no restore 0. The key of its plan shows with what the keys of all these plans begin.
        prefix = self._request(0).documents.plan.removesuffix("0.json")
        found = set[int]()
        for item in self._store.list(prefix):
            if named := re.fullmatch(r"([1-9]\d*)\.json", item.key.removeprefix(prefix)):
                found.add(int(named[1]))
        return found

    def _request(self, number: int) -> RestoreRequest:
        return RestoreRequest(self._config, topic="", to_topic="", restore_id=self.restore_id(number), run_id="")
