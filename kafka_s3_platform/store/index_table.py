"""Opens the Delta table of an index, and refuses files foreign to an index.

A table is opened at one version. A commit uses the handle of its plan: see `store/index.py`.
"""

import dataclasses
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from kafka_s3_platform.config.settings import StoreSettings
from kafka_s3_platform.errors import IndexDamagedError, MissingBucketError
from kafka_s3_platform.store.client import suggest_bucket
from kafka_s3_platform.store.credentials import Credentials, find_credentials
from kafka_s3_platform.store.delta_errors import classify_delta_error
from kafka_s3_platform.store.delta_log import (
    extend_segment,
    find_newest_version,
    list_log_segment,
    list_newer,
    refuse_deletion_vectors,
)
from kafka_s3_platform.store.delta_options import build_delta_options
from kafka_s3_platform.store.objects import ObjectInfo, ObjectStore
from kafka_s3_platform.waits import waiting_for

R = TypeVar("R")

_OWN_FILE = re.compile(r"(?!.*(?:^|/)\.\.?(?:/|$))[A-Za-z0-9_.=+-]+(?:/[A-Za-z0-9_.=+-]+)*")
"""A path of a file below the table's folder, in characters without a need for decoding."""


@dataclass(frozen=True)
class Handle:
    """An open table, and its options. delta-rs keeps them, so their credentials may expire.

    `log` are the files of the log of the checked `version`. The last one identifies the version among others of that
    number. A commit brings the table, not the handle, to the next version.
    """

    table: DeltaTable
    options: Mapping[str, str] = dataclasses.field(repr=False)
    version: int
    log: tuple[ObjectInfo, ...]


@dataclass(frozen=True)
class IndexTable:
    """The Delta table in `folder`. It need not exist."""

    store: StoreSettings = dataclasses.field(repr=False)
    folder: str
    _options: dict[Credentials, dict[str, str]] = dataclasses.field(default_factory=dict, repr=False, compare=False)

    @property
    def uri(self) -> str:
        return f"s3://{self.store.bucket}/{self.folder}"

    @property
    def options(self) -> dict[str, str]:
        """delta-rs's options with the credentials that are valid now, secrets included."""
        # the environment is read once for each credentials: it is large, and each use of the table asks
        access = find_credentials(self.store)
        if access not in self._options:
            self._options.clear()
            self._options[access] = build_delta_options(self.store)
        return self._options[access]

    @cached_property
    def objects(self) -> ObjectStore:
        """The bucket of the table."""
        return ObjectStore(self.store)

    def open(self, version: int | None = None) -> Handle:
        """Return the table as it is now, or as it was at `version`. Raises TableNotFoundError if there is none."""
        options = self.options
        table = self.run("open", lambda: DeltaTable(self.uri, version=version, storage_options=options))
        log = list_log_segment(self.objects, self.folder, table.version())
        return self._check(Handle(table, options, table.version(), log))

    def update(self, handle: Handle) -> Handle | None:
        """Bring the handle's table up to the newest version, and read only the difference: without any, one request.

        Return None if the log has lost the handle's version, or has another one: so it is after the log was put back
        from a backup. The handle must not be used any more then.
        """
        first = handle.table.version()
        newer = list_newer(self.objects, self.folder, handle.log, first)
        if find_newest_version(newer) > first:
            self.run("read", handle.table.update_incremental)
            if find_newest_version(newer) < handle.table.version():
                # somebody committed meanwhile
                newer = list_newer(self.objects, self.folder, handle.log, first)
        version = handle.table.version()
        if not newer or find_newest_version(newer) < version:
            return None
        if version == handle.version:
            return handle
        return self._check(replace(handle, version=version, log=extend_segment(handle.log, newer, version)))

    def is_newest(self, handle: Handle) -> bool:
        """Return True if the log still ends with the handle's version, not with another one of that number."""
        return find_newest_version(list_newer(self.objects, self.folder, handle.log, handle.version)) == handle.version

    def follow_commit(self, handle: Handle) -> Handle | None:
        """Return the handle with the log entry of its commit, read from the store.

        Return None if the log has lost the version before it.
        """
        newer = list_newer(self.objects, self.folder, handle.log, handle.version)
        log = extend_segment(handle.log, newer, handle.table.version())
        return replace(handle, log=log) if newer else None

    def name_log_entry(self, version: int) -> str:
        """Return the key of the log entry of a version of Delta's."""
        return f"{self.folder}/_delta_log/{version:020d}.json"

    def _check(self, handle: Handle) -> Handle:
        """Return the handle. Refuse a version with files out of its folder, or with deletion vectors.

        delta-rs follows both, also to this machine's files (`file:///`).
        """
        files = self.run("read", lambda: pa.table(handle.table.get_add_actions(flatten=True)))
        for path in files.column("path").to_pylist():
            if not _OWN_FILE.fullmatch(path):
                raise IndexDamagedError(
                    f"the index {self.uri} names {path!r} as one of its files, which is none in its folder, and is not "
                    f"read. Nothing of ours writes such a path: find out who wrote to that folder, and put its "
                    f"_delta_log back from the bucket's versions or a backup"
                )
        self.run("read", lambda: refuse_deletion_vectors(self.objects, self.folder, handle.log))
        return handle

    def run(self, verb: str, call: Callable[[], R]) -> R:
        """Return `call()`. Raise errors of delta-rs and Arrow as store errors with the index's name."""
        place = self.store.endpoint_url or "AWS"
        try:
            with waiting_for(f"the store at {place}"):
                return call()
        except TableNotFoundError:
            raise
        except (DeltaError, OSError, pa.ArrowException) as err:
            attempt = f"could not {verb} the index {self.uri} at {place}"
            failure = classify_delta_error(attempt, err)
            if isinstance(failure, MissingBucketError):
                failure = suggest_bucket(failure, self.store)
            raise failure from err
