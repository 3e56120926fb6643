"""Checks that the store keeps the promises an archive relies on.

Each process checks once, before its first write that depends on a promise. The check uses one small object, which is
not deleted, because the run path has no right to delete. It lies in a folder of our own documents, because folders of
records hold nothing but records.

Several processes may check at the same moment, and must not mistake each other's writes for a broken promise. A
successful conditional write proves that no other process wrote in between.
"""

import logging
import random
import threading
import time
from uuid import uuid4

from kafka_s3_platform.core.errors import AuthorizationError, ConfigError, PlatformError, StoreUnavailableError
from kafka_s3_platform.core.store.errors import NotFoundError, PreconditionError
from kafka_s3_platform.core.store.objects import NO_ETAG, WRITE_ID, ObjectStore, new_write_id

logger = logging.getLogger(__name__)

WRITE_CHECK = ".write-check"
TRIES = 12
LONGEST_WAIT_SECONDS = 2.0

checked_places: set[tuple[str, str, bool]] = set()
_table_lock = threading.Lock()
_locks: dict[tuple[str, str], threading.Lock] = {}
"""One lock for each store and folder, so a silent store does not hold up another."""


class _OvertakenError(Exception):
    """Another process has written the object meanwhile."""


def check_promises(store: ObjectStore, prefix: str, uploads: bool = False) -> None:
    """Check writing and reading of objects under `prefix`, and the store's promises.

    The store must refuse a write with a false condition and, if `uploads`, also the end of a multipart upload with one.
    It must read and list the newest write. Listing is not checked without the right to list. Raises ConfigError if the
    store breaks a promise; the message names the promise and the loss.
    """
    place = store.settings.model_dump_json(), prefix
    with _table_lock:
        lock = _locks.setdefault(place, threading.Lock())
    with lock:
        if not {(*place, uploads), (*place, True)} & checked_places:
            _PromiseCheck(store, f"{prefix}/{WRITE_CHECK}".lstrip("/")).run(uploads)
            checked_places.add((*place, uploads))


class _PromiseCheck:
    """Checks the promises of one store, once, with writes of the object `key`."""

    def __init__(self, store: ObjectStore, key: str) -> None:
        self._store = store
        self._key = key

    def run(self, uploads: bool) -> None:
        """Check writes, again while other processes write the same object; then multipart uploads, if `uploads`."""
        for n in range(TRIES):
            try:
                self._check_writes()
                break
            except _OvertakenError:
                time.sleep(random.uniform(0, min(0.05 * 2**n, LONGEST_WAIT_SECONDS)))  # noqa: S311 - jitter
        else:
            raise StoreUnavailableError(
                f"{self._place}: a PUT with `If-Match` and the object's ETag was refused {TRIES} times. Either as many "
                f"other processes wrote this object at those moments: run again. Or the store refuses every such PUT: "
                f"then use one that knows conditional writes"
            )
        if uploads:
            self._check_upload()

    def _check_writes(self) -> None:
        """Raise ConfigError if the store ignores `If-Match`, or reads or lists an old object after a write.

        If another process writes the object meanwhile, `_overwrite` raises _OvertakenError, and the caller begins
        again.
        """
        first_etag = self._overwrite(self._find_or_create())
        if self._is_written(NO_ETAG):
            raise self._build_broken_error("overwrote an object of another ETag", "`If-Match`", _LOST_REPLACED)
        body = _make_body()
        second_etag = self._overwrite(first_etag, body)
        for problem, loss, is_so in (
            ("the object read just after it was written is an older one", _LOST_READ, self._can_read(body)),
            (
                "the object listed just after it was written is missing or an older one",
                _LOST_LISTED,
                self._can_list(second_etag),
            ),
        ):
            if not is_so:
                # succeeds only if no other process wrote meanwhile: else its write was read
                self._overwrite(second_etag)
                raise ConfigError(f"{self._place}: {problem}. {loss} {_ADVICE}")

    def _find_or_create(self) -> str:
        """Return the object's ETag. Create the object if there is none."""
        try:
            created_etag = self._store.put_new(self._key, _make_body())
        except PreconditionError:
            info = self._store.head(self._key)
            if info is None:
                raise _OvertakenError from None
            return info.etag
        if self._is_written(None):
            raise self._build_broken_error("overwrote an object that was there", "`If-None-Match: *`", _LOST_CREATED)
        return created_etag

    def _is_written(self, if_match: str | None) -> bool:
        """Return True if the store does a conditional write in spite of its false condition."""
        try:
            if if_match is None:
                self._store.put_new(self._key, _make_body())
            else:
                self._store.replace(self._key, _make_body(), if_match)
        except (PreconditionError, NotFoundError):
            return False
        return True

    def _overwrite(self, etag: str, body: bytes | None = None) -> str:
        """Replace the object with this ETag. Return its new ETag. Raises _OvertakenError if another object is there."""
        try:
            return self._store.replace(self._key, body or _make_body(), etag)
        except (PreconditionError, NotFoundError) as err:
            raise _OvertakenError from err

    def _can_read(self, body: bytes) -> bool:
        """Return True if a read returns the bytes just written."""
        try:
            return self._store.get(self._key) == body
        except NotFoundError:
            return False

    def _can_list(self, written_etag: str) -> bool:
        """Return True if a listing has the object just written. Without the right to list, this is assumed."""
        try:
            etags = {o.key: o.etag for o in self._store.list(self._key)}
        except AuthorizationError:
            # archiving objects takes no right to list
            logger.debug("no right to list bucket %s, so listings are not tried", self._store.bucket)
            return True
        return etags.get(self._key) == written_etag

    def _check_upload(self) -> None:
        """Raise ConfigError if the end of a multipart upload overwrites an existing object."""
        write_id = new_write_id()
        upload_id = self._store.create_upload(self._key, {WRITE_ID: write_id})
        try:
            part = self._store.upload_part(self._key, upload_id, 1, _make_body())
            self._store.complete_upload(self._key, upload_id, [part], write_id, None)
        except PreconditionError:
            return
        finally:
            self._give_up(upload_id)
        raise self._build_broken_error(
            "overwrote an object that was there", "`If-None-Match: *` at its end", _LOST_CREATED, "an upload"
        )

    def _give_up(self, upload_id: str) -> None:
        try:
            self._store.abort_upload(self._key, upload_id)
        except PlatformError as err:
            logger.warning("an unfinished upload of %s stays: %s", self._store.uri(self._key), err)

    def _build_broken_error(self, effect: str, condition: str, loss: str, request: str = "a PUT") -> ConfigError:
        """Return the error for a store that ignores a condition, with the effect it had and the loss to an archive."""
        return ConfigError(
            f"{self._place}: {request} with {condition} {effect}: the store ignores conditions. {loss} {_ADVICE}"
        )

    @property
    def _place(self) -> str:
        return f"{self._store.uri(self._key)} at {self._store.settings.endpoint_url or 'AWS'}"


_LOST_CREATED = (
    "Objects of others would be overwritten, and of two runs that commit at once both would succeed, though the "
    "records of one are lost."
)
_LOST_REPLACED = "New writes of another process would be overwritten unseen."
_LOST_READ = "Runs would decide by an outdated index: archive twice, or delete live objects."
_LOST_LISTED = "Runs would read the index without its newest commits, and miss archived records."
_ADVICE = (
    "Nothing was written but this check's own object. Use a store, or a version of it, that keeps this promise, and no "
    "cache or gateway before it that does not (docs/connector-files.md, `store.url`)"
)


def _make_body() -> bytes:
    """Make a unique body: a read then identifies its write."""
    return f"kafka-s3-platform writes here {uuid4().hex}\n".encode()
