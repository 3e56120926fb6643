"""Objects in cold storage classes: told of, asked for, and waited for."""

import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from kafka_s3_platform.config.settings import ThawTier
from kafka_s3_platform.errors import BusyError
from kafka_s3_platform.restore.request import RestoreRequest
from kafka_s3_platform.restore.target import Finding, remark
from kafka_s3_platform.sources.objects import ForeignObject
from kafka_s3_platform.store.objects import ObjectInfo, ObjectStore

logger = logging.getLogger(__name__)

POLL_SECONDS = 60.0
REQUESTS_AT_ONCE = 16

_NOT_ASKED_FOR = (
    "say for how many days they are to be thawed: --thaw-days, thaw_days, or archive.source.thaw.days in the file of a "
    "source connector"
)
_ASKED_FOR = "they were asked for; run again under this restore id when they are there: minutes to days, by their tier"


def cold_findings(objects: Iterable[ObjectInfo | ForeignObject | None]) -> Iterator[Finding]:
    """What preflight says of those among them that are in cold storage."""
    cold = [o.key for o in objects if o is not None and o.is_cold]
    if cold:
        yield remark(f"{len(cold)} objects lie in cold storage, such as {cold[0]}")


def thaw(request: RestoreRequest, keys: Sequence[str], store: ObjectStore) -> None:
    """Ask for the cold ones of these objects, once, and wait until all of them can be read.

    Those that nobody asks for are bad objects: `behavior.on.error` decides.

    Raises:
        BusyError: some are still to come when the wait is over, or were not to be asked for. Glacier takes hours, so a
            run may end and be run again.
    """
    wanted = request.thawing
    if wanted.days is None:
        if request.on_error == "fail" and (left := _cold(keys, store)):
            raise _still_cold(request, left, _NOT_ASKED_FOR)
        return
    left = _cold(keys, store)
    _ask([o.key for o in left if not o.thaw], wanted.days, wanted.tier or "Standard", store)
    deadline = time.monotonic() + wanted.wait_seconds
    while left:
        if time.monotonic() >= deadline:
            raise _still_cold(request, left, _ASKED_FOR)
        logger.info("restore %s: waiting for %d objects from cold storage", request.restore_id, len(left))
        time.sleep(POLL_SECONDS)
        left = _cold([o.key for o in left], store)


def _cold(keys: Sequence[str], store: ObjectStore) -> list[ObjectInfo]:
    return [found for found in store.heads(keys) if found is not None and found.is_cold]


def _ask(keys: Sequence[str], days: int, tier: ThawTier, store: ObjectStore) -> None:
    with ThreadPoolExecutor(REQUESTS_AT_ONCE, thread_name_prefix="thaw") as pool:
        for asked in [pool.submit(store.request_thaw, key, days, tier) for key in keys]:
            asked.result()


def _still_cold(request: RestoreRequest, left: Sequence[ObjectInfo], advice: str) -> BusyError:
    named = ", ".join(o.key for o in left[:5])
    return BusyError(
        f"restore {request.restore_id}: {len(left)} objects lie in cold storage, such as {named}: {advice}"
    )
