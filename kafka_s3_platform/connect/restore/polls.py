"""Consecutive restores of a source connector. Each sends the objects that are new since the one before it.

Besides its plan, a restore stores the objects sent by earlier ones. Neither document changes once the restore is
finished, so the next one finds everything in these two, however many restores there were.
"""

import json
import re
from dataclasses import dataclass, replace

import msgspec

from kafka_s3_platform.connect.restore.source.foreign_plan import (
    ForeignPlan,
    SentObjects,
    Unsent,
    check_listing,
    collect_foreign_terms,
)
from kafka_s3_platform.connect.sources.objects import ForeignObject
from kafka_s3_platform.connect.sources.scan import SourceListing
from kafka_s3_platform.core.config.settings import ConnectorConfig, routes_records
from kafka_s3_platform.core.errors import ConfigError, IntegrityError, PreflightError
from kafka_s3_platform.core.restore.documents import parse_document
from kafka_s3_platform.core.restore.preflight.begin import read_stored_report
from kafka_s3_platform.core.restore.request import RestoreReport, RestoreRequest
from kafka_s3_platform.core.restore.source.terms import RecordFacts, RequestFacts, TransformFacts, collect_request_terms
from kafka_s3_platform.core.store.errors import NotFoundError, PreconditionError
from kafka_s3_platform.core.store.objects import ObjectStore


@dataclass(frozen=True)
class Successor:
    """The document that names the one restore to follow another. Two successors would send the same objects."""

    restore_id: str


def read_sent(request: RestoreRequest, after: str | None, store: ObjectStore) -> SentObjects | None:
    """Read the objects sent by the restore `after` and earlier ones. Return None if `after` is None.

    Raises:
        PreflightError: the restore is not finished, cannot be followed by this one, or already has another successor.
        ConfigError: `after` is no restore id, or it is the id of the request itself.
        IntegrityError: the documents of `after` were changed.
    """
    if after is None:
        return None
    if after == request.restore_id:
        raise ConfigError(f"restore {after} cannot come after itself: give it an id of its own")
    earlier = replace(request, restore_id=after)
    plan, report = _read_finished(earlier, store)
    _check_only_one(request, earlier, store)
    newest = _collect_sent(plan, report)
    if plan.facts.after is None:
        return newest
    try:
        return (
            SentObjects.from_parquet(store.get(earlier.documents.sent_before), store.uri(earlier.documents.sent_before))
            | newest
        )
    except NotFoundError as err:
        raise IntegrityError(f"the list of objects sent before restore {after} is missing: {err}") from err


def _collect_sent(plan: ForeignPlan, report: RestoreReport) -> SentObjects:
    """Return the objects sent by a finished restore.

    Bad objects are not among them, nor are the other objects with keys, values or headers of the same records.
    """
    left_out = set(report.left_out)
    objects: list[ForeignObject] = []
    for group in plan.groups:
        for one in group.sets:
            if left_out.isdisjoint(o.key for o in one.objects):
                objects += one.objects
    starts = plan.starts or {}
    targets = {
        topic: [(name, starts[name].topic_id) for name in names if name in starts]
        for topic, names in plan.targets.items()
    }
    return SentObjects.of(objects, targets)


def _read_finished(earlier: RestoreRequest, store: ObjectStore) -> tuple[ForeignPlan, RestoreReport]:
    """Read the plan and the report of an earlier restore. Raise PreflightError if no restore can follow it."""
    after = earlier.restore_id
    connector = earlier.config.name
    try:
        plan = ForeignPlan.from_json(store.get(earlier.documents.plan), earlier.documents.plan)
    except NotFoundError as err:
        raise PreflightError(f"restore {after} was never begun, so no restore can come after it: {err}") from err
    if plan.facts.connector != connector:
        raise PreflightError(f"restore {after} belongs to connector {plan.facts.connector}, not to {connector}")
    if windows := plan.facts.windows_named:
        raise PreflightError(
            f"restore {after} sent a window ({', '.join(windows)}), so it may have sent objects in part: no restore "
            "can come after it"
        )
    report = read_stored_report(earlier, store)
    if report is None:
        raise PreflightError(
            f"restore {after} is not finished: there is no {store.uri(earlier.documents.report)}. Run it again under "
            "its id first, then run the restore that comes after it"
        )
    return plan, report


def check_same_records(request: RestoreRequest, after: str | None, store: ObjectStore) -> None:
    """Check that this restore filters records as the restore `after` did. Otherwise some would never be sent.

    Raises:
        PreflightError: the filters differ, or the transforms if they may drop records.
    """
    if after is None:
        return
    earlier = replace(request, restore_id=after)
    plan = ForeignPlan.from_json(store.get(earlier.documents.plan), earlier.documents.plan)
    before = _find_choice(plan.facts)
    now = _find_choice(RequestFacts.of(collect_request_terms(earlier), earlier.documents.plan))
    if before is not None and before != now:
        raise PreflightError(
            f"restore {after} sent only some records of its objects: it selected by {_write_choice(before)}, and "
            f"this one selects by {_write_choice(now)}. The records that it left out would never be sent. Make the "
            "same selection, or restore these records without --after, to another topic under another restore id"
        )


@dataclass(frozen=True)
class _Choice:
    """The filter of a restore, and its transforms if one of them may drop records."""

    records: RecordFacts | None
    transforms: tuple[TransformFacts, ...]


def _find_choice(facts: RequestFacts) -> _Choice | None:
    """Return the filter, and the transforms if one of them may drop records, or None if nothing is left out."""
    drops = any(map(_may_drop, facts.transforms))
    if not drops and facts.records is None:
        return None
    # Transforms that drop nothing may differ: they do not decide which records are sent.
    return _Choice(facts.records, facts.transforms if drops else ())


def _write_choice(choice: _Choice | None) -> str:
    """Return the filter and the transforms as JSON, for a message."""
    return json.dumps(msgspec.to_builtins(choice))


def _may_drop(step: TransformFacts) -> bool:
    """Return True if a transform may leave records out, or send them elsewhere."""
    predicate = step.predicate.type if step.predicate else None
    return step.type == "Filter" or routes_records(step.type, predicate)


def claim_successor(request: RestoreRequest, after: str | None, store: ObjectStore) -> None:
    """Store this restore as the successor of `after`.

    Raises:
        PreflightError: `after` already has another successor.
    """
    if after is None:
        return
    earlier = replace(request, restore_id=after)
    try:
        store.put_new(earlier.documents.successor, json.dumps({"restore_id": request.restore_id}).encode())
    except PreconditionError:
        _check_only_one(request, earlier, store)


def _check_only_one(request: RestoreRequest, earlier: RestoreRequest, store: ObjectStore) -> None:
    """Raise PreflightError if a restore other than this one follows `earlier`."""
    key = earlier.documents.successor
    try:
        successor = parse_document(store.get(key), Successor, key).restore_id
    except NotFoundError:
        return
    if successor != request.restore_id:
        raise PreflightError(
            f"restore {successor} already comes after restore {earlier.restore_id} ({store.uri(key)}), so restore "
            f"{request.restore_id} cannot: both would send the same objects. Let restore {successor} finish, or run "
            "it again under its id, and restore after that one"
        )


def save_sent(request: RestoreRequest, sent: SentObjects | None, store: ObjectStore) -> None:
    """Store the sent objects, before the plan is stored. If a run is killed in between, the next one stores the same.

    Raises:
        PreflightError: the document already exists and lists other objects.
    """
    if sent is None:
        return
    key = request.documents.sent_before
    try:
        store.put_new(key, sent.to_parquet())
    except PreconditionError as err:
        if not SentObjects.from_parquet(store.get(key), store.uri(key)).table.equals(sent.table):
            raise PreflightError(
                f"{store.uri(key)} lists other objects as sent before restore {request.restore_id}: an earlier run "
                "of this id came after another restore. Use another restore id"
            ) from err


class Polls:
    """The restores that send new objects of a source connector: `poll.<connector>.1`, `.2`, `.3` and so on."""

    def __init__(self, config: ConnectorConfig) -> None:
        self._config = config
        self._store = ObjectStore(config.restore_store)

    def restore_id(self, number: int) -> str:
        """Return the id of the restore with this number."""
        return f"poll.{self._config.name}.{number}"

    def newest(self, begun: int = 0) -> int:
        """Return the number of the newest restore begun, or 0. `begun` is the number of one known to have begun."""
        number = begun or max(self._listed(), default=0)
        while self._store.head(self._request(number + 1).documents.plan) is not None:
            number += 1
        return number

    def is_finished(self, number: int) -> bool:
        """Return True if the restore has sent and verified everything."""
        return self._store.head(self._request(number).documents.report) is not None

    def new_objects(self, number: int) -> Unsent:
        """Find the objects in the bucket that no restore up to `number` has sent.

        Objects that the restore `number` left out as bad do not count, as long as they and the way to read them are
        unchanged. They are tried again together with new ones.

        Raises:
            PlatformError: planning the next restore would raise the same error.
        """
        sent = read_sent(self._request(number + 1), self.restore_id(number) if number else None, self._store)
        listing = SourceListing(self._config, preferred=sent.etags if sent else ())
        objects = list(listing)
        check_listing(listing, objects, sent)
        if sent is None and not objects:
            return Unsent((), (listing.describe_search(),))
        unsent = (sent or SentObjects.of(())).find_unsent(objects)
        return self._without_tried(number, unsent) if number else unsent

    def _without_tried(self, number: int, unsent: Unsent) -> Unsent:
        """Leave out objects that the restore `number` found bad, as long as they would be read as then."""
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
        """Return the numbers of the connector's restores with a stored plan."""
        # There is no restore 0. The key of its plan shows the common prefix of all these plans.
        prefix = self._request(0).documents.plan.removesuffix("0.json")
        numbers = set[int]()
        for item in self._store.list(prefix):
            if named := re.fullmatch(r"([1-9]\d*)\.json", item.key.removeprefix(prefix)):
                numbers.add(int(named[1]))
        return numbers

    def _request(self, number: int) -> RestoreRequest:
        """Return a request with the id of the restore `number`, for finding its documents."""
        return RestoreRequest(self._config, topic="", to_topic="", restore_id=self.restore_id(number), run_id="")
