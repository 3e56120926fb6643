"""Keeps in the bucket, beside the plan, how far one kafka partition of a restore has come."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from kafka_s3_platform.core.errors import SupersededError
from kafka_s3_platform.core.restore.documents import parse_document
from kafka_s3_platform.core.store.errors import NotFoundError, PreconditionError
from kafka_s3_platform.core.store.objects import ObjectStore


@dataclass(frozen=True, slots=True)
class Position:
    """A place in the stream of one source kafka partition.

    When a position is written, all records of the stream below `next_source_offset` are in the target, below
    `next_target_offset`, and no other record of the stream is at or above it. `record_count` is their number. With
    exactly-once delivery the marker decides about resuming, not this position: `next_target_offset` is None, and more
    records may have been committed since.
    """

    next_source_offset: int
    next_target_offset: int | None
    record_count: int = 0


class Checkpoint:
    """The stored position. Each write names the version it replaces, so that one of two writers fails.

    Raises SupersededError if another run of the same restore id has written it since.
    """

    def __init__(self, store: ObjectStore, key: str, owner: str) -> None:
        self._store = store
        self._key = key
        self._owner = owner
        self._etag: str | None = None
        self.position: Position | None = None
        """The position that this writer loaded or saved last."""

    def load(self) -> Position | None:
        """Return the last written position, or None if there is none yet."""
        info = self._store.head(self._key)
        if info is None:
            return None
        self._etag = info.etag
        self.position = parse_document(self._store.get(self._key), Position, self._key)
        return self.position

    def save(self, position: Position) -> None:
        """Write the position in place of the last one this writer loaded or saved."""
        body = json.dumps(asdict(position) | {"owner": self._owner}, indent=1).encode()
        try:
            if self._etag is None:
                self._etag = self._store.put_new(self._key, body)
            else:
                self._etag = self._store.replace(self._key, body, self._etag)
        except (PreconditionError, NotFoundError) as err:
            raise SupersededError(
                f"restore checkpoint {self._key} is no longer the one that {self._owner} wrote: another run of this "
                "restore id is active. Let that run finish, or stop it and run again"
            ) from err
        self.position = position

    @property
    def is_last(self) -> bool:
        """True if nobody else has written since this writer loaded or saved."""
        info = self._store.head(self._key)
        return info is not None and info.etag == self._etag


def read_positions(store: ObjectStore, keys: Sequence[str]) -> list[Position | None]:
    """Read the position at each checkpoint key, or None if nothing was written yet."""
    positions: list[Position | None] = []
    for key in keys:
        try:
            positions.append(parse_document(store.get(key), Position, key))
        except NotFoundError:
            positions.append(None)
    return positions


def save_document(store: ObjectStore, key: str, body: bytes) -> None:
    """Create the object, or replace an existing one."""
    try:
        store.put_new(key, body)
    except PreconditionError:
        if (info := store.head(key)) is None:
            raise
        store.replace(key, body, info.etag)
