"""Objects in cold storage classes: asked for, and waited for."""

import time
from collections.abc import Callable, Iterable

from kafka_s3_platform.config.settings import SourceSettings
from kafka_s3_platform.errors import BusyError
from kafka_s3_platform.sources.objects import ForeignObject
from kafka_s3_platform.store.objects import ObjectStore

POLL_SECONDS = 60.0


def thaw(
    objects: Iterable[ForeignObject],
    source: SourceSettings,
    store: ObjectStore,
    *,
    wait_seconds: float = 0.0,
    poll_seconds: float = POLL_SECONDS,
    progress: Callable[[int], None] = lambda _: None,
) -> None:
    """Ask for the cold ones among the objects, once, and wait until all of them can be read.

    Args:
        objects: others among them are left alone.
        source: for how many days, how fast; without days nothing is asked for.
        store: of the bucket.
        wait_seconds: how long to wait at most; Glacier takes hours, so a run may end and be run again.
        poll_seconds: how often to look.
        progress: is told how many are still to come.

    Raises:
        BusyError: some are still to come when the wait is over, or are cold and were not to be asked for.
    """
    cold = [o for o in objects if o.is_cold]
    left = [o for o in cold if _asked(o, source, store) != "thawed"]
    deadline = time.monotonic() + wait_seconds
    while left:
        progress(len(left))
        if source.thaw_days is None or time.monotonic() >= deadline:
            raise BusyError(_still_cold(left, source))
        time.sleep(poll_seconds)
        left = [o for o in left if store.thaw_state(o.key) != "thawed"]


def _asked(item: ForeignObject, source: SourceSettings, store: ObjectStore) -> str:
    state = store.thaw_state(item.key)
    if not state and source.thaw_days is not None:
        store.request_thaw(item.key, source.thaw_days, source.thaw_tier)
    return state


def _still_cold(left: list[ForeignObject], source: SourceSettings) -> str:
    named = ", ".join(o.key for o in left[:5])
    advice = (
        "set archive.source.thaw.days to have them thawed"
        if source.thaw_days is None
        else "they were asked for; run again when they are there: minutes to days, as archive.source.thaw.tier has it"
    )
    return f"{len(left)} objects lie in cold storage, such as {named}: {advice}"
