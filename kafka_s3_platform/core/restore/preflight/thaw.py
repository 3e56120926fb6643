"""Reports objects in cold storage classes, requests copies of them, and waits for the copies."""

import logging
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from kafka_s3_platform.core.config.settings import ThawTier
from kafka_s3_platform.core.errors import BusyError
from kafka_s3_platform.core.restore.preflight.target import PreflightFinding, make_remark
from kafka_s3_platform.core.restore.request import RestoreRequest
from kafka_s3_platform.core.store.objects import ObjectInfo, ObjectStore

logger = logging.getLogger(__name__)

POLL_SECONDS = 60.0
"""The interval at which the store is asked for thawed objects. The fastest tier takes minutes."""
REQUESTS_AT_ONCE = 16

_NOT_ASKED_FOR = (
    "set the number of days for which to thaw them: --thaw-days, how.thaw_days, or archive.source.thaw.days in the "
    "file of a source connector"
)
_ASKED_FOR = (
    "copies of them were requested. Run again under this restore id when these are available, after minutes to "
    "days, depending on the tier"
)


def describe_cold(keys: Sequence[str]) -> Iterator[PreflightFinding]:
    """Report the number of objects in cold storage. `keys` are their keys."""
    if keys:
        yield make_remark(f"{len(keys)} objects are in cold storage, such as {keys[0]}")


def thaw_objects(request: RestoreRequest, objects: Sequence[tuple[ObjectStore, str]]) -> None:
    """Request the cold ones of these objects once, and wait until all can be read. `objects` are stores and keys.

    If the request thaws nothing, cold objects are bad objects, for which `behavior.on.error` decides.

    Raises:
        BusyError: some objects are still cold when the wait is over, or the request thaws nothing. Glacier takes hours,
            so the run may end and be started again.
    """
    thawing = request.thawing
    if thawing.days is None:
        if request.on_error == "fail" and (cold := _find_cold(objects)):
            raise _make_cold_error(request, cold, _NOT_ASKED_FOR)
        return
    cold = _find_cold(objects)
    # S3 refuses a second request for an object while the first is under way.
    _request_thaws([(store, info) for store, info in cold if not info.thaw], thawing.days, thawing.tier or "Standard")
    deadline = time.monotonic() + thawing.wait_seconds
    while cold:
        if time.monotonic() >= deadline:
            raise _make_cold_error(request, cold, _ASKED_FOR)
        logger.info("restore %s: waiting for %d objects from cold storage", request.restore_id, len(cold))
        time.sleep(POLL_SECONDS)
        cold = _find_cold([(store, info.key) for store, info in cold])


ColdObject = tuple[ObjectStore, ObjectInfo]
"""An object in cold storage, and its store."""


def _find_cold(objects: Sequence[tuple[ObjectStore, str]]) -> list[ColdObject]:
    """Ask about objects, by their stores and keys. Return the ones in cold storage."""
    with ThreadPoolExecutor(REQUESTS_AT_ONCE, thread_name_prefix="thaw") as pool:
        infos = list(pool.map(lambda place: place[0].head(place[1]), objects))
    return [(store, info) for (store, _), info in zip(objects, infos, strict=True) if info is not None and info.is_cold]


def _request_thaws(cold: Sequence[ColdObject], days: int, tier: ThawTier) -> None:
    """Request copies of the objects for `days` days. Raise the first error."""
    with ThreadPoolExecutor(REQUESTS_AT_ONCE, thread_name_prefix="thaw") as pool:
        list(pool.map(lambda item: item[0].request_thaw(item[1].key, days, tier), cold))


def _make_cold_error(request: RestoreRequest, cold: Sequence[ColdObject], advice: str) -> BusyError:
    """Build the error for objects in cold storage."""
    named = ", ".join(info.key for _, info in cold[:5])
    return BusyError(
        f"restore {request.restore_id}: {len(cold)} objects are in cold storage, such as {named}: {advice}"
    )
