"""Restores of a source connector that follow each other: each sends what came since the one before it.

Beside its plan, a restore keeps what those before it have sent. Both never change once the restore is finished, so the
next one finds all that is known in two documents, however many restores there were.
"""

import logging
import re
from dataclasses import replace

from kafka_s3_platform.config.settings import ConnectorConfig
from kafka_s3_platform.errors import ConfigError, IntegrityError, PreflightError
from kafka_s3_platform.restore.foreign_plan import ForeignPlan, check_found
from kafka_s3_platform.restore.known import Known, Unsent
from kafka_s3_platform.restore.request import RestoreRequest
from kafka_s3_platform.sources.scan import scan
from kafka_s3_platform.store.errors import NotFoundError, PreconditionError
from kafka_s3_platform.store.objects import ObjectStore

logger = logging.getLogger(__name__)

_PARTLY = ("from_time", "to_time", "windows", "from_offset", "to_offset")
"""Terms by which an object may have been sent in part."""


def known_before(request: RestoreRequest, after: str | None, store: ObjectStore) -> Known | None:
    """What the restore `after` and those before it have sent, None where there is none before.

    Raises:
        PreflightError: that restore is not finished, or is no such one that another can go on after.
        ConfigError: `after` is no restore id, or that of the request itself.
        IntegrityError: its documents were changed.
    """
    if after is None:
        return None
    if after == request.restore_id:
        raise ConfigError(f"restore {after} cannot come after itself: give it an id of its own")
    earlier = replace(request, restore_id=after)
    plan = _finished(earlier, store)
    own = Known.of(plan.objects)
    if plan.terms.get("after") is None:
        return own
    try:
        return Known.from_parquet(store.get(_known_key(earlier)), store.uri(_known_key(earlier))) | own
    except NotFoundError as err:
        raise IntegrityError(f"what was sent before restore {after} is not known any more: {err}") from err


def _finished(earlier: RestoreRequest, store: ObjectStore) -> ForeignPlan:
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
    if store.head(earlier.report_key) is None:
        raise PreflightError(
            f"restore {after} is not finished: there is no {store.uri(earlier.report_key)}. Run it again under its id, "
            f"then what comes after it"
        )
    return plan


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
